"""What consumers tell each other through the coordinator: subscriptions to the leader, assignments from it.

The bytes are those of Kafka's ConsumerProtocol, versions 0 to 3:

    Subscription   version, topics, user data | v1: owned partitions | v2: generation | v3: rack
    Assignment     version, partitions, user data, the same in every version

A newer version only adds fields at the end: it is read as the highest known one and what follows is left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kohort.client.types import TopicPartition
from kohort.wire.errors import BadFrame

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
LONGEST_STRING = 0x7FFF


class BadConsumerProtocol(BadFrame, ValueError):
    """Bytes of a member that are no subscription or assignment of Kafka's consumer protocol, or fields that
    these bytes cannot hold."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants and what it owns.

    `generation_id` is that in which it got `owned_partitions`; -1: none, or a member too old to say it.
    `group_instance_id` is not in the bytes: the leader has it from JoinGroup.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader gives a member."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """The bytes for JoinGroup. Topics and owned partitions are sorted, as Kafka's client does."""
    version = _known(version, "a subscription")
    out = [struct.pack(">hi", version, len(subscription.topics))]
    out += map(_string, sorted(subscription.topics))
    out.append(_nullable_bytes(subscription.user_data))
    if version >= 1:
        out.append(encode_partitions(sorted(subscription.owned_partitions)))
    if version >= 2:
        out.append(_int32(subscription.generation_id))
    if version >= 3:
        out.append(b"\xff\xff" if subscription.rack_id is None else _string(subscription.rack_id))
    return b"".join(out)


def decode_subscription(data: bytes) -> Subscription:
    """What a member sent in JoinGroup. An empty rack is none."""
    read = Reader(data, "a subscription")
    version = _known(read.int16(), "a subscription")
    topics = tuple([read.string() for _ in range(read.array())])
    user_data = read.nullable_bytes()
    owned = read.partitions() if version >= 1 else ()
    generation_id = max(read.int32(), -1) if version >= 2 else -1
    rack_id = read.nullable_string() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation_id, rack_id or None)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """The bytes for SyncGroup."""
    version = _known(version, "an assignment")
    partitions = encode_partitions(assignment.partitions)
    return struct.pack(">h", version) + partitions + _nullable_bytes(assignment.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """What a SyncGroup answer holds."""
    read = Reader(data, "an assignment")
    _known(read.int16(), "an assignment")
    partitions = read.partitions()
    return Assignment(partitions, read.nullable_bytes())


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Partitions as an array of topics with an array of numbers each; topics as they come first."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    out = [_int32(len(by_topic))]
    for topic, numbers in by_topic.items():
        try:
            out += (_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
        except struct.error:
            raise BadConsumerProtocol(f"a partition number of topic {topic!r} does not fit 32 bits") from None
    return b"".join(out)


def _known(version: int, what: str) -> int:
    if version < 0:
        raise BadConsumerProtocol(f"version {version} of {what} does not exist; versions start with 0")
    return min(version, HIGHEST_VERSION)


def _int32(number: int) -> bytes:
    try:
        return struct.pack(">i", number)
    except struct.error:
        raise BadConsumerProtocol(f"{number} does not fit 32 bits") from None


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > LONGEST_STRING:
        raise BadConsumerProtocol(f"{text[:40]!r}… has {len(raw)} bytes, more than {LONGEST_STRING}")
    return struct.pack(">h", len(raw)) + raw


def _nullable_bytes(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else _int32(len(data)) + data


class Reader:
    """Takes one field after the other off some bytes; BadConsumerProtocol says which bytes and where."""

    __slots__ = ("_data", "_pos", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = bytes(data)
        self._what = what
        self._pos = 0

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self._bad("a string is null")
        return text

    def nullable_string(self) -> str | None:
        size = self.int16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise self._bad("a string is not UTF-8") from None

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def array(self) -> int:
        """The number of elements that follow; each takes two bytes at least."""
        count = self.int32()
        if count < 0 or count * 2 > len(self._data) - self._pos:
            raise self._bad(f"{count} elements announced, {len(self._data) - self._pos} bytes left")
        return count

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.array()):
            topic = self.string()
            count = self.array()
            numbers = struct.unpack(f">{count}i", self._take(4 * count))
            found += [TopicPartition(topic, number) for number in numbers]
        return tuple(found)

    def _take(self, size: int) -> bytes:
        start = self._pos
        taken = self._data[start : start + size]
        if len(taken) < size:
            raise self._bad(f"{size} bytes expected, {len(taken)} left")
        self._pos = start + size
        return taken

    def _bad(self, why: str) -> BadConsumerProtocol:
        return BadConsumerProtocol(
            f"not {self._what} of Kafka's consumer protocol: at byte {self._pos} of {len(self._data)} {why}"
        )
