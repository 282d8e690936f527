"""Transactions of our producers at a real broker: commit, abort, fencing, offsets, and readers of what is committed."""

from __future__ import annotations

import time

import confluent_kafka
import pyarrow as pa
import pytest

from kohort import AsyncProducer, Consumer, GroupMetadata, Producer, TopicPartition
from kohort.client.errors import (
    FatalProducerError,
    IllegalState,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
    WrongArgument,
)
from kohort.settings import SettingError
from kohort.wire.errors import KafkaError
from kohort.wire.records.arrow_encode import OutgoingLists
from kohort.wire.records.batch import iter_records, read_header
from kohort.wire.records.compression import Compression
from kohort.wire.records.kernels_encode import outgoing
from tests.clients.process import eventually

PATIENCE_S = 60.0


def transactional(bootstrap_servers: str, transactional_id: str, **settings: object) -> Producer:
    """A producer that has initialized its transactions."""
    producer: Producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions()
    return producer


def everything(bootstrap_servers: str, topic: str, level: str = "read_committed") -> list[bytes | None]:
    """The values of all records that there are, in the order of partitions and offsets."""
    with Consumer(
        bootstrap_servers=bootstrap_servers, isolation_level=level, auto_offset_reset="earliest"
    ) as consumer:
        partitions = consumer.partitions_for(topic)
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found: dict[TopicPartition, list[bytes | None]] = {p: [] for p in partitions}
        deadline = time.monotonic() + PATIENCE_S
        while any(consumer.position(p) < ends[p] for p in partitions):
            assert time.monotonic() < deadline, "the end is not reached"
            for partition, records in consumer.poll(1.0).items():
                found[partition] += [record.value for record in records]
    return [value for p in sorted(found) for value in found[p]]


def stable(bootstrap_servers: str, topic: str) -> list[bytes | None]:
    """The same once no transaction is open any more: markers are written after a commit is answered."""

    def is_stable() -> bool:
        ends = []
        for level in ("read_committed", "read_uncommitted"):
            with Consumer(bootstrap_servers=bootstrap_servers, isolation_level=level) as consumer:
                ends.append(consumer.end_offsets(consumer.partitions_for(topic)))
        return ends[0] == ends[1]

    eventually(is_stable, f"{topic} has no open transaction")
    return everything(bootstrap_servers, topic)


def test_a_transaction_is_seen_when_it_commits_and_not_when_it_aborts(bootstrap_servers, new_topic, new_name):
    topic = new_topic(partitions=2)
    with transactional(bootstrap_servers, new_name("id")) as producer:
        with producer.transaction():
            for partition in (0, 1):
                producer.send(topic, b"committed", partition=partition)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            assert producer.send(topic, b"aborted", partition=0).result(PATIENCE_S).offset // 0
        with producer.transaction():
            producer.send_arrow(topic, pa.record_batch({"value": [b"arrow", b"rows"], "partition": [0, 1]}))
    assert stable(bootstrap_servers, topic) == [b"committed", b"arrow", b"committed", b"rows"]
    assert b"aborted" in everything(bootstrap_servers, topic, "read_uncommitted")


