"""The loops that write records, compiled by Numba: the producer's half of `kernels`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kohort.wire.records.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader
from kohort.wire.records.buffer_pool import shared_buffer
from kohort.wire.records.columns import Made, finish_batch
from kohort.wire.records.compression import Buffer
from kohort.wire.records.kernels import (
    BYTES_IN,
    BYTES_OUT,
    FAILED,
    INT32S_IN,
    INT64,
    INT64S,
    INT64S_IN,
    copy,
    kernel,
    part,
    read_only,
)


@part
def varint_size(number: int) -> int:
    rest: Any = (number << 1) ^ (number >> 63)
    size = 1
    while rest & ~0x7F != 0:
        rest = (rest >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size


@part
def put_varint(out: Any, at: int, number: int) -> int:
    rest: Any = (number << 1) ^ (number >> 63)
    while rest & ~0x7F != 0:
        out[at] = (rest & 0x7F) | 0x80
        rest = (rest >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    out[at] = rest
    return at + 1


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
    """Writes `count` records to `out` from `at` on; the position after them, or FAILED if bytes are missing.

    Columns of keys, headers and timestamps may be empty: then all records have a null key, no headers, or the base
    timestamp. Without starts, pieces follow one another. `headers` holds the encoded headers of each record with their
    number.
    """
    # Written out at length: functions that take arrays are not inlined, and calling them took six sevenths of the time.
    with_keys, with_headers, with_times = len(key_sizes) > 0, len(headers_sizes) > 0, len(timestamps) > 0
    none: Any = np.int64(0)
    key_at = value_at = headers_at = delta = none
    for row in range(count):
        key_size = value_size = none - 1
        headers_size = none
        if with_keys and key_sizes[row] >= 0:
            key_size = np.int64(key_sizes[row])
            if len(key_starts) > 0:
                key_at = key_starts[row]
            if key_at < 0 or key_size > len(keys) - key_at:
                return FAILED
        if value_sizes[row] >= 0:
            value_size = np.int64(value_sizes[row])
            if len(value_starts) > 0:
                value_at = value_starts[row]
            if value_at < 0 or value_size > len(values) - value_at:
                return FAILED
        if with_headers and headers_sizes[row] >= 0:
            headers_size = np.int64(headers_sizes[row])
            if len(headers_starts) > 0:
                headers_at = headers_starts[row]
            if headers_at < 0 or headers_size > len(headers) - headers_at:
                return FAILED
        if with_times:
            delta = timestamps[row] - base_timestamp
        size = (
            1 + varint_size(delta) + varint_size(row)
            + varint_size(key_size) + max(key_size, 0)
            + varint_size(value_size) + max(value_size, 0)
            + max(headers_size, 1)
        )  # fmt: skip
        if size + 5 > len(out) - at:
            return FAILED
        at = put_varint(out, at, size)
        out[at] = 0
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, row)
        at = put_varint(out, at, key_size)
        if key_size > 0:
            copy(out, at, keys, key_at, key_size)
            key_at += key_size
            at += key_size
        at = put_varint(out, at, value_size)
        if value_size > 0:
            copy(out, at, values, value_at, value_size)
            value_at += value_size
            at += value_size
        if headers_size > 0:
            copy(out, at, headers, headers_at, headers_size)
            headers_at += headers_size
            at += headers_size
        else:
            out[at] = 0
            at += 1
    return at


_NO_LONGS: Any = read_only(np.empty(0, np.int64))
_NO_SIZES: Any = read_only(np.empty(0, np.int32))
MOST_OVERHEAD = 36  # of a record, besides key, value and headers: six numbers and the attributes

Blobs = tuple[Any, Any, Any]
"""Pieces of one buffer: where each starts (empty: one after the other), and how long each is (-1: null)."""
_NO_BLOBS: Blobs = (read_only(np.empty(0, np.uint8)), _NO_LONGS, _NO_SIZES)


def _in_one(blobs: Sequence[Buffer | None] | None) -> Blobs:
    if not blobs:
        return _NO_BLOBS
    count = len(blobs)
    try:
        data = b"".join(blobs)  # type: ignore[arg-type]
        sizes = np.fromiter(map(len, blobs), np.int32, count)  # type: ignore[arg-type]
    except TypeError:  # some are None; the exception costs less than a check of each
        data = b"".join([blob for blob in blobs if blob is not None])
        sizes = np.fromiter([-1 if blob is None else len(blob) for blob in blobs], np.int32, count)
    return np.frombuffer(data, np.uint8), _NO_LONGS, read_only(sizes)


def encode_blobs(
    keys: Blobs, values: Blobs, headers: Blobs, timestamps: Any, base_timestamp: int, count: int, before: int,
    total: int, finish: Callable[[Any], Made],
) -> Made:  # fmt: skip
    """What `finish` makes of `before` free bytes and the encoded records, whose blobs have `total` bytes."""
    out = shared_buffer(before + total + MOST_OVERHEAD * count)
    end = encode_rows(
        keys[0], keys[1], keys[2], values[0], values[1], values[2], headers[0], headers[1], headers[2],
        timestamps, base_timestamp, count, np.frombuffer(out, np.uint8), before,
    )  # fmt: skip
    assert end >= 0, "a piece lies outside its buffer"
    return finish(out[:end])


def encode(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[Buffer] | None,
    before: int,
    finish: Callable[[Any], Made],
) -> Made:
    """Does what `columns_python.encode` does."""
    times = _NO_LONGS
    if isinstance(timestamps, int):
        base_timestamp = timestamps
    else:
        times, base_timestamp = read_only(np.fromiter(timestamps, np.int64, len(values))), timestamps[0]
    if headers is None and type(values) is list and (not keys or type(keys) is list):
        out = _encoded_from_objects(keys, values, times, base_timestamp, before)
        if out is not None:
            return finish(out)
    columns = _in_one(keys), _in_one(values), _in_one(headers)
    total = len(columns[0][0]) + len(columns[1][0]) + len(columns[2][0])
    return encode_blobs(*columns, times, base_timestamp, len(values), before, total, finish)


def _encoded_from_objects(
    keys: Any, values: list[Any], times: Any, base_timestamp: int, before: int
) -> memoryview | None:
    """The same records without joining the values first; None if some are no bytes, or this Python differs."""
    from kohort.wire.records import kernels_objects as objects

    if not objects.CAN_READ_OBJECTS:
        return None
    count, bytes_type, none = len(values), id(bytes), id(None)
    at_values, at_keys = objects.items_of(values), objects.items_of(keys) if keys else 0
    total = objects.size_of_all(at_values, count, bytes_type, none)
    of_keys = objects.size_of_all(at_keys, count, bytes_type, none) if keys else 0
    if total < 0 or of_keys < 0:
        return None
    out = shared_buffer(before + total + of_keys + MOST_OVERHEAD * count)
    target = np.frombuffer(out, np.uint8)
    end = objects.encode_objects(at_keys, at_values, none, times, base_timestamp, count, target, before)
    assert end >= 0, "there is room for every record"
    return out[:end]


# --- from Arrow -----------------------------------------------------------------------------------


@kernel(INT64(BYTES_IN, INT64S_IN, INT32S_IN, INT64S))
def murmur2_rows(data: Any, starts: Any, sizes: Any, hashes: Any) -> int:
    """Writes the hash of each piece by Kafka's Java client, unsigned; -1 for null. FAILED if bytes are missing."""
    for row in range(len(sizes)):
        size: Any = np.int64(sizes[row])
        at: Any = starts[row]
        if size < 0:
            hashes[row] = -1
            continue
        if at < 0 or size > len(data) - at:
            return FAILED
        hashed: Any = 0x9747B28C ^ size
        for _ in range(size >> 2):
            word: Any = np.int64(data[at]) | (np.int64(data[at + 1]) << 8) | (np.int64(data[at + 2]) << 16)
            word |= np.int64(data[at + 3]) << 24
            word = word * 0x5BD1E995 & 0xFFFFFFFF
            word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
            hashed = (hashed * 0x5BD1E995 & 0xFFFFFFFF) ^ word
            at += 4
        left = size & 3
        if left > 0:
            for byte in range(left):
                hashed ^= np.int64(data[at + byte]) << 8 * byte
            hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF
        hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
        hashes[row] = hashed ^ hashed >> 15
    return 0


