"""The records that poll has handed out and that are not acknowledged yet, by partition and the node they came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.client.errors import CorruptRecord, DeserializationFailed, IllegalState
from kohort.client.records import Record
from kohort.client.share.acknowledgements import Acknowledgements, AcknowledgeType, TopicIdPartition
from kohort.client.share.acquired import FailedRecords
from kohort.client.types import TopicPartition


class Origin(NamedTuple):
    """Where records came from, which is where they are acknowledged."""

    node_id: int
    partition: TopicIdPartition


ToSend = dict[Origin, Acknowledgements]
Failed = DeserializationFailed | CorruptRecord


@dataclass(slots=True)
class InFlightBatch:
    """The records of one partition that the user has, and what was said of them."""

    records: dict[int, Record[Any, Any]] = field(default_factory=dict)
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    failed: frozenset[int] = frozenset()
    """Offsets of records that could not be handed out by the last poll."""
    renewing: dict[int, Record[Any, Any]] = field(default_factory=dict)
    """Records whose renewal is on its way."""
    renewed: dict[int, Record[Any, Any]] = field(default_factory=dict)
    """Records that are locked anew, and come again with the next poll."""

    @property
    def open(self) -> Iterator[int]:
        """The offsets of which nothing was said yet."""
        said = self.acknowledgements.types
        return (offset for offset in self.records if offset not in said)

    def take(self) -> Acknowledgements:
        """Returns what was said so far; its records are not in flight any more, or are being renewed."""
        taken, self.acknowledgements = self.acknowledgements, Acknowledgements()
        for offset, kind in taken.types.items():
            record = self.records.pop(offset, None)
            if kind == AcknowledgeType.RENEW and record is not None:
                self.renewing[offset] = record
        self.failed = frozenset()
        return taken

    def answered(self, acknowledgements: Acknowledgements, succeeded: bool) -> None:
        for offset, kind in acknowledgements.types.items():
            if kind == AcknowledgeType.RENEW:
                record = self.renewing.pop(offset, None)
                if record is not None and succeeded:
                    self.renewed[offset] = record


class InFlightRecords:
    """All records that the user has. Nothing new is handed out before there are none."""

    def __init__(self) -> None:
        self.lock_timeout_ms: int | None = None
        """How long a record is this consumer's after it was acquired or renewed, as the broker said last."""
        self.held_back: dict[tuple[str, int, int], None] = {}
        """Topic, partition and offset of the records that an iteration has not given out yet."""
        self._batches: dict[Origin, InFlightBatch] = {}
        self._by_place: dict[
            tuple[str, int], list[InFlightBatch]
        ] = {}  # the same, for a user who has a record

    # --- handing out --------------------------------------------------------------------------------------

    def add(
        self, origin: Origin, records: Iterable[Record[Any, Any]], others: Acknowledgements | None = None
    ) -> None:
        """Takes in records that poll hands out, and what is acknowledged by itself: gaps."""
        batch = self._batch_of(origin)
        batch.records.update({record.offset: record for record in records})
        if others is not None:
            batch.acknowledgements.merge(others)

    def add_failed(self, origin: Origin, failed: FailedRecords) -> None:
        """Takes in records that cannot be handed out; they are acknowledged unless the user says something else."""
        batch = self._batch_of(origin)
        batch.acknowledgements.types.update(dict.fromkeys(failed.offsets, int(failed.kind)))
        batch.failed |= frozenset(failed.offsets)

    def _batch_of(self, origin: Origin) -> InFlightBatch:
        batch = self._batches.get(origin)
        if batch is None:
            batch = self._batches[origin] = InFlightBatch()
            self._by_place.setdefault(origin.partition.place, []).append(batch)
        return batch

    def by_partition(self) -> dict[TopicPartition, list[Record[Any, Any]]]:
        """Returns what poll returns: all records in flight, in the order of their offsets."""
        found: dict[TopicPartition, list[Record[Any, Any]]] = {}
        for origin, batch in self._batches.items():
            if batch.records:
                found.setdefault(origin.partition.place, []).extend(batch.records.values())
        for partition, records in found.items():
            records.sort(key=_offset)
            found[partition] = records
        return found

    @property
    def count(self) -> int:
        return sum(len(batch.records) for batch in self._batches.values())

    # --- acknowledging ------------------------------------------------------------------------------------

    def acknowledge(self, record: Record[Any, Any], kind: AcknowledgeType) -> None:
        topic, partition, offset = record[:3]
        for batch in self._by_place.get((topic, partition), ()):
            if offset in batch.records:
                batch.acknowledgements.types[offset] = kind
                return
        raise IllegalState(
            f"the record of {record.topic}-{record.partition} at offset {record.offset} cannot be acknowledged: the "
            "last poll did not return it, or it was acknowledged and committed already"
        )

    def acknowledge_failed(self, error: Failed, kind: AcknowledgeType) -> None:
        """Replaces what is said of the records that poll has raised an error for."""
        partition, offset = error.partition, error.offset
        for batch in self._by_place.get(partition, ()):
            if offset in batch.failed:
                offsets = batch.failed if isinstance(error, CorruptRecord) else (offset,)
                batch.acknowledgements.types.update(dict.fromkeys(offsets, int(kind)))
                return
        raise IllegalState(
            f"the record of {partition} at offset {offset} cannot be acknowledged: only that of the error "
            "which the last poll has raised can"
        )

    def accept_all(self) -> None:
        """Accepts all records of which nothing was said, but for those that an iteration holds back."""
        for origin, batch in self._batches.items():
            offsets: Iterable[int] = list(batch.open)
            if self.held_back:
                place = origin.partition.place
                offsets = [offset for offset in offsets if (*place, offset) not in self.held_back]
            batch.acknowledgements.types.update(dict.fromkeys(offsets, int(AcknowledgeType.ACCEPT)))

    def release_held_back(self) -> None:
        """Gives back what an iteration that has ended did not give out."""
        for topic, partition, offset in self.held_back:
            for batch in self._by_place.get((topic, partition), ()):
                if offset in batch.records:
                    batch.acknowledgements.types.setdefault(offset, int(AcknowledgeType.RELEASE))
        self.held_back = {}

    def first_open(self) -> tuple[TopicPartition, int] | None:
        """Returns the first record of which nothing was said."""
        for origin, batch in self._batches.items():
            for offset in batch.open:
                return origin.partition.place, offset
        return None

    def take(self) -> ToSend:
        """Returns what is to be sent, and forgets the records it is about."""
        taken = {origin: batch.take() for origin, batch in self._batches.items()}
        self._forget_empty()
        return {origin: acknowledgements for origin, acknowledgements in taken.items() if acknowledgements}

    # --- renewing -----------------------------------------------------------------------------------------

    def answered(
        self,
        origin: Origin,
        acknowledgements: Acknowledgements,
        succeeded: bool,
        lock_timeout_ms: int | None,
    ) -> None:
        """The leader has answered acknowledgements, or never will: renewed records stay the user's."""
        batch = self._batches.get(origin)
        if batch is None:
            return
        batch.answered(acknowledgements, succeeded)
        if batch.renewed and lock_timeout_ms is not None:
            self.lock_timeout_ms = lock_timeout_ms
        self._forget_empty()

    @property
    def has_renewals(self) -> bool:
        return any(batch.renewing or batch.renewed for batch in self._batches.values())

    @property
    def has_renewed(self) -> bool:
        return any(batch.renewed for batch in self._batches.values())

    def take_renewed(self) -> None:
        """Puts renewed records in flight again."""
        for batch in self._batches.values():
            batch.records.update(batch.renewed)
            batch.renewed = {}

    def _forget_empty(self) -> None:
        self._batches = {
            origin: batch
            for origin, batch in self._batches.items()
            if batch.records or batch.acknowledgements or batch.renewing or batch.renewed
        }
        self._by_place = {}
        for origin, batch in self._batches.items():
            self._by_place.setdefault(origin.partition.place, []).append(batch)


def _offset(record: Record[Any, Any]) -> int:
    return record.offset
