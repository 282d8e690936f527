"""Walks over the batches of a fetched partition and finds what of it to decode, and where and why it ends.

CRC, transactions (read_committed) and decompression are handled here, per batch; the records are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    FLAGS_AT,
    HEADER,
    HEADER_SIZE,
    KEEP_LOCK,
    LENGTH_AT,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    ControlKind,
    control_kind,
    header_fields,
    iter_records,
    read_header,
)
from kohort.wire.records.buffer_pool import LEAST, BufferPool
from kohort.wire.records.compression import MAX_DECOMPRESSED, Buffer, decompress_into
from kohort.wire.records.payload import SMALLEST_RECORD

_SMALL = 1024 - LENGTH_END  # a batch length; above it, the CRC takes most of the time
_SMALL_IN_A_ROW = 8  # small batches that make the scan worth its call

Scan = Callable[[int, int], tuple[int, int, int, int]]
_LAST_POSSIBLE_OFFSET = 1 << 62

_unpack_header = HEADER.unpack_from
_length = header_fields("batch_length")


class Transactions:
    """Tells, as the walk goes on, which producers' transactional batches are to be skipped (read_committed)."""

    __slots__ = ("active", "pending")

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self.pending = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self.active: dict[int, int] = {}

    def skips(self, producer_id: int, attributes: int, last_offset: int, batch: memoryview) -> bool:
        """Whether a batch belongs to an aborted transaction; an abort marker ends its producer's."""
        if producer_id < 0:
            return False
        while self.pending and self.pending[-1][1] <= last_offset:
            started_by, first_offset = self.pending.pop()
            self.active[started_by] = first_offset
        if attributes & CONTROL:
            if producer_id in self.active and self._is_abort(batch):
                del self.active[producer_id]
            return False
        return attributes & TRANSACTIONAL != 0 and producer_id in self.active

    def _is_abort(self, batch: memoryview) -> bool:
        marker = next(iter_records(batch), None)
        return marker is not None and control_kind(marker.key) is ControlKind.ABORT

    def rest(self) -> list[tuple[int, int]]:
        return list(self.active.items()) + self.pending[::-1]


def at_offset(offset: int, error: BadBatch) -> BadBatch:
    return BadBatch(error.code, f"the record batch at offset {offset} cannot be read: {error.message}")


