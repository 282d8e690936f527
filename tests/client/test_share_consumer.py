"""The share consumer as users call it, against a real cluster (ours, or the one that conftest.py is given)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from kohort import (
    AcknowledgeType,
    Admin,
    AsyncShareConsumer,
    ClosedClient,
    ConcurrentUse,
    DeserializationFailed,
    ErrorCode,
    IllegalState,
    KafkaError,
    Producer,
    Record,
    ShareConsumer,
    TopicPartition,
    Wakeup,
    WrongArgument,
)
from kohort.testing import Kafka
from tests.clients.process import eventually

NewTopic = Callable[..., str]
NewShareConsumer = Callable[..., ShareConsumer]

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
PATIENCE_S = 30.0


@pytest.fixture
def share_group(admin: Admin, group: str) -> str:
    """A share group that begins at the beginning, and assigns its partitions at once."""
    admin.alter_group_configs(
        {group: {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0}}
    )
    return group


@pytest.fixture
def new_share(bootstrap_servers: str, share_group: str) -> Iterable[NewShareConsumer]:
    """Makes share consumers of one group, and closes them after the test."""
    made: list[ShareConsumer] = []

    def make(**settings: object) -> ShareConsumer:
        given: dict[str, object] = {"group_id": share_group, "fetch_max_wait_ms": 200, **settings}
        made.append(ShareConsumer(bootstrap_servers=bootstrap_servers, **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(timeout=5)


@pytest.fixture
def write(bootstrap_servers: str) -> Iterable[Callable[..., None]]:
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:

        def make(topic: str, values: Iterable[str], partition: int = 0) -> None:
            for value in values:
                producer.send(topic, value.encode(), partition=partition)
                producer.flush()  # a batch of its own for each: brokers acquire whole batches

        yield make


def some(consumer: ShareConsumer, count: int = 1) -> list[Record]:
    """What one poll returns, once it returns at least `count`; implicitly accepted ones are lost to the test."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = [record for records in consumer.poll(1.0).values() for record in records]
        if len(found) >= count:
            return found
        assert not found, f"a poll returned only {found}"
    raise AssertionError("nothing came in time")


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]


# --- acknowledging ---------------------------------------------------------------------------------------


def test_accepted_are_done_released_come_again_rejected_never(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 6))
    consumer = new_share(share_acknowledgement_mode="explicit")
    consumer.subscribe([topic])
    found = some(consumer, 6)
    assert offsets(found) == [0, 1, 2, 3, 4, 5]
    assert [record.value for record in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert {record.delivery_count for record in found} == {1}
    assert (consumer.acquisition_lock_timeout_ms() or 0) > 0
    for record, kind in zip(found, [ACCEPT, RELEASE, REJECT] * 2, strict=True):
        consumer.acknowledge(record, kind)
    assert consumer.commit_sync() == {TopicPartition(topic, 0): None}
    again = some(consumer, 2)
    assert [(record.offset, record.delivery_count) for record in again] == [(1, 2), (4, 2)]
    for record in again:
        consumer.acknowledge(record)
    assert consumer.commit_sync() == {TopicPartition(topic, 0): None}
    assert consumer.poll(0.5) == {}


def test_renewed_records_come_again_without_another_count(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 3))
    consumer = new_share(share_acknowledgement_mode="explicit")
    consumer.subscribe([topic])
    first, *others = some(consumer, 3)
    consumer.acknowledge(first)
    for record in others:
        consumer.acknowledge(record, RENEW)
    again = some(consumer, 2)
    assert [(record.offset, record.delivery_count) for record in again] == [(1, 1), (2, 1)]
    for record in again:
        consumer.acknowledge(record)
    assert set(consumer.commit_sync().values()) == {None}


def test_in_implicit_mode_the_next_poll_accepts_and_close_does_not(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 3))
    consumer = new_share()
    consumer.subscribe([topic])
    assert offsets(some(consumer, 3)) == [0, 1, 2]
    write(topic, numbers(3, 5))
    assert offsets(some(consumer)) in ([3], [3, 4])
    consumer.close()
    other = new_share()
    other.subscribe([topic])
    seen: dict[int, int | None] = {}
    eventually(
        lambda: seen.update({r.offset: r.delivery_count for r in some(other)}) or {3, 4} <= seen.keys(),
        "what was not accepted comes again",
    )
    assert seen.keys() == {3, 4}
    assert seen[3] == 2


