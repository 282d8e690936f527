"""The records of one partition that a share group has in flight: who holds which, and how often each was delivered.

The records from `start_offset` (SPSO) to `end_offset` (SPEO) are a list of spans without holes between them. A span is
a run of offsets in the same state. Offsets that the log does not have are spans too, archived from the beginning;
offsets between two persisted states, of which nothing is known after a load, are available and were delivered 0 times.

Nothing here waits. A method that changes what must be persisted returns a `ShareStateWrite`; the caller writes it and
tells the outcome by `written`. Until then its spans are pending: nobody acquires or acknowledges them. If the write
fails, an acknowledgement or a release is undone, but an expired lock stays expired.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.share.record_state import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    DONE,
    OUTCOMES,
    REJECT,
    RENEW,
    TRANSITIONS,
    RecordState,
)
from kohort.wire.errors import ErrorCode

_LEAST_DELIVERIES_OF_POISON: Final = 2
_RETRY_DEAD_LETTERS_MS: Final = 1000


class OffsetSpan(NamedTuple):
    """The offsets from first to last, both included."""

    first: int
    last: int


class AcquiredRange(NamedTuple):
    first: int
    last: int
    delivery_count: int


class StateBatch(NamedTuple):
    """A run of records in one state, as `__share_group_state` holds it."""

    first: int
    last: int
    state: int
    delivery_count: int


class AcknowledgedRange(NamedTuple):
    """What a consumer says of a run of records: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class DeadLetters(NamedTuple):
    """Records to copy to the dead-letter topic before they are archived."""

    first: int
    last: int
    delivery_count: int
    member_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The settings of the group that matter to a share partition; they may be others at the next call."""

    delivery_count_limit: int = 5
    record_lock_ms: int = 30_000
    max_record_locks: int = 2000
    may_renew: bool = True
    has_dead_letter_topic: bool = False

    @property
    def poison_count(self) -> int:
        """Records that were delivered this often come in smaller and smaller batches, to find the bad one."""
        return max(_LEAST_DELIVERIES_OF_POISON, -(-self.delivery_count_limit // 2))


@dataclass(eq=False, slots=True)
class ShareStateWrite:
    """What is to be persisted: some states, and the start offset and count of done records at the time of the call."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()
    dead_letters: tuple[DeadLetters, ...] = ()


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """How many records a fetch may acquire, and how."""

    max_records: int
    batch_size: int
    is_record_limit: bool = False
    """share_acquire_mode 1: never more than `max_records`, if need be a part of a batch."""


@dataclass(frozen=True, slots=True)
class Acquisition:
    acquired: tuple[AcquiredRange, ...] = ()
    write: ShareStateWrite | None = None
    """The start offset has moved although nothing was acknowledged."""

    @property
    def count(self) -> int:
        return sum(each.last - each.first + 1 for each in self.acquired)


_NOTHING: Final = Acquisition()


class _InFlightBatch:
    """Records that were first acquired together; when they fail again and again, parts of it are delivered alone."""

    __slots__ = ("first", "is_unknown", "last")

    def __init__(self, first: int, last: int, is_unknown: bool = False) -> None:
        self.first, self.last = first, last
        self.is_unknown = is_unknown  # nothing was persisted of it: it is acquired like new records

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class _Span:
    """A run of offsets in the same state. While `write` is set, `state` is where they are on their way to."""

    __slots__ = ("batch", "count", "deadline_ms", "first", "last", "member_id", "state", "write")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        count: int,
        batch: _InFlightBatch | None,
        member_id: str = "",
        deadline_ms: int = 0,
        write: ShareStateWrite | None = None,
    ) -> None:
        self.first, self.last, self.state, self.count = first, last, state, count
        self.batch = batch  # None: the log does not have these offsets
        self.member_id, self.deadline_ms = (
            member_id,
            deadline_ms,
        )  # of the lock; kept until a write has succeeded
        self.write = write

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        return self.state is AVAILABLE and self.write is None

    def is_like(self, other: _Span) -> bool:
        return (
            self.state is other.state
            and self.count == other.count
            and self.batch is other.batch
            and self.write is other.write
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
        )

    def move_to(self, state: RecordState) -> None:
        assert (self.state, state) in TRANSITIONS, f"{self.state.name} does not become {state.name}"
        self.state = state

    def free(self) -> None:
        """Ends the lock."""
        self.member_id, self.deadline_ms, self.write = "", 0, None


