"""`__consumer_offsets` as tables: what a record says, and what follows from a group's records in their order. Pure.

A record is a commit, a generation of a classic group, or something else: records of other kinds of groups and records
that cannot be read are kept aside with what is wrong with them. The layouts are those of spec/offsets-topic.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort.client.group.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from kohort.client.types import TopicPartition
from kohort.wire.errors import BadFrame

COMMIT, COMMIT_DELETED = "commit", "commit deleted"
GENERATION, GROUP_DELETED = "generation", "group deleted"
UNKNOWN, BAD = "unknown", "bad"

NEWEST_VALUE = 4
FLEXIBLE_SINCE = 4
# Key versions that are not decoded here, and what they are.
OTHER_KINDS = {
    3: "the epoch of a group (KIP-848)",
    4: "the topics of a group (KIP-848)",
    5: "a member (KIP-848)",
    6: "the target assignment's epoch (KIP-848)",
    7: "a target assignment (KIP-848)",
    8: "a current assignment (KIP-848)",
    16: "a resolved regular expression (KIP-848)",
    **dict.fromkeys(range(9, 16), "of a share group"),
    **dict.fromkeys(range(17, 25), "of a streams group"),
}


# --- one record ---------------------------------------------------------------------------------------


class BadRecord(ValueError):
    """Bytes that are not what their version says."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    assigned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """What one record says. Fields that its kind does not have are None."""

    kind: str
    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    committed_offset: int | None = None
    leader_epoch: int | None = None
    metadata: str | None = None
    committed_ms: int | None = None
    expires_ms: int | None = None
    protocol_type: str | None = None
    generation: int | None = None
    protocol: str | None = None
    leader: str | None = None
    state_since_ms: int | None = None
    members: tuple[GroupMember, ...] | None = None
    key_version: int | None = None
    problem: str | None = None


class _Reader:
    """The classic encoding, and the flexible one of version 4."""

    def __init__(self, data: bytes, flexible: bool = False) -> None:
        self._data, self._at, self._flexible = data, 2, flexible

    def number(self, layout: str) -> int:
        value: int = struct.unpack_from(layout, self._data, self._at)[0]
        self._at += struct.calcsize(layout)
        return value

    def int32(self) -> int:
        return self.number(">i")

    def int64(self) -> int:
        return self.number(">q")

    def nullable_string(self) -> str | None:
        data = self._sized(">h")
        return None if data is None else data.decode()

    def string(self) -> str:
        return self.nullable_string() or ""

    def blob(self) -> bytes:
        return self._sized(">i") or b""

    def count(self) -> int:
        return self._varint() - 1 if self._flexible else self.int32()

    def skip_tags(self) -> None:
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def _sized(self, layout: str) -> bytes | None:
        size = self._varint() - 1 if self._flexible else self.number(layout)
        return None if size == -1 else self._take(size)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise BadRecord(f"a field of {size} bytes at {self._at} does not fit into {len(self._data)}")
        taken, self._at = self._data[self._at : end], end
        return taken

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BadRecord(f"a number at {self._at} that does not end")


def decode_event(key: bytes | None, value: bytes | None) -> Event:
    """What a record says; never raises: what cannot be read is an event of kind BAD, with the reason."""
    version: int | None = None
    try:
        if key is None:
            raise BadRecord("a record without a key")
        version = struct.unpack_from(">h", key)[0]
        return _decoded(version, bytes(key), None if value is None else bytes(value))
    except (BadRecord, struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        return Event(BAD, key_version=version, problem=str(error))


def _decoded(version: int, key: bytes, value: bytes | None) -> Event:
    read = _Reader(key)
    if version in (0, 1):
        group_id, topic, partition = read.string(), read.string(), read.int32()
        if value is None:
            return Event(COMMIT_DELETED, group_id, topic, partition, key_version=version)
        return _commit(version, group_id, topic, partition, value)
    if version == 2:
        group_id = read.string()
        if value is None:
            return Event(GROUP_DELETED, group_id, members=(), key_version=version)
        return _generation(group_id, value)
    what = OTHER_KINDS.get(version)
    if what is None:
        return Event(UNKNOWN, key_version=version, problem=f"key version {version} is not known")
    return Event(UNKNOWN, read.string(), key_version=version, problem=what)


def _value(value: bytes) -> tuple[int, _Reader]:
    version: int = struct.unpack_from(">h", value)[0]
    if not 0 <= version <= NEWEST_VALUE:
        raise BadRecord(f"value version {version} is not known; known are 0 to {NEWEST_VALUE}")
    return version, _Reader(value, version >= FLEXIBLE_SINCE)


def _commit(key_version: int, group_id: str, topic: str, partition: int, value: bytes) -> Event:
    version, read = _value(value)
    offset = read.int64()
    leader_epoch = read.int32() if version >= 3 else -1
    metadata, committed_ms = read.string(), read.int64()
    expires_ms = read.int64() if version == 1 else -1
    return Event(
        COMMIT, group_id, topic, partition, offset, None if leader_epoch < 0 else leader_epoch, metadata,
        committed_ms, None if expires_ms < 0 else expires_ms, key_version=key_version,
    )  # fmt: skip


def _generation(group_id: str, value: bytes) -> Event:
    version, read = _value(value)
    protocol_type, generation = read.string(), read.int32()
    protocol, leader = read.nullable_string(), read.nullable_string()
    state_since_ms = read.int64() if version >= 2 else -1
    members = tuple([_member(read, version, protocol_type) for _ in range(read.count())])
    return Event(
        GENERATION, group_id, protocol_type=protocol_type, generation=generation, protocol=protocol, leader=leader,
        state_since_ms=None if state_since_ms < 0 else state_since_ms, members=members, key_version=2,
    )  # fmt: skip


def _member(read: _Reader, version: int, protocol_type: str) -> GroupMember:
    member_id = read.string()
    instance = read.nullable_string() if version >= 3 else None
    client_id, client_host = read.string(), read.string()
    rebalance_timeout_ms = read.int32() if version >= 1 else -1
    session_timeout_ms = read.int32()
    read.blob()  # the subscription
    assignment = read.blob()
    read.skip_tags()
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = session_timeout_ms
    return GroupMember(
        member_id, instance, client_id, client_host, rebalance_timeout_ms, session_timeout_ms,
        _assigned(assignment) if protocol_type == PROTOCOL_TYPE else (),
    )  # fmt: skip


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Members may speak another protocol than Kafka's consumers: then nobody can say what they own."""
    try:
        return decode_assignment(assignment).partitions if assignment else ()
    except (BadFrame, ValueError):
        return ()


