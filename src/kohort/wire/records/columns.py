"""Records as columns: fetched bytes -> arrays of offsets, timestamps and positions, without an object per record.

`decode_columns` walks the batches of a fetched partition (CRC, transactions, decompression) and hands the
uncompressed ones, as spans of one buffer, to one loop: `kernels` (Numba) or `columns_python`. Both give the
same answers. Numba is loaded once enough bytes were decoded to make its start worthwhile; `prefer("python")`
keeps it out, `prefer("numba")` loads it at once. This package reads no environment: the fronts of the client
call `prefer` with what KOHORT_KERNEL says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from operator import add
from typing import Any, Protocol, TypeVar

from crc32c import crc32c

from kohort.wire.errors import BadBatch
from kohort.wire.records.batch import (
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    KEEP_LOCK,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    header_fields,
    iter_records,
    read_header,
)
from kohort.wire.records.compression import Buffer, Compression, compress_behind
from kohort.wire.records.payload import read_headers, read_varint
from kohort.wire.records.walk import Walk, at_offset

Headers = tuple[tuple[str, bytes | None], ...]
RecordHeaders = Sequence[tuple[str, bytes | None]]
Run = tuple[int, int, int]
"""The row after its last, the leader epoch (-1: unknown), and the timestamp type (0 create, 1 append)."""

MAX_BYTES = 256 * 1024 * 1024
"""How many bytes one call decodes unless told otherwise: the compressed bytes of a fetch can hold any amount."""
_LARGEST_MAX_BYTES = 1 << 30  # with one more batch, positions still fit 32 bits


class Column(Protocol):
    """A numpy array, or a memoryview of an `array`: integers by row, and the buffer protocol."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: Any, /) -> Any: ...
    def tolist(self) -> list[int]: ...


Pieces = tuple[Buffer, Column, Column]
"""Pieces of one buffer: where each starts, and how long each is (-1: null)."""
Made = TypeVar("Made")


class Columns:
    """The records of consecutive batches, by column. Sizes of -1 mean null; starts are positions in `data`.

    `data` is the buffer that was decoded, as long as nothing in it is compressed: it must not change while
    the columns, or records that are still to be made of them, are in use.
    `headers_start` is where the number of headers stands. `has_keys`, `has_null_values` and `has_headers` may be true
    for a slice that no longer has any; they are never false for one that has some.
    """

    __slots__ = (
        "data", "offsets", "timestamps", "key_start", "key_size", "value_start", "value_size",
        "headers_start", "header_count", "runs", "has_keys", "has_null_values", "has_headers",
    )  # fmt: skip

    def __init__(
        self, data: Buffer, offsets: Column, timestamps: Column, key_start: Column, key_size: Column,
        value_start: Column, value_size: Column, headers_start: Column, header_count: Column, runs: list[Run],
        has_keys: bool, has_null_values: bool, has_headers: bool,
    ) -> None:  # fmt: skip
        self.data = data
        self.offsets = offsets
        self.timestamps = timestamps
        self.key_start = key_start
        self.key_size = key_size
        self.value_start = value_start
        self.value_size = value_size
        self.headers_start = headers_start
        self.header_count = header_count
        self.runs = runs
        self.has_keys = has_keys
        self.has_null_values = has_null_values
        self.has_headers = has_headers

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        if not len(self):
            return "Columns(no records)"
        return f"Columns({len(self)} records, offsets {self.offsets[0]} to {self.offsets[-1]})"

    def slice(self, start: int, stop: int) -> Columns:
        """The rows from `start` to before `stop`, over the same memory."""
        start, stop, _ = slice(start, stop).indices(len(self))
        stop = max(start, stop)
        rows = slice(start, stop)
        runs = [
            (min(end, stop) - start, epoch, kind)
            for first, (end, epoch, kind) in zip((0, *(run[0] for run in self.runs)), self.runs, strict=False)
            if end > start and first < stop
        ]
        return Columns(
            self.data, self.offsets[rows], self.timestamps[rows], self.key_start[rows], self.key_size[rows],
            self.value_start[rows], self.value_size[rows], self.headers_start[rows], self.header_count[rows],
            runs if stop > start else [], self.has_keys, self.has_null_values, self.has_headers,
        )  # fmt: skip

    def run_of(self, row: int) -> Run:
        """The run that a row is in."""
        return next(run for run in self.runs if row < run[0])

    def cut(self) -> tuple[Iterable[bytes | None], Iterable[bytes | None]]:
        """Keys and values as bytes. It copies what they span, so it is meant for some hundred rows at a time."""
        if not len(self):
            return (), ()
        values = _pieces(self.data, self.value_start, self.value_size, self.has_null_values)
        if not self.has_keys:
            return repeat(None), values
        return _pieces(self.data, self.key_start, self.key_size, True), values

    def headers(self, row: int) -> Headers:
        """The headers of one record; bytes of a name that are not UTF-8 become surrogate escapes."""
        view: Any = memoryview(self.data)
        count, pos = read_varint(view, int(self.headers_start[row]))
        found: list[tuple[str, bytes | None]] = []
        for _ in range(count):
            size, pos = read_varint(view, pos)
            name = str(view[pos : pos + size], "utf-8", "surrogateescape")
            size, pos = read_varint(view, pos + size)
            found.append((name, bytes(view[pos : pos + size]) if size >= 0 else None))
            pos += max(size, 0)
        return tuple(found)

    def header_list(self) -> list[Headers]:
        """The headers of all records; like `cut`, it is meant for some hundred rows at a time."""
        if not len(self):
            return []
        starts, counts = self.headers_start.tolist(), self.header_count.tolist()
        if not isinstance(self.headers_start, memoryview):
            from kohort.wire.records.kernels_arrow import header_pieces

            names, values = (_pieces(*pieces, with_nulls=True) for pieces in header_pieces(self))
            pairs = zip(map(_Names().__getitem__, names), values, strict=True)
            return [tuple(islice(pairs, count)) if count else () for count in counts]
        base, end = (
            starts[0],
            starts.pop(),
        )  # where the last headers end is not known: they are read by themselves
        data = bytes(memoryview(self.data)[base:end])
        found: list[Headers] = [
            tuple(read_headers(data, start - base)[0]) if count else ()
            for start, count in zip(starts, counts, strict=False)
        ]
        return [*found, self.headers(len(self) - 1)]


