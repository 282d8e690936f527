"""What tests of the source without a Spark share: a topic with records, options, and the ways in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort import Producer, TopicPartition
from kohort.client.embedding import ClusterSession, PartitionLeader
from kohort.spark.driver.offset_resolver import OffsetResolver
from kohort.spark.executor.range_reader import read_range
from kohort.spark.options import FIXED_SETTINGS, SourceOptions, read_source_options, settings_without_group
from kohort.spark.ranges import OffsetRange
from kohort.spark.source import TYPES

PLAIN = tuple(name for name in TYPES if name != "headers")


def options_for(bootstrap: str, topic: str, streaming: bool = True, **given: Any) -> SourceOptions:
    texts = {"kafka.bootstrap.servers": bootstrap, "fetchOffset.retryIntervalMs": "20"}
    if "subscribePattern" not in given and "assign" not in given:
        texts["subscribe"] = topic
    texts |= {name.replace("__", "."): str(value) for name, value in given.items()}
    return read_source_options(texts, streaming=streaming)


def fill(bootstrap: str, topic: str, values: Iterable[Any], partition: int = 0, **settings: Any) -> None:
    """Values of bytes, or numbers that are written as text; None is a null."""
    with Producer(bootstrap_servers=bootstrap, **settings) as producer:
        for value in values:
            producer.send(
                topic, value=b"%d" % value if isinstance(value, int) else value, partition=partition
            )
        producer.flush()


def rows_of(
    options: SourceOptions, wanted: OffsetRange, names: tuple[str, ...] = PLAIN
) -> list[dict[str, Any]]:
    """What an executor gives for a range."""
    leader = leader_of(options, wanted.partition)
    return [row for batch in read_range(wanted, leader, options, names) for row in batch.to_pylist()]


def leader_of(options: SourceOptions, partition: TopicPartition) -> PartitionLeader:
    """What the driver tells an executor of a partition."""
    with ClusterSession({**settings_without_group(options.kafka), **FIXED_SETTINGS}) as session:
        return OffsetResolver(session, options).partitions()[partition]


def range_of(topic: str, start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), start, end)
