"""Reads the keys and values of `__consumer_offsets`, in every version that Kafka has written.

A key begins with the type of the record, a value with its version. The layouts are texts in `schema/`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue
from kohort.wire.messages.offset_commit_key import OffsetCommitKey
from kohort.wire.messages.offset_commit_value import OffsetCommitValue
from kohort.wire.varint import read_uvarint

# The types of records, by Kafka's names; Kafka 4.3 no longer has 9 and 18. `decode_key` decodes the first three. Of a
# consumer group (KIP-848) `decode_consumer_group_key` and the functions below it read what tells of its rebalances.
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


class ConsumerGroupKey(NamedTuple):
    """The key of a record about a consumer group (KIP-848) or one of its members."""

    record_type: int
    group: str
    member_id: str
    """"" if the record is about the whole group."""


class ConsumerGroupMember(NamedTuple):
    """What a member of a consumer group has said of itself."""

    instance_id: str | None
    client_id: str
    client_host: str


def decode_consumer_group_key(key: bytes) -> ConsumerGroupKey | None:
    """The key of a record that tells of rebalances of a consumer group; None if it is another one. Raises BadRecord."""
    try:
        record_type: int = _SHORT.unpack_from(key)[0]
        if record_type not in (
            CONSUMER_GROUP_METADATA,
            CONSUMER_GROUP_MEMBER,
            CONSUMER_GROUP_TARGET_MEMBER,
        ):
            return None
        group, position = _string(key, 2)
        member = "" if record_type == CONSUMER_GROUP_METADATA else _string(key, position)[0]
        return ConsumerGroupKey(record_type, group, member)
    except (struct.error, UnicodeDecodeError) as error:
        raise BadRecord(f"a key that cannot be read ({error}): {key[:80]!r}") from error


def decode_group_epoch(value: bytes) -> int:
    """The epoch of a consumer group: the value of a ConsumerGroupMetadata. Raises BadRecord."""
    try:
        _check_first_version(value, "a consumer group")
        epoch: int = _INT.unpack_from(value, 2)[0]
        return epoch
    except struct.error as error:
        raise BadRecord(f"the epoch of a consumer group cannot be read ({error})") from error


def decode_consumer_group_member(value: bytes) -> ConsumerGroupMember:
    """The beginning of a ConsumerGroupMemberMetadata. Raises BadRecord."""
    try:
        _check_first_version(value, "a member of a consumer group")
        view, position, texts = memoryview(value), 2, []
        for _ in range(4):
            size, position = read_uvarint(view, position)
            end = position + max(0, size - 1)
            if end > len(value):
                raise BadRecord("a member of a consumer group is cut off")
            texts.append(None if size == 0 else bytes(view[position:end]).decode())
            position = end
        instance_id, _rack, client_id, client_host = texts
        return ConsumerGroupMember(instance_id, client_id or "", client_host or "")
    except (BadFrame, struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadRecord(f"a member of a consumer group cannot be read ({error})") from error


def _check_first_version(value: bytes, what: str) -> None:
    version: int = _SHORT.unpack_from(value)[0]
    if version != 0:
        raise BadRecord(f"{what} has value version {version}, known is 0")


def _string(key: bytes, position: int) -> tuple[str, int]:
    size = _SHORT.unpack_from(key, position)[0]
    start = position + _SHORT.size
    if size < 0 or start + size > len(key):
        raise struct.error("a string is cut off")
    return key[start : start + size].decode(), start + size


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
