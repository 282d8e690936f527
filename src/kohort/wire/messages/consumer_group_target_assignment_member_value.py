"""Its value: what a member of a consumer group is to own.

Generated from schema/consumer_group_target_assignment_member_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.wire.struct import ZERO_UUID


class TopicPartition(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: tuple[int, ...] = ()


class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    topic_partitions: tuple[TopicPartition, ...] = ()
