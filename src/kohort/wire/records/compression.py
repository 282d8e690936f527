"""The codecs of record batches: gzip, snappy, lz4 and zstd, as Kafka's clients write and read them.

Everything works on whole payloads: a batch is small, and one call into the library is faster than a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from struct import error as StructError

import cramjam

from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.buffer_pool import shared_buffer

Buffer = bytes | bytearray | memoryview

MAX_DECOMPRESSED = 128 * 1024 * 1024
"""The most bytes that one batch may decompress to, unless the caller says otherwise: far above any honest batch."""


class Compression(IntEnum):
    """The codec ids in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as the named codec's stream.

    `level` is the value of `compression.<codec>.level` (gzip 1..9 or -1, lz4 1..17, zstd -131072..22);
    None is Kafka's default of that codec. Snappy has no levels.
    """
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level is None or level == -1 else level))
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        return bytes(_lz4_behind(0, memoryview(data), level))
    assert codec == Compression.ZSTD, f"no codec has the id {codec}"
    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def compress_behind(
    before: int, codec: int, data: Buffer, level: int | None = None
) -> bytearray | memoryview:
    """What `compress` makes, behind `before` bytes that are free for a header."""
    if codec == Compression.LZ4:
        return _lz4_behind(before, memoryview(data), level)
    whole = bytearray(before)
    whole += compress(codec, data, level)
    return whole


_INTO: dict[int, Callable[[Buffer, bytearray | memoryview], int]] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def decompress(codec: int, data: Buffer, max_size: int = MAX_DECOMPRESSED) -> bytes:
    """What `compress`, or any client, compressed.

    Raises BadBatch: INVALID_RECORD for a damaged stream or an unknown codec, MESSAGE_TOO_LARGE for one that
    grows beyond `max_size`. Memory follows what the stream really holds, not what it promises, and stays
    below about twice `max_size`.
    """
    if codec == Compression.NONE:
        return bytes(data)
    try:
        if codec == Compression.SNAPPY:
            return _decompress_snappy(data, max_size)
        if codec in _INTO:
            return _decompress_growing(_INTO[codec], data, max_size)
    except cramjam.DecompressionError as error:
        raise _damaged(codec, error) from None
    raise BadBatch(ErrorCode.INVALID_RECORD, f"unknown compression id {codec}")


def decompress_into(codec: int, data: memoryview, output: memoryview, *, intact: bool = False) -> int | None:
    """Decompresses into the beginning of `output`: how many bytes, or None if there are more than fit.

    `intact` says that the data are known to be what was sent: checksums within them need not be checked.
    Raises BadBatch for a damaged stream or an unknown codec.
    """
    if intact and codec == Compression.LZ4 and (size := _lz4_blocks_into(data, output)) is not None:
        return size
    if codec in _INTO:
        try:
            written = _INTO[codec](data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL in str(error):
                return None
            raise _damaged(codec, error) from None
        return written
    try:
        content = decompress(codec, data, len(output))
    except BadBatch as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            return None
        raise
    if len(content) > len(output):
        return None  # only data that are not compressed can get here
    output[: len(content)] = content
    return len(content)


def _damaged(codec: int, error: Exception) -> BadBatch:
    return BadBatch(ErrorCode.INVALID_RECORD, f"damaged {Compression(codec).name.lower()} data: {error}")


def _too_large(max_size: int) -> BadBatch:
    return BadBatch(ErrorCode.MESSAGE_TOO_LARGE, f"the batch decompresses to more than {max_size} bytes")


# What cramjam says when the output does not fit, which is the text of Rust's own error. Nothing else tells "larger"
# from "damaged"; the tests notice if it changes. Libraries that take a limit were measured on content of 1 KB, 16 KB
# and 1 MB (µs of CPU, Python 3.11):
#   zstd: cramjam 11, 27, 840; zstandard 3, 23, 990, an install of 24 MB; the backport of 3.14's compression.zstd
#   11, 34, 990, and it cannot write into memory that is given.
#   lz4: cramjam 20, 33, 700; lz4.frame 3, 14, 660, an install of 6 MB, and it cannot write into memory that is given.
#   For fetched batches, `_lz4_blocks_into` reads usual frames block by block, each block with a limit.
# So large content would get slower or no faster, for a heavier install.
_OUTPUT_FULL = "failed to write whole buffer"


def _decompress_growing(
    decompress_into: Callable[[Buffer, bytearray | memoryview], int], data: Buffer, max_size: int
) -> bytes:
    """Tries larger and larger outputs, because none of these formats says reliably how large its content is."""
    size = max(16 * 1024, 8 * len(data))
    while True:
        # One byte more than is allowed: a stream of exactly max_size bytes must not pass for a larger one.
        size = min(size, max_size + 1)
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise
            if size > max_size:
                raise _too_large(max_size) from None
            del output  # before the larger one is made
            size *= 8
            continue
        if written > max_size:
            raise _too_large(max_size)
        return bytes(memoryview(output)[:written])


def _lz4_behind(before: int, data: memoryview, level: int | None) -> memoryview:
    # Kafka's default level 9 means the fast compressor there, every other level the high one, whose scale
    # starts at 3 and ends at 12 in the frame library. Java refuses linked blocks.
    if level is None or level == 9:
        return _lz4_frame_behind(before, data)
    compressor = cramjam.lz4.Compressor(
        level=min(max(level, 3), 12), block_linked=False, content_checksum=False
    )
    compressor.compress(bytes(data))
    return memoryview(bytearray(before) + bytes(compressor.finish()))


def _lz4_frame_behind(before: int, data: memoryview) -> memoryview:
    """A frame like those of Java: independent blocks, no checksum except the header's; one block if that is enough.

    A call for each 64 KiB would release the interpreter's lock each time, and while the user's thread makes records it
    comes back only after the 5 ms of `sys.getswitchinterval`. All clients and brokers read blocks of up to 4 MiB.
    """
    descriptor, largest = next((d, n) for d, n in _LZ4_DESCRIPTORS if len(data) <= n or n == _LZ4_LARGEST)
    blocks = [data[start : start + largest] for start in range(0, len(data), largest)]
    whole = shared_buffer(before + 11 + sum(4 + cramjam.lz4.compress_block_bound(block) for block in blocks))
    whole[before : before + 7] = _LZ4_MAGIC + descriptor
    at = before + 7
    for block in blocks:
        size = stored = cramjam.lz4.compress_block_into(block, whole[at + 4 :], store_size=False)
        if size >= len(block):
            size, stored = len(block), len(block) | _LZ4_STORED
            whole[at + 4 : at + 4 + size] = block
        _uint32.pack_into(whole, at, stored)
        at += 4 + size
    _uint32.pack_into(whole, at, 0)
    return whole[: at + 4]


_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# Flags, block size and the checksum of these two, for blocks of up to so many bytes.
_LZ4_DESCRIPTORS = (
    (b"\x60\x40\x82", 64 << 10),
    (b"\x60\x50\xfb", 256 << 10),
    (b"\x60\x60\x51", 1 << 20),
    (b"\x60\x70\x73", 4 << 20),
)
_LZ4_LARGEST = 4 << 20
_LZ4_INDEPENDENT = 0x60  # version 1, blocks that do not refer to one another
_LZ4_BLOCK_CHECKSUM = 0x10
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_STORED = 0x8000_0000  # of a block's size: it is not compressed
_uint32 = Struct("<I")


def _lz4_blocks_into(data: memoryview, output: memoryview) -> int | None:
    """Decompresses a usual frame block by block, in a quarter of the time that the library takes for a frame of 16 KB.

    Returns None for frames that are unusual, damaged or do not fit: then the library says what is wrong.
    """
    if len(data) < 11 or data[:4] != _LZ4_MAGIC:
        return None
    flags, largest_block = data[4], 1 << 8 + 2 * (data[5] >> 4)
    if (
        flags & ~(_LZ4_BLOCK_CHECKSUM | _LZ4_CONTENT_CHECKSUM) != _LZ4_INDEPENDENT
        or data[5] not in _LZ4_SIZES
    ):
        return None
    after_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    pos, size, end = 7, 0, len(data)
    try:
        while (block := _uint32.unpack_from(data, pos)[0]) != 0:
            pos += 4
            length = block & ~_LZ4_STORED
            if length > end - pos or length > largest_block:
                return None
            free = output[size : size + largest_block]
            if block & _LZ4_STORED:
                free[:length] = data[pos : pos + length]
                size += length
            else:
                size += cramjam.lz4.decompress_block_into(data[pos : pos + length], free)
            pos += length + after_block
    except (cramjam.DecompressionError, ValueError, StructError):
        return None
    pos += 4 + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
    return size if pos == end else None


_LZ4_SIZES = (0x40, 0x50, 0x60, 0x70)  # 64 KiB, 256 KiB, 1 MiB, 4 MiB

# Java's snappy writes a stream of its own (snappy-java by xerial): a magic, two version numbers, then raw
# blocks, each after its length. librdkafka and others write one raw block without any of it.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024

# The densest element of raw snappy makes 64 bytes of 3: a block cannot hold more than that.
_SNAPPY_BEST_RATIO = 22


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_size, 0)
    parts: list[bytes] = []
    pos = size = 0
    while pos < len(view):
        # A stream may follow a stream: the header can stand wherever a block can.
        if view[pos : pos + 8] == _XERIAL_MAGIC:
            pos += 16
            continue
        end = pos + 4 + int.from_bytes(view[pos : pos + 4], "big")
        parts.append(_decompress_snappy_block(view[pos + 4 : end], max_size, size))
        size += len(parts[-1])
        pos = end
    if pos > len(view):
        raise BadBatch(ErrorCode.INVALID_RECORD, "damaged snappy data: a block or a header is cut short")
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, max_size: int, size_before: int) -> bytes:
    promised = cramjam.snappy.decompress_raw_len(block)
    if promised > _SNAPPY_BEST_RATIO * len(block):
        raise BadBatch(ErrorCode.INVALID_RECORD, "damaged snappy data: it promises more than it can hold")
    if size_before + promised > max_size:
        raise _too_large(max_size)
    return bytes(cramjam.snappy.decompress_raw(block))
