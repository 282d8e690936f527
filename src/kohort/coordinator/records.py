"""Keys and values of `__consumer_offsets`, byte for byte as Kafka writes them.

Keys: version 0 or 1 an offset commit, 2 a classic group; all others belong to group types that are not
served here: they are skipped on load and stay in the log. Values are written as OffsetCommitValue v3 (v1
where an old client gave its own retention) and GroupMetadataValue v3, and read in versions 0–4.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kohort.coordinator.effects import RecordToWrite
from kohort.wire.errors import KohortError

OFFSET_KEY, GROUP_KEY = 1, 2
OFFSET_VALUE_VERSION = GROUP_VALUE_VERSION = 3
NEWEST_VALUE_VERSION = 4
MAX_STRING = 32_767

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_TIMEOUTS_AND_SIZE = struct.Struct(">iii")
_OFFSET_V3 = struct.Struct(">hqi")
_OFFSET_V3_PLAIN = struct.Struct(">hqihq")  # without metadata, as nearly all are


class BadRecord(KohortError):
    """A record that this version cannot read; loading must stop, skipping it would lose what it says."""


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


class MemberMetadata(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def fits(text: str) -> bool:
    """Whether a record can hold this text: its length is an int16."""
    return len(text) * 3 <= MAX_STRING or len(text.encode()) <= MAX_STRING


@lru_cache(maxsize=4096)
def _offset_key_start(group_id: str, topic: str) -> bytes:
    """Consumers commit the same topics again and again: what precedes the partition is kept."""
    return _SHORT.pack(OFFSET_KEY) + _string(group_id) + _string(topic)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _offset_key_start(group_id, topic) + _INT.pack(partition)


def group_key(group_id: str) -> bytes:
    return _SHORT.pack(GROUP_KEY) + _string(group_id)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> RecordToWrite:
    if committed.expire_timestamp_ms == -1:
        start = _OFFSET_V3.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch)
        end = _LONG.pack(committed.commit_timestamp_ms)
    else:
        start = _SHORT.pack(1) + _LONG.pack(committed.offset)
        end = _LONG.pack(committed.commit_timestamp_ms) + _LONG.pack(committed.expire_timestamp_ms)
    return RecordToWrite(offset_key(group_id, topic, partition), start + _string(committed.metadata) + end)


def offset_records(
    group_id: str, keys: Sequence[tuple[str, int]], offsets: Sequence[CommittedOffset]
) -> tuple[RecordToWrite, ...]:
    """The records of one commit: what `offset_record` makes of each, without its detours where that is possible."""
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


def group_record(group_id: str, group: GroupMetadata) -> RecordToWrite:
    parts = [
        _SHORT.pack(GROUP_VALUE_VERSION),
        _string(group.protocol_type),
        _INT.pack(group.generation_id),
        _string(group.protocol_name),
        _string(group.leader),
        _LONG.pack(group.state_timestamp_ms),
        _INT.pack(len(group.members)),
    ]
    shared: dict[str | None, bytes] = {}  # clients and hosts of a large group are often the same few
    for (
        member_id,
        instance_id,
        client_id,
        host,
        rebalance_ms,
        session_ms,
        subscription,
        assignment,
    ) in group.members:
        client = shared.get(client_id) or shared.setdefault(client_id, _string(client_id))
        at = shared.get(host) or shared.setdefault(host, _string(host))
        parts += (
            _string(member_id),
            b"\xff\xff" if instance_id is None else _string(instance_id),
            client,
            at,
            _TIMEOUTS_AND_SIZE.pack(rebalance_ms, session_ms, len(subscription)),
            subscription,
            _INT.pack(len(assignment)),
            assignment,
        )
    return RecordToWrite(group_key(group_id), b"".join(parts))


def group_tombstone(group_id: str) -> RecordToWrite:
    return RecordToWrite(group_key(group_id), None)


class _Reader:
    """Reads the classic and, from version 4 on, the flexible encoding."""

    __slots__ = ("data", "flexible", "pos")

    def __init__(self, data: bytes, pos: int, flexible: bool) -> None:
        self.data = data
        self.pos = pos
        self.flexible = flexible

    def fixed(self, kind: struct.Struct) -> int:
        value: int = kind.unpack_from(self.data, self.pos)[0]
        self.pos += kind.size
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, size: int) -> bytes:
        end = self.pos + size
        if size < 0 or end > len(self.data):
            raise BadRecord(f"a field of {size} bytes at {self.pos} does not fit into {len(self.data)}")
        taken = self.data[self.pos : end]
        self.pos = end
        return bytes(taken)

    def nullable_string(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.fixed(_SHORT)
        return None if size == -1 else self._take(size).decode()

    def string(self) -> str:
        return self.nullable_string() or ""

    def bytes_(self) -> bytes:
        size = self.varint() - 1 if self.flexible else self.fixed(_INT)
        return self._take(size)

    def count(self) -> int:
        return self.varint() - 1 if self.flexible else self.fixed(_INT)

    def skip_tags(self) -> None:
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self._take(self.varint())


@lru_cache(maxsize=4096)
def _group_and_topic(start: bytes) -> tuple[str, str] | None:
    """What `_offset_key_start` was made of; None if something else follows."""
    read = _Reader(start, 2, flexible=False)
    found = read.string(), read.string()
    return found if read.pos == len(start) else None


def decode_key(key: bytes) -> OffsetKey | GroupKey | int:
    """What the record is about; for kinds that are not served here only the key's version."""
    try:
        version: int = _SHORT.unpack_from(key)[0]
        if version in (0, OFFSET_KEY):
            found = _group_and_topic(bytes(key[:-4]))
            if found is not None:
                return OffsetKey(*found, _INT.unpack_from(key, len(key) - 4)[0])
        read = _Reader(key, 2, flexible=False)
        if version in (0, OFFSET_KEY):
            return OffsetKey(read.string(), read.string(), read.fixed(_INT))
        if version == GROUP_KEY:
            return GroupKey(read.string())
        return version
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadRecord(f"a key that cannot be read ({error}): {key[:80]!r}") from error


