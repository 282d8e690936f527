"""Reading with isolation levels: what the protocol answers, and what real clients get of real transactions."""

from __future__ import annotations

import asyncio
import threading

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from kohort import Consumer
from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kohort.wire.messages.fetch import AbortedTransaction
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records.batch import ControlKind, check_batch
from kohort.wire.records.columns import prefer
from tests.broker.peer import LONG_POLL_MS, PATIENCE_S, batch_of, create_topic, fetch, produce, values_in

COMMITTED, UNCOMMITTED = 1, 0


@pytest.fixture(scope="module", params=["memory", "disk"])
def broker(request, tmp_path_factory):
    directory = None if request.param == "memory" else tmp_path_factory.mktemp("data")
    with running(directory, durability=request.param) as started:
        yield started


@pytest.fixture
def client(broker):
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def topic(client, request):
    name = f"t{abs(hash(request.node.name))}"
    create_topic(client, name)
    return name


class Transactions:
    """Transactions of producers without a coordinator: their batches are verified, and their markers written, here."""

    def __init__(self, broker: running, topic: str) -> None:
        self._broker, self._topic = broker, topic

    def write(self, producer_id: int, *values: bytes, epoch: int = 0, sequence: int = 0) -> int:
        batch = bytearray(
            batch_of(
                *values,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

        async def append() -> int:
            partition = self._broker.server.broker.store.topics[self._topic].partitions[0]
            header = check_batch(batch)
            guard = partition.begin_verification(producer_id, epoch, sequence, adds=True, now_ms=0)
            assert partition.check(header, guard) is None
            return await _durable(partition, partition.append(memoryview(batch), header, 0), len(values))

        return self._broker.call(append(), PATIENCE_S)

    def end(self, producer_id: int, kind: ControlKind, epoch: int = 0) -> int:
        async def append() -> int:
            partition = self._broker.server.broker.store.topics[self._topic].partitions[0]
            offset = partition.append_marker(
                kind,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=5,
                transaction_version=1,
                now_ms=0,
            )
            return await _durable(partition, offset, 1)

        return self._broker.call(append(), PATIENCE_S)


async def _durable(partition, offset: int, count: int) -> int:
    done = asyncio.get_running_loop().create_future()
    partition.when_durable(offset + count, lambda error: done.set_result(error))
    assert await done is ErrorCode.NONE
    return offset


@pytest.fixture
def transactions(broker, topic):
    return Transactions(broker, topic)


def latest(client: BlockingConnection, topic: str, isolation_level: int, timestamp: int = -1) -> int:
    part = ListOffsetsPartition(0, timestamp=timestamp)
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsTopic(topic, [part])])
    return client.call(request, version=7).topics[0].partitions[0].offset


@pytest.mark.parametrize("version", [4, 5, 11, 12])
def test_the_answer_ends_at_the_last_stable_offset(client, topic, transactions, version):
    produce(client, topic, batch_of(b"before"))
    transactions.write(1, b"open-a", b"open-b")
    produce(client, topic, batch_of(b"behind"))
    transactions.write(2, b"aborted")
    marker = transactions.end(2, ControlKind.ABORT)
    assert marker == 5
    stable = fetch(client, topic, version=version, isolation_level=COMMITTED)
    assert values_in(stable) == [b"before"]
    assert (stable.high_watermark, stable.last_stable_offset) == (6, 1)
    assert stable.aborted_transactions == []
    at_end = fetch(client, topic, 1, version=version, isolation_level=COMMITTED)
    assert not len(at_end.records)
    everything = fetch(client, topic, version=version)
    assert len(values_in(everything)) == 6
    assert (everything.last_stable_offset, everything.aborted_transactions) == (1, None)
    transactions.end(1, ControlKind.COMMIT)
    answer = fetch(client, topic, version=version, isolation_level=COMMITTED)
    assert answer.last_stable_offset == answer.high_watermark == 7
    assert answer.aborted_transactions == [AbortedTransaction(2, 4)]
    assert fetch(client, topic, 6, version=version, isolation_level=COMMITTED).aborted_transactions == []


def test_list_offsets_of_readers_of_what_is_committed(client, topic, transactions):
    produce(client, topic, batch_of(b"before", timestamp=1_000))
    transactions.write(1, b"open")
    assert (latest(client, topic, UNCOMMITTED), latest(client, topic, COMMITTED)) == (2, 1)
    assert (latest(client, topic, UNCOMMITTED, 1_001), latest(client, topic, COMMITTED, 1_001)) == (1, -1)
    assert latest(client, topic, COMMITTED, 1_000) == 0
    assert (latest(client, topic, UNCOMMITTED, -3), latest(client, topic, COMMITTED, -3)) == (1, -1)
    transactions.end(1, ControlKind.ABORT)
    assert latest(client, topic, COMMITTED) == 3


def test_a_long_poll_for_what_is_committed_is_woken_by_the_marker_alone(broker, client, topic, transactions):
    transactions.write(1, b"x" * 1000)
    got = []

    def wait() -> None:
        with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as other:
            more = {"isolation_level": COMMITTED, "max_wait_ms": LONG_POLL_MS, "min_bytes": 500}
            got.append(fetch(other, topic, **more))

    waiting = threading.Thread(target=wait)
    waiting.start()
    transactions.write(1, b"y" * 1000, sequence=1)
    waiting.join(0.1)
    assert waiting.is_alive(), "what is not committed does not count for min_bytes"
    transactions.end(1, ControlKind.COMMIT)
    waiting.join(PATIENCE_S)
    assert values_in(got[0])[:2] == [b"x" * 1000, b"y" * 1000]


