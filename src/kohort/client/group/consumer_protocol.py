"""Encodes and decodes what consumers tell each other: subscriptions to the leader, assignments from it.

The bytes are those of Kafka's ConsumerProtocol, versions 0 to 3; their layout is in `wire/schema`. A newer version only
adds fields at the end: it is read as the highest known one, and what follows is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from kohort.client.types import TopicPartition
from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame
from kohort.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kohort.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from kohort.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kohort.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedPartitions

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
LONGEST_STRING = 0x7FFF

T = TypeVar("T")


class BadConsumerProtocol(BadFrame, ValueError):
    """Bytes that are not a subscription or assignment of Kafka's consumer protocol, or fields that do not fit it."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants and what it owns.

    `generation_id` is the generation in which it got `owned_partitions`. It is -1 if there is none, or if the member is
    too old to say it. `group_instance_id` is not in the bytes: the leader has it from JoinGroup.
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
    message = ConsumerProtocolSubscription(
        tuple(sorted(subscription.topics)),
        subscription.user_data,
        by_topic(sorted(subscription.owned_partitions), OwnedPartitions),
        subscription.generation_id,
        subscription.rack_id,
    )
    return _encode("consumer_protocol_subscription", "a subscription", version, message)


def decode_subscription(data: bytes) -> Subscription:
    """What a member sent in JoinGroup. An empty rack is none."""
    message: ConsumerProtocolSubscription = _decode("consumer_protocol_subscription", "a subscription", data)
    topics, user_data, owned, generation_id, rack_id = message
    return Subscription(topics, user_data, partitions_of(owned), max(generation_id, -1), rack_id or None)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """The bytes for SyncGroup."""
    message = ConsumerProtocolAssignment(
        by_topic(assignment.partitions, AssignedPartitions), assignment.user_data
    )
    return _encode("consumer_protocol_assignment", "an assignment", version, message)


def decode_assignment(data: bytes) -> Assignment:
    """What a SyncGroup answer holds."""
    message: ConsumerProtocolAssignment = _decode("consumer_protocol_assignment", "an assignment", data)
    return Assignment(partitions_of(message.assigned_partitions), message.user_data)


def by_topic(
    partitions: Iterable[TopicPartition], struct_class: Callable[[str, tuple[int, ...]], T]
) -> tuple[T, ...]:
    """A struct for each topic with the numbers of its partitions; the topics in the order of their first partitions."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return tuple([struct_class(topic, tuple(each)) for topic, each in numbers.items()])


def partitions_of(topics: Iterable[tuple[str, Iterable[int]]]) -> tuple[TopicPartition, ...]:
    """The partitions that such structs name."""
    return tuple([TopicPartition(topic, number) for topic, numbers in topics for number in numbers])


def _encode(module: str, what: str, version: int, message: Any) -> bytes:
    codec = data_codec(module, _known(version, what))
    try:
        return codec.encode(message)
    except struct.error:
        raise BadConsumerProtocol(
            f"{what} cannot hold a name of more than {LONGEST_STRING} bytes or a number that does not fit 32 bits: "
            f"{str(message)[:200]}"
        ) from None


def _decode(module: str, what: str, data: bytes) -> Any:
    if len(data) < 2:
        raise BadConsumerProtocol(f"not {what} of Kafka's consumer protocol: it has only {len(data)} bytes")
    codec = data_codec(module, _known(int.from_bytes(data[:2], "big", signed=True), what))
    try:
        return codec.decode(data)
    except BadFrame as error:
        raise BadConsumerProtocol(
            f"not {what} of Kafka's consumer protocol: {error} ({len(data)} bytes)"
        ) from None


def _known(version: int, what: str) -> int:
    if version < 0:
        raise BadConsumerProtocol(f"version {version} of {what} does not exist; versions start with 0")
    return min(version, HIGHEST_VERSION)
