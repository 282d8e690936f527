"""Reports sockets that are ready, tells the time and looks up names: for the blocking clients, and over asyncio.

Callbacks run on the thread that drives the reactor, one at a time. The user's thread waits for all sockets, the
background thread for those of the group lane alone. On Linux the group lane has an epoll of its own, which is nested in
those of both threads; elsewhere its sockets are registered with both.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from kohort.client.core.effects import Lane
from kohort.client.errors import IllegalState
from kohort.client.io.polling import (
    READ,
    WRITE,
    Events,
    Poller,
    SelectorPoller,
    Waker,
    check_threads_can_poll,
)
from kohort.portable import PORTABLE

if TYPE_CHECKING:
    import asyncio

Action = Callable[[], None]
SocketAddress = tuple[socket.AddressFamily, tuple[str, int]]
"""A family and what `connect` takes."""
FoundAddresses = tuple[list[SocketAddress], OSError | None]
LookUp = Callable[[str, int], FoundAddresses]
Resolved = Callable[[list[SocketAddress], OSError | None], None]
T = TypeVar("T")
Called = Callable[[T | None, BaseException | None], None]
"""Gets what a function returned, or what it raised."""


class SteadyClock:
    """Wall-clock milliseconds that never jump: the time of day at the start, and from there the monotonic clock."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000


class Reactor(Protocol):
    """What the network needs of either reactor."""

    def now_ms(self) -> int: ...
    def register(self, sock: socket.socket, lane: Lane, on_readable: Action) -> None: ...
    def want_write(self, sock: socket.socket, on_writable: Action | None) -> None: ...
    def unregister(self, sock: socket.socket) -> None: ...
    def resolve(self, host: str, port: int, then: Resolved) -> None: ...
    def call_apart(self, name: str, function: Callable[[], T], then: Called[T]) -> None:
        """Calls a function that may wait on a thread of its own; `then` gets its result from who drives the reactor."""

    def close(self) -> None: ...


class _Watch:
    """One registered socket."""

    __slots__ = ("on_readable", "on_writable", "pollers")

    def __init__(self, on_readable: Action, pollers: tuple[Poller, ...]) -> None:
        self.on_readable = on_readable
        self.on_writable: Action | None = None
        self.pollers = pollers


