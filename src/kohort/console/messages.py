"""Reads messages of a topic for people: from any place, in both directions, with a search whose work is bounded.

Partitions are read side by side and merged by time; within a partition the order of the log is kept. A reader goes
forwards or backwards. A cursor says where to go on, for each partition: `f:0@42,1@7` forwards from these offsets,
`b:0@42,1@7` backwards from before them.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.errors import PartlyFailed, TimedOut, WrongArgument
from kohort.client.records import Record
from kohort.client.types import TopicPartition
from kohort.console.models import LARGEST_OFFSET, MessageRange, MessageRow, MessagesAnswer
from kohort.console.payloads import holds, message_row
from kohort.wire.errors import ErrorCode, KafkaError

MOST_PARTITIONS = 64
"""How many partitions are read at the same time."""
SCANNED_RECORDS, SCANNED_BYTES, SCANNED_S = 50_000, 32 << 20, 6.0
"""What one request may look at."""
_FETCH_BYTES = 4 << 20
_POLL_S = 0.5
_FEWER = 8
_CURSOR = re.compile(r"[fb]:(?:\d{1,10}@\d{1,19}(?:,(?=\d)|$))+", re.ASCII)


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where to read from: one of these is set, or none, which means the end."""

    beginning: bool = False
    offset: int | None = None
    time_ms: int | None = None
    cursor: str | None = None


