"""The compiled loops that write records (Numba): the producer's half of `kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kohort.wire.compression import Buffer
from kohort.wire.kernels import (
    BYTES_IN,
    BYTES_OUT,
    FAILED,
    INT32S_IN,
    INT64,
    INT64S_IN,
    copy,
    kernel,
    part,
    read_only,
)


@part
def _varint_size(number: int) -> int:
    rest: Any = (number << 1) ^ (number >> 63)
    size = 1
    while rest & ~0x7F != 0:
        rest = (rest >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size


@part
def _put_varint(out: Any, at: int, number: int) -> int:
    rest: Any = (number << 1) ^ (number >> 63)
    while rest & ~0x7F != 0:
        out[at] = (rest & 0x7F) | 0x80
        rest = (rest >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    out[at] = rest
    return at + 1


@part
def _put_blob(out: Any, at: int, data: Any, start: int, size: int) -> int:
    at = _put_varint(out, at, size)
    if size > 0:
        copy(out, at, data, start, size)
        at += size
    return at


@part
def _piece(data: Any, starts: Any, sizes: Any, row: int, at: int) -> tuple[int, int]:
    """Where a piece starts and its size: at `at` if there are no starts; FAILED if it is not in `data`.

    A size of -1 is null, as is every piece where there are no sizes.
    """
    if len(sizes) == 0 or sizes[row] < 0:
        return at, -1
    start: Any = np.int64(starts[row]) if len(starts) > 0 else at
    size: Any = np.int64(sizes[row])
    if start < 0 or size > len(data) - start:
        return FAILED, 0
    return start, size


@kernel(
    INT64(
        BYTES_IN, INT64S_IN, INT32S_IN, BYTES_IN, INT64S_IN, INT32S_IN, BYTES_IN, INT64S_IN,
        INT32S_IN, INT64S_IN, INT64, INT64, BYTES_OUT, INT64,
    )
)  # fmt: skip
def encode_rows(
    keys: Any, key_starts: Any, key_sizes: Any, values: Any, value_starts: Any, value_sizes: Any, headers: Any,
    headers_starts: Any, headers_sizes: Any, timestamps: Any, base_timestamp: int, count: int, out: Any, at: int,
) -> int:  # fmt: skip
    """Writes `count` records to `out` from `at` on; the position after them, or FAILED if something is not there.

    Columns of keys, headers and timestamps may be empty: null, none, the base timestamp. Without starts, pieces
    follow one another. `headers` holds the encoded headers of each record with their number.
    """
    key_at, key_size, value_at, value_size, headers_at, headers_size = 0, 0, 0, 0, 0, 0
    for row in range(count):
        key_at, key_size = _piece(keys, key_starts, key_sizes, row, key_at + max(key_size, 0))
        value_at, value_size = _piece(values, value_starts, value_sizes, row, value_at + max(value_size, 0))
        headers_at, headers_size = _piece(
            headers, headers_starts, headers_sizes, row, headers_at + max(headers_size, 0)
        )
        if key_at < 0 or value_at < 0 or headers_at < 0:
            return FAILED
        delta = timestamps[row] - base_timestamp if len(timestamps) > 0 else 0
        size = (
            1 + _varint_size(delta) + _varint_size(row)
            + _varint_size(key_size) + max(key_size, 0)
            + _varint_size(value_size) + max(value_size, 0)
            + max(headers_size, 1)
        )  # fmt: skip
        if size + 5 > len(out) - at:
            return FAILED
        at = _put_varint(out, at, size)
        out[at] = 0
        at = _put_varint(out, at + 1, delta)
        at = _put_varint(out, at, row)
        at = _put_blob(out, at, keys, key_at, key_size)
        at = _put_blob(out, at, values, value_at, value_size)
        if headers_size > 0:
            copy(out, at, headers, headers_at, headers_size)
            at += headers_size
        else:
            out[at] = 0
            at += 1
    return at


_NO_LONGS: Any = read_only(np.empty(0, np.int64))
_NO_SIZES: Any = read_only(np.empty(0, np.int32))
_MOST_OVERHEAD = 36  # of a record, besides key, value and headers: six numbers and the attributes

Blobs = tuple[Any, Any, Any, int]
"""One buffer, where in it each piece starts, how long each is (-1: null), the bytes of all of them."""
_NO_BLOBS: Blobs = (read_only(np.empty(0, np.uint8)), _NO_LONGS, _NO_SIZES, 0)


def _in_one(blobs: Sequence[Buffer | None] | None) -> Blobs:
    if not blobs:
        return _NO_BLOBS
    count = len(blobs)
    if None in blobs:
        sizes = np.fromiter([-1 if blob is None else len(blob) for blob in blobs], np.int32, count)
        data = b"".join([blob for blob in blobs if blob is not None])
    else:
        sizes = np.fromiter(map(len, blobs), np.int32, count)  # type: ignore[arg-type]
        data = b"".join(blobs)  # type: ignore[arg-type]
    return np.frombuffer(data, np.uint8), _NO_LONGS, read_only(sizes), len(data)


def encode_blobs(
    keys: Blobs,
    values: Blobs,
    headers: Blobs,
    timestamps: Any,
    base_timestamp: int,
    count: int,
    before: int,
) -> Any:
    """An array of `before` free bytes and the encoded records."""
    out = np.empty(before + keys[3] + values[3] + headers[3] + _MOST_OVERHEAD * count, np.uint8)
    end = encode_rows(
        keys[0], keys[1], keys[2], values[0], values[1], values[2], headers[0], headers[1], headers[2],
        timestamps, base_timestamp, count, out, before,
    )  # fmt: skip
    assert end >= 0, "a piece lies outside its buffer"
    return out[:end]


def encode(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[Buffer] | None,
    before: int,
) -> Any:
    """As `columns_python.encode`."""
    times = _NO_LONGS
    if isinstance(timestamps, int):
        base_timestamp = timestamps
    else:
        times, base_timestamp = read_only(np.fromiter(timestamps, np.int64, len(values))), timestamps[0]
    columns = _in_one(keys), _in_one(values), _in_one(headers)
    return encode_blobs(*columns, times, base_timestamp, len(values), before)
