"""`__consumer_offsets` as tables: what a record says, and what follows from a group's records in their order. Pure.

A record is a commit, a generation of a classic group, or something else: records of other kinds of groups and records
that cannot be read are kept aside with what is wrong with them. The layouts are those of spec/offsets-topic.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort.client.types import TopicPartition
from kohort.wire.compiler.compile import data_codec
from kohort.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from kohort.wire.errors import BadFrame, BadRecord
from kohort.wire.group_records import (
    GROUP_METADATA,
    RECORD_TYPES,
    decode_group_metadata,
    decode_key,
    decode_offset_commit,
)
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import MemberMetadata
from kohort.wire.messages.offset_commit_key import OffsetCommitKey

COMMIT, COMMIT_DELETED = "commit", "commit deleted"
GENERATION, GROUP_DELETED = "generation", "group deleted"
UNKNOWN, BAD = "unknown", "bad"

# Other groups whose records are recognized and not decoded, by how Kafka's names of such records begin.
OTHER_GROUPS = {
    "ConsumerGroup": "a consumer group of KIP-848",
    "ShareGroup": "a share group",
    "StreamsGroup": "a streams group",
}


# --- one record ---------------------------------------------------------------------------------------


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


def decode_event(key: bytes | None, value: bytes | None) -> Event:
    """What a record says. It never raises: a record that cannot be read is an event of kind BAD, with the reason."""
    if key is None:
        return Event(BAD, problem="a record without a key")
    record_type = int.from_bytes(key[:2], "big", signed=True) if len(key) >= 2 else None
    try:
        found = decode_key(key)
        if isinstance(found, OffsetCommitKey):
            return _commit(record_type, found, value)
        if isinstance(found, GroupMetadataKey):
            return _generation(found.group, value)
        name = RECORD_TYPES.get(found)
        if name is None:
            return Event(UNKNOWN, key_version=found, problem=f"key version {found} is not known")
        group = next(words for start, words in OTHER_GROUPS.items() if name.startswith(start))
        # The key of every type begins with the group.
        return Event(UNKNOWN, _group_of(key), key_version=found, problem=f"a record {name} of {group}")
    except (BadRecord, BadFrame) as error:
        return Event(BAD, key_version=record_type, problem=str(error))


def _group_of(key: bytes) -> str:
    found: GroupMetadataKey = data_codec("group_metadata_key", 0).decode(key)
    return found.group


def _commit(record_type: int | None, key: OffsetCommitKey, value: bytes | None) -> Event:
    if value is None:
        return Event(COMMIT_DELETED, *key, key_version=record_type)
    offset, leader_epoch, metadata, committed_ms, expires_ms, _ = decode_offset_commit(value)
    return Event(
        COMMIT, *key, offset, None if leader_epoch < 0 else leader_epoch, metadata,
        committed_ms, None if expires_ms < 0 else expires_ms, key_version=record_type,
    )  # fmt: skip


def _generation(group_id: str, value: bytes | None) -> Event:
    if value is None:
        return Event(GROUP_DELETED, group_id, members=(), key_version=GROUP_METADATA)
    group = decode_group_metadata(value)
    state_since_ms = group.current_state_timestamp_ms
    return Event(
        GENERATION, group_id, protocol_type=group.protocol_type, generation=group.generation,
        protocol=group.protocol, leader=group.leader,
        state_since_ms=None if state_since_ms < 0 else state_since_ms,
        members=tuple([_member(member, group.protocol_type) for member in group.members]),
        key_version=GROUP_METADATA,
    )  # fmt: skip


def _member(member: MemberMetadata, protocol_type: str) -> GroupMember:
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host,
        member.rebalance_timeout_ms, member.session_timeout_ms,
        _assigned(member.assignment) if protocol_type == PROTOCOL_TYPE else (),
    )  # fmt: skip


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that a member owns; none if it speaks another protocol than Kafka's consumers."""
    if not assignment:
        return ()
    try:
        topics = decode_assignment(assignment).assigned_partitions
    except BadFrame:
        return ()
    return tuple([TopicPartition(topic, number) for topic, numbers in topics for number in numbers])


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
