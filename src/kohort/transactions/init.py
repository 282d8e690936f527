"""InitProducerId with a transactional id: it fences older producers, and ends what they left open."""

from __future__ import annotations

from kohort.transactions.effects import ProducerIdAnswer, ProducerIdNeeded
from kohort.transactions.ending import fence
from kohort.transactions.events import InitProducerId
from kohort.transactions.metadata import LAST_EPOCH, NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from kohort.transactions.state import EMPTY, ONGOING
from kohort.transactions.step import TransactionStep
from kohort.wire.errors import ErrorCode


def init_producer_id(step: TransactionStep, request: InitProducerId) -> None:
    shard, given = step.shard, request.producer_id != NO_PRODUCER_ID
    if not request.transactional_id or given != (request.producer_epoch != NO_EPOCH):
        step.refuse(request, ErrorCode.INVALID_REQUEST)
        return
    if not 0 < request.timeout_ms <= shard.settings.max_timeout_ms:
        step.refuse(request, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return
    if request.transactional_id in shard.pending:
        step.refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS)
        return
    now = shard.durable.known.get(request.transactional_id)
    if now is None:
        _begin(step, request)
    elif given and not _may_go_on(now, request):
        step.refuse(request, ErrorCode.PRODUCER_FENCED)
    elif now.state.is_prepared:
        step.refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif now.state is ONGOING:
        # The raised epoch is never given to a producer: it asks again, and gets the one after it.
        answer = ProducerIdAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
        fence(step, request.transactional_id, now, request, answer)
    else:
        _raise_epoch(step, request, now)


def _may_go_on(now: TransactionMetadata, request: InitProducerId) -> bool:
    """Tells whether the producer that names its id may be the one that we know (KIP-360)."""
    return request.producer_id == now.producer_id or (
        request.producer_id == now.previous_producer_id and request.producer_epoch >= LAST_EPOCH
    )


def _begin(step: TransactionStep, request: InitProducerId) -> None:
    """Makes an id that nobody has used; what a producer tells of an earlier one does not matter."""
    if request.fresh_producer_id == NO_PRODUCER_ID:
        step.effects.append(ProducerIdNeeded(request))
        return
    _become_empty(step, request, request.fresh_producer_id, 0, NO_EPOCH, NO_PRODUCER_ID)


def _raise_epoch(step: TransactionStep, request: InitProducerId, now: TransactionMetadata) -> None:
    given = request.producer_epoch
    last_epoch = step.shard.last_epochs.get(request.transactional_id, NO_EPOCH)
    if now.is_exhausted and given in (NO_EPOCH, now.producer_epoch):
        if request.fresh_producer_id == NO_PRODUCER_ID:
            step.effects.append(ProducerIdNeeded(request))
        else:
            _become_empty(step, request, request.fresh_producer_id, 0, given, now.producer_id)
    elif given in (NO_EPOCH, now.producer_epoch):
        _become_empty(step, request, now.producer_id, now.producer_epoch + 1, given, now.producer_id)
    elif given == last_epoch:
        # The answer to the same request was lost.
        _become_empty(step, request, now.producer_id, now.producer_epoch, last_epoch, now.producer_id)
    else:
        step.refuse(request, ErrorCode.PRODUCER_FENCED)


def _become_empty(
    step: TransactionStep,
    request: InitProducerId,
    producer_id: int,
    producer_epoch: int,
    last_epoch: int,
    previous_producer_id: int,
) -> None:
    new = TransactionMetadata(
        producer_id,
        producer_epoch,
        request.timeout_ms,
        EMPTY,
        frozenset(),
        step.now_ms,
        previous_producer_id=previous_producer_id,
    )
    answer = ProducerIdAnswer(ErrorCode.NONE, producer_id, producer_epoch)
    step.transit(request.transactional_id, new, last_epoch=last_epoch, request=request, response=answer)
