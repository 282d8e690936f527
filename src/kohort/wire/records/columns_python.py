"""The loops over records in plain Python, for use where Numba is not installed or not worth loading."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from struct import Struct
from typing import Any

from kohort.wire.errors import BadBatch
from kohort.wire.records.batch import APPEND_TIME, CONTROL, HEADER_SIZE, LENGTH_END, header_fields
from kohort.wire.records.columns import Columns, Made, Pieces, Run
from kohort.wire.records.compression import Buffer
from kohort.wire.records.payload import damaged, read_varint, wrap64
from kohort.wire.varint import write_uvarint

_unpack_header = header_fields(
    "base_offset", "batch_length", "partition_leader_epoch", "attributes", "base_timestamp", "max_timestamp",
    "record_count",
).unpack_from  # fmt: skip
COMPILED = False
_TOO_LATE = 1 << 63
LARGEST_INT32 = (1 << 31) - 1
LARGEST_INLINE = 12  # bytes that a view of Arrow holds itself
_ONE_BYTE = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))

Rows = tuple[list[int], list[int], list[int], list[int], list[int], list[int], list[int], list[int]]


def decode(
    data: Buffer, spans: Sequence[tuple[int, int]], start_offset: int, most_records: int, batches: int
) -> Columns | int:
    """The records of the whole, uncompressed batches in `spans`; or the position of the first damaged one."""
    return Decoding(data, spans, start_offset).go_on()


class Decoding:
    """Decodes as much at a time as is wanted: in Python, the records of one answer take as long as joining a group."""

    __slots__ = ("is_done", "_data", "_spans", "_start_offset", "_begun")

    def __init__(self, data: Buffer, spans: Sequence[tuple[int, int]], start_offset: int) -> None:
        self._data = data if isinstance(data, bytes) else bytes(data)  # its slices are what users get
        self._spans = [span for span in reversed(spans) if span[0] < span[1]]
        self._start_offset = start_offset
        self._begun = (0, 0)  # of the first batch: how many records were read, and where the next one stands
        self.is_done = not self._spans

    def go_on(self, most: int | None = None) -> Columns | int:
        """The next records, about `most`; or the position of a damaged batch, once all before it is read."""
        rows: Rows = ([], [], [], [], [], [], [], [])
        runs: list[Run] = []
        while self._spans and (most is None or len(rows[0]) < most):
            pos, stop = self._spans[-1]
            _, length, epoch, attributes, _, _, _ = _unpack_header(self._data, pos)
            before, begun = len(rows[0]), self._begun
            self._begun = self._read(pos, attributes, rows, most)
            if self._begun[0] < 0:
                if most is None or not before:
                    return pos
                self._begun = begun  # found again by the next call
                return _columns(self._data, tuple(column[:before] for column in rows), runs)  # type: ignore[arg-type]
            if len(rows[0]) > (runs[-1][0] if runs else 0):
                kind = 1 if attributes & APPEND_TIME else 0
                if runs and runs[-1][1:] == (epoch, kind):
                    runs.pop()
                runs.append((len(rows[0]), epoch, kind))
            if not self._begun[0]:
                self._spans.pop()
                if pos + LENGTH_END + length < stop:
                    self._spans.append((pos + LENGTH_END + length, stop))
        self.is_done = not self._spans
        return _columns(self._data, rows, runs)

    def _read(self, pos: int, attributes: int, rows: Rows, most: int | None) -> tuple[int, int]:
        """How far the batch at `pos` is read now: (0, 0) if all of it is, (-1, 0) if it is damaged."""
        if attributes & CONTROL:
            return 0, 0
        left = None if most is None else most - len(rows[0])
        try:
            return _decode_batch(self._data, pos, self._start_offset, rows, self._begun, left)
        except (IndexError, BadBatch):
            return -1, 0


def _columns(data: bytes, rows: Rows, runs: list[Run]) -> Columns:
    offsets, timestamps, key_start, key_size, value_start, value_size, headers_start, header_count = rows
    return Columns(
        data, _column("q", offsets), _column("q", timestamps), _column("i", key_start), _column("i", key_size),
        _column("i", value_start), _column("i", value_size), _column("i", headers_start),
        _column("i", header_count), runs,
        has_keys=max(key_size, default=-1) >= 0,
        has_null_values=min(value_size, default=0) < 0,
        has_headers=any(header_count),
    )  # fmt: skip


def scanner(*_: Any) -> None:
    """Gives no scanner: in Python nothing is faster than the walk itself."""


def _column(code: str, numbers: list[int]) -> memoryview:
    return memoryview(array(code, numbers))


def _decode_batch(
    data: bytes, pos: int, start_offset: int, rows: Rows, begun: tuple[int, int], most: int | None
) -> tuple[int, int]:
    """Appends at most `most` records of one batch, from where it was begun.

    Returns how many are read now and the position of the next one, or (0, 0) after the last. Raises IndexError or
    BadBatch if the batch is damaged.
    """
    # A number that is read beyond the end of its record leaves the position beyond it too, so one comparison
    # at the end of each record finds that.
    base_offset, length, _, attributes, base_timestamp, max_timestamp, count = _unpack_header(data, pos)
    offsets, timestamps, key_start, key_size, value_start, value_size, headers_start, header_count = rows
    batch_end = pos + LENGTH_END + length
    append_time = attributes & APPEND_TIME
    one_byte = _ONE_BYTE
    if count < 0:
        raise damaged(f"{count} records")
    first, pos = begun if begun[0] else (0, pos + HEADER_SIZE)
    until = count if most is None else min(count, first + most)
    for _ in range(first, until):
        if (byte := data[pos]) < 0x80:
            pos += 1
            end = pos + one_byte[byte]
        elif (high := data[pos + 1]) < 0x80:
            pos += 2
            length = high << 7 | byte & 0x7F
            end = pos + (length >> 1 ^ -(length & 1))
        else:
            length, pos = read_varint(data, pos)
            end = pos + length
        if end > batch_end:
            raise damaged("the records end too early")
        pos += 1  # attributes: nothing is defined in them
        if (byte := data[pos]) < 0x80:
            timestamp = base_timestamp + one_byte[byte]
            pos += 1
        elif (high := data[pos + 1]) < 0x80:
            delta = high << 7 | byte & 0x7F
            timestamp = base_timestamp + (delta >> 1 ^ -(delta & 1))
            pos += 2
        else:
            delta, pos = read_varint(data, pos, 64)
            timestamp = base_timestamp + delta
        if not -_TOO_LATE <= timestamp < _TOO_LATE:
            timestamp = wrap64(timestamp)
        if (byte := data[pos]) < 0x80:
            offset = base_offset + one_byte[byte]
            pos += 1
        elif (high := data[pos + 1]) < 0x80:
            delta = high << 7 | byte & 0x7F
            offset = base_offset + (delta >> 1 ^ -(delta & 1))
            pos += 2
        else:
            delta, pos = read_varint(data, pos)
            offset = base_offset + delta
        if (byte := data[pos]) < 0x80:
            key_length = one_byte[byte]
            pos += 1
        else:
            key_length, pos = read_varint(data, pos)
        key_at = pos
        if key_length > 0:
            pos += key_length
        if (byte := data[pos]) < 0x80:
            value_length = one_byte[byte]
            pos += 1
        elif (high := data[pos + 1]) < 0x80:
            length = high << 7 | byte & 0x7F
            value_length = length >> 1 ^ -(length & 1)
            pos += 2
        else:
            value_length, pos = read_varint(data, pos)
        value_at = pos
        if value_length > 0:
            pos += value_length
        headers_at = pos
        if data[pos] == 0:
            headers = 0
            pos += 1
        else:
            headers, pos = read_varint(data, pos)
            pos = _skip_headers(data, pos, headers, end)
        if pos != end:
            raise damaged("a record is not as long as it says")
        if offset >= start_offset:
            offsets.append(offset)
            timestamps.append(max_timestamp if append_time else timestamp)
            key_start.append(key_at)
            key_size.append(key_length if key_length >= 0 else -1)
            value_start.append(value_at)
            value_size.append(value_length if value_length >= 0 else -1)
            headers_start.append(headers_at)
            header_count.append(headers)
    if until < count:
        return until, pos
    if pos != batch_end:
        raise damaged("bytes are left after the last record")
    return 0, 0


def _skip_headers(data: bytes, pos: int, count: int, end: int) -> int:
    if count < 0:
        raise damaged(f"{count} headers")
    for _ in range(count):
        size, pos = read_varint(data, pos)
        if size < 0:
            raise damaged("a header without a name")
        size, pos = read_varint(data, pos + size)
        pos += max(size, 0)
        if pos > end:
            raise damaged("the headers end too early")
    return pos


def gather(
    pieces: Sequence[Pieces], new: Callable[[int], Any] | None = None
) -> tuple[Buffer | None, Buffer, Any]:
    """The pieces in one buffer, as Arrow has its binary columns: validity bits (None: no nulls), ends, bytes.

    `new` allocates memory of a given size; only compiled code uses it.
    """
    blobs: list[bytes | memoryview] = []
    bits: list[bool] = []
    ends = [0]
    for data, starts, sizes in pieces:
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            bits.append(size >= 0)
            ends.append(ends[-1] + max(size, 0))
            if size > 0:
                blobs.append(memoryview(data)[start : start + size])
    if ends[-1] > LARGEST_INT32:
        raise OverflowError(f"{ends[-1]} bytes are too many for one column of Arrow's binary type")
    return _validity(bits), memoryview(array("i", ends)), b"".join(blobs)


def views(pieces: Sequence[Pieces]) -> tuple[Buffer | None, Buffer]:
    """The pieces where they are, as Arrow's binary_view has them: validity bits (None: no nulls), 16 bytes for each.

    The 16 bytes are its size and, if it is short, the piece itself; else its first bytes, the number of its buffer and
    where it starts.
    """
    found: list[bytes] = []
    bits: list[bool] = []
    for number, (data, starts, sizes) in enumerate(pieces):
        view = memoryview(data)
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            bits.append(size >= 0)
            if size <= LARGEST_INLINE:
                found.append(_inline.pack(max(size, 0), bytes(view[start : start + max(size, 0)])))
            else:
                found.append(_elsewhere.pack(size, bytes(view[start : start + 4]), number, start))
    return _validity(bits), b"".join(found)


_inline, _elsewhere = Struct("=i12s"), Struct("=i4sii")


def _validity(bits: list[bool]) -> Buffer | None:
    if all(bits):
        return None
    validity = bytearray(len(bits) // 8 + 1)
    for row, bit in enumerate(bits):
        validity[row >> 3] |= bit << (row & 7)
    return validity


def header_pieces(columns: Columns) -> tuple[Pieces, Pieces]:
    """Names and values of the headers of all records, one after the other."""
    data = bytes(columns.data)
    names: tuple[list[int], list[int]] = ([], [])
    values: tuple[list[int], list[int]] = ([], [])
    for pos, count in zip(columns.headers_start.tolist(), columns.header_count.tolist(), strict=True):
        if count:
            _, pos = read_varint(data, pos)
        for _ in range(count):
            for starts, sizes in (names, values):
                size, pos = read_varint(data, pos)
                starts.append(pos)
                sizes.append(max(size, -1))
                pos += max(size, 0)
    return (
        (data, _column("i", names[0]), _column("i", names[1])),
        (data, _column("i", values[0]), _column("i", values[1])),
    )


def varint(number: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    return write_uvarint((number << 1) ^ (number >> 63))


@cache
def _short_varints() -> tuple[bytes, ...]:
    return tuple(map(varint, range(2048)))


def encode(
    keys: Sequence[Buffer | None] | None,
    values: Sequence[Buffer | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[Buffer] | None,
    before: int,
    finish: Callable[[Any], Made],
) -> Made:
    """Writes a record per value behind `before` free bytes: offsets from 0 on, times relative to the first.

    `headers` are encoded already, each with their number. The result is what `finish` makes of it: the memory itself
    may be used again.
    """
    short = _short_varints()
    known = len(short)
    parts: list[Buffer] = [bytes(before)]
    deltas: Iterable[int] = repeat(0)
    if not isinstance(timestamps, int):
        first = timestamps[0] if timestamps else 0
        deltas = [wrap64(timestamp - first) for timestamp in timestamps]
    columns = zip(keys or repeat(None), values, deltas, headers or repeat(b"\0"), strict=False)
    for row, (key, value, delta, tail) in enumerate(columns):
        at = short[row] if row < known else varint(row)
        time = short[delta] if 0 <= delta < known else varint(delta)
        if value is None:
            length, value_size, value = 0, b"\1", b""
        else:
            length = len(value)
            value_size = short[length] if length < known else varint(length)
        size = 1 + len(time) + len(at) + len(value_size) + length + len(tail)
        if key is None:
            size += 1
            size_bytes = short[size] if size < known else varint(size)
            parts += (size_bytes, b"\0", time, at, b"\1", value_size, value, tail)
        else:
            length = len(key)
            key_size = short[length] if length < known else varint(length)
            size += len(key_size) + length
            size_bytes = short[size] if size < known else varint(size)
            parts += (size_bytes, b"\0", time, at, key_size, key, value_size, value, tail)
    return finish(bytearray().join(parts))


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The headers of one record with their number, as they stand at its end."""
    parts = [varint(len(headers))]
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (varint(len(encoded)), encoded)
        parts += (b"\1",) if content is None else (varint(len(content)), content)
    return b"".join(parts)
