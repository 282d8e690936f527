"""What the records of a group in `__consumer_offsets` tell about its rebalances, and what they do not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kohort.client.consumer import Consumer
from kohort.client.types import TopicPartition
from kohort.coordinator.history import EMPTY, STABLE, Rebalance
from kohort.wire import group_records as wire
from kohort.wire.consumer_protocol import BadConsumerProtocol, decode_subscription
from kohort.wire.errors import BadRecord
from kohort.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kohort.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kohort.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

OFFSETS_TOPIC = "__consumer_offsets"
ENOUGH = 10
"""A reader that has found so many rebalances goes no further back."""
FIRST_RECORDS, FURTHER = 20_000, 8
"""The last so many records are read first, then so many times more."""
MOST_BYTES = 64 << 20
LONGEST_S = 10.0
POLL_S = 1.0
_GROUP_TYPES = tuple(
    number.to_bytes(2, "big")
    for number in (
        wire.GROUP_METADATA,
        wire.CONSUMER_GROUP_METADATA,
        wire.CONSUMER_GROUP_MEMBER,
        wire.CONSUMER_GROUP_TARGET_MEMBER,
    )
)
UNKNOWN = (
    "Why a member went: it left, it sent no heartbeat for session.timeout.ms, or it did not poll for"
    " max.poll.interval.ms. The member's own log says which.",
    "Who caused a rebalance in which nobody came and nobody went.",
    "When a rebalance began, how long joining and syncing took, and who was late: the time shown is when the new"
    " assignment was written.",
    "Rebalances that another one interrupted before there was an assignment: only a gap in the generations shows them.",
)


@dataclass(slots=True)
class LogReading:
    """Takes the records of a group one by one and makes rebalances of them."""

    group_id: str
    rebalances: list[Rebalance] = field(default_factory=list)
    _before: GroupMetadataValue | None = None
    _epoch: int | None = None
    _members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    _came: dict[str, str] = field(default_factory=dict)
    _went: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0
    unknown: tuple[str, ...] = ()

    def take(self, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        """Takes a record of the group's partition; those of other groups and all commits are passed over."""
        if key is None or bytes(key[:2]) not in _GROUP_TYPES:
            return
        try:
            record_type = wire.modern_record_type(key)
            if record_type is not None:
                found = wire.decode_modern_key(key)
                if found.group_id == self.group_id:
                    decoded = None if value is None else wire.decode_modern_value(record_type, value)
                    self._consumer_group(found, decoded, at_ms)
                return
            classic = wire.decode_key(key)
            if isinstance(classic, GroupMetadataKey) and classic.group == self.group_id:
                self._classic(None if value is None else wire.decode_group_metadata(value), at_ms)
        except BadRecord:
            self.unreadable += 1

    # --- classic groups -------------------------------------------------------------------------------

    def _classic(self, group: GroupMetadataValue | None, at_ms: int) -> None:
        before, self._before = self._before, group
        if group is None:
            if before is not None:
                why = "the group was deleted, or it expired"
                self._add(Rebalance(0, at_ms, before.generation, "", why, EMPTY, before.generation))
            return
        if group.generation == 0 and not group.members:
            return  # the birth of the group
        old = {} if before is None else _by_name(before.members)
        new = _by_name(group.members)
        came = [member for name, member in new.items() if name not in old]
        went = [member for name, member in old.items() if name not in new]
        moved = [
            name
            for name, member in new.items()
            if bytes(member.assignment) != (bytes(old[name].assignment) if name in old else b"")
        ]
        generation_before = max(0, group.generation - 1) if before is None else before.generation
        self._add(
            Rebalance(
                number=0,
                began_ms=at_ms,
                generation_before=generation_before,
                member_id="",
                reason="; ".join(_conclusions(before, group, came, went)),
                outcome=STABLE if group.members else EMPTY,
                generation_after=group.generation,
                size=len(group.members),
                came=tuple(member.member_id for member in came) if before is not None else (),
                went=tuple((member.member_id, "the reason is not on record") for member in went),
                moved=tuple(moved) if before is not None else (),
            )
        )

    # --- consumer groups (KIP-848) --------------------------------------------------------------------

    def _consumer_group(self, key: Any, value: Any, at_ms: int) -> None:
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            self._member(key.member_id, value)
        elif isinstance(key, ConsumerGroupMetadataKey):
            if value is not None:
                self._new_epoch(value.epoch, at_ms)
        elif value is not None and self.rebalances and self._epoch is not None:
            # The target assignment is written after its epoch.
            last = self.rebalances[-1]
            if key.member_id not in last.moved:
                self.rebalances[-1] = replace(last, moved=(*last.moved, key.member_id))

    def _member(self, member_id: str, member: ConsumerGroupMemberMetadataValue | None) -> None:
        if member is None:
            gone = self._members.pop(member_id, None)
            self._went[member_id] = "" if gone is None else f"{gone.client_id} at {gone.client_host}"
            return
        if member_id not in self._members:
            self._came[member_id] = f"{member.client_id} at {member.client_host}"
        self._members[member_id] = member

    def _new_epoch(self, epoch: int, at_ms: int) -> None:
        reasons = [f"{_count(len(self._came), 'member')} came: {_listed(self._came.values())}"] * bool(
            self._came
        )
        if self._went:
            reasons.append(f"{_count(len(self._went), 'member')} went: {_listed(self._went.values())}")
        if not reasons:
            reasons.append(
                "nobody came and nobody went: a member has changed, or the partitions of a topic have"
            )
        self._add(
            Rebalance(
                number=0,
                began_ms=at_ms,
                generation_before=max(0, epoch - 1) if self._epoch is None else self._epoch,
                member_id="",
                reason="; ".join(reasons),
                outcome=STABLE if self._members else EMPTY,
                generation_after=epoch,
                size=len(self._members),
                came=tuple(self._came),
                went=tuple((member_id, "the reason is not on record") for member_id in self._went),
            )
        )
        self._epoch, self._came, self._went = epoch, {}, {}

    def _add(self, rebalance: Rebalance) -> None:
        self.rebalances.append(replace(rebalance, number=len(self.rebalances)))


