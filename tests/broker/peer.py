"""What broker tests send: short ways to common requests, over our own blocking connection."""

from __future__ import annotations

import time
from typing import Any

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records.batch import encode_batch, iter_batches, iter_records
from kohort.wire.records.payload import BatchRecord

PATIENCE_S = 120.0  # for what never comes: a machine may be slow
LONG_POLL_MS = 600_000  # for a fetch that something is to wake


def records_of(
    *values: bytes | None, key: bytes | None = b"k", timestamp: int | None = None
) -> list[BatchRecord]:
    now_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
    return [BatchRecord(i, now_ms, key, value, []) for i, value in enumerate(values)]


def batch_of(
    *values: bytes | None, key: bytes | None = b"k", timestamp: int | None = None, **more: Any
) -> bytes:
    return bytes(encode_batch(records_of(*values, key=key, timestamp=timestamp), **more))


def create_topic(broker: BlockingConnection, name: str, partitions: int = 1, **configs: object) -> Any:
    """Creates a topic; settings as keywords (`retention_ms=1`). Returns its result."""
    settings = [CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in configs.items()]
    topic = CreatableTopic(name, num_partitions=partitions, replication_factor=1, configs=settings)
    return broker.call(CreateTopicsRequest([topic], 10_000)).topics[0]


def produce_request(topic: str, batch: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
    return ProduceRequest(None, acks, 10_000, [data])


def produce(
    broker: BlockingConnection, topic: str, batch: bytes | None, partition: int = 0, version: int = 9
) -> Any:
    """Produces with acks=all; returns the partition's outcome."""
    answer = broker.call(produce_request(topic, batch, partition), version=version)
    return answer.responses[0].partition_responses[0]


def fetch_request(topic: str, offset: int, partition: int = 0, **more: Any) -> FetchRequest:
    part = FetchPartition(
        partition, fetch_offset=offset, partition_max_bytes=more.pop("partition_max_bytes", 1 << 20)
    )
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26, "session_epoch": -1} | more
    return FetchRequest(topics=[FetchTopic(topic, partitions=[part])], **options)


def fetch(
    broker: BlockingConnection,
    topic: str,
    offset: int = 0,
    partition: int = 0,
    version: int = 11,
    **more: Any,
) -> Any:
    """Fetches one partition; returns its data."""
    return (
        broker.call(fetch_request(topic, offset, partition, **more), version=version)
        .responses[0]
        .partitions[0]
    )


def values_in(data: Any) -> list[bytes | None]:
    """The values of all whole batches in a fetched partition."""
    view = memoryview(data.records or b"")
    return [
        record.value
        for position, header in iter_batches(view)
        for record in iter_records(view[position : position + header.size])
    ]
