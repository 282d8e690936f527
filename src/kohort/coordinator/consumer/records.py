"""The records of consumer groups in `__consumer_offsets`, byte for byte as Kafka writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from kohort.coordinator.consumer.state import PartitionMetadataChange, RegexChange
from kohort.coordinator.effects import RecordToWrite
from kohort.coordinator.frozen import frozen
from kohort.coordinator.modern.state import (
    AssignmentChange,
    Change,
    GroupEpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from kohort.coordinator.records import group_record, group_tombstone
from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord
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
    value = None if change.epoch is None else ConsumerGroupMetadataValue(change.epoch, change.metadata_hash)
    return _record("consumer_group_metadata", ConsumerGroupMetadataKey(group_id), value)


def _partition_metadata(group_id: str, change: PartitionMetadataChange) -> RecordToWrite:
    assert not change.exists
    return _record("consumer_group_partition_metadata", ConsumerGroupPartitionMetadataKey(group_id), None)


def _subscription(group_id: str, change: SubscriptionChange) -> RecordToWrite:
    key = ConsumerGroupMemberMetadataKey(group_id, change.member_id)
    return _record("consumer_group_member_metadata", key, change.value)


def _target_epoch(group_id: str, change: TargetEpochChange) -> RecordToWrite:
    key, value = ConsumerGroupTargetAssignmentMetadataKey(group_id), None
    if change.epoch is not None:
        value = ConsumerGroupTargetAssignmentMetadataValue(change.epoch, change.timestamp_ms)
    return _record("consumer_group_target_assignment_metadata", key, value)


def _target(group_id: str, change: TargetChange) -> RecordToWrite:
    key, value = ConsumerGroupTargetAssignmentMemberKey(group_id, change.member_id), None
    if change.partitions is not None:
        value = ConsumerGroupTargetAssignmentMemberValue(
            tuple(TopicPartition(t, tuple(sorted(ps))) for t, ps in sorted(change.partitions.items()))
        )
    return _record("consumer_group_target_assignment_member", key, value)


def _assignment(group_id: str, change: AssignmentChange) -> RecordToWrite:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, change.member_id)
    return _record("consumer_group_current_member_assignment", key, change.value)


def _regex(group_id: str, change: RegexChange) -> RecordToWrite:
    key = ConsumerGroupRegularExpressionKey(group_id, change.regex)
    return _record("consumer_group_regular_expression", key, change.value)


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


def _target_partitions(value: Any) -> Any:
    return None if value is None else {t: frozenset(partitions) for t, partitions in value.topic_partitions}


_DECODE: Final[dict[int, tuple[str, Callable[[Any, Any], Change]]]] = {
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
        lambda key, value: TargetChange(key.member_id, _target_partitions(value)),
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