# --- a group's records in their order -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Generation:
    """A group record, with the time it was written. `generation` is None where the group was deleted."""

    written_ms: int
    generation: int | None
    protocol: str | None = None
    leader: str | None = None
    state_since_ms: int | None = None
    members: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Ownership:
    """A member, and a partition that it had for some time. Partition None: the member had none."""

    member: GroupMember
    partition: TopicPartition | None
    from_ms: int
    until_ms: int | None
    """None if the member still has it."""
    first_generation: int
    last_generation: int


@dataclass(frozen=True, slots=True)
class GenerationChange:
    """A new generation of a group, and what it changed."""

    generation_before: int | None
    generation: int
    completed_ms: int
    sync_ms: int | None
    """From the end of the join phase until the assignment was written; None where the record does not say."""
    members: int
    came: tuple[str, ...] = ()
    went: tuple[str, ...] = ()
    moved: tuple[TopicPartition, ...] = ()
    """Partitions that another member, or nobody, had before."""


def ownerships(generations: Sequence[Generation]) -> list[Ownership]:
    """Who owned which partition when. A partition that is kept through several generations is one ownership."""
    ended: list[Ownership] = []
    current: dict[tuple[str, TopicPartition | None], _Open] = {}
    for each in generations:
        owned = {
            (member.member_id, partition): member
            for member in each.members
            for partition in (member.assigned or (None,))
        }
        gone = [key for key in current if key not in owned]
        ended += [current.pop(key).ended(key[1], each.written_ms) for key in gone]
        for key, member in owned.items():
            generation = each.generation or 0
            known = current.setdefault(key, _Open(member, each.written_ms, generation, generation))
            known.member, known.last = member, generation
    ended += [known.ended(key[1], None) for key, known in current.items()]
    return sorted(ended, key=lambda own: (own.from_ms, own.partition or ("", -1), own.member.member_id))