# --- conclusions ----------------------------------------------------------------------------------------


def _conclusions(
    before: GroupMetadataValue | None,
    group: GroupMetadataValue,
    came: Sequence[MemberMetadata],
    went: Sequence[MemberMetadata],
) -> list[str]:
    """Says what must have happened between two generations."""
    if before is None:
        return [f"the first generation on record, with {_count(len(group.members), 'member')}"]
    if not group.members:
        return ["the last member went"]
    told = _restarts(came, went)
    again = {id(member) for pair in _pairs(came, went) for member in pair}
    fresh = [member for member in came if id(member) not in again]
    gone = [member for member in went if id(member) not in again]
    if fresh:
        told.append(f"{_count(len(fresh), 'member')} came: {_listed(map(_who, fresh))}")
    if gone:
        told.append(f"{_count(len(gone), 'member')} went: {_listed(map(_who, gone))}")
    told += _changes(before, group)
    if not told:
        told.append(
            "the same members joined again: the leader saw a topic's partitions change, a member asked for it, or one"
            " was late and came back"
        )
    if (lost := group.generation - before.generation - 1) > 0:
        told.append(f"{_count(lost, 'generation')} before this one got no assignment: they were interrupted")
    return told


def _restarts(came: Sequence[MemberMetadata], went: Sequence[MemberMetadata]) -> list[str]:
    pairs = _pairs(came, went)
    if not pairs:
        return []
    names = _listed(_who(new) for new, _ in pairs)
    return [
        f"{names} came anew in place of {_count(len(pairs), 'member')} of the same client.id and host:"
        " restarted, or thrown out and joined again"
    ]


def _pairs(
    came: Sequence[MemberMetadata], went: Sequence[MemberMetadata]
) -> list[tuple[MemberMetadata, MemberMetadata]]:
    """Pairs members that came with those of the same client.id and host that went."""
    left: dict[tuple[str, str], list[MemberMetadata]] = {}
    for member in went:
        left.setdefault((member.client_id, member.client_host), []).append(member)
    return [
        (member, same.pop()) for member in came if (same := left.get((member.client_id, member.client_host)))
    ]