class _Names(dict[bytes | None, str]):
    """The names of headers as text; there are many headers, and few names."""

    def __missing__(self, name: bytes | None) -> str:
        assert name is not None, "a decoded header has a name"
        self[name] = text = name.decode("utf-8", "surrogateescape")
        return text


def _pieces(buffer: Buffer, start_column: Column, sizes: Column, with_nulls: bool) -> Sequence[bytes | None]:
    if not len(sizes):
        return []
    if not isinstance(start_column, memoryview) and len(sizes) > 32 and (size := int(sizes[0])) > 0:
        numbers: Any = sizes
        if (numbers == size).all():
            return _of_one_size(buffer, start_column, size)
    if isinstance(buffer, bytes):
        base, data = 0, buffer
    else:  # its slices are views, not bytes
        base = int(start_column[0])
        data = bytes(buffer[base : int(start_column[-1]) + max(0, int(sizes[-1]))])
    if isinstance(start_column, memoryview):
        starts = [start - base for start in start_column.tolist()] if base else start_column.tolist()
        ends = list(map(add, starts, sizes.tolist()))
    else:
        from_base: Any = start_column - base  # type: ignore[operator]
        starts, ends = from_base.tolist(), (from_base + sizes).tolist()
    if with_nulls:
        return [data[start:end] if end >= start else None for start, end in zip(starts, ends, strict=True)]
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def _of_one_size(buffer: Buffer, starts: Column, size: int) -> list[bytes]:
    """Cuts pieces of one size three times as fast, as items of a numpy type of that size."""
    import numpy as np  # loaded already: the columns are numpy's

    items: Any = np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer, strides=(1,))
    pieces: list[bytes] = items[starts].tolist()
    return pieces


def no_columns() -> Columns:
    """Columns of no record at all."""
    long, short = memoryview(b"").cast("q"), memoryview(b"").cast("i")
    return Columns(b"", long, long, short, short, short, short, short, short, [], False, False, False)


