"""Reads one range of offsets into Arrow batches, straight from the bytes that the partition's leader sends.

Connections are kept per worker process. The next request leaves before the answer at hand is decoded; two answers at
most are in memory, and a compressed one is unpacked piece by piece.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kohort.client.embedding import (
    ClusterSession,
    FetchedRecords,
    PartitionLeader,
    PendingFetch,
    TopicReplaced,
)
from kohort.client.errors import CorruptRecord, OffsetOutOfRange
from kohort.client.types import TopicPartition
from kohort.spark.executor.rows import LARGEST_PIECE, Rows
from kohort.spark.options import FIXED_SETTINGS, SourceOptions, settings_without_group
from kohort.spark.ranges import DataLoss, OffsetRange, unread
from kohort.wire.records.columns import Columns, decode_columns, prefer
from kohort.wire.records.counting import count_records

log = logging.getLogger("kohort.spark.fetch")
T = TypeVar("T")

# For bulk reading of records that are known to be there; a user's own settings override these.
DEFAULTS = {
    "max.partition.fetch.bytes": str(4 << 20),
    "fetch.max.bytes": str(64 << 20),
    "fetch.max.wait.ms": "100",
}
MOST_SESSIONS = 8
"""So many sets of connections are kept in a process."""

_sessions: dict[tuple[Any, ...], ClusterSession] = {}


def session_for(options: SourceOptions) -> ClusterSession:
    """The connections of this process to the cluster of the options; made once, and anew in a forked child."""
    settings = settings_without_group(options.kafka)
    key = (os.getpid(), *sorted(settings.items()))
    session = _sessions.get(key)
    if session is None:
        if len(_sessions) >= MOST_SESSIONS or any(old[0] != key[0] for old in _sessions):
            close_sessions()
        prefer(os.environ.get("KOHORT_KERNEL", ""))
        session = _sessions[key] = ClusterSession({**DEFAULTS, **settings, **FIXED_SETTINGS})
    return session


def close_sessions() -> None:
    """Closes the connections of this process; the next task makes new ones."""
    while _sessions:
        _, session = _sessions.popitem()
        session.close()


def _rows_for(partition: TopicPartition, names: Sequence[str], options: SourceOptions) -> Rows:
    """Makes the rows of a partition: of bytes, or decoded."""
    if options.decoding is None:
        return Rows(partition, names)
    # Loaded here, because it needs numpy, without which bytes can be read.
    from kohort.spark.executor.typed_rows import TypedRows

    return TypedRows(partition, names, options.decoding)


def read_range(
    wanted: OffsetRange, leader: PartitionLeader, options: SourceOptions, names: Sequence[str]
) -> Iterator[Any]:
    """The records of a range as pyarrow.RecordBatch, only the named columns."""
    rows, session = _rows_for(wanted.partition, names, options), session_for(options)
    wanted = at_its_end(wanted, session, options)
    if not wanted.size:
        return
    records = RangeReader(session, wanted, leader, options).columns()
    if options.wanted.is_everything:
        yield from map(rows.batch, records)
    else:
        # Loaded here, because its pyarrow.compute takes a tenth of a second.
        from kohort.spark.executor.row_filter import chosen

        yield from chosen(records, options.wanted, rows.batch, decoded=options.decoding is not None)


def at_its_end(wanted: OffsetRange, session: ClusterSession, options: SourceOptions) -> OffsetRange:
    """A range as it is now: one that ends with the log, or with the last wanted offset, does so where that is now."""
    if not wanted.open_end:
        return wanted
    latest = session.end_offsets([wanted.partition])[wanted.partition]
    return replace(wanted, end=min(max(wanted.end, latest), options.wanted.offsets.last + 1))


class RangeReader:
    """Decodes the records of a range, and decides what to do about those that are not there."""

    def __init__(
        self, session: ClusterSession, wanted: OffsetRange, leader: PartitionLeader, options: SourceOptions
    ) -> None:
        self._session, self._options = session, options
        self._partition, self._end = wanted.partition, wanted.end
        self._fetcher = session.fetch_range(wanted.partition, leader, wanted.end, log)
        self._position = wanted.start
        self._open_start = wanted.open_start
        self._damaged_at = -1
        self.has_gaps = False
        """Whether `count` has seen offsets that are not those of records to be read."""

    def columns(self) -> Iterator[Columns]:
        """The records in pieces of bounded size. DataLoss if some are not there and that is to be an error."""
        return self._read(self._decode)

    def count(self) -> int:
        """The number of records, without decoding them. DataLoss as for `columns`."""
        return sum(self._read(self._count))

    def _read(
        self, use: Callable[[memoryview, list[tuple[int, int]] | None, bool], Iterator[T]]
    ) -> Iterator[T]:
        """What `use` makes of each answer: its records, its aborted transactions, and whether it is complete."""
        fetcher = self._fetcher
        ahead, is_first = fetcher.send(self._position), True
        while self._position < self._end:
            fetched = self._receive(ahead)
            if fetched is None or not len(fetched.records):
                if fetched is not None:
                    self._nothing_there(fetched.log_end_offset)
                if self._position < self._end:
                    ahead = fetcher.send(self._position)
                continue
            self._open_start = False
            next_offset = fetched.next_offset
            after = self._end if next_offset is None else max(next_offset, self._position)
            # Nothing is sent ahead of the first answer, which may be all that a `limit` takes.
            asked = after if after < self._end and not is_first else -1
            if asked >= 0:
                ahead = fetcher.send(asked)
            is_first = False
            yield from use(fetched.records, fetched.aborted, next_offset is not None)
            del fetched  # the next answer is received into the same memory
            if self._position != asked and self._position < self._end:
                ahead = fetcher.send(self._position)  # nothing was sent ahead, or it is of no use

    # --- records that are not there -------------------------------------------------------------------

    def _receive(self, asked: PendingFetch) -> FetchedRecords | None:
        """What the leader has sent; None if it is to be asked again, from the position that holds now."""
        try:
            return self._fetcher.receive(asked)
        except OffsetOutOfRange:
            self._out_of_range()
        except TopicReplaced as replaced:
            self._lose(str(replaced))
            self._position = self._end
        return None

    def _out_of_range(self) -> None:
        first = self._session.beginning_offsets([self._partition])[self._partition]
        if not self._open_start:
            self._lose(f"the log begins at offset {first}")
        self._position = first if first > self._position else self._end

    def _nothing_there(self, log_end_offset: int) -> None:
        """The log ends before the range does, which may be so for a moment only, while its leader changes."""
        if self._fetcher.has_waited(self._options.poll_timeout_ms):
            self._lose(f"the log ends at offset {log_end_offset}")
            self._position = self._end

    def _lose(self, why: str) -> None:
        reason = f"{unread(self._partition, self._position, self._end, self._options.group_id)}; {why}"
        if self._options.fail_on_data_loss:
            raise DataLoss(reason)
        log.warning("%s; failOnDataLoss=false: reading goes on", reason)

    # --- decoding -------------------------------------------------------------------------------------

    def _decode(
        self, records: memoryview, aborted: list[tuple[int, int]] | None, complete: bool
    ) -> Iterator[Columns]:
        """The records of one answer from the position on, which moves past them."""
        while len(records) and self._position < self._end:
            decoded = decode_columns(
                records,
                self._position,
                check_crcs=self._session.config.check_crcs,
                aborted=aborted,
                max_bytes=LARGEST_PIECE,
            )
            columns = decoded.columns
            if len(columns) and int(columns.offsets[-1]) >= self._end:
                columns = columns.slice(0, bisect_left(columns.offsets, self._end))
            self._position = decoded.next_offset
            if len(columns):
                yield columns
            if decoded.error is not None:
                self._damaged(decoded.next_offset, decoded.error.message)
                return
            if not decoded.bytes_used:
                if not complete:
                    self._damaged(self._position, "the answer holds no whole batch")
                return
            records, aborted = records[decoded.bytes_used :], decoded.aborted

    def _count(
        self, records: memoryview, aborted: list[tuple[int, int]] | None, complete: bool
    ) -> Iterator[int]:
        """The number of records of one answer from the position on, which moves past them."""
        counted = count_records(
            records,
            self._position,
            self._end,
            check_crcs=self._session.config.check_crcs,
            aborted=aborted,
        )
        self._position = counted.next_offset
        self.has_gaps |= counted.has_gaps
        yield counted.records
        if counted.error is not None:
            self._damaged(counted.next_offset, counted.error.message)
        elif not counted.bytes_used and not complete:
            self._damaged(self._position, "the answer holds no whole batch")

    def _damaged(self, offset: int, why: str) -> None:
        """Bytes may be damaged on their way, so they are fetched once more before that is an error."""
        if self._position >= self._end:
            return
        if self._damaged_at == offset:
            raise CorruptRecord(
                f"{self._partition}: the batch at offset {offset} is damaged: {why}", self._partition, offset
            )
        self._damaged_at = offset
        log.warning(
            "%s: the batch at offset %d is damaged (%s), fetching it again", self._partition, offset, why
        )
