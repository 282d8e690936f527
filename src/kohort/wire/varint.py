"""Reads and writes unsigned varints, and skips tagged fields, which are made of them."""

from __future__ import annotations

from kohort.wire.errors import BadFrame


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise BadFrame("a varint above 32 bits")
            return value, pos
        shift += 7
        if shift > 28:
            raise BadFrame("a varint of more than 5 bytes")


def write_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_UVARINTS = tuple(write_uvarint(n) for n in range(1024))


def uvarint_bytes(value: int) -> bytes:
    return _UVARINTS[value] if value < 1024 else write_uvarint(value)


def skip_tags(buf: memoryview, pos: int, count: int) -> int:
    """The position after `count` tagged fields, whose contents are not read."""
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            raise BadFrame("a tagged field is longer than the frame")
    return pos
