"""Sequence numbers: how an idempotent producer writes each record once and in order, whatever is lost on the way.

A broker remembers, per partition and producer id, the last batches. A batch that comes again is not written again; a
batch that comes too early is refused. So up to five requests may be under way, and what fails is sent again in the
same order with the same numbers. Where numbers were lost for good (a batch ended without an answer, the broker forgot
the producer), the producer raises its epoch and counts from 0 again, in the partitions concerned.
"""

from __future__ import annotations

import logging

from kohort.client.produce.batch import NO_SEQUENCE, Batch
from kohort.client.produce.partition_queue import PartitionQueue
from kohort.wire.errors import ErrorCode

_log = logging.getLogger("kohort.client.sender")

NO_PRODUCER_ID = -1
MAX_EPOCH = 0x7FFF
SEQUENCES = 0x8000_0000
"""After the last one comes 0."""


class Idempotence:
    """The producer's id and epoch, and what they mean for each partition."""

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self._to_renumber: dict[PartitionQueue, None] = {}
        self._unresolved: dict[PartitionQueue, None] = {}

    @property
    def has_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def take_id(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        _log.info("producer id %d with epoch %d", producer_id, epoch)
        self._renumber()

    def tick(self) -> None:
        """Resolves what can be resolved, and raises the epoch where numbers are lost."""
        for queue in [q for q in self._unresolved if not q.in_flight]:
            del self._unresolved[queue]
            queue.unresolved = None
            if not _is_next(queue, queue.next_sequence):
                _log.info(
                    "%s: nobody knows whether sequence numbers up to %d were written; going on with a new epoch",
                    queue, queue.next_sequence - 1,
                )  # fmt: skip
                self._to_renumber[queue] = None
        if self._to_renumber and self.has_id:
            self._raise_epoch()

    def _raise_epoch(self) -> None:
        if self.epoch == MAX_EPOCH:
            self.producer_id, self.epoch = (
                NO_PRODUCER_ID,
                -1,
            )  # a new id is asked for; then numbers start again
            return
        self.epoch += 1
        _log.info("producer id %d goes on with epoch %d", self.producer_id, self.epoch)
        self._renumber()

    def _renumber(self) -> None:
        for queue in self._to_renumber:
            self._start_again(queue)
            self._unresolved.pop(queue, None)
            queue.unresolved = None
        self._to_renumber.clear()

    def _start_again(self, queue: PartitionQueue) -> None:
        sequence = 0
        for batch in queue.in_flight:
            batch.producer_id, batch.producer_epoch, batch.sequence = self.producer_id, self.epoch, sequence
            batch.was_reset = True
            sequence = (sequence + batch.count) % SEQUENCES
        queue.producer_id, queue.producer_epoch = self.producer_id, self.epoch
        queue.next_sequence = sequence
        queue.last_acked_sequence = -1

    # --- sending ----------------------------------------------------------------------------------

    def may_send(self, batch: Batch) -> bool:
        """Whether the first batch of a partition's queue may go now."""
        queue = batch.queue
        if not self.has_id:
            return False
        if batch.sequence != NO_SEQUENCE:
            # A retry: only the next one in line, so that a partition in trouble has one batch under way.
            return batch is queue.in_flight[0]
        if queue.unresolved is not None:
            return False
        stale = (queue.producer_id, queue.producer_epoch) != (self.producer_id, self.epoch)
        # Nothing new while something is being retried: the broker remembers five batches, and one that was written
        # before its answer was lost must stay among them. Nothing behind the very first one either: a broker that
        # does not know the producer yet takes any number, and if the first one is refused for its size, what it is
        # split into would come too late.
        return not queue.in_flight or not (
            stale or queue.last_acked_sequence < 0 or any(other.attempts for other in queue.in_flight)
        )

    def assign(self, batch: Batch) -> None:
        """Gives a batch that is sent for the first time its numbers."""
        queue = batch.queue
        if (queue.producer_id, queue.producer_epoch) != (self.producer_id, self.epoch):
            self._start_again(queue)
        batch.producer_id, batch.producer_epoch = self.producer_id, self.epoch
        batch.sequence = queue.next_sequence
        queue.next_sequence = (batch.sequence + batch.count) % SEQUENCES

    # --- what became of it ------------------------------------------------------------------------

    def succeeded(self, batch: Batch, base_offset: int) -> None:
        """Also for a batch that had expired: then at least its numbers are known to be used."""
        queue = batch.queue
        if (batch.producer_id, batch.producer_epoch) == (queue.producer_id, queue.producer_epoch):
            last = batch.last_sequence
            # Numbers wrap: the later of two is the one that is less than half the circle ahead.
            if (last - queue.last_acked_sequence) % SEQUENCES < SEQUENCES // 2:
                queue.last_acked_sequence = last
        if base_offset >= 0:
            queue.last_acked_offset = max(queue.last_acked_offset, base_offset + batch.count - 1)

    def failed(self, batch: Batch, code: ErrorCode, numbers_unused: bool) -> None:
        """The batch has ended. Its numbers were not used if the broker refused it: then the next ones do not fit."""
        if (
            code is ErrorCode.UNKNOWN_PRODUCER_ID
            or code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            or numbers_unused
        ):
            self._to_renumber[batch.queue] = None

    def expired(self, batch: Batch) -> None:
        """The batch ended without an answer after it had been sent: nothing new goes to its partition until its
        other batches are done, which shows whether this one was written."""
        if batch.sequence == NO_SEQUENCE:
            return
        queue = batch.queue
        following = (batch.sequence + batch.count) % SEQUENCES
        queue.unresolved = following if queue.unresolved is None else max(queue.unresolved, following)
        self._unresolved[queue] = None

    def may_retry(self, batch: Batch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether an error about sequence numbers is mended by sending again, perhaps with other numbers."""
        queue = batch.queue
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # Without the log start offset the broker did not know itself. With it: it has forgotten the producer.
            if log_start_offset != -1 and not batch.was_reset:
                self._to_renumber[queue] = None
            return True
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return False
        if queue.unresolved is None:
            # Not the next in line: an earlier one failed, and will be sent again first.
            if not batch.was_reset and _is_next(queue, batch.sequence):
                self._to_renumber[queue] = None
        elif batch.sequence == queue.unresolved:
            self._to_renumber[queue] = None
        return True


def _is_next(queue: PartitionQueue, sequence: int) -> bool:
    return sequence == (queue.last_acked_sequence + 1) % SEQUENCES
