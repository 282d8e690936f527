"""The same faults under three client libraries: each recovers, or says what the broker said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from kohort.testing import Kafka

# --- confluent-kafka -----------------------------------------------------------------------------------


def test_confluent_finds_its_coordinator_again(kafka: Kafka) -> None:
    kafka.produce("orders", ["one"])
    lost = kafka.fail("JoinGroup", with_error="NOT_COORDINATOR", group="g")
    cut = kafka.disconnect("SyncGroup", group="g")
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(60).value() == b"one"
    assert (lost.hits, cut.hits) == (1, 1)
    consumer.close()


def test_confluent_sends_again_what_was_refused(kafka: Kafka) -> None:
    refused = kafka.fail("Produce", with_error="NOT_LEADER_OR_FOLLOWER", times=2, topic="orders")
    producer: Any = Producer({"bootstrap.servers": kafka.bootstrap_servers, "retry.backoff.ms": 10})
    producer.produce("orders", "one")
    assert producer.flush(60) == 0
    assert refused.hits == 2
    assert [record.value for record in kafka.consume_all("orders")] == [b"one"]


def test_confluent_reads_on_after_failed_fetches(kafka: Kafka) -> None:
    kafka.produce("orders", ["one"])
    refused = kafka.fail("Fetch", with_error="NOT_LEADER_OR_FOLLOWER", times=2, topic="orders")
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 10,
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(60).value() == b"one"
    assert refused.hits == 2
    consumer.close()


# --- aiokafka ------------------------------------------------------------------------------------------


@pytest.fixture
async def aio_consumer(kafka: Kafka) -> AsyncIterator[AIOKafkaConsumer]:
    kafka.produce("orders", ["one"])
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=50,
        retry_backoff_ms=10,
    )
    await consumer.start()
    yield consumer
    await consumer.stop()


async def test_aiokafka_joins_in_the_end(kafka: Kafka, aio_consumer: AIOKafkaConsumer) -> None:
    refused = kafka.fail("JoinGroup", with_error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
    cut = kafka.disconnect("SyncGroup", after_handling=True)
    aio_consumer.subscribe(["orders"])
    assert (await aio_consumer.getone()).value == b"one"
    await kafka.group("g").wait_stable_async(members=1)
    assert (refused.hits, cut.hits) == (2, 1)


async def test_aiokafka_comes_back_when_its_session_expired(
    kafka: Kafka, aio_consumer: AIOKafkaConsumer
) -> None:
    aio_consumer.subscribe(["orders"])
    assert (await aio_consumer.getone()).value == b"one"
    (before,) = kafka.group("g").members
    kafka.advance(10_001)  # its session.timeout.ms is 10 s
    assert kafka.group("g").members == []
    await kafka.group("g").wait_stable_async(members=1)
    assert kafka.group("g").members[0].id != before.id


async def test_aiokafka_rejoins_when_asked_to(kafka: Kafka, aio_consumer: AIOKafkaConsumer) -> None:
    aio_consumer.subscribe(["orders"])
    await aio_consumer.getone()
    kafka.rebalance("g")
    await kafka.group("g").wait_stable_async(members=1)
    assert kafka.group("g").generation == 2


async def test_aiokafka_sends_again_what_was_refused(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    refused = kafka.fail("Produce", with_error="NOT_LEADER_OR_FOLLOWER", times=2)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, retry_backoff_ms=10)
    async with producer:
        sent = await producer.send_and_wait("orders", b"one")
    assert (sent.offset, refused.hits) == (0, 2)


# --- kafka-python --------------------------------------------------------------------------------------


@pytest.fixture
def kafka_python(kafka: Kafka) -> Iterator[KafkaConsumer]:
    kafka.produce("orders", ["one"])
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=50,
        retry_backoff_ms=10,
    )
    yield consumer
    consumer.close()


def test_kafka_python_joins_in_the_end(kafka: Kafka, kafka_python: KafkaConsumer) -> None:
    refused = kafka.fail("JoinGroup", with_error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
    kafka_python.subscribe(["orders"])
    assert next(kafka_python).value == b"one"
    assert refused.hits == 2


def test_kafka_python_asks_again_for_its_offsets(kafka: Kafka, kafka_python: KafkaConsumer) -> None:
    refused = kafka.fail("OffsetFetch", with_error="COORDINATOR_LOAD_IN_PROGRESS", times=2, group="g")
    listed = kafka.fail("ListOffsets", with_error="NOT_LEADER_OR_FOLLOWER", times=1, topic="orders")
    kafka_python.subscribe(["orders"])
    assert next(kafka_python).value == b"one"
    assert (refused.hits, listed.hits) == (2, 1)


def test_kafka_python_waits_for_a_topic_without_a_leader(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    refused = kafka.fail("Metadata", with_error="LEADER_NOT_AVAILABLE", times=2, topic="orders")
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, retry_backoff_ms=10)
    assert producer.send("orders", b"one").get(60).offset == 0
    producer.close()
    assert refused.hits == 2


def test_kafka_python_finds_the_broker_again(kafka: Kafka, kafka_python: KafkaConsumer) -> None:
    kafka_python.subscribe(["orders"])
    assert next(kafka_python).value == b"one"
    kafka.restart()
    kafka.produce("orders", ["two"])
    assert next(kafka_python).value == b"two"
