"""What consumers tell each other, as assignors see it: subscriptions to the leader, assignments from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from kohort.client.types import TopicPartition
from kohort.wire import consumer_protocol as wire
from kohort.wire.consumer_protocol import HIGHEST_VERSION
from kohort.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kohort.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from kohort.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kohort.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedPartitions

T = TypeVar("T")


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
    return wire.encode_subscription(message, version)


def decode_subscription(data: bytes) -> Subscription:
    """What a member sent in JoinGroup. An empty rack is none."""
    topics, user_data, owned, generation_id, rack_id = wire.decode_subscription(data)
    return Subscription(topics, user_data, partitions_of(owned), max(generation_id, -1), rack_id or None)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """The bytes for SyncGroup."""
    message = ConsumerProtocolAssignment(
        by_topic(assignment.partitions, AssignedPartitions), assignment.user_data
    )
    return wire.encode_assignment(message, version)


def decode_assignment(data: bytes) -> Assignment:
    """What a SyncGroup answer holds."""
    message = wire.decode_assignment(data)
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
