"""Record batches, format v2: the layout of the header, CRC32C, patching in place, reading and building.

A produced batch is checked once, by `check_batch`: the header and the CRC, never the records.
The header has 61 bytes, big endian; `BatchHeader` names its fields, and all positions are computed from it. The records
follow, compressed as one block if a codec is set. The CRC covers everything from the attributes on, so offsets and
leader epoch can be assigned without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct, calcsize
from typing import NamedTuple

from crc32c import crc32c

from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.compression import MAX_DECOMPRESSED, Buffer, Compression, compress, decompress
from kohort.wire.records.payload import BatchRecord as BatchRecord  # part of the interface
from kohort.wire.records.payload import damaged, decode_records, encode_pairs, encode_records, wrap64

COMPRESSION_MASK = 0x07
APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

# For crc32c: the CRC of a batch takes microseconds, but a lock that was released can be gone for milliseconds.
KEEP_LOCK = -1


class BatchHeader(NamedTuple):
    """The header of a batch, field by field."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequence numbers start again at 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def compression(self) -> int:
        """The codec's id; in a batch that was not checked it may be none of `Compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def uses_append_time(self) -> bool:
        return self.attributes & APPEND_TIME != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones of this batch, if it has decided that already."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


# --- the layout of the header -----------------------------------------------------------------------

_FORMATS = dict(zip(BatchHeader._fields, "qiibIhiqqqhii", strict=True))


def header_fields(*names: str) -> Struct:
    """Some fields, in the order of the header, as one `Struct` that begins at the first of them.

    Reading skips the fields between them. Writing is only for fields that follow one another.
    """
    layout, behind = ">", position_of(names[0])
    for name in names:
        at = position_of(name)
        layout += (f"{at - behind}x" if at > behind else "") + _FORMATS[name]
        behind = at + calcsize(">" + _FORMATS[name])
    return Struct(layout)


def position_of(name: str) -> int:
    """Where a field of the header begins."""
    return calcsize(">" + "".join(_FORMATS.values())[: BatchHeader._fields.index(name)])


HEADER = header_fields(*BatchHeader._fields)
HEADER_SIZE = HEADER.size
LENGTH_AT = position_of("batch_length")
LENGTH_END = LEADER_EPOCH_AT = position_of(
    "partition_leader_epoch"
)  # batch_length counts what follows itself
MAGIC_AT = position_of("magic")
CRC_AT = position_of("crc")
CRC_START = position_of("attributes")  # the first byte that the CRC covers
FLAGS_AT = CRC_START + 1  # the second byte of the attributes: the first has no meaning yet
LAST_OFFSET_DELTA_AT = position_of("last_offset_delta")
BASE_TIMESTAMP_AT = position_of("base_timestamp")
MAX_TIMESTAMP_AT = position_of("max_timestamp")
PRODUCER_ID_AT = position_of("producer_id")
RECORD_COUNT_AT = position_of("record_count")
MAGIC = 2
SMALLEST_LEGACY_LENGTH = 14  # an empty message of magic 0; anything shorter is no batch of any format

_unpack_header = HEADER.unpack_from
_int16 = Struct(">h")
_int32 = Struct(">i")
_int64 = Struct(">q")
_crc = header_fields("crc")
_pair = Struct(">hh")
_marker = Struct(">hi")
_new_tuple = tuple.__new__


# --- whole batches --------------------------------------------------------------------------------


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`. It does not check that the rest of the batch is there or intact.

    Raises BadBatch if there are fewer than 61 bytes, or if they cannot be a header of format v2.
    """
    if len(buf) - pos < HEADER_SIZE:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"{len(buf) - pos} bytes are too few for a batch header")
    header = _new_tuple(BatchHeader, _unpack_header(buf, pos))
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic)
    if header.batch_length < HEADER_SIZE - LENGTH_END:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch length of {header.batch_length} is too small")
    return header


