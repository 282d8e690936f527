"""The records of share groups in `__consumer_offsets`, byte for byte as Kafka writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from kohort.coordinator.effects import RecordToWrite
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
from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord
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
_SHORT = struct.Struct(">h")


def records_of(group_id: str, changes: Iterable[Change]) -> tuple[RecordToWrite, ...]:
    """Encodes changes, a record each."""
    return tuple(_ENCODE[type(change)](group_id, change) for change in changes)


def change_of(key: bytes, value: bytes | None) -> tuple[str, Change]:
    """Decodes a record of one of RECORD_TYPES: the group, and the change to it. Raises BadRecord."""
    record_type: int = _SHORT.unpack_from(key)[0]
    name, decode = _DECODE[record_type]
    try:
        decoded_key = data_codec(f"{name}_key", 0).decode(key)
        decoded_value = None
        if value is not None:
            version: int = _SHORT.unpack_from(value)[0]
            if version != 0:
                raise BadRecord(
                    f"a record of type {record_type} has value version {version}, known is 0: "
                    "a newer version has written it, and only that version can read it"
                )
            decoded_value = data_codec(f"{name}_value", 0).decode(value)
    except (BadFrame, struct.error) as error:
        raise BadRecord(f"a record of type {record_type} that cannot be read ({error})") from error
    return decoded_key.group_id, decode(decoded_key, decoded_value)


# ---- to records


def _record(name: str, key: Any, value: Any) -> RecordToWrite:
    encoded = None if value is None else data_codec(f"{name}_value", 0).encode(value)
    return RecordToWrite(data_codec(f"{name}_key", 0).encode(key), encoded)


def _group_epoch(group_id: str, change: GroupEpochChange) -> RecordToWrite:
    value = None if change.epoch is None else ShareGroupMetadataValue(change.epoch, change.metadata_hash)
    return _record("share_group_metadata", ShareGroupMetadataKey(group_id), value)


def _subscription(group_id: str, change: SubscriptionChange) -> RecordToWrite:
    key = ShareGroupMemberMetadataKey(group_id, change.member_id)
    return _record("share_group_member_metadata", key, change.value)


def _target_epoch(group_id: str, change: TargetEpochChange) -> RecordToWrite:
    key, value = ShareGroupTargetAssignmentMetadataKey(group_id), None
    if change.epoch is not None:
        value = ShareGroupTargetAssignmentMetadataValue(change.epoch, change.timestamp_ms)
    return _record("share_group_target_assignment_metadata", key, value)


def _target(group_id: str, change: TargetChange) -> RecordToWrite:
    key, value = ShareGroupTargetAssignmentMemberKey(group_id, change.member_id), None
    if change.partitions is not None:
        value = ShareGroupTargetAssignmentMemberValue(
            tuple(TopicPartition(t, tuple(sorted(ps))) for t, ps in sorted(change.partitions.items()))
        )
    return _record("share_group_target_assignment_member", key, value)


def _assignment(group_id: str, change: AssignmentChange) -> RecordToWrite:
    key = ShareGroupCurrentMemberAssignmentKey(group_id, change.member_id)
    return _record("share_group_current_member_assignment", key, change.value)


def _state_partitions(group_id: str, change: StatePartitionsChange) -> RecordToWrite:
    value = None
    if change.value is not None:
        value = ShareGroupStatePartitionMetadataValue(
            _listed(change.value.initializing),
            _listed(change.value.initialized),
            tuple(TopicInfo(t, name) for t, name in sorted(change.value.deleting.items())),
        )
    key = ShareGroupStatePartitionMetadataKey(group_id)
    return _record("share_group_state_partition_metadata", key, value)


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


def _target_partitions(value: Any) -> Any:
    return None if value is None else {t: frozenset(partitions) for t, partitions in value.topic_partitions}


def _read_state_partitions(value: ShareGroupStatePartitionMetadataValue | None) -> StatePartitions | None:
    if value is None:
        return None
    return StatePartitions(
        {t: NamedTopicPartitions(name, frozenset(ps)) for t, name, ps in value.initializing_topics},
        {t: NamedTopicPartitions(name, frozenset(ps)) for t, name, ps in value.initialized_topics},
        dict(value.deleting_topics),
    )


_DECODE: Final[dict[int, tuple[str, Callable[[Any, Any], Change]]]] = {
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
        lambda key, value: TargetChange(key.member_id, _target_partitions(value)),
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
