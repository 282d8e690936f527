"""Waits for sockets, and wakes who waits: by epoll and eventfd on Linux, by `selectors` and a socket pair elsewhere.

This is the only module of the client that knows the two ways. `portable=True` takes the second one, which macOS and BSD
have too; see kohort/portable.py.
"""

from __future__ import annotations

import os
import select
import socket
import weakref
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kohort.wire.errors import KohortError

READ, WRITE = 1, 4  # EPOLLIN and EPOLLOUT, which only Linux has names for

Events = list[tuple[int, int]]
"""Descriptors that are ready, each with READ, WRITE or both; epoll adds other bits to tell of errors."""


class Poller(Protocol):
    """The methods of an epoll that are used here."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def modify(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float | None = None, /) -> Events: ...
    def close(self) -> None: ...


class SelectorPoller:
    """A `selectors.DefaultSelector` with the methods of an epoll."""

    def __init__(self) -> None:
        import selectors  # only here: Linux does without it

        self._selector = selectors.DefaultSelector()
        self._read, self._write = selectors.EVENT_READ, selectors.EVENT_WRITE

    def register(self, fd: int, eventmask: int, /) -> None:
        self._selector.register(fd, self._selected(eventmask))

    def modify(self, fd: int, eventmask: int, /) -> None:
        self._selector.modify(fd, self._selected(eventmask))

    def unregister(self, fd: int, /) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout: float | None = None, /) -> Events:
        return [
            (key.fd, (READ if events & self._read else 0) | (WRITE if events & self._write else 0))
            for key, events in self._selector.select(timeout)
        ]

    def close(self) -> None:
        self._selector.close()

    def _selected(self, eventmask: int) -> int:
        return (self._read if eventmask & READ else 0) | (self._write if eventmask & WRITE else 0)


def check_threads_can_poll() -> None:
    """Raises KohortError where a thread that waits does not see a socket that another thread registers."""
    if not (hasattr(select, "epoll") or hasattr(select, "kqueue")):
        raise KohortError(
            "the blocking clients need epoll (Linux) or kqueue (macOS, BSD), and this system has neither: use "
            "AsyncConsumer, AsyncProducer and AsyncAdmin on an asyncio.SelectorEventLoop, or Linux in a virtual machine"
        )


class Waker:
    """Makes a poller that watches `fd` return, from any thread and any signal handler.

    Waking it several times before it is drained counts as once. Whoever leaves last frees the descriptor: a thread that
    is about to wake must not write to a descriptor that has the same number by then. There is no lock: a signal handler
    may wake, and a forked child closes its copy.
    """

    __slots__ = ("fd", "_write", "_read", "_free", "_is_closed", "_waking", "__weakref__")

    def __init__(self, *, portable: bool) -> None:
        if portable:
            receiver, sender = socket.socketpair()
            receiver.setblocking(False)
            sender.setblocking(False)
            self.fd = receiver.fileno()
            self._write: Callable[[], object] = lambda: sender.send(b"\0")
            self._read: Callable[[], object] = partial(_read_all, receiver)
            self._free: weakref.finalize[..., Waker] = weakref.finalize(self, _close_all, receiver, sender)
        else:
            self.fd = fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._write = lambda: os.eventfd_write(fd, 1)
            self._read = lambda: os.eventfd_read(fd)
            self._free = weakref.finalize(self, os.close, fd)
        self._is_closed = False
        self._waking: list[None] = []

    def wake(self) -> None:
        self._waking.append(None)
        try:
            if not self._is_closed:
                self._write()
        except BlockingIOError:
            pass  # it was woken so often that the buffer is full: it will return
        finally:
            self._waking.pop()
            if self._is_closed:
                self.close()

    def drain(self) -> None:
        """Takes note that it was woken: the poller waits again."""
        try:
            self._read()
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._is_closed = True  # first this, then the look at `_waking`: who wakes from now on does not write
        if not self._waking:
            self._free()


def _read_all(receiver: socket.socket) -> None:
    while len(receiver.recv(4096)) == 4096:
        pass


def _close_all(*sockets: socket.socket) -> None:
    for each in sockets:
        each.close()
