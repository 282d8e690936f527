"""Reads and writes the frames of requests and responses: a length, a header, a body.

Easily missed: `client_id` stays a classic nullable string even in flexible request headers.
"""

from __future__ import annotations

import struct

from kohort.wire.compiler.compile import Chunk, Codec
from kohort.wire.errors import BadFrame
from kohort.wire.varint import read_uvarint, skip_tags

_HEADER = struct.Struct(">hhih")
_LENGTH_AND_ID = struct.Struct(">ii")
_LENGTH_ID_AND_NO_TAGS = struct.Struct(">iiB")


def read_request_header(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """(api_key, api_version, correlation_id, client_id, position after client_id) of a request frame.

    The tagged fields of a flexible header are left to `body_of`, because only the API's table knows whether
    the version is flexible.
    """
    try:
        api_key, api_version, correlation_id, size = _HEADER.unpack_from(frame)
    except struct.error:
        raise BadFrame("the frame is shorter than a request header") from None
    if size < 0:
        if size != -1:
            raise BadFrame("client_id has a negative length")
        return api_key, api_version, correlation_id, None, 10
    end = 10 + size
    if end > len(frame):
        raise BadFrame("client_id is longer than the frame")
    try:
        return api_key, api_version, correlation_id, str(frame[10:end], "utf-8"), end
    except UnicodeDecodeError:
        raise BadFrame("client_id is not UTF-8") from None


def body_of(frame: memoryview, pos: int) -> int:
    """Where the body begins after the tagged fields of a flexible header."""
    try:
        count, pos = read_uvarint(frame, pos)
        return skip_tags(frame, pos, count) if count else pos
    except IndexError:
        raise BadFrame("the frame ends inside its header") from None


def response_chunks(codec: Codec, correlation_id: int, body: list[Chunk]) -> list[Chunk]:
    """A whole response frame: length and header before the body's chunks; adjacent bytes are joined."""
    return [_response_head(codec, correlation_id, sum(map(len, body))), *body]


def response_frame(codec: Codec, correlation_id: int, body: bytes) -> bytes:
    """A whole response frame around a body that is bytes."""
    return _response_head(codec, correlation_id, len(body)) + body


def _response_head(codec: Codec, correlation_id: int, size: int) -> bytes:
    if codec.response_header_is_flexible:
        return _LENGTH_ID_AND_NO_TAGS.pack(size + 5, correlation_id, 0)
    return _LENGTH_AND_ID.pack(size + 4, correlation_id)


def request_frame(codec: Codec, correlation_id: int, client_id: str | None, body: list[Chunk]) -> bytes:
    """A whole request frame, as a client sends it."""
    raw = None if client_id is None else client_id.encode()
    head = _HEADER.pack(codec.api_key, codec.version, correlation_id, -1 if raw is None else len(raw))
    payload = b"".join([head, raw or b"", b"\0" if codec.flexible else b"", *map(bytes, body)])
    return struct.pack(">i", len(payload)) + payload


def read_response_header(codec: Codec, frame: memoryview) -> tuple[int, int]:
    """(correlation_id, position of the body) of a response frame."""
    if len(frame) < 4:
        raise BadFrame("the frame is shorter than a response header")
    (correlation_id,) = struct.unpack_from(">i", frame)
    if codec.response_header_is_flexible:
        return correlation_id, body_of(frame, 4)
    return correlation_id, 4