class RecordInfo(NamedTuple):
    """The state of a run of records, for people and tests."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    member_id: str
    deadline_ms: int
    is_pending: bool


class SharePartition:
    """The records that one share group has in flight in one partition."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """`batches` is what was persisted, in order and from `start_offset` on."""
        self.start_offset = start_offset
        self.end_offset = start_offset - 1
        self._spans: list[_Span] = []
        self._firsts: list[int] = []  # of the spans, to search by
        self._may_have_free = False
        self._deadline_ms: int | None = None
        for first, last, state, count in batches:
            assert start_offset <= first <= last, f"state {first} to {last} below the start {start_offset}"
            self._append_unknown(first - 1)
            assert first == self.end_offset + 1, f"state {first} to {last} overlaps another"
            self._append(_Span(first, last, RecordState(state), count, _InFlightBatch(first, last)))
        self._may_have_free = bool(self._spans)
        self._advance()

    def _append_unknown(self, last: int) -> None:
        first = self.end_offset + 1
        if first <= last:
            self._append(_Span(first, last, AVAILABLE, 0, _InFlightBatch(first, last, is_unknown=True)))

    # --- what it is like ---------------------------------------------------------------------------

    @property
    def records(self) -> list[RecordInfo]:
        return [
            RecordInfo(s.first, s.last, s.state, s.count, s.member_id, s.deadline_ms, s.write is not None)
            for s in self._spans
        ]

    @property
    def in_flight(self) -> int:
        return self.end_offset - self.start_offset + 1

    @property
    def delivery_complete_count(self) -> int:
        """The records above the start offset that nobody needs any more."""
        return sum(len(span) for span in self._spans if span.state in DONE)

    @property
    def next_deadline_ms(self) -> int | None:
        """When a lock may expire next: never too late, and now and then too early."""
        return self._deadline_ms

    def next_fetch_offset(self) -> int:
        """Returns the first available offset, else the one after the last that was ever acquired."""
        if self._may_have_free:
            for span in self._spans:
                if span.is_free:
                    return span.first
            self._may_have_free = False
        return self.end_offset + 1

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Tells whether a fetch makes sense: an available record is inside, or there is room for new ones."""
        return self.next_fetch_offset() <= self.end_offset or self.in_flight < limits.max_record_locks

    # --- the list of spans -------------------------------------------------------------------------

    def _append(self, span: _Span) -> None:
        assert span.first == self.end_offset + 1, "spans have no holes between them"
        self._spans.append(span)
        self._firsts.append(span.first)
        self.end_offset = span.last

    def _split(self, offset: int) -> int:
        """Lets a span begin at `offset`, and returns its index."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0:
            return 0
        span = self._spans[index]
        if span.first == offset:
            return index
        index += 1
        if offset <= span.last:
            rest = _Span(
                offset,
                span.last,
                span.state,
                span.count,
                span.batch,
                span.member_id,
                span.deadline_ms,
                span.write,
            )
            span.last = offset - 1
            self._spans.insert(index, rest)
            self._firsts.insert(index, offset)
        return index

    def _cut(self, first: int, last: int) -> list[_Span]:
        """Returns the spans of exactly these offsets, as far as they are in flight."""
        begin = self._split(first)
        return self._spans[begin : self._split(last + 1)]

    def _overlapping(self, first: int, last: int) -> Iterator[_Span]:
        """Yields the spans that have any of these offsets, whole."""
        index = max(bisect_right(self._firsts, first) - 1, 0)
        while index < len(self._spans) and self._spans[index].first <= last:
            if self._spans[index].last >= first:
                yield self._spans[index]
            index += 1

    def _join(self) -> None:
        """Joins neighbours that have become alike, so that the list stays as short as it can be."""
        spans = self._spans
        kept = spans[:1]
        for span in spans[1:]:
            before = kept[-1]
            if before.is_like(span):
                before.last = span.last
            else:
                kept.append(span)
        if len(kept) < len(spans):
            self._spans, self._firsts = kept, [span.first for span in kept]

    def _advance(self) -> bool:
        """Moves the start offset over what is done; True if it moved."""
        done = 0
        for span in self._spans:
            if span.state not in DONE or span.write is not None:
                break
            self.start_offset = span.last + 1
            done += 1
        del self._spans[:done], self._firsts[:done]
        return done > 0

    # --- acquire -----------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        fetched: Sequence[OffsetSpan],
        wanted: WantedRecords,
        limits: ShareLimits,
        now_ms: int,
        aborted: Sequence[OffsetSpan] = (),
    ) -> Acquisition:
        """Acquires records for a member. `fetched` are the batches that the log has from `fetch_offset` on.

        New records come in whole batches of the log, so the last one may go beyond `max_records`. `aborted` are the
        batches of aborted transactions among them, which are archived instead of being delivered.
        """
        if not fetched or wanted.max_records <= 0 or fetched[-1].last < self.start_offset:
            return _NOTHING
        base, last = fetched[0].first, fetched[-1].last
        before = self.start_offset
        if fetch_offset < base:
            self._archive_missing(fetch_offset, base - 1)
        room, last = self._room(fetch_offset, last, wanted.max_records, limits)
        taking = _Taking(member_id, fetched, wanted, limits, now_ms + limits.record_lock_ms, room)
        if room > 0:
            self._acquire(taking, base, last)
        acquired = taking.acquired
        if acquired:
            self._locked_until(taking.deadline_ms)
        if aborted and acquired:
            acquired = self._archive_aborted(acquired, aborted)
        self._join()
        self._advance()
        moved = self._write(()) if self.start_offset > before and not acquired else None
        return Acquisition(tuple(acquired), moved)

    def _archive_missing(self, first: int, last: int) -> None:
        """Archives what was available and the log does not have any more: it was compacted away."""
        for span in self._cut(max(first, self.start_offset), min(last, self.end_offset)):
            if span.is_free:
                span.move_to(ARCHIVED)

    def _room(self, fetch_offset: int, last: int, max_records: int, limits: ShareLimits) -> tuple[int, int]:
        """Returns how many records may be acquired, and up to which offset."""
        room = min(max_records, limits.max_record_locks - self.in_flight)
        if room <= 0 and fetch_offset <= self.end_offset:
            # All locks are taken, so only what is available inside may be acquired again.
            return min(max_records, self.end_offset - fetch_offset + 1), min(last, self.end_offset)
        return room, last

    def _acquire(self, taking: _Taking, base: int, last: int) -> None:
        known_until = self.end_offset
        for batch in self._batches_between(max(base, self.start_offset), min(last, known_until)):
            if taking.is_enough:
                return
            if batch.is_unknown:
                self._take_unknown(taking, batch, base, last)
                continue
            if self._is_poison(batch, base, last, taking.limits):
                if not taking.count:
                    self._take(taking, batch, base, last)
                if taking.count:
                    return  # alone, so that a bad record does not take the others with it
                continue
            self._take(taking, batch, base, last)
        if not taking.is_enough and known_until < last:
            self._take_new(taking, max(base, known_until + 1), last)

    def _batches_between(self, first: int, last: int) -> list[_InFlightBatch]:
        found: list[_InFlightBatch] = []
        for span in self._overlapping(first, last):
            if span.batch is not None and span.is_free and (not found or found[-1] is not span.batch):
                found.append(span.batch)
        return found

    def _is_poison(self, batch: _InFlightBatch, base: int, last: int, limits: ShareLimits) -> bool:
        first, last = max(base, batch.first), min(last, batch.last)
        counts = [s.count for s in self._overlapping(first, last) if s.is_free and s.batch is batch]
        return max(counts, default=0) >= limits.poison_count

    def _take(self, taking: _Taking, batch: _InFlightBatch, base: int, last: int) -> None:
        """Acquires again what is available of a batch."""
        limits, before = taking.limits, taking.count
        most = taking.room - taking.count if taking.wanted.is_record_limit else batch.size
        is_throttled = False
        for span in self._cut(max(base, batch.first, self.start_offset), min(last, batch.last)):
            if not span.is_free:
                continue
            taken = taking.count - before
            is_last_try = limits.delivery_count_limit > 2 and span.count == limits.delivery_count_limit - 1
            if is_last_try and taken:
                return  # it comes alone, at the next fetch
            if span.count >= limits.poison_count and not is_throttled:
                is_throttled = True
                most = min(most, max(1, batch.size >> (span.count - limits.poison_count + 1)))
            length = min(len(span), most - taken, 1 if is_last_try else len(span))
            if length <= 0:
                return
            self._split(span.first + length)
            taking.take(span)
            if is_last_try:
                return

    def _take_unknown(self, taking: _Taking, batch: _InFlightBatch, base: int, last: int) -> None:
        """Acquires records of which nothing was persisted, as if they were new."""
        for span in self._cut(max(base, batch.first, self.start_offset), min(last, batch.last)):
            if span.is_free and not taking.is_enough:
                end = min(taking.end_of(span.first, span.last), span.last)
                for part in taking.parts(span.first, end):
                    (found,) = self._cut(*part)
                    found.batch = _InFlightBatch(*part)
                    taking.take(found)

    def _take_new(self, taking: _Taking, first: int, last: int) -> None:
        """Acquires records that no member had before."""
        if first > self.end_offset + 1:
            if self._spans:
                self._append(_Span(self.end_offset + 1, first - 1, ARCHIVED, 0, None))
            else:
                self.start_offset, self.end_offset = first, first - 1
        end = taking.end_of(first, last)
        if taking.wanted.is_record_limit:
            # The batch is in flight as a whole; what is over the limit is available to the next fetch.
            batch = _InFlightBatch(first, max(taking.end_of_batch(end), end))
            taken = _Span(first, end, AVAILABLE, 0, batch)
            self._append(taken)
            taking.take(taken)
            if end < min(batch.last, last):
                batch.last = min(batch.last, last)
                self._append(_Span(end + 1, batch.last, AVAILABLE, 0, batch))
                self._may_have_free = True
            return
        for part in taking.parts(first, end):
            taken = _Span(part.first, part.last, AVAILABLE, 0, _InFlightBatch(*part))
            self._append(taken)
            taking.take(taken)

    def _archive_aborted(
        self, acquired: list[AcquiredRange], aborted: Sequence[OffsetSpan]
    ) -> list[AcquiredRange]:
        """Archives what was acquired of aborted transactions, and returns the rest."""
        rest: list[AcquiredRange] = []
        for first, last, count in acquired:
            for gone in aborted:
                if gone.last < first or gone.first > last:
                    continue
                for span in self._cut(max(first, gone.first), min(last, gone.last)):
                    span.move_to(ARCHIVED)
                    span.free()
                if first < gone.first:
                    rest.append(AcquiredRange(first, gone.first - 1, count))
                first = gone.last + 1
            if first <= last:
                rest.append(AcquiredRange(first, last, count))
        return rest

    def _locked_until(self, deadline_ms: int) -> None:
        if self._deadline_ms is None or deadline_ms < self._deadline_ms:
            self._deadline_ms = deadline_ms

    # --- acknowledge -------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[AcknowledgedRange], limits: ShareLimits, now_ms: int
    ) -> ErrorCode | ShareStateWrite:
        """Takes all acknowledgements of a member, or none if one of them is wrong.

        NONE is returned if there is nothing to persist.
        """
        decided: list[tuple[OffsetSpan, int]] = []
        for acknowledgement in acknowledgements:
            error = self._decide(member_id, acknowledgement, limits, now_ms, decided)
            if error:
                return error
        changes: list[tuple[OffsetSpan, RecordState, str]] = []
        for offsets, kind in decided:
            if kind == RENEW:
                self._renew(offsets, now_ms + limits.record_lock_ms)
            else:
                changes.append((offsets, OUTCOMES[kind], "rejected" if kind == REJECT else ""))
        return self._begin(changes, limits) or ErrorCode.NONE

    def _decide(
        self,
        member_id: str,
        acknowledgement: AcknowledgedRange,
        limits: ShareLimits,
        now_ms: int,
        decided: list[tuple[OffsetSpan, int]],
    ) -> ErrorCode:
        """Checks an acknowledgement and adds what it says to `decided`."""
        types = acknowledgement.types
        if any(kind != RENEW and kind not in OUTCOMES for kind in types):
            return ErrorCode.INVALID_REQUEST
        first, last = max(acknowledgement.first, self.start_offset), acknowledgement.last
        if last < self.start_offset:
            return ErrorCode.NONE  # it is done already, whatever is said of it
        if not self._spans:
            return ErrorCode.INVALID_RECORD_STATE
        if last > self.end_offset:
            return ErrorCode.INVALID_REQUEST
        if RENEW in types and not limits.may_renew:
            return ErrorCode.INVALID_RECORD_STATE
        for span in self._overlapping(first, last):
            if span.batch is None:
                if last <= span.last:
                    return ErrorCode.INVALID_REQUEST  # nobody was ever given this offset
                continue
            if (
                span.state is not ACQUIRED
                or span.write is not None
                or span.member_id != member_id
                or span.deadline_ms <= now_ms
            ):
                return ErrorCode.INVALID_RECORD_STATE
            part = OffsetSpan(max(first, span.first), min(last, span.last))
            decided += _runs(part, acknowledgement)
        return ErrorCode.NONE

    def _renew(self, offsets: OffsetSpan, deadline_ms: int) -> None:
        for span in self._cut(*offsets):
            span.deadline_ms = deadline_ms

    def release(self, member_id: str, limits: ShareLimits) -> ShareStateWrite | None:
        """Makes all that a member holds available again, because its session is over."""
        held = [
            (OffsetSpan(span.first, span.last), AVAILABLE, "")
            for span in self._spans
            if span.state is ACQUIRED and span.write is None and span.member_id == member_id
        ]
        return self._begin(held, limits)

    def _begin(
        self, changes: list[tuple[OffsetSpan, RecordState, str]], limits: ShareLimits
    ) -> ShareStateWrite | None:
        """Begins to change the states of acquired records: they are pending until the write is done."""
        if not changes:
            return None
        changed: list[_Span] = []
        dead: list[DeadLetters] = []
        for offsets, wanted, why in changes:
            for span in self._cut(*offsets):
                if span.batch is None:
                    continue
                state, reason = _after(span, wanted, why, limits)
                if reason and limits.has_dead_letter_topic:
                    dead.append(DeadLetters(span.first, span.last, span.count, span.member_id, reason))
                span.move_to(state)
                changed.append(span)
        write = self._write(_batches(changed), tuple(dead))
        for span in changed:
            span.write = write
        self._join()
        return write

    def expire(self, limits: ShareLimits, now_ms: int) -> ShareStateWrite | None:
        """Ends the locks that have run out. What is available again then does not wait for the write."""
        free: list[_Span] = []
        dead: list[_Span] = []
        letters: list[DeadLetters] = []
        self._deadline_ms = None
        for span in self._spans:
            if span.state is not ACQUIRED or span.write is not None:
                continue
            if span.deadline_ms > now_ms:
                self._locked_until(span.deadline_ms)
                continue
            state, reason = _after(span, AVAILABLE, "", limits)
            if reason and limits.has_dead_letter_topic:
                letters.append(DeadLetters(span.first, span.last, span.count, span.member_id, reason))
                dead.append(span)
            else:
                span.free()
                free.append(span)
            span.move_to(state)
        if not free and not dead:
            return None
        self._may_have_free = True
        write = self._write(_batches(sorted(free + dead, key=lambda span: span.first)), tuple(letters))
        for span in dead:
            span.write = write
        self._join()
        return write

    # --- writes ------------------------------------------------------------------------------------

    def _write(
        self, batches: tuple[StateBatch, ...], dead_letters: tuple[DeadLetters, ...] = ()
    ) -> ShareStateWrite:
        return ShareStateWrite(self.start_offset, self.delivery_complete_count, batches, dead_letters)

    def written(self, write: ShareStateWrite, error: ErrorCode, limits: ShareLimits, now_ms: int) -> bool:
        """Ends a write. True if records are available now, or the start offset has moved: who waits looks again."""
        has_freed = False
        for span in self._spans:
            if span.write is not write:
                continue
            if error:
                self._roll_back(span, write, limits, now_ms)
            else:
                span.free()
            has_freed = has_freed or span.is_free
        self._may_have_free = self._may_have_free or has_freed
        self._join()
        return self._advance() or has_freed

    def _roll_back(self, span: _Span, write: ShareStateWrite, limits: ShareLimits, now_ms: int) -> None:
        """Undoes a change that could not be persisted; its lock may have run out meanwhile."""
        if span.deadline_ms > now_ms:
            span.state, span.write = ACQUIRED, None
        elif write.dead_letters and span.state is ARCHIVED:
            # Nobody holds it. It expires once more, and then it is tried again to copy it.
            span.state, span.write, span.member_id = ACQUIRED, None, ""
            span.deadline_ms = now_ms + _RETRY_DEAD_LETTERS_MS
        else:
            span.state = ARCHIVED if span.count >= limits.delivery_count_limit else AVAILABLE
            span.free()
            return
        self._locked_until(span.deadline_ms)

    def log_starts_at(self, offset: int) -> ShareStateWrite | None:
        """Forgets all below the start of the log, also what is acquired: its acknowledgements are ignored."""
        if offset <= self.start_offset:
            return None
        del self._spans[: self._split(offset)]
        self._firsts = [span.first for span in self._spans]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset - 1)
        self._advance()
        return self._write(())


@dataclass(slots=True)
class _Taking:
    """What one fetch acquires, as it goes on."""

    member_id: str
    fetched: Sequence[OffsetSpan]
    wanted: WantedRecords
    limits: ShareLimits
    deadline_ms: int
    room: int
    acquired: list[AcquiredRange]
    count: int

    def __init__(
        self,
        member_id: str,
        fetched: Sequence[OffsetSpan],
        wanted: WantedRecords,
        limits: ShareLimits,
        deadline_ms: int,
        room: int,
    ) -> None:
        self.member_id, self.fetched, self.wanted, self.limits = member_id, fetched, wanted, limits
        self.deadline_ms, self.room = deadline_ms, room
        self.acquired = []
        self.count = 0

    @property
    def is_enough(self) -> bool:
        return self.count >= self.room

    def take(self, span: _Span) -> None:
        span.move_to(ACQUIRED)
        span.count += 1
        span.member_id, span.deadline_ms = self.member_id, self.deadline_ms
        self.count += len(span)
        before = self.acquired[-1] if self.acquired else None
        is_same_batch = before is not None and span.batch is not None and before.first >= span.batch.first
        if is_same_batch and before is not None and before[1:] == (span.first - 1, span.count):
            self.acquired[-1] = before._replace(last=span.last)
        else:
            self.acquired.append(AcquiredRange(span.first, span.last, span.count))

    def end_of(self, first: int, last: int) -> int:
        """Returns the last offset to acquire of new records from `first` to `last`."""
        left = self.room - self.count
        if left > last - first:
            return last
        end = first + left - 1
        return end if self.wanted.is_record_limit else min(self.end_of_batch(end), last)

    def end_of_batch(self, offset: int) -> int:
        """Returns the last offset of the log's batch that has this one; itself if no batch has it."""
        for batch in self.fetched:
            if batch.first <= offset <= batch.last:
                return batch.last
        return offset

    def parts(self, first: int, last: int) -> list[OffsetSpan]:
        """Cuts new records where batches of the log begin, into parts of about `batch_size`."""
        found: list[OffsetSpan] = []
        size = self.wanted.batch_size
        if not self.wanted.is_record_limit and last - first + 1 > size:
            for batch in self.fetched:
                if batch.first > last:
                    break
                if batch.first - first >= size:
                    found.append(OffsetSpan(first, batch.first - 1))
                    first = batch.first
        found.append(OffsetSpan(first, last))
        return found