def test_describe_producers_shows_open_transactions(client, topic, transactions):
    transactions.write(1, b"open")
    transactions.write(2, b"ended")
    transactions.end(2, ControlKind.COMMIT)
    request = DescribeProducersRequest([TopicRequest(topic, [0])])
    found = client.call(request).topics[0].partitions[0].active_producers
    told = {p.producer_id: (p.current_txn_start_offset, p.coordinator_epoch) for p in found}
    assert told == {1: (0, -1), 2: (-1, 5)}


def test_what_a_client_may_not_produce(client, topic, transactions, written):
    """`written`: there is a coordinator, and it knows nothing of the transactional ids here."""

    def outcome(batch: bytes, transactional_id: str | None = None, version: int = 9) -> int:
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
        request = ProduceRequest(transactional_id, -1, 10_000, [data])
        return client.call(request, version=version).responses[0].partition_responses[0].error_code

    who = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    transactional = batch_of(b"v", transactional=True, **who)
    assert outcome(transactional) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert outcome(transactional, "nobody") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert outcome(transactional, "nobody", 12) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert outcome(batch_of(b"v", control=True, **who)) == ErrorCode.INVALID_RECORD
    assert outcome(batch_of(b"v", **{**who, "base_sequence": -1})) == ErrorCode.INVALID_RECORD
    transactions.write(9, b"open")
    assert outcome(batch_of(b"v", **{**who, "base_sequence": 1})) == ErrorCode.INVALID_TXN_STATE
    assert outcome(batch_of(b"v", transactional=True, **{**who, "base_sequence": 1}), "x") == ErrorCode.NONE
    two = [
        TopicProduceData(topic, partition_data=[PartitionProduceData(0, transactional)]),
        TopicProduceData(
            topic,
            partition_data=[
                PartitionProduceData(0, batch_of(b"v", transactional=True, **{**who, "producer_id": 8}))
            ],
        ),
    ]
    answer = client.call(ProduceRequest("x", -1, 10_000, two), version=9)
    codes = {part.error_code for each in answer.responses for part in each.partition_responses}
    assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


# --- real clients ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(broker):
    """A topic with transactions of confluent-kafka: committed, aborted, one more that is open; and plain records."""
    topic = "of-real-clients"
    with BlockingConnection(broker.bootstrap_servers) as connection:
        create_topic(connection, topic, segment_bytes=20_000)
    plain = ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers})
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transaction.timeout.ms": 60_000}
    producers = [ConfluentProducer({**settings, "transactional.id": f"p{i}"}) for i in range(2)]
    committed, everything = [], []
    for producer in producers:
        producer.init_transactions(PATIENCE_S)
    for number in range(8):
        producer = producers[number % 2]
        producer.begin_transaction()
        values = [b"%d-%d" % (number, i) + b"x" * 500 for i in range(10)]
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(PATIENCE_S)
        plain.produce(topic, b"plain-%d" % number, partition=0)
        plain.flush(PATIENCE_S)
        everything += [*values, b"plain-%d" % number]
        if number % 4 < 2:
            producer.abort_transaction(PATIENCE_S)
            committed.append(b"plain-%d" % number)
        else:
            producer.commit_transaction(PATIENCE_S)
            committed += [*values, b"plain-%d" % number]
    producers[0].begin_transaction()
    producers[0].produce(topic, b"open", partition=0)
    producers[0].flush(PATIENCE_S)
    plain.produce(topic, b"behind", partition=0)
    plain.flush(PATIENCE_S)
    everything += [b"open", b"behind"]
    yield topic, {"read_committed": committed, "read_uncommitted": everything}
    producers[0].abort_transaction(PATIENCE_S)


LEVELS = ["read_committed", "read_uncommitted"]


@pytest.mark.parametrize("level", LEVELS)
def test_confluent_kafka_reads_by_its_isolation_level(broker, written, level):
    topic, expected = written
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "c", "isolation.level": level}
    consumer = ConfluentConsumer({**settings, "enable.partition.eof": True})
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    got = []
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        got.append(message.value())
    consumer.close()
    assert got == expected[level]


@pytest.mark.parametrize("level", LEVELS)
def test_aiokafka_reads_by_its_isolation_level(broker, written, level):
    topic, expected = written

    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, isolation_level=level)
        await consumer.start()
        try:
            consumer.assign([AioPartition(topic, 0)])
            await consumer.seek_to_beginning()
            got: list[bytes] = []
            while len(got) < len(expected[level]):
                got.append((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value)
            more = await consumer.getmany(timeout_ms=50)
            return got + [message.value for messages in more.values() for message in messages]
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == expected[level]


@pytest.mark.parametrize("fetch_max_bytes", [2_000, 50_000_000])
@pytest.mark.parametrize("level", LEVELS)
def test_our_consumer_reads_by_its_isolation_level(broker, written, level, fetch_max_bytes):
    topic, expected = written
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level=level,
        max_partition_fetch_bytes=fetch_max_bytes,
    ) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        got = []
        while len(got) < len(expected[level]):
            got += [record.value for records in consumer.poll(PATIENCE_S).values() for record in records]
        assert not consumer.poll(0.05)
        assert consumer.end_offsets([(topic, 0)])[topic, 0] == consumer.position((topic, 0))
    assert got == expected[level]


@pytest.mark.parametrize("kernel", ["python", "numba"])
@pytest.mark.parametrize("level", LEVELS)
def test_our_consumer_reads_columns_by_its_isolation_level(broker, written, level, kernel):
    topic, expected = written
    prefer(kernel)
    try:
        with Consumer(bootstrap_servers=broker.bootstrap_servers, isolation_level=level) as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek_to_beginning()
            got = []
            while len(got) < len(expected[level]):
                got += consumer.poll_arrow(PATIENCE_S, columns=("value",)).column("value").to_pylist()
    finally:
        prefer("")
    assert got == expected[level]
