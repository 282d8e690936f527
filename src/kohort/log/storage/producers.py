"""Remembers the epoch and the last five batches of each producer, which makes producers idempotent.

`check` is called before an append and changes nothing; `update` is called after it, and when a start walks the log. The
rules are Kafka's for producers without transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import BatchHeader

BATCHES_KEPT = 5
NO_EPOCH = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhqb")
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

    __slots__ = ("batches", "last_timestamp", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int, last_timestamp: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_timestamp = last_timestamp
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
    """All producers of one partition."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Returns None if the batch may be appended, or the Duplicate to answer with; KafkaError if it is refused."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            # A producer without state (its records are deleted, or it expired) may begin at any sequence, as in Kafka.
            return None
        duplicate = entry.find_duplicate(header)
        if duplicate is not None:
            return duplicate
        if header.producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.producer_epoch}, the batch {header.producer_epoch}",
            )
        if header.producer_epoch > entry.producer_epoch:
            expected = 0
            in_sequence = header.base_sequence == 0
        else:
            expected = 0 if entry.last_sequence == MAX_SEQUENCE else entry.last_sequence + 1
            in_sequence = header.base_sequence == expected
        if not in_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} epoch {header.producer_epoch}: "
                f"sequence {header.base_sequence}, expected {expected}",
            )
        return None

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Remembers a batch that is in the log at `base_offset`."""
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

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that appended nothing for `producer.id.expiration.ms`; returns how many."""
        old = [
            producer_id
            for producer_id, entry in self._producers.items()
            if now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    def entries(self) -> Iterator[ProducerEntry]:
        return iter(self._producers.values())

    def encode(self) -> bytes:
        parts = [_COUNT.pack(len(self._producers))]
        for entry in self._producers.values():
            parts.append(
                _PRODUCER.pack(
                    entry.producer_id, entry.producer_epoch, entry.last_timestamp, len(entry.batches)
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in entry.batches)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ProducerStates:
        states = cls()
        (count,) = _COUNT.unpack_from(data, 0)
        at = _COUNT.size
        for _ in range(count):
            producer_id, epoch, timestamp, batches = _PRODUCER.unpack_from(data, at)
            at += _PRODUCER.size
            entry = states._producers[producer_id] = ProducerEntry(producer_id, epoch, timestamp)
            for _ in range(batches):
                entry.batches.append(AppendedBatch(*_BATCH.unpack_from(data, at)))
                at += _BATCH.size
        return states


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