class OutgoingColumns:
    """What `arrow_encode.OutgoingLists` is, over arrays; `total` is the bytes of all keys, values and headers."""

    __slots__ = ("keys", "values", "timestamps", "headers", "total")

    def __init__(self, keys: Blobs, values: Blobs, timestamps: Any, headers: Blobs, total: int) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers
        self.total = total

    def __len__(self) -> int:
        return len(self.values[2])

    @property
    def size(self) -> int:
        return HEADER_SIZE + self.total + MOST_OVERHEAD * len(self)

    def key_list(self) -> list[bytes | None]:
        data, starts, sizes = self.keys
        if not len(sizes):
            return [None] * len(self)
        pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
        return [data[at : at + size].tobytes() if size >= 0 else None for at, size in pairs]

    def key_hashes(self, murmur2: Callable[[bytes], int]) -> Any:
        hashes = np.full(len(self), -1, np.int64)
        if len(self.keys[2]):
            done = murmur2_rows(self.keys[0], self.keys[1], self.keys[2], hashes)
            assert done >= 0, "a key lies outside its buffer"
        return hashes

    def _sizes(self) -> Any:
        """The bytes of key, value and headers of each record."""
        sizes = np.zeros(len(self), np.int64)
        for column in (self.keys, self.values, self.headers):
            if len(column[2]):
                sizes += np.maximum(column[2], 0)
        return sizes

    def _take(self, rows: Any, total: int) -> OutgoingColumns:
        timestamps = self.timestamps if isinstance(self.timestamps, int) else read_only(self.timestamps[rows])
        return OutgoingColumns(
            _rows_of(self.keys, rows),
            _rows_of(self.values, rows),
            timestamps,
            _rows_of(self.headers, rows),
            total,
        )

    def take(self, rows: Any) -> OutgoingColumns:
        return self._take(rows, int(self._sizes()[rows].sum()))

    def by_partition(self, partitions: Sequence[int]) -> dict[int, OutgoingColumns]:
        if not len(self):
            return {}
        chosen, sizes = np.asarray(partitions), self._sizes()
        order = np.argsort(chosen, kind="stable")
        numbers, starts = np.unique(chosen[order], return_index=True)
        pieces = zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        return {partition: self._take(rows, int(sizes[rows].sum())) for partition, rows in pieces}

    def cut(self, max_bytes: int) -> list[OutgoingColumns]:
        ends, start, done = np.cumsum(self._sizes() + MOST_OVERHEAD), 0, 0
        found = []
        while start < len(self):
            stop = max(start + 1, int(np.searchsorted(ends, done + max_bytes - HEADER_SIZE, "right")))
            end = int(ends[stop - 1])
            found.append(self._take(slice(start, stop), end - done - MOST_OVERHEAD * (stop - start)))
            start, done = stop, end
        return found

    def encode(
        self, compression: int = 0, level: int | None = None, producer_id: int = -1, producer_epoch: int = -1,
        base_sequence: int = -1, *, transactional: bool = False,
    ) -> Buffer:  # fmt: skip
        times, count = self.timestamps, len(self)
        if isinstance(times, int):
            base_timestamp = max_timestamp = times
            times = _NO_LONGS
        else:
            base_timestamp, max_timestamp = int(times[0]), int(times.max())
        header = BatchHeader(
            0, 0, -1, 2, 0, compression | (TRANSACTIONAL if transactional else 0), count - 1, base_timestamp,
            max_timestamp, producer_id, producer_epoch, base_sequence, count,
        )  # fmt: skip
        columns = self.keys, self.values, self.headers
        return encode_blobs(
            *columns, times, base_timestamp, count, HEADER_SIZE, self.total,
            lambda batch: finish_batch(header, batch, level),
        )  # fmt: skip


