"""Reads and writes the frame of a record that belongs to a schema in a registry: Confluent's wire format.

A frame is the magic byte 0 and the schema's id in four bytes, big-endian; the payload follows. With Protobuf the path
of the message within its file stands in between: a number of indexes and the indexes, as zigzag varints; the path [0],
the first message of the file, is written as one byte 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from kohort.serde.errors import DataMismatch

MAGIC_BYTE = 0
FRAME_SIZE = 5
_FRAME = Struct(">bI")
_FIRST_MESSAGE = (0,)
_MOST_INDEXES = 100  # messages are not nested deeper
_HEX_SHOWN = 8


def frame(schema_id: int) -> bytes:
    """Returns the five bytes that stand before the payload of a record of this schema."""
    return _FRAME.pack(MAGIC_BYTE, schema_id)


def split(data: bytes) -> tuple[int, int]:
    """Returns the schema id of a framed record, and the offset at which what follows the frame begins."""
    if len(data) < FRAME_SIZE:
        raise DataMismatch(
            f"{len(data)} bytes are too few for a schema id (magic byte 0 and 4 bytes): the record was not written "
            f"by a serializer with a schema registry, so it needs a deserializer without one"
        )
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != MAGIC_BYTE:
        raise DataMismatch(
            f"the data begins with {data[:_HEX_SHOWN].hex(' ')}, not with the magic byte 00 and a schema id: the "
            f"record was not written by a serializer with a schema registry, so it needs a deserializer without one "
            f"(schema ids in the headers __key_schema_id and __value_schema_id are not supported)"
        )
    return schema_id, FRAME_SIZE


def frame_message(schema_id: int, indexes: Sequence[int]) -> bytes:
    """Returns what stands before the payload of a Protobuf message with this path of indexes in its file."""
    if tuple(indexes) == _FIRST_MESSAGE:
        return frame(schema_id) + b"\x00"
    return frame(schema_id) + b"".join(map(_zigzag_varint, (len(indexes), *indexes)))


def split_message(data: bytes) -> tuple[int, tuple[int, ...], int]:
    """Returns the schema id of a framed Protobuf message, its path of indexes, and the offset of its payload."""
    schema_id, at = split(data)
    count, at = _read_zigzag_varint(data, at)
    if count == 0:
        return schema_id, _FIRST_MESSAGE, at
    if not 0 < count <= _MOST_INDEXES:
        raise DataMismatch(
            f"schema id {schema_id} is followed by {count} message indexes, not by 0 to {_MOST_INDEXES}"
        )
    indexes = []
    for _ in range(count):
        index, at = _read_zigzag_varint(data, at)
        indexes.append(index)
    return schema_id, tuple(indexes), at


def _zigzag_varint(number: int) -> bytes:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _read_zigzag_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise DataMismatch(
                "the record ends within the Protobuf message indexes that follow its schema id"
            )
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise DataMismatch(
        "the Protobuf message indexes that follow the schema id are not numbers of at most 5 bytes"
    )
