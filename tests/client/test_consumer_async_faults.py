"""AsyncConsumer when things go wrong: the same as the blocking one where they share code, and what is its own: tasks,
cancellation, the loop. And of both: waiting costs nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kohort import AsyncConsumer, ClosedClient, CommitFailed, KafkaError, TopicPartition
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S, QUICK, quick, read
from tests.client.test_consumer_group_faults import RAISED, RECOVERED

T0 = TopicPartition("t", 0)
GROUP_APIS = ("FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "OffsetCommit")


@pytest.fixture
def three(kafka: Kafka) -> Kafka:
    kafka.create_topic("t")
    kafka.produce("t", ["a", "b", "c"])
    return kafka


@asynccontextmanager
async def quick_async(kafka: Kafka, **settings: object) -> AsyncIterator[AsyncConsumer]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    everything = {**QUICK, "bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", **given}
    async with AsyncConsumer(everything) as consumer, asyncio.timeout(PATIENCE_S):
        yield consumer


async def read_async(consumer: AsyncConsumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        values += [r.value for some in (await consumer.poll(0.2)).values() for r in some]
    return values


async def poll_async(consumer: AsyncConsumer, condition: Callable[[], object]) -> None:
    while not condition():
        await consumer.poll(0.02)


@pytest.mark.parametrize(("api", "error"), [pair for pair in RECOVERED if pair[0] in GROUP_APIS])
async def test_an_error_that_passes_is_not_the_users_business(three: Kafka, api: str, error: str) -> None:
    fault = three.fail(api, with_error=error, times=2)
    async with quick_async(three, enable_auto_commit=False) as consumer:
        await consumer.subscribe(["t"])
        assert await read_async(consumer, 3) == [b"a", b"b", b"c"]
        await consumer.commit()
    assert fault.hits == 2
    assert three.committed("g", "t") == {0: 3}


@pytest.mark.parametrize(("api", "error", "words"), RAISED)
async def test_an_error_for_the_user_is_raised_by_poll(
    three: Kafka, api: str, error: str, words: str
) -> None:
    fault = three.fail(api, with_error=error, times=None)
    async with quick_async(three) as consumer:
        await consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match=words):
            await consumer.poll(PATIENCE_S)
        fault.remove()
        assert await read_async(consumer, 3) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("after_handling", [False, True])
@pytest.mark.parametrize("api", GROUP_APIS)
async def test_a_lost_request_or_answer_is_not_the_users_business(
    three: Kafka, api: str, after_handling: bool
) -> None:
    fault = three.disconnect(api, times=2, after_handling=after_handling)
    async with quick_async(three, enable_auto_commit=False) as consumer:
        await consumer.subscribe(["t"])
        assert await read_async(consumer, 3) == [b"a", b"b", b"c"]
        await consumer.commit()
    assert fault.hits == 2
    assert three.group("g").members == []


async def test_who_does_not_poll_in_time_leaves_and_is_told_why(three: Kafka) -> None:
    told: list[str] = []
    async with quick_async(three, max_poll_interval_ms=300, enable_auto_commit=False) as consumer:
        await consumer.subscribe(
            ["t"], on_assigned=lambda ps: told.append("assigned"), on_lost=lambda ps: told.append("lost")
        )
        await read_async(consumer, 3)
        await three.group("g").wait_empty_async(timeout=PATIENCE_S)
        before = len(told)  # more than one if the machine stood still so long before
        with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms is 0\.3 s"):
            await consumer.commit()
        await poll_async(consumer, lambda: told[before:][:2] == ["lost", "assigned"])
        assert told[:2] == ["assigned", "lost"]


async def test_a_coroutine_that_raises_in_a_callback(three: Kafka) -> None:
    async def fail(partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("the user's own mistake")

    async with quick_async(three) as consumer:
        await consumer.subscribe(["t"], on_assigned=fail)
        with pytest.raises(RuntimeError, match="own mistake"):
            await poll_async(consumer, lambda: False)
        assert await read_async(consumer, 3) == [b"a", b"b", b"c"]


async def test_a_poll_that_is_cancelled_in_a_callback_leaves_a_member(three: Kafka) -> None:
    began = asyncio.Event()

    async def hangs(partitions: list[TopicPartition]) -> None:
        began.set()
        await asyncio.sleep(60)

    async with quick_async(three) as consumer:
        await consumer.subscribe(["t"], on_assigned=hangs)
        polling = asyncio.create_task(poll_async(consumer, lambda: False))
        await began.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert await read_async(consumer, 3) == [b"a", b"b", b"c"]
        assert consumer.assignment() == {T0}


async def test_heartbeats_go_on_in_a_callback_that_awaits(three: Kafka) -> None:
    beats: list[int] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        three.clear()
        await three.wait_for_request_async("Heartbeat", count=3, timeout=PATIENCE_S)
        beats.append(len(three.requests("Heartbeat")))

    async with quick_async(three) as consumer:
        await consumer.subscribe(["t"], on_assigned=assigned)
        await poll_async(consumer, lambda: beats)


async def test_close_ends_the_poll_of_another_task(three: Kafka) -> None:
    async with quick_async(three) as consumer:
        await consumer.subscribe(["t"])
        await read_async(consumer, 3)
        polling = asyncio.create_task(poll_async(consumer, lambda: False))
        await asyncio.sleep(0.05)
        await consumer.close(timeout=PATIENCE_S)
        with pytest.raises(ClosedClient):
            await polling
    assert three.group("g").members == []
    assert three.committed("g", "t") == {0: 3}


async def test_who_polls_while_the_consumer_is_closed_does_not_join_again(three: Kafka) -> None:
    async with quick_async(three, enable_auto_commit=False) as consumer:
        revoking, polled = asyncio.Event(), asyncio.Event()

        async def revoked(partitions: list[TopicPartition]) -> None:
            revoking.set()
            await polled.wait()
            await consumer.commit({T0: 2})  # the task that closes may still use it

        await consumer.subscribe(["t"], on_revoked=revoked)
        await read_async(consumer, 3)
        waiting = asyncio.create_task(consumer.poll(30))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(consumer.close(timeout=PATIENCE_S))
        with pytest.raises(ClosedClient, match="another task"):
            await waiting
        await revoking.wait()
        with pytest.raises(ClosedClient, match="another task"):
            await consumer.poll(0)
        polled.set()
        await asyncio.gather(closing, consumer.close(timeout=PATIENCE_S))
    assert three.group("g").members == []
    assert three.committed("g", "t") == {0: 2}


def test_without_a_loop_it_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"(?i)event loop"):
        AsyncConsumer(bootstrap_servers="127.0.0.1:1")


async def test_an_iteration_that_is_cancelled_gives_back_what_it_had_not_given_out(three: Kafka) -> None:
    async with quick_async(three) as consumer:
        await consumer.subscribe(["t"])

        async def first() -> bytes:
            async for record in consumer:
                return bytes(record.value)
            raise AssertionError("it has no end")

        assert await first() == b"a"
        assert await read_async(consumer, 2) == [b"b", b"c"]


# --- waiting costs nothing ---------------------------------------------------------------------------------------

STATES: dict[str, Callable[[Kafka], object]] = {
    "nothing to read": lambda kafka: None,
    "joining": lambda kafka: kafka.delay("JoinGroup", ms=1_500),
    "broker gone": lambda kafka: kafka.stop(),
    "coordinator loading": lambda kafka: kafka.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=None),
    "not the leader": lambda kafka: kafka.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None),
    "slow heartbeats": lambda kafka: kafka.delay("Heartbeat", ms=1_500),
}
SLOW = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 1_000, "reconnect_backoff_ms": 50}


def is_little(spent: list[float]) -> bool:
    """Who spins does so in every poll; once, it may have been another thread of this process."""
    assert len(spent) < 3 or min(spent) < 0.25, spent
    return min(spent, default=1.0) < 0.25


@pytest.mark.parametrize("state", list(STATES))
def test_a_poll_that_waits_does_not_spin(kafka: Kafka, state: str) -> None:
    kafka.create_topic("t")
    with quick(kafka.bootstrap_servers, "g", **SLOW, heartbeat_interval_ms=200) as consumer:
        consumer.subscribe(["t"])
        if state not in ("joining", "coordinator loading"):
            kafka.produce("t", ["a"])
            read(consumer, 1)
        STATES[state](kafka)
        consumer.poll(0)
        spent: list[float] = []
        while not is_little(spent):
            before = time.process_time()
            consumer.poll(1)
            spent.append(time.process_time() - before)  # of both, client and broker
        kafka.remove_faults()
        consumer.close(timeout=0.5)


@pytest.mark.parametrize("state", list(STATES))
async def test_an_asyncio_poll_that_waits_does_not_spin(kafka: Kafka, state: str) -> None:
    kafka.create_topic("t")
    async with quick_async(kafka, **SLOW, heartbeat_interval_ms=200) as consumer:
        await consumer.subscribe(["t"])
        if state not in ("joining", "coordinator loading"):
            kafka.produce("t", ["a"])
            await read_async(consumer, 1)
        STATES[state](kafka)
        await consumer.poll(0)
        spent: list[float] = []
        while not is_little(spent):
            before = time.process_time()
            await consumer.poll(1)
            spent.append(time.process_time() - before)
        kafka.remove_faults()
        await consumer.close(timeout=0.5)
