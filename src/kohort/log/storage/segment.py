"""One segment of a log, a `.log` file with its indexes: append, find, read.

A segment is active (its indexes are in memory, and the index files lag behind) or sealed (the indexes are loaded from
their files when they are needed, and rebuilt from the batch headers if the files are missing or damaged).
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial

from kohort.log.storage.files import Directory, File
from kohort.log.storage.index import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    DamagedIndex,
    OffsetIndex,
    TimeIndex,
)
from kohort.log.storage.transactions import ABORTED_ENTRY_SIZE, AbortedTxn, CompletedTxn, TransactionIndex
from kohort.settings import LONG_MAX
from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.batch import HEADER_SIZE, BatchHeader, crc_is_good, iter_records, read_header

log = logging.getLogger(__name__)

LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
INDEXES = (INDEX, TIME_INDEX, TXN_INDEX)
SUFFIXES = (LOG, *INDEXES)
DELETED = ".deleted"
NO_TIMESTAMP = -1
MAX_RELATIVE_OFFSET = 2**31 - 1

_HEADER_WINDOW = 4096
_CHECK_WINDOW = 1 << 20
_RECENT = 64


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def walk(file: File, start: int, end: int, *, check: bool) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of every batch in [start, end); BadBatch says where the first bad one is, and why.

    With `check` the CRC of each batch is checked; without it only headers are read.
    """
    buffer = bytearray(_CHECK_WINDOW if check else _HEADER_WINDOW)
    view = memoryview(buffer)
    filled_from = filled_to = start
    position = start
    while position < end:
        if position + HEADER_SIZE > filled_to:
            filled_from, filled_to = position, position + file.read_into(view, position)
        try:
            header = read_header(view[: min(filled_to, end) - filled_from], position - filled_from)
        except BadBatch as bad:
            raise _bad(file, position, bad.message) from None
        after = position + header.size
        if after > end:
            raise _bad(file, position, f"batch of {header.size} bytes is cut off after {end - position}")
        if check:
            if after > filled_to:
                if header.size > len(buffer):
                    buffer = bytearray(header.size + _HEADER_WINDOW)
                    view = memoryview(buffer)
                filled_from, filled_to = position, position + file.read_into(view, position)
            if not crc_is_good(view, position - filled_from, header.size):
                raise _bad(file, position, f"wrong CRC of the batch at offset {header.base_offset}")
        yield position, header
        position = after


def _bad(file: File, position: int, why: str) -> BadBatch:
    return BadBatch(ErrorCode.CORRUPT_MESSAGE, f"{file.path} at byte {position}: {why}")