def iter_batches(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; what follows the last whole batch is left out."""
    pos, end = 0, len(buf)
    while end - pos >= HEADER_SIZE:
        header = read_header(buf, pos)
        if pos + header.size > end:
            return
        yield pos, header
        pos += header.size


def crc_is_good(buf: Buffer, pos: int, size: int) -> bool:
    """Whether the batch of `size` bytes at `pos` is complete and its CRC matches."""
    if size < HEADER_SIZE or pos + size > len(buf):
        return False
    stored: int = _crc.unpack_from(buf, pos + CRC_AT)[0]
    return crc32c(memoryview(buf)[pos + CRC_START : pos + size], 0, KEEP_LOCK) == stored


def check_batch(buf: Buffer) -> BatchHeader:
    """The header of the one batch that fills `buf`, if a client may append it.

    Raises BadBatch with the code to answer. The records themselves are not read.
    """
    size = len(buf)
    if size < HEADER_SIZE:
        raise _why_not_one_batch(buf)
    header = _new_tuple(BatchHeader, _unpack_header(buf, 0))
    offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
    if magic != MAGIC or length != size - LENGTH_END or offset != 0:
        raise _why_not_one_batch(buf)
    if crc32c(memoryview(buf)[CRC_START:], 0, KEEP_LOCK) != crc:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match its bytes")
    if (
        attributes & (CONTROL | APPEND_TIME)
        or attributes & COMPRESSION_MASK > Compression.ZSTD
        or count <= 0
        or last_delta + 1 != count
        or (producer_id >= 0 and (epoch < 0 or sequence < 0))
    ):
        raise _why_not_from_a_client(header)
    return header


def _wrong_magic(magic: int) -> BadBatch:
    if magic in (0, 1):
        return BadBatch(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format v{magic} is not served any more; only v2 (magic 2) is",
        )
    return BadBatch(ErrorCode.CORRUPT_MESSAGE, f"there is no message format with magic {magic}")


def _why_not_one_batch(buf: Buffer) -> BadBatch:
    """The reason of a refusal; checked in Kafka's order, so that the codes are Kafka's."""
    size = len(buf)
    length: int = _int32.unpack_from(buf, LENGTH_AT)[0] if size >= LENGTH_END else 0
    if size >= LENGTH_END and length < SMALLEST_LEGACY_LENGTH:
        return BadBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch length of {length} is too small")
    if size > MAGIC_AT and buf[MAGIC_AT] != MAGIC:
        return _wrong_magic(buf[MAGIC_AT])
    if size <= MAGIC_AT or LENGTH_END + length > size:
        return BadBatch(ErrorCode.INVALID_RECORD, "a partition must get one whole record batch")
    if LENGTH_END + length < size:
        return BadBatch(ErrorCode.INVALID_RECORD, "a partition must get exactly one record batch")
    offset: int = _int64.unpack_from(buf, 0)[0]
    if offset != 0:
        return BadBatch(ErrorCode.INVALID_RECORD, f"the base offset must be 0, but it is {offset}")
    return BadBatch(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are too few for a batch header")


def _why_not_from_a_client(header: BatchHeader) -> BadBatch:
    code = ErrorCode.INVALID_RECORD
    if header.compression > Compression.ZSTD:
        why = f"unknown compression id {header.compression}"
    elif header.record_count <= 0:
        why = f"a batch cannot hold {header.record_count} records"
    elif header.last_offset_delta + 1 != header.record_count:
        why = f"last offset delta {header.last_offset_delta} does not fit {header.record_count} records"
    elif header.is_control:
        why = "clients may not write control records"
    elif header.uses_append_time:
        code = ErrorCode.INVALID_TIMESTAMP
        why = "clients may not set the timestamp type to LogAppendTime"
    else:
        why = (
            f"producer id {header.producer_id} comes with epoch {header.producer_epoch} "
            f"and sequence number {header.base_sequence}"
        )
    return BadBatch(code, why)


def check_keys(batch: Buffer, max_size: int = MAX_DECOMPRESSED) -> list[int]:
    """Which records (by index in the batch) have no key: a compacted topic refuses these."""
    return [index for index, record in enumerate(iter_records(batch, max_size)) if record.key is None]


def assign(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Gives the batch at `pos` its place in the log. The CRC does not cover these fields."""
    _int64.pack_into(buf, pos, base_offset)
    _int32.pack_into(buf, pos + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buf: bytearray | memoryview, pos: int, now_ms: int) -> None:
    """Makes `now_ms` the time of all records of the whole batch at `pos`."""
    header = read_header(buf, pos)
    assert pos + header.size <= len(buf), "only a whole batch can be stamped"
    _int16.pack_into(buf, pos + CRC_START, header.attributes | APPEND_TIME)
    _int64.pack_into(buf, pos + MAX_TIMESTAMP_AT, now_ms)
    crc = crc32c(memoryview(buf)[pos + CRC_START : pos + header.size], 0, KEEP_LOCK)
    _crc.pack_into(buf, pos + CRC_AT, crc)


def with_append_time(batch: bytearray | memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Stamps the one batch that fills `batch`, for topics with LogAppendTime, and returns its new header."""
    stamp_append_time(batch, 0, now_ms)
    return header._replace(attributes=header.attributes | APPEND_TIME, max_timestamp=now_ms)


def recompress(
    batch: Buffer, codec: int, level: int | None = None, max_size: int = MAX_DECOMPRESSED
) -> bytearray:
    """The same batch with another codec (`Compression.NONE` too). Control batches stay as they are."""
    header = read_header(batch)
    payload = _payload(batch, header, max_size)
    if header.is_control:
        codec = header.compression
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return _assemble(header._replace(attributes=attributes), payload, level)


# --- records --------------------------------------------------------------------------------------


def iter_records(batch: Buffer, max_size: int = MAX_DECOMPRESSED) -> Iterator[BatchRecord]:
    """The records of one batch, with absolute offsets.

    Raises BadBatch where the batch is damaged, or decompresses to more than `max_size` bytes.
    """
    header = read_header(batch)
    return decode_records(
        _payload(batch, header, max_size),
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp if header.uses_append_time else None,
    )


def _payload(batch: Buffer, header: BatchHeader, max_size: int) -> bytes:
    if header.record_count < 0:
        raise damaged(f"{header.record_count} records")
    if len(batch) < header.size:
        raise damaged(f"{header.size} bytes were promised, {len(batch)} are there")
    return decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], max_size)


# --- building -------------------------------------------------------------------------------------


def encode_batch(
    records: Iterable[BatchRecord],
    *,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    control: bool = False,
    transactional: bool = False,
) -> bytearray:
    """One batch of at least one record, in the order of their offsets; none may lie before `base_offset`."""
    attributes = compression | (CONTROL if control else 0) | (TRANSACTIONAL if transactional else 0)
    header = BatchHeader(
        base_offset, 0, partition_leader_epoch, MAGIC, 0, attributes, 0, -1, -1,
        producer_id, producer_epoch, base_sequence, 0,
    )  # fmt: skip
    records = list(records)
    assert records, "a batch holds at least one record"
    last_offset_delta = records[-1].offset - base_offset
    return rebuild(header._replace(last_offset_delta=last_offset_delta), records, level=level)


def encode_pairs_batch(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> tuple[bytearray, BatchHeader]:
    """An uncompressed batch of keys and values, and its header: what the coordinator writes, thousands a second."""
    payload = encode_pairs(pairs)
    count = len(pairs)
    attributes = TRANSACTIONAL if producer_id >= 0 else 0
    header = BatchHeader(
        0, HEADER_SIZE - LENGTH_END + len(payload), -1, MAGIC, 0, attributes, count - 1, timestamp, timestamp,
        producer_id, producer_epoch, -1, count,
    )  # fmt: skip
    batch = bytearray(HEADER.pack(*header)) + payload
    _crc.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:], 0, KEEP_LOCK))
    return batch, header


def rebuild(
    header: BatchHeader,
    records: list[BatchRecord],
    *,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """The batch of `header` with only `records` in it, as compaction leaves it.

    Offsets, codec, flags and the producer's fields stay the same. So does `last_offset_delta`, even if that record is
    gone, so that offsets and sequence numbers go on as before. `records` may be empty. A delete horizon that
    is given, or that the batch already has, is stored.
    """
    attributes, max_timestamp = header.attributes, header.max_timestamp
    if not records:
        # As Kafka leaves them: there is nothing to compress, and no tombstone to wait for.
        attributes &= ~(COMPRESSION_MASK | DELETE_HORIZON)
        base_timestamp = -1
    elif delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    elif attributes & DELETE_HORIZON:
        base_timestamp = header.base_timestamp
    else:
        base_timestamp = wrap64(records[0].timestamp)
    if records:
        max_timestamp = wrap64(max(record.timestamp for record in records))
    new_header = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return _assemble(new_header, encode_records(records, header.base_offset, base_timestamp), level)


def _assemble(header: BatchHeader, payload: bytes, level: int | None) -> bytearray:
    """A batch of `header`, with the right length and CRC, and the payload, compressed as the header says."""
    batch = bytearray(HEADER_SIZE) + compress(header.compression, payload, level)
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LENGTH_END))
    _crc.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:], 0, KEEP_LOCK))
    return batch


# --- control batches ------------------------------------------------------------------------------


class ControlKind(IntEnum):
    """How a transaction ended, according to the key of its marker."""

    ABORT = 0
    COMMIT = 1


def encode_control_batch(
    kind: ControlKind,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """The marker that ends a producer's transaction in one partition."""
    marker = BatchRecord(base_offset, timestamp, _pair.pack(0, kind), _marker.pack(0, coordinator_epoch), [])
    return encode_batch(
        [marker],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        control=True,
        transactional=True,
    )


def control_kind(key: bytes | None) -> ControlKind | None:
    """The kind of a record in a control batch, from its key; None for kinds that are not about transactions."""
    if key is None or len(key) < _pair.size:
        raise damaged("the key of a control record is too short")
    version, kind = _pair.unpack_from(key)
    if version < 0:
        raise damaged(f"a control record of version {version}")
    return ControlKind(kind) if kind in (ControlKind.ABORT, ControlKind.COMMIT) else None


def coordinator_epoch(value: bytes | None) -> int:
    """The epoch of the coordinator that wrote a marker, from the marker's value."""
    if value is None or len(value) < _marker.size:
        raise damaged("the value of a transaction marker is too short")
    epoch: int = _marker.unpack_from(value)[1]
    return epoch
