"""The end of a consumer: close in the middle of anything, forks, Ctrl-C, threads; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kohort import AsyncConsumer, ClosedClient, ConcurrentUse, Consumer, TopicPartition
from kohort.testing import Kafka
from tests.client.consuming import (
    PATIENCE_S,
    QUICK,
    Told,
    joined,
    open_descriptors,
    poll_until,
    quick,
    read,
    within,
)
from tests.clients.process import eventually

T0 = TopicPartition("t", 0)
PROGRAM_TIMEOUT_S = 180


@pytest.fixture
def three(kafka: Kafka) -> Kafka:
    """A topic with three records."""
    kafka.create_topic("t")
    kafka.produce("t", ["a", "b", "c"])
    return kafka


@pytest.fixture(autouse=True)
def others() -> Iterator[None]:
    """Threads that a consumer of another test has left behind are not this test's."""
    OTHERS[:] = threading.enumerate()
    yield
    OTHERS.clear()


OTHERS: list[threading.Thread] = []


def new_threads() -> list[threading.Thread]:
    """Begun in this test, and still there."""
    return [thread for thread in threading.enumerate() if thread not in OTHERS]


def background_threads() -> list[str]:
    return [thread.name for thread in new_threads() if thread.name.startswith("kohort-heartbeat")]


# --- close in the middle of anything -------------------------------------------------------------------------


STAGES = [
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "OffsetFetch",
    "ListOffsets",
    "Fetch",
]


@pytest.mark.parametrize("api", STAGES)
def test_close_in_the_middle_of_anything_ends_in_time_and_leaves_the_group(three: Kafka, api: str) -> None:
    """Its answer is a second away when the consumer is closed."""
    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"])
    with three.delay(api, ms=1_000, times=1) as slow:
        poll_until(consumer, lambda: slow.hits > 0, "it waits for the answer")
        with within(5):
            consumer.close(timeout=15)
    eventually(lambda: not three.group("g").members, "nobody is left in the group")
    assert background_threads() == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_close_while_the_group_waits_for_another_member(three: Kafka, strategy: str) -> None:
    """Its join is parked at the coordinator: the other member does not poll."""
    settings = {"partition_assignment_strategy": strategy}
    with quick(three.bootstrap_servers, "g", **settings) as other:
        other.subscribe(["t"])
        joined(other)
        consumer = quick(three.bootstrap_servers, "g", **settings)
        consumer.subscribe(["t"])
        poll_until(
            consumer, lambda: three.group("g").state == "PreparingRebalance", "it waits for the other one"
        )
        with within(5):
            consumer.close(timeout=PATIENCE_S)
        assert len(three.group("g").members) == 1
        poll_until(
            other,
            lambda: three.group("g").state == "Stable" and other.assignment() == {T0},
            "the other one has it all",
        )


def test_close_in_the_middle_of_a_commit(three: Kafka) -> None:
    """What was begun is waited for, within the time that close has."""
    consumer = quick(three.bootstrap_servers, "g", enable_auto_commit=False)
    consumer.subscribe(["t"])
    read(consumer, 3)
    heard: list[Exception | None] = []
    with three.delay("OffsetCommit", ms=300, times=1):
        consumer.commit_async({T0: 2}, lambda offsets, error: heard.append(error))
        consumer.close(timeout=PATIENCE_S)
    assert three.committed("g", "t") == {0: 2}
    assert heard == [None]


