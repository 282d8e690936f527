"""What a partition's log knows of transactions: how they end, the index of aborted ones, guards of first batches.

    .txnindex   int16 version 0, int64 producer id, first offset, last offset (the marker's), last stable offset then

A segment's index has the aborted transactions whose marker is in that segment, in the order of their markers. A reader
needs it to leave out their records. Like the other indexes it is in memory while its segment is active, and is rebuilt
when a start walks the log. A segment without aborted transactions has no such file.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from kohort.log.storage.index import DamagedIndex
from kohort.wire.records.batch import BatchHeader, ControlKind, control_kind, coordinator_epoch, iter_records

NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

_VERSION = 0
_ENTRY = Struct(">hqqqq")
ABORTED_ENTRY_SIZE = _ENTRY.size


class EndMarker(NamedTuple):
    """The content of a control batch that ends a transaction."""

    kind: ControlKind
    coordinator_epoch: int


def end_marker(batch: memoryview | bytes) -> EndMarker | None:
    """Reads the marker in a control batch; None if it has none, or one that is not about transactions.

    A control batch without records is what compaction leaves of a transaction that is wholly gone.
    """
    for record in iter_records(batch):
        kind = control_kind(record.key)
        return EndMarker(kind, coordinator_epoch(record.value)) if kind is not None else None
    return None


class CompletedTxn(NamedTuple):
    """A transaction that a marker has just ended; one without records in this partition is none."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class AbortedTxn(NamedTuple):
    """An entry of the index of aborted transactions."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset after the marker: no later entry is about records before it."""


class TransactionIndex:
    """The aborted transactions whose markers are in one segment, in the order of the markers."""

    __slots__ = ("entries", "flushed", "synced")

    def __init__(self) -> None:
        self.entries: list[AbortedTxn] = []
        self.flushed = 0  # how many entries the file has
        self.synced = 0  # how many of those a power cut cannot take

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: AbortedTxn) -> None:
        self.entries.append(entry)

    def truncate(self, count: int) -> None:
        del self.entries[count:]
        self.flushed = min(self.flushed, count)
        self.synced = min(self.synced, count)

    def encode(self, first: int = 0) -> bytes:
        return b"".join([_ENTRY.pack(_VERSION, *entry) for entry in self.entries[first:]])

    @classmethod
    def decode(cls, data: bytes) -> TransactionIndex:
        if len(data) % ABORTED_ENTRY_SIZE:
            raise DamagedIndex(f"{len(data)} bytes are not a multiple of {ABORTED_ENTRY_SIZE}")
        index = cls()
        last = NO_OFFSET
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTxn(*fields)
            if version != _VERSION:
                raise DamagedIndex(f"an entry of version {version}")
            if not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= last:
                raise DamagedIndex("entries are out of order")
            last = entry.last_offset
            index.entries.append(entry)
        index.flushed = index.synced = len(index)
        return index

    def collect(self, start: int, end: int, found: list[AbortedTxn]) -> bool:
        """Adds the transactions with records in [start, end) to `found`; True if no later segment has more of them."""
        for entry in self.entries:
            if entry.last_offset >= start and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return True
        return False


class Verification:
    """The guard of the first batch of a transaction while the transaction's coordinator is asked about it.

    `Partition.begin_verification` makes it, and the append of the batch takes it. It dies with the first append of the
    producer and with a marker, because the coordinator's answer may be about a transaction that is over by then.
    Batches of one producer that are verified at the same time share one guard.
    """

    __slots__ = ("adds", "began_ms", "is_alive", "lowest_sequence", "producer_epoch", "producer_id")

    def __init__(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, adds: bool, now_ms: int
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        # A batch behind the first one that failed must not be written before it.
        self.lowest_sequence = base_sequence
        self.adds = (
            adds  # the coordinator is asked to add the partition (transaction version 2), not only to verify
        )
        self.began_ms = now_ms
        self.is_alive = True

    def join(self, producer_epoch: int, base_sequence: int) -> None:
        """Lets another batch of this producer wait for the same answer."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)

    def outlives(self, header: BatchHeader) -> bool:
        """Tells whether the guard stays alive after this batch of its producer is in the log.

        With transaction version 2 the marker of the last transaction has the epoch of the next one, so it may come
        while the first batch of the next one waits.
        """
        if not header.is_transactional:
            return True
        return header.is_control and self.adds and self.producer_epoch == header.producer_epoch
