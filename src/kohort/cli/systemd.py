"""Tells systemd that a broker is ready, alive or about to stop (`Type=notify`; sd_notify(3)).

It is imported only if systemd has set NOTIFY_SOCKET. A message that cannot be sent is logged, and the broker goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine

log = logging.getLogger("kohort")


class Systemd:
    """The service manager that started this process, as far as its environment names one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The children of a broker must not speak for it.
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        self._watchdog_s = _watchdog_s()
        self._timer: asyncio.TimerHandle | None = None
        self._start: asyncio.Task[None] | None = None

    def ready_after(self, loaded: Coroutine[None, None, None], status: str) -> None:
        """Says that the broker is ready when `loaded` ends, and then, if WatchdogSec= is set, that it is alive."""
        self._start = self._loop.create_task(self._ready(loaded, status))

    async def _ready(self, loaded: Coroutine[None, None, None], status: str) -> None:
        await loaded
        self._send("READY=1", f"STATUS={status}")
        if self._watchdog_s:
            self._pat()

    def stopping(self, status: str) -> None:
        """Says that the broker stops; systemd then waits for TimeoutStopSec=, not for the watchdog."""
        if self._start is not None:
            self._start.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._send("STOPPING=1", f"STATUS={status}")

    def _pat(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = self._loop.call_later(self._watchdog_s / 2, self._pat)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is in Linux's abstract namespace, where a zero byte stands for it.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        text = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)
            ) as sock:
                sock.setblocking(False)  # a manager that does not read must not stop the broker
                sock.sendto(text.encode("utf-8", "replace"), address)
        except OSError as error:
            log.warning("systemd could not be told %s: %s", lines[0], error)


def _watchdog_s() -> float:
    """Returns how often systemd wants to hear of us, in seconds; 0 if it does not, or asks another process."""
    pid, text = os.environ.pop("WATCHDOG_PID", ""), os.environ.pop("WATCHDOG_USEC", "")
    if not text.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(text) / 1_000_000
