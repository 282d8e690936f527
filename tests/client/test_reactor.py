"""The two reactors: sockets of both lanes, wake-ups, names that are looked up, and nothing left behind.

Both run here in the way that Linux has of its own and in the portable one.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from kohort.client.core.effects import Lane
from kohort.client.errors import IllegalState
from kohort.client.io.polling import Waker
from kohort.client.io.reactor import (
    FoundAddresses,
    LoopReactor,
    SelectorReactor,
    SocketAddress,
    SteadyClock,
    is_numeric,
)
from kohort.wire.errors import KohortError

PATIENCE_MS = 60_000  # only ends a test that hangs: a machine may be busy


@pytest.fixture(params=["linux", "portable"] if sys.platform == "linux" else ["portable"])
def portable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "portable")


@pytest.fixture
def reactor(portable: bool) -> Iterator[SelectorReactor]:
    made = SelectorReactor(portable=portable)
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


Pair = tuple[socket.socket, socket.socket]


OPENS_AND_CLOSES_A_REACTOR = """
import os
from kohort.client.io.reactor import SelectorReactor

before = os.listdir("/proc/self/fd")
reactor = SelectorReactor(portable=PORTABLE)
assert len(os.listdir("/proc/self/fd")) > len(before)
reactor.close()
assert os.listdir("/proc/self/fd") == before
"""


@pytest.mark.parametrize("lane", Lane)
def test_a_readable_socket_is_called_back_until_it_is_read(
    reactor: SelectorReactor, pair: Pair, lane: Lane
) -> None:
    one, other = pair
    calls: list[bytes] = []
    reactor.register(one, lane, lambda: calls.append(one.recv(1)))
    reactor.run_once(0)
    assert calls == []
    other.send(b"ab")
    reactor.run_once(PATIENCE_MS)
    reactor.run_once(PATIENCE_MS)
    reactor.run_once(0)
    assert calls == [b"a", b"b"]


def test_the_background_sees_the_group_lane_alone(reactor: SelectorReactor, pair: Pair) -> None:
    one, other = pair
    calls: list[str] = []
    reactor.register(one, Lane.DATA, lambda: calls.append("data"))
    reactor.register(other, Lane.GROUP, lambda: calls.append("group"))
    one.send(b"x")
    other.send(b"x")
    reactor.run_group_once(PATIENCE_MS)
    assert calls == ["group"]
    reactor.run_once(PATIENCE_MS)
    assert sorted(calls) == ["data", "group", "group"]


def test_a_writable_socket_is_called_back_only_while_that_is_wanted(
    reactor: SelectorReactor, pair: Pair
) -> None:
    one, _ = pair
    calls: list[str] = []
    reactor.register(one, Lane.DATA, lambda: calls.append("read"))
    reactor.want_write(one, lambda: calls.append("write"))
    reactor.run_once(PATIENCE_MS)
    reactor.want_write(one, None)
    reactor.run_once(0)
    assert calls == ["write"]


def test_a_callback_may_unregister_its_own_socket(reactor: SelectorReactor, pair: Pair) -> None:
    one, other = pair
    calls: list[str] = []

    def on_readable() -> None:
        calls.append("read")
        reactor.unregister(one)

    reactor.register(one, Lane.DATA, on_readable)
    reactor.want_write(one, lambda: calls.append("write"))
    other.send(b"x")
    reactor.run_once(PATIENCE_MS)
    reactor.run_once(0)
    reactor.unregister(one)  # twice does no harm
    assert calls == ["read"]


def test_wakeup_comes_from_any_thread_and_rings_once(reactor: SelectorReactor) -> None:
    threading.Timer(0.01, reactor.wakeup).start()
    assert reactor.wait(PATIENCE_MS)
    reactor.wakeup()
    reactor.run_once(0)
    assert reactor.wait(0) == []
    reactor.wakeup_group()
    assert reactor.wait(0) == []  # that is the background's
    assert reactor.wait_group(0)


def test_waking_ten_thousand_times_counts_as_once(reactor: SelectorReactor) -> None:
    for _ in range(10_000):
        reactor.wakeup()
    reactor.run_once(0)
    assert reactor.wait(0) == []
    assert reactor.take_woken()
    assert not reactor.take_woken()


def test_wakeup_after_close_does_nothing(portable: bool) -> None:
    reactor = SelectorReactor(portable=portable)
    reactor.close()
    reactor.wakeup_all()


def test_a_waker_that_is_closed_while_it_wakes_writes_into_nobody_elses_descriptor(portable: bool) -> None:
    waker = Waker(portable=portable)
    write = waker._write
    others: list[int] = []

    def closed_meanwhile() -> None:
        waker.close()
        others.extend(os.pipe())  # what another thread opens now
        write()

    waker._write = closed_meanwhile
    waker.wake()
    for other in others:
        os.close(other)
    assert waker.fd not in others
    assert not waker._free.alive
    waker.wake()
    assert len(others) == 2


def test_wakeup_after_the_loop_was_closed_does_nothing() -> None:
    loop = asyncio.new_event_loop()
    reactor = LoopReactor(loop)
    loop.close()
    reactor.wakeup()


def test_a_loop_that_cannot_watch_sockets_is_refused_with_the_one_that_can() -> None:
    class ProactorEventLoop(asyncio.AbstractEventLoop):
        """As on Windows: it has no `add_reader`."""

    with pytest.raises(IllegalState, match=r"ProactorEventLoop cannot watch sockets: .*SelectorEventLoop"):
        LoopReactor(ProactorEventLoop())  # type: ignore[abstract]


def test_a_system_whose_threads_cannot_poll_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    with pytest.raises(KohortError, match=r"need epoll \(Linux\) or kqueue .*AsyncConsumer"):
        SelectorReactor(portable=True)


def test_closing_frees_every_descriptor(portable: bool) -> None:
    # In a process of its own: here others come and go.
    command = [sys.executable, "-c", OPENS_AND_CLOSES_A_REACTOR.replace("PORTABLE", str(portable))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_numeric_address_is_resolved_at_once(reactor: SelectorReactor) -> None:
    found: list[list[SocketAddress]] = []
    reactor.resolve("127.0.0.1", 9092, lambda addresses, error: found.append(addresses))
    assert found == [[(socket.AF_INET, ("127.0.0.1", 9092))]]


@pytest.mark.parametrize(("host", "numeric"), [("127.0.0.1", True), ("::1", True), ("localhost", False)])
def test_numeric(host: str, numeric: bool) -> None:
    assert is_numeric(host) is numeric


def several(host: str, port: int) -> FoundAddresses:
    if host == "unknown.test":
        return [], OSError("unknown")
    return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET, ("127.0.0.2", port))], None


def test_a_name_is_looked_up_elsewhere_and_called_back_here() -> None:
    reactor = SelectorReactor(several)
    found: list[tuple[int, OSError | None, int]] = []

    def then(addresses: list[SocketAddress], error: OSError | None) -> None:
        found.append((len(addresses), error, threading.get_ident()))

    reactor.resolve("kafka.test", 9092, then)
    assert found == []
    reactor.run_once(PATIENCE_MS)
    assert found == [(2, None, threading.get_ident())]
    reactor.resolve("unknown.test", 9092, then)
    reactor.run_once(PATIENCE_MS)
    assert str(found[1][1]) == "unknown"
    reactor.close()


def test_the_clock_shows_the_time_of_day_and_does_not_go_back() -> None:
    import time

    earliest = time.time() * 1000
    now_ms = SteadyClock().now_ms
    shown_now = now_ms()
    assert earliest - 2000 < shown_now < time.time() * 1000 + 2000
    shown = [now_ms() for _ in range(100)]
    assert shown == sorted(shown)


# --- over asyncio --------------------------------------------------------------------------------


async def test_the_same_registrations_over_asyncio(pair: Pair, portable: bool) -> None:
    one, other = pair
    reactor = LoopReactor(asyncio.get_running_loop(), portable=portable)
    calls: list[str] = []
    iterated = asyncio.Event()

    def after_iteration() -> None:
        calls.append("after")
        iterated.set()

    def on_readable() -> None:
        calls.append(one.recv(1).decode())

    reactor.call_after_iteration(after_iteration)
    reactor.register(one, Lane.DATA, on_readable)
    other.send(b"a")
    await asyncio.wait_for(iterated.wait(), 60)
    assert calls == ["a", "after"]
    iterated.clear()
    reactor.want_write(one, lambda: reactor.want_write(one, None))
    await asyncio.wait_for(iterated.wait(), 60)
    reactor.unregister(one)
    other.send(b"b")
    await asyncio.sleep(0)
    assert "b" not in calls
    reactor.close()


async def test_what_is_ready_is_read_without_waiting_for_the_loop(pair: Pair, portable: bool) -> None:
    one, other = pair
    reactor = LoopReactor(asyncio.get_running_loop(), portable=portable)
    calls: list[bytes] = []
    reactor.register(one, Lane.DATA, lambda: calls.append(one.recv(1)))
    reactor.read_ready()
    other.send(b"a")
    reactor.read_ready()
    reactor.unregister(one)
    other.send(b"b")
    reactor.read_ready()
    assert calls == [b"a"]
    reactor.close()


async def test_a_name_and_a_wakeup_from_another_thread_end_an_iteration() -> None:
    reactor = LoopReactor(asyncio.get_running_loop(), several)
    iterated = asyncio.Event()
    reactor.call_after_iteration(iterated.set)
    found: list[int] = []
    reactor.resolve("kafka.test", 9092, lambda addresses, error: found.append(len(addresses)))
    await asyncio.wait_for(iterated.wait(), 60)
    assert found == [2]
    iterated.clear()
    threading.Thread(target=reactor.wakeup).start()
    await asyncio.wait_for(iterated.wait(), 60)
    reactor.close()
