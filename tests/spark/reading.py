"""What tests of the source without a Spark share: a topic with records, options, and the ways in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort import Producer, TopicPartition
from kohort.spark.driver.cluster import Cluster, settings_without_group
from kohort.spark.driver.planning import OffsetRange
from kohort.spark.executor.fetch import read_range
from kohort.spark.options import SourceOptions, read_source_options
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
    cluster = Cluster(settings_without_group(options.kafka), options)
    try:
        leader = cluster.partitions(options.strategy)[wanted.partition]
    finally:
        cluster.close()
    return [row for batch in read_range(wanted, leader, options, names) for row in batch.to_pylist()]


def range_of(topic: str, start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), start, end)
