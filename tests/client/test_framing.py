"""Frames on a byte stream: however the bytes are cut, the same frames come out, and the same bytes go in."""

from __future__ import annotations

import random
import resource

import pytest

from kohort.client.io.framing import MOST_KEPT, SCRATCH_BYTES, ChunkWriter, FrameReader, request_chunks
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import BadFrame
from kohort.wire.frame import body_of, read_request_header, request_frame
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.records.buffer_pool import LEAST, MAPPED


class Stream:
    """Gives its bytes in pieces of random size, with nothing to read now and then."""

    def __init__(self, data: bytes, rng: random.Random, largest: int) -> None:
        self.data, self.rng, self.largest = memoryview(data), rng, largest

    def receive(self, into: memoryview) -> int:
        if not self.rng.randrange(4):
            raise BlockingIOError
        size = min(len(into), len(self.data), self.rng.randint(1, self.largest))
        into[:size] = self.data[:size]
        self.data = self.data[size:]
        return size


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def read_all(reader: FrameReader, stream: Stream) -> list[memoryview]:
    """Views, not copies: later frames must not write into earlier ones."""
    frames: list[memoryview] = []
    while stream.data:
        try:
            reader.read(stream.receive, frames.append)
        except BlockingIOError:
            continue
    return frames


@pytest.mark.parametrize("seed", range(30))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    edges = [4, 5, SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES, 3 * SCRATCH_BYTES]
    payloads = [rng.randbytes(rng.choice([rng.randint(4, 200), *edges])) for _ in range(60)]
    stream = Stream(b"".join(map(frame, payloads)), rng, rng.choice([50 + seed, 1000, 100_000]))
    reader = FrameReader(1 << 20)
    frames = read_all(reader, stream)
    assert [bytes(f) for f in frames] == payloads
    assert reader.received == sum(4 + len(p) for p in payloads)


def test_a_frame_in_a_room_comes_whole_and_stays_as_it_is_while_somebody_looks() -> None:
    rng = random.Random(1)
    sizes = [LEAST + 7, 5, MAPPED, LEAST, MAPPED + 9, MOST_KEPT + 1, LEAST + 1]
    payloads = [rng.randbytes(size) for size in sizes]
    frames = read_all(FrameReader(1 << 30), Stream(b"".join(map(frame, payloads)), rng, 1 << 20))
    assert [bytes(f) for f in frames] == payloads


@pytest.mark.parametrize("size", [-1, 0, 3, 1001])
def test_a_length_that_cannot_be(size: int) -> None:
    stream = Stream(size.to_bytes(4, "big", signed=True) + bytes(2000), random.Random(0), 5000)
    with pytest.raises(BadFrame, match=f"a response of {size} bytes"):
        read_all(FrameReader(1000), stream)


def test_a_false_length_costs_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader = FrameReader(2**31 - 1)
    stream = Stream((2**31 - 1).to_bytes(4, "big") + bytes(100_000), random.Random(0), 100_000)
    assert read_all(reader, stream) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # in KB


@pytest.mark.parametrize("seed", range(10))
def test_chunks_go_out_whole_however_little_the_socket_takes(seed: int) -> None:
    rng = random.Random(seed)
    writer, sent, put = ChunkWriter(), bytearray(), b""

    def send(chunks: list[memoryview]) -> int:
        if not rng.randrange(3):
            raise BlockingIOError
        joined = b"".join(chunks)[: rng.randint(1, 300)]
        sent.extend(joined)
        return len(joined)

    for _ in range(30):
        chunks = [rng.randbytes(rng.randint(0, 200)) for _ in range(rng.randint(1, 5))]
        writer.add(chunks)
        put += b"".join(chunks)
        try:
            writer.write(send)
        except BlockingIOError:
            pass
    while writer:
        try:
            writer.write(send)
        except BlockingIOError:
            pass
    assert bytes(sent) == put


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("client_id", [None, "", "kohort"])
def test_a_request_is_framed_as_the_wire_room_frames_it(version: int, client_id: str | None) -> None:
    layout = codec(HeartbeatRequest.API_KEY, version)
    for group in ("g", "g" * (SCRATCH_BYTES + 1)):
        body = layout.encode_request(HeartbeatRequest(group, 3, "m"))
        raw = None if client_id is None else client_id.encode()
        framed = b"".join(request_chunks(layout, 7, raw, body))
        assert framed == request_frame(layout, 7, client_id, body)
        view = memoryview(framed)[4:]
        _, _, correlation_id, named, pos = read_request_header(view)
        assert (correlation_id, named) == (7, client_id)
        start = body_of(view, pos) if layout.flexible else pos
        assert layout.decode_request(view, start).group_id == group  # type: ignore[attr-defined]
