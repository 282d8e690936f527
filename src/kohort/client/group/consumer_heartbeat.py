"""Builds the heartbeats of the consumer protocol, with what the coordinator does not know yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kohort.client.config import ConsumerConfig
from kohort.client.group.consumer_member_state import (
    ConsumerMembershipState,
    ConsumerMembershipStatus,
    NumberedAssignment,
    ToldFields,
)
from kohort.client.offsets.subscription import SubscriptionState
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

REGEX_SINCE = 1
"""The version of ConsumerGroupHeartbeat in which the broker matches patterns."""


def fields_of(
    status: ConsumerMembershipStatus, config: ConsumerConfig, subscription: SubscriptionState
) -> ToldFields:
    """Returns what the coordinator should know of this member."""
    pattern = subscription.broker_pattern
    return ToldFields(
        config.max_poll_interval_ms,
        subscription.topics if pattern is None else frozenset(),
        None if pattern is None else pattern.pattern,
        config.group_remote_assignor,
        status.owned,
    )


def heartbeat(
    status: ConsumerMembershipStatus, config: ConsumerConfig, told: ToldFields
) -> Callable[[int], ConsumerGroupHeartbeatRequest]:
    """Builds the heartbeat that makes the coordinator know `told`."""
    before = None if status.state is ConsumerMembershipState.JOINING else status.told
    fields: dict[str, Any] = {}
    if before is None:
        fields["rack_id"] = config.client_rack or None
    if before is None or before.rebalance_timeout_ms != told.rebalance_timeout_ms:
        fields["rebalance_timeout_ms"] = told.rebalance_timeout_ms
    if before is None or before.topics != told.topics:
        fields["subscribed_topic_names"] = sorted(told.topics)
    if (None if before is None else before.regex) != told.regex:
        fields["subscribed_topic_regex"] = told.regex or ""  # empty: there is none any more
    if before is None or before.assignor != told.assignor:
        fields["server_assignor"] = told.assignor
    if before is None or before.owned != told.owned:
        fields["topic_partitions"] = by_topic_id(() if told.owned is None else told.owned.partitions)
    request = ConsumerGroupHeartbeatRequest(
        config.group_id or "", status.member_id, status.epoch, config.group_instance_id, **fields
    )

    def make(version: int) -> ConsumerGroupHeartbeatRequest:
        if request.subscribed_topic_regex and version < REGEX_SINCE:
            raise ValueError(
                "a SubscriptionPattern needs a broker that matches it (Kafka 4.0): subscribe to a pattern that is "
                "matched here, re.compile(...)"
            )
        return request

    return make


def last_heartbeat(
    status: ConsumerMembershipStatus, config: ConsumerConfig, epoch: int
) -> ConsumerGroupHeartbeatRequest:
    """Builds the heartbeat that leaves."""
    return ConsumerGroupHeartbeatRequest(
        config.group_id or "", status.member_id, epoch, config.group_instance_id
    )


def by_topic_id(partitions: Iterable[tuple[bytes, int]]) -> list[TopicPartitions]:
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id, each) for topic_id, each in numbers.items()]


def new_target(before: NumberedAssignment | None, assigned: Iterable[TopicPartitions]) -> NumberedAssignment:
    """Returns the target that an answer names; it is the one before if that has the same partitions."""
    partitions = frozenset((topic.topic_id, number) for topic in assigned for number in topic.partitions)
    if before is None:
        return NumberedAssignment(0, partitions)
    return before if before.partitions == partitions else NumberedAssignment(before.number + 1, partitions)


def after_join(status: ConsumerMembershipStatus) -> ConsumerMembershipStatus:
    """Returns the status of a member that begins anew."""
    return replace(
        status,
        state=ConsumerMembershipState.JOINING,
        epoch=0,
        attempt=status.attempt + 1,
        target=None,
        owned=None,
        reconciliation=None,
        callback_failed=False,
        told=None,
    )
