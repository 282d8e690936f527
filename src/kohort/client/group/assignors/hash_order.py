"""Orders members and partitions as Java's hash maps do, so that ties are decided as in Kafka's assignors.

Kafka's sticky assignors look at members in the order of a HashMap and pick the first of a HashSet. Where several
divisions are equally good, that order decides. With the same order a leader of ours and a Java leader of the same
group decide alike, and leadership may pass between them without moving a partition.

In Java, members that share a bucket are in the order in which they came from the coordinator; here they are sorted,
so that the result does not depend on it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

from kohort.client.types import TopicPartition

SMALLEST_TABLE = 16


@lru_cache(maxsize=4096)
def string_hash(text: str) -> int:
    """String.hashCode, as an unsigned number."""
    raw = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        total = (31 * total + unit) & 0xFFFFFFFF
    return total


def partition_hash(partition: TopicPartition) -> int:
    """TopicPartition.hashCode, as an unsigned number."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & 0xFFFFFFFF


def table_size(entries: int) -> int:
    """The buckets of a map that grew to this many entries: it doubles when it is three quarters full."""
    size = SMALLEST_TABLE
    while 4 * entries > 3 * size:
        size *= 2
    return size


def bucket(hashed: int, table: int) -> int:
    return (hashed ^ (hashed >> 16)) & (table - 1)


def in_hash_order(names: Iterable[str]) -> list[str]:
    """The names in the order of a HashMap that has exactly these keys."""
    ordered = sorted(names)
    table = table_size(len(ordered))
    return sorted(ordered, key=lambda name: bucket(string_hash(name), table))


class HashedPartitions:
    """A HashSet of partitions with what `first` needs. Its table grows and never shrinks."""

    __slots__ = ("_largest", "_partitions")

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, None] = {}
        self._largest = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        self._partitions[partition] = None
        self._largest = max(self._largest, len(self._partitions))

    def remove(self, partition: TopicPartition) -> None:
        del self._partitions[partition]

    def first(self) -> TopicPartition:
        table = table_size(self._largest)
        return min(self._partitions, key=lambda partition: bucket(partition_hash(partition), table))
