"""Decodes and encodes the records inside a batch, whose bytes are decompressed; `batch` is the module to call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kohort.wire.errors import BadBatch, ErrorCode

SMALLEST_RECORD = 7  # bytes: without key, value and headers

_new_tuple = tuple.__new__


class BatchRecord(NamedTuple):
    """One record with its absolute offset. A `timestamp` of -1 means none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def damaged(why: str) -> BadBatch:
    """The error for a batch whose records are not what its header or their own lengths say."""
    return BadBatch(ErrorCode.INVALID_RECORD, f"damaged batch: {why}")


def read_varint(data: bytes, pos: int, bits: int = 32) -> tuple[int, int]:
    """A zigzag varint of any length and the position after it; IndexError at the end of the data."""
    value = shift = 0
    while (byte := data[pos]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        pos += 1
        if shift >= bits:
            raise damaged(f"a number of more than {bits} bits")
    value |= byte << shift
    if value >> bits:
        raise damaged(f"a number of more than {bits} bits")
    return (value >> 1) ^ -(value & 1), pos + 1


def wrap64(number: int) -> int:
    """A sum or difference of timestamps as 64 bits hold it: Java's arithmetic, which clients rely on."""
    return ((number + (1 << 63)) & 0xFFFF_FFFF_FFFF_FFFF) - (1 << 63)


# Zigzag varints of one byte, which most of them are, by table.
_ONE_BYTE = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def decode_records(
    data: bytes, count: int, *, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[BatchRecord]:
    """The `count` records that `data` consists of, each with the `append_time` if there is one.

    Raises BadBatch if `data` is something else. The function is long because calls take most of the time here.
    """
    # Reading past the end shows as an IndexError, or as a position that is not the end of the record: a slice
    # is never longer than what is there, whatever length was promised.
    one_byte, new_tuple, record_type = _ONE_BYTE, _new_tuple, BatchRecord
    pos = 0
    try:
        for _ in range(count):
            if (byte := data[pos]) < 0x80:
                end = pos + 1 + one_byte[byte]
                pos += 2
            elif (high := data[pos + 1]) < 0x80:
                length = (high << 7) | (byte & 0x7F)
                end = pos + 2 + (length >> 1) if not length & 1 else -1
                pos += 3
            else:
                length, pos = read_varint(data, pos)
                end = pos + length
                pos += 1
            # The byte of attributes was stepped over: nothing is defined in it.
            if (byte := data[pos]) < 0x80:
                timestamp = base_timestamp + one_byte[byte]
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                delta = (high << 7) | (byte & 0x7F)
                timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
                pos += 2
            else:
                delta, pos = read_varint(data, pos, 64)
                timestamp = wrap64(base_timestamp + delta)
            if append_time is not None:
                timestamp = append_time
            if (byte := data[pos]) < 0x80:
                offset = base_offset + one_byte[byte]
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                delta = (high << 7) | (byte & 0x7F)
                offset = base_offset + ((delta >> 1) ^ -(delta & 1))
                pos += 2
            else:
                delta, pos = read_varint(data, pos)
                offset = base_offset + delta
            if (byte := data[pos]) < 0x80:
                length = one_byte[byte]
                pos += 1
            else:
                length, pos = read_varint(data, pos)
            if length < 0:
                key = None
            else:
                key = data[pos : pos + length]
                pos += length
            if (byte := data[pos]) < 0x80:
                length = one_byte[byte]
                pos += 1
            elif (high := data[pos + 1]) < 0x80:
                length = (high << 7) | (byte & 0x7F)
                length = (length >> 1) ^ -(length & 1)
                pos += 2
            else:
                length, pos = read_varint(data, pos)
            if length < 0:
                value = None
            else:
                value = data[pos : pos + length]
                pos += length
            if data[pos] == 0:
                headers: list[tuple[str, bytes | None]] = []
                pos += 1
            else:
                headers, pos = read_headers(data, pos)
            if pos != end:
                raise damaged("a record is not as long as it says")
            yield new_tuple(record_type, (offset, timestamp, key, value, headers))
    except IndexError:
        raise damaged("the records end too early") from None
    if pos != len(data):
        raise damaged("bytes are left after the last record")


def read_headers(data: bytes, pos: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, pos = read_varint(data, pos)
    if count < 0:
        raise damaged(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        if (byte := data[pos]) < 0x80:
            length = _ONE_BYTE[byte]
            pos += 1
        else:
            length, pos = read_varint(data, pos)
        if length < 0:
            raise damaged("a header without a name")
        # Kafka does not look into names; bytes that are no UTF-8 must survive a compaction.
        name = data[pos : pos + length].decode("utf-8", "surrogateescape")
        pos += length
        if (byte := data[pos]) < 0x80:
            length = _ONE_BYTE[byte]
            pos += 1
        else:
            length, pos = read_varint(data, pos)
        if length < 0:
            headers.append((name, None))
        else:
            headers.append((name, data[pos : pos + length]))
            pos += length
    if pos > len(data):
        raise damaged("the headers end too early")
    return headers, pos


def _varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SHORT_VARINTS = tuple(map(_varint, range(1024)))


def encode_records(records: list[BatchRecord], base_offset: int, base_timestamp: int) -> bytes:
    """The bytes that `decode_records` reads."""
    short = _SHORT_VARINTS
    parts: list[bytes] = []

    def varint(number: int) -> bytes:
        return short[number] if 0 <= number < 1024 else _varint(number)

    for offset, timestamp, key, value, headers in records:
        assert offset >= base_offset, "a record cannot lie before its batch"
        if timestamp == base_timestamp and key is not None and value is not None and not headers:
            # Records of the coordinator and of many producers: they need no list per record and no sum.
            at, key_size, value_size = varint(offset - base_offset), varint(len(key)), varint(len(value))
            size = 3 + len(at) + len(key_size) + len(key) + len(value_size) + len(value)
            parts += (varint(size), b"\0\0", at, key_size, key, value_size, value, b"\0")
            continue
        body = [b"\0", varint(wrap64(timestamp - base_timestamp)), varint(offset - base_offset)]
        body += (b"\1",) if key is None else (varint(len(key)), key)
        body += (b"\1",) if value is None else (varint(len(value)), value)
        body.append(varint(len(headers)))
        for name, content in headers:
            encoded = name.encode("utf-8", "surrogateescape")
            body += (varint(len(encoded)), encoded)
            body += (b"\1",) if content is None else (varint(len(content)), content)
        parts.append(varint(sum(map(len, body))))
        parts += body
    return b"".join(parts)


def encode_pairs(pairs: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Encodes records of keys and values alone, with the batch's timestamp and consecutive offsets."""
    short = _SHORT_VARINTS
    parts: list[bytes] = []
    same_key, same_value = -1, -1  # lengths of the pair before, while the offset takes one byte
    size_bytes = key_size = value_size = b""
    for delta, (key, value) in enumerate(pairs):
        at = short[delta] if delta < 1024 else _varint(delta)
        key_length = len(key)
        if value is not None and key_length == same_key and len(value) == same_value and delta < 64:
            parts += (size_bytes, b"\0\0", at, key_size, key, value_size, value, b"\0")
            continue
        key_size = short[key_length] if key_length < 1024 else _varint(key_length)
        if value is None:
            size = 4 + len(at) + len(key_size) + key_length
            parts += (short[size] if size < 1024 else _varint(size), b"\0\0", at, key_size, key, b"\1\0")
            same_key = -1
            continue
        length = len(value)
        value_size = short[length] if length < 1024 else _varint(length)
        size = 3 + len(at) + len(key_size) + key_length + len(value_size) + length
        size_bytes = short[size] if size < 1024 else _varint(size)
        parts += (size_bytes, b"\0\0", at, key_size, key, value_size, value, b"\0")
        same_key, same_value = key_length, length
    return b"".join(parts)
