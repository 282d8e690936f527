"""Sockets that are ready, time, and names that are looked up: the same registrations over epoll and over asyncio.

Callbacks run on the thread that drives the reactor, one at a time. Sockets of the group lane are in an epoll of
their own that is nested in two others: in that of all sockets, which the user's thread waits for, and in that of
the background thread, which serves the group lane alone.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kohort.client.core.effects import Lane

if TYPE_CHECKING:
    import asyncio

Action = Callable[[], None]
SocketAddress = tuple[socket.AddressFamily, tuple[str, int]]
"""A family and what `connect` takes."""
FoundAddresses = tuple[list[SocketAddress], OSError | None]
LookUp = Callable[[str, int], FoundAddresses]
Resolved = Callable[[list[SocketAddress], OSError | None], None]

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT


class SteadyClock:
    """Wall-clock milliseconds that never jump: the time of day at the start, and from there the monotonic clock."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000


class Reactor(Protocol):
    """What the network needs of either."""

    def now_ms(self) -> int: ...
    def register(self, sock: socket.socket, lane: Lane, on_readable: Action) -> None: ...
    def want_write(self, sock: socket.socket, on_writable: Action | None) -> None: ...
    def unregister(self, sock: socket.socket) -> None: ...
    def resolve(self, host: str, port: int, then: Resolved) -> None: ...
    def close(self) -> None: ...


class _Watch:
    """One registered socket."""

    __slots__ = ("on_readable", "on_writable", "epoll")

    def __init__(self, on_readable: Action, epoll: select.epoll) -> None:
        self.on_readable = on_readable
        self.on_writable: Action | None = None
        self.epoll = epoll