def test_the_callback_hears_what_became_of_acknowledgements(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 2))
    consumer = new_share()
    told: list[tuple[object, object]] = []
    consumer.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
    consumer.subscribe([topic])
    some(consumer, 2)
    consumer.commit_async()
    eventually(lambda: consumer.poll(0.2) == {} and len(told) > 0, "the callback is called")
    assert told == [({TopicPartition(topic, 0): frozenset({0, 1})}, None)]


def test_after_so_many_deliveries_a_record_is_archived(
    admin: Admin,
    share_group: str,
    new_topic: NewTopic,
    write: Callable[..., None],
    new_share: NewShareConsumer,
) -> None:
    topic = new_topic()
    write(topic, ["poison"])
    consumer = new_share(share_acknowledgement_mode="explicit")
    consumer.subscribe([topic])
    counts: list[int | None] = []
    for _ in range(5):
        (record,) = some(consumer)
        counts.append(record.delivery_count)
        consumer.acknowledge(record, RELEASE)
    assert counts == [1, 2, 3, 4, 5]
    assert consumer.poll(1.0) == {}


# --- several consumers -----------------------------------------------------------------------------------


def test_two_consumers_share_one_partition(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 40))
    settings = {"max_poll_records": 5, "share_acquire_mode": "record_limit"}
    both = [new_share(**settings), new_share(**settings)]
    for consumer in both:
        consumer.subscribe([topic])
    seen: list[list[Record]] = [[], []]

    def poll_both() -> bool:
        for mine, consumer in zip(seen, both, strict=True):
            polled = [record for records in consumer.poll(0.2).values() for record in records]
            assert len(polled) <= 5, "record_limit is a limit"
            mine += polled
        return len(seen[0]) + len(seen[1]) >= 40

    eventually(poll_both, "all records are read")
    assert sorted(offsets([*seen[0], *seen[1]])) == list(range(40)), "each record went to one of them"
    assert all(seen), "both got some"
    for consumer in both:
        assert set(consumer.commit_sync().values()) <= {None}


def test_what_a_consumer_had_goes_to_others_when_its_connection_is_lost(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 4))
    dies, lives = new_share(), new_share()
    dies.subscribe([topic])
    assert offsets(some(dies, 4)) == [0, 1, 2, 3]
    dies._engine.network.close()  # as if its process was killed: no goodbye
    lives.subscribe([topic])
    found = some(lives, 4)
    assert [(record.offset, record.delivery_count) for record in found] == [(n, 2) for n in range(4)]
    assert lives.commit_sync() == {TopicPartition(topic, 0): None}


def test_aborted_records_are_not_delivered_to_a_group_that_reads_committed(
    admin: Admin,
    bootstrap_servers: str,
    share_group: str,
    new_topic: NewTopic,
    new_share: NewShareConsumer,
) -> None:
    admin.alter_group_configs({share_group: {"share.isolation.level": "read_committed"}})
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for values, commit in ((("a", "b"), True), (("c", "d"), False), (("e",), True)):
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value.encode())
            if commit:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
    consumer = new_share()
    consumer.subscribe([topic])
    seen: list[bytes | None] = []
    eventually(
        lambda: seen.extend(r.value for rs in consumer.poll(0.5).values() for r in rs) or len(seen) >= 3,
        "the committed records come",
    )
    assert seen == [b"a", b"b", b"e"]
    assert set(consumer.commit_sync().values()) <= {None}
    assert consumer.poll(0.5) == {}


# --- iteration -------------------------------------------------------------------------------------------


def test_an_iteration_that_ends_early_releases_what_it_did_not_give_out(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 5))
    consumer = new_share()
    consumer.subscribe([topic])
    for record in consumer:
        if record.offset == 2:
            break
    assert consumer.commit_sync() == {TopicPartition(topic, 0): None}
    found = some(consumer, 2)
    assert [(record.offset, record.delivery_count) for record in found] == [(3, 2), (4, 2)]


def test_a_commit_within_an_iteration_accepts_only_what_was_given_out(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 4))
    consumer = new_share()
    consumer.subscribe([topic])
    for record in consumer:
        if record.offset == 1:
            assert consumer.commit_sync() == {TopicPartition(topic, 0): None}
            break
    consumer.close()  # without a word about 2 and 3
    other = new_share()
    other.subscribe([topic])
    assert [(record.offset, record.delivery_count) for record in some(other, 2)] == [(2, 2), (3, 2)]


# --- errors ----------------------------------------------------------------------------------------------


def number(topic: str, value: bytes) -> int:
    return int(value)


