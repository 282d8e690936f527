"""Accepts connections, as many and as fast as the limits of a listener and of the broker allow.

While a limit is reached nothing is accepted: clients wait in the queue of the system, as with Kafka. A plain
`asyncio.Server` cannot wait, and uvloop's even less.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

log = logging.getLogger("kohort.broker")

_AT_ONCE = 64
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UNTIL_THERE_ARE_S = 1.0
_BURST_S = 10
"""How many seconds' worth of connections may come at once, as with the samples of Kafka's quotas."""


class CreationRate:
    """How many connections may begin in a second; a burst is made up for by waiting."""

    __slots__ = ("_begun", "_since_s")

    def __init__(self) -> None:
        self._begun = 0.0  # that are not made up for yet
        self._since_s = 0.0

    def wait_s(self, most_a_second: int, now_s: float) -> float:
        """Returns how long the next connection has to wait; 0: not at all."""
        self._begun = max(self._begun - (now_s - self._since_s) * most_a_second, 0.0)
        self._since_s = now_s
        too_many = self._begun + 1 - most_a_second * _BURST_S
        return too_many / most_a_second if too_many > 0 else 0.0

    def count(self) -> None:
        """Counts a connection."""
        self._begun += 1


class Acceptor:
    """Accepts the connections of one listening socket, and hands each to `begin`.

    `wait_s` says how long the next one has to wait, unless `go_on` is called before; 0 is not at all. It is told
    whether one is there for certain.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        wait_s: Callable[[bool], float],
        begin: Callable[[socket.socket], None],
    ) -> None:
        self._loop, self._sock, self._wait_s, self._begin = loop, sock, wait_s, begin
        self._is_waiting = False
        self._timer: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        loop.add_reader(sock.fileno(), self._accept)

    def is_serving(self) -> bool:
        return self._sock.fileno() >= 0

    def close(self) -> None:
        if self.is_serving():
            self._stop_timer()
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def go_on(self) -> None:
        """Looks again whether a connection may be accepted, because one has gone."""
        if self._is_waiting and self.is_serving():
            self._is_waiting = False
            self._stop_timer()
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        for count in range(_AT_ONCE):
            pause_s = self._wait_s(count == 0)
            if pause_s:
                self._wait(pause_s)
                return
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, ConnectionError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                log.warning("cannot accept connections for %s s: %s", _UNTIL_THERE_ARE_S, error.strerror)
                self._wait(_UNTIL_THERE_ARE_S)
                return
            sock.setblocking(False)
            self._begin(sock)

    def _wait(self, pause_s: float) -> None:
        self._is_waiting = True
        self._loop.remove_reader(self._sock.fileno())
        self._timer = self._loop.call_later(pause_s, self.go_on)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
