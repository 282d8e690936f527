"""Handles Produce in a transaction: the coordinator is asked before a partition's first batch is appended.

A client of transaction version 2 (Produce 12 and newer) adds partitions by writing to them; of an older one it is
verified that it has added them. Batches of a transaction that is open in their partitions are appended at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kohort.broker.apis.produce import append_all, is_transactional, refusal, refuse_all
from kohort.broker.call import Call
from kohort.broker.names import INTERNAL
from kohort.log.partition import Partition
from kohort.transactions.metadata import TopicPartition
from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse
from kohort.wire.records.batch import BatchHeader, read_header

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.log.storage.transactions import Verification
    from kohort.transactions.effects import AddPartitionsAnswer

ADDS_SINCE = 12
_KNOWS_ABORTABLE = 11

# What an older client can only take for "try again".
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


def produce_in_transaction(broker: Broker, call: Call) -> ProduceResponse | None:
    """Handles a request that has a transactional batch."""
    request: ProduceRequest = call.request
    transactional_id = request.transactional_id
    if transactional_id is None:
        return refuse_all(call, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    batches = _batches(broker, call)
    producers = {(header.producer_id, header.producer_epoch) for _, _, header in batches}
    if len(producers) > 1 or any(producer_id < 0 for producer_id, _ in producers):
        return refuse_all(call, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    guards: dict[TopicPartition, Verification] = {}
    adds, now_ms = call.version >= ADDS_SINCE, broker.now_ms()
    for place, partition, header in batches:
        guard = partition.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, adds=adds, now_ms=now_ms
        )
        if guard is not None:
            guards[place] = guard
    if not guards:
        return append_all(broker, call, {})
    # The buffer of the request is used again while the coordinator thinks.
    for data in request.topic_data:
        for part in data.partition_data:
            if isinstance(part.records, memoryview):
                part.records = memoryview(bytearray(part.records))
    call.park()
    ((producer_id, producer_epoch),) = producers

    def answered(answer: AddPartitionsAnswer) -> None:
        response = append_all(broker, call, _verdicts(guards, answer, call.version))
        if response is not None:
            call.reply(response)

    broker.transactions.ask_about_partitions(
        transactional_id,
        producer_id,
        producer_epoch,
        frozenset(guards),
        adds=adds,
        on_answer=answered,
    )
    return None


def _batches(broker: Broker, call: Call) -> list[tuple[TopicPartition, Partition, BatchHeader]]:
    """Returns the transactional batches whose partitions exist, and that the caller may write to."""
    found = []
    store, by_id = broker.store, call.version >= 13
    for data in call.request.topic_data:
        topic = store.topics_by_id.get(data.topic_id) if by_id else store.topics.get(data.name)
        if topic is None or topic.name in INTERNAL or refusal(broker, call, topic, data.name):
            continue
        for part in data.partition_data:
            header = _header(part)
            if header is not None and 0 <= part.index < len(topic.partitions):
                found.append(((topic.name, part.index), topic.partitions[part.index], header))
    return found


def _header(part: PartitionProduceData) -> BatchHeader | None:
    if not is_transactional(part):
        return None
    try:
        return read_header(part.records)  # type: ignore[arg-type]
    except BadBatch:
        return None  # the check of the batch tells what is wrong


def _verdicts(
    guards: dict[TopicPartition, Verification], answer: AddPartitionsAnswer, version: int
) -> dict[TopicPartition, Verification | ErrorCode]:
    if answer.error:
        return dict.fromkeys(guards, _as_produce_tells(answer.error, version))
    missing = _as_produce_tells(ErrorCode.TRANSACTION_ABORTABLE, version)
    return {place: missing if place in answer.missing else guard for place, guard in guards.items()}


def _as_produce_tells(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error in _TRY_AGAIN or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
