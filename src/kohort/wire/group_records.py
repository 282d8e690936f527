"""Reads the keys and values of `__consumer_offsets`, in every version that Kafka has written.

A key begins with the type of the record, a value with its version. The layouts are texts in `schema/`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue
from kohort.wire.messages.offset_commit_key import OffsetCommitKey
from kohort.wire.messages.offset_commit_value import OffsetCommitValue

# The types of records, by Kafka's names. Only the first three are decoded here; Kafka 4.3 no longer has 9 and 18.
LEGACY_OFFSET_COMMIT, OFFSET_COMMIT, GROUP_METADATA = 0, 1, 2
RECORD_TYPES = {
    LEGACY_OFFSET_COMMIT: "LegacyOffsetCommit",
    OFFSET_COMMIT: "OffsetCommit",
    GROUP_METADATA: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
NEWEST_VALUE_VERSION = 4

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_offset_commit_key = data_codec("offset_commit_key", 0)
_group_metadata_key = data_codec("group_metadata_key", 0)
_new_tuple = tuple.__new__


def offset_key_start(group: str, topic: str) -> bytes:
    """The key of a committed offset up to the number of its partition."""
    return _offset_commit_key.encode(OffsetCommitKey(group, topic))[: -_INT.size]


@lru_cache(maxsize=4096)
def _group_and_topic(start: bytes) -> tuple[str, str] | None:
    """The strings that `offset_key_start` made `start` of; None if it did not. Most keys of a log repeat them."""
    try:
        key: OffsetCommitKey = _offset_commit_key.decode(start + bytes(_INT.size))
    except BadFrame:
        return None
    return key[:2] if offset_key_start(*key[:2])[2:] == start[2:] else None


def decode_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | int:
    """The key of a record; of a type that is not decoded here, only its number. Raises BadRecord."""
    try:
        record_type: int = _SHORT.unpack_from(key)[0]
        if record_type in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
            found = _group_and_topic(bytes(key[:-4]))
            if found is None:
                return _offset_commit_key.decode(key)  # type: ignore[no-any-return]
            return _new_tuple(OffsetCommitKey, (*found, _INT.unpack_from(key, len(key) - 4)[0]))
        if record_type == GROUP_METADATA:
            return _group_metadata_key.decode(key)  # type: ignore[no-any-return]
        return record_type
    except (BadFrame, struct.error) as error:
        raise BadRecord(f"a key that cannot be read ({error}): {key[:80]!r}") from error


def decode_offset_commit(value: bytes) -> OffsetCommitValue:
    """The value of an offset commit. Raises BadRecord."""
    decoded: OffsetCommitValue = _decode_value("offset_commit_value", "an offset commit", value)
    return decoded


def decode_group_metadata(value: bytes) -> GroupMetadataValue:
    """The value of a group's record. Raises BadRecord.

    A member without a rebalance timeout (version 0) has its session timeout for one, as in Kafka.
    """
    group: GroupMetadataValue = _decode_value("group_metadata_value", "a group", value)
    if not any(member.rebalance_timeout_ms == -1 for member in group.members):
        return group
    members = [
        member._replace(rebalance_timeout_ms=member.session_timeout_ms)
        if member.rebalance_timeout_ms == -1
        else member
        for member in group.members
    ]
    return group._replace(members=tuple(members))


def _decode_value(module: str, what: str, value: bytes) -> Any:
    try:
        version: int = _SHORT.unpack_from(value)[0]
        if not 0 <= version <= NEWEST_VALUE_VERSION:
            raise BadRecord(
                f"{what} has value version {version}, known are 0 to {NEWEST_VALUE_VERSION}: "
                "a newer version has written it, and only that version can read it"
            )
        return data_codec(module, version).decode(value)
    except (BadFrame, struct.error) as error:
        raise BadRecord(f"{what} that cannot be read ({error})") from error
