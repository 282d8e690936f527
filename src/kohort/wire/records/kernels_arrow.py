"""The loops that gather bytes into Arrow's buffers, compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kohort.wire.records.buffer_pool import BufferPool
from kohort.wire.records.columns import Column, Columns, Pieces
from kohort.wire.records.compression import Buffer
from kohort.wire.records.kernels import (
    BYTES_IN,
    BYTES_OUT,
    FAILED,
    INT32S,
    INT32S_IN,
    INT64,
    copy,
    kernel,
    read_blob,
    read_only,
    read_varint,
)

LARGEST_INT32 = (1 << 31) - 1
LARGEST_INLINE = 12  # bytes that a view holds itself


@kernel(INT64(BYTES_IN, INT32S_IN, INT32S_IN, INT32S, INT64, BYTES_OUT))
def gather_rows(data: Any, starts: Any, sizes: Any, ends: Any, row: int, out: Any) -> int:
    """Copies pieces of `data` one after the other to `out`, from where `ends[row]` says on.

    `ends[row + 1]` and so on become the ends of the pieces. FAILED if a piece is outside `data` or `out` is full.
    """
    at = np.int64(ends[row])
    for piece in range(len(starts)):
        start, size = np.int64(starts[piece]), np.int64(sizes[piece])
        if size > 0:
            if start < 0 or size > len(data) - start or size > len(out) - at:
                return FAILED
            copy(out, at, data, start, size)
            at += size
        ends[row + piece + 1] = at
    return int(at)


@kernel(INT64(BYTES_IN, INT32S_IN, INT32S_IN, INT32S, INT32S, INT32S, INT32S, INT64))
def header_rows(
    data: Any, headers_start: Any, header_count: Any, name_start: Any, name_size: Any, value_start: Any,
    value_size: Any, row: int,
) -> int:  # fmt: skip
    """Where the names and values of all headers of the records lie, from `row` on; the row after, or FAILED."""
    end = len(data)
    for record in range(len(headers_start)):
        if header_count[record] == 0:
            continue
        _, pos = read_varint(data, headers_start[record], end, 32)
        if pos < 0 or row + header_count[record] > len(name_start):
            return FAILED
        for _ in range(header_count[record]):
            start, size, pos = read_blob(data, pos, end)
            if pos < 0:
                return FAILED
            name_start[row], name_size[row] = start, size
            start, size, pos = read_blob(data, pos, end)
            if pos < 0:
                return FAILED
            value_start[row], value_size[row] = start, size
            row += 1
    return row


@kernel(INT64(BYTES_IN, INT32S_IN, INT32S_IN, INT32S, INT64, INT64))
def view_rows(data: Any, starts: Any, sizes: Any, views: Any, row: int, buffer: int) -> int:
    """Four numbers for each piece from `row` on, as Arrow's binary_view has them; the row after, or FAILED.

    The size; then up to 12 bytes themselves, or the first four of them, the number of the buffer and where they start.
    """
    for piece in range(len(starts)):
        start, size = np.int64(starts[piece]), np.int64(sizes[piece])
        at = 4 * (row + piece)
        views[at] = max(size, 0)
        views[at + 1] = views[at + 2] = views[at + 3] = 0
        if size <= 0:
            continue
        if start < 0 or size > len(data) - start:
            return FAILED
        inline = size if size <= LARGEST_INLINE else 4
        for byte in range(inline):
            views[at + 1 + byte // 4] |= np.int32(data[start + byte]) << (8 * (byte % 4))
        if size > LARGEST_INLINE:
            views[at + 2] = buffer
            views[at + 3] = start
    return row + len(starts)


def gather(pieces: Sequence[Pieces], new: Callable[[int], Any] | None = None) -> tuple[Any, Any, Any]:
    """Does what `columns_python.gather` does."""
    columns, all_sizes, validity = _columns(pieces)
    total = int((all_sizes if validity is None else np.maximum(all_sizes, 0)).sum(dtype=np.int64))
    if total > LARGEST_INT32:
        raise OverflowError(f"{total} bytes are too many for one column of Arrow's binary type")
    content = np.empty(total, np.uint8) if new is None else new(total)
    ends, out = np.empty(len(all_sizes) + 1, np.int32), np.frombuffer(content, np.uint8)
    ends[0] = row = 0
    for data, starts, sizes in columns:
        at = gather_rows(data, starts, sizes, ends, row, out)
        assert at >= 0, "a piece lies outside its buffer"
        row += len(starts)
    return validity, ends, content


class Gathering:
    """Gathers part by part: each part is copied while its bytes are still in the processor's cache.

    The memory comes from a buffer pool. That of Arrow's allocator is given back to the system and cleared again, which
    took three quarters of all time where lines of 100 bytes came compressed.
    """

    __slots__ = ("_buffer", "_ends", "_size", "_there")

    def __init__(self, expected: int) -> None:
        self._buffer = _pool.take(expected)
        self._size = 0
        self._ends = [np.zeros(1, np.int32)]
        self._there: list[Any] = []  # of each part, which pieces are not null

    def add(self, data: Buffer, start_column: Column, size_column: Column, nulls: bool) -> None:
        """Adds a part; `nulls` says that some pieces may be null."""
        starts, sizes = _int32s(start_column), _int32s(size_column)
        there = sizes >= 0 if nulls else np.ones(len(sizes), np.bool_)
        size = self._size + int((np.maximum(sizes, 0) if nulls else sizes).sum(dtype=np.int64))
        if size > LARGEST_INT32:
            raise OverflowError(f"{size} bytes are too many for one column of Arrow's binary type")
        if size > len(self._buffer):
            self._grow(size)
        ends = np.empty(len(sizes) + 1, np.int32)
        ends[0] = self._size
        out = np.frombuffer(self._buffer, np.uint8)
        at = gather_rows(read_only(np.frombuffer(data, np.uint8)), starts, sizes, ends, 0, out)
        assert at == size, "a piece lies outside its buffer"
        self._ends.append(ends[1:])
        self._there.append(there)
        self._size = size

    def add_nulls(self, count: int) -> None:
        self._ends.append(np.full(count, self._size, np.int32))
        self._there.append(np.zeros(count, np.bool_))

    def _grow(self, size: int) -> None:
        larger = _pool.take(max(size, 2 * len(self._buffer)))
        larger[: self._size] = self._buffer[: self._size]
        self._buffer = larger

    def finish(self) -> tuple[Any, Any, Any]:
        """The result as `gather` gives it. This object cannot be used afterwards."""
        there = np.concatenate(self._there)
        validity = None if there.all() else np.packbits(there, bitorder="little")
        content = self._buffer[: self._size]
        if 2 * self._size < len(self._buffer):  # few bytes should not keep a large buffer
            content = _pool.take(self._size)
            content[:] = self._buffer[: self._size]
        return validity, np.concatenate(self._ends), content


_MOST_KEPT = 64 << 20
_pool = BufferPool(_MOST_KEPT, fitting=True)


def views(pieces: Sequence[Pieces]) -> tuple[Any, Any]:
    """Does what `columns_python.views` does."""
    columns, all_sizes, validity = _columns(pieces)
    found, row = np.empty(4 * len(all_sizes), np.int32), 0
    for number, (data, starts, sizes) in enumerate(columns):
        row = view_rows(data, starts, sizes, found, row, number)
        assert row >= 0, "a piece lies outside its buffer"
    return validity, found


def _columns(pieces: Sequence[Pieces]) -> tuple[list[tuple[Any, Any, Any]], Any, Any]:
    """The pieces as the kernels take them, the sizes of all pieces, and their validity bits (None: no nulls)."""
    columns = [
        (read_only(np.frombuffer(data, np.uint8)), _int32s(starts), _int32s(sizes))
        for data, starts, sizes in pieces
    ]
    all_sizes = columns[0][2] if len(columns) == 1 else np.concatenate([column[2] for column in columns])
    there = all_sizes >= 0
    return columns, all_sizes, None if there.all() else np.packbits(there, bitorder="little")


def header_pieces(columns: Columns) -> tuple[Pieces, Pieces]:
    """Does what `columns_python.header_pieces` does."""
    count = int(np.asarray(columns.header_count).sum())
    new = np.empty
    found = new(count, np.int32), new(count, np.int32), new(count, np.int32), new(count, np.int32)
    data = read_only(np.frombuffer(columns.data, np.uint8))
    end = header_rows(data, _int32s(columns.headers_start), _int32s(columns.header_count), *found, 0)
    assert end == count, "the headers are not what the decode found"
    return (columns.data, found[0], found[1]), (columns.data, found[2], found[3])


def _int32s(column: Any) -> Any:
    """A column, from numpy or from plain Python, as the kernels take it."""
    return read_only(np.frombuffer(column, np.int32) if isinstance(column, memoryview) else column[:])
