"""Reads the keys and values of `__consumer_offsets`, in every version that Kafka has written.

A key begins with the type of the record, a value with its version. The layouts are texts in `schema/`.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Any

from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue
from kohort.wire.messages.offset_commit_key import OffsetCommitKey
from kohort.wire.messages.offset_commit_value import OffsetCommitValue

# The types of records, by Kafka's names; Kafka 4.3 no longer has 9 and 18. `decode_key` decodes the first three, the
# functions with `modern` in their names those of consumer and share groups.
LEGACY_OFFSET_COMMIT, OFFSET_COMMIT, GROUP_METADATA = 0, 1, 2
CONSUMER_GROUP_METADATA, CONSUMER_GROUP_MEMBER, CONSUMER_GROUP_TARGET_MEMBER = 3, 5, 7
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
# The schema texts of consumer and share groups: each type has one of its key and one of its value, in version 0 alone.
_MODERN = {
    number: re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    for number, name in RECORD_TYPES.items()
    if 3 <= number <= 16 and number != 9
}

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


def modern_record_type(key: bytes) -> int | None:
    """The type of a record of a consumer or share group (KIP-848, KIP-932); None if its key is of another kind."""
    record_type = int.from_bytes(key[:2], "big")
    return record_type if record_type in _MODERN else None


def decode_modern_key(key: bytes) -> Any:
    """The key of such a record, in the class that the schema gives it. Raises BadRecord."""
    try:
        record_type: int = _SHORT.unpack_from(key)[0]
        return data_codec(f"{_MODERN[record_type]}_key", 0).decode(key)
    except (BadFrame, struct.error, KeyError) as error:
        raise BadRecord(f"a key that cannot be read ({error}): {key[:80]!r}") from error


def decode_modern_value(record_type: int, value: bytes) -> Any:
    """The value of such a record, in the class that the schema gives it. Raises BadRecord."""
    return _decode_value(f"{_MODERN[record_type]}_value", f"a {RECORD_TYPES[record_type]}", value, newest=0)


def _decode_value(module: str, what: str, value: bytes, newest: int = NEWEST_VALUE_VERSION) -> Any:
    try:
        version: int = _SHORT.unpack_from(value)[0]
        if not 0 <= version <= newest:
            raise BadRecord(
                f"{what} has value version {version}, known are 0 to {newest}: "
                "a newer version has written it, and only that version can read it"
            )
        return data_codec(module, version).decode(value)
    except (BadFrame, struct.error) as error:
        raise BadRecord(f"{what} that cannot be read ({error})") from error
