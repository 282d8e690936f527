"""Asks the fork server for a process in the place of this one; run as a script, by what Spark starts as its Python.

`python -I -S fork_client.py SOCKET -m MODULE …` hands arguments, variables, working directory, stdin, stdout and stderr
to the server, passes SIGTERM on to the process that it gets, and ends when that one has ended. If there is no server or
it refuses, it becomes the Python that Spark wanted. It imports next to nothing: it is there to save time.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would load more than all the rest
import _socket
import array
import os
import sys


def request(arguments: list[str], folder: str, environ: dict[bytes, bytes]) -> bytes:
    """What is to be run, as the server reads it: a length, and texts with NUL between them."""
    words = [os.fsencode(folder), b"%d" % len(arguments), *map(os.fsencode, arguments)]
    text = b"\0".join([*words, *(name + b"=" + value for name, value in environ.items())])
    return b"%010d" % len(text) + text


def ask(path: str, arguments: list[str]) -> tuple[_socket.socket, int] | None:
    """A connection to the process that the server has forked, and its pid; None if there is none."""
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        server.connect(path)
        text = request(arguments, os.getcwd(), dict(os.environb))
        descriptors = array.array("i", [0, 1, 2])
        sent = server.sendmsg([text], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        server.sendall(text[sent:])
        pid = server.recv(16)
    except OSError:
        return None
    return (server, int(pid)) if pid else None


def main(path: str, arguments: list[str]) -> None:
    pids: list[int] = []
    early: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        if not pids:
            early.append(number)

    _signal.signal(_signal.SIGTERM, pass_on)  # before there is a process that would not hear of it
    found = ask(path, arguments)
    if found is None:
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        if early:
            sys.exit(128 + early[0])
        os.execv(sys.executable, [sys.executable, *arguments])
    server, pid = found
    pids.append(pid)
    if early:
        pass_on(early[0], None)
    try:
        while server.recv(16):
            pass
    except OSError:
        pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