class SelectorReactor:
    """The reactor of the blocking clients, driven by one thread at a time.

    `wait` and `wait_group` may go without a lock; everything else is called under the engine's.
    """

    def __init__(self, look_up: LookUp | None = None, *, portable: bool = PORTABLE) -> None:
        if portable:
            check_threads_can_poll()
        self.now_ms = SteadyClock().now_ms
        self._look_up = look_up or look_up_addresses
        self._waker, self._group_waker = Waker(portable=portable), Waker(portable=portable)
        self._all: Poller
        self._background: Poller
        self._group: Poller | None = None
        self._pollers: dict[Lane, tuple[Poller, ...]]
        self._group_fd = -1
        if portable:
            self._all, self._background = SelectorPoller(), SelectorPoller()
            self._pollers = {Lane.DATA: (self._all,), Lane.GROUP: (self._all, self._background)}
        else:
            self._all, self._background = select.epoll(), select.epoll()
            self._group = group = select.epoll()
            self._group_fd = group.fileno()
            self._all.register(self._group_fd, READ)
            self._background.register(self._group_fd, READ)
            self._pollers = {Lane.DATA: (self._all,), Lane.GROUP: (group,)}
        self._all.register(self._waker.fd, READ)
        self._background.register(self._group_waker.fd, READ)
        self._watched: dict[int, _Watch] = {}
        self._soon: deque[Action] = deque()
        self._woken = False

    # --- sockets ---------------------------------------------------------------------------------

    def register(self, sock: socket.socket, lane: Lane, on_readable: Action) -> None:
        watch = _Watch(on_readable, self._pollers[lane])
        for poller in watch.pollers:
            poller.register(sock.fileno(), READ)
        self._watched[sock.fileno()] = watch

    def want_write(self, sock: socket.socket, on_writable: Action | None) -> None:
        """Calls back while the socket can be written to; None ends that."""
        watch = self._watched[sock.fileno()]
        if (watch.on_writable is None) != (on_writable is None):
            for poller in watch.pollers:
                poller.modify(sock.fileno(), READ if on_writable is None else READ | WRITE)
        watch.on_writable = on_writable

    def unregister(self, sock: socket.socket) -> None:
        watch = self._watched.pop(sock.fileno(), None)
        if watch is not None:
            for poller in watch.pollers:
                poller.unregister(sock.fileno())

    # --- time and names --------------------------------------------------------------------------

    def resolve(self, host: str, port: int, then: Resolved) -> None:
        """Looks up a name on a thread of its own; `then` is called by the thread that drives."""
        if is_numeric(host):
            then(*look_up_addresses(host, port))
        else:
            found = _looked_up(then)
            self.call_apart(f"kohort-resolve-{host}", lambda: self._look_up(host, port), found)

    def call_apart(self, name: str, function: Callable[[], T], then: Called[T]) -> None:
        """Calls a function that may wait on a thread of its own; `then` is called by the thread that drives."""

        def on_thread() -> None:
            result, error = _outcome(function)
            self._soon.append(lambda: then(result, error))
            self.wakeup_all()

        threading.Thread(target=on_thread, name=name, daemon=True).start()

    def wakeup(self) -> None:
        """Makes `wait` return; from any thread."""
        self._waker.wake()

    def wakeup_all(self) -> None:
        """Makes `wait` and `wait_group` return; from any thread."""
        self._waker.wake()
        self._group_waker.wake()

    def wakeup_group(self) -> None:
        """Makes `wait_group` return; from any thread."""
        self._group_waker.wake()

    # --- driving ---------------------------------------------------------------------------------

    def run_once(self, timeout_ms: int | None) -> None:
        self.dispatch(self.wait(timeout_ms))

    def run_group_once(self, timeout_ms: int | None) -> None:
        self.dispatch(self.wait_group(timeout_ms))

    def wait(self, timeout_ms: int | None) -> Events:
        """Returns the sockets that are ready, at the latest after the timeout (None: without end)."""
        return self._all.poll(None if timeout_ms is None else max(0, timeout_ms) / 1000)

    def wait_group(self, timeout_ms: int | None) -> Events:
        """Does the same for the sockets of the group lane."""
        return self._background.poll(None if timeout_ms is None else max(0, timeout_ms) / 1000)

    def dispatch(self, events: Events) -> None:
        """Calls back for each event.

        An event of a descriptor that was closed since, or that belongs to another socket by now, does no harm: the
        callbacks find that the socket is not ready.
        """
        for fd, event in events:
            watch = self._watched.get(fd)
            if watch is not None:
                if event & ~WRITE:
                    watch.on_readable()
                if event & ~READ and self._watched.get(fd) is watch and watch.on_writable is not None:
                    watch.on_writable()
            elif fd == self._waker.fd:
                self._waker.drain()
                self._woken = True
            elif fd == self._group_waker.fd:
                self._group_waker.drain()
            elif self._group is not None and fd == self._group_fd:
                self.dispatch(self._group.poll(0))
        while self._soon:
            self._soon.popleft()()

    def take_woken(self) -> bool:
        """Returns whether `wakeup` was called since this was last asked."""
        woken, self._woken = self._woken, False
        return woken

    def close(self) -> None:
        """Frees its own descriptors; sockets are closed by their owners."""
        self._watched.clear()
        for poller in (self._all, self._background, self._group):
            if poller is not None:
                poller.close()
        self._waker.close()
        self._group_waker.close()


