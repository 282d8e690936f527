"""Consumers that never run out of buffered records: group, metadata, event loop and wakeup go on all the same."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from kohort import AsyncConsumer, Consumer, Producer, TopicPartition, Wakeup
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S, QUICK, joined, quick

BUFFERED = 20_000
"""Records of some bytes each: two fetches bring them, and a poll takes one."""
WORK_S = 0.002
NEVER_MS = 600_000
"""For request.timeout.ms: an answer that is not read would be asked for again after it."""


@pytest.fixture
def full(kafka: Kafka) -> Kafka:
    kafka.create_topic("t")
    kafka.create_topic("u")
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for _ in range(BUFFERED):
            producer.send("t", b"x" * 20)
    return kafka


def slow(kafka: Kafka, **settings: object) -> Consumer:
    given = {"max_poll_records": 1, "enable_auto_commit": False, "request_timeout_ms": NEVER_MS, **settings}
    return quick(kafka.bootstrap_servers, "g", **given)


def block() -> None:
    """What a user's code does with a record."""
    time.sleep(WORK_S)


def work_until(
    consumer: Consumer, happened: Callable[[], object], work: Callable[[], object] = lambda: None
) -> int:
    """Polls and works, record by record, until it happened; how many records that took."""
    rebalances = 0
    for count in range(BUFFERED - 1_000):
        if happened():
            return count
        if not consumer.poll(PATIENCE_S):
            rebalances += (
                1  # one began while nothing was buffered yet: the poll returns, and the next takes part
            )
            assert rebalances <= 5
        work()
    raise AssertionError("it did not happen as long as there were buffered records")


