"""Kafka's own Java client (4.3.1, all defaults: idempotent, newest versions, topic ids) on a broker process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.targets import Target

from .conftest import Run

pytestmark = pytest.mark.interop
Steps = dict[str, dict[str, Any]]

ROUND_TRIP = {
    "acknowledged in order": True,
    "after the last": None,
    "as sent": 3000,
    "beginnings": [0],
    "by time": "501@1503",
    "ends": [1000],
    "first after seek": 567,
    "position": 1000,
    "read": 3000,
}
DATA: dict[str, Any] = {
    **dict.fromkeys(("none", "gzip", "snappy", "lz4", "zstd"), ROUND_TRIP),
    "long poll": {"got": 1, "soon": True},
    "acks": {"0": -1, "1": 1, "all": 2},
    "too large": "RecordTooLargeException",
}
ADMIN: dict[str, Any] = {
    "createTopics": "2 1 86400000000 true",
    "create again": "TopicExistsException",
    "create bad name": "InvalidTopicException",
    "create bad config": "InvalidConfigurationException",
    "create too many replicas": "InvalidReplicationFactorException",
    "validateOnly": False,
    "createPartitions": "5 false 1",
    "createPartitions fewer": "InvalidPartitionsException",
    "describe unknown": "UnknownTopicOrPartitionException",
    "describeConfigs": "86400000000 DYNAMIC_TOPIC_CONFIG",
    "describeConfigs default": "delete DEFAULT_CONFIG",
    "alter set": "123456 DYNAMIC_TOPIC_CONFIG",
    "alter append": "delete,compact DYNAMIC_TOPIC_CONFIG",
    "alter subtract": "delete DYNAMIC_TOPIC_CONFIG",
    "alter delete": "1048588 DEFAULT_CONFIG",
    "alter wrong value": "InvalidConfigurationException",
    "alter unknown name": "InvalidConfigurationException",
    "broker configs": "true 168",
    "listConfigResources": ["BROKER", "TOPIC"],
    "listOffsets earliest": "0@-1",
    "listOffsets latest": "30@-1",
    "listOffsets max time": "29@29",
    "listOffsets by time": "12@12",
    "listOffsets after the last": "-1@-1",
    "describeProducers": "1 29 true",
    "deleteRecords": "10 10",
    "deleteRecords beyond": "OffsetOutOfRangeException",
    "read before the start": 10,
    "describeCluster": "1 true true",
    "describeLogDirs": True,
    "electLeaders": "adm-0 ElectionNotNeededException",
    "listPartitionReassignments": 0,
    "deleteTopics": False,
    "made again": 0,
    "delete unknown": "UnknownTopicOrPartitionException",
}


def steps(java: Run, broker: Target, which: str) -> Steps:
    said = java("Client", broker.address, which, timeout_s=150)
    return {line["step"]: line for line in map(json.loads, said.splitlines())}


@pytest.fixture(scope="module")
def data(java: Run, broker: Target) -> Steps:
    return steps(java, broker, "data")


@pytest.fixture(scope="module")
def admin(java: Run, broker: Target) -> Steps:
    return steps(java, broker, "admin")


@pytest.mark.parametrize("step", DATA)
def test_produce_and_read(data: Steps, step: str) -> None:
    assert outcome(data[step]) == DATA[step], data[step]


@pytest.mark.parametrize("step", ADMIN)
def test_admin(admin: Steps, step: str) -> None:
    assert outcome(admin[step]) == ADMIN[step], admin[step]


def outcome(step: dict[str, Any]) -> Any:
    """The result, or the name of the error that the client raised."""
    return step["error"] if "error" in step else step["result"]
