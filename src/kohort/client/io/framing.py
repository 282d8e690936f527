"""Writes requests to a byte stream as chunks, and cuts responses out of it with at most one copy."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from itertools import islice

from kohort.wire.compiler.compile import Chunk, Codec
from kohort.wire.errors import BadFrame
from kohort.wire.records.buffer_pool import BufferPool

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">ihhih")

SCRATCH_BYTES = 16 << 10
MOST_KEPT = 32 << 20
"""Bytes of memory that a connection keeps for large frames: one that the user still reads, one that is handed out, one
that waits and one that is being received, of up to 8 MB each."""
MAX_CHUNKS = 512  # well below IOV_MAX
SMALL_CHUNK = 2048  # bytes that are copied faster than they are sent by themselves


def request_chunks(
    codec: Codec, correlation_id: int, client_id: bytes | None, body: list[Chunk]
) -> list[Chunk]:
    """Returns a whole request frame; large chunks of the body go out as they are, uncopied."""
    raw = client_id or b""
    body_size = sum(map(len, body))
    size = 10 + len(raw) + codec.flexible + body_size
    head = _HEADER.pack(
        size, codec.api_key, codec.version, correlation_id, -1 if client_id is None else len(raw)
    )
    tags = b"\0" if codec.flexible else b""
    if body_size < SCRATCH_BYTES:
        return [b"".join((head, raw, tags, *body))]
    # A field is a chunk: a Produce request has a dozen small ones around each batch.
    chunks: list[Chunk] = []
    small: list[Chunk] = [head, raw, tags]
    for chunk in body:
        if len(chunk) < SMALL_CHUNK:
            small.append(chunk)
        else:
            chunks += (b"".join(small), chunk)
            small = []
    chunks.append(b"".join(small))
    return chunks


class FrameReader:
    """Takes bytes from `receive` (recv_into) and gives whole frames to `on_frame`.

    A small frame is copied out of a scratch buffer. Of a large one all but the first bytes are received where they
    stay, in memory that is used again when nobody reads it any more. A frame may be at most `limit` bytes long: the
    other end may not be a broker at all.
    """

    __slots__ = ("limit", "received", "_scratch", "_have", "_in_large", "_view", "_filled", "_rooms")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.received = 0
        """How many bytes have come so far."""
        self._scratch = bytearray(SCRATCH_BYTES)
        self._have = 0  # bytes in the scratch buffer
        self._in_large = False
        self._view = memoryview(b"")
        self._filled = 0
        self._rooms = BufferPool(MOST_KEPT, fitting=True)

    def begins_with(self, beginning: bytes) -> bool:
        """Whether what was received and is no frame (yet) begins so."""
        return self._scratch[: self._have].startswith(beginning)

    def read(self, receive: Callable[[memoryview], int], on_frame: Callable[[memoryview], None]) -> bool:
        """Receives once; returns whether there is probably more.

        Raises ConnectionError at the end of the stream, and BadFrame for a length that makes no sense.
        """
        if self._in_large:
            return self._read_large(receive, on_frame)
        free = memoryview(self._scratch)[self._have :]
        got = receive(free)
        if not got:
            raise ConnectionError("the broker closed the connection")
        self.received += got
        self._have += got
        self._take_frames(on_frame)
        return got == len(free) or self._in_large

    def _take_frames(self, on_frame: Callable[[memoryview], None]) -> None:
        pos, have = 0, self._have
        while have - pos >= 4:
            (size,) = _SIZE.unpack_from(self._scratch, pos)
            if not 4 <= size <= self.limit:
                raise BadFrame(
                    f"a response of {size} bytes (begins with {bytes(self._scratch[pos : pos + 8])!r})"
                )
            end = pos + 4 + size
            if end > have:
                if 4 + size > SCRATCH_BYTES:
                    self._begin_large(size, pos + 4)
                    pos = have
                break
            frame = bytes(memoryview(self._scratch)[pos + 4 : end])
            pos = end
            on_frame(memoryview(frame))
        if pos:
            self._scratch[: have - pos] = self._scratch[pos:have]
        self._have = have - pos

    def _begin_large(self, size: int, pos: int) -> None:
        first = memoryview(self._scratch)[pos : self._have]
        self._view = self._rooms.take(size)
        self._view[: len(first)] = first
        self._in_large, self._filled = True, len(first)

    def _read_large(
        self, receive: Callable[[memoryview], int], on_frame: Callable[[memoryview], None]
    ) -> bool:
        missing = self._view[self._filled :]
        got = receive(missing)
        if not got:
            raise ConnectionError("the broker closed the connection in the middle of a response")
        self.received += got
        self._filled += got
        if got < len(missing):
            return False
        view, self._in_large, self._view = self._view, False, memoryview(b"")
        on_frame(view)
        return True


class ChunkWriter:
    """Holds chunks on their way out."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, chunks: list[Chunk]) -> None:
        self._chunks.extend(memoryview(chunk).cast("B") for chunk in chunks if len(chunk))

    def write(self, send: Callable[[list[memoryview]], int]) -> None:
        """Hands over as many bytes as `send` takes, which raises BlockingIOError when no more fits now."""
        while self._chunks:
            sent = send(list(islice(self._chunks, MAX_CHUNKS)))
            while sent and sent >= len(self._chunks[0]):
                sent -= len(self._chunks.popleft())
            if sent:
                self._chunks[0] = self._chunks[0][sent:]
