"""Compacts the sealed segments of one partition: the last value of each key stays (Kafka's log cleaner).

`clean` reads `<base>.log` files and writes `<base>.log.cleaned` ones; it does not replace any file. It is a generator,
so its caller decides how long it runs at a time: in memory the event loop takes slices of it; on disk it runs in a
process of its own, because a thread that computes would block the loop through the interpreter's lock:

    python -m kohort.log.maintenance.cleaner < job     prints a JSON line for each cleaned group, then one for the end

The rules are those of Kafka's log cleaner:
- Keys of the dirty part go into a map of hash -> last offset. When it is full, this pass covers only those.
- A record stays if it is the last one of its key, or lies behind what the map covers. One without a key is dropped.
- A tombstone stays until its batch's delete horizon, which the pass that first meets it sets (KIP-534).
- A batch without records stays, empty, if it carries the last sequence number of a producer, or is the last
  of its group, so that neither sequences nor offsets are lost.
- Records of aborted transactions are dropped, and replace no other record. All transactions before the end of a pass
  have ended, because it stops at the last stable offset.
- The marker of a transaction stays as long as a pass finds batches of it. The first pass that finds none sets a delete
  horizon, as for a tombstone. The index of aborted transactions is written anew.
- Offsets never change. A batch that loses nothing is copied byte by byte.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from kohort.log.storage.files import Directory, DiskDirectory, File
from kohort.log.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, Segment, file_name
from kohort.log.storage.transactions import AbortedTxn, TransactionIndex, end_marker
from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    BatchHeader,
    ControlKind,
    crc_is_good,
    iter_batches,
    iter_records,
    read_header,
    rebuild,
)
from kohort.wire.records.payload import BatchRecord

CLEANED = ".cleaned"
CHUNK_BYTES = 1 << 20
MAX_OFFSET_SPAN = 2**31 - 1  # what the offset index of one segment can hold


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A segment that is to be cleaned."""

    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """What one pass of compaction works on."""

    sources: list[SourceSegment]  # the sealed segments before `end_offset`, in order
    first_dirty_offset: int
    end_offset: int  # the first offset that must not be touched
    now_ms: int
    delete_retention_ms: int
    segment_size: int
    index_interval: int
    max_keys: int
    producers: dict[int, int]  # producer id -> offset of the last record it wrote
    # Producer id -> epoch, of those that are known by a marker alone
    marked_producers: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTxn] = field(default_factory=list)  # all that begin before `end_offset`

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> CleaningJob:
        fields: Any = json.loads(text)
        fields["sources"] = [SourceSegment(**source) for source in fields["sources"]]
        for name in ("producers", "marked_producers"):
            fields[name] = {int(producer_id): value for producer_id, value in fields[name].items()}
        fields["aborted"] = [AbortedTxn(*entry) for entry in fields["aborted"]]
        return CleaningJob(**fields)


@dataclass(frozen=True, slots=True)
class CleanedSegments:
    """Old segments, and the one that replaces them: its `.log.cleaned` file is written and synced."""

    sources: list[int]  # base offsets; the cleaned one has the first of them
    size: int
    records_dropped: int


@dataclass(frozen=True, slots=True)
class Covered:
    """The end of a pass: everything before `first_dirty_offset` is clean now."""

    first_dirty_offset: int


@dataclass(frozen=True, slots=True)
class Spoiled:
    """The end of a pass that met an unreadable batch; nothing was dropped because of it."""

    offset: int
    why: str


Step = CleanedSegments | Covered | Spoiled | None
"""None: nothing to report, but the caller may pause here."""


def log_name(base_offset: int) -> str:
    return file_name(base_offset, LOG)


def cleaned_name(base_offset: int) -> str:
    return log_name(base_offset) + CLEANED


def txn_index_name(base_offset: int) -> str:
    return file_name(base_offset, TXN_INDEX)


def clean(directory: Directory, job: CleaningJob) -> Iterator[Step]:
    """Yields what is cleaned. The last step is Covered, or Spoiled; no unfinished `.cleaned` file is left behind."""
    try:
        keys = yield from _map_keys(directory, job)
        transactions = _TransactionsMet(job.aborted)
        for group in grouped(job.sources, job.segment_size, keys.end_offset, job.end_offset):
            yield (yield from _clean_group(directory, job, keys, transactions, group))
        yield Covered(keys.end_offset)
    except _Unreadable as bad:
        yield Spoiled(bad.offset, bad.why)