@dataclass(slots=True)
class PartitionScan:
    """What is read of one partition: from `start` up to `stop`, and what was found."""

    at: TopicPartition
    begin: int
    end: int
    start: int
    stop: int
    reached: int = 0
    found: list[MessageRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reached = self.start


@dataclass(slots=True)
class Budget:
    """What a scan may still cost."""

    records: int = SCANNED_RECORDS
    size: int = SCANNED_BYTES
    until_s: float = 0.0

    @property
    def spent(self) -> bool:
        """Whether it is used up."""
        return self.records <= 0 or self.size <= 0 or time.monotonic() >= self.until_s


class MessageReader:
    """Reads one topic, for one request."""

    def __init__(self, admin: Admin, settings: Mapping[str, str], topic: str) -> None:
        self._admin, self._settings, self._topic = admin, settings, topic
        self._scanned = 0

    # --- what is asked for ----------------------------------------------------------------------------

    def messages(self, place: MessagePlace, partition: int | None, limit: int, search: str) -> MessagesAnswer:
        """Returns up to `limit` messages that hold a text, from a place on."""
        chosen, left_out = self._partitions(partition)
        begins, ends = self._bounds(chosen)
        chosen = [at for at in chosen if at in begins and at in ends]
        backwards, starts = self._starts(place, chosen, begins, ends)
        chosen = [at for at in chosen if at in starts]
        wanted = search.encode().lower()
        if backwards:
            scans = self._backwards(chosen, begins, ends, starts, limit, wanted)
            return self._answer_backwards(scans, limit, left_out)
        scans = [
            PartitionScan(at, begins[at], ends[at], min(max(starts[at], begins[at]), ends[at]), ends[at])
            for at in chosen
        ]
        self._scan(scans, limit, wanted)
        return self._answer_forwards(scans, limit, left_out)

    def message(self, partition: int, offset: int) -> Record:
        """Returns the message at an offset; KafkaError if there is none."""
        at = TopicPartition(self._topic, partition)
        self._partitions(partition)
        begins, ends = self._bounds([at])
        gone = KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"there is no message at offset {offset} of {at}: it was deleted or compacted, or is not written yet",
        )
        if at not in ends or not begins[at] <= offset < ends[at]:
            raise gone
        with self._consumer([at]) as consumer:
            consumer.seek(at, offset)
            give_up_s = time.monotonic() + self._patience_s()
            while consumer.position(at) <= offset:
                for record in (each for polled in consumer.poll(_POLL_S).values() for each in polled):
                    if record.offset == offset:
                        return record
                    raise gone
                if time.monotonic() >= give_up_s:
                    raise TimedOut(f"{at} gave no message in time")
        raise gone

    # --- where to begin -------------------------------------------------------------------------------

    def _partitions(self, partition: int | None) -> tuple[list[TopicPartition], int]:
        described = self._admin.describe_topics(self._topic)[self._topic]
        numbers = [each.partition for each in described.partitions]
        if partition is None:
            every = [TopicPartition(self._topic, number) for number in numbers]
            return every[:MOST_PARTITIONS], max(0, len(every) - MOST_PARTITIONS)
        if partition not in numbers:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{self._topic} has no partition {partition}: it has {len(numbers)}, from 0 on",
            )
        return [TopicPartition(self._topic, partition)], 0

    def _bounds(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Returns where the logs begin and end. A partition without a leader is left out, if others have one."""
        return _as_known(self._admin.beginning_offsets, partitions), _as_known(
            self._admin.end_offsets, partitions
        )

    def _starts(
        self,
        place: MessagePlace,
        chosen: list[TopicPartition],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> tuple[bool, dict[TopicPartition, int]]:
        """Returns whether to go backwards, and from which offsets."""
        if place.cursor is not None:
            backwards, offsets = parse_cursor(place.cursor)
            return backwards, {at: offsets[at.partition] for at in chosen if at.partition in offsets}
        if place.offset is not None:
            return False, dict.fromkeys(chosen, place.offset)
        if place.time_ms is not None:
            found = self._admin.offsets_for_times(dict.fromkeys(chosen, place.time_ms)) if chosen else {}
            return False, {at: ends[at] if each is None else each.offset for at, each in found.items()}
        if place.beginning:
            return False, {at: begins[at] for at in chosen}
        return True, {at: ends[at] for at in chosen}

    # --- reading --------------------------------------------------------------------------------------

    def _backwards(
        self,
        chosen: list[TopicPartition],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int],
        limit: int,
        wanted: bytes,
    ) -> list[PartitionScan]:
        """Reads a window that ends at the stops; a smaller one if that was too much to read."""
        window = limit if not wanted else max(1, SCANNED_RECORDS // max(1, len(chosen)))
        while True:
            scans = []
            for at in chosen:
                stop = min(max(stops[at], begins[at]), ends[at])
                start = max(begins[at], stop - window)
                scans.append(PartitionScan(at, begins[at], ends[at], start, stop))
            most = limit if not wanted else SCANNED_RECORDS
            self._scan(scans, most, wanted)
            if window == 1 or all(scan.reached >= scan.stop for scan in scans):
                return scans
            window = max(1, window // _FEWER)

    def _scan(self, scans: list[PartitionScan], most: int, wanted: bytes) -> None:
        """Reads until each partition is at its stop or has enough, or the budget is spent."""
        open_scans = {scan.at: scan for scan in scans if scan.start < scan.stop}
        if not open_scans:
            return
        budget = Budget(until_s=time.monotonic() + min(SCANNED_S, self._patience_s()))
        with self._consumer(list(open_scans)) as consumer:
            for at, scan in open_scans.items():
                consumer.seek(at, scan.start)
            while open_scans and not budget.spent:
                for at, records in consumer.poll(_POLL_S).items():
                    if at in open_scans:
                        self._take(open_scans[at], records, most, wanted, budget)
                for at, scan in list(open_scans.items()):
                    if len(scan.found) < most:
                        scan.reached = max(scan.reached, min(consumer.position(at), scan.stop))
                    if scan.reached >= scan.stop or len(scan.found) >= most:
                        consumer.pause(at)
                        del open_scans[at]

    def _take(
        self,
        scan: PartitionScan,
        records: Iterable[Record],
        most: int,
        wanted: bytes,
        budget: Budget,
    ) -> None:
        for record in records:
            if record.offset >= scan.stop or len(scan.found) >= most:
                return
            scan.reached = record.offset + 1
            self._scanned += 1
            budget.records -= 1
            budget.size -= max(record.serialized_value_size, 0) + max(record.serialized_key_size, 0)
            if not wanted or holds(record, wanted):
                scan.found.append(message_row(record))

    @contextmanager
    def _consumer(self, partitions: list[TopicPartition]) -> Iterator[Consumer]:
        """Yields a consumer of these partitions that reads not much ahead."""
        share = max(64 << 10, _FETCH_BYTES // len(partitions))
        own = {
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": _FETCH_BYTES,
            "max.partition.fetch.bytes": share,
            "fetch.max.wait.ms": 100,
        }
        with Consumer({**self._settings, **own}) as consumer:
            consumer.assign(partitions)
            yield consumer

    def _patience_s(self) -> float:
        return int(self._settings.get("default.api.timeout.ms", "30000")) / 1000

    # --- answers --------------------------------------------------------------------------------------

    def _answer_forwards(self, scans: list[PartitionScan], limit: int, left_out: int) -> MessagesAnswer:
        merged = heapq.merge(*(scan.found for scan in scans), key=_time_of)
        taken = list(islice(merged, limit))
        counts = _counts(taken)
        following = {}
        for scan in scans:
            untaken = scan.found[counts.get(scan.at.partition, 0) :]
            following[scan.at.partition] = untaken[0].offset if untaken else scan.reached
        return self._answer(
            scans, taken, {s.at.partition: s.start for s in scans}, following, False, left_out
        )

    def _answer_backwards(self, scans: list[PartitionScan], limit: int, left_out: int) -> MessagesAnswer:
        merged = heapq.merge(*(scan.found[::-1] for scan in scans), key=_time_of, reverse=True)
        taken = list(islice(merged, limit))[::-1]
        counts = _counts(taken)
        first, following = {}, {}
        for scan in scans:
            untaken = scan.found[: len(scan.found) - counts.get(scan.at.partition, 0)]
            first[scan.at.partition] = untaken[-1].offset + 1 if untaken else scan.start
            following[scan.at.partition] = scan.reached
        return self._answer(scans, taken, first, following, True, left_out)

    def _answer(
        self,
        scans: list[PartitionScan],
        taken: list[MessageRow],
        first: dict[int, int],
        following: dict[int, int],
        backwards: bool,
        left_out: int,
    ) -> MessagesAnswer:
        ranges = [
            MessageRange(
                partition=scan.at.partition,
                begin=scan.begin,
                end=scan.end,
                first=first[scan.at.partition],
                next=following[scan.at.partition],
            )
            for scan in scans
        ]
        older = any(each.first > each.begin for each in ranges)
        newer = any(each.next < each.end for each in ranges)
        return MessagesAnswer(
            topic=self._topic,
            messages=taken,
            ranges=ranges,
            partitions_left_out=left_out,
            scanned=self._scanned,
            complete=not (older if backwards else newer),
            next=write_cursor(False, following) if newer else None,
            previous=write_cursor(True, first) if older else None,
        )


def _time_of(row: MessageRow) -> int:
    return -1 if row.timestamp_ms is None else row.timestamp_ms


def _counts(rows: list[MessageRow]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for row in rows:
        counts[row.partition] = counts.get(row.partition, 0) + 1
    return counts


def _as_known(
    ask: Callable[..., dict[TopicPartition, int]], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    try:
        return ask(partitions)
    except PartlyFailed as partly:
        if not partly.results:
            raise
        return partly.results


def parse_cursor(text: str) -> tuple[bool, dict[int, int]]:
    """Reads a cursor: whether it goes backwards, and the offsets by partition."""
    if not _CURSOR.fullmatch(text):
        raise WrongArgument("cursor: use one that an answer gave as `next` or `previous`")
    pairs = (pair.split("@") for pair in text[2:].split(","))
    return text[0] == "b", {int(number): min(int(offset), LARGEST_OFFSET) for number, offset in pairs}


def write_cursor(backwards: bool, offsets: Mapping[int, int]) -> str:
    """Writes a cursor."""
    places = ",".join(f"{number}@{offset}" for number, offset in sorted(offsets.items()))
    return f"{'b' if backwards else 'f'}:{places}"
