"""Decompressing into memory that is there: the same as `decompress`, and never a byte beyond the end."""

from __future__ import annotations

from random import Random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.wire.errors import BadBatch
from kohort.wire.records.compression import Compression, compress, decompress, decompress_into

CONTENTS = st.binary(max_size=300) | st.sampled_from(
    [bytes(70_000), bytes(range(256)) * 700, b"abc" * 90_000]
)


def into(codec: int, data: bytes, size: int, *, intact: bool) -> bytes | None:
    """What arrives in `size` bytes of a larger memory, whose other bytes must stay as they are."""
    memory = bytearray(b"#" * (size + 20))
    written = decompress_into(codec, memoryview(data), memoryview(memory)[10 : size + 10], intact=intact)
    assert memory[:10] == memory[size + 10 :] == b"#" * 10
    return None if written is None else bytes(memory[10 : 10 + written])


@pytest.mark.parametrize("intact", [False, True])
@pytest.mark.parametrize("codec", list(Compression))
@given(content=CONTENTS, more=st.sampled_from([0, 1, 100_000]), less=st.integers(1, 300))
@settings(max_examples=25, deadline=None)
def test_what_fits_arrives_and_what_does_not_is_told(
    codec: Compression, intact: bool, content: bytes, more: int, less: int
) -> None:
    data = compress(codec, content)
    assert into(codec, data, len(content) + more, intact=intact) == content
    if less <= len(content):
        assert into(codec, data, len(content) - less, intact=intact) is None


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_streams_are_refused_as_decompress_refuses_them(
    codec: Compression, data: st.DataObject
) -> None:
    stream = bytearray(compress(codec, bytes(range(256)) * 5))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected: bytes | None = decompress(codec, bytes(stream), 100_000)
    except BadBatch:
        expected = None
    try:
        found = into(codec, bytes(stream), 100_000, intact=False)
    except BadBatch:
        found = None
    assert found == expected
    try:
        into(codec, bytes(stream), 100_000, intact=True)  # may take a wrong checksum, but no byte outside
    except BadBatch:
        pass


def frame(descriptor: bytes, *blocks: bytes, after: bytes = b"") -> bytes:
    """An LZ4 frame put together by hand."""
    return b"\x04\x22\x4d\x18" + descriptor + b"".join(blocks) + bytes(4) + after


def block(content: bytes, *, stored: bool = False) -> bytes:
    packed = content if stored else bytes(cramjam.lz4.compress_block(content, store_size=False))
    return (len(packed) | (0x8000_0000 if stored else 0)).to_bytes(4, "little") + packed


TEXT = b"to be or not to be, " * 50


def test_frames_as_java_writes_them() -> None:
    data = frame(b"\x60\x40\x82", block(TEXT), block(b"stored", stored=True), block(TEXT))
    for intact in (False, True):
        assert into(Compression.LZ4, data, 5000, intact=intact) == TEXT + b"stored" + TEXT
    assert into(Compression.LZ4, frame(b"\x60\x40\x82"), 10, intact=True) == b""


@pytest.mark.parametrize(
    "bad",
    [
        frame(b"\x60\x40\x82", block(TEXT))[:-3],
        frame(b"\x60\x40\x82", block(TEXT)[:-1] + b"\xff"),
        frame(b"\x60\x40\x82", b"\xff\xff\x00\x00" + b"short"),
        frame(b"\x60\x40\x82", b"\xff\xff\xff\xff" + b"short"),
        frame(b"\x61\x40\x82", block(TEXT)),
        b"\x04\x22\x4d\x18\x60\x40",
        b"",
    ],
)
def test_bad_frames_are_never_taken_for_good_ones(bad: bytes) -> None:
    for intact in (False, True):
        try:
            found = into(Compression.LZ4, bad, 5000, intact=intact)
        except BadBatch:
            continue
        assert found == decompress(Compression.LZ4, bad)


@given(content=CONTENTS | st.binary(min_size=60, max_size=300).map(lambda some: some * 400))
@settings(max_examples=40, deadline=None)
def test_our_own_frames_are_independent_blocks_that_the_library_reads(content: bytes) -> None:
    data = compress(Compression.LZ4, content)
    assert data[:5] == b"\x04\x22\x4d\x18\x60"
    assert bytes(cramjam.lz4.decompress(data)) == decompress(Compression.LZ4, data) == content


@pytest.mark.parametrize("compressible", [True, False])
@pytest.mark.parametrize(
    ("size", "block_size_id", "blocks"),
    [
        (0, 4, 0), (1, 4, 1), (64 << 10, 4, 1), (64 << 10 | 1, 5, 1), (256 << 10, 5, 1), (256 << 10 | 1, 6, 1),
        (1 << 20, 6, 1), (1 << 20 | 1, 7, 1), (4 << 20, 7, 1), (4 << 20 | 1, 7, 2),
    ],
)  # fmt: skip
def test_a_frame_is_of_one_block_of_the_smallest_kind_that_holds_it(
    size: int, block_size_id: int, blocks: int, compressible: bool
) -> None:
    content = bytes(size) if compressible else Random(1).randbytes(size)
    data = compress(Compression.LZ4, content)
    assert data[5] >> 4 == block_size_id
    pos, found = 7, 0
    while length := int.from_bytes(data[pos : pos + 4], "little") & 0x7FFF_FFFF:
        pos, found = pos + 4 + length, found + 1
    assert (pos + 4, found) == (len(data), blocks)
    assert bytes(cramjam.lz4.decompress(data)) == content
    assert into(Compression.LZ4, data, len(content), intact=True) == content


def test_what_cannot_be_compressed_is_stored() -> None:
    content = Random(1).randbytes(200_000)
    data = compress(Compression.LZ4, content)
    assert len(data) == len(content) + 7 + 4 + 4
    assert into(Compression.LZ4, data, len(content), intact=True) == content