def test_close_does_not_wait_longer_than_it_may(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"])
    read(consumer, 3)
    with three.delay("OffsetCommit", ms=60_000, times=1), within(0.3):
        consumer.close(timeout=0.3)
    assert background_threads() == []


def test_close_without_any_time_still_says_good_bye(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"])
    joined(consumer)
    with within(0):
        consumer.close(timeout=0)
    eventually(lambda: not three.group("g").members, "it has left the group")


def test_close_in_a_callback(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"], on_assigned=lambda partitions: consumer.close(timeout=PATIENCE_S))
    with within(5), pytest.raises(ClosedClient):
        poll_until(consumer, lambda: False, "it closes itself")
    eventually(lambda: not three.group("g").members, "it has left the group")
    assert background_threads() == []


def test_close_in_a_commit_callback(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g", enable_auto_commit=False)
    consumer.subscribe(["t"])
    read(consumer, 3)
    consumer.commit_async(callback=lambda offsets, error: consumer.close(timeout=PATIENCE_S))
    with within(5), pytest.raises(ClosedClient):
        poll_until(consumer, lambda: False, "it closes itself")
    assert three.committed("g", "t") == {0: 3}


def test_close_in_an_iteration_commits_what_was_given_out(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"])
    records = iter(consumer)
    assert [next(records).offset, next(records).offset] == [0, 1]
    consumer.close(timeout=PATIENCE_S)
    with pytest.raises(ClosedClient):
        list(records)
    assert three.committed("g", "t") == {0: 2}


def test_close_while_the_broker_is_gone(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"])
    read(consumer, 3)
    three.stop()
    with within(0.5):
        consumer.close(timeout=0.5)
    three.start()


def test_close_twice_and_calls_after_it(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    consumer.close()
    consumer.close()
    consumer.wakeup()
    for call in (
        lambda: consumer.poll(0),
        lambda: consumer.subscribe(["t"]),
        lambda: consumer.commit(),
        lambda: consumer.position(T0),
        lambda: next(iter(consumer)),
    ):
        with pytest.raises(ClosedClient):
            call()


def test_a_callback_that_raises_while_closing_is_raised_after_everything_is_closed(three: Kafka) -> None:
    def fail(partitions: list[TopicPartition]) -> None:
        raise RuntimeError("no")

    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"], on_revoked=fail)
    joined(consumer)
    with pytest.raises(RuntimeError, match="no"):
        consumer.close(timeout=PATIENCE_S)
    assert three.group("g").members == []
    assert background_threads() == []


async def test_an_asyncio_consumer_that_is_closed_in_the_middle_of_a_join(three: Kafka) -> None:
    consumer = AsyncConsumer({**QUICK, "bootstrap.servers": three.bootstrap_servers, "group.id": "g"})
    await consumer.subscribe(["t"])
    with three.delay("JoinGroup", ms=500, times=1) as slow:
        while not slow.hits:
            await consumer.poll(0.02)
        async with asyncio.timeout(20):
            await consumer.close(timeout=15)
    await three.group("g").wait_empty_async(timeout=PATIENCE_S)


async def test_an_asyncio_poll_that_is_cancelled_leaves_a_consumer_that_can_be_closed(three: Kafka) -> None:
    async with AsyncConsumer(
        {**QUICK, "bootstrap.servers": three.bootstrap_servers, "group.id": "g"}
    ) as consumer:
        await consumer.subscribe(["t"])
        with three.delay("SyncGroup", ms=300, times=1), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.15):
                await consumer.poll(30)
    assert three.group("g").members == []


# --- nothing is left behind ------------------------------------------------------------------------------------


def test_a_closed_consumer_leaves_no_thread_and_no_descriptor(three: Kafka) -> None:
    quick(three.bootstrap_servers, "warm").close()
    before = open_descriptors()
    for turn in range(5):
        consumer = quick(three.bootstrap_servers, f"g{turn}")
        consumer.subscribe(["t"])
        read(consumer, 3)
        consumer.close(timeout=PATIENCE_S)
    # The broker's ends of the connections are in this process too, and are closed a moment later.
    eventually(lambda: len(open_descriptors()) <= len(before), "all descriptors are closed")
    assert [thread.name for thread in new_threads() if thread.name.startswith("kohort")] == ["kohort-broker"]


async def test_a_closed_asyncio_consumer_leaves_no_descriptor(three: Kafka) -> None:
    before = open_descriptors()
    for turn in range(3):
        settings = {**QUICK, "bootstrap.servers": three.bootstrap_servers, "group.id": f"g{turn}"}
        async with AsyncConsumer(settings) as consumer:
            await consumer.subscribe(["t"])
            seen = 0
            while seen < 3:
                seen += sum(map(len, (await consumer.poll(1)).values()))
    async with asyncio.timeout(PATIENCE_S):
        while len(open_descriptors()) > len(before):
            await asyncio.sleep(0.02)


def test_a_consumer_that_cannot_be_made_leaves_nothing(three: Kafka) -> None:
    from kohort.settings import SettingError

    before = open_descriptors()
    for wrong in ({"partition.assignment.strategy": "no-such"}, {"value.deserializer": 7}):
        with pytest.raises((SettingError, ValueError)):
            Consumer({"bootstrap.servers": three.bootstrap_servers, "group.id": "g", **wrong})
    assert open_descriptors() <= before  # what other tests had may still be going
    assert background_threads() == []


def test_thirty_poll_loops_in_threads_close_cleanly(three: Kafka) -> None:
    # Each takes ten descriptors or so, with the broker's ends: as many as fit.
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = 30 if allowed == resource.RLIM_INFINITY else min(30, max(allowed - 100, 50) // 15)
    three.create_topic("many", partitions=count)
    before, stop = open_descriptors(), threading.Event()
    errors: list[BaseException] = []
    owned: dict[int, int] = {}

    def loop(number: int) -> None:
        try:
            with quick(three.bootstrap_servers, "many", fetch_max_wait_ms=500) as consumer:
                consumer.subscribe(["many"])
                while not stop.is_set():
                    consumer.poll(0.1)
                    owned[number] = len(consumer.assignment())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: errors or list(owned.values()) == [1] * count, "everybody has a partition", 120)
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)
    assert three.group("many").members == []
    eventually(lambda: len(open_descriptors()) <= len(before), "all descriptors are closed")
    assert background_threads() == []


def test_a_second_thread_is_refused_also_by_close_and_the_first_goes_on(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"])
        read(consumer, 3)
        began, got = threading.Event(), list[int]()

        def wait() -> None:
            began.set()
            got.append(sum(map(len, consumer.poll(PATIENCE_S).values())))

        thread = threading.Thread(target=wait)
        thread.start()
        began.wait()

        def refused(call: Callable[[], object]) -> bool:
            with suppress(ConcurrentUse):
                call()
                return False
            return True

        eventually(lambda: consumer._owner, "the other thread is in poll")
        assert refused(lambda: consumer.poll(0))
        assert refused(lambda: consumer.commit())
        assert refused(lambda: consumer.close())
        three.produce("t", ["d"])
        thread.join(2 * PATIENCE_S)
        assert got == [1]


# --- fork -----------------------------------------------------------------------------------------------------

FORKS = """
import os, sys
from kohort import ClosedClient, Consumer

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])
seen = []
while len(seen) < 3:
    seen += [r.value for some in consumer.poll(1).values() for r in some]
pid = os.fork()
if pid == 0:
    code = 1
    try:
        consumer.poll(0)
    except ClosedClient as error:
        code = 0 if "fork" in str(error) else 2
    consumer.close()
    own = Consumer({"bootstrap.servers": sys.argv[1], "auto.offset.reset": "earliest"})
    own.assign([("t", 0)])
    if not sum(map(len, own.poll(60).values())):
        code = 3
    own.close()
    os._exit(code)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
consumer.commit()
print("forked", flush=True)
while len(seen) < 4:
    seen += [r.value for some in consumer.poll(1).values() for r in some]
consumer.close()
print(seen, flush=True)
"""


def program(source: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        # Since 3.12 Python warns of a fork beside threads, which one of these programs is about.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", source, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_forked_child_is_told_and_the_parent_goes_on(three: Kafka) -> None:
    with program(FORKS, three.bootstrap_servers) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if line != "forked\n":
            pytest.fail(line + process.communicate(timeout=PROGRAM_TIMEOUT_S)[0])
        assert len(three.group("g").members) == 1  # the child's close did not leave the group
        three.produce("t", ["d"])
        output, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert process.returncode == 0, output
        assert output == "[b'a', b'b', b'c', b'd']\n"
    assert three.group("g").members == []


# --- Ctrl-C ---------------------------------------------------------------------------------------------------

INTERRUPTED = """
import sys
from kohort import Consumer

with Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe(["t"])
    seen = []
    while len(seen) < 3:
        seen += [r.value for some in consumer.poll(1).values() for r in some]
    for turn in range(3):
        try:
            print("waiting", flush=True)
            consumer.poll(60)
            print("not interrupted", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    consumer.seek_to_beginning()
    while len(seen) < 6:
        seen += [r.value for some in consumer.poll(1).values() for r in some]
    print(len(seen), flush=True)
"""

ENDED = """
import sys
from kohort import Consumer

with Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe(["t"])
    for record in consumer:
        print(record.offset, flush=True)
"""


def interrupt(process: subprocess.Popen[str]) -> None:
    time.sleep(0.2)  # the line was written just before the call that is to be struck
    process.send_signal(signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_poll_and_the_consumer_goes_on(three: Kafka) -> None:
    with program(INTERRUPTED, three.bootstrap_servers) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline() == "waiting\n"
            interrupt(process)
            assert process.stdout.readline() == "interrupted\n"
        output, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert (process.returncode, output) == (0, "6\n")
    assert three.group("g").members == []


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_program_which_leaves_its_group(three: Kafka) -> None:
    with program(ENDED, three.bootstrap_servers) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
        interrupt(process)
        output, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert "KeyboardInterrupt" in output
        assert process.returncode in (1, 130, -signal.SIGINT)
    assert three.group("g").members == []
    assert three.committed("g", "t") == {0: 3}


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_joining_leaves_no_ghost(three: Kafka) -> None:
    slow = three.delay("JoinGroup", ms=1_000, times=1)
    with program(ENDED, three.bootstrap_servers) as process:
        slow.wait(timeout=PROGRAM_TIMEOUT_S)
        interrupt(process)
        output, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert "KeyboardInterrupt" in output
    eventually(lambda: not three.group("g").members, "nobody is left in the group")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_callback_is_raised_and_the_group_settles(three: Kafka) -> None:
    told = Told()

    def assigned(partitions: list[TopicPartition]) -> None:
        told.calls.append(("assigned", partitions))
        if len(told.calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], on_assigned=assigned)
        with pytest.raises(KeyboardInterrupt):
            poll_until(consumer, lambda: False, "it is interrupted")
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        assert told.kinds == ["assigned"]


def stop(number: int, frame: object) -> None:
    raise SystemExit(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("how", ["poll", "poll_arrow", "iteration"])
def test_a_signal_while_records_are_taken_loses_none(
    three: Kafka, monkeypatch: pytest.MonkeyPatch, how: str, number: signal.Signals
) -> None:
    """The poll has taken them, and raises instead of returning them."""
    before = signal.signal(number, stop)
    with quick(three.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        name = "take_arrow" if how == "poll_arrow" else "take"
        really_take = getattr(consumer._core.fetcher, name)

        def take(*arguments: object, **more: object) -> object:
            taken = really_take(*arguments, **more)
            if taken is not None and len(taken):
                signal.raise_signal(number)
            return taken

        def read_on() -> None:
            if how == "iteration":
                next(iter(consumer))
            else:
                getattr(consumer, how)(PATIENCE_S)

        monkeypatch.setattr(consumer._core.fetcher, name, take)
        for _ in range(2):
            with pytest.raises(SystemExit):
                read_on()
        monkeypatch.undo()
        signal.signal(number, before)
        consumer.commit(timeout=PATIENCE_S)
        assert three.committed("g", "t") == {0: 0}
        assert read(consumer, 3) == [b"a", b"b", b"c"]