@dataclass(slots=True)
class _Open:
    member: GroupMember
    from_ms: int
    first: int
    last: int

    def ended(self, partition: TopicPartition | None, until_ms: int | None) -> Ownership:
        return Ownership(self.member, partition, self.from_ms, until_ms, self.first, self.last)


def rebalances(generations: Sequence[Generation]) -> list[GenerationChange]:
    """Each generation that differs from the one before.

    A record that only repeats a generation is none, and neither is that of a new group without members.
    """
    found: list[GenerationChange] = []
    before: Generation | None = None
    for each in generations:
        last = None if before is None else before.generation
        is_another = each.generation != last if last is not None else bool(each.members)
        if each.generation is not None and is_another:
            found.append(_rebalance(before, each))
        before = each
    return found


def _rebalance(before: Generation | None, now: Generation) -> GenerationChange:
    assert now.generation is not None, "a group that was deleted has no generation"
    had = {m.member_id for m in before.members} if before is not None else set()
    has = {m.member_id for m in now.members}
    old, new = (_owners(before) if before is not None else {}), _owners(now)
    sync_ms = None
    if now.members and now.state_since_ms is not None:
        sync_ms = max(0, now.written_ms - now.state_since_ms)
    return GenerationChange(
        None if before is None else before.generation, now.generation, now.written_ms, sync_ms, len(now.members),
        tuple(sorted(has - had)), tuple(sorted(had - has)),
        tuple(sorted(partition for partition, owner in new.items() if old.get(partition) != owner)),
    )  # fmt: skip


def _owners(generation: Generation) -> dict[TopicPartition, str]:
    return {partition: member.member_id for member in generation.members for partition in member.assigned}


# --- lag over time ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LagRow:
    group_id: str
    partition: TopicPartition
    at_ms: int
    committed_offset: int
    log_end_offset: int
    lag: int


@dataclass(slots=True)
class CommitHistory:
    """The commits of one group to one partition, by time. An offset of None: the commit was deleted."""

    times_ms: list[int] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)

    def at(self, at_ms: int) -> int | None:
        """The offset that was committed at a time."""
        place = bisect_right(self.times_ms, at_ms)
        return self.offsets[place - 1] if place else None


def sample_times(first_ms: int, last_ms: int, count: int) -> list[int]:
    """Times from the first to the last, both included; fewer than `count` where the two are close together."""
    span = max(0, last_ms - first_ms)
    steps = min(max(1, count - 1), span) or 1
    return sorted({first_ms + span * step // steps for step in range(steps + 1)})


def lag_rows(
    commits: Mapping[tuple[str, TopicPartition], CommitHistory],
    ends: Mapping[int, Mapping[TopicPartition, int]],
) -> Iterator[LagRow]:
    """How far each group was behind at each time for which the ends of the logs are known."""
    for (group_id, partition), known in sorted(commits.items()):
        for at_ms, offsets in sorted(ends.items()):
            committed, end = known.at(at_ms), offsets.get(partition)
            if committed is not None and end is not None:
                yield LagRow(group_id, partition, at_ms, committed, end, max(0, end - committed))


def commits_by_partition(
    rows: Iterable[tuple[str, str, int, int, int | None]],
) -> dict[tuple[str, TopicPartition], CommitHistory]:
    """Collects rows of group, topic, partition, time and offset, which come in the order of the log."""
    found: dict[tuple[str, TopicPartition], CommitHistory] = {}
    for group_id, topic, partition, at_ms, offset in rows:
        commits = found.setdefault((group_id, TopicPartition(topic, partition)), CommitHistory())
        # A clock that went back must not hide a commit that came later.
        commits.times_ms.append(max([at_ms, *commits.times_ms[-1:]]))
        commits.offsets.append(offset)
    return found


def as_fields(event: Event) -> dict[str, Any]:
    """The fields of an event as plain values, for a column of structs."""
    fields = {name: getattr(event, name) for name in Event.__slots__}
    if event.members is not None:
        fields["members"] = [
            {
                **{name: getattr(member, name) for name in GroupMember.__slots__},
                "assigned": [
                    {"topic": topic, "partition": partition} for topic, partition in member.assigned
                ],
            }
            for member in event.members
        ]
    return fields