@dataclass(slots=True)
class Decoded:
    """What `decode_columns` read.

    `next_offset` is the position after the last whole batch that was read: past control batches, aborted ones
    and records that compaction took. `error` says what is wrong with the batch that stopped it there.
    `bytes_used` is how many bytes of the input were read; the rest begins with the batch that was damaged, was
    incomplete, or was left because of `max_bytes`. To go on after `max_bytes`, pass the rest, `next_offset` and
    `aborted`. If there is `more`, these are only the first records, and `next_offset` is the offset after the last of
    them; `more()` decodes the next ones, and its last result describes the rest.
    """

    columns: Columns
    next_offset: int
    error: BadBatch | None
    bytes_used: int
    aborted: list[tuple[int, int]] | None
    more: Callable[[], Decoded] | None = None


# --- which loop -----------------------------------------------------------------------------------

# Starting Numba costs as much as decoding some megabytes without it: a short program never pays for it.
_WORTH_NUMBA = 4 * 1024 * 1024


@dataclass(slots=True)
class _Way:
    """The choice of the loops; `bytes_without` counts the bytes that were decoded before it was made."""

    wanted: str = ""
    bytes_without: int = 0
    loops: Any = None

    def choose(self, size: int) -> Any:
        """The module with the loops to use for `size` more bytes."""
        if self.loops is not None:
            return self.loops
        self.bytes_without += size
        if self.wanted != "numba" and self.bytes_without < _WORTH_NUMBA:
            from kohort.wire.records import columns_python

            return columns_python
        return self.decide()

    def decide(self) -> Any:
        """Loads Numba now if it is installed and wanted."""
        if self.loops is None:
            from kohort.wire.records import columns_python

            self.loops = columns_python
            if self.wanted != "python":
                try:
                    from kohort.wire.records import kernels
                except ImportError:
                    if self.wanted == "numba":
                        self.loops = None
                        raise
                else:
                    self.loops = kernels
        return self.loops


_way = _Way()


def prefer(way: str) -> None:
    """Sets the loops to use from now on: "python", "numba" (ImportError if it is not installed), or "": the best."""
    if way not in ("", "numba", "python"):
        raise ValueError(f"KOHORT_KERNEL is {way!r}; it can be numba or python, or not be set")
    _way.wanted, _way.loops, _way.bytes_without = way, None, 0


def loops_for(size: int) -> Any:
    """The module with the loops to use for `size` more bytes."""
    return _way.choose(size)


def compiled() -> bool:
    """Whether the compiled loops are used; loads them if that was not decided yet (0.3 s, or more the first time)."""
    return bool(_way.decide().COMPILED)


# --- decoding -------------------------------------------------------------------------------------


def decode_columns(
    records: Buffer,
    start_offset: int,
    *,
    check_crcs: bool = True,
    aborted: Sequence[tuple[int, int]] | None = None,
    max_bytes: int | None = None,
    first_part: int = 0,
) -> Decoded:
    """The records from `start_offset` on of the batches in `records`, the last of which may be cut short.

    `aborted`, if given, makes it read_committed: producer id and first offset of each aborted transaction, as
    Fetch answers them. Nothing is raised: damage ends the columns and is in `error`. At least one batch is
    read if there is one; after `max_bytes`, decompressed, no further one is begun. Where decoding is slow, only about
    `first_part` records are decoded at first, and the others by `Decoded.more`.
    """
    assert len(records) < 1 << 31, "positions have 32 bits, as the length of an answer has"
    loops = _way.choose(len(records))
    walk = Walk(memoryview(records), start_offset, check_crcs, aborted)
    walk.run(min(max_bytes or MAX_BYTES, _LARGEST_MAX_BYTES), loops.scanner)
    data, spans = walk.spans()
    if first_part and not loops.COMPILED:
        return _in_parts(walk, loops.Decoding(data, spans, start_offset), start_offset, first_part)
    columns: Columns | int = no_columns()
    if spans:
        columns = loops.decode(data, spans, start_offset, walk.most_records, walk.batches)
    if isinstance(columns, int):
        damaged_at = walk.origin(columns)
        before = decode_columns(
            walk.records[:damaged_at], start_offset, check_crcs=False, aborted=aborted, max_bytes=max_bytes
        )
        before.error = _why_damaged(walk.records[damaged_at:])
        return before
    return _decoded(walk, columns)


