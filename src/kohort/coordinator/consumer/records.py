"""The records of consumer groups in `__consumer_offsets`, byte for byte as Kafka writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kohort.coordinator.consumer.state import PartitionMetadataChange, RegexChange
from kohort.coordinator.effects import RecordToWrite
from kohort.coordinator.frozen import frozen
from kohort.coordinator.modern.records import ChangesByType, modern_record, read_change, target_in
from kohort.coordinator.modern.state import (
    AssignmentChange,
    Change,
    GroupEpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from kohort.coordinator.records import group_record, group_tombstone
from kohort.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kohort.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kohort.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kohort.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kohort.wire.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kohort.wire.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kohort.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from kohort.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from kohort.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kohort.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kohort.wire.messages.group_metadata_value import GroupMetadataValue


@frozen
class ClassicGroupChange:
    """The record of a classic group of the same name, which is converted: None ends it, else it begins."""

    value: GroupMetadataValue | None

    def apply_to(self, state: object) -> None:
        """Does nothing: it says nothing of the consumer group."""


RECORD_TYPES: Final = frozenset((3, 4, 5, 6, 7, 8, 16))


def records_of(group_id: str, changes: Iterable[Change]) -> tuple[RecordToWrite, ...]:
    """Encodes changes, a record each."""
    return tuple(_ENCODE[type(change)](group_id, change) for change in changes)


def change_of(key: bytes, value: bytes | None) -> tuple[str, Change]:
    """Decodes a record of one of RECORD_TYPES: the group, and the change to it. Raises BadRecord."""
    return read_change(_CHANGES, key, value)


# ---- to records


def _group_epoch(group_id: str, change: GroupEpochChange) -> RecordToWrite:
    value = None if change.epoch is None else ConsumerGroupMetadataValue(change.epoch, change.metadata_hash)
    return modern_record("consumer_group_metadata", ConsumerGroupMetadataKey(group_id), value)


def _partition_metadata(group_id: str, change: PartitionMetadataChange) -> RecordToWrite:
    assert not change.exists
    return modern_record(
        "consumer_group_partition_metadata", ConsumerGroupPartitionMetadataKey(group_id), None
    )


def _subscription(group_id: str, change: SubscriptionChange) -> RecordToWrite:
    key = ConsumerGroupMemberMetadataKey(group_id, change.member_id)
    return modern_record("consumer_group_member_metadata", key, change.value)


def _target_epoch(group_id: str, change: TargetEpochChange) -> RecordToWrite:
    key, value = ConsumerGroupTargetAssignmentMetadataKey(group_id), None
    if change.epoch is not None:
        value = ConsumerGroupTargetAssignmentMetadataValue(change.epoch, change.timestamp_ms)
    return modern_record("consumer_group_target_assignment_metadata", key, value)


def _target(group_id: str, change: TargetChange) -> RecordToWrite:
    key, value = ConsumerGroupTargetAssignmentMemberKey(group_id, change.member_id), None
    if change.partitions is not None:
        value = ConsumerGroupTargetAssignmentMemberValue(
            tuple(TopicPartition(t, tuple(sorted(ps))) for t, ps in sorted(change.partitions.items()))
        )
    return modern_record("consumer_group_target_assignment_member", key, value)


def _assignment(group_id: str, change: AssignmentChange) -> RecordToWrite:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, change.member_id)
    return modern_record("consumer_group_current_member_assignment", key, change.value)


def _regex(group_id: str, change: RegexChange) -> RecordToWrite:
    key = ConsumerGroupRegularExpressionKey(group_id, change.regex)
    return modern_record("consumer_group_regular_expression", key, change.value)


def _classic(group_id: str, change: ClassicGroupChange) -> RecordToWrite:
    return group_tombstone(group_id) if change.value is None else group_record(group_id, change.value)


_ENCODE: Final[dict[type, Callable[[str, Any], RecordToWrite]]] = {
    GroupEpochChange: _group_epoch,
    PartitionMetadataChange: _partition_metadata,
    SubscriptionChange: _subscription,
    TargetEpochChange: _target_epoch,
    TargetChange: _target,
    AssignmentChange: _assignment,
    RegexChange: _regex,
    ClassicGroupChange: _classic,
}


# ---- from records


_CHANGES: Final[ChangesByType] = {
    3: (
        "consumer_group_metadata",
        lambda key, value: GroupEpochChange(None) if value is None else GroupEpochChange(*value),
    ),
    4: (
        "consumer_group_partition_metadata",
        lambda key, value: PartitionMetadataChange(value is not None),
    ),
    5: (
        "consumer_group_member_metadata",
        lambda key, value: SubscriptionChange(key.member_id, value),
    ),
    6: (
        "consumer_group_target_assignment_metadata",
        lambda key, value: TargetEpochChange(None) if value is None else TargetEpochChange(*value),
    ),
    7: (
        "consumer_group_target_assignment_member",
        lambda key, value: TargetChange(key.member_id, target_in(value)),
    ),
    8: (
        "consumer_group_current_member_assignment",
        lambda key, value: AssignmentChange(key.member_id, value),
    ),
    16: (
        "consumer_group_regular_expression",
        lambda key, value: RegexChange(key.regular_expression, value),
    ),
}
