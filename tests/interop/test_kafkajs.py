"""kafkajs (npm) on a broker process; what it wrote is read back with librdkafka."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.targets import Target
from confluent_kafka import Consumer, TopicPartition

from .conftest import Run

pytestmark = pytest.mark.interop
T0 = 1_750_000_000_000
STEPS: dict[str, Any] = {
    "createTopics": True,
    "createTopics again": False,
    **dict.fromkeys(("none", "gzip", "snappy"), "200"),
    "listTopics": ["js-gzip", "js-none", "js-snappy"],
    "metadata": 1,
    "createPartitions": 3,
    "offsets": "0-300",
    "offsets by time": "42",
    "configs": "864000000",
    "deleteRecords": "50",
    "describeCluster": 1,
    "deleteTopics": False,
}


@pytest.fixture(scope="module")
def steps(kafkajs: Run, broker: Target) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, kafkajs(broker.address, "data", timeout_s=90).splitlines())
    return {line["step"]: line for line in lines}


@pytest.mark.parametrize("step", STEPS)
def test_step(steps: dict[str, dict[str, Any]], step: str) -> None:
    assert steps[step].get("result", steps[step].get("error")) == STEPS[step], steps[step]


@pytest.mark.parametrize(("codec", "first"), [("none", 50), ("gzip", 0)])
def test_what_it_wrote_is_there(
    steps: dict[str, dict[str, Any]], broker: Target, codec: str, first: int
) -> None:
    assert "result" in steps[codec]
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(f"js-{codec}", 0, first)])
    got = consumer.consume(300 - first, timeout=20)
    consumer.close()
    assert [message.offset() for message in got] == list(range(first, 300))
    for message in got:
        i = (message.offset() or 0) % 100
        assert message.key() == (f"key-{i}".encode() if i % 7 else None)
        assert message.value() == (f"value-{i}".encode() if i % 11 else None)
        assert message.timestamp()[1] == T0 + i
        assert message.headers() == [("i", str(i).encode())]
