"""A batch of records on its way to a partition: it is filled by `send`, merged with others or split, and ends once.

A batch holds records as columns. A record has no object of its own: its delivery is a handle, which knows the batch and
the index of the record. While a batch is open, it is changed under the accumulator's lock only. A closed batch belongs
to the sender.

A Produce request takes one batch of a partition. Small batches that queue up behind five requests in flight would each
need a request of their own, so those that were never sent are merged into one. A merged batch is like any other batch
to the broker and to sequence numbers; the batches that were merged into it end when it ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.client.types import RecordMetadata, TopicPartition
from kohort.wire.errors import KohortError
from kohort.wire.records.batch import HEADER_SIZE, iter_records
from kohort.wire.records.compression import Buffer

if TYPE_CHECKING:
    from kohort.client.produce.accumulator import PartitionQueue

Headers = Sequence[tuple[str, bytes | None]]
OnDelivery = Callable[[RecordMetadata | None, Exception | None], object]

NO_SEQUENCE = -1
NO_OFFSET = -1

RECORD_OVERHEAD = 14
"""The most bytes that a record adds to its key and value, in batches that are not huge."""
HEADER_OVERHEAD = 10
"""The most bytes that a header of a record adds to its name and value: two lengths."""


class RecordHandle:
    """The batch and the index of a record; the fronts add ways to wait for its outcome.

    There is no __init__: `fast_send` makes a handle and sets its fields in half the time of a call with arguments.
    """

    __slots__ = ("_batch", "_index", "_timestamp", "_key_size", "_value_size")
    _batch: Batch
    _index: int
    _timestamp: int
    _key_size: int
    _value_size: int

    @property
    def _position(self) -> tuple[Batch, int]:
        """The batch that the record is in now, and its index there; a batch that was too large has been split."""
        batch, index = self._batch, self._index
        while batch.parts:
            at = bisect_right(batch.parts, index, key=_first_index) - 1
            first, batch = batch.parts[at]
            index -= first
        return batch, index

    @property
    def _outcome(self) -> RecordMetadata | Exception:
        """The record's metadata, or why it was not written; its batch must be done."""
        batch, index = self._position
        assert batch.done, "the record is still on its way"
        if batch.error is not None:
            return batch.error if batch.record_errors is None else batch.record_errors.get(index, batch.error)
        queue = batch.queue
        offset = batch.base_offset + index if batch.base_offset >= 0 else NO_OFFSET
        timestamp = batch.append_time_ms if batch.append_time_ms >= 0 else self._timestamp
        return RecordMetadata(
            queue.topic, queue.index, offset, timestamp, self._key_size, self._value_size
        )  # fmt: skip


H = TypeVar("H", bound=RecordHandle)


def handle_of(
    kind: type[H], batch: Batch, index: int, timestamp: int = -1, key_size: int = -1, value_size: int = -1
) -> H:
    """Makes the handle of the record at `index`; `fast_send` has its own copy of this code, for speed."""
    handle = kind()
    handle._batch, handle._index, handle._timestamp = batch, index, timestamp
    handle._key_size, handle._value_size = key_size, value_size
    return handle


def _first_index(part: tuple[int, Batch]) -> int:
    return part[0]


class Batch:
    """Records of one partition that are written together, or not at all.

    The accumulator owns size, limit, charge and being_encoded, and the columns while the batch is open; the sender owns
    attempts, retry_at_ms, leader_epoch, on_the_wire and, unless the batch is being encoded by a caller, encoded;
    Idempotence owns the producer's numbers and was_reset.
    """

    __slots__ = (
        "queue", "created_ms", "size", "limit", "charge", "count", "values", "keys", "timestamps", "headers",
        "callbacks", "columns", "encoded", "producer_id", "producer_epoch", "sequence", "order", "was_reset",
        "attempts", "retry_at_ms", "leader_epoch", "on_the_wire", "is_split", "done", "base_offset",
        "append_time_ms", "error", "record_errors", "parts", "waiters", "told", "being_encoded",
        "merged_from", "merged_into",
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
        self.callbacks: list[tuple[RecordHandle, OnDelivery | None]] | None = None
        self.columns: Any = None  # of an Arrow batch, instead of the lists
        self.encoded: Buffer | None = None
        self.being_encoded = False  # by a caller; the sender leaves it alone meanwhile
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
        self.merged_from: list[tuple[int, Batch]] | None = None  # with the index of their first record
        self.merged_into: Batch | None = None

    @property
    def may_merge(self) -> bool:
        """Whether it may be merged: it was never sent or encoded, is no columns of Arrow, and not merged or split."""
        return (
            not self.order
            and self.columns is None
            and self.merged_from is None
            and not self.is_split
            and not self.being_encoded
            and self.encoded is None
        )

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.queue.topic, self.queue.index)

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.count - 1) & 0x7FFF_FFFF

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        for first, member in self.merged_from or ():
            member.succeed(base_offset + first if base_offset >= 0 else NO_OFFSET, append_time_ms)
        self._end()

    def fail(self, error: Exception, record_errors: dict[int, Exception] | None = None) -> None:
        self.error = error
        self.record_errors = record_errors
        for first, member in self.merged_from or ():
            member.fail(error, None if record_errors is None else _Shifted(record_errors, first))
        self._end()

    def even_out(self) -> None:
        """Drops the last record if an interrupt left it in some of the columns only."""
        count = min(len(self.values), len(self.timestamps))
        if self.keys is not None:
            count = min(count, len(self.keys))
            del self.keys[count:]
        del self.values[count:], self.timestamps[count:]

    def members(self) -> list[Batch]:
        """The batches that `send` filled: this one, or those that were merged into it."""
        return [self] if self.merged_from is None else [member for _, member in self.merged_from]

    def _end(self) -> None:
        """Drops the records: a delivery that the user keeps must not keep all of them in memory."""
        assert not self.done, "a batch ends once"
        self.done = True
        self.values, self.keys, self.timestamps = [], None, []
        self.headers = self.columns = self.encoded = None

    def tell(self, on_error: Callable[[BaseException], None]) -> None:
        """Calls the callbacks in the order of the records, and then the waiters.

        Whatever one of them raises, even SystemExit, goes to `on_error`, and the others are called all the same.
        """
        callbacks, self.callbacks = self.callbacks, None
        for handle, callback in callbacks or ():
            if callback is None:
                continue
            outcome = handle._outcome
            try:
                if isinstance(outcome, Exception):
                    callback(None, outcome)
                else:
                    callback(outcome, None)
            except BaseException as error:
                on_error(error)
        # The flag is set first: a thread that adds a waiter and then finds the flag unset knows that it will be called.
        self.told = True
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            try:
                waiter()
            except BaseException as error:
                on_error(error)


