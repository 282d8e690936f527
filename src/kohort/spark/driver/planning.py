"""Decides which offsets a query reads, and in which tasks, by the rules of Spark's Kafka connector. Pure functions.

Offsets are counted, not records: offsets without a record, after transactions and compaction, count too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kohort.client.types import TopicPartition
from kohort.spark.offsets import Offsets
from kohort.spark.ranges import OffsetRange
from kohort.spark.restriction import NumberSet, pieces_within

LARGEST_OFFSET = (1 << 63) - 1

# --- pieces -------------------------------------------------------------------------------------------


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Divides ranges into tasks of at most `max_records`, then into about `min_partitions`. Drops empty ranges."""
    pieces = [piece for piece in ranges if piece.size]
    if max_records is not None:
        pieces = [part for piece in pieces for part in divide(piece, math.ceil(piece.size / max_records))]
    if min_partitions is None or min_partitions <= len(pieces):
        return pieces
    total = sum(piece.size for piece in pieces)
    whole = [_parts(piece.size, total, min_partitions) == 1 for piece in pieces]
    rest_total = sum(piece.size for piece, is_whole in zip(pieces, whole, strict=True) if not is_whole)
    rest_parts = min_partitions - sum(whole)
    tasks: list[OffsetRange] = []
    for piece, is_whole in zip(pieces, whole, strict=True):
        tasks += [piece] if is_whole else divide(piece, _parts(piece.size, rest_total, rest_parts))
    return tasks


def _parts(size: int, total: int, wanted: int) -> int:
    """Half is rounded up, as Java does."""
    return max(1, math.floor(size / total * wanted + 0.5))


def divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Nearly equal parts, the larger ones last, none of them empty."""
    pieces: list[OffsetRange] = []
    start = whole.start
    for left in range(parts, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            pieces.append(OffsetRange(whole.partition, start, end))
        start = end
    if pieces:
        pieces[0] = replace(pieces[0], open_start=whole.open_start)
        pieces[-1] = replace(pieces[-1], open_end=whole.open_end)
    return pieces


# --- how far a micro-batch goes -----------------------------------------------------------------------


def limit(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Where to end so that about `most` offsets are read, in proportion to what each partition has left.

    A partition that is not in `start` begins at 0; the caller adds to `start` what begins elsewhere.
    """
    left = {p: at - start.get(p, 0) for p, at in end.items() if at > start.get(p, 0)}
    total = sum(left.values())
    if not total:
        return dict(end)
    limited = dict(end)
    for partition, size in left.items():
        share = most * (size / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(end[partition], start.get(partition, 0) + taken, LARGEST_OFFSET)
    return limited


@dataclass(slots=True)
class Delay:
    """Holds a batch back until `least` offsets wait, but never longer than `max_delay_ms` after the last one."""

    least: int
    max_delay_ms: int
    last_batch_ms: int | None = None
    """None before the first batch, which does not wait."""

    def holds(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], now_ms: int
    ) -> bool:
        """Whether to wait, though something has changed. False means that a batch begins now."""
        waited_ms = None if self.last_batch_ms is None else now_ms - self.last_batch_ms
        waiting = sum(at - start.get(partition, 0) for partition, at in end.items())
        if waited_ms is not None and waited_ms < self.max_delay_ms and waiting < self.least:
            return True
        self.last_batch_ms = now_ms
        return False


# --- from offsets to ranges ---------------------------------------------------------------------------


def batch_ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges of a batch query, all partitions in order. ValueError if one ends before it starts."""
    ranges = [OffsetRange(partition, start[partition], end[partition]) for partition in sorted(end)]
    for each in ranges:
        if each.start > each.end:
            raise ValueError(
                f"The resolved start offset {each.start} is greater than the resolved end offset {each.end} for "
                f"topic {each.partition.topic} partition {each.partition.partition}. The start is behind the last "
                "record, or the end before the first: look at startingOffsets and endingOffsets."
            )
    return ranges


NEAR_OFFSETS, MOST_PIECES = 10_000, 32
"""Wanted offsets with so few others between them are read together; so many pieces a partition may have."""


def restrict(
    whole: OffsetRange, wanted: NumberSet, first: int | None = None, after: int | None = None
) -> list[OffsetRange]:
    """The parts of a range that may hold what is wanted: nothing that is wanted is outside of them.

    `first` and `after` are offsets before which, and from which on, nothing is wanted, because of a time. Where the
    range ends with the log, and later offsets may be wanted, the last part does too.
    """
    start = whole.start if first is None else max(whole.start, first)
    end = whole.end if after is None else min(whole.end, after)
    open_end = whole.open_end and after is None
    parts = [
        OffsetRange(whole.partition, begin, until, whole.open_start)
        for begin, until in pieces_within(wanted, start, end, NEAR_OFFSETS, MOST_PIECES)
    ]
    later = wanted & NumberSet.between(max(start, end), LARGEST_OFFSET)
    if open_end and later:
        if parts and later.first - parts[-1].end <= NEAR_OFFSETS:
            parts[-1] = replace(parts[-1], open_end=True)
        else:
            parts.append(OffsetRange(whole.partition, later.first, later.first, open_end=True))
    return parts


def check_named(
    what: str, specified: Collection[TopicPartition], assigned: Collection[TopicPartition]
) -> None:
    """ValueError if the offsets that a user gave do not name exactly the partitions that are read."""
    if set(specified) == set(assigned):
        return
    raise ValueError(
        f"Partitions specified for Kafka {what} offsets don't match what are assigned. Name every partition of every "
        "topic, and no other. Use -1 for latest, -2 for earliest. "
        f"Specified: {_set(specified)} Assigned: {_set(assigned)}"
    )


def _set(partitions: Collection[TopicPartition]) -> str:
    return f"Set({', '.join(map(str, sorted(partitions)))})"


@dataclass(frozen=True, slots=True)
class Step:
    """The ranges of a micro-batch, and the reasons of losses before it."""

    ranges: list[OffsetRange]
    losses: list[str]


def step_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest_of_new: Mapping[TopicPartition, int],
    made_anew: Collection[str] = (),
    existing: Collection[TopicPartition] = (),
) -> Step:
    """The ranges between two offsets of a stream.

    A partition that is not in `start` is new and is read from its first record, which must be at 0. A topic in
    `made_anew` was deleted and created again while the query ran: partitions whose offset went back are read from the
    beginning. A partition that is in `start` and in `existing`, but not in `end`, appeared between the two: the next
    step has it as new.
    """
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    gone = sorted(partition for partition in start if partition not in end and partition not in existing)
    if gone:
        losses.append(f"{_set(gone)} are gone. Some data may have been missed.")
    for partition in sorted(end):
        until = end[partition]
        begin = start.get(partition)
        if begin is None:
            begin = earliest_of_new.get(partition, 0)
            if begin:
                losses.append(
                    f"Added partition {partition} starts from {begin} instead of 0. Some data may have been missed."
                )
        elif until < begin:
            losses.append(changed(partition, begin, until))
            begin = 0 if partition.topic in made_anew else until
        ranges.append(OffsetRange(partition, begin, max(begin, until)))
    return Step([each for each in ranges if each.size], losses)


def changed(partition: TopicPartition, before: int, now: int) -> str:
    """The reason of a loss, for a partition that ends before what was read of it."""
    return (
        f"Partition {partition} offset was changed from {before} to {now}. This could be either 1) a user error that "
        "the start offset is set beyond available offset when starting query, or 2) the kafka topic-partition is "
        "deleted and re-created."
    )