def _start(value: bytes, what: str) -> tuple[int, _Reader]:
    version: int = _SHORT.unpack_from(value)[0]
    if not 0 <= version <= NEWEST_VALUE_VERSION:
        raise BadRecord(
            f"{what} has value version {version}, known are 0 to {NEWEST_VALUE_VERSION}: "
            "the log was written by a newer version, start that one"
        )
    return version, _Reader(value, 2, flexible=version >= 4)


def decode_offset(value: bytes) -> CommittedOffset:
    if len(value) == _OFFSET_V3_PLAIN.size:
        version, offset, leader_epoch, metadata_size, committed = _OFFSET_V3_PLAIN.unpack(value)
        if version == OFFSET_VALUE_VERSION and not metadata_size:
            return CommittedOffset(offset, leader_epoch, "", committed, -1)
    try:
        version, read = _start(value, "an offset commit")
        offset = read.fixed(_LONG)
        leader_epoch = read.fixed(_INT) if version >= 3 else -1
        metadata = read.string()
        committed = read.fixed(_LONG)
        expires = read.fixed(_LONG) if version == 1 else -1
        return CommittedOffset(offset, leader_epoch, metadata, committed, expires)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadRecord(f"an offset commit that cannot be read ({error})") from error


def decode_group(value: bytes) -> GroupMetadata:
    try:
        version, read = _start(value, "a group")
        protocol_type = read.string()
        generation_id = read.fixed(_INT)
        protocol_name, leader = read.nullable_string(), read.nullable_string()
        state_timestamp_ms = read.fixed(_LONG) if version >= 2 else -1
        members = tuple(_member(read, version) for _ in range(read.count()))
        return GroupMetadata(protocol_type, generation_id, protocol_name, leader, state_timestamp_ms, members)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadRecord(f"a group that cannot be read ({error})") from error


def _member(read: _Reader, version: int) -> MemberMetadata:
    member_id = read.string()
    group_instance_id = read.nullable_string() if version >= 3 else None
    client_id, client_host = read.string(), read.string()
    rebalance_timeout_ms = read.fixed(_INT) if version >= 1 else -1
    session_timeout_ms = read.fixed(_INT)
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = session_timeout_ms
    subscription, assignment = read.bytes_(), read.bytes_()
    read.skip_tags()
    return MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