class Waker:
    """Makes an epoll return, from any thread and any signal handler. Rings once however often it is rung.

    Whoever leaves last frees the descriptor: who was about to ring must not write into what has its number by then.
    No lock: a signal handler may ring, and a forked child closes its copy.
    """

    __slots__ = ("fd", "_close", "_is_closed", "_ringing", "__weakref__")

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._close = weakref.finalize(self, os.close, self.fd)
        self._is_closed = False
        self._ringing: list[None] = []

    def ring(self) -> None:
        self._ringing.append(None)
        try:
            if not self._is_closed:
                os.eventfd_write(self.fd, 1)
        finally:
            self._ringing.pop()
            if self._is_closed:
                self.close()

    def silence(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._is_closed = True  # first this, then a look: who rings from now on does not write
        if not self._ringing:
            self._close()


Events = list[tuple[int, int]]


class SelectorReactor:
    """Driven by one thread at a time: `wait` may go without a lock, everything else is called under the engine's."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        self.now_ms = SteadyClock().now_ms
        self._look_up = look_up or look_up_addresses
        self._all, self._group, self._background = select.epoll(), select.epoll(), select.epoll()
        self._bell, self._group_bell = Waker(), Waker()
        self._group_fd = self._group.fileno()
        for epoll, bell in ((self._all, self._bell), (self._background, self._group_bell)):
            epoll.register(bell.fd, _READ)
            epoll.register(self._group_fd, _READ)
        self._watched: dict[int, _Watch] = {}
        self._soon: deque[Action] = deque()
        self._rung = False

    # --- sockets ---------------------------------------------------------------------------------

    def register(self, sock: socket.socket, lane: Lane, on_readable: Action) -> None:
        epoll = self._group if lane is Lane.GROUP else self._all
        epoll.register(sock.fileno(), _READ)
        self._watched[sock.fileno()] = _Watch(on_readable, epoll)

    def want_write(self, sock: socket.socket, on_writable: Action | None) -> None:
        watch = self._watched[sock.fileno()]
        if (watch.on_writable is None) != (on_writable is None):
            watch.epoll.modify(sock.fileno(), _READ if on_writable is None else _READ | _WRITE)
        watch.on_writable = on_writable

    def unregister(self, sock: socket.socket) -> None:
        watch = self._watched.pop(sock.fileno(), None)
        if watch is not None:
            watch.epoll.unregister(sock.fileno())

    # --- time and names --------------------------------------------------------------------------

    def resolve(self, host: str, port: int, then: Resolved) -> None:
        def on_thread() -> None:
            addresses, error = self._look_up(host, port)
            self._soon.append(lambda: then(addresses, error))
            self.wakeup_all()

        if is_numeric(host):
            then(*look_up_addresses(host, port))
        else:
            threading.Thread(target=on_thread, name=f"kohort-resolve-{host}", daemon=True).start()

    def wakeup(self) -> None:
        """Makes `wait` return; from any thread."""
        self._bell.ring()

    def wakeup_all(self) -> None:
        """Makes both return; from any thread."""
        self._bell.ring()
        self._group_bell.ring()

    def wakeup_group(self) -> None:
        """Makes `wait_group` return; from any thread."""
        self._group_bell.ring()

    # --- driving ---------------------------------------------------------------------------------

    def run_once(self, timeout_ms: int | None) -> None:
        self.dispatch(self.wait(timeout_ms))

    def run_group_once(self, timeout_ms: int | None) -> None:
        self.dispatch(self.wait_group(timeout_ms))

    def wait(self, timeout_ms: int | None) -> Events:
        """Sockets that are ready, at the latest after the timeout (None: none)."""
        return self._all.poll(None if timeout_ms is None else max(0, timeout_ms) / 1000)

    def wait_group(self, timeout_ms: int | None) -> Events:
        return self._background.poll(None if timeout_ms is None else max(0, timeout_ms) / 1000)

    def dispatch(self, events: Events) -> None:
        """Calls back. A descriptor that was closed since, or is another's by now, does no harm: it is not ready."""
        for fd, event in events:
            watch = self._watched.get(fd)
            if watch is not None:
                if event & ~_WRITE:
                    watch.on_readable()
                if event & ~_READ and self._watched.get(fd) is watch and watch.on_writable is not None:
                    watch.on_writable()
            elif fd == self._group_fd:
                self.dispatch(self._group.poll(0))
            elif fd == self._bell.fd:
                self._bell.silence()
                self._rung = True
            elif fd == self._group_bell.fd:
                self._group_bell.silence()
        while self._soon:
            self._soon.popleft()()

    def take_rung(self) -> bool:
        """Whether somebody called `wakeup` since this was last asked."""
        rung, self._rung = self._rung, False
        return rung

    def close(self) -> None:
        """Frees its own descriptors; those of sockets are their owners'."""
        self._watched.clear()
        for mine in (self._all, self._background, self._group, self._bell, self._group_bell):
            mine.close()


class LoopReactor:
    """The same over an asyncio loop. `after_turn` is called once after all callbacks of one turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, look_up: LookUp | None = None) -> None:
        self.loop = loop
        self._look_up = look_up or look_up_addresses
        self.now_ms = SteadyClock().now_ms
        self.after_turn: Action = lambda: None
        self._turning = False
        self._readers: dict[int, Action] = {}
        self._ready = select.poll()
        self._closed = False

    def register(self, sock: socket.socket, lane: Lane, on_readable: Action) -> None:
        self._readers[sock.fileno()] = on_readable
        self._ready.register(sock.fileno(), select.POLLIN)
        self.loop.add_reader(sock.fileno(), self._then_turn, on_readable)

    def read_ready(self) -> None:
        """Calls back for the sockets that can be read now, without waiting for the loop. `after_turn` is not called."""
        for fd, _ in self._ready.poll(0):
            on_readable = self._readers.get(fd)
            if on_readable is not None:
                on_readable()

    def want_write(self, sock: socket.socket, on_writable: Action | None) -> None:
        if on_writable is None:
            self.loop.remove_writer(sock.fileno())
        else:
            self.loop.add_writer(sock.fileno(), self._then_turn, on_writable)

    def unregister(self, sock: socket.socket) -> None:
        self._forget(sock.fileno())

    def _forget(self, fd: int) -> None:
        if fd in self._readers:
            del self._readers[fd]
            self._ready.unregister(fd)
            if not self.loop.is_closed():
                self.loop.remove_reader(fd)
                self.loop.remove_writer(fd)

    def resolve(self, host: str, port: int, then: Resolved) -> None:
        def back(addresses: list[SocketAddress], error: OSError | None) -> None:
            if not self._closed:
                self._then_turn(lambda: then(addresses, error))

        def on_thread() -> None:
            found = self._look_up(host, port)
            try:
                self.loop.call_soon_threadsafe(back, *found)
            except RuntimeError:  # the loop was closed meanwhile
                pass

        if is_numeric(host):
            then(*look_up_addresses(host, port))
        else:
            threading.Thread(target=on_thread, name=f"kohort-resolve-{host}", daemon=True).start()

    def wakeup(self) -> None:
        """From any thread: a turn soon."""
        try:
            self.loop.call_soon_threadsafe(self._then_turn, lambda: None)
        except RuntimeError:  # the loop was closed meanwhile
            pass

    def _then_turn(self, call: Action) -> None:
        if not self._turning and not self._closed:
            self._turning = True
            self.loop.call_soon(self._turn)
        call()

    def _turn(self) -> None:
        self._turning = False
        if not self._closed:
            self.after_turn()

    def close(self) -> None:
        self._closed = True
        for fd in list(self._readers):
            self._forget(fd)


def is_numeric(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except OSError:
            continue
    return False


def look_up_addresses(host: str, port: int) -> FoundAddresses:
    """All addresses of a name, in the system's order; blocks unless it is numeric."""
    try:
        # As text, even a number goes through the codec of international names, which takes 3 ms to load.
        name = host.encode() if is_numeric(host) else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return [], error
    except UnicodeError:
        return [], OSError(f"{host!r} is not a host name")
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found)), None  # type: ignore[misc]
