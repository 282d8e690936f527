"""The engine: who drives, deadlines, wake-ups, Ctrl-C, the background thread, fork, and the asyncio one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.broker.running import running
from kohort.client.core.effects import Lane
from kohort.client.core.steps import Steps
from kohort.client.errors import ClosedClient, Wakeup
from kohort.client.io.async_engine import AsyncEngine
from kohort.client.io.driving import run_steps_async
from kohort.client.io.engine import Engine
from kohort.client.types import TopicPartition
from kohort.wire.messages.heartbeat import HeartbeatResponse
from tests.client.driving import HEARTBEAT, PATIENCE_MS, Asker, GroupAsker, config_for, driven, soon
from tests.client.scripted import CLOSE, SILENCE, Held, ScriptedCluster

ROOT = Path(__file__).parents[2]
OK = HeartbeatResponse()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.001)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        made.on(HEARTBEAT, OK)
        yield made


def never() -> bool:
    return False


# --- in the calling thread -----------------------------------------------------------------------


def test_metadata_of_a_real_broker() -> None:
    with running(num_partitions=2) as broker, driven(broker.bootstrap_servers) as client:
        engine = client.engine
        engine.metadata.want(frozenset({"orders"}), allow_auto_create=True, now_ms=engine.now_ms())
        assert client.run(lambda: "orders" in engine.metadata.cluster.topics)
        assert engine.metadata.cluster.leader_of(TopicPartition("orders", 1)) == 1


def test_run_ends_at_the_deadline_if_nothing_happens(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        before = time.monotonic()
        assert client.run(never, 50) is False
        assert 0.04 <= time.monotonic() - before < 30


def test_run_without_time_still_makes_a_round_and_sees_what_has_arrived(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        client.asker.ask()
        assert client.run(never, 0) is False
        eventually(lambda: client.run(lambda: bool(client.asker.answers), 0))


def test_parts_are_ticked_at_their_deadlines(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        ticker = GroupAsker(client.engine.out, -1, interval_ms=20)
        client.engine.add(ticker)
        begun_ms, ticks = client.engine.now_ms(), client.asker.ticks
        assert client.run(lambda: len(ticker.answers) >= 8)
        took_ms = client.engine.now_ms() - begun_ms
        assert len(cluster[1].requests_of(HEARTBEAT)) <= 1 + took_ms / 20
        assert client.asker.ticks - ticks < 100 + took_ms / 20 * 10  # it slept in between


def test_wakeup_ends_the_run_under_way(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        with pytest.raises(Wakeup):
            client.run(soon(client.engine.wakeup))
        assert client.run(lambda: True)  # once


def test_wakeup_before_a_run_ends_the_next_one_unless_that_may_not_be_woken(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.engine.wakeup()
        assert client.engine.run(lambda: True, 0, wakeable=False)
        with pytest.raises(Wakeup):
            client.run(lambda: True)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_run_is_raised_and_everything_goes_on_after_it(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        held = Held(OK)
        cluster[1].script(HEARTBEAT, held)
        client.asker.ask()
        with pytest.raises(KeyboardInterrupt):
            client.run(soon(os.kill, os.getpid(), signal.SIGINT))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        held.release()
        assert client.run(lambda: len(client.asker.answers) == 1)
        assert client.call().response == OK


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_never_strikes_in_the_middle_of_a_part(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        steps: list[str] = []

        def until() -> bool:
            steps.append("before")
            signal.raise_signal(signal.SIGINT)
            steps.append("after")
            return False

        with pytest.raises(KeyboardInterrupt):
            client.run(until)
        assert steps == ["before", "after"]
        with pytest.raises(KeyboardInterrupt):
            _interrupted_command(client.engine, steps)
        assert steps[-1] == "inside"


def _interrupted_command(engine: Engine, steps: list[str]) -> None:
    with engine.shielded():
        signal.raise_signal(signal.SIGINT)
        steps.append("inside")


def test_a_handler_of_the_users_own_for_ctrl_c_is_left_alone(cluster: ScriptedCluster) -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        with driven(cluster.bootstrap_servers) as client:
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
            client.eventually(lambda: caught)
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught == [signal.SIGINT]


def test_several_threads_may_wait_and_one_drives_for_all(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        engine, results = client.engine, []
        held = Held(OK)
        cluster[1].script(HEARTBEAT, held)

        def wait(count: int) -> None:
            with engine.shielded():
                client.asker.ask()
            results.append(
                engine.run(lambda: len(client.asker.answers) >= count, engine.now_ms() + PATIENCE_MS)
            )

        threads = [threading.Thread(target=wait, args=(4,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: cluster[1].requests_of(HEARTBEAT))
        assert engine.run(never, engine.now_ms() + 20) is False  # its own deadline holds, whoever drives
        held.release()
        for thread in threads:
            thread.join(60)
        assert results == [True] * 4


# --- the background thread -----------------------------------------------------------------------


def test_heartbeats_go_on_while_user_code_works(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        beats = GroupAsker(client.engine.out, 1, interval_ms=10)
        client.engine.add(beats)
        client.engine.start_background("heartbeats")
        ticks = client.asker.ticks
        eventually(lambda: len(cluster[1].requests_of(HEARTBEAT)) >= 5)  # nobody is in run
        assert client.asker.ticks == ticks  # parts that are not for the background are left alone
        assert client.call().response == OK
        assert client.asker.ticks > ticks


def test_the_background_leaves_answers_of_the_data_lane_to_the_user(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        beats = GroupAsker(client.engine.out, 1, interval_ms=5)
        client.engine.add(beats)
        client.engine.start_background("heartbeats")
        with client.engine.shielded():
            client.asker.ask(node_id=1)
            client.engine.pump()
        seen = len(cluster[1].requests_of(HEARTBEAT))
        eventually(lambda: len(cluster[1].requests_of(HEARTBEAT)) > seen + 3)
        assert client.asker.answers == []
        assert client.run(lambda: len(client.asker.answers) == 1)


def test_the_background_connects_again_on_the_group_lane(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        cluster[1].script(HEARTBEAT, CLOSE, OK, CLOSE)
        beats = GroupAsker(client.engine.out, 1, interval_ms=5)
        client.engine.add(beats)
        client.engine.start_background("heartbeats")
        eventually(lambda: len(cluster[1].requests_of(HEARTBEAT)) >= 6)
        assert cluster[1].connection_count == 4


def test_a_caller_gets_in_at_once_while_the_background_is_busy(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        beats = GroupAsker(client.engine.out, 1, interval_ms=1)
        client.engine.add(beats)
        client.engine.start_background("heartbeats")
        before = time.monotonic()
        for _ in range(100):
            assert client.call(node_id=1).response == OK
        assert time.monotonic() - before < 100


def test_a_part_that_is_due_and_does_nothing_does_not_make_the_background_spin(
    cluster: ScriptedCluster,
) -> None:
    with driven(cluster.bootstrap_servers) as client:
        idle = GroupAsker(client.engine.out, 1, interval_ms=1)
        idle.stopped = True
        client.engine.add(idle)
        begun = time.monotonic()
        client.engine.start_background("heartbeats")
        eventually(lambda: idle.ticks >= 5)
        assert time.monotonic() - begun >= 0.04


def test_a_background_that_drives_everything_needs_nobody_in_run(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.engine.start_background("sender", everything=True)
        with client.engine.shielded():
            client.asker.ask()
        client.engine.nudge()
        eventually(lambda: client.asker.answers)
        # And who waits in run is told.
        with client.engine.shielded():
            client.asker.ask()
        assert client.run(lambda: len(client.asker.answers) == 2)
        assert client.run(never, 30) is False
        with pytest.raises(Wakeup):
            client.run(soon(client.engine.wakeup))


def test_a_background_that_fails_says_so_to_the_next_caller(cluster: ScriptedCluster) -> None:
    with driven(cluster.bootstrap_servers) as client:
        broken = GroupAsker(client.engine.out, 1, interval_ms=1)

        def fail(now_ms: int) -> None:
            raise AssertionError("a bug")

        broken.tick_background = fail  # type: ignore[method-assign]
        client.engine.add(broken)
        client.engine.start_background("heartbeats")
        assert client.engine._thread is not None
        client.engine._thread.join(60)
        with pytest.raises(ClosedClient, match="has failed") as caught:
            client.run(never)
        assert str(caught.value.__cause__) == "a bug"


# --- the end -------------------------------------------------------------------------------------


OPENS_AND_CLOSES_AN_ENGINE = """
import os, sys, threading
from tests.client.driving import PATIENCE_MS, Engine, GroupAsker, config_for