def test_a_record_that_cannot_be_deserialized_can_be_rejected(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, ["1", "two", "3"])
    consumer = new_share(share_acknowledgement_mode="explicit", value_deserializer=number)
    consumer.subscribe([topic])
    (first,) = some(consumer)
    assert first.value == 1
    consumer.acknowledge(first)
    with pytest.raises(DeserializationFailed, match="was released") as failed:
        consumer.poll(5.0)
    assert (failed.value.offset, failed.value.value) == (1, b"two")
    consumer.acknowledge(failed.value, REJECT)
    (third,) = some(consumer)
    assert third.value == 3
    consumer.acknowledge(third)
    assert set(consumer.commit_sync().values()) == {None}
    assert consumer.poll(0.5) == {}


def test_calls_that_do_not_fit(
    new_topic: NewTopic, write: Callable[..., None], new_share: NewShareConsumer
) -> None:
    topic = new_topic()
    write(topic, ["1"])
    consumer = new_share(share_acknowledgement_mode="explicit")
    with pytest.raises(IllegalState, match=r"subscribe\(topics\) first"):
        consumer.poll(0)
    with pytest.raises(WrongArgument, match="a list of topics"):
        consumer.subscribe(topic)
    consumer.subscribe([topic])
    assert consumer.subscription() == {topic}
    (record,) = some(consumer)
    with pytest.raises(WrongArgument, match=r"AcknowledgeType\.ACCEPT"):
        consumer.acknowledge(record, 1)  # type: ignore[arg-type]
    with pytest.raises(IllegalState, match="was not acknowledged"):
        consumer.poll(0)
    consumer.acknowledge(record)
    consumer.commit_sync()
    with pytest.raises(IllegalState, match="cannot be acknowledged"):
        consumer.acknowledge(record)
    implicit = new_share()
    with pytest.raises(IllegalState, match=r"share\.acknowledgement\.mode=explicit"):
        implicit.acknowledge(record)
    consumer.unsubscribe()
    assert consumer.subscription() == frozenset()
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedClient):
        consumer.poll(0)


def test_wakeup_ends_a_poll_and_another_thread_is_refused(
    new_topic: NewTopic, new_share: NewShareConsumer
) -> None:
    consumer = new_share()
    consumer.subscribe([new_topic()])
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            consumer.poll(PATIENCE_S)
        except Wakeup as error:
            raised.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    eventually(lambda: bool(consumer._owner), "the thread is in poll")
    with pytest.raises(ConcurrentUse):
        consumer.poll(0)
    consumer.wakeup()
    thread.join(PATIENCE_S)
    assert len(raised) == 1


def test_a_lock_that_runs_out_delivers_again_and_fails_the_acknowledgement(kafka: Kafka) -> None:
    """In the time of the broker, which passes when the test says so."""
    kafka.create_topic("mails")
    kafka.produce("mails", ["one"])
    settings = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": "g",
        "share_acknowledgement_mode": "explicit",
    }
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.alter_group_configs({"g": {"share.auto.offset.reset": "earliest"}})
    with ShareConsumer(**settings) as slow, ShareConsumer(**settings) as other:  # type: ignore[arg-type]
        slow.subscribe(["mails"])
        (record,) = some(slow)
        assert slow.acquisition_lock_timeout_ms() == 30_000
        kafka.advance(30_000)
        other.subscribe(["mails"])
        (again,) = some(other)
        assert (again.offset, again.delivery_count) == (0, 2)
        slow.acknowledge(record)
        (error,) = slow.commit_sync().values()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.INVALID_RECORD_STATE
        assert "their locks ran out" in str(error)
        other.acknowledge(again)
        assert other.commit_sync() == {TopicPartition("mails", 0): None}


# --- asyncio ---------------------------------------------------------------------------------------------


def test_the_share_consumer_of_asyncio(
    bootstrap_servers: str, share_group: str, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 4))
    told: list[object] = []

    async def callback(offsets: object, error: object) -> None:
        await asyncio.sleep(0)
        told.append((offsets, error))

    async def main() -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "group.id": share_group}
        async with AsyncShareConsumer(settings, share_acknowledgement_mode="explicit") as consumer:
            consumer.set_acknowledgement_commit_callback(callback)
            await consumer.subscribe([topic])
            async for record in consumer:
                consumer.acknowledge(record, RELEASE if record.offset == 1 else ACCEPT)
                if record.offset == 3:
                    break
            assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}
            assert told == [({TopicPartition(topic, 0): frozenset({0, 1, 2, 3})}, None)]
            async for record in consumer:
                assert (record.offset, record.delivery_count) == (1, 2)
                consumer.acknowledge(record)
                break
            await consumer.commit_async()
            assert consumer.metrics().value("acknowledgements-send-total") == 5

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S * 2))
