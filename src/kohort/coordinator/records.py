"""The records that the coordinator writes to `__consumer_offsets`, byte for byte as Kafka writes them.

Values are written as OffsetCommitValue v3 (v1 where an old client gave its own retention) and GroupMetadataValue v3.
Records of other types belong to groups that are not served here: they are skipped on load and stay in the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kohort.coordinator.effects import RecordToWrite
from kohort.wire.compiler.compile import data_codec
from kohort.wire.group_records import decode_offset_commit, offset_key_start
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue
from kohort.wire.messages.offset_commit_value import OffsetCommitValue

OFFSET_VALUE_VERSION = GROUP_VALUE_VERSION = 3
VERSION_WITH_RETENTION = 1
MAX_STRING = 32_767

_INT = struct.Struct(">i")
_OFFSET_V3_PLAIN = struct.Struct(">hqihq")  # OffsetCommitValue v3 without metadata, as nearly all are
_encode_group_key = data_codec("group_metadata_key", 0).encode
_encode_group = data_codec("group_metadata_value", GROUP_VALUE_VERSION).encode
_encode_offset = data_codec("offset_commit_value", OFFSET_VALUE_VERSION).encode


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


def fits(text: str) -> bool:
    """Whether a record can hold this text, whose length is an int16 there."""
    return len(text) * 3 <= MAX_STRING or len(text.encode()) <= MAX_STRING


# Consumers commit the same topics again and again: what precedes the partition is kept.
_offset_key_start = lru_cache(maxsize=4096)(offset_key_start)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _offset_key_start(group_id, topic) + _INT.pack(partition)


def group_key(group_id: str) -> bytes:
    return _encode_group_key(GroupMetadataKey(group_id))


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> RecordToWrite:
    value = OffsetCommitValue(*committed)
    encode = _encode_offset
    if committed.expire_timestamp_ms != -1:
        encode = data_codec("offset_commit_value", VERSION_WITH_RETENTION).encode
    return RecordToWrite(offset_key(group_id, topic, partition), encode(value))


def offset_records(
    group_id: str, keys: Sequence[tuple[str, int]], offsets: Sequence[CommittedOffset]
) -> tuple[RecordToWrite, ...]:
    """The records of one commit: what `offset_record` makes of each, by a shorter way if there is no metadata."""
    records: list[RecordToWrite] = []
    plain, number, start, last_topic = _OFFSET_V3_PLAIN.pack, _INT.pack, b"", None
    for (topic, partition), committed in zip(keys, offsets, strict=True):
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = committed
        if metadata or expire_timestamp_ms != -1:
            records.append(offset_record(group_id, topic, partition, committed))
            continue
        if topic != last_topic:
            start, last_topic = _offset_key_start(group_id, topic), topic
        value = plain(OFFSET_VALUE_VERSION, offset, leader_epoch, 0, commit_timestamp_ms)
        records.append(tuple.__new__(RecordToWrite, (start + number(partition), value)))
    return tuple(records)


def offset_tombstone(group_id: str, topic: str, partition: int) -> RecordToWrite:
    return RecordToWrite(offset_key(group_id, topic, partition), None)


def group_record(group_id: str, group: GroupMetadataValue) -> RecordToWrite:
    return RecordToWrite(group_key(group_id), _encode_group(group))


def group_tombstone(group_id: str) -> RecordToWrite:
    return RecordToWrite(group_key(group_id), None)


def decode_offset(value: bytes) -> CommittedOffset:
    """The committed offset in a record's value. Raises BadRecord."""
    if len(value) == _OFFSET_V3_PLAIN.size:
        version, offset, leader_epoch, metadata_size, committed = _OFFSET_V3_PLAIN.unpack(value)
        if version == OFFSET_VALUE_VERSION and not metadata_size:
            return CommittedOffset(offset, leader_epoch, "", committed, -1)
    return CommittedOffset(*decode_offset_commit(value)[:5])