class Walk:
    """One walk over the batches: what to decode, from where, and where and why the walk ended."""

    def __init__(
        self,
        records: memoryview,
        start_offset: int,
        check_crcs: bool,
        aborted: Sequence[tuple[int, int]] | None,
    ) -> None:
        self.records = records
        self.start_offset = start_offset
        self.check_crcs = check_crcs
        self.transactions = None if aborted is None else Transactions(aborted)
        self.next_offset = start_offset
        self.pos = 0
        self.max_bytes = 0
        self.base_offset = -1  # of the batch at `pos`
        self.error: BadBatch | None = None
        self.most_records = 0  # how many records there can be
        self.batches = 0
        self.plain: list[tuple[int, int]] = []  # spans of `records`
        self.unpacked: Unpacked | None = None  # all of them, as soon as one is compressed
        self.moved: list[tuple[int, int]] = []  # position in that buffer, position in `records`

    def run(self, max_bytes: int, scanner: Callable[..., Scan | None]) -> None:
        """Walks until the end, the first damaged batch or `max_bytes`; `scanner` may help with small batches."""
        self.max_bytes = max_bytes
        try:
            self._run(max_bytes, scanner)
        except BadBatch as error:
            self.error = at_offset(self.base_offset, error)

    def _run(self, max_bytes: int, scanner: Callable[..., Scan | None]) -> None:
        records, check_crcs, start_offset = self.records, self.check_crcs, self.start_offset
        transactions, end, used, small = self.transactions, len(records), 0, 0
        scan: Scan | None = None
        while end - (pos := self.pos) >= HEADER_SIZE and used < max_bytes:
            (
                base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, _, count,
            ) = _unpack_header(records, pos)  # fmt: skip
            self.base_offset = base_offset
            if magic != MAGIC or length < HEADER_SIZE - LENGTH_END:
                read_header(records, pos)
            stop = pos + LENGTH_END + length
            if stop > end:
                break
            if length < _SMALL:
                small += 1
                if small % _SMALL_IN_A_ROW == 0 and self.unpacked is None:
                    scan = scan or scanner(
                        records, start_offset, self._not_plain(), _LAST_POSSIBLE_OFFSET, check_crcs
                    )
                    if scan is not None and (size := self._scan(scan, max_bytes - used)):
                        used += size
                        continue
            if not 0 <= base_offset <= _LAST_POSSIBLE_OFFSET or last_delta < 0:
                raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"it goes on for {last_delta} offsets")
            if check_crcs and crc32c(records[pos + CRC_START : stop], 0, KEEP_LOCK) != crc:
                raise BadBatch(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match its bytes")
            last_offset = base_offset + last_delta
            if transactions is not None and transactions.skips(
                producer_id, attributes, last_offset, records[pos:stop]
            ):
                pass
            elif last_offset >= start_offset and not attributes & CONTROL:
                size = stop - pos
                if attributes & COMPRESSION_MASK or self.unpacked is not None:
                    size = self._unpack(pos, stop, attributes)
                else:
                    self._add_plain(pos, stop)
                used += size
                self.most_records += max(0, min(count, (size - HEADER_SIZE) // SMALLEST_RECORD))
                self.batches += 1
            if last_offset >= self.next_offset:
                self.next_offset = last_offset + 1
            self.pos = stop

    def _not_plain(self) -> int:
        flags = COMPRESSION_MASK | CONTROL
        aborts = self.transactions is not None and self.transactions.rest()
        return flags | TRANSACTIONAL if aborts else flags

    def _scan(self, scan: Scan, most: int) -> int:
        """Takes the plain small batches from here on; returns how many bytes they have."""
        pos = self.pos
        self.pos, next_offset, most_records, batches = scan(pos, pos + most)
        if batches:
            self._add_plain(pos, self.pos)
            self.next_offset = max(self.next_offset, next_offset)
            self.most_records += most_records
            self.batches += batches
        return self.pos - pos

    def _add_plain(self, pos: int, stop: int) -> None:
        if self.plain and self.plain[-1][1] == pos:
            self.plain[-1] = (self.plain[-1][0], stop)
        else:
            self.plain.append((pos, stop))

    def _unpack(self, pos: int, stop: int, attributes: int) -> int:
        """Copies a batch decompressed into the common buffer; returns its size there."""
        if self.unpacked is None:
            rest = _USUAL_RATIO * (len(self.records) - pos)
            self.unpacked = Unpacked(min(rest, 2 * self.max_bytes))
            for first, last in self.plain:
                self.moved += self._positions(first, last)
                self.unpacked.append(self.records[first:last])
        before = self.unpacked.size
        self.unpacked.append_batch(self.records[pos:stop], attributes, self.check_crcs)
        self.moved.append((before, pos))
        return self.unpacked.size - before

    def _positions(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        assert self.unpacked is not None
        pos, to = first, self.unpacked.size
        while pos < last:
            yield to + pos - first, pos
            pos += read_header(self.records, pos).size

    def spans(self) -> tuple[Buffer, list[tuple[int, int]]]:
        """One buffer, and the spans of it that hold the batches to decode."""
        if self.unpacked is not None:
            data = self.unpacked.finish()
            return data, [(0, len(data))]
        return self.records, self.plain

    def origin(self, pos: int) -> int:
        """The position in `records` of the batch that is at `pos` in the buffer of `spans`."""
        return dict(self.moved).get(pos, pos)


class Unpacked:
    """Decompressed batches one after the other, in a buffer of the pool."""

    __slots__ = ("view", "size")

    def __init__(self, expected: int) -> None:
        self.view = _pool.take(max(expected, LEAST))
        self.size = 0

    def append(self, data: memoryview) -> None:
        while len(self.view) - self.size < len(data):
            self._grow()
        self.view[self.size : self.size + len(data)] = data
        self.size += len(data)

    def append_batch(self, batch: memoryview, attributes: int, intact: bool) -> None:
        """Appends a batch; `intact` says that its CRC was checked.

        Raises BadBatch, and appends nothing, if it is damaged or too large.
        """
        at = self.size + HEADER_SIZE
        codec, payload = attributes & COMPRESSION_MASK, batch[HEADER_SIZE:]
        while True:
            written = decompress_into(codec, payload, self.view[at : at + MAX_DECOMPRESSED], intact=intact)
            if written is not None:
                break
            if len(self.view) - at >= MAX_DECOMPRESSED:
                raise BadBatch(
                    ErrorCode.MESSAGE_TOO_LARGE, f"it decompresses to more than {MAX_DECOMPRESSED} bytes"
                )
            self._grow()
        if len(self.view) < at:  # an empty batch still needs space for its header
            self._grow()
        self.view[self.size : at] = batch[:HEADER_SIZE]
        self.view[self.size + FLAGS_AT] = attributes & 0xFF & ~COMPRESSION_MASK
        _length.pack_into(self.view, self.size + LENGTH_AT, HEADER_SIZE - LENGTH_END + written)
        self.size = at + written

    def _grow(self) -> None:
        larger = _pool.take(4 * len(self.view))
        larger[: self.size] = self.view[: self.size]
        self.view = larger

    def finish(self) -> memoryview:
        """All batches. This object cannot be used afterwards."""
        if 2 * self.size >= len(self.view):
            return self.view[: self.size]
        # A few records that a user keeps should not keep a large buffer in memory.
        fitting = _pool.take(self.size)
        fitting[:] = self.view[: self.size]
        return fitting


_MOST_KEPT = 64 << 20
_pool = BufferPool(_MOST_KEPT, fitting=True)
_USUAL_RATIO = 4  # of decompressed to compressed; where it is less than half of that, one more copy is made
