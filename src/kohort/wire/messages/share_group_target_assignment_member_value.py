"""Its value: what a member of a share group is to read.

Generated from schema/share_group_target_assignment_member_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.wire.struct import ZERO_UUID


class TopicPartition(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: tuple[int, ...] = ()


class ShareGroupTargetAssignmentMemberValue(NamedTuple):
    topic_partitions: tuple[TopicPartition, ...] = ()
