"""Counts the records of fetched batches by the batches' headers, without decompressing or decoding them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.batch import HEADER_SIZE, BatchHeader, crc_is_good, read_header
from kohort.wire.records.columns import decode_columns
from kohort.wire.records.walk import Transactions, at_offset


@dataclass(slots=True)
class Counted:
    """What `count_records` found; the fields are named and used as those of `Decoded`."""

    records: int
    next_offset: int
    error: BadBatch | None
    bytes_used: int
    has_gaps: bool
    """Some offsets have no record that is read: transactions, compaction, or batches that are not there."""


def count_records(
    records: memoryview,
    start: int,
    end: int,
    *,
    check_crcs: bool = True,
    aborted: Sequence[tuple[int, int]] | None = None,
) -> Counted:
    """The number of records from offset `start` to before `end` in the whole batches of `records`.

    Only a batch that has fewer records than offsets and lies across `start` or `end` is decoded. `aborted` is as for
    `decode_columns`.
    """
    transactions = None if aborted is None else Transactions(aborted)
    found = Counted(0, start, None, 0, False)
    pos = 0
    while len(records) - pos >= HEADER_SIZE and found.next_offset < end:
        try:
            header = read_header(records, pos)
            stop = pos + header.size
            if stop > len(records):
                break
            if check_crcs and not crc_is_good(records, pos, header.size):
                raise BadBatch(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match its bytes")
            if header.record_count < 0 or header.last_offset_delta < 0:
                what = f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
                raise BadBatch(ErrorCode.CORRUPT_MESSAGE, what)
        except BadBatch as error:
            base_offset = int.from_bytes(records[pos : pos + 8], "big", signed=True)
            found.error = at_offset(base_offset, error)
            break
        batch = records[pos:stop]
        skipped = transactions is not None and transactions.skips(
            header.producer_id, header.attributes, header.last_offset, batch
        )
        if header.last_offset >= start and not skipped and not header.is_control:
            found.records += _count_of(header, batch, start, end)
        found.has_gaps |= not _is_whole(header) or header.base_offset > found.next_offset
        found.next_offset = max(found.next_offset, header.last_offset + 1)
        found.bytes_used = pos = stop
    return found


def _is_whole(header: BatchHeader) -> bool:
    """Whether every offset of a batch is that of a record, and no transaction decides about it."""
    return (
        header.record_count == header.last_offset_delta + 1
        and not header.is_transactional
        and not header.is_control
    )


def _count_of(header: BatchHeader, batch: memoryview, start: int, end: int) -> int:
    if header.base_offset >= start and header.last_offset < end:
        return header.record_count
    if header.record_count == header.last_offset_delta + 1:
        return max(0, min(end, header.last_offset + 1) - max(start, header.base_offset))
    offsets = decode_columns(batch, start, check_crcs=False).columns.offsets.tolist()
    return sum(offset < end for offset in offsets)
