"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from kohort.transactions.effects import DescribedTransaction, ListedTransaction, ListedTransactions
from kohort.transactions.events import DescribeTransaction, ListTransactions
from kohort.transactions.state import DEAD
from kohort.transactions.step import TransactionStep
from kohort.wire.errors import ErrorCode


def describe_transaction(step: TransactionStep, request: DescribeTransaction) -> None:
    shard, transactional_id = step.shard, request.transactional_id
    if not transactional_id:
        step.refuse(request, ErrorCode.INVALID_REQUEST)
        return
    now = shard.durable.known.get(transactional_id)
    if now is None or shard.pending.get(transactional_id) is DEAD:
        step.refuse(request, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return
    found = DescribedTransaction(
        ErrorCode.NONE,
        now.state.label,
        now.timeout_ms,
        now.start_ms,
        now.producer_id,
        now.producer_epoch,
        tuple(sorted(now.partitions)),
    )
    step.reply(request.request, found)


def list_transactions(step: TransactionStep, request: ListTransactions) -> None:
    found = [
        ListedTransaction(transactional_id, now.producer_id, now.state.label)
        for transactional_id, now in step.shard.durable.known.items()
        if step.shard.pending.get(transactional_id) is not DEAD
        and (not request.producer_ids or now.producer_id in request.producer_ids)
        and (not request.states or now.state.label in request.states)
        and (request.longer_than_ms < 0 or step.now_ms - now.start_ms > request.longer_than_ms)
    ]
    step.reply(request.request, ListedTransactions(ErrorCode.NONE, tuple(found)))
