"""The transactional ids of one partition of `__transaction_state`.

`step(event, now_ms)` takes any event, changes the soft state and returns the effects that must follow. Durable state
changes only when a write has become durable, through `DurableTransactions.apply`; the same method builds it on load.
A transition is pending until its record is durable, and is undone if it cannot be written. The Complete of a decided
transaction is pending from the decision on, and is never undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from kohort.transactions import adding, describe, ending, expiry, init
from kohort.transactions.effects import StateLoadFailed, TransactionEffect
from kohort.transactions.events import (
    AddPartitionsToTxn,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    ListTransactions,
    MarkersAnswered,
    StateDurable,
    StateLoadBegun,
    StateLoadEnded,
    StateNotWritten,
    StatePartitionLost,
    StateRecord,
    StatesRead,
    TransactionEvent,
    TransactionTimer,
    TransactionTimerFired,
    nobody,
)
from kohort.transactions.metadata import TopicPartition
from kohort.transactions.replay import DurableTransactions
from kohort.transactions.settings import TransactionSettings
from kohort.transactions.state import (
    APPEND_ERRORS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    PREPARE_COMMIT,
    TransactionState,
)
from kohort.transactions.step import StateWrite, TransactionStep
from kohort.wire.errors import BadRecord, ErrorCode


class TransactionEnd(Enum):
    """How a transaction was decided."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "fenced"
    """Aborted because a new producer took over its transactional id."""
    TIMED_OUT = "timed_out"
    """Aborted because it took longer than its transaction.timeout.ms."""


class TransactionShardStatus(Enum):
    NOT_LOADED = "not loaded"
    LOADING = "loading"
    ACTIVE = "active"


