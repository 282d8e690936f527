"""Clients and tools that need a group coordinator: the Java consumer, Kafka's tools and formatters, kafkajs."""

from __future__ import annotations

import json

import pytest
from benchmarks.targets import Target
from confluent_kafka import Consumer, Producer, TopicPartition

from .conftest import Run
from .test_java_tools import TOOLS, produced

pytestmark = pytest.mark.interop


def test_java_consumer_goes_on_where_its_group_left_off(java: Run, broker: Target) -> None:
    line = json.loads(java("Client", broker.address, "group", timeout_s=90))
    assert line.get("result") == {"first": 300, "second": 0}, line


def test_consumer_performance(java: Run, broker: Target) -> None:
    produced(java, broker.address, "perf-read", 20_000, 200)
    words = f"--bootstrap-server {broker.address} --topic perf-read --num-records 20000 --timeout 30000 --hide-header"
    figures = java(f"{TOOLS}ConsumerPerformance", *words.split(), timeout_s=90).splitlines()[-1].split(", ")
    assert int(figures[4]) >= 20_000, figures


def test_kafkajs_consumer(kafkajs: Run, broker: Target) -> None:
    line = json.loads(kafkajs(broker.address, "group", timeout_s=150).splitlines()[-1])
    assert line.get("result") == {"read": 100, "first": "0", "last": "99", "committed": "100"}, line


def committed(address: str, group_id: str, topic: str, offset: int) -> None:
    """A commit of one offset, by librdkafka."""
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"x")
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": group_id})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_kafkas_formatters_read_our_offsets_topic(java: Run, broker: Target) -> None:
    committed(broker.address, "formatted", "formatted-topic", 41)
    java("Client", broker.address, "group", timeout_s=90)
    words = (
        f"--bootstrap-server {broker.address} --topic __consumer_offsets --from-beginning --timeout-ms 8000"
    )
    offsets, groups = (
        java(
            f"{TOOLS}consumer.ConsoleConsumer",
            *words.split(),
            "--formatter",
            f"{TOOLS}consumer.{name}",
            timeout_s=60,
        )
        for name in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
    )
    assert '"group":"formatted","topic":"formatted-topic","partition":0' in offsets
    assert '"offset":41' in offsets
    assert '"protocolType":"consumer"' in groups


def test_kafka_consumer_groups_describes_and_resets(java: Run, broker: Target) -> None:
    committed(broker.address, "described", "described-topic", 1)
    tool = f"{TOOLS}consumer.group.ConsumerGroupCommand"
    words = f"--bootstrap-server {broker.address} --group described"
    described = java(tool, *words.split(), "--describe", timeout_s=60)
    row = next(line.split() for line in described.splitlines() if "described-topic" in line)
    assert row[:6] == ["described", "described-topic", "0", "1", "1", "0"]
    java(
        tool, *words.split(), *["--reset-offsets", "--to-earliest", "--all-topics", "--execute"], timeout_s=60
    )
    again = java(tool, *words.split(), "--describe", timeout_s=60)
    assert next(line.split() for line in again.splitlines() if "described-topic" in line)[3] == "0"