class _Shifted(dict[int, Exception]):
    """The errors of a merged batch's records, by their index in one of the batches that were merged into it."""

    def __init__(self, errors: dict[int, Exception], first: int) -> None:
        super().__init__()
        self._errors, self._first = errors, first

    def get(self, index: int, default: Exception | None = None) -> Exception:  # type: ignore[override]
        return self._errors.get(index + self._first, default)  # type: ignore[return-value]


def merge(batches: list[Batch]) -> Batch:
    """Makes one batch with the records of all of them, in order."""
    merged = Batch(batches[0].queue, batches[0].created_ms)
    merged.limit = -1
    merged.size = HEADER_SIZE
    merged.merged_from = []
    if any(batch.keys is not None for batch in batches):
        merged.keys = []
    for batch in batches:
        first = merged.count
        merged.merged_from.append((first, batch))
        merged.count += batch.count
        merged.size += batch.size - HEADER_SIZE
        merged.values += batch.values
        merged.timestamps += batch.timestamps
        if merged.keys is not None:
            merged.keys += batch.keys if batch.keys is not None else [None] * batch.count
        if batch.headers is not None:
            merged.headers = merged.headers or {}
            merged.headers.update((first + index, each) for index, each in batch.headers.items())
        batch.merged_into = merged
    return merged


def unmerge(merged: Batch) -> list[Batch]:
    """Takes a merged batch apart: its batches are sent by themselves and continue its sequence numbers."""
    assert merged.merged_from is not None, "the batch was merged"
    batches = []
    for first, batch in merged.merged_from:
        batch.merged_into = None
        batch.order = (*merged.order, first)
        batch.attempts = merged.attempts
        batch.producer_id, batch.producer_epoch = merged.producer_id, merged.producer_epoch
        if merged.sequence >= 0:
            batch.sequence = (merged.sequence + first) & 0x7FFF_FFFF
        batches.append(batch)
    merged.merged_from = None
    return batches


def split(batch: Batch, most_bytes: int) -> list[Batch]:
    """Makes at least two smaller batches of the same records in the same order, which continue its sequence numbers."""
    assert batch.encoded is not None, "only a batch that was sent is split"
    assert batch.count > 1, "a single record cannot be split"
    records = list(iter_records(batch.encoded))
    parts: list[Batch] = []
    part: Batch | None = None
    for index, record in enumerate(records):
        size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        size += sum(HEADER_OVERHEAD + len(name) * 4 + len(content or b"") for name, content in record.headers)
        full = part is not None and part.size + size > most_bytes
        if part is None or full or (len(parts) == 1 and index == len(records) - 1):
            part = Batch(batch.queue, batch.created_ms)
            part.size, part.limit, part.is_split = HEADER_SIZE, -1, True
            parts.append(part)
        part.size += size
        part.values.append(record.value)
        part.timestamps.append(record.timestamp)
        if record.key is not None and part.keys is None:
            part.keys = [None] * (len(part.values) - 1)
        if part.keys is not None:
            part.keys.append(record.key)
        if record.headers:
            part.headers = part.headers or {}
            part.headers[len(part.values) - 1] = record.headers
    _hand_over(batch, parts)
    return parts


def _hand_over(batch: Batch, parts: list[Batch]) -> None:
    """Gives each part its numbers and the callbacks of its records."""
    first, sequence, numbered_parts = 0, batch.sequence, []
    for part in parts:
        part.count = len(part.values)
        part.order = (*batch.order, first)
        if sequence >= 0:
            part.producer_id, part.producer_epoch, part.sequence = (
                batch.producer_id,
                batch.producer_epoch,
                sequence,
            )
            sequence = (sequence + part.count) & 0x7FFF_FFFF
        numbered_parts.append((first, part))
        first += part.count
    for handle, callback in batch.callbacks or ():
        part = next(p for start, p in reversed(numbered_parts) if start <= handle._index)
        part.callbacks = part.callbacks or []
        part.callbacks.append((handle, callback))
    batch.callbacks = None
    batch.parts = numbered_parts


class BatchMemberFailed(KohortError):
    """The record was good, but another record of its batch was not, so that none of them was written."""

    what_to_do = (
        "Send the record again: another record of its batch was refused, and its own delivery says why."
    )