def test_what_is_read_by_arrow_and_by_confluent_kafka_is_committed_too(
    bootstrap_servers, new_topic, new_name
):
    topic = new_topic()
    with transactional(bootstrap_servers, new_name("id"), **{"compression.type": "zstd"}) as producer:
        for number in range(6):
            producer.begin_transaction()
            producer.send_arrow(topic, pa.record_batch({"value": [b"%d" % number] * 3}))
            producer.flush()
            (producer.commit_transaction if number % 2 else producer.abort_transaction)()
    wanted = [b"%d" % number for number in (1, 3, 5) for _ in range(3)]
    assert stable(bootstrap_servers, topic) == wanted
    with Consumer(
        bootstrap_servers=bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign((topic, 0))
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < len(wanted) and time.monotonic() < deadline:
            batch = consumer.poll_arrow(1.0)
            values += batch.column("value").to_pylist() if batch is not None else []
    assert values == wanted
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": new_name("group"),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        other.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        seen = [m.value() for m in other.consume(len(wanted), PATIENCE_S) if m.error() is None]
        assert seen == wanted
    finally:
        other.close()


def test_a_second_producer_fences_the_first_and_aborts_what_it_left(bootstrap_servers, new_topic, new_name):
    topic, name = new_topic(), new_name("id")
    first = transactional(bootstrap_servers, name)
    first.begin_transaction()
    first.send(topic, b"left open").result(PATIENCE_S)
    with transactional(bootstrap_servers, name) as second:
        with pytest.raises((TransactionFailed, ProducerFenced)):
            first.commit_transaction()
        with second.transaction():
            second.send(topic, b"second")
        with pytest.raises(ProducerFenced, match="another producer has taken over") as fenced:
            first.abort_transaction()
        assert isinstance(fenced.value, FatalProducerError)
        assert "Close this producer" in fenced.value.advice
        for call in (first.begin_transaction, lambda: first.send(topic, b"no")):
            with pytest.raises(ProducerFenced):
                call()
    first.close()
    assert stable(bootstrap_servers, topic) == [b"second"]


def test_fenced_within_a_block_it_is_told_as_fatal(bootstrap_servers, new_topic, new_name):
    topic, name = new_topic(), new_name("id")
    first = transactional(bootstrap_servers, name)
    second = transactional(bootstrap_servers, name)
    with pytest.raises(ProducerFenced), first.transaction():
        first.send(topic, b"too late")
    first.close()
    second.close()


def test_records_fail_with_their_transaction(bootstrap_servers, new_topic, new_name):
    topic = new_topic(max_message_bytes=1000)
    with transactional(bootstrap_servers, new_name("id")) as producer:
        with pytest.raises(TransactionFailed) as failed, producer.transaction():
            refused = producer.send(topic, b"x" * 5000)
        assert "abort_transaction()" in failed.value.advice
        assert isinstance(refused.exception(PATIENCE_S), KafkaError)
        with producer.transaction():
            producer.send(topic, b"small")  # the same producer goes on
        producer.begin_transaction()
        dropped = producer.send(topic, b"never sent")
        producer.abort_transaction()
        assert dropped.exception(PATIENCE_S) is None or isinstance(dropped.exception(), TransactionAborted)
    assert stable(bootstrap_servers, topic) == [b"small"]


def test_close_aborts_an_open_transaction(bootstrap_servers, new_topic, new_name):
    topic = new_topic()
    producer = transactional(bootstrap_servers, new_name("id"))
    producer.begin_transaction()
    producer.send(topic, b"never committed").result(PATIENCE_S)
    producer.close()
    assert stable(bootstrap_servers, topic) == []  # it does not wait for transaction.timeout.ms


def test_offsets_are_committed_with_the_transaction(bootstrap_servers, new_topic, new_name, group):
    source, target = new_topic(), new_topic()
    place = TopicPartition(source, 0)
    with Producer(bootstrap_servers=bootstrap_servers) as plain:
        for number in range(4):
            plain.send(source, b"%d" % number)
    with (
        transactional(bootstrap_servers, new_name("id")) as producer,
        Consumer(
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):
        consumer.subscribe([source])
        eventually(lambda: bool(consumer.poll(1.0)), "the records come")
        for offset, ends in ((2, producer.abort_transaction), (3, producer.commit_transaction)):
            producer.begin_transaction()
            producer.send(target, b"up to %d" % offset)
            producer.send_offsets_to_transaction({place: offset}, consumer.group_metadata())
            ends()
            wanted = None if offset == 2 else 3
            eventually(
                lambda wanted=wanted: getattr(consumer.committed(place)[place], "offset", None) == wanted,
                f"{wanted} is committed",
            )
        producer.begin_transaction()
        stale = consumer.group_metadata()._replace(generation_id=77)
        with pytest.raises(TransactionFailed, match="the group moved on"):
            producer.send_offsets_to_transaction({place: 4}, stale)
        with pytest.raises(TransactionFailed, match="ILLEGAL_GENERATION"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({}, consumer.group_metadata())  # nothing to do
    assert stable(bootstrap_servers, target) == [b"up to 3"]


async def test_the_asyncio_producer_does_the_same(bootstrap_servers, new_topic, new_name, group):
    topic = new_topic()
    async with AsyncProducer(
        bootstrap_servers=bootstrap_servers, transactional_id=new_name("id")
    ) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"committed")
            await producer.send_offsets_to_transaction({(topic, 0): 1}, GroupMetadata(group))
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                assert (await producer.send_and_wait(topic, b"aborted")).offset // 0
        await producer.begin_transaction()
        with pytest.raises(IllegalState, match="open already"):
            await producer.begin_transaction()
        await producer.abort_transaction()
    assert stable(bootstrap_servers, topic) == [b"committed"]
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        found = consumer.committed((topic, 0))[TopicPartition(topic, 0)]
        assert found is not None
        assert found.offset == 1


def test_calls_out_of_turn_say_what_to_call(bootstrap_servers, new_name):
    with Producer(bootstrap_servers=bootstrap_servers) as plain:
        for call in (plain.init_transactions, plain.begin_transaction, plain.commit_transaction):
            with pytest.raises(IllegalState, match=r"set transactional\.id"):
                call()
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=new_name("id")) as producer:
        with pytest.raises(IllegalState, match=r"init_transactions\(\)"):
            producer.send("orders", b"too early")
        producer.init_transactions()
        with pytest.raises(IllegalState, match="is called once"):
            producer.init_transactions()
        with pytest.raises(IllegalState, match=r"begin_transaction\(\) first"):
            producer.send_arrow("orders", pa.record_batch({"value": [b"too early"]}))
        producer.begin_transaction()
        with pytest.raises(WrongArgument, match="group_metadata"):
            producer.send_offsets_to_transaction({("orders", 0): 1}, "group")  # type: ignore[arg-type]
        with pytest.raises(WrongArgument, match="needs a group"):
            producer.send_offsets_to_transaction({("orders", 0): 1}, GroupMetadata(""))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transactional.id": ""}, "must not be empty"),
        ({"enable.idempotence": "false"}, r"needs enable\.idempotence=true"),
        ({"acks": "1"}, r"needs enable\.idempotence=true"),
        ({"transaction.timeout.ms": "0"}, "transaction.timeout.ms"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "t", **settings})


@pytest.mark.parametrize("compression", ["NONE", "ZSTD"])
def test_both_ways_of_encoding_columns_mark_a_batch_as_transactional(compression: str) -> None:
    """The compiled way is taken only once it is loaded, so that which one runs is chance elsewhere."""
    keys, values = pa.array([b"k", None]), pa.array([b"a", b"b"])
    kinds = (OutgoingLists(keys.to_pylist(), values.to_pylist(), 7, None), outgoing(keys, values, 7, None))
    for transactional in (False, True):
        made = [
            bytes(kind.encode(Compression[compression], None, 5, 1, 0, transactional=transactional))
            for kind in kinds
        ]
        assert made[0] == made[1]
        assert read_header(made[0]).is_transactional is transactional
        assert [record.value for record in iter_records(made[0])] == [b"a", b"b"]
