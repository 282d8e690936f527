"""Takes apart what a ShareFetch brought of one partition: records that are ours, gaps between them, damage.

A broker sends whole batches as they are in its log, and says which offsets in them it has acquired for this consumer.
Records outside of these belong to others and are dropped. An acquired offset without a record (compacted away, or a
control record) is acknowledged as a gap.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kohort.client.errors import CorruptRecord, DeserializationFailed
from kohort.client.records import Deserializer, Record, Records
from kohort.client.share.acknowledgements import Acknowledgements, AcknowledgeType, TopicIdPartition
from kohort.wire.errors import BadBatch
from kohort.wire.records.batch import (
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_END,
    MAGIC,
    header_fields,
)
from kohort.wire.records.columns import Columns, decode_columns

log = logging.getLogger("kohort.client.share")

MAX_OFFSETS = 1 << 20
"""An answer that claims to have acquired more than this is not believed: a broker's own limit is some thousand."""

Span = tuple[int, int]
"""The first and the last offset of a range."""

_start_of_batch = header_fields("base_offset", "batch_length", "partition_leader_epoch", "magic").unpack_from
_last_offset_delta = header_fields("last_offset_delta").unpack_from


class AcquiredRecords(Records[Any, Any]):
    """Records of one acquired range, all of which were delivered equally often."""

    __slots__ = ("delivery_count",)

    def __init__(
        self,
        partition: TopicIdPartition,
        columns: Columns,
        delivery_count: int,
        key_deserializer: Deserializer[Any] | None,
        value_deserializer: Deserializer[Any] | None,
    ) -> None:
        next_offset = int(columns.offsets[-1]) + 1
        super().__init__(
            partition.topic, partition.partition, columns, next_offset, key_deserializer, value_deserializer
        )
        self.delivery_count = delivery_count

    def _what_next(self, error: Exception, offset: int) -> str:
        return (
            "the record was released and will be delivered again; with share.acknowledgement.mode=explicit, "
            "acknowledge(error, AcknowledgeType.REJECT) before the next poll ends that"
        )


@dataclass(frozen=True, slots=True)
class FailedRecords:
    """Acquired records that cannot be handed out: why, and how they are acknowledged unless the user says otherwise."""

    error: DeserializationFailed | CorruptRecord
    offsets: tuple[int, ...]
    kind: AcknowledgeType


