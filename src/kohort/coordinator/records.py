"""The records that the coordinator writes to `__consumer_offsets`, byte for byte as Kafka writes them.

Values are written as OffsetCommitValue v4 (v1 where an old client gave its own retention) and GroupMetadataValue v3.
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
from kohort.wire.struct import ZERO_UUID

OFFSET_VALUE_VERSION, GROUP_VALUE_VERSION = 4, 3
VERSION_WITH_RETENTION = 1
MAX_STRING = 32_767

_INT = struct.Struct(">i")
# OffsetCommitValue without metadata, as nearly all are: v3, and v4 with the id of the topic in the tagged field 0.
_OFFSET_V3_PLAIN = struct.Struct(">hqihq")
_OFFSET_V4_PLAIN = struct.Struct(">hqiBq3s16s")
_NO_METADATA = 1  # the length of a compact string, plus one
_ONE_ID = bytes((1, 0, 16))  # one tagged field; its tag and its size
_new_tuple = tuple.__new__
_encode_group_key = data_codec("group_metadata_key", 0).encode
_encode_group = data_codec("group_metadata_value", GROUP_VALUE_VERSION).encode
_encode_offset = data_codec("offset_commit_value", OFFSET_VALUE_VERSION).encode


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID
    """The topic of that name at the time of the commit; zeros in records of Kafka before 4.2 and of old Kohorts."""


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
    plain, number, start, last_topic = _OFFSET_V4_PLAIN.pack, _INT.pack, b"", None
    for (topic, partition), committed in zip(keys, offsets, strict=True):
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = committed
        if metadata or expire_timestamp_ms != -1 or topic_id == ZERO_UUID:
            records.append(offset_record(group_id, topic, partition, committed))
            continue
        if topic != last_topic:
            start, last_topic = _offset_key_start(group_id, topic), topic
        value = plain(4, offset, leader_epoch, _NO_METADATA, commit_timestamp_ms, _ONE_ID, topic_id)
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
    size = len(value)
    if size == _OFFSET_V4_PLAIN.size:
        version, offset, leader_epoch, metadata, committed, tag, topic_id = _OFFSET_V4_PLAIN.unpack(value)
        if version == 4 and metadata == _NO_METADATA and tag == _ONE_ID:
            topic_id = _ids.get(topic_id) or _one_id(topic_id)
            return _new_tuple(CommittedOffset, (offset, leader_epoch, "", committed, -1, topic_id))
    elif size == _OFFSET_V3_PLAIN.size:
        version, offset, leader_epoch, metadata_size, committed = _OFFSET_V3_PLAIN.unpack(value)
        if version == 3 and not metadata_size:
            return _new_tuple(CommittedOffset, (offset, leader_epoch, "", committed, -1, ZERO_UUID))
    decoded = decode_offset_commit(value)
    return CommittedOffset(*decoded[:5], _one_id(decoded.topic_id))


# A log has few topics and many commits: all of a topic share one object for its id.
_ids: dict[bytes, bytes] = {ZERO_UUID: ZERO_UUID}
_MOST_IDS = 100_000


def _one_id(topic_id: bytes) -> bytes:
    if len(_ids) > _MOST_IDS:
        _ids.clear()
    return _ids.setdefault(topic_id, topic_id)
