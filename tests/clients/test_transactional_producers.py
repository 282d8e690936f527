"""Transactional producers of other clients: confluent-kafka, aiokafka, kafka-python."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka
import kafka as kafka_python
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonTopicPartition

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.testing import Kafka
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.peer import PATIENCE_S, create_topic
from tests.broker.transactional import committed, offsets_of, state_of, until_stable

SILENT = {"log_level": 0}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(None, group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def client(address: str) -> Iterator[BlockingConnection]:
    with BlockingConnection(address) as connection:
        yield connection


@pytest.fixture
def topic(client: BlockingConnection, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    assert create_topic(client, name).error_code == 0
    return name


def confluent(address: str, transactional_id: str, **more: object) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": transactional_id, **SILENT, **more}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def seen(client: BlockingConnection, topic: str) -> list[bytes | None]:
    until_stable(client, topic)
    return committed(client, topic)


def test_confluent_commits_and_aborts(address, client, topic):
    producer = confluent(address, topic)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    assert seen(client, topic) == [b"0", b"2", b"4"]


def test_confluent_consumes_transforms_and_produces(address, client, topic):
    source = topic + "-source"
    create_topic(client, source)
    loader = confluent(address, source)
    loader.begin_transaction()
    for number in range(20):
        loader.produce(source, b"%d" % number)
    loader.commit_transaction(PATIENCE_S)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **SILENT,
        }
    )
    consumer.subscribe([source])
    producer = confluent(address, topic)
    done = rounds = 0
    while done < 20 and rounds < 100:
        got = [m for m in consumer.consume(7, 0.5) if m.error() is None]
        rounds += 1
        producer.begin_transaction()
        for message in got:
            producer.produce(topic, b"<%s>" % message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
        if rounds == 2:  # goes back, as an application does
            producer.abort_transaction(PATIENCE_S)
            for place in consumer.committed(consumer.assignment(), PATIENCE_S):
                consumer.seek(place)
            continue
        producer.commit_transaction(PATIENCE_S)
        done += len(got)
    consumer.close()
    assert seen(client, topic) == [b"<%d>" % number for number in range(20)]
    assert offsets_of(client, topic, source, 0, stable=True) == [21]  # and the marker


def test_confluent_is_fenced_by_a_second_producer(address, client, topic):
    first = confluent(address, topic)
    first.begin_transaction()
    first.produce(topic, b"lost")
    assert first.flush(PATIENCE_S) == 0
    second = confluent(address, topic)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        first.commit_transaction(PATIENCE_S)
    error = raised.value.args[0]
    assert (error.code(), error.fatal()) == (confluent_kafka.KafkaError._FENCED, True)
    second.begin_transaction()
    second.produce(topic, b"kept")
    second.commit_transaction(PATIENCE_S)
    assert seen(client, topic) == [b"kept"]


def test_confluent_after_a_timeout_must_begin_again(kafka: Kafka) -> None:
    with BlockingConnection(kafka.bootstrap_servers) as client:
        create_topic(client, "t")
        producer = confluent(kafka.bootstrap_servers, "a", **{"transaction.timeout.ms": 10_000})
        producer.begin_transaction()
        producer.produce("t", b"late")
        assert producer.flush(PATIENCE_S) == 0
        kafka.advance(25_000)
        assert state_of(client, "a").transaction_state == "CompleteAbort"
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            producer.commit_transaction(PATIENCE_S)
        assert raised.value.args[0].fatal()
        producer = confluent(kafka.bootstrap_servers, "a")
        producer.begin_transaction()
        producer.produce("t", b"in time")
        producer.commit_transaction(PATIENCE_S)
        assert seen(client, "t") == [b"in time"]


def test_aiokafka(address, client, topic):
    client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"one")
            await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 5}, topic)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"two")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"three")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"four")
        other = AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic)
        await other.start()
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        await other.stop()
        await producer.stop()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert seen(client, topic) == [b"one", b"three"]
    assert offsets_of(client, topic, topic, 0, stable=True) == [5]


def test_kafka_python(address, client, topic):
    client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
    producer = kafka_python.KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"one")
    offsets = {PythonTopicPartition(topic, 0): OffsetAndMetadata(5, "", -1)}
    producer.send_offsets_to_transaction(offsets, topic)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"two").get(PATIENCE_S)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send(topic, b"three")
    producer.commit_transaction()
    producer.close(PATIENCE_S)
    assert seen(client, topic) == [b"one", b"three"]
    assert offsets_of(client, topic, topic, 0, stable=True) == [5]