@dataclass(slots=True)
class AcquiredFetch:
    """What was acquired of one partition by one answer, and is not handed out yet.

    Nothing is decoded before `take`. If a deserializer ends the program (Ctrl-C), the next `take` tries again.
    """

    node_id: int
    partition: TopicIdPartition
    lock_timeout_ms: int | None
    records: memoryview
    ranges: list[tuple[int, int, int]]
    """First and last offset and delivery count."""
    deserializers: tuple[Deserializer[Any] | None, Deserializer[Any] | None] = (None, None)
    check_crcs: bool = True
    gaps: list[Span] = field(default_factory=list)
    cut_off: list[Span] = field(default_factory=list)
    """Acquired offsets of a batch that the answer does not hold as a whole: they are released."""
    _segments: deque[AcquiredRecords | FailedRecords] | None = None

    def decode(self) -> int:
        """Finds out what is in it; returns the number of records that the next `take` hands out at most."""
        if self._segments is None:
            self._segments = deque(self._decode())
            self.records = memoryview(b"")
        first = self._segments[0] if self._segments else None
        return len(first) if isinstance(first, AcquiredRecords) else 0

    @property
    def fails_next(self) -> bool:
        return bool(self._segments) and isinstance(self._segments[0], FailedRecords)  # type: ignore[index]

    @property
    def is_used_up(self) -> bool:
        return self._segments is not None and not self._segments

    def take_others(self) -> Acknowledgements:
        """Returns, once, what is acknowledged of the offsets that have no record to hand out."""
        taken = Acknowledgements(gaps=self.gaps)
        for first, last in self.cut_off:
            taken.types.update(dict.fromkeys(range(first, last + 1), int(AcknowledgeType.RELEASE)))
        self.gaps, self.cut_off = [], []
        return taken

    def take_failure(self) -> FailedRecords | None:
        """Returns what comes next, if it is something that failed."""
        if not self.fails_next:
            return None
        assert self._segments is not None
        return self._segments.popleft()  # type: ignore[return-value]

    def take(self) -> list[Record[Any, Any]]:
        """Returns the records of the next range, up to the first that cannot be deserialized."""
        if not self._segments or self.fails_next:
            return []
        records = self._segments[0]
        assert isinstance(records, AcquiredRecords)
        made: list[Record[Any, Any]] = []
        try:
            made.extend(records)
        except DeserializationFailed as failed:
            self._segments.popleft()
            rest = records.columns.slice(len(made) + 1, len(records))
            if len(rest):
                self._segments.appendleft(self._of(rest, records.delivery_count or 0))
            self._segments.appendleft(FailedRecords(failed, (failed.offset,), AcknowledgeType.RELEASE))
        else:
            self._segments.popleft()
        return made

    # --- decoding -----------------------------------------------------------------------------------------

    def _of(self, columns: Columns, delivery_count: int) -> AcquiredRecords:
        return AcquiredRecords(self.partition, columns, delivery_count, *self.deserializers)

    def _decode(self) -> Iterator[AcquiredRecords | FailedRecords]:
        ranges = self._believed()
        found: list[Span] = []
        rest, next_offset = self.records, 0
        while len(rest):
            decoded = decode_columns(rest, next_offset, check_crcs=self.check_crcs)
            next_offset = decoded.next_offset
            yield from self._ours(decoded.columns, ranges, found)
            rest = rest[decoded.bytes_used :]
            if decoded.error is not None:
                damaged, rest = _after_damage(rest)
                if damaged is None:  # no batch can be found behind it: others may be luckier with the rest
                    lost = _without(_spans(ranges), found)
                    found += lost
                    yield from self._damage(decoded.error, lost, AcknowledgeType.RELEASE)
                    break
                spans = _within(damaged, _without(_spans(ranges), found))
                found += spans
                yield from self._damage(decoded.error, spans, AcknowledgeType.REJECT)
            elif not decoded.bytes_used:
                # The answer ends in the middle of a batch: what is missing of it is no gap.
                behind = next_offset, max((last for _, last, _ in ranges), default=-1)
                self.cut_off = _within(behind, _without(_spans(ranges), found))
                found += self.cut_off
                break
        self.gaps = _without(_spans(ranges), found)

    def _believed(self) -> list[tuple[int, int, int]]:
        """Returns the acquired ranges in order, each offset once."""
        believed: list[tuple[int, int, int]] = []
        total, end = 0, -1
        for first, last, count in sorted(self.ranges):
            first = max(first, end)
            size = last - first + 1
            if size < 1 or total + size > MAX_OFFSETS:
                log.error(
                    "%s: the broker says that it acquired offsets %d to %d, which makes no sense; they are not used",
                    self.partition,
                    first,
                    last,
                )
                continue
            believed.append((first, last, count))
            total, end = total + size, last + 1
        return believed

    def _ours(
        self, columns: Columns, ranges: list[tuple[int, int, int]], found: list[Span]
    ) -> Iterator[AcquiredRecords]:
        """Yields the records that were acquired for us, and notes their offsets in `found`."""
        if not len(columns):
            return
        offsets = columns.offsets
        for first, last, count in ranges:
            start, stop = bisect_left(offsets, first), bisect_right(offsets, last)
            if start >= stop:
                continue
            rows = columns if (start, stop) == (0, len(columns)) else columns.slice(start, stop)
            found += _spans_of(rows.offsets.tolist())
            yield self._of(rows, count)

    def _damage(self, error: BadBatch, spans: list[Span], kind: AcknowledgeType) -> Iterator[FailedRecords]:
        if not spans:
            return
        what = (
            "rejected: nobody gets them" if kind is AcknowledgeType.REJECT else "released to other consumers"
        )
        first, last = spans[0][0], spans[-1][1]
        text = (
            f"{self.partition}: {error.message}; the records of offsets {first} to {last} were {what}. "
            "Look at the disk of the broker; poll again to go on behind them"
        )
        offsets = tuple(offset for a, b in spans for offset in range(a, b + 1))
        yield FailedRecords(CorruptRecord(text, self.partition.place, first), offsets, kind)


def _after_damage(rest: memoryview) -> tuple[Span | None, memoryview]:
    """Returns the offsets of the damaged batch that `rest` begins with, and what follows; None if that is not known."""
    if len(rest) < HEADER_SIZE:
        return None, rest
    base_offset, length, _, magic = _start_of_batch(rest, 0)
    end = LENGTH_END + length
    delta = _last_offset_delta(rest, LAST_OFFSET_DELTA_AT)[0]
    if (
        magic != MAGIC
        or length < HEADER_SIZE - LENGTH_END
        or end > len(rest)
        or not 0 <= delta <= MAX_OFFSETS
    ):
        return None, rest
    return (base_offset, base_offset + delta), rest[end:]


# --- ranges of offsets ------------------------------------------------------------------------------------


def _spans(ranges: Iterable[tuple[int, int, int]]) -> list[Span]:
    return [(first, last) for first, last, _ in ranges]


def _spans_of(offsets: list[int]) -> list[Span]:
    """Returns the ranges of ascending offsets."""
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        return [(offsets[0], offsets[-1])]
    spans: list[Span] = []
    first = before = offsets[0]
    for offset in offsets[1:]:
        if offset != before + 1:
            spans.append((first, before))
            first = offset
        before = offset
    spans.append((first, before))
    return spans


def _within(span: Span, spans: Iterable[Span]) -> list[Span]:
    """Returns the part of `spans` that is inside of one."""
    cut = ((max(first, span[0]), min(last, span[1])) for first, last in spans)
    return [(first, last) for first, last in cut if first <= last]


def _without(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """Returns what is left of `spans` without what is taken."""
    left: list[Span] = []
    holes = sorted(taken)
    for first, last in spans:
        for start, end in holes:
            if end < first or start > last:
                continue
            if start > first:
                left.append((first, start - 1))
            first = end + 1
        if first <= last:
            left.append((first, last))
    return left