def _runs(part: OffsetSpan, acknowledgement: AcknowledgedRange) -> Iterator[tuple[OffsetSpan, int]]:
    """Yields runs of the same type within a part of what is acknowledged."""
    types = acknowledgement.types
    if len(types) == 1:
        yield part, types[0]
        return
    begin = part.first
    for offset in range(part.first, part.last + 1):
        kind = types[offset - acknowledgement.first]
        if offset == part.last or types[offset + 1 - acknowledgement.first] != kind:
            yield OffsetSpan(begin, offset), kind
            begin = offset + 1


def _after(span: _Span, wanted: RecordState, why: str, limits: ShareLimits) -> tuple[RecordState, str]:
    """Returns the state that follows Acquired, and why the record is a dead letter then, if it is one."""
    if wanted is AVAILABLE and span.count >= limits.delivery_count_limit:
        return ARCHIVED, "delivery limit"
    return wanted, why


def _batches(spans: Iterable[_Span]) -> tuple[StateBatch, ...]:
    """Returns the states of spans in order; equal neighbours are joined."""
    found: list[StateBatch] = []
    for span in spans:
        before = found[-1] if found else None
        if before is not None and before[1:] == (span.first - 1, span.state, span.count):
            found[-1] = before._replace(last=span.last)
        else:
            found.append(StateBatch(span.first, span.last, int(span.state), span.count))
    return tuple(found)