@contextmanager
def another_member(kafka: Kafka, topic: str, strategy: str) -> Iterator[threading.Event]:
    """Joins on a thread of its own; the event says that it has partitions."""
    has_partitions, ends = threading.Event(), threading.Event()

    def work() -> None:
        with quick(kafka.bootstrap_servers, "g", partition_assignment_strategy=strategy) as consumer:
            consumer.subscribe([topic], on_assigned=lambda given: given and has_partitions.set())
            while not ends.is_set():
                consumer.poll(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield has_partitions
    finally:
        ends.set()
        thread.join()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_leader_that_works_through_its_buffer_divides_topics_that_are_new_to_it(
    full: Kafka, strategy: str
) -> None:
    lost: list[TopicPartition] = []
    with slow(full, partition_assignment_strategy=strategy) as leader:
        leader.subscribe(["t"], on_lost=lost.extend)
        joined(leader)
        with another_member(full, "u", strategy) as has_partitions:
            work_until(leader, has_partitions.is_set, lambda: has_partitions.wait(WORK_S))
        assert not lost


def test_a_pattern_sees_new_topics_while_records_are_buffered(full: Kafka) -> None:
    given: list[TopicPartition] = []
    with slow(full, metadata_max_age_ms=100) as consumer:
        consumer.subscribe(re.compile("t.*"), on_assigned=given.extend)
        joined(consumer)
        assert consumer.poll(PATIENCE_S)
        full.create_topic("t2")
        work_until(consumer, lambda: ("t2", 0) in given, block)


def test_a_pattern_that_follows_another_returns_nothing_of_what_only_the_old_one_meant(full: Kafka) -> None:
    with quick(full.bootstrap_servers, "g", max_poll_records=10) as consumer:
        consumer.subscribe(re.compile("t|u"))
        joined(consumer)
        assert consumer.poll(PATIENCE_S)
        consumer.subscribe(re.compile("u|v"))
        full.produce("u", ["new"])
        polled = [consumer.poll(0) for _ in range(50)]
        while not any(polled):
            polled.append(consumer.poll(PATIENCE_S))
        assert {partition.topic for records in polled for partition in records} == {"u"}
        assert consumer.subscription() == {"u"}


def test_a_member_that_was_removed_returns_nothing_of_what_it_lost(full: Kafka) -> None:
    told: list[str] = []
    with slow(full) as consumer:
        consumer.subscribe(
            ["t"], on_lost=lambda _: told.append("lost"), on_assigned=lambda _: told.append("assigned")
        )
        joined(consumer)
        consumer.poll(PATIENCE_S)
        full.kill_member(full.group("g").members[0])
        while "lost" not in told:
            polled = consumer.poll(0.05)
        assert not polled or told == ["assigned", "lost", "assigned"]


@pytest.mark.parametrize("arrow", [False, True])
def test_the_next_poll_after_wakeup_raises(full: Kafka, arrow: bool) -> None:
    with quick(full.bootstrap_servers) as consumer:
        poll = consumer.poll_arrow if arrow else consumer.poll
        consumer.assign([("t", 0)])
        assert poll(PATIENCE_S, max_records=1)
        consumer.wakeup()
        with pytest.raises(Wakeup):
            poll(PATIENCE_S, max_records=1)
        assert poll(PATIENCE_S, max_records=1) is not None
        assert consumer.position(("t", 0)) == 2


# --- on an event loop ---------------------------------------------------------------------------------------


async def on_loop(kafka: Kafka, use: Callable[[AsyncConsumer], Awaitable[None]], **settings: object) -> None:
    given = {"group.id": "g", "max.poll.records": 1, "request.timeout.ms": NEVER_MS, **settings}
    async with AsyncConsumer({**QUICK, "bootstrap.servers": kafka.bootstrap_servers, **given}) as consumer:
        await use(consumer)


async def test_every_poll_gives_the_loop_a_turn(full: Kafka) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def use(consumer: AsyncConsumer) -> None:
        await consumer.assign([("t", 0)])
        await consumer.poll(PATIENCE_S)
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        before = turns
        for _ in range(100):
            assert await consumer.poll(PATIENCE_S)
        assert turns - before >= 100
        task.cancel()

    await on_loop(full, use)


async def test_heartbeats_go_on_while_an_iteration_works_on_the_loop(full: Kafka) -> None:
    """User code that blocks the loop for a moment with each record, as most does."""
    lost: list[TopicPartition] = []

    async def use(consumer: AsyncConsumer) -> None:
        await consumer.subscribe(["t"], on_lost=lost.extend)
        count = 0
        async for _ in consumer:
            count += 1
            block()
            if len(full.requests("Heartbeat")) >= 5:
                break
        assert count < BUFFERED - 1_000
        assert not lost
        await consumer.commit(timeout=PATIENCE_S)
        assert full.committed("g", "t") == {0: count}

    await on_loop(full, use)


async def test_a_member_on_a_loop_that_was_removed_is_told_while_records_are_buffered(full: Kafka) -> None:
    told: list[str] = []

    async def use(consumer: AsyncConsumer) -> None:
        await consumer.subscribe(
            ["t"], on_lost=lambda _: told.append("lost"), on_assigned=lambda _: told.append("assigned")
        )
        while not await consumer.poll(PATIENCE_S):
            pass
        full.kill_member(full.group("g").members[0])
        for _ in range(BUFFERED - 1_000):
            if told == ["assigned", "lost", "assigned"]:
                return
            await consumer.poll(PATIENCE_S)
            block()
        raise AssertionError(f"as long as there were buffered records it was told {told}")

    await on_loop(full, use)


async def test_the_next_poll_after_wakeup_raises_on_a_loop(full: Kafka) -> None:
    async def use(consumer: AsyncConsumer) -> None:
        await consumer.assign([("t", 0)])
        assert await consumer.poll(PATIENCE_S)
        consumer.wakeup()
        with pytest.raises(Wakeup):
            await consumer.poll(PATIENCE_S)
        assert await consumer.poll(PATIENCE_S)
        assert await consumer.position(("t", 0)) == 2

    await on_loop(full, use)