def _changes(before: GroupMetadataValue, group: GroupMetadataValue) -> list[str]:
    told = []
    if before.members and before.protocol != group.protocol:
        told.append(f"the assignor changed from {before.protocol} to {group.protocol}")
    old, new = _by_name(before.members), _by_name(group.members)
    back = [
        _who(member)
        for name, member in new.items()
        if name in old and old[name].member_id != member.member_id
    ]
    if back:
        quietly = " without a rebalance" if before.generation == group.generation else ""
        told.append(f"{_listed(back)} came back as a static member{quietly}")
    changed = [
        _who(member) for name, member in new.items() if name in old and _topics(old[name]) != _topics(member)
    ]
    if changed:
        told.append(f"{_listed(changed)} changed the subscription")
    return told


def _topics(member: MemberMetadata) -> frozenset[str] | None:
    """The topics of a subscription; the rest of it changes with each assignment. None if it is no consumer's."""
    try:
        return frozenset(decode_subscription(member.subscription).topics)
    except BadConsumerProtocol:
        return None


def _by_name(members: Iterable[MemberMetadata]) -> Mapping[str, MemberMetadata]:
    """Members by instance id where there is one: a static member that restarts has another member id."""
    return {member.group_instance_id or member.member_id: member for member in members}


def _who(member: MemberMetadata) -> str:
    return f"{member.group_instance_id or member.client_id} at {member.client_host.lstrip('/')}"


def _listed(names: Iterable[str], most: int = 5) -> str:
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# --- reading --------------------------------------------------------------------------------------------


class TailReader:
    """Reads the end of a partition of `__consumer_offsets`, and more of it until enough rebalances are found.

    It reads at most MOST_BYTES, for at most LONGEST_S: a busy partition holds a hundred megabytes of commits.
    """

    def __init__(
        self, consumer: Consumer, partition: TopicPartition, group_id: str, begin: int, end: int
    ) -> None:
        self._consumer, self._partition, self._group_id = consumer, partition, group_id
        self._begin, self._end = begin, end
        self._bytes = 0
        self._deadline_s = time.monotonic() + LONGEST_S

    def read(self) -> LogReading:
        """Returns the rebalances that the read part tells of, and what is not known."""
        self._consumer.assign([self._partition])
        reach = FIRST_RECORDS
        start = max(self._begin, self._end - reach)
        reading, is_whole = self._read_from(start)
        while is_whole and start > self._begin and len(reading.rebalances) < ENOUGH and not self._spent():
            reach *= FURTHER
            further = max(self._begin, self._end - reach)
            more, is_whole = self._read_from(further)
            if is_whole:
                start, reading = further, more
        reading.unknown = (*UNKNOWN, *self._missing(start, is_whole, reading))
        return reading

    def _read_from(self, start: int) -> tuple[LogReading, bool]:
        """Reads from an offset to the end; False if time or bytes were up before."""
        reading = LogReading(self._group_id)
        self._consumer.seek(self._partition, start)
        while self._consumer.position(self._partition) < self._end:
            for records in self._consumer.poll(POLL_S).values():
                for record in records:
                    self._bytes += len(record.key or b"") + len(record.value or b"")
                    reading.take(record.key, record.value, record.timestamp)
            if self._spent():
                return reading, False
        return reading, True

    def _spent(self) -> bool:
        return self._bytes > MOST_BYTES or time.monotonic() > self._deadline_s

    def _missing(self, start: int, is_whole: bool, reading: LogReading) -> list[str]:
        told = []
        if not is_whole and not reading.rebalances:
            told.append(
                f"What {self._partition} holds at its end: it was too much to be read in {LONGEST_S:.0f} s."
            )
        elif start > self._begin:
            told.append(
                f"What is before offset {start} of {self._partition}: only the end of the partition was read."
            )
        if self._begin > 0 or (reading.rebalances and (reading.rebalances[0].generation_after or 0) > 1):
            told.append(
                "Older generations: compaction keeps the last record of a group only, in all but the newest segment."
            )
        if reading.unreadable:
            told.append(f"{reading.unreadable} records of a newer version of Kafka, which could not be read.")
        return told
