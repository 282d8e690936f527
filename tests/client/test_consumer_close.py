"""What was under way when a consumer is closed is told: callbacks of commits, interceptors; with or without a group."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kohort import AsyncConsumer, Consumer, Producer, SettingError, TopicPartition
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S, QUICK, poll_until, quick, read

ORDERS = TopicPartition("orders", 0)


class Watch:
    """An interceptor that writes down what it is told."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.closed = 0

    def on_commit(self, offsets: dict[TopicPartition, Any]) -> None:
        assert not self.closed, "nothing is told after close"
        self.committed += [at.offset for at in offsets.values()]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def orders(kafka: Kafka) -> Kafka:
    kafka.create_topic("orders", partitions=1)
    kafka.produce("orders", ["one", "two", "three"])
    return kafka


def reading(consumer: Consumer, mode: str) -> Consumer:
    if mode == "assign":
        consumer.assign([ORDERS])
    else:
        consumer.subscribe(["orders"])
    return consumer


def commit_surely(consumer: Consumer, offset: int, callback: Any) -> list[str]:
    """A commit_async that calls back for an earlier one, which raises, is not carried out: again. What was raised."""
    raised: list[str] = []
    while True:
        try:
            consumer.commit_async({ORDERS: offset}, callback)
            return raised
        except RuntimeError as error:
            raised.append(str(error))


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
def test_close_calls_back_for_the_commits_that_end_during_it(orders: Kafka, mode: str) -> None:
    watch, told = Watch(), list[tuple[int, Exception | None]]()
    consumer = quick(orders.bootstrap_servers, "g", enable_auto_commit=False, interceptors=[watch])
    reading(consumer, mode)
    assert len(read(consumer, 3)) == 3
    for offset in (1, 2):
        consumer.commit_async(
            {ORDERS: offset}, lambda offsets, error: told.append((offsets[ORDERS].offset, error))
        )
    consumer.close(timeout=PATIENCE_S)
    assert told == [(1, None), (2, None)]
    assert (watch.committed, watch.closed) == ([1, 2], 1)
    assert orders.group("g").committed() == {("orders", 0): 2}


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
def test_close_tells_interceptors_of_its_own_commit(orders: Kafka, mode: str) -> None:
    watch = Watch()
    with quick(orders.bootstrap_servers, "g", interceptors=[watch]) as consumer:
        reading(consumer, mode)
        read(consumer, 3)
    assert (watch.committed, watch.closed) == ([3], 1)


def test_a_consumer_that_reads_nothing_any_more_is_told_of_its_commits_too(orders: Kafka) -> None:
    told: list[Exception | None] = []
    with quick(orders.bootstrap_servers, "g") as consumer:
        consumer.commit_async({ORDERS: 2}, lambda offsets, error: told.append(error))
    assert told == [None]


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
def test_a_commit_that_fails_during_close_is_told(orders: Kafka, mode: str) -> None:
    told: list[Exception | None] = []
    with quick(orders.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        read(reading(consumer, mode), 3)
        orders.fail("OffsetCommit", with_error="INVALID_COMMIT_OFFSET_SIZE", times=1)
        consumer.commit_async({ORDERS: 1}, lambda offsets, error: told.append(error))
    assert ["INVALID_COMMIT_OFFSET_SIZE" in str(error) for error in told] == [True]


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
def test_a_callback_that_raises_keeps_no_other_from_being_called_and_the_group_is_left(
    orders: Kafka, mode: str
) -> None:
    called: list[int] = []

    def bad(offsets: Any, error: Exception | None) -> None:
        called.append(offsets[ORDERS].offset)
        raise RuntimeError(f"callback {offsets[ORDERS].offset}")

    watch = Watch()
    consumer = quick(orders.bootstrap_servers, "g", enable_auto_commit=False, interceptors=[watch])
    read(reading(consumer, mode), 3)
    orders.delay("OffsetCommit", ms=500, times=1)  # no answer before close
    for offset in (1, 2, 3):
        commit_surely(consumer, offset, bad)
    with pytest.raises(RuntimeError, match="callback"):
        consumer.close(timeout=PATIENCE_S)
    assert called == [1, 2, 3]
    assert watch.closed == 1
    assert orders.group("g").members == []


def test_a_callback_that_raises_in_a_poll_leaves_the_others_to_the_next(orders: Kafka) -> None:
    called: list[int] = []

    def bad(offsets: Any, error: Exception | None) -> None:
        called.append(offsets[ORDERS].offset)
        raise RuntimeError(f"callback {offsets[ORDERS].offset}")

    with quick(orders.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.assign([ORDERS])
        orders.delay("OffsetCommit", ms=500, times=1)
        raised = [words for offset in (1, 2, 3) for words in commit_surely(consumer, offset, bad)]
        while len(raised) < 3:
            with pytest.raises(RuntimeError) as error:
                poll_until(consumer, lambda: False, "a callback is called")
            raised.append(str(error.value))
    assert raised == ["callback 1", "callback 2", "callback 3"]
    assert called == [1, 2, 3]


def test_what_on_revoked_commits_without_waiting_is_told_by_close(orders: Kafka) -> None:
    told: list[Exception | None] = []
    # A static member does not leave: nothing else makes close wait for the answer.
    consumer = quick(orders.bootstrap_servers, "g", enable_auto_commit=False, group_instance_id="kiosk")

    def revoked(partitions: list[TopicPartition]) -> None:
        consumer.commit_async({ORDERS: 3}, lambda offsets, error: told.append(error))

    consumer.subscribe(["orders"], on_revoked=revoked)
    read(consumer, 3)
    consumer.close(timeout=PATIENCE_S)
    assert told == [None]


def test_an_interceptor_that_cannot_be_closed_is_logged(
    orders: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad:
        def close(self) -> None:
            raise RuntimeError("it is stuck")

    watch = Watch()
    with quick(orders.bootstrap_servers, None, interceptors=[Bad(), watch]) as consumer:
        consumer.assign([ORDERS])
    assert watch.closed == 1
    assert "an interceptor's close failed" in caplog.text
    with Producer(bootstrap_servers=orders.bootstrap_servers, interceptors=[Bad(), watch]) as producer:
        producer.send("orders", "four")
    assert watch.closed == 2


def test_interceptors_are_a_list(orders: Kafka) -> None:
    with pytest.raises(SettingError, match="interceptors takes a list of objects with on_consume"):
        quick(orders.bootstrap_servers, None, interceptors=Watch())


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
async def test_an_asyncio_consumer_tells_the_same(orders: Kafka, mode: str) -> None:
    watch, told = Watch(), list[int]()
    settings = {**QUICK, "bootstrap.servers": orders.bootstrap_servers, "group.id": "g"}

    async def committed(offsets: Any, error: Exception | None) -> None:
        await asyncio.sleep(0)
        told.append(offsets[ORDERS].offset)

    async with asyncio.timeout(PATIENCE_S):
        consumer = AsyncConsumer(settings, enable_auto_commit=False, interceptors=[watch])
        if mode == "assign":
            await consumer.assign([ORDERS])
        else:
            await consumer.subscribe(["orders"])
        while not await consumer.poll(0.2):
            pass
        await consumer.commit_async({ORDERS: 1}, committed)
        await consumer.commit_async({ORDERS: 2}, committed)
        await consumer.close()
    assert told == [1, 2]
    assert (watch.committed, watch.closed) == ([1, 2], 1)


def test_no_warning_is_logged_by_any_of_this(orders: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    with quick(orders.bootstrap_servers, "g") as consumer:
        reading(consumer, "assign")
        read(consumer, 3)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
