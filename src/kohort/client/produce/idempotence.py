"""Numbers the batches of an idempotent producer: each record is written once and in order, even if answers are lost.

A broker remembers the last batches of each partition and producer id. A batch that comes again is not written again; a
batch that comes too early is refused. So up to five requests may be in flight, and batches that fail are sent again in
the same order with the same numbers. Where numbers were lost for good (a batch ended without an answer, or the broker
forgot the producer), the producer raises its epoch and counts from 0 again in those partitions.
"""

from __future__ import annotations

import logging

from kohort.client.produce.accumulator import PartitionQueue
from kohort.client.produce.batch import NO_SEQUENCE, Batch
from kohort.wire.errors import ErrorCode

_log = logging.getLogger("kohort.client.sender")

NO_PRODUCER_ID = -1
MAX_EPOCH = 0x7FFF
SEQUENCES = 0x8000_0000
"""How many sequence numbers there are: 0 follows the last one."""


class Idempotence:
    """The producer's id and epoch, and the sequence numbers of its partitions and batches."""

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
        """Raises the epoch if it turns out that sequence numbers are lost."""
        for queue in [q for q in self._unresolved if not q.in_flight]:
            del self._unresolved[queue]
            queue.unresolved = None
            if not _is_next(queue, queue.next_sequence):
                _log.info(
                    "%s: it is unknown whether sequence numbers up to %d were written; going on with a new epoch",
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
        """Tells whether the first batch of a partition's queue may be sent now."""
        queue = batch.queue
        if not self.has_id:
            return False
        if batch.sequence != NO_SEQUENCE:
            # A retry: only the first one, so that a partition in trouble has one batch in flight.
            return batch is queue.in_flight[0]
        if queue.unresolved is not None:
            return False
        stale = (queue.producer_id, queue.producer_epoch) != (self.producer_id, self.epoch)
        # No new batch while another one is being retried: the broker remembers five batches, and one that was written
        # although its answer was lost must stay among them. No second batch before the first one is acknowledged: a
        # broker that does not know the producer yet takes any number, and if the first batch is refused for its size,
        # the parts that it is split into would come too late.
        return not queue.in_flight or not (
            stale or queue.last_acked_sequence < 0 or any(other.attempts for other in queue.in_flight)
        )

    def assign(self, batch: Batch) -> None:
        """Gives its numbers to a batch that is sent for the first time."""
        queue = batch.queue
        if (queue.producer_id, queue.producer_epoch) != (self.producer_id, self.epoch):
            self._start_again(queue)
        batch.producer_id, batch.producer_epoch = self.producer_id, self.epoch
        batch.sequence = queue.next_sequence
        queue.next_sequence = (batch.sequence + batch.count) % SEQUENCES

    # --- outcomes ---------------------------------------------------------------------------------

    def succeeded(self, batch: Batch, base_offset: int) -> None:
        """Takes note of a batch that was written; also of one that had expired, because its numbers are used."""
        queue = batch.queue
        if (batch.producer_id, batch.producer_epoch) == (queue.producer_id, queue.producer_epoch):
            last = batch.last_sequence
            # Numbers wrap: the later of two is the one that is less than half the circle ahead.
            if (last - queue.last_acked_sequence) % SEQUENCES < SEQUENCES // 2:
                queue.last_acked_sequence = last
        if base_offset >= 0:
            queue.last_acked_offset = max(queue.last_acked_offset, base_offset + batch.count - 1)

    def failed(self, batch: Batch, code: ErrorCode, numbers_unused: bool) -> None:
        """Takes note of a batch that was not written; if its numbers were not used, the partition is numbered anew."""
        if (
            code is ErrorCode.UNKNOWN_PRODUCER_ID
            or code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            or numbers_unused
        ):
            self._to_renumber[batch.queue] = None

    def expired(self, batch: Batch) -> None:
        """Takes note of a batch that ended without an answer after it had been sent.

        No new batch goes to its partition until the others in flight are done: they show whether it was written.
        """
        if batch.sequence == NO_SEQUENCE:
            return
        queue = batch.queue
        following = (batch.sequence + batch.count) % SEQUENCES
        queue.unresolved = following if queue.unresolved is None else max(queue.unresolved, following)
        self._unresolved[queue] = None

    def may_retry(self, batch: Batch, code: ErrorCode, log_start_offset: int) -> bool:
        """Tells whether sending again helps against an error of sequence numbers, perhaps with other numbers."""
        queue = batch.queue
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # A log start offset says that the broker has forgotten the producer; without it the cause is unknown.
            if log_start_offset != -1 and not batch.was_reset:
                self._to_renumber[queue] = None
            return True
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return False
        if queue.unresolved is None:
            # If it is not the next one, an earlier batch failed and is sent again first.
            if not batch.was_reset and _is_next(queue, batch.sequence):
                self._to_renumber[queue] = None
        elif batch.sequence == queue.unresolved:
            self._to_renumber[queue] = None
        return True


class TransactionalNumbers(Idempotence):
    """The numbers of a transactional producer, whose epoch only the coordinator raises.

    A batch that fails makes its transaction fail. After the abort there is a new epoch, and numbers start from 0: by
    the answer to EndTxn, or because `lost` asks for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost = False
        """Whether sequence numbers are lost, so that nothing more can be written in this epoch."""

    def take_id(self, producer_id: int, epoch: int) -> None:
        if producer_id != self.producer_id:
            _log.info("producer id %d with epoch %d", producer_id, epoch)
        self.producer_id, self.epoch, self.lost = producer_id, epoch, False

    def tick(self) -> None:
        pass

    def failed(self, batch: Batch, code: ErrorCode, numbers_unused: bool) -> None:
        self.lost = True

    def expired(self, batch: Batch) -> None:
        if batch.sequence != NO_SEQUENCE:
            self.lost = True

    def may_retry(self, batch: Batch, code: ErrorCode, log_start_offset: int) -> bool:
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            return log_start_offset == -1
        # If it is not the next one, an earlier batch failed and is sent again first.
        return code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not _is_next(batch.queue, batch.sequence)


def _is_next(queue: PartitionQueue, sequence: int) -> bool:
    return sequence == (queue.last_acked_sequence + 1) % SEQUENCES