def _rows_of(blobs: Blobs, rows: Any) -> Blobs:
    data, starts, sizes = blobs
    if not len(sizes):
        return blobs
    return data, read_only(starts[rows]), read_only(sizes[rows])


def outgoing(keys: Any, values: Any, timestamps: Any, headers: Sequence[bytes] | None) -> OutgoingColumns:
    """Records of Arrow's binary arrays, an array of int64 or one timestamp for all, and encoded headers."""
    if not isinstance(timestamps, int):
        timestamps = read_only(timestamps.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)[:])
    encoded = _NO_BLOBS
    if headers is not None:
        data, _, sizes = _in_one(headers)
        encoded = (data, read_only(np.cumsum(sizes, dtype=np.int64) - sizes), sizes)
    made = OutgoingColumns(_arrow_blobs(keys), _arrow_blobs(values), timestamps, encoded, 0)
    made.total = int(made._sizes().sum())
    return made


def _arrow_blobs(column: Any) -> Blobs:
    if column is None or not len(column):
        return _NO_BLOBS
    _, ends_buffer, data_buffer = column.buffers()
    ends = np.frombuffer(ends_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    sizes = np.diff(ends)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    data = _NO_BLOBS[0] if data_buffer is None else read_only(np.frombuffer(data_buffer, np.uint8))
    return data, read_only(ends[:-1].astype(np.int64)), read_only(sizes)
