"""Its value: what a member of a consumer group owns.

Generated from schema/consumer_group_current_member_assignment_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.wire.struct import ZERO_UUID


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: tuple[int, ...] = ()
    assignment_epochs: tuple[int, ...] | None = ()


class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[TopicPartitions, ...] = ()
