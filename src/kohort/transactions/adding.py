"""AddPartitionsToTxn, and the question of a partition whether it is in a transaction."""

from __future__ import annotations

from kohort.transactions.effects import AddPartitionsAnswer
from kohort.transactions.events import AddPartitionsToTxn
from kohort.transactions.metadata import LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from kohort.transactions.state import ONGOING
from kohort.transactions.step import TransactionStep
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE


def add_partitions(step: TransactionStep, request: AddPartitionsToTxn) -> None:
    shard, transactional_id = step.shard, request.transactional_id
    now = shard.durable.known.get(transactional_id)
    error = _refusal(step, request, now)
    if error or now is None:
        step.refuse(request, error)
    elif request.verify_only:
        step.reply(request.request, AddPartitionsAnswer(NONE, request.partitions - now.partitions))
    elif now.state is ONGOING and request.partitions <= now.partitions:
        step.reply(request.request, AddPartitionsAnswer(NONE))
    else:
        new = now._replace(
            state=ONGOING,
            partitions=now.partitions | request.partitions,
            update_ms=step.now_ms,
            start_ms=now.start_ms if now.state is ONGOING else step.now_ms,
            previous_producer_id=now.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
        last_epoch = shard.last_epochs.get(transactional_id, NO_EPOCH)
        answer = AddPartitionsAnswer(NONE)
        step.transit(transactional_id, new, last_epoch=last_epoch, request=request, response=answer)


def _refusal(
    step: TransactionStep, request: AddPartitionsToTxn, now: TransactionMetadata | None
) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    # A partition that asks is told what is durable: its own check, when it appends, is the last one.
    if not request.verify_only and request.transactional_id in step.shard.pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if now is None or now.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # No transaction begins after the last epoch, or its end could not be written: only older logs have such an id.
    if now.producer_epoch != request.producer_epoch or now.producer_epoch > LAST_EPOCH:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if now.state.is_prepared else NONE
