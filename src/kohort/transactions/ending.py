"""EndTxn, and what follows: markers in all partitions, then Complete.

The outcome is decided when PrepareCommit or PrepareAbort is durable. EndTxn is answered then; the markers and Complete
are tried until they succeed, also after a load. Meanwhile Complete is pending, as in Kafka.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kohort.transactions.effects import ProducerIdAnswer, ProducerIdNeeded, SendMarkers
from kohort.transactions.events import EndTxn, InitProducerId, MarkersAnswered, TransactionTimer, nobody
from kohort.transactions.metadata import LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from kohort.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from kohort.transactions.step import TransactionStep
from kohort.wire.errors import ErrorCode


class EndDecision(Enum):
    """What EndTxn does where it does not answer at once."""

    PREPARE = "write PrepareCommit or PrepareAbort"
    BUMP = "write PrepareAbort without partitions, which raises the epoch"


_E = ErrorCode
_PREPARE, _BUMP = EndDecision
_Row = tuple[ErrorCode | EndDecision, ErrorCode | EndDecision]
_CT, _ITS, _PF = _E.CONCURRENT_TRANSACTIONS, _E.INVALID_TXN_STATE, _E.PRODUCER_FENCED

# state: (commit, abort)
V4_AND_BELOW: Final[dict[TransactionState, _Row]] = {
    ONGOING: (_PREPARE, _PREPARE),
    PREPARE_COMMIT: (_CT, _ITS),
    PREPARE_ABORT: (_ITS, _CT),
    EMPTY: (_ITS, _ITS),
    COMPLETE_COMMIT: (_E.NONE, _ITS),
    COMPLETE_ABORT: (_ITS, _E.NONE),
}
V5: Final[dict[TransactionState, _Row]] = {
    ONGOING: (_PREPARE, _PREPARE),
    PREPARE_COMMIT: (_PF, _PF),
    PREPARE_ABORT: (_PF, _PF),
    EMPTY: (_ITS, _BUMP),
    COMPLETE_COMMIT: (_ITS, _BUMP),
    COMPLETE_ABORT: (_ITS, _BUMP),
}
# The epoch is the one before ours: the same request came already, and its answer was lost.
V5_RETRY: Final[dict[TransactionState, _Row]] = {
    ONGOING: (_PF, _PF),
    PREPARE_COMMIT: (_CT, _ITS),
    PREPARE_ABORT: (_ITS, _CT),
    EMPTY: (_PF, _PF),
    COMPLETE_COMMIT: (_E.NONE, _ITS),
    COMPLETE_ABORT: (_ITS, _E.NONE),
}


def end_transaction(step: TransactionStep, request: EndTxn) -> None:
    now = step.shard.durable.known.get(request.transactional_id)
    if request.request is nobody and (now is None or not is_timed_out(now, step.now_ms)):
        return  # its producer has ended it, while a producer id was fetched
    is_pending = request.transactional_id in step.shard.pending
    decision = decide(now, is_pending, request)
    if now is None:
        step.refuse(
            request, ErrorCode.INVALID_PRODUCER_ID_MAPPING if request.transactional_id else _E.INVALID_REQUEST
        )
    elif isinstance(decision, EndDecision):
        _prepare(step, request, now, decision)
    elif decision is ErrorCode.NONE and request.bumps_epoch:
        answer = ProducerIdAnswer(ErrorCode.NONE, now.producer_id, now.producer_epoch)
        step.reply(request.request, answer)
    else:
        step.refuse(request, decision)


def is_timed_out(now: TransactionMetadata, now_ms: int) -> bool:
    """Tells whether a transaction is open for longer than its producer has asked for."""
    return now.state is ONGOING and now.start_ms + now.timeout_ms < now_ms


def decide(now: TransactionMetadata | None, is_pending: bool, request: EndTxn) -> ErrorCode | EndDecision:
    """Decides about EndTxn by the tables."""
    if now is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.bumps_epoch:
        return _decide_v5(now, is_pending, request)
    if now.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if now.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return V4_AND_BELOW[now.state][not request.commit]


def _decide_v5(now: TransactionMetadata, is_pending: bool, request: EndTxn) -> ErrorCode | EndDecision:
    # Pending comes first: the producer may use an id that only the pending Complete makes ours.
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_retry_of_overflow = (
        request.producer_id == now.previous_producer_id
        and request.producer_epoch == LAST_EPOCH
        and now.producer_epoch == 0
        and now.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    )
    if is_retry_of_overflow:
        return V5_RETRY[now.state][not request.commit]
    if request.producer_id != now.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch == now.producer_epoch:
        return V5[now.state][not request.commit]
    if now.client_version >= 2 and request.producer_epoch == now.producer_epoch - 1:
        return V5_RETRY[now.state][not request.commit]
    return ErrorCode.PRODUCER_FENCED


def _prepare(step: TransactionStep, request: EndTxn, now: TransactionMetadata, decision: EndDecision) -> None:
    new = now._replace(
        state=PREPARE_COMMIT if request.commit else PREPARE_ABORT,
        update_ms=step.now_ms,
        start_ms=step.now_ms if decision is EndDecision.BUMP else now.start_ms,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=2 if request.bumps_epoch else 0,
    )
    last_epoch = step.shard.last_epochs.get(request.transactional_id, NO_EPOCH)
    answer = ProducerIdAnswer(ErrorCode.NONE)
    if request.bumps_epoch:
        if now.is_exhausted and request.fresh_producer_id == NO_PRODUCER_ID:
            step.effects.append(ProducerIdNeeded(request))
            return
        last_epoch = now.producer_epoch
        new = new._replace(producer_epoch=now.producer_epoch + 1)
        answer = ProducerIdAnswer(ErrorCode.NONE, new.producer_id, new.producer_epoch)
        if now.is_exhausted:
            new = new._replace(next_producer_id=request.fresh_producer_id)
            answer = ProducerIdAnswer(ErrorCode.NONE, request.fresh_producer_id, 0)
    step.transit(request.transactional_id, new, last_epoch=last_epoch, request=request, response=answer)


def fence(
    step: TransactionStep,
    transactional_id: str,
    now: TransactionMetadata,
    request: InitProducerId | None = None,
    answer: ProducerIdAnswer | None = None,
) -> None:
    """Aborts an open transaction with a raised epoch, so that its producer can write no more.

    After the last epoch comes another producer id, as at an EndTxn: the producer that ends what is aborted here is told
    the epoch that follows, and there must be one.
    """
    next_producer_id = NO_PRODUCER_ID if request is None else request.fresh_producer_id
    if (
        now.is_exhausted
        and next_producer_id == NO_PRODUCER_ID
        and step.shard.settings.transaction_version >= 2
    ):
        end = EndTxn(nobody, transactional_id, now.producer_id, now.producer_epoch, False, True)
        step.effects.append(ProducerIdNeeded(request or end))
        return
    new = now._replace(
        producer_epoch=now.producer_epoch + 1,
        state=PREPARE_ABORT,
        update_ms=step.now_ms,
        previous_producer_id=now.producer_id,
        next_producer_id=next_producer_id,
        client_version=step.shard.settings.transaction_version,
    )
    step.transit(transactional_id, new, request=request, response=answer)


# ---- after the decision


def begin_completion(step: TransactionStep, transactional_id: str) -> None:
    """Sends the markers of a decided transaction. Its Complete is pending from now on."""
    shard = step.shard
    now = shard.durable.known[transactional_id]
    shard.pending[transactional_id] = COMPLETED[now.state]
    shard.unmarked[transactional_id] = set(now.partitions)
    send_markers(step, transactional_id)


def send_markers(step: TransactionStep, transactional_id: str) -> None:
    """Sends the markers that are not written; Complete follows if there are none."""
    now = step.shard.durable.known[transactional_id]
    unmarked = step.shard.unmarked[transactional_id]
    if not unmarked:
        _complete(step, transactional_id, now)
        return
    step.effects.append(
        SendMarkers(
            transactional_id,
            now.producer_id,
            now.producer_epoch,
            now.state is PREPARE_COMMIT,
            step.shard.epoch,
            now.client_version,
            tuple(sorted(unmarked)),
        )
    )


def markers_answered(step: TransactionStep, event: MarkersAnswered) -> None:
    shard, transactional_id = step.shard, event.transactional_id
    now = shard.durable.known.get(transactional_id)
    unmarked = shard.unmarked.get(transactional_id)
    if now is None or unmarked is None or not unmarked:
        return
    if (now.producer_id, now.producer_epoch) != (event.producer_id, event.producer_epoch):
        return
    unmarked.difference_update(partition for partition, error in event.errors if error in _MARKED)
    if unmarked:
        retry_later(step, transactional_id)
    else:
        _complete(step, transactional_id, now)


# A deleted partition needs no marker. A raised epoch says that the partition has seen a later end of the producer's.
_MARKED: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH}
)


def retry_later(step: TransactionStep, transactional_id: str) -> None:
    step.shard.retries.add(transactional_id)
    step.set_timer(TransactionTimer.RETRY, step.shard.settings.retry_backoff_ms)


def retry(step: TransactionStep) -> None:
    """Goes on with the transactions whose markers or Complete failed."""
    retries, step.shard.retries = step.shard.retries, set()
    for transactional_id in sorted(retries):
        send_markers(step, transactional_id)


def _complete(step: TransactionStep, transactional_id: str, now: TransactionMetadata) -> None:
    new = now._replace(
        state=COMPLETED[now.state],
        partitions=frozenset(),
        update_ms=step.now_ms,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
    if now.next_producer_id != NO_PRODUCER_ID:
        new = new._replace(producer_id=now.next_producer_id, producer_epoch=0)
    last_epoch = step.shard.last_epochs.get(transactional_id, NO_EPOCH)
    step.transit(transactional_id, new, last_epoch=last_epoch)
