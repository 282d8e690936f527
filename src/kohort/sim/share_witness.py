"""What must be true of a share partition, whatever happens: kept by someone who sees requests and answers alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.share.partition import AcquiredRange, ShareLimits, SharePartition
from kohort.share.record_state import ACKNOWLEDGED, ACQUIRED, DONE
from kohort.sim.invariants import Broken


@dataclass(slots=True)
class WitnessedDelivery:
    """The last time that a record was handed out."""

    member_id: str
    delivery_count: int
    deadline_ms: int
    is_over: bool = False
    """It was acknowledged or released, or its leader is gone."""


@dataclass(slots=True)
class ShareWitness:
    """Sees each delivery and each answer, and raises Broken when they cannot both be true."""

    limits: ShareLimits
    last: dict[int, WitnessedDelivery] = field(default_factory=dict)
    accepted: set[int] = field(default_factory=set)
    """Records whose acknowledgement was answered: accepted, rejected, or a gap."""
    unsure: set[int] = field(default_factory=set)
    """Records that were acknowledged, but the leader was gone before it answered: both outcomes are right."""
    missing: set[int] = field(default_factory=set)
    """Offsets that the log does not have any more."""
    aborted: set[int] = field(default_factory=set)
    start_offset: int = 0
    deliveries: int = 0

    def delivered(self, member_id: str, acquired: Iterable[AcquiredRange], now_ms: int) -> None:
        before = -1
        for first, last, count in acquired:
            _must(before < first <= last, f"acquired {first}-{last} after {before}")
            before = last
            for offset in range(first, last + 1):
                self._delivered_one(member_id, offset, count, now_ms)

    def _delivered_one(self, member_id: str, offset: int, count: int, now_ms: int) -> None:
        where = f"offset {offset} for {member_id} at {now_ms}"
        known = self.last.get(offset)
        _must(offset >= self.start_offset, f"{where}: below the start {self.start_offset}")
        _must(offset not in self.accepted, f"{where}: delivered after its acknowledgement was answered")
        _must(offset not in self.aborted, f"{where}: a record of an aborted transaction")
        _must(1 <= count <= self.limits.delivery_count_limit, f"{where}: delivery {count}")
        if known is not None and not known.is_over:
            _must(
                known.deadline_ms <= now_ms, f"{where}: {known.member_id} holds it until {known.deadline_ms}"
            )
            _must(
                count == known.delivery_count + 1, f"{where}: delivery {count} after {known.delivery_count}"
            )
        self.last[offset] = WitnessedDelivery(member_id, count, now_ms + self.limits.record_lock_ms)
        self.deliveries += 1

    def may_acknowledge(self, member_id: str, offset: int, now_ms: int) -> bool:
        """Tells whether an acknowledgement of a record must be taken, if its write succeeds."""
        known = self.last.get(offset)
        return (
            known is not None
            and not known.is_over
            and known.member_id == member_id
            and known.deadline_ms > now_ms
        )

    def acknowledged(self, offset: int, is_final: bool) -> None:
        """Hears that an acknowledgement was answered without an error."""
        if is_final:
            self.accepted.add(offset)
        if offset in self.last:
            # Nobody holds it. If it is delivered again, the next delivery counts one more.
            self.last[offset].deadline_ms = 0

    def renewed(self, offset: int, now_ms: int) -> None:
        self.last[offset].deadline_ms = now_ms + self.limits.record_lock_ms

    def leader_lost(self) -> None:
        """All that was held is free again, with the count that was last written."""
        for delivery in self.last.values():
            delivery.is_over = True

    def altered(self, start_offset: int) -> None:
        """The group's offsets were set: records from there on are delivered anew."""
        self.start_offset = start_offset
        self.accepted = {offset for offset in self.accepted if offset < start_offset}
        self.unsure = set()
        self.last = {}

    def check(self, part: SharePartition, now_ms: int, most_in_a_batch: int) -> None:
        """Compares the state of the leader with what was seen."""
        start = part.start_offset
        _must(start >= self.start_offset, f"the start fell from {self.start_offset} to {start}")
        for offset in range(self.start_offset, start):
            self._done(offset, now_ms)
        self.start_offset = start
        at_most = self.limits.max_record_locks + most_in_a_batch
        in_flight = sum(offset not in self.missing for offset in range(start, part.end_offset + 1))
        _must(in_flight <= at_most, f"{in_flight} in flight, at most {at_most}")
        expected = start
        for info in part.records:
            _must(info.first == expected, f"a hole before {info.first}")
            expected = info.last + 1
            if info.state is ACQUIRED and not info.is_pending:
                _must(info.deadline_ms > now_ms, f"{info.first}-{info.last} is locked after its time")
                _must(info.delivery_count >= 1, f"{info.first}-{info.last} is held and was never delivered")
            if info.state is ACKNOWLEDGED and not info.is_pending:
                known = self.accepted | self.unsure
                told = [offset for offset in range(info.first, info.last + 1) if offset not in known]
                _must(not told, f"{told} were acknowledged by nobody")

    def _done(self, offset: int, now_ms: int) -> None:
        """The start has moved over an offset: there must be a reason."""
        known = self.last.get(offset)
        at_the_limit = known is not None and known.delivery_count >= self.limits.delivery_count_limit
        is_right = (
            offset in self.accepted
            or offset in self.unsure
            or offset in self.missing
            or offset in self.aborted
            or at_the_limit
        )
        _must(is_right, f"the start moved over {offset}, which nobody has done")

    def loaded(self, part: SharePartition) -> None:
        """After a load, what was answered is still done."""
        done = {
            offset
            for info in part.records
            if info.state in DONE
            for offset in range(info.first, info.last + 1)
        }
        lost = [o for o in self.accepted if o >= part.start_offset and o not in done]
        _must(not lost, f"the acknowledgements of {lost[:5]} are lost")
        # What the log does not have, or nobody may see, was passed over without a word of it being written.
        self.start_offset = min(self.start_offset, part.start_offset)


def _must(is_true: bool, text: str) -> None:
    if not is_true:
        raise Broken(text)
