"""Kohort: Kafka's consumer-group system in Python.

    from kohort import Consumer, Producer, Admin

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        producer.send("orders", value=b"one", key=b"k")

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record)

Consumer, Producer and Admin block; AsyncConsumer and AsyncProducer are for asyncio. Everything else here is what they
take, give or raise. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kohort.client.admin import Admin as Admin
    from kohort.client.assignors import Assignment as Assignment
    from kohort.client.assignors import Assignor as Assignor
    from kohort.client.assignors import CooperativeStickyAssignor as CooperativeStickyAssignor
    from kohort.client.assignors import RangeAssignor as RangeAssignor
    from kohort.client.assignors import RebalanceProtocol as RebalanceProtocol
    from kohort.client.assignors import RoundRobinAssignor as RoundRobinAssignor
    from kohort.client.assignors import StickyAssignor as StickyAssignor
    from kohort.client.async_consumer import AsyncConsumer as AsyncConsumer
    from kohort.client.async_producer import AsyncProducer as AsyncProducer
    from kohort.client.consumer import Consumer as Consumer
    from kohort.client.producer import Producer as Producer
    from kohort.client.records import Record as Record
    from kohort.client.records import Records as Records
    from kohort.client.types import GroupMetadata as GroupMetadata
    from kohort.client.types import OffsetAndMetadata as OffsetAndMetadata
    from kohort.client.types import OffsetAndTimestamp as OffsetAndTimestamp
    from kohort.client.types import RecordMetadata as RecordMetadata
    from kohort.client.types import TopicPartition as TopicPartition

_HOME = {
    "Consumer": "kohort.client.consumer",
    "AsyncConsumer": "kohort.client.async_consumer",
    "Producer": "kohort.client.producer",
    "AsyncProducer": "kohort.client.async_producer",
    "Admin": "kohort.client.admin",
    "Record": "kohort.client.records",
    "Records": "kohort.client.records",
    **dict.fromkeys(
        ("TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp", "GroupMetadata", "RecordMetadata"),
        "kohort.client.types",
    ),
    **dict.fromkeys(
        (
            "Assignor", "Assignment", "RebalanceProtocol", "RangeAssignor", "RoundRobinAssignor", "StickyAssignor",
            "CooperativeStickyAssignor",
        ),
        "kohort.client.assignors",
    ),
    **dict.fromkeys(
        (
            "KohortError", "KafkaError", "CommitFailed", "RebalanceInProgress", "FencedInstanceId", "AuthorizationFailed",
            "OffsetOutOfRange", "NoOffsetForPartition", "PartlyFailed", "TimedOut", "Wakeup", "CorruptRecord", "SerializationFailed",
            "DeserializationFailed", "ConcurrentUse", "ClosedClient", "AuthenticationFailed", "IllegalState",
        ),
        "kohort.client.errors",
    ),
    **dict.fromkeys(
        (
            "NewTopic", "TopicDescription", "PartitionDescription", "ConfigEntry", "GroupListing", "GroupDescription",
            "MemberDescription", "ClusterDescription",
        ),
        "kohort.client.admin_types",
    ),
    "ErrorCode": "kohort.wire.errors",
}  # fmt: skip

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kohort' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
