"""A batch on its way to a partition: columns that `send` appends to, and what became of it.

Records have no objects of their own: a delivery is a place in a batch. Until it is closed a batch is written to
under the accumulator's lock; from then on it belongs to the sender.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.client.types import RecordMetadata, TopicPartition
from kohort.wire.errors import KohortError
from kohort.wire.records.compression import Buffer

if TYPE_CHECKING:
    from kohort.client.produce.partition_queue import PartitionQueue

Headers = Sequence[tuple[str, bytes | None]]
OnDelivery = Callable[[RecordMetadata | None, Exception | None], object]

NO_SEQUENCE = -1
NO_OFFSET = -1

RECORD_OVERHEAD = 14
"""Bytes that a record adds to its key and value, at most, in batches that are not huge."""
HEADER_OVERHEAD = 10
"""The same for each header of a record: two lengths."""


class Placed:
    """A record's place in a batch. Fronts add ways to wait for it.

    No __init__: to make it and fill it in takes `fast_send` half the time of a call with arguments, or of a tuple.
    """

    __slots__ = ("_batch", "_index", "_timestamp", "_key_size", "_value_size")
    _batch: Batch
    _index: int
    _timestamp: int
    _key_size: int
    _value_size: int

    @property
    def _place(self) -> tuple[Batch, int]:
        """Where the record is now; a batch that was too large for the broker has been split."""
        batch, index = self._batch, self._index
        while batch.parts:
            at = bisect_right(batch.parts, index, key=_first_index) - 1
            first, batch = batch.parts[at]
            index -= first
        return batch, index

    @property
    def _outcome(self) -> RecordMetadata | Exception:
        """What became of the record, once its batch is done."""
        batch, index = self._place
        assert batch.done, "the record is still on its way"
        if batch.error is not None:
            return batch.error if batch.record_errors is None else batch.record_errors.get(index, batch.error)
        queue = batch.queue
        offset = batch.base_offset + index if batch.base_offset >= 0 else NO_OFFSET
        timestamp = batch.append_time_ms if batch.append_time_ms >= 0 else self._timestamp
        return RecordMetadata(
            queue.topic, queue.index, offset, timestamp, self._key_size, self._value_size
        )  # fmt: skip


P = TypeVar("P", bound=Placed)


def placed_in(
    kind: type[P], batch: Batch, index: int, timestamp: int = -1, key_size: int = -1, value_size: int = -1
) -> P:
    """A delivery of the record at `index`; `fast_send` spells it out."""
    placed = kind()
    placed._batch, placed._index, placed._timestamp = batch, index, timestamp
    placed._key_size, placed._value_size = key_size, value_size
    return placed


def _first_index(part: tuple[int, Batch]) -> int:
    return part[0]


class Batch:
    """Records of one partition that are written together, or not at all."""

    __slots__ = (
        "queue", "created_ms", "size", "limit", "charge", "count", "values", "keys", "timestamps", "headers",
        "callbacks", "columns", "encoded", "producer_id", "producer_epoch", "sequence", "order", "was_reset",
        "attempts", "retry_at_ms", "leader_epoch", "on_the_wire", "is_split", "done", "base_offset",
        "append_time_ms", "error", "record_errors", "parts", "waiters", "told",
        "riders", "carrier",
    )  # fmt: skip

    def __init__(self, queue: PartitionQueue, created_ms: int) -> None:
        self.queue = queue
        self.created_ms = created_ms
        self.size = 0  # bytes, estimated from above
        self.limit = 0  # as far as it may grow without asking
        self.charge = 0  # bytes of buffer.memory that it holds
        self.count = 0  # of its records, once it is closed
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None  # None: no record has one
        self.timestamps: list[int] = []
        self.headers: dict[int, Headers] | None = None
        self.callbacks: list[tuple[Placed, OnDelivery | None]] | None = None
        self.columns: Any = None  # of an Arrow batch, instead of the lists
        self.encoded: Buffer | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequence = NO_SEQUENCE
        # Counts the batches of a partition in the order of their first sending; parts of one that was split, in it.
        self.order: tuple[int, ...] = ()
        self.was_reset = False  # its sequence changed since it was last sent
        self.attempts = 0
        self.retry_at_ms = 0
        self.leader_epoch = -1  # of the leader that it was last sent to
        self.on_the_wire = False
        self.is_split = False
        self.done = False
        self.base_offset = NO_OFFSET
        self.append_time_ms = -1
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] | None = None
        self.parts: list[tuple[int, Batch]] | None = None
        self.waiters: list[Callable[[], None]] = []
        self.told = False  # the callbacks have returned
        self.riders: list[tuple[int, Batch]] | None = None  # see `merging`
        self.carrier: Batch | None = None

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.queue.topic, self.queue.index)

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.count - 1) & 0x7FFF_FFFF

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        for first, rider in self.riders or ():
            rider.succeed(base_offset + first if base_offset >= 0 else NO_OFFSET, append_time_ms)
        self._end()

    def fail(self, error: Exception, record_errors: dict[int, Exception] | None = None) -> None:
        self.error = error
        self.record_errors = record_errors
        for first, rider in self.riders or ():
            rider.fail(error, None if record_errors is None else _Shifted(record_errors, first))
        self._end()

    def even_out(self) -> None:
        """Drops the last record if it is not in all columns."""
        count = min(len(self.values), len(self.timestamps))
        if self.keys is not None:
            count = min(count, len(self.keys))
            del self.keys[count:]
        del self.values[count:], self.timestamps[count:]

    def members(self) -> list[Batch]:
        """The batches that `send` filled: itself, or those that ride in it."""
        return [self] if self.riders is None else [rider for _, rider in self.riders]

    def _end(self) -> None:
        """Lets go of the records: a delivery that somebody keeps must not keep them all."""
        assert not self.done, "a batch ends once"
        self.done = True
        self.values, self.keys, self.timestamps = [], None, []
        self.headers = self.columns = self.encoded = None

    def tell(self, on_error: Callable[[BaseException], None]) -> None:
        """Calls the callbacks in the order of the records, then those who wait. What they raise goes to `on_error`,
        SystemExit too: whoever raises it, the others are told."""
        callbacks, self.callbacks = self.callbacks, None
        for placed, callback in callbacks or ():
            if callback is None:
                continue
            outcome = placed._outcome
            try:
                if isinstance(outcome, Exception):
                    callback(None, outcome)
                else:
                    callback(outcome, None)
            except BaseException as error:
                on_error(error)
        # In this order: who adds a waiter and then sees that nobody was told yet will be called.
        self.told = True
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            try:
                waiter()
            except BaseException as error:
                on_error(error)


class _Shifted(dict[int, Exception]):
    """The errors of records of a carrier, by their index in one of its riders."""

    def __init__(self, errors: dict[int, Exception], first: int) -> None:
        super().__init__()
        self._errors, self._first = errors, first

    def get(self, index: int, default: Exception | None = None) -> Exception:  # type: ignore[override]
        return self._errors.get(index + self._first, default)  # type: ignore[return-value]


class BatchMemberFailed(KohortError):
    """The record was good, but another record of its batch was not, so that none of them was written."""