def descriptors():
    return sorted(os.listdir("/proc/self/fd"))

config = config_for(sys.argv[1])
before, during = descriptors(), []
engine = Engine(config)
beats = GroupAsker(engine.out, -1, 10)
engine.add(beats)
engine.run(lambda: bool(beats.answers), engine.now_ms() + PATIENCE_MS)
engine.start_background("heartbeats")
during = descriptors(), threading.active_count()
engine.close()
engine.close()
assert len(during[0]) > len(before) and during[1] == 2, during
assert descriptors() == before, (before, descriptors())
assert threading.active_count() == 1
"""


def test_closing_frees_every_descriptor_and_ends_the_thread(cluster: ScriptedCluster) -> None:
    # In a process of its own: here others come and go.
    command = [sys.executable, "-c", OPENS_AND_CLOSES_AN_ENGINE, cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert cluster[1].connection_count == 2


def test_a_closed_engine_is_not_run(cluster: ScriptedCluster) -> None:
    engine = Engine(config_for(cluster.bootstrap_servers))
    engine.close()
    with pytest.raises(ClosedClient, match="is closed"):
        engine.run(never, 0)


def test_a_run_that_begins_while_another_thread_closes_says_so(cluster: ScriptedCluster) -> None:
    engine = Engine(config_for(cluster.bootstrap_servers))
    looked, check, ended = threading.Event(), engine.check_usable, []

    def check_usable() -> None:
        check()
        looked.set()

    def begin() -> None:
        try:
            engine.run(never, engine.now_ms() + PATIENCE_MS)
        except Exception as error:
            ended.append(error)

    engine.check_usable = check_usable  # type: ignore[method-assign]
    thread = threading.Thread(target=begin)
    with engine.lock:
        thread.start()
        assert looked.wait(60)  # it was usable then; now it waits for the lock
        engine.close()
    thread.join(60)
    assert [(type(error), str(error)) for error in ended] == [(ClosedClient, "the client is closed")]


@pytest.mark.parametrize("everything", [None, False, True])
def test_closing_ends_a_run_of_another_thread(cluster: ScriptedCluster, everything: bool | None) -> None:
    cluster.on(HEARTBEAT, SILENCE)
    engine = Engine(config_for(cluster.bootstrap_servers))
    asker = Asker(engine.out)
    engine.add(asker)
    if everything is not None:
        engine.start_background("background", everything=everything)
    ended: list[str] = []

    def wait() -> None:
        with engine.shielded():
            asker.ask()
        try:
            engine.run(never, engine.now_ms() + PATIENCE_MS)
        except ClosedClient as error:
            ended.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: cluster[1].requests_of(HEARTBEAT))
    engine.close()
    thread.join(60)
    assert ended == ["the client is closed"]


def test_a_forked_child_is_told_to_make_its_own_and_does_not_disturb_its_parent(
    cluster: ScriptedCluster,
) -> None:
    with driven(cluster.bootstrap_servers) as client:
        client.call()
        client.engine.start_background("heartbeats")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.run(never)
            except ClosedClient as error:
                os.write(write, str(error).encode())
            except BaseException as error:
                os.write(write, repr(error).encode())
            try:
                client.engine.close()
                client.engine.close()
                os.write(write, b"; closed")
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        said = os.read(read, 10_000).decode()
        os.close(read)
        assert "make a client of its own in each process; closed" in said
        assert client.call().response == OK
        assert cluster[1].connection_count == 1  # on the connection it had


# --- asyncio -------------------------------------------------------------------------------------


async def test_the_asyncio_engine_waits_without_blocking_the_loop(cluster: ScriptedCluster) -> None:
    engine = AsyncEngine(config_for(cluster.bootstrap_servers))
    asker = Asker(engine.out)
    engine.add(asker)
    held = Held(OK)
    cluster[1].script(HEARTBEAT, held)
    asker.ask()
    waiting = asyncio.create_task(engine.wait(lambda: bool(asker.answers), engine.now_ms() + PATIENCE_MS))
    while not cluster[1].requests_of(HEARTBEAT):
        await asyncio.sleep(0.001)
    assert not waiting.done()
    held.release()
    assert await waiting is True
    assert asker.last.response == OK
    assert await engine.wait(never, engine.now_ms() + 20) is False
    assert await engine.wait(never, 0) is False
    engine.close()


async def test_wakeup_ends_a_wait_of_the_asyncio_engine(cluster: ScriptedCluster) -> None:
    engine = AsyncEngine(config_for(cluster.bootstrap_servers))
    threading.Timer(0.02, engine.wakeup).start()
    with pytest.raises(Wakeup):
        await engine.wait(never, engine.now_ms() + PATIENCE_MS)
    engine.wakeup()
    assert await engine.wait(lambda: True, 0, wakeable=False)
    with pytest.raises(Wakeup):
        await engine.wait(lambda: True, 0)
    engine.close()


async def test_heartbeats_go_on_between_the_tasks_of_the_loop(cluster: ScriptedCluster) -> None:
    engine = AsyncEngine(config_for(cluster.bootstrap_servers))
    beats = GroupAsker(engine.out, -1, interval_ms=10)
    engine.add(beats)
    engine.drive()
    async with asyncio.timeout(60):
        while len(beats.answers) < 5:
            await asyncio.sleep(0.001)
    engine.close()


async def test_the_end_of_one_call_lets_others_go_on_that_waited_for_the_same_round(
    cluster: ScriptedCluster,
) -> None:
    """Two calls of an AsyncAdmin: the last round of one had read the answer of the other, which waited on."""
    engine = AsyncEngine(config_for(cluster.bootstrap_servers))
    is_there = False

    def call() -> Steps[None]:
        nonlocal is_there
        is_there = True
        yield from ()

    waiting = asyncio.create_task(engine.wait(lambda: is_there, engine.now_ms() + PATIENCE_MS))
    await asyncio.sleep(0)
    await run_steps_async(engine, call())
    await asyncio.sleep(0)
    assert waiting.done()
    engine.close()


async def test_a_cancelled_wait_leaves_the_engine_usable_and_close_ends_the_others(
    cluster: ScriptedCluster,
) -> None:
    engine = AsyncEngine(config_for(cluster.bootstrap_servers))
    asker = Asker(engine.out)
    engine.add(asker)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await engine.wait(never, engine.now_ms() + PATIENCE_MS)
    asker.ask(lane=Lane.GROUP)
    assert await engine.wait(lambda: bool(asker.answers), engine.now_ms() + PATIENCE_MS)
    waiting = asyncio.create_task(engine.wait(never, engine.now_ms() + PATIENCE_MS))
    await asyncio.sleep(0)
    engine.close()
    with pytest.raises(ClosedClient):
        await waiting
    with pytest.raises(ClosedClient):
        await engine.wait(never, 0)


async def test_a_part_that_fails_fails_who_waits(cluster: ScriptedCluster) -> None:
    engine = AsyncEngine(config_for(cluster.bootstrap_servers))
    calls = 0

    def until() -> bool:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ValueError("from a condition")
        return False

    with pytest.raises(ValueError, match="from a condition"):
        await engine.wait(until, engine.now_ms() + PATIENCE_MS)
    engine.close()
