"""The process of the console that belongs to a broker; `kohort serve` starts it when somebody connects.

The first line of its standard input says what to serve, as JSON. The input stays open as long as the broker runs: when
it ends, this process ends too, also if the broker was killed.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys

from kohort.cli.console.pipelines import pipelines_in
from kohort.console.app import ConsoleOptions, create_app
from kohort.console.server import ConsoleServer, end_with_parent

_LONGEST_LINE = 1 << 16


def main() -> int:
    """Serves until the broker ends."""
    told = json.loads(_first_line(sys.stdin.fileno()))
    logging.basicConfig(
        format="%(asctime)s %(levelname)-7s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
        level=told["log_level"],
    )
    listening = socket.socket(fileno=told["descriptor"])
    options = ConsoleOptions(told["token"], allowed_hosts=told["hosts"], pipelines=pipelines_in(None))
    server = ConsoleServer(create_app(told["settings"], options), listening)
    end_with_parent(sys.stdin.fileno(), server.end)
    server.run()
    return 0


def _first_line(descriptor: int) -> bytes:
    """Reads byte by byte, so that nothing behind the line is taken from the pipe."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        byte = os.read(descriptor, 1)
        if not byte:
            raise SystemExit(1)
        line += byte
    return bytes(line)


if __name__ == "__main__":
    sys.exit(main())