def grouped(
    sources: list[SourceSegment], max_size: int, covered: int, end_offset: int
) -> list[list[SourceSegment]]:
    """Groups neighbouring segments that the pass covers and that fit into one segment together."""
    groups: list[list[SourceSegment]] = []
    size = 0
    ends = [source.base_offset for source in sources[1:]] + [end_offset]
    for source, end in zip(sources, ends, strict=True):
        if source.base_offset >= covered and groups:
            break
        fits = (
            groups and size + source.size <= max_size and end - groups[-1][0].base_offset <= MAX_OFFSET_SPAN
        )
        if fits:
            groups[-1].append(source)
            size += source.size
        else:
            groups.append([source])
            size = source.size
    return groups


@dataclass(slots=True)
class _Keys:
    last_offsets: dict[bytes, int]
    end_offset: int  # behind the last batch that is in the map


class _TransactionsMet:
    """The transactions that a walk through the log has met, batch by batch."""

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self._to_come = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTxn] = {}  # producer id -> the transaction that its marker will abort
        self._with_batches: set[int] = set()  # producers of whose transaction a batch was met
        self.kept: list[AbortedTxn] = []  # aborted ones of which a batch was met, by their markers

    def is_aborted(self, header: BatchHeader) -> bool:
        """Takes note of a batch of records, and tells whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return self._aborted_one(header) is not None

    def is_without_batches(self, header: BatchHeader, marker: ControlKind) -> bool:
        """Takes note of a marker, and tells whether no batch of the transaction that it ended was met."""
        entry = self._aborted_one(header)
        is_without = header.producer_id not in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker is ControlKind.ABORT and entry is not None:
            del self._aborted[header.producer_id]
            if not is_without:
                self.kept.append(entry)
        return is_without

    def _aborted_one(self, header: BatchHeader) -> AbortedTxn | None:
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            entry = self._to_come.pop()
            if entry.last_offset >= header.base_offset:
                self._aborted[entry.producer_id] = entry
        entry = self._aborted.get(header.producer_id, _NOT_ABORTED)
        return entry if header.base_offset <= entry.last_offset else None


_NOT_ABORTED = AbortedTxn(-1, -1, -1, -1)


class _Unreadable(Exception):
    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset = offset
        self.why = why


def _hash(key: bytes) -> bytes:
    """Returns at most 16 bytes; a key shorter than that is its own hash, so it never equals that of a long one."""
    return bytes(key) if len(key) < 16 else blake2b(key, digest_size=16).digest()


def _map_keys(directory: Directory, job: CleaningJob) -> Generator[None, None, _Keys]:
    keys = _Keys({}, job.first_dirty_offset)
    transactions = _TransactionsMet(job.aborted)
    last_offsets = keys.last_offsets
    ends = [source.base_offset for source in job.sources[1:]] + [job.end_offset]
    for source, end in zip(job.sources, ends, strict=True):
        if end <= job.first_dirty_offset:
            continue
        for batch, header in _batches(directory, source):
            if header.last_offset < job.first_dirty_offset:
                continue
            if not header.is_control and not transactions.is_aborted(header) and header.record_count:
                for record in _records(batch, header):
                    if record.key is not None and record.offset >= job.first_dirty_offset:
                        last_offsets[_hash(record.key)] = record.offset
            keys.end_offset = header.last_offset + 1
            yield None
            # The limit is checked between batches only: however small it is, a pass covers at least one batch.
            if len(last_offsets) >= job.max_keys:
                return keys
        keys.end_offset = end
    return keys


def _clean_group(
    directory: Directory,
    job: CleaningJob,
    keys: _Keys,
    transactions: _TransactionsMet,
    group: list[SourceSegment],
) -> Generator[None, None, CleanedSegments]:
    base_offset = group[0].base_offset
    target = directory.open(cleaned_name(base_offset), private=True)
    target.truncate(0)
    dropped = 0
    out = bytearray()
    left_out: BatchHeader | None = None  # the batch before this one, if nothing of it stays
    try:
        for source in group:
            for batch, header in _batches(directory, source):
                kept, gone = _filter_batch(batch, header, job, keys, transactions)
                dropped += gone
                left_out = None if kept else header
                if kept:
                    out += kept
                if len(out) >= CHUNK_BYTES:
                    target.append(out)
                    out = bytearray()
                yield None
        if left_out is not None:
            out += _empty(left_out)
        target.append(out)
        target.sync()
        _write_aborted(directory, base_offset, transactions)
        return CleanedSegments([source.base_offset for source in group], target.size, dropped)
    except BaseException:
        target.delete()
        raise
    finally:
        target.close()


def _write_aborted(directory: Directory, base_offset: int, transactions: _TransactionsMet) -> None:
    """Writes the index of the aborted transactions whose markers are in a cleaned segment, if there are any."""
    index = TransactionIndex()
    index.entries, transactions.kept = transactions.kept, []
    if index.entries:
        directory.replace(txn_index_name(base_offset) + CLEANED, index.encode())


def _filter_batch(
    batch: memoryview, header: BatchHeader, job: CleaningJob, keys: _Keys, transactions: _TransactionsMet
) -> tuple[memoryview | bytearray | None, int]:
    """Returns the bytes that stay, and how many records are dropped."""
    if header.is_control:
        return _filter_marker(batch, header, job, keys, transactions)
    is_aborted = transactions.is_aborted(header)
    if header.base_offset >= keys.end_offset:
        return batch, 0
    horizon = header.delete_horizon_ms
    tombstones_stay = horizon is None or job.now_ms < horizon
    kept: list[BatchRecord] = []
    tombstones = False
    for record in _records(batch, header) if not is_aborted else ():
        if record.offset < keys.end_offset and not _stays(record, keys, tombstones_stay):
            continue
        kept.append(record)
        tombstones = tombstones or record.value is None
    gone = header.record_count - len(kept)
    if not kept:
        return _empty_if(_must_stay(header, job), header), gone
    if tombstones and horizon is None:
        return rebuild(header, kept, delete_horizon_ms=job.now_ms + job.delete_retention_ms), gone
    if gone:
        return rebuild(header, kept), gone
    return batch, 0


def _filter_marker(
    batch: memoryview, header: BatchHeader, job: CleaningJob, keys: _Keys, transactions: _TransactionsMet
) -> tuple[memoryview | bytearray | None, int]:
    """Returns what stays of a control batch; one without a record is what is left of a marker that went before."""
    try:
        marker = end_marker(batch) if header.record_count else None
    except BadBatch as bad:
        raise _Unreadable(header.base_offset, bad.message) from bad
    if header.record_count and marker is None:  # it is not about transactions
        return batch, 0
    if marker is not None and not transactions.is_without_batches(header, marker.kind):
        return batch, 0
    if header.base_offset >= keys.end_offset:
        return batch, 0
    horizon = header.delete_horizon_ms
    if marker is not None and horizon is None:
        until_ms = job.now_ms + job.delete_retention_ms
        return rebuild(header, list(_records(batch, header)), delete_horizon_ms=until_ms), 0
    if marker is not None and horizon is not None and job.now_ms < horizon:
        return batch, 0
    must_stay = job.marked_producers.get(header.producer_id) == header.producer_epoch
    return _empty_if(must_stay or _must_stay(header, job), header), header.record_count


def _must_stay(header: BatchHeader, job: CleaningJob) -> bool:
    """Tells whether a batch must stay even if all of its records go."""
    is_last = header.producer_id >= 0 and job.producers.get(header.producer_id) == header.last_offset
    return is_last or header.last_offset + 1 == job.end_offset


def _empty_if(stays: bool, header: BatchHeader) -> bytearray | None:
    return _empty(header) if stays else None


def _stays(record: BatchRecord, keys: _Keys, tombstones_stay: bool) -> bool:
    if record.key is None or (record.value is None and not tombstones_stay):
        return False
    return record.offset >= keys.last_offsets.get(_hash(record.key), -1)


def _empty(header: BatchHeader) -> bytearray:
    """Returns the batch without its records, and without a codec: not every client can read an empty stream."""
    return rebuild(header._replace(attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)), [])


def _records(batch: memoryview, header: BatchHeader) -> Iterator[BatchRecord]:
    try:
        yield from iter_records(batch)
    except BadBatch as bad:
        raise _Unreadable(header.base_offset, bad.message) from bad


class _ReadOnly:
    """A file that is only read: a `File` would create a missing one, and a start would take it for a segment."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def pread(self, position: int, length: int) -> bytes:
        return os.pread(self._fd, length, position)

    def close(self) -> None:
        os.close(self._fd)


