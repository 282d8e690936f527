"""The values that calls of the client take and return: partitions, offsets, metadata of a group and of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

V = TypeVar("V")


class TopicPartition(NamedTuple):
    """One partition of a topic: `TopicPartition("orders", 0)`; any `(topic, partition)` tuple equals it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# A mapping is not covariant in its keys: this accepts what a consumer returns as well as what a user writes.
ByPartition = Mapping[TopicPartition, V] | Mapping[tuple[str, int], V]

Partitions = tuple[str, int] | Iterable[tuple[str, int]]
"""How calls take partitions, any number of times: a partition, or a list (a set, a dict, a generator) of them."""


class OffsetAndMetadata(NamedTuple):
    """What is committed for a partition: the offset to go on from, a text of the user's, the leader epoch."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, its own timestamp, the leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class GroupMetadata(NamedTuple):
    """The identity of a consumer in its group, as `Consumer.group_metadata` returns it; generation -1: no member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class SubscriptionPattern(NamedTuple):
    """A pattern of topic names that the broker matches (RE2, whole names): with `group.protocol=consumer` only."""

    pattern: str


class RecordMetadata(NamedTuple):
    """Where a produced record was written; offset -1: the broker was not asked (`acks=0`)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key_size: int = -1
    value_size: int = -1
