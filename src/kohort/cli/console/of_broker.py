"""The console of a broker: a socket from the start, and a process when somebody connects to it.

A broker that nobody looks at pays nothing: the packages of the console are loaded in a process of their own, and only
when the first connection arrives. That process inherits the socket and accepts the connection. If it dies, the next
connection starts it again, a few times; whatever happens to it, the broker goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import kohort
from kohort.cli.console.line import console_line
from kohort.console.listening import (
    INSTALL,
    LOOPBACK,
    PORT,
    address_of,
    is_installed,
    is_open_to_others,
    listen_at,
    listen_somewhere,
    names_of,
    open_to_others,
    parse_address,
)
from kohort.console.tokens import new_token

log = logging.getLogger("kohort.console")

MOST_STARTS, WITHIN_S = 5, 600.0
"""More often the process is not started again in this time."""
_END_S = 5.0


def open_console(where: str | None, bootstrap: str, *, any_port: bool) -> BrokerConsole:
    """Opens the socket of the console; none, with a line in the log, if the packages of the console are missing.

    `where` is what the user said, None: nothing. Then it is loopback, at the usual port or else at a free one; with
    `any_port` at a free one, as that of a broker for which the user said so.
    """
    if not is_installed():
        log.info("no console: %s", INSTALL)
        return BrokerConsole()
    if where is None:
        host, listening = LOOPBACK, listen_somewhere(0 if any_port else PORT)
    else:
        host, port = parse_address(where, "--console")
        listening = listen_at(host, port, "--console")
    if is_open_to_others(listening):
        log.warning("%s", open_to_others(listening))
    return BrokerConsole(listening, bootstrap, names_of(host, listening))


@dataclass(slots=True)
class BrokerConsole:
    """The socket, and the process that serves it when there is one. Without a socket there is no console."""

    listening: socket.socket | None = None
    bootstrap: str = ""
    hosts: list[str] = field(default_factory=list)
    token: str = field(default_factory=new_token)
    _starts: list[float] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None
    _task: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Prints where the console is, and begins to wait for somebody who connects; on the loop."""
        if self.listening is not None:
            print(console_line(address_of(self.listening), self.token), flush=True)
            self._wait_for_somebody(self.listening)

    def _wait_for_somebody(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listening.fileno(), self._on_connection, listening)

    def _on_connection(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        now_s = time.monotonic()
        self._starts = [each for each in self._starts if now_s - each < WITHIN_S]
        if len(self._starts) < MOST_STARTS:
            self._starts.append(now_s)
            self._task = loop.create_task(self._serve(listening))
            return
        log.error("the console has ended %d times and is not started again; the broker goes on", MOST_STARTS)
        self.listening = None
        listening.close()

    async def _serve(self, listening: socket.socket) -> None:
        """Runs the process until it ends; then the next connection starts it again."""
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "kohort.cli.console.child",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(listening.fileno(),), start_new_session=True,
                env={**os.environ, "PYTHONPATH": _search_path()},
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(self._told(listening))
            await process.stdin.drain()
            code = await process.wait()
            words = f"the console has ended with code {code}"
        except OSError as error:
            words = f"the console could not be started: {error}"
        if self.listening is not None:
            log.error("%s; the next connection starts it again", words)
            self._wait_for_somebody(listening)

    def _told(self, listening: socket.socket) -> bytes:
        told = {
            "descriptor": listening.fileno(),
            "settings": {"bootstrap.servers": self.bootstrap, "client.id": "kohort-console"},
            "token": self.token,
            "hosts": self.hosts,
            "log_level": logging.getLevelName(log.getEffectiveLevel()),
        }
        return json.dumps(told).encode() + b"\n"

    async def close(self) -> None:
        """Ends the process, if there is one, and closes the socket."""
        listening, self.listening = self.listening, None
        if listening is None:
            return
        asyncio.get_running_loop().remove_reader(listening.fileno())
        process, task = self._process, self._task
        if task is not None and not task.done():
            if process is not None and process.stdin is not None:
                process.stdin.close()
            done, _ = await asyncio.wait([task], timeout=_END_S)
            if not done and process is not None and process.returncode is None:
                process.kill()
                await asyncio.wait([task], timeout=_END_S)
        listening.close()


def _search_path() -> str:
    """Returns a search path with which the child process runs the same code as this one."""
    here = str(Path(kohort.__file__).parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