def _decoded(walk: Walk, columns: Columns) -> Decoded:
    rest = walk.transactions.rest() if walk.transactions else None
    return Decoded(columns, walk.next_offset, walk.error, walk.pos, rest)


def _in_parts(walk: Walk, decoding: Any, next_offset: int, most: int) -> Decoded:
    """Decodes in parts. The records before a damaged one in its batch are handed out, as Kafka's consumer does."""
    columns = decoding.go_on(most)
    if isinstance(columns, int):
        damaged_at = walk.origin(columns)
        error = _why_damaged(walk.records[damaged_at:])
        return Decoded(no_columns(), next_offset, error, damaged_at, None)
    if decoding.is_done:
        return _decoded(walk, columns)
    if len(columns):
        next_offset = int(columns.offsets[-1]) + 1
    return Decoded(
        columns, next_offset, None, 0, None, lambda: _in_parts(walk, decoding, next_offset, 2 * most)
    )


def _why_damaged(batch: memoryview) -> BadBatch:
    header = read_header(batch)
    try:
        for _ in iter_records(batch):
            pass
    except BadBatch as error:
        return at_offset(header.base_offset, error)
    raise AssertionError(f"two ways of reading disagree about the batch at offset {header.base_offset}")


# --- encoding -------------------------------------------------------------------------------------

# Below this many records, the call into compiled code costs more than it saves.
_WORTH_A_KERNEL = 24
_RECORD_WORTH = 100  # in bytes of `_WORTH_NUMBA`
_WORTH_A_BUFFER = 1 << 16

_crc = header_fields("crc")


def encode_columns(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[RecordHeaders | None] | None = None,
) -> bytes:
    """The records of a batch, uncompressed: offsets from 0 on, times relative to the first record's.

    `timestamps` may be one number for all; `keys` and `headers` are None if no record has any.
    """
    return _encode(keys, values, timestamps, headers, 0, bytes)


def encode_batch_columns(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[RecordHeaders | None] | None = None,
    *,
    compression: int = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    with_crc: bool = True,
) -> Buffer:
    """A whole batch of at least one record, as Produce takes it, from the same columns as `encode_columns`.

    Without its checksum if whoever asks writes something else into the header, and then the checksum.
    """
    assert values, "a batch holds at least one record"
    if isinstance(timestamps, int):
        base_timestamp = max_timestamp = timestamps
    else:
        base_timestamp, max_timestamp = timestamps[0], max(timestamps)
    header = BatchHeader(
        0, 0, -1, MAGIC, 0, compression | (TRANSACTIONAL if transactional else 0), len(values) - 1,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, len(values),
    )  # fmt: skip
    return _encode(
        keys,
        values,
        timestamps,
        headers,
        HEADER_SIZE,
        lambda batch: finish_batch(header, batch, level, with_crc),
    )


def finish_batch(header: BatchHeader, batch: Any, level: int | None = None, with_crc: bool = True) -> Buffer:
    """Compresses the records behind the space for a header in `batch` as `header` says, and writes the header."""
    whole = memoryview(batch)
    if header.compression:
        whole = memoryview(compress_behind(HEADER_SIZE, header.compression, whole[HEADER_SIZE:], level))
    HEADER.pack_into(whole, 0, *header._replace(batch_length=len(whole) - LENGTH_END))
    if with_crc:
        _crc.pack_into(whole, CRC_AT, crc32c(whole[CRC_START:], 0, KEEP_LOCK))
    # A small batch need not keep the memory that it was made in.
    return bytes(whole) if len(whole) < _WORTH_A_BUFFER else whole


def _encode(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[RecordHeaders | None] | None,
    before: int,
    finish: Callable[[Any], Made],
) -> Made:
    from kohort.wire.records import columns_python

    encoded = None
    if headers is not None and any(headers):
        encoded = [columns_python.encode_headers(each) if each else b"\0" for each in headers]
    loops = _way.choose(_RECORD_WORTH * len(values)) if len(values) >= _WORTH_A_KERNEL else columns_python
    made: Made = loops.encode(keys, values, timestamps, encoded, before, finish)
    return made
