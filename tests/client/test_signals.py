"""Handlers of signals that ask to end: never in the middle of a client, always at its next safe place."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from kohort import IllegalState, Producer
from kohort.client.core.signals import HeldSignals, let_go, new_lock
from kohort.wire.messages.heartbeat import HeartbeatResponse
from tests.client.driving import HEARTBEAT, driven, soon
from tests.client.scripted import ScriptedCluster

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Stop(Exception):
    pass


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        made.on(HEARTBEAT, HeartbeatResponse())
        yield made


@pytest.fixture(params=NUMBERS, ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal with a handler that raises `Stop`."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop(number)

    chosen: signal.Signals = request.param
    before = signal.signal(chosen, stop)
    yield chosen
    assert signal.getsignal(chosen) is stop, "it is back in its place"
    signal.signal(chosen, before)


def test_a_handler_is_called_at_the_end(number: signal.Signals) -> None:
    steps: list[str] = []

    def work() -> None:
        with HeldSignals():
            signal.raise_signal(number)
            signal.raise_signal(number)
            steps.append("inside")

    with pytest.raises(Stop):
        work()
    assert steps == ["inside"]
    with HeldSignals():
        pass  # it was called for both, once, as Python does it


def test_the_inner_of_two_waits_for_the_outer(number: signal.Signals) -> None:
    steps: list[str] = []

    def work() -> None:
        with HeldSignals():
            with HeldSignals():
                signal.raise_signal(number)
            steps.append("between")

    with pytest.raises(Stop):
        work()
    assert steps == ["between"]


def test_all_signals_are_told_and_all_handlers_are_back_although_each_of_them_raises() -> None:
    told: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise Stop(number)

    def work() -> None:
        with HeldSignals():
            for each in NUMBERS:
                signal.raise_signal(each)

    before = {each: signal.signal(each, stop) for each in NUMBERS}
    try:
        with pytest.raises(Stop):
            work()
        assert sorted(told) == sorted(NUMBERS)
        assert {signal.getsignal(each) for each in NUMBERS} == {stop}
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_what_has_no_handler_of_python_is_left_alone() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with HeldSignals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_that_was_set_meanwhile_stays(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with HeldSignals():
        signal.signal(number, signal.SIG_IGN)
    assert signal.getsignal(number) is signal.SIG_IGN
    signal.signal(number, before)


def test_another_thread_holds_nothing(number: signal.Signals) -> None:
    holds: list[bool] = []
    thread = threading.Thread(target=lambda: holds.append(HeldSignals().hold()))
    thread.start()
    thread.join(60)
    assert holds == [False]


def test_a_run_is_ended_by_a_handler_that_raises(cluster: ScriptedCluster, number: signal.Signals) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        with pytest.raises(Stop):
            client.run(soon(os.kill, os.getpid(), number))
        assert client.call().response == HeartbeatResponse()  # everything goes on after it


def test_a_run_goes_on_after_a_handler_that_does_not_raise(cluster: ScriptedCluster) -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        with driven(cluster.bootstrap_servers) as client:
            begin = soon(os.kill, os.getpid(), signal.SIGTERM)
            assert client.run(lambda: begin() or bool(told))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == [signal.SIGTERM]


def test_a_record_that_is_being_sent_is_sent(
    bootstrap_servers: str, new_topic: Callable[..., str], number: signal.Signals
) -> None:
    topic, steps = new_topic(), []

    def partition(topic: str, key: bytes | None, count: int) -> int:
        signal.raise_signal(number)
        steps.append("chosen")
        return 0

    with Producer(bootstrap_servers=bootstrap_servers, partitioner=partition) as producer:
        with pytest.raises(Stop):
            producer.send(topic, b"first", headers=[("h", b"")])  # not by the fast way
        assert steps == ["chosen"]
        assert producer.send(topic, b"second", partition=0).result(60).offset == 1


def test_a_lock_that_was_taken_and_never_used_is_given_back_but_not_that_of_another_thread() -> None:
    """As when a handler raises after `with lock:` has taken it and before its first line."""
    mine = threading.RLock()
    mine.acquire()
    let_go(mine)
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(mine.acquire(timeout=60)))
    thread.start()
    thread.join(60)
    assert taken == [True]
    let_go(mine)  # it is that thread's
    assert not mine.acquire(blocking=False)
    let_go(new_lock())  # nobody's


def test_a_handler_that_sends_in_the_middle_of_a_send_is_told(
    bootstrap_servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.partitions_for(topic)
        producer._accumulator.in_send = True  # where the handler would find it
        for headers in (None, [("h", b"")]):
            with pytest.raises(IllegalState, match="handler of a signal"):
                producer.send(topic, b"in between", headers=headers)
        producer._accumulator.in_send = False
        assert producer.send(topic, b"first").result(60).offset == 0
