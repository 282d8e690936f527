"""Remembers the epoch, the last five batches and the open transaction of each producer of a partition.

`check`, `check_offsets` and `check_marker` are called before an append and change nothing; `update` and `complete` are
called after it, and when a start walks the log. The rules are Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kohort.log.storage.transactions import (
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    CompletedTxn,
    EndMarker,
    Verification,
)
from kohort.settings import LONG_MAX
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import TRANSACTIONAL, BatchHeader, ControlKind

BATCHES_KEPT = 5
NO_EPOCH = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

_COUNT = struct.Struct(">i")
_WITH_TRANSACTIONS = (
    -2
)  # instead of the count, which follows it; files of older versions have the count alone
_PRODUCER = struct.Struct(">qhqiqb")
_OLD_PRODUCER = struct.Struct(">qhqb")
_BATCH = struct.Struct(">iqiq")


class Duplicate(NamedTuple):
    """The offsets at which the same batch was appended before; the producer gets the first answer again."""

    base_offset: int
    last_offset: int
    timestamp: int


class AppendedBatch(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return sequence_before(self.last_sequence, self.offset_delta)

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer as this partition knows it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int, last_timestamp: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = NO_COORDINATOR_EPOCH  # of the last marker
        self.current_txn_first_offset = NO_OFFSET  # of the open transaction
        self.batches: list[AppendedBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> Duplicate | None:
        if header.producer_epoch != self.producer_epoch:
            return None
        first = header.base_sequence
        last = sequence_after(first, header.last_offset_delta)
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
        return None


class ProducerStates:
    """All producers of one partition, and the transactions that are open in it."""

    __slots__ = ("_ended", "_open", "_producers", "_verifications")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._open: dict[
            int, int
        ] = {}  # producer id -> first offset of its open transaction, in ascending order
        # (first offset, marker's offset) of transactions whose markers are not known to be durable
        self._ended: list[tuple[int, int]] = []
        self._verifications: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._producers)

    # Checks

    def check(self, header: BatchHeader, verification: Verification | None = None) -> Duplicate | None:
        """Returns None if a client's batch may be appended, or the Duplicate to answer with; KafkaError if not.

        A transactional batch that begins a transaction here needs a living `verification`, which the coordinator of
        the transaction has confirmed.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:
            # A producer without state (its records are deleted, or it expired) may begin at any sequence, as in Kafka.
            if header.attributes & TRANSACTIONAL:
                self._check_verified(header, verification, None)
            return None
        duplicate = entry.find_duplicate(header)
        if duplicate is not None:
            return duplicate
        is_transactional = header.attributes & TRANSACTIONAL
        if is_transactional:
            self._check_verified(header, verification, entry)
        if header.producer_epoch < entry.producer_epoch:
            raise _old_epoch(entry, header)
        if header.producer_epoch > entry.producer_epoch:
            expected = 0
            in_sequence = header.base_sequence == 0
        else:
            expected = 0 if entry.last_sequence == MAX_SEQUENCE else entry.last_sequence + 1
            in_sequence = header.base_sequence == expected
        if not in_sequence:
            raise _out_of_order(header, expected)
        if not is_transactional and entry.current_txn_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset "
                f"{entry.current_txn_first_offset}, and the batch belongs to none",
            )
        return None

    def check_offsets(self, header: BatchHeader, verification: Verification | None) -> None:
        """Raises KafkaError if the group coordinator may not append offsets that belong to a transaction.

        They have no sequence numbers, so only the transaction and the epoch are checked.
        """
        entry = self._producers.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            raise _old_epoch(entry, header)
        if not self.has_open(header.producer_id, header.producer_epoch):
            _check_alive(header, verification)

    def _check_verified(
        self, header: BatchHeader, verification: Verification | None, entry: ProducerEntry | None
    ) -> None:
        if self.has_open(header.producer_id, header.producer_epoch):
            return
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            raise _old_epoch(entry, header)  # not that its guard is dead: what fenced it has killed that too
        waiting = _check_alive(header, verification)
        has_state = entry is not None and bool(entry.batches)
        if waiting.adds and header.base_sequence != 0 and not has_state:
            raise _out_of_order(header, 0)
        if header.base_sequence > waiting.lowest_sequence:
            raise _out_of_order(header, waiting.lowest_sequence)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Raises KafkaError if the marker of a transaction may not be appended.

        With transaction version 2 the marker has a higher epoch than the transaction. One with the same epoch is a
        retry of a marker that was written before, if nothing is open any more.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            return
        epoch = entry.producer_epoch
        is_old = producer_epoch < epoch
        if transaction_version >= 2 and producer_epoch == epoch:
            is_old = entry.current_txn_first_offset != NO_OFFSET
        if is_old:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}, the marker {producer_epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {producer_id}: the marker's coordinator has epoch {coordinator_epoch}, "
                f"the last one had {entry.coordinator_epoch}",
            )

    # Transactions

    @property
    def first_unstable_offset(self) -> int:
        """The first offset of all transactions that are open or not durably ended; LONG_MAX if there is none."""
        first = next(iter(self._open.values()), LONG_MAX)
        return min(first, min(self._ended)[0]) if self._ended else first

    @property
    def oldest_open_ms(self) -> int | None:
        """When the producer whose transaction is open for longest wrote last; None if none is open."""
        producer_id = next(iter(self._open), None)
        return None if producer_id is None else self._producers[producer_id].last_timestamp

    @property
    def has_ended(self) -> bool:
        """Whether `forget_ended` may change the first unstable offset."""
        return bool(self._ended)

    @property
    def is_verifying(self) -> bool:
        return bool(self._verifications)

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Tells whether a transaction of this producer and epoch is open."""
        if producer_id not in self._open:
            return False
        return self._producers[producer_id].producer_epoch == producer_epoch

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, adds: bool, now_ms: int
    ) -> Verification:
        """Returns the guard for the first batch of a transaction; the same one while one is alive."""
        found = self._verifications.get(producer_id)
        if found is None:
            found = Verification(producer_id, producer_epoch, base_sequence, adds=adds, now_ms=now_ms)
            self._verifications[producer_id] = found
        else:
            found.join(producer_epoch, base_sequence)
        return found

    def _end_verification(self, header: BatchHeader) -> None:
        found = self._verifications.get(header.producer_id)
        if found is not None and not found.outlives(header):
            found.is_alive = False
            del self._verifications[header.producer_id]

    def forget_ended(self, high_watermark: int) -> None:
        """Forgets the ended transactions whose markers are below the high watermark."""
        self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]

    # Updates

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Remembers a batch of records, which is not transactional, that is in the log at `base_offset`."""
        epoch = header.producer_epoch
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = ProducerEntry(header.producer_id, epoch, header.max_timestamp)
            self._producers[header.producer_id] = entry
        elif entry.producer_epoch != epoch:
            entry.producer_epoch = epoch
            entry.batches.clear()
        delta = header.last_offset_delta
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(
            AppendedBatch(
                sequence_after(header.base_sequence, delta), base_offset + delta, delta, header.max_timestamp
            )
        )
        entry.last_timestamp = header.max_timestamp

    def update_transactional(self, header: BatchHeader, base_offset: int) -> None:
        """Remembers a batch of records that belongs to a transaction, which it may begin."""
        self.update(header, base_offset)
        entry = self._producers[header.producer_id]
        if header.base_sequence < 0:  # offsets of a group
            entry.batches[-1] = entry.batches[-1]._replace(last_sequence=NO_SEQUENCE)
        if entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = self._open[header.producer_id] = base_offset
        self._end_verification(header)

    def complete(self, header: BatchHeader, offset: int, marker: EndMarker) -> CompletedTxn | None:
        """Remembers a marker that is in the log at `offset`, and returns the transaction that it ended, if any."""
        producer_id = header.producer_id
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = ProducerEntry(producer_id, header.producer_epoch, header.max_timestamp)
            self._producers[producer_id] = entry
        elif entry.producer_epoch != header.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        self._end_verification(header)
        first_offset = entry.current_txn_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.current_txn_first_offset = NO_OFFSET
        del self._open[producer_id]
        self._ended.append((first_offset, offset))
        return CompletedTxn(producer_id, first_offset, offset, marker.kind is ControlKind.ABORT)

    def stable_after(self, completed: CompletedTxn) -> int:
        """Returns the last stable offset as it is once the marker of that transaction is durable."""
        return next(iter(self._open.values()), completed.last_offset + 1)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that appended nothing for `producer.id.expiration.ms`; returns how many.

        One with an open transaction is never forgotten. A verification that nobody has finished by then is ended.
        """
        old = [
            producer_id
            for producer_id, entry in self._producers.items()
            if now_ms - entry.last_timestamp >= expiration_ms and entry.current_txn_first_offset == NO_OFFSET
        ]
        for producer_id in old:
            del self._producers[producer_id]
        for waiting in list(self._verifications.values()):
            if now_ms - waiting.began_ms >= expiration_ms:
                waiting.is_alive = False
                del self._verifications[waiting.producer_id]
        return len(old)

    def entries(self) -> Iterator[ProducerEntry]:
        return iter(self._producers.values())

    def encode(self) -> bytes:
        parts = [_COUNT.pack(_WITH_TRANSACTIONS), _COUNT.pack(len(self._producers))]
        for entry in self._producers.values():
            parts.append(
                _PRODUCER.pack(
                    entry.producer_id,
                    entry.producer_epoch,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.current_txn_first_offset,
                    len(entry.batches),
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in entry.batches)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ProducerStates:
        states = cls()
        (count,) = _COUNT.unpack_from(data, 0)
        at = _COUNT.size
        is_old = count != _WITH_TRANSACTIONS
        if not is_old:
            (count,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
        for _ in range(count):
            if is_old:
                producer_id, epoch, timestamp, batches = _OLD_PRODUCER.unpack_from(data, at)
                coordinator, first_offset = NO_COORDINATOR_EPOCH, NO_OFFSET
                at += _OLD_PRODUCER.size
            else:
                producer_id, epoch, timestamp, coordinator, first_offset, batches = _PRODUCER.unpack_from(
                    data, at
                )
                at += _PRODUCER.size
            entry = states._producers[producer_id] = ProducerEntry(producer_id, epoch, timestamp)
            entry.coordinator_epoch, entry.current_txn_first_offset = coordinator, first_offset
            for _ in range(batches):
                entry.batches.append(AppendedBatch(*_BATCH.unpack_from(data, at)))
                at += _BATCH.size
        states._index_open()
        return states

    def _index_open(self) -> None:
        open_entries = [e for e in self._producers.values() if e.current_txn_first_offset != NO_OFFSET]
        open_entries.sort(key=lambda entry: entry.current_txn_first_offset)
        self._open = {entry.producer_id: entry.current_txn_first_offset for entry in open_entries}


def _check_alive(header: BatchHeader, verification: Verification | None) -> Verification:
    if verification is None or not verification.is_alive or verification.producer_id != header.producer_id:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"the batch of producer {header.producer_id} epoch {header.producer_epoch} belongs to no open transaction",
        )
    return verification


def _old_epoch(entry: ProducerEntry, header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} has epoch {entry.producer_epoch}, the batch {header.producer_epoch}",
    )


def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch}: "
        f"sequence {header.base_sequence}, expected {expected}",
    )


def sequence_after(sequence: int, delta: int) -> int:
    """Adds to a sequence number; after 2^31-1 comes 0."""
    if sequence > MAX_SEQUENCE - delta:
        return delta - (MAX_SEQUENCE - sequence) - 1
    return sequence + delta


def sequence_before(sequence: int, delta: int) -> int:
    """Subtracts from a sequence number; before 0 comes 2^31-1."""
    if sequence < delta:
        return MAX_SEQUENCE - (delta - sequence) + 1
    return sequence - delta
