"""The codecs: round trips, the forms that other writers choose, damage, and streams that grow without end."""

from __future__ import annotations

import gzip
import subprocess
import sys

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.compression import Compression, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b'{"user": "u%d", "n": %d}\n' % (n % 50, n) for n in range(8_000))
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def payloads() -> st.SearchStrategy[bytes]:
    repeated = st.builds(lambda part, times: part * times, st.binary(max_size=20), st.integers(0, 10_000))
    return st.binary(max_size=300) | repeated


@given(data=payloads(), codec=st.sampled_from(Compression))
def test_what_was_compressed_comes_back(data: bytes, codec: Compression) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_every_kind_of_buffer_will_do(codec: Compression, kind: type) -> None:
    packed = compress(codec, kind(TEXT))
    assert decompress(codec, kind(packed)) == TEXT


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [-1, 1, 6, 9]),
        (Compression.LZ4, [1, 2, 3, 9, 12, 17]),
        (Compression.ZSTD, [-131072, -5, 1, 3, 19, 22]),
    ],
)
def test_all_levels_that_kafka_allows_work(codec: Compression, levels: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT


@pytest.mark.parametrize(
    ("codec", "light", "strong"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, 9, 12), (Compression.ZSTD, -5, 19)],
)
def test_a_level_makes_a_difference(codec: Compression, light: int, strong: int) -> None:
    assert len(compress(codec, TEXT, strong)) < len(compress(codec, TEXT, light))


def test_kafkas_default_levels_are_the_default() -> None:
    assert compress(Compression.GZIP, TEXT) == compress(Compression.GZIP, TEXT, -1)
    assert compress(Compression.LZ4, TEXT) == compress(Compression.LZ4, TEXT, 9)
    assert compress(Compression.ZSTD, TEXT) == compress(Compression.ZSTD, TEXT, 3)


# --- the forms --------------------------------------------------------------------------------------


def test_gzip_is_what_the_standard_library_reads_and_writes() -> None:
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
    assert decompress(Compression.GZIP, gzip.compress(TEXT)) == TEXT


def test_gzip_members_one_after_another_are_one_stream() -> None:
    assert decompress(Compression.GZIP, gzip.compress(TEXT) + gzip.compress(b"more")) == TEXT + b"more"


def test_zstd_frames_one_after_another_are_one_stream() -> None:
    frames = compress(Compression.ZSTD, TEXT) + compress(Compression.ZSTD, b"more")
    assert decompress(Compression.ZSTD, frames) == TEXT + b"more"


def test_lz4_is_a_frame_of_independent_blocks_as_java_demands() -> None:
    packed = compress(Compression.LZ4, TEXT)
    version, independent = packed[4] >> 6, packed[4] >> 5 & 1
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert (version, independent) == (1, 1)


def test_lz4_frames_of_linked_blocks_are_read_too() -> None:
    compressor = cramjam.lz4.Compressor(level=1, block_linked=True, content_checksum=True)
    compressor.compress(TEXT)
    assert decompress(Compression.LZ4, bytes(compressor.finish())) == TEXT


def test_snappy_is_written_in_java_framing_with_raw_blocks_of_at_most_32_kb() -> None:
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed.startswith(XERIAL_HEADER)
    pos, blocks = 16, []
    while pos < len(packed):
        size = int.from_bytes(packed[pos : pos + 4], "big")
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[pos + 4 : pos + 4 + size])))
        pos += 4 + size
    assert b"".join(blocks) == TEXT
    assert max(map(len, blocks)) == 32 * 1024


def test_snappy_without_framing_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_snappy_streams_one_after_another_are_one_stream() -> None:
    packed = compress(Compression.SNAPPY, TEXT) + compress(Compression.SNAPPY, b"more")
    assert decompress(Compression.SNAPPY, packed) == TEXT + b"more"


# --- damage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_anywhere_is_refused_or_is_a_beginning(codec: Compression) -> None:
    data = TEXT[:200]
    packed = compress(codec, data)
    for end in range(len(packed)):
        try:
            assert data.startswith(decompress(codec, packed[:end]))
        except BadBatch as error:
            assert error.code is ErrorCode.INVALID_RECORD  # noqa: PT017


def test_a_snappy_stream_that_is_shorter_than_it_says_is_refused() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"whole"))
    for packed in (XERIAL_HEADER[:-1], XERIAL_HEADER + (len(block) + 1).to_bytes(4, "big") + block):
        with pytest.raises(BadBatch, match="cut short") as refused:
            decompress(Compression.SNAPPY, packed)
        assert refused.value.code is ErrorCode.INVALID_RECORD


@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=200))
def test_noise_is_refused_or_read_but_never_breaks(codec: Compression, data: bytes) -> None:
    prefix = {Compression.GZIP: b"\x1f\x8b\x08\0", Compression.SNAPPY: XERIAL_HEADER}
    prefix |= {Compression.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82", Compression.ZSTD: b"\x28\xb5\x2f\xfd"}
    for noise in (data, prefix[codec] + data):
        try:
            decompress(codec, noise, 1 << 20)
        except BadBatch as error:
            assert error.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)  # noqa: PT017


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(BadBatch, match="unknown compression id") as refused:
        decompress(codec, b"")
    assert refused.value.code is ErrorCode.INVALID_RECORD


# --- streams that grow ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 1_000, 100_000, 5_000_000])
def test_the_cap_lets_its_own_size_pass_and_not_a_byte_more(codec: Compression, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert len(decompress(codec, packed, max_size=size)) == size
    with pytest.raises(BadBatch) as refused:
        decompress(codec, packed, max_size=size - 1)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


BOMB = """
import resource, sys, zlib
from kohort.wire.records.compression import Compression, compress, decompress
from kohort.wire.errors import BadBatch

codec, size = Compression(int(sys.argv[1])), 256
if codec is Compression.GZIP:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(size)) + packer.flush()
else:
    packed = compress(codec, bytes(1 << 20)) * size
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (48 << 20),) * 2)
try:
    decompress(codec, packed, max_size=4 << 20)
except BadBatch as error:
    print(error.code.name)
"""


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_of_256_mb_is_refused_by_a_process_that_may_take_48_mb(codec: Compression) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(int(codec))], capture_output=True, text=True, timeout=240
    )
    assert (done.stdout.strip(), done.stderr) == ("MESSAGE_TOO_LARGE", "")


def test_a_snappy_block_that_promises_more_than_it_can_hold_is_not_believed() -> None:
    promise = b"\xff\xff\xff\x1f"  # 64 MB, as a varint
    for packed in (promise, XERIAL_HEADER + b"\0\0\0\4" + promise):
        with pytest.raises(BadBatch, match="promises more") as refused:
            decompress(Compression.SNAPPY, packed)
        assert refused.value.code is ErrorCode.INVALID_RECORD


def test_the_densest_snappy_there_is_does_not_count_as_a_lie() -> None:
    packed = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    assert (1 << 20) / len(packed) > 21
    assert decompress(Compression.SNAPPY, packed) == bytes(1 << 20)
