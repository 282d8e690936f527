"""The loops over records compiled by Numba: the same results as `columns_python`, a hundred times as fast.

`columns` loads this module on first use. Compiled code has no bounds checks of its own: every read below is
preceded by a comparison with the end of the batch, and only complete batches are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kohort.wire.records.batch import (
    APPEND_TIME,
    BASE_TIMESTAMP_AT,
    CONTROL,
    FLAGS_AT,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_END,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
)
from kohort.wire.records.columns import Columns, Pieces
from kohort.wire.records.compression import Buffer

F = TypeVar("F", bound=Callable[..., Any])
Eight = tuple[Any, Any, Any, Any, Any, Any, Any, Any]

BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
INT32S = types.Array(types.int32, 1, "C")
INT64S = types.Array(types.int64, 1, "C")
INT64_TABLE = types.Array(types.int64, 2, "C")
INT32S_IN = types.Array(types.int32, 1, "C", readonly=True)
INT64S_IN = types.Array(types.int64, 1, "C", readonly=True)
INT64 = types.int64


def kernel(signature: Any) -> Callable[[F], F]:
    """Compiles a function for one signature when the module loads, or takes it from the cache on disk.

    Numba keeps its cache next to this file, or in the user's cache directory where that is read-only, or in
    NUMBA_CACHE_DIR; where it can write nowhere, it compiles in every process.
    """

    def compile_it(function: F) -> F:
        try:
            made: Any = numba.njit(signature, cache=True, nogil=True)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            made = numba.njit(signature, nogil=True)(function)
        return cast(F, made)

    return compile_it


def part(function: F) -> F:
    """Compiles a function into the kernels that call it."""
    return cast(F, numba.njit(nogil=True)(function))


def read_only(column: Any) -> Any:
    """Makes the array itself read-only, as the kernels expect it."""
    column.flags.writeable = False
    return column


# --- reading --------------------------------------------------------------------------------------

COMPILED = True
FAILED = -1  # a position that says: the bytes are damaged
RECORDS, RUNS, KEYS, NULL_VALUES, HEADERS = range(5)  # indexes of the counters in the `state` of a decode


@part
def int32_at(data: Any, pos: int) -> int:
    number: Any = (
        (np.int64(data[pos]) << 24)
        | (np.int64(data[pos + 1]) << 16)
        | (np.int64(data[pos + 2]) << 8)
        | np.int64(data[pos + 3])
    )
    return int(number - ((number & 0x8000_0000) << 1))


@part
def int64_at(data: Any, pos: int) -> int:
    return (int32_at(data, pos) << 32) | (int32_at(data, pos + 4) & 0xFFFF_FFFF)


@part
def read_varint(data: Any, pos: int, end: int, bits: int) -> tuple[int, int]:
    """A zigzag varint and the position after it; FAILED if it does not end before `end` or is too large."""
    if pos >= end:
        return 0, FAILED
    byte: Any = np.int64(data[pos])
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    number = byte & 0x7F
    shift = 7
    while shift < bits:
        pos += 1
        if pos >= end:
            return 0, FAILED
        byte = np.int64(data[pos])
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift + 7 > bits and byte >> (bits - shift) != 0:
                return 0, FAILED
            return ((number >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(number & 1), pos + 1
        shift += 7
    return 0, FAILED


@part
def read_blob(data: Any, pos: int, end: int) -> tuple[int, int, int]:
    """Where a blob starts that has its length before it, its size (-1: null), and the position after it."""
    size, pos = read_varint(data, pos, end, 32)
    if pos < 0:
        return 0, 0, FAILED
    if size < 0:
        return pos, -1, pos
    if size > end - pos:
        return 0, 0, FAILED
    return pos, size, pos + size


@part
def _skip_headers(data: Any, pos: int, end: int, count: int) -> int:
    for _ in range(count):
        _, size, pos = read_blob(data, pos, end)
        if pos < 0 or size < 0:
            return FAILED
        _, size, pos = read_blob(data, pos, end)
        if pos < 0:
            return FAILED
    return pos


@part
def _decode_batch(
    data: Any, pos: int, end: int, start_offset: int, at: int, offsets: Any, timestamps: Any, key_start: Any,
    key_size: Any, value_start: Any, value_size: Any, headers_start: Any, header_count: Any, state: Any,
) -> int:  # fmt: skip
    """Decodes the batch from `pos` to `end` into the columns from row `at` on; the next row, or FAILED."""
    base_offset = int64_at(data, pos)
    append_time = data[pos + FLAGS_AT] & APPEND_TIME != 0
    base_timestamp = int64_at(data, pos + BASE_TIMESTAMP_AT)
    max_timestamp = int64_at(data, pos + MAX_TIMESTAMP_AT)
    count = int32_at(data, pos + RECORD_COUNT_AT)
    if count < 0:
        return FAILED
    pos += HEADER_SIZE
    for _ in range(count):
        length, pos = read_varint(data, pos, end, 32)
        if pos < 0 or length < 0 or length > end - pos:
            return FAILED
        record_end = pos + length
        delta, pos = read_varint(data, pos + 1, record_end, 64)
        if pos < 0:
            return FAILED
        offset_delta, pos = read_varint(data, pos, record_end, 32)
        if pos < 0:
            return FAILED
        key_at, key_length, pos = read_blob(data, pos, record_end)
        if pos < 0:
            return FAILED
        value_at, value_length, pos = read_blob(data, pos, record_end)
        if pos < 0:
            return FAILED
        headers_at = pos
        headers, pos = read_varint(data, pos, record_end, 32)
        if headers != 0 and pos >= 0:
            pos = _skip_headers(data, pos, record_end, headers) if headers > 0 else FAILED
        if pos != record_end:
            return FAILED
        offset = base_offset + offset_delta
        if offset < start_offset:
            continue
        if at >= len(offsets):
            return FAILED
        offsets[at] = offset
        timestamps[at] = max_timestamp if append_time else base_timestamp + delta
        key_start[at] = key_at
        key_size[at] = key_length
        value_start[at] = value_at
        value_size[at] = value_length
        headers_start[at] = headers_at
        header_count[at] = headers
        state[KEYS] += key_length >= 0
        state[NULL_VALUES] += value_length < 0
        state[HEADERS] += headers
        at += 1
    return at if pos == end else FAILED


@kernel(
    INT64(
        BYTES_IN, INT64, INT64, INT64, INT64S, INT64S, INT32S, INT32S, INT32S, INT32S, INT32S,
        INT32S, INT64_TABLE, INT64S,
    )
)  # fmt: skip
def decode_span(
    data: Any, pos: int, stop: int, start_offset: int, offsets: Any, timestamps: Any, key_start: Any,
    key_size: Any, value_start: Any, value_size: Any, headers_start: Any, header_count: Any, runs: Any, state: Any,
) -> int:  # fmt: skip
    """Appends the records of the whole, uncompressed batches from `pos` to `stop` to the columns.

    Returns the position of the first damaged batch, or FAILED if none is.
    """
    at, run = state[RECORDS], state[RUNS]
    while pos < stop:
        end = pos + LENGTH_END + int32_at(data, pos + LENGTH_AT)
        attributes = data[pos + FLAGS_AT]
        if attributes & CONTROL == 0:
            first = at
            at = _decode_batch(
                data, pos, end, start_offset, at, offsets, timestamps, key_start, key_size, value_start,
                value_size, headers_start, header_count, state,
            )  # fmt: skip
            if at < 0:
                return pos
            leader_epoch = int32_at(data, pos + LEADER_EPOCH_AT)
            kind = 1 if attributes & APPEND_TIME else 0
            if at > first:
                if run == 0 or runs[run - 1, 1] != leader_epoch or runs[run - 1, 2] != kind:
                    if run >= len(runs):
                        return pos
                    runs[run, 1] = leader_epoch
                    runs[run, 2] = kind
                    run += 1
                runs[run - 1, 0] = at
        pos = end
    state[RECORDS], state[RUNS] = at, run
    return FAILED


def decode(
    data: Buffer, spans: Sequence[tuple[int, int]], start_offset: int, most_records: int, batches: int
) -> Columns | int:
    """The records of the whole, uncompressed batches in `spans`; or the position of the first damaged one."""
    source = read_only(np.frombuffer(data, np.uint8))
    new = np.empty
    columns: Eight = (
        new(most_records, np.int64), new(most_records, np.int64),
        new(most_records, np.int32), new(most_records, np.int32), new(most_records, np.int32),
        new(most_records, np.int32), new(most_records, np.int32), new(most_records, np.int32),
    )  # fmt: skip
    runs = np.empty((batches, 3), np.int64)
    state = np.zeros(5, np.int64)
    for start, stop in spans:
        damaged_at = decode_span(source, start, stop, start_offset, *columns, runs, state)
        if damaged_at >= 0:
            return damaged_at
    count, run_count, keys, nulls, headers = state.tolist()
    if count < most_records:
        columns = cast(Eight, tuple(column[:count] for column in columns))
    return Columns(
        data, *columns, runs=[(end, epoch, kind) for end, epoch, kind in runs[:run_count].tolist()],
        has_keys=keys > 0, has_null_values=nulls > 0, has_headers=headers > 0,
    )  # fmt: skip


# --- copying --------------------------------------------------------------------------------------


def _copy_bytes(
    typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any
) -> Any:
    """memcpy of `size` bytes between two arrays; the caller has checked that they are there."""

    raw_memcpy: Any = cgutils.raw_memcpy

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target_array = context.make_array(signature.args[0])(context, builder, args[0])
        source_array = context.make_array(signature.args[2])(context, builder, args[2])
        to = builder.gep(target_array.data, [args[1]])
        raw_memcpy(builder, to, builder.gep(source_array.data, [args[3]]), args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), build


copy: Any = intrinsic(_copy_bytes)


def scanner(data: memoryview, start_offset: int, not_flags: int, last_offset: int, check_crcs: bool) -> Any:
    """A function for `walk.Walk`: (pos, stop) -> how far batches are plain, their next offset, most records, number."""
    from kohort.wire.records.kernels_scan import scan_rows

    source = read_only(np.frombuffer(data, np.uint8))
    state = np.zeros(3, np.int64)

    def scan(pos: int, stop: int) -> tuple[int, int, int, int]:
        state[:] = 0
        to = scan_rows(source, pos, stop, start_offset, not_flags, last_offset, check_crcs, state)
        next_offset, most_records, batches = state.tolist()
        return to, next_offset, most_records, batches

    return scan


def encode(*columns: Any) -> Any:
    """Does what `columns_python.encode` does; loaded when something is produced."""
    from kohort.wire.records import kernels_encode

    return kernels_encode.encode(*columns)


def gather(pieces: Sequence[Pieces], new: Callable[[int], Any] | None = None) -> tuple[Any, Any, Any]:
    """Does what `columns_python.gather` does; loaded when something becomes Arrow."""
    from kohort.wire.records import kernels_arrow

    return kernels_arrow.gather(pieces, new)


def gathering(expected: int) -> Any:
    """Gathers part by part, for about `expected` bytes."""
    from kohort.wire.records import kernels_arrow

    return kernels_arrow.Gathering(expected)


def views(pieces: Sequence[Pieces]) -> tuple[Any, Any]:
    """Does what `columns_python.views` does."""
    from kohort.wire.records import kernels_arrow

    return kernels_arrow.views(pieces)


def header_pieces(columns: Columns) -> tuple[Pieces, Pieces]:
    """Does what `columns_python.header_pieces` does."""
    from kohort.wire.records import kernels_arrow

    return kernels_arrow.header_pieces(columns)