class Segment:
    """One segment of a partition's log."""

    __slots__ = (
        "_offset_index",
        "_time_index",
        "_txn_index",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "directory",
        "file",
        "first_timestamp",
        "interval",
        "last_position",
        "max_timestamp",
        "max_timestamp_offset",
        "recent_offsets",
        "recent_positions",
        "sealed",
    )

    def __init__(self, directory: Directory, base_offset: int, interval: int, *, sealed: bool) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.interval = interval
        self.sealed = sealed
        self.file = directory.open(file_name(base_offset, LOG))
        self.created_ms = 0
        self.first_timestamp: int | None = None
        self.max_timestamp: int | None = None if self.file.size else NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.bytes_since_entry = 0
        self.last_position = 0  # where the last batch begins
        # Positions of the last batches, so that a consumer at the end of the log is served without reading the file.
        self.recent_offsets = array("q")
        self.recent_positions = array("q")
        self._offset_index: OffsetIndex | None = None if self.file.size else OffsetIndex()
        self._time_index: TimeIndex | None = None if self.file.size else TimeIndex()
        self._txn_index: TransactionIndex | None = None if self.file.size else TransactionIndex()

    @property
    def size(self) -> int:
        return self.file.size

    def __repr__(self) -> str:
        return f"Segment({self.file.path}, {self.size} bytes)"

    # Append

    def append(self, batch: memoryview, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Appends one batch; after an OSError call `file.cut_back()`."""
        file = self.file
        position = file.size
        file.append(batch)
        self.note(position, last_offset, max_timestamp, file.size - position)
        recent = self.recent_offsets
        recent.append(base_offset)
        self.recent_positions.append(position)
        if len(recent) > _RECENT:
            del recent[: _RECENT // 2]
            del self.recent_positions[: _RECENT // 2]

    def note(self, position: int, last_offset: int, max_timestamp: int, size: int) -> None:
        """Enters a batch into the indexes: after an append, in a rebuild, and when a start walks the log."""
        if position == 0:
            self.first_timestamp = max_timestamp
        self.last_position = position
        assert self.max_timestamp is not None
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self.interval:
            assert self._offset_index is not None
            assert self._time_index is not None
            self._offset_index.append(last_offset - self.base_offset, position)
            self._time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def note_aborted(self, completed: CompletedTxn, last_stable_offset: int) -> None:
        """Enters an aborted transaction, whose marker is in this segment, into the index."""
        self.txn_index.append(AbortedTxn(*completed[:3], last_stable_offset))

    def must_roll(
        self, last_offset: int, max_timestamp: int, now_ms: int, segment_ms: int, index_bytes: int
    ) -> bool:
        """Tells whether a batch must go into a new segment for another reason than the size of this one."""
        if self.first_timestamp is None:
            self.first_timestamp = self._header_at(0).max_timestamp
        if self.first_timestamp >= 0:
            waited_ms = max_timestamp - self.first_timestamp
        else:
            self.created_ms = self.created_ms or now_ms  # after a start it is not known
            waited_ms = now_ms - self.created_ms
        return (
            waited_ms > segment_ms
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or len(self.offset_index.offsets) >= index_bytes // 8
            or len(self.time_index.offsets) >= index_bytes // 12 - 1
        )

    def seal(self) -> None:
        """Ends the appends: adds the largest timestamp to the time index, and writes the indexes to their files."""
        self.sealed = True
        self.recent_offsets = array("q")
        self.recent_positions = array("q")
        self.close_time_index()
        self.flush_indexes()

    def close_time_index(self) -> None:
        assert self.max_timestamp is not None
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def cut(self, position: int) -> None:
        """Cuts the file at `position`. The indexes must have no entries behind it."""
        self.file.truncate(position)

    # Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def txn_index(self) -> TransactionIndex:
        """The aborted transactions that end in this segment. DamagedIndex if the file is not usable."""
        if self._txn_index is None:
            data = self.directory.read(file_name(self.base_offset, TXN_INDEX))
            self._txn_index = TransactionIndex.decode(data or b"")
        return self._txn_index

    @property
    def owes_aborted(self) -> bool:
        """Whether the index of aborted transactions has entries that are not durable in its file."""
        return self._txn_index is not None and self._txn_index.synced < len(self._txn_index)

    def sync_txn_index(self, count: int) -> None:
        """Makes the file durable, which has `count` entries. Runs off the loop."""
        index = self.txn_index
        try:
            self.directory.open(file_name(self.base_offset, TXN_INDEX), private=True).sync()
        except FileNotFoundError:  # compaction or retention has taken the segment meanwhile
            return
        index.synced = count

    def reset_txn_index(self) -> None:
        self._txn_index = TransactionIndex()

    @property
    def has_loaded_indexes(self) -> bool:
        return self._offset_index is not None

    def drop_indexes(self) -> None:
        """Frees the memory of a sealed segment's indexes; they are loaded again on demand."""
        if self.sealed and self._offset_index is not None:
            self.flush_indexes()
            self._offset_index = self._time_index = None
            if not self.owes_aborted:
                self._txn_index = None  # unlike the others it cannot be rebuilt from this segment alone

    def _load_indexes(self) -> None:
        try:
            offsets, times = self.read_indexes()
            self.check_last_entries(offsets, times)
        except DamagedIndex as damage:
            log.info("%s: index is rebuilt: %s", self.file.path, damage)
            self.rebuild_indexes()
            return
        self._offset_index, self._time_index = offsets, times
        if self.max_timestamp is None:
            self.max_timestamp = times.timestamps[-1] if times else NO_TIMESTAMP
            self.max_timestamp_offset = self.base_offset + (times.offsets[-1] if times else 0)

    def read_indexes(self, *, may_be_empty: bool = False) -> tuple[OffsetIndex, TimeIndex]:
        """Reads the indexes from their files; DamagedIndex if they cannot belong to this log.

        `may_be_empty`: it is known that no entry was due yet (the first comes with the batch after the interval).
        """
        offsets = self.directory.read(file_name(self.base_offset, INDEX))
        times = self.directory.read(file_name(self.base_offset, TIME_INDEX))
        if offsets is None or times is None:
            raise DamagedIndex("the file is missing")
        if not offsets and not may_be_empty and self._owes_an_entry():
            raise DamagedIndex("the file is empty")
        return OffsetIndex.decode(offsets, self.size), TimeIndex.decode(times)

    def _owes_an_entry(self) -> bool:
        """Tells whether the log is so long that its index must have an entry."""
        if self.size <= self.interval:
            return False
        try:
            return self._header_at(0).size < self.size - self.interval
        except BadBatch:  # not known; a rebuild finds out
            return True

    def check_last_entries(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Compares the last entries with the log; DamagedIndex if they differ, as after a power cut without a sync."""
        try:
            if offsets:
                at = self._header_at(offsets.positions[-1])
                if at.last_offset != self.base_offset + offsets.offsets[-1]:
                    raise DamagedIndex("the last entry is of another log")
            if times:
                last = self.base_offset + times.offsets[-1]
                batches = walk(self.file, offsets.floor(times.offsets[-1]), self.size, check=False)
                found = next((header for _, header in batches if header.last_offset >= last), None)
                if found is None or found.max_timestamp != times.timestamps[-1]:
                    raise DamagedIndex("the last entry is not a time of this log")
        except BadBatch:
            raise DamagedIndex("the last entry points to no batch") from None

    def rebuild_indexes(self, end: int | None = None) -> None:
        """Makes the indexes anew from the batch headers of the first `end` bytes, or of all."""
        self.reset_indexes()
        try:
            for position, header in walk(self.file, 0, self.size if end is None else end, check=False):
                self.note(position, header.last_offset, header.max_timestamp, header.size)
        except BadBatch as bad:
            log.error("the index ends at a damaged batch: %s", bad.message)
        if self.sealed:
            self.close_time_index()
            self.flush_indexes()

    def reset_indexes(self) -> None:
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.bytes_since_entry = 0

    def forget_index_files(self) -> None:
        """Deletes the index files after a crash, because they may describe other batches; the next flush makes new.

        Files that were only overwritten could come back with the next power cut, and be believed. `Directory.sync`
        makes the deletion durable.
        """
        for suffix in INDEXES:
            self.directory.delete(file_name(self.base_offset, suffix))
        self.offset_index.flushed = self.time_index.flushed = 0
        self.txn_index.flushed = self.txn_index.synced = 0

    def use_indexes(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        self._offset_index, self._time_index = offsets, times

    def flush_indexes(self) -> bool:
        """Writes the entries that the files lack. A failure (False) costs a rebuild later, but no data."""
        good = True
        for suffix, index, entry_size in self._flushable():
            if index.flushed == len(index) and index.flushed:
                continue
            name = file_name(self.base_offset, suffix)
            file = self.directory.open(name, private=True)
            try:
                if file.size != index.flushed * entry_size:
                    file.truncate(0)
                    index.flushed = 0
                file.append(index.encode(index.flushed))
                index.flushed = len(index)
            except OSError as problem:
                log.warning("%s: index not written: %s", file.path, problem)
                index.flushed = 0
                good = False
                self.directory.delete(name)
            finally:
                file.close()
        return good

    def _flushable(self) -> list[tuple[str, OffsetIndex | TimeIndex | TransactionIndex, int]]:
        found: list[tuple[str, OffsetIndex | TimeIndex | TransactionIndex, int]] = [
            (INDEX, self.offset_index, OFFSET_ENTRY_SIZE),
            (TIME_INDEX, self.time_index, TIME_ENTRY_SIZE),
        ]
        if self._txn_index is not None and len(
            self._txn_index
        ):  # one without entries has no file, as in Kafka
            found.append((TXN_INDEX, self._txn_index, ABORTED_ENTRY_SIZE))
        return found

    def largest_timestamp(self) -> int:
        """Returns the largest timestamp of the records; -1 if none has one."""
        if self.max_timestamp is None:
            self._load_indexes()
            assert self.max_timestamp is not None
        return self.max_timestamp

    # Find

    def _header_at(self, position: int) -> BatchHeader:
        try:
            return read_header(self.file.pread(position, HEADER_SIZE))
        except BadBatch as bad:
            raise _bad(self.file, position, bad.message) from None

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Returns position and size of the first batch whose last offset is at or after `offset`."""
        recent = self.recent_offsets
        if recent and offset >= recent[0]:
            at = bisect_right(recent, offset)
            positions = self.recent_positions
            end = positions[at] if at < len(positions) else self.file.size
            return positions[at - 1], end - positions[at - 1]
        start = self.offset_index.floor(offset - self.base_offset)
        guess = self.offset_index.ceiling(offset - self.base_offset)
        if guess is not None and guess - start > 2 * self.interval:
            # Batches larger than the interval have an entry each: one read instead of a walk.
            header = self._header_at(guess)
            if header.base_offset <= offset:
                return guess, header.size
        for position, header in walk(self.file, start, self.file.size, check=False):
            if header.last_offset >= offset:
                return position, header.size
        return None

    def offset_bound(self, position: int) -> int:
        """Returns an offset that all batches before a position are below; LONG_MAX if the index has none."""
        index = self.offset_index
        at = bisect_left(index.positions, position)
        return self.base_offset + index.offsets[at] + 1 if at < len(index.positions) else LONG_MAX

    def end_before(self, base_offset: int, position: int) -> int:
        """Returns how many bytes of this segment lie before a position in the segment with that base offset."""
        if self.base_offset == base_offset:
            return position
        return self.size if self.base_offset < base_offset else 0

    def forget_recent(self) -> None:
        """Forgets the positions of the last batches: after a gap in the offsets they would give wrong answers."""
        del self.recent_offsets[:]
        del self.recent_positions[:]

    def find_time(self, timestamp: int, start_offset: int) -> tuple[int, int] | None:
        """Returns (timestamp, offset) of the first record at or after both; None if this segment has none."""
        by_time = self.time_index.floor(timestamp)
        start = self.offset_index.floor(max(by_time, start_offset - self.base_offset))
        for position, header in walk(self.file, start, self.file.size, check=False):
            if header.max_timestamp < timestamp:
                continue
            for record in iter_records(memoryview(self.file.pread(position, header.size))):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.timestamp, record.offset
        return None

    def find_max_timestamp(self) -> tuple[int, int] | None:
        """Returns (timestamp, offset) of the first record that has the largest timestamp."""
        largest = self.largest_timestamp()
        start = self.offset_index.floor(self.max_timestamp_offset - self.base_offset)
        for position, header in walk(self.file, start, self.file.size, check=False):
            if header.max_timestamp == largest:
                for record in iter_records(memoryview(self.file.pread(position, header.size))):
                    if record.timestamp == largest:
                        return largest, record.offset
        return None

    # End

    def delete(self) -> None:
        """Deletes the files now; a pinned .log can be read until it is unpinned."""
        self.file.delete()
        for suffix in INDEXES:
            self.directory.delete(file_name(self.base_offset, suffix))

    def retire(self) -> Callable[[], None]:
        """Renames the .log out of the way at once; the returned function deletes it, which can be slow."""
        name = file_name(self.base_offset, LOG)
        self.file.abandon()
        self.directory.rename(name, name + DELETED)
        for suffix in INDEXES:
            self.directory.delete(file_name(self.base_offset, suffix))
        return partial(self.directory.delete, name + DELETED)