class LoopReactor:
    """The reactor of the asyncio clients, over their event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, look_up: LookUp | None = None, *, portable: bool = PORTABLE
    ) -> None:
        check_loop_watches_sockets(loop)
        self.loop = loop
        self._look_up = look_up or look_up_addresses
        self.now_ms = SteadyClock().now_ms
        self._after_iteration: Action = lambda: None
        self._is_scheduled = False
        self._readers: dict[int, Action] = {}
        self._ready = SelectorPoller() if portable else select.poll()
        self._closed = False

    def call_after_iteration(self, function: Action) -> None:
        """Has a function called once after all callbacks of one iteration of the loop."""
        self._after_iteration = function

    def register(self, sock: socket.socket, lane: Lane, on_readable: Action) -> None:
        self._readers[sock.fileno()] = on_readable
        self._ready.register(sock.fileno(), READ)
        self.loop.add_reader(sock.fileno(), self._call_and_schedule, on_readable)

    def read_ready(self) -> None:
        """Calls back for the sockets that can be read now, without waiting for the loop and its iteration to end."""
        for fd, _ in self._ready.poll(0):
            on_readable = self._readers.get(fd)
            if on_readable is not None:
                on_readable()

    def want_write(self, sock: socket.socket, on_writable: Action | None) -> None:
        if on_writable is None:
            self.loop.remove_writer(sock.fileno())
        else:
            self.loop.add_writer(sock.fileno(), self._call_and_schedule, on_writable)

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
        if is_numeric(host):
            then(*look_up_addresses(host, port))
        else:
            found = _looked_up(then)
            self.call_apart(f"kohort-resolve-{host}", lambda: self._look_up(host, port), found)

    def call_apart(self, name: str, function: Callable[[], T], then: Called[T]) -> None:
        """Calls a function that may wait on a thread of its own; `then` is called on the loop."""

        def back(result: T | None, error: BaseException | None) -> None:
            if not self._closed:
                self._call_and_schedule(lambda: then(result, error))

        def on_thread() -> None:
            outcome = _outcome(function)
            try:
                self.loop.call_soon_threadsafe(back, *outcome)
            except RuntimeError:  # the loop was closed meanwhile
                pass

        threading.Thread(target=on_thread, name=name, daemon=True).start()

    def wakeup(self) -> None:
        """Makes what is called after an iteration be called soon; from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._call_and_schedule, lambda: None)
        except RuntimeError:  # the loop was closed meanwhile
            pass

    def _call_and_schedule(self, action: Action) -> None:
        if not self._is_scheduled and not self._closed:
            self._is_scheduled = True
            self.loop.call_soon(self._end_iteration)
        action()

    def _end_iteration(self) -> None:
        self._is_scheduled = False
        if not self._closed:
            self._after_iteration()

    def close(self) -> None:
        self._closed = True
        for fd in list(self._readers):
            self._forget(fd)
        if isinstance(self._ready, SelectorPoller):
            self._ready.close()


def check_loop_watches_sockets(loop: asyncio.AbstractEventLoop) -> None:
    """Raises IllegalState for a loop without `add_reader`: the one that asyncio makes on Windows."""
    import asyncio  # loaded already: there is a loop

    if type(loop).add_reader is asyncio.AbstractEventLoop.add_reader:
        raise IllegalState(
            f"{type(loop).__name__} cannot watch sockets: run the client on an asyncio.SelectorEventLoop, as in "
            "asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)"
        )


def _outcome(function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:  # SystemExit too: who waits must be told
        return None, error


def _looked_up(then: Resolved) -> Called[FoundAddresses]:
    def found(addresses: FoundAddresses | None, error: BaseException | None) -> None:
        if addresses is None:
            then([], OSError(f"the name cannot be looked up: {error!r}"))
        else:
            then(*addresses)

    return found


def is_numeric(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except OSError:
            continue
    return False


def look_up_addresses(host: str, port: int) -> FoundAddresses:
    """Returns all addresses of a name, in the system's order; blocks unless it is numeric."""
    try:
        # As text, even a number goes through the codec of international names, which takes 3 ms to load.
        name = host.encode() if is_numeric(host) else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return [], error
    except UnicodeError:
        return [], OSError(f"{host!r} is not a host name")
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found)), None  # type: ignore[misc]
