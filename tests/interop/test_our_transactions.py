"""Our producers with transactions against Apache Kafka, by both protocols, also while it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import outside, targets
from confluent_kafka import Consumer as ConfluentConsumer

from kohort import Admin, AsyncProducer, Consumer, GroupMetadata, Producer, ProducerFenced, TopicPartition
from tests.chaos.test_kill_copiers import copy_through_kills

pytestmark = pytest.mark.interop
PATIENCE_S = 60.0


class Kafka:
    """An Apache Kafka that can be killed; `level` is the transaction.version that it has finalized."""

    def __init__(self, directory: Path, level: int) -> None:
        self._directory = directory
        self._target = targets.apache_kafka(directory)
        if level != 2:
            self._finalize(level)

    def _finalize(self, level: int) -> None:
        command = outside.java(
            "org.apache.kafka.tools.FeatureCommand",
            *("--bootstrap-server", self.bootstrap_servers),
            *("downgrade", "--feature", f"transaction.version={level}"),
        )
        deadline = time.monotonic() + PATIENCE_S
        while (
            done := subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        ).returncode:
            assert time.monotonic() < deadline, done.stdout + done.stderr

    @property
    def bootstrap_servers(self) -> str:
        return self._target.address

    def kill(self) -> None:
        self._target.kill()

    def restart(self) -> None:
        self._target = targets.apache_kafka(self._directory, timeout_s=240)


@pytest.fixture(scope="module", params=[1, 2], ids=["transaction.version 1", "transaction.version 2"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    started = Kafka(tmp_path_factory.mktemp("kafka") / "node", request.param)
    yield started
    started.kill()


@pytest.fixture
def topic(kafka: Kafka, request: pytest.FixtureRequest) -> str:
    name: str = request.node.originalname
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
    return name


def transactional(kafka: Kafka, name: str) -> Producer:
    producer: Producer = Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name)
    producer.init_transactions(PATIENCE_S)
    return producer


def seen_by_librdkafka(kafka: Kafka, topic: str, count: int) -> list[bytes | None]:
    reader = ConfluentConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"readers of {topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe([topic])
    seen: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < count and time.monotonic() < deadline:
        seen += [message.value() for message in reader.consume(count, 1.0) if message.error() is None]
    seen += [message.value() for message in reader.consume(1, 1.0) if message.error() is None]
    reader.close()
    return seen


def test_commits_aborts_and_offsets(kafka: Kafka, topic: str) -> None:
    with transactional(kafka, topic) as producer:
        for number in range(12):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            offsets = {TopicPartition(topic, 0): number}
            producer.send_offsets_to_transaction(offsets, GroupMetadata(f"group of {topic}"))
            if number % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    committed = [b"%d" % number for number in range(12) if number % 3]
    assert seen_by_librdkafka(kafka, topic, len(committed)) == committed
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as ours:
        ours.assign((topic, 0))
        seen: list[bytes | None] = []
        while len(seen) < len(committed):
            seen += [record.value for records in ours.poll(PATIENCE_S).values() for record in records]
        assert seen == committed
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        assert admin.group_offsets(f"group of {topic}")[topic, 0].offset == 11


def test_a_second_producer_fences_the_first(kafka: Kafka, topic: str) -> None:
    first = transactional(kafka, topic)
    first.begin_transaction()
    first.send(topic, b"lost").result(PATIENCE_S)
    second = transactional(kafka, topic)
    with pytest.raises(ProducerFenced):
        first.commit_transaction()
    first.close()
    with second.transaction():
        second.send(topic, b"kept")
    second.close()
    assert seen_by_librdkafka(kafka, topic, 1) == [b"kept"]


def test_an_error_in_the_block_aborts_and_the_producer_goes_on(kafka: Kafka, topic: str) -> None:
    async def run() -> None:
        async with AsyncProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic
        ) as producer:
            await producer.init_transactions(PATIENCE_S)
            with contextlib.suppress(RuntimeError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    raise RuntimeError
            async with producer.transaction():
                await producer.send(topic, b"committed")

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert seen_by_librdkafka(kafka, topic, 1) == [b"committed"]


@pytest.mark.timeout(600)
def test_copies_are_exact_while_kafka_and_copiers_are_killed(kafka: Kafka, tmp_path: Path) -> None:
    """The last test of this file: it leaves a Kafka that was killed."""
    copy_through_kills(kafka, tmp_path, ("ours", "ours_async"), cycles=3, seed=7)
