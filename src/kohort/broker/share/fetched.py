"""What a share fetch reads of a log: the offsets of its batches, without reading the records in them."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.log.partition import Partition
from kohort.log.storage.files import Slice
from kohort.share.partition import AcquiredRange, OffsetSpan
from kohort.wire.records.batch import HEADER, BatchHeader, read_header
from kohort.wire.records.walk import Transactions

_HEADER_BYTES = HEADER.size


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole batches of a log: where they are, and which of them are of aborted transactions."""

    records: Slice
    offsets: tuple[OffsetSpan, ...]
    positions: tuple[int, ...]
    """Where each batch begins in the file, and where the last one ends."""
    aborted: tuple[OffsetSpan, ...] = ()

    def holding(self, acquired: tuple[AcquiredRange, ...]) -> Slice:
        """Returns the bytes of the batches that hold what was acquired; it may be more, but never less."""
        first, last = acquired[0].first, acquired[-1].last
        begin, end = 0, len(self.offsets)
        while begin + 1 < end and self.offsets[begin + 1].first <= first:
            begin += 1
        while end - 1 > begin and self.offsets[end - 1].first > last:
            end -= 1
        position = self.positions[begin]
        return Slice(self.records.file, position, self.positions[end] - position)


def read_batches(
    partition: Partition, offset: int, max_bytes: int, *, at_least_one: bool, is_committed: bool
) -> FetchedBatches | None:
    """Reads whole batches from `offset` on; None if there are none. KafkaError if the log does not have the offset.

    With `is_committed` it reads up to the last stable offset, and tells which batches are of aborted transactions.
    """
    up_to = partition.last_stable_offset if is_committed else None
    records = partition.read(offset, max_bytes, at_least_one=at_least_one, up_to=up_to)
    if not len(records):
        return None
    file, position, end = records.file, records.position, records.position + len(records)
    headers: list[BatchHeader] = []
    positions = [position]
    while end - position >= _HEADER_BYTES:
        header = read_header(file.pread(position, _HEADER_BYTES))
        if position + header.size > end:
            break
        headers.append(header)
        position += header.size
        positions.append(position)
    if not headers:
        return None
    offsets = tuple(OffsetSpan(header.base_offset, header.last_offset) for header in headers)
    aborted = _aborted(partition, offset, records, headers, positions) if is_committed else ()
    return FetchedBatches(records, offsets, tuple(positions), aborted)


def _aborted(
    partition: Partition, offset: int, records: Slice, headers: list[BatchHeader], positions: list[int]
) -> tuple[OffsetSpan, ...]:
    ended = partition.aborted_transactions(offset, records)
    if not ended:
        return ()
    transactions = Transactions([(entry.producer_id, entry.first_offset) for entry in ended])
    found = []
    for header, position in zip(headers, positions, strict=False):
        # Only a marker is looked into, and it is small.
        batch = records.file.pread(position, header.size) if header.is_control else b""
        if transactions.skips(header.producer_id, header.attributes, header.last_offset, memoryview(batch)):
            found.append(OffsetSpan(header.base_offset, header.last_offset))
    return tuple(found)