def _open_source(directory: Directory, name: str) -> File | _ReadOnly:
    if isinstance(directory, DiskDirectory):
        return _ReadOnly(f"{directory.path}/{name}")
    return directory.open(name, private=True)


def _batches(directory: Directory, source: SourceSegment) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yields every batch of a sealed segment, after its CRC was checked."""
    file = _open_source(directory, log_name(source.base_offset))
    next_offset = source.base_offset
    try:
        position = 0
        while position < source.size:
            chunk = _read_chunk(file, position, source.size, next_offset)
            view = memoryview(chunk)
            for at, header in iter_batches(chunk):
                if not crc_is_good(chunk, at, header.size):
                    raise _Unreadable(header.base_offset, "the CRC of the batch does not match its bytes")
                next_offset = header.last_offset + 1
                position += header.size
                yield view[at : at + header.size], header
    except BadBatch as bad:
        raise _Unreadable(next_offset, bad.message) from bad
    finally:
        file.close()


def _read_chunk(file: File | _ReadOnly, position: int, end: int, offset: int) -> bytes:
    """Reads at least one whole batch, from `position` on."""
    chunk = file.pread(position, min(CHUNK_BYTES, end - position))
    if len(chunk) < HEADER_SIZE:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"the segment ends inside a batch at byte {position}")
    size = read_header(chunk).size
    if position + size > end:
        raise _Unreadable(offset, f"a batch of {size} bytes at byte {position} does not fit the segment")
    return chunk if size <= len(chunk) else file.pread(position, size)


_STEP_NAMES = {CleanedSegments: "group", Covered: "covered", Spoiled: "spoiled"}


def step_to_json(step: CleanedSegments | Covered | Spoiled) -> str:
    return json.dumps({"step": _STEP_NAMES[type(step)], **asdict(step)})


def step_from_json(line: str) -> CleanedSegments | Covered | Spoiled:
    fields: Any = json.loads(line)
    kinds: dict[str, Any] = {name: kind for kind, name in _STEP_NAMES.items()}
    step: CleanedSegments | Covered | Spoiled = kinds[fields.pop("step")](**fields)
    return step


class _CleanedNames(DiskDirectory):
    """A directory in which every file has `.cleaned` after its name."""

    __slots__ = ()

    def _join(self, name: str) -> str:
        return super()._join(name) + CLEANED


def index_cleaned(directory: DiskDirectory, base_offset: int, interval: int) -> None:
    """Writes the indexes of a cleaned segment, so that the loop does not have to."""
    cleaned = _CleanedNames(directory.path)
    segment = Segment(cleaned, base_offset, interval, sealed=True)
    segment.rebuild_indexes()
    segment.file.close()
    for suffix in (INDEX, TIME_INDEX):
        cleaned.open(file_name(base_offset, suffix), private=True).sync()


def main() -> None:
    """Runs as the child process: reads the directory and the job from stdin, a line each; prints steps to stdout."""
    path = sys.stdin.readline().rstrip("\n")
    job = CleaningJob.from_json(sys.stdin.readline())
    os.nice(10)  # produce and fetch come first
    parent = os.getppid()
    directory = DiskDirectory(path)
    for step in clean(directory, job):
        if isinstance(step, CleanedSegments):
            index_cleaned(directory, step.sources[0], job.index_interval)
        if step is not None:
            sys.stdout.write(step_to_json(step) + "\n")
            sys.stdout.flush()
        elif os.getppid() != parent:
            return  # the process that would use the result has ended


if __name__ == "__main__":
    main()
