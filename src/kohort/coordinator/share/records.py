"""The records of share groups in `__consumer_offsets`, byte for byte as Kafka writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kohort.coordinator.effects import RecordToWrite
from kohort.coordinator.modern.records import ChangesByType, modern_record, read_change, target_in
from kohort.coordinator.modern.state import (
    AssignmentChange,
    Change,
    GroupEpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from kohort.coordinator.share.state import (
    NamedTopicPartitions,
    StatePartitions,
    StatePartitionsChange,
    StateTopics,
)
from kohort.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from kohort.wire.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kohort.wire.messages.share_group_metadata_key import ShareGroupMetadataKey
from kohort.wire.messages.share_group_metadata_value import ShareGroupMetadataValue
from kohort.wire.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from kohort.wire.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from kohort.wire.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from kohort.wire.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from kohort.wire.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from kohort.wire.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

RECORD_TYPES: Final = frozenset((10, 11, 12, 13, 14, 15))


def records_of(group_id: str, changes: Iterable[Change]) -> tuple[RecordToWrite, ...]:
    """Encodes changes, a record each."""
    return tuple(_ENCODE[type(change)](group_id, change) for change in changes)


def change_of(key: bytes, value: bytes | None) -> tuple[str, Change]:
    """Decodes a record of one of RECORD_TYPES: the group, and the change to it. Raises BadRecord."""
    return read_change(_CHANGES, key, value)


# ---- to records


def _group_epoch(group_id: str, change: GroupEpochChange) -> RecordToWrite:
    value = None if change.epoch is None else ShareGroupMetadataValue(change.epoch, change.metadata_hash)
    return modern_record("share_group_metadata", ShareGroupMetadataKey(group_id), value)


def _subscription(group_id: str, change: SubscriptionChange) -> RecordToWrite:
    key = ShareGroupMemberMetadataKey(group_id, change.member_id)
    return modern_record("share_group_member_metadata", key, change.value)


def _target_epoch(group_id: str, change: TargetEpochChange) -> RecordToWrite:
    key, value = ShareGroupTargetAssignmentMetadataKey(group_id), None
    if change.epoch is not None:
        value = ShareGroupTargetAssignmentMetadataValue(change.epoch, change.timestamp_ms)
    return modern_record("share_group_target_assignment_metadata", key, value)


def _target(group_id: str, change: TargetChange) -> RecordToWrite:
    key, value = ShareGroupTargetAssignmentMemberKey(group_id, change.member_id), None
    if change.partitions is not None:
        value = ShareGroupTargetAssignmentMemberValue(
            tuple(TopicPartition(t, tuple(sorted(ps))) for t, ps in sorted(change.partitions.items()))
        )
    return modern_record("share_group_target_assignment_member", key, value)


def _assignment(group_id: str, change: AssignmentChange) -> RecordToWrite:
    key = ShareGroupCurrentMemberAssignmentKey(group_id, change.member_id)
    return modern_record("share_group_current_member_assignment", key, change.value)


def _state_partitions(group_id: str, change: StatePartitionsChange) -> RecordToWrite:
    value = None
    if change.value is not None:
        value = ShareGroupStatePartitionMetadataValue(
            _listed(change.value.initializing),
            _listed(change.value.initialized),
            tuple(TopicInfo(t, name) for t, name in sorted(change.value.deleting.items())),
        )
    key = ShareGroupStatePartitionMetadataKey(group_id)
    return modern_record("share_group_state_partition_metadata", key, value)


def _listed(topics: StateTopics) -> tuple[TopicPartitionsInfo, ...]:
    return tuple(
        TopicPartitionsInfo(t, topic.name, tuple(sorted(topic.partitions)))
        for t, topic in sorted(topics.items())
    )


_ENCODE: Final[dict[type, Callable[[str, Any], RecordToWrite]]] = {
    GroupEpochChange: _group_epoch,
    SubscriptionChange: _subscription,
    TargetEpochChange: _target_epoch,
    TargetChange: _target,
    AssignmentChange: _assignment,
    StatePartitionsChange: _state_partitions,
}


# ---- from records


def _read_state_partitions(value: ShareGroupStatePartitionMetadataValue | None) -> StatePartitions | None:
    if value is None:
        return None
    return StatePartitions(
        {t: NamedTopicPartitions(name, frozenset(ps)) for t, name, ps in value.initializing_topics},
        {t: NamedTopicPartitions(name, frozenset(ps)) for t, name, ps in value.initialized_topics},
        dict(value.deleting_topics),
    )


_CHANGES: Final[ChangesByType] = {
    10: ("share_group_member_metadata", lambda key, value: SubscriptionChange(key.member_id, value)),
    11: (
        "share_group_metadata",
        lambda key, value: GroupEpochChange(None) if value is None else GroupEpochChange(*value),
    ),
    12: (
        "share_group_target_assignment_metadata",
        lambda key, value: TargetEpochChange(None) if value is None else TargetEpochChange(*value),
    ),
    13: (
        "share_group_target_assignment_member",
        lambda key, value: TargetChange(key.member_id, target_in(value)),
    ),
    14: (
        "share_group_current_member_assignment",
        lambda key, value: AssignmentChange(key.member_id, value),
    ),
    15: (
        "share_group_state_partition_metadata",
        lambda key, value: StatePartitionsChange(_read_state_partitions(value)),
    ),
}