_REFUSALS: Final = {
    TransactionShardStatus.NOT_LOADED: ErrorCode.NOT_COORDINATOR,
    TransactionShardStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_REQUESTS: Final[dict[type, Callable[[TransactionStep, Any], None]]] = {
    InitProducerId: init.init_producer_id,
    AddPartitionsToTxn: adding.add_partitions,
    EndTxn: ending.end_transaction,
    DescribeTransaction: describe.describe_transaction,
    ListTransactions: describe.list_transactions,
}
_TIMERS: Final[dict[TransactionTimer, Callable[[TransactionStep], None]]] = {
    TransactionTimer.ABORT: expiry.abort_timed_out,
    TransactionTimer.EXPIRE: expiry.expire_ids,
    TransactionTimer.RETRY: ending.retry,
}


class TransactionShard:
    """The transactional ids of one partition; only `step` changes them."""

    def __init__(self, partition: int, settings: TransactionSettings) -> None:
        self.partition = partition
        self.settings = settings
        self.epoch = -1
        """The leader epoch of the partition, which is the coordinator epoch in markers."""
        self.ended: Counter[TransactionEnd] = Counter(dict.fromkeys(TransactionEnd, 0))
        """How many transactions were decided here, by how; for metrics, so a load does not clear it."""
        self._forget()

    def _forget(self) -> None:
        self.status = TransactionShardStatus.NOT_LOADED
        self.durable = DurableTransactions()
        self.pending: dict[str, TransactionState] = {}
        """Transactional id -> the state that it is on its way to."""
        self.last_epochs: dict[str, int] = {}
        """Transactional id -> the epoch before ours, if its producer may still use it; a load forgets it."""
        self.unmarked: dict[str, set[TopicPartition]] = {}
        """Transactional id of a decided transaction -> the partitions that have no marker yet."""
        self.retries: set[str] = set()
        """Decided transactions whose markers or Complete failed, and wait for the timer."""
        self.writes: dict[int, StateWrite] = {}
        """Token -> a transition that is on its way to the log; in order."""
        self.timers: dict[TransactionTimer, int] = {}
        self.next_token = getattr(self, "next_token", 0)

    def step(self, event: TransactionEvent, now_ms: int) -> list[TransactionEffect]:
        step = TransactionStep(self, now_ms)
        handle = _REQUESTS.get(type(event))
        if handle is None:
            self._other(step, event)
        elif self.status is TransactionShardStatus.ACTIVE:
            handle(step, event)
        else:
            step.refuse(event, _REFUSALS[self.status])  # type: ignore[arg-type]
        return step.effects

    def _other(self, step: TransactionStep, event: TransactionEvent) -> None:
        match event:
            case StateDurable(token):
                self._written(step, token)
            case StateNotWritten(token, error):
                self._not_written(step, token, error)
            case MarkersAnswered():
                ending.markers_answered(step, event)
            case TransactionTimerFired(kind, deadline_ms) if self.timers.get(kind) == deadline_ms:
                del self.timers[kind]
                _TIMERS[kind](step)
            case StateLoadBegun(epoch) if epoch > self.epoch:
                self._lose(step)
                self.epoch, self.status = epoch, TransactionShardStatus.LOADING
            case StatesRead(epoch, records) if self._is_loading(epoch):
                self._load(step, epoch, records)
            case StateLoadEnded(epoch) if self._is_loading(epoch):
                self._loaded(step)
            case StatePartitionLost():
                self._lose(step)

    # ---- writes

    def _written(self, step: TransactionStep, token: int) -> None:
        write = self.writes.pop(token, None)
        if write is None:
            return
        assert not self.writes or token < next(iter(self.writes)), "writes became durable out of order"
        for key, value in write.records:
            self.durable.apply(key, value)
        for transactional_id in write.transactional_ids:
            self._settle(transactional_id)
            if write.state is not DEAD:
                self.last_epochs[transactional_id] = write.last_epoch
        if write.request is not None and write.response is not None:
            step.reply(write.request.request, write.response)
        if write.state.is_prepared:
            self._count_end(write)
            ending.begin_completion(step, write.transactional_ids[0])
        expiry.set_timers_after(step, write.state)

    def _count_end(self, write: StateWrite) -> None:
        if not self.durable.known[write.transactional_ids[0]].partitions:
            return  # an end of version 2 in which nothing was written: it only raised the epoch
        if write.state is PREPARE_COMMIT:
            self.ended[TransactionEnd.COMMITTED] += 1
        elif write.request is None or write.request.request is nobody:
            self.ended[TransactionEnd.TIMED_OUT] += 1
        else:
            is_new = isinstance(write.request, InitProducerId)
            self.ended[TransactionEnd.FENCED if is_new else TransactionEnd.ABORTED] += 1

    def _settle(self, transactional_id: str) -> None:
        del self.pending[transactional_id]
        self.last_epochs.pop(transactional_id, None)
        self.unmarked.pop(transactional_id, None)

    def _not_written(self, step: TransactionStep, token: int, error: ErrorCode) -> None:
        write = self.writes.pop(token, None)
        if write is None:
            return
        if write.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            ending.retry_later(step, write.transactional_ids[0])
            return
        for transactional_id in write.transactional_ids:
            del self.pending[transactional_id]
        if write.request is not None:
            step.refuse(write.request, APPEND_ERRORS.get(error, error))

    # ---- load and loss

    def _is_loading(self, epoch: int) -> bool:
        return epoch == self.epoch and self.status is TransactionShardStatus.LOADING

    def _load(self, step: TransactionStep, epoch: int, records: Any) -> None:
        record: StateRecord
        try:
            for record in records:
                self.durable.apply(record.key, record.value)
        except BadRecord as error:
            where = f"__transaction_state-{self.partition} offset {record.offset}"
            self._forget()
            step.effects.append(StateLoadFailed(epoch, f"{where}: {error}"))

    def _loaded(self, step: TransactionStep) -> None:
        self.status = TransactionShardStatus.ACTIVE
        for transactional_id, now in self.durable.known.items():
            if now.state.is_prepared:
                ending.begin_completion(step, transactional_id)
        expiry.set_timers(step)

    def _lose(self, step: TransactionStep) -> None:
        """Tells everyone who waits to look for the new coordinator, and forgets all."""
        for write in self.writes.values():
            if write.request is not None:
                step.refuse(write.request, ErrorCode.NOT_COORDINATOR)
        self._forget()
