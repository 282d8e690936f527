"""What users of the client hold in their hands: partitions, offsets, metadata of a group and of a written record."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import NamedTuple, TypeVar

V = TypeVar("V")


class TopicPartition(NamedTuple):
    """One partition of a topic: `TopicPartition("orders", 0)`; any `(topic, partition)` tuple equals it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# A mapping is not covariant in its keys: what a consumer returns must be accepted as well as what a user writes.
ByPartition = Mapping[TopicPartition, V] | Mapping[tuple[str, int], V]


def as_partition(given: object) -> TopicPartition:
    """A partition as users may write it: `("orders", 0)`. ValueError says what is right if it is not."""
    match given:
        case (str() as topic, int() as partition) if topic.strip() and partition >= 0:
            return TopicPartition(topic, partition)
    raise ValueError(f'a partition is a topic and a number, as in ("orders", 0), not {given!r}')


class OffsetAndMetadata(NamedTuple):
    """What is committed for a partition: the offset to go on from, a word of the user's, the leader epoch."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, its own timestamp, the leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


def as_offset(given: object) -> OffsetAndMetadata:
    """An offset as users may write it: 42, or OffsetAndMetadata(42, "checked"). ValueError if it is neither."""
    if isinstance(given, OffsetAndMetadata):
        return given
    try:
        if not isinstance(given, bool):
            return OffsetAndMetadata(index(given))  # type: ignore[arg-type]
    except TypeError:
        pass
    raise ValueError(f'an offset is a number, as in 42, or OffsetAndMetadata(42, "why"), not {given!r}')


class GroupMetadata(NamedTuple):
    """Who this consumer is in its group, as `Consumer.group_metadata` tells it. Generation -1: not a member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RecordMetadata(NamedTuple):
    """Where a produced record was written. Offset -1: the broker was not asked (`acks=0`)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key_size: int = -1
    value_size: int = -1
