"""Handles the requests of transactions: adding partitions and groups, the end, markers, describing and listing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.names import INTERNAL, OFFSETS_TOPIC
from kohort.coordinator.regex import BadPattern, TopicPattern, compile_pattern
from kohort.coordinator.settings import partition_for
from kohort.security.acls import AclOperation, AclResource
from kohort.transactions.effects import (
    AddPartitionsAnswer,
    DescribedTransaction,
    ListedTransaction,
    ListedTransactions,
    ProducerIdAnswer,
    SendMarkers,
)
from kohort.transactions.events import AddPartitionsToTxn, DescribeTransaction, EndTxn, ListTransactions
from kohort.transactions.metadata import TopicPartition
from kohort.transactions.state import TransactionState
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import add_offsets_to_txn as add_offsets
from kohort.wire.messages import add_partitions_to_txn as add
from kohort.wire.messages import describe_transactions as describe
from kohort.wire.messages import end_txn as end
from kohort.wire.messages import list_transactions as listing
from kohort.wire.messages import write_txn_markers as markers

NONE = ErrorCode.NONE
_BROKERS_ONLY = 4  # the first version of AddPartitionsToTxn that nodes send, and not clients


def may_write(broker: Broker, call: Call, transactional_id: str) -> bool:
    return broker.may(call, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)


def _as_old_clients_know(error: ErrorCode, version: int) -> ErrorCode:
    """PRODUCER_FENCED came with version 2 of these requests."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and version < 2 else error


# --- adding ---------------------------------------------------------------------------------------


def add_partitions_to_txn(broker: Broker, call: Call) -> add.AddPartitionsToTxnResponse | None:
    request: add.AddPartitionsToTxnRequest = call.request
    if call.version < _BROKERS_ONLY:
        call.park()
        transaction = add.AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            [add.AddPartitionsToTxnTopic(t.name, t.partitions) for t in request.v3_and_below_topics],
        )
        _Adding(broker, call, [transaction]).start()
        return None
    if not broker.may_in_cluster(call, AclOperation.CLUSTER_ACTION):
        return add.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    call.park()
    _Adding(broker, call, request.transactions).start()
    return None


class _Adding:
    """One AddPartitionsToTxn; it is answered when all of its transactions are."""

    __slots__ = ("answers", "broker", "call", "missing", "transactions")

    def __init__(
        self, broker: Broker, call: Call, transactions: list[add.AddPartitionsToTxnTransaction]
    ) -> None:
        self.broker, self.call, self.transactions = broker, call, transactions
        self.answers: list[dict[TopicPartition, ErrorCode]] = [{} for _ in transactions]
        self.missing = len(transactions)

    def start(self) -> None:
        if not self.transactions:
            self._reply()
        for number, transaction in enumerate(self.transactions):
            self._start_one(number, transaction)

    def _start_one(self, number: int, transaction: add.AddPartitionsToTxnTransaction) -> None:
        wanted = [(t.name, p) for t in transaction.topics for p in t.partitions]
        from_client = self.call.version < _BROKERS_ONLY
        if from_client and not may_write(self.broker, self.call, transaction.transactional_id):
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            self._done(number, dict.fromkeys(wanted, refused))
            return
        errors = {place: self._refusal(place, from_client) for place in wanted}
        if any(errors.values()):
            # One that cannot be added is enough: then none is.
            told = {place: error or ErrorCode.OPERATION_NOT_ATTEMPTED for place, error in errors.items()}
            self._done(number, told)
            return

        def answered(answer: AddPartitionsAnswer) -> None:
            error = _as_old_clients_know(answer.error, self.call.version)
            result = dict.fromkeys(wanted, error)
            result.update(dict.fromkeys(answer.missing, ErrorCode.TRANSACTION_ABORTABLE))
            self._done(number, result)

        self.broker.transactions.submit(
            AddPartitionsToTxn(
                answered,
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                frozenset(wanted),
                transaction.verify_only,
            )
        )

    def _refusal(self, place: TopicPartition, from_client: bool) -> ErrorCode:
        topic, index = place
        if from_client and (
            topic in INTERNAL or not self.broker.may(self.call, AclOperation.WRITE, AclResource.TOPIC, topic)
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = self.broker.partition(topic, index)
        return found if isinstance(found, ErrorCode) else NONE

    def _done(self, number: int, errors: dict[TopicPartition, ErrorCode]) -> None:
        self.answers[number] = errors
        self.missing -= 1
        if not self.missing:
            self._reply()

    def _reply(self) -> None:
        answer = add.AddPartitionsToTxnResponse()
        for transaction, errors in zip(self.transactions, self.answers, strict=True):
            if self.call.version < _BROKERS_ONLY:
                answer.results_by_topic_v3_and_below = [
                    add.AddPartitionsToTxnClientTopicResult(
                        topic.name,
                        [
                            add.AddPartitionsToTxnClientPartitionResult(p, errors[topic.name, p])
                            for p in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ]
                continue
            topics = [
                add.AddPartitionsToTxnTopicResult(
                    topic.name,
                    [
                        add.AddPartitionsToTxnPartitionResult(p, errors[topic.name, p])
                        for p in topic.partitions
                    ],
                )
                for topic in transaction.topics
            ]
            result = add.AddPartitionsToTxnResult(transaction.transactional_id, topics)
            answer.results_by_transaction.append(result)
        self.call.reply(answer)


def offsets_partition(broker: Broker, group_id: str) -> TopicPartition:
    """Returns the partition of `__consumer_offsets` that holds a group."""
    return OFFSETS_TOPIC, partition_for(group_id, len(broker.groups.runtime.shards))


def add_offsets_to_txn(broker: Broker, call: Call) -> add_offsets.AddOffsetsToTxnResponse | None:
    request: add_offsets.AddOffsetsToTxnRequest = call.request
    error = NONE
    if not may_write(broker, call, request.transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not broker.may(call, AclOperation.READ, AclResource.GROUP, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error:
        return add_offsets.AddOffsetsToTxnResponse(0, error)
    call.park()

    def answered(answer: AddPartitionsAnswer) -> None:
        error = _as_old_clients_know(answer.error, call.version)
        call.reply(add_offsets.AddOffsetsToTxnResponse(0, error))

    broker.transactions.submit(
        AddPartitionsToTxn(
            answered,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            frozenset({offsets_partition(broker, request.group_id)}),
        )
    )
    return None


# --- the end --------------------------------------------------------------------------------------


def end_txn(broker: Broker, call: Call) -> end.EndTxnResponse | None:
    request: end.EndTxnRequest = call.request
    if not may_write(broker, call, request.transactional_id):
        return end.EndTxnResponse(0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    call.park()

    def answered(answer: ProducerIdAnswer) -> None:
        error = _as_old_clients_know(answer.error, call.version)
        call.reply(end.EndTxnResponse(0, error, answer.producer_id, answer.producer_epoch))

    broker.transactions.submit(
        EndTxn(
            answered,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            call.version >= 5,
        )
    )
    return None


def write_txn_markers(broker: Broker, call: Call) -> markers.WriteTxnMarkersResponse | None:
    """Writes markers for another node, or for an administrator who ends a transaction that hangs."""
    request: markers.WriteTxnMarkersRequest = call.request
    may = broker.may_in_cluster(call, AclOperation.ALTER) or broker.may_in_cluster(
        call, AclOperation.CLUSTER_ACTION
    )
    if not may:
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        results = [_marked(each, dict.fromkeys(_places(each), refused)) for each in request.markers]
        return markers.WriteTxnMarkersResponse(results)
    if not request.markers:
        return markers.WriteTxnMarkersResponse()
    call.park()
    answers: dict[int, markers.WritableTxnMarkerResult] = {}

    def written(number: int, errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> None:
        answers[number] = _marked(request.markers[number], dict(errors))
        if len(answers) == len(request.markers):
            ordered = [answers[each] for each in range(len(answers))]
            call.reply(markers.WriteTxnMarkersResponse(ordered))

    for number, marker in enumerate(request.markers):
        wanted = SendMarkers(
            "",
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
            tuple(dict.fromkeys(_places(marker))),
        )
        broker.transactions.markers.write_all(wanted, partial(written, number))
    return None


def _places(marker: markers.WritableTxnMarker) -> list[TopicPartition]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _marked(
    marker: markers.WritableTxnMarker, errors: dict[TopicPartition, ErrorCode]
) -> markers.WritableTxnMarkerResult:
    topics = [
        markers.WritableTxnMarkerTopicResult(
            topic.name,
            [
                markers.WritableTxnMarkerPartitionResult(index, errors[topic.name, index])
                for index in topic.partition_indexes
            ],
        )
        for topic in marker.topics
    ]
    return markers.WritableTxnMarkerResult(marker.producer_id, topics)


# --- looking --------------------------------------------------------------------------------------


def describe_transactions(broker: Broker, call: Call) -> describe.DescribeTransactionsResponse | None:
    request: describe.DescribeTransactionsRequest = call.request
    ids = list(dict.fromkeys(request.transactional_ids))
    if not ids:
        return describe.DescribeTransactionsResponse()
    call.park()
    found: dict[str, describe.DescribedTransactionState] = {}

    def answered(transactional_id: str, answer: DescribedTransaction) -> None:
        found[transactional_id] = _described(broker, call, transactional_id, answer)
        if len(found) == len(ids):
            call.reply(describe.DescribeTransactionsResponse(0, [found[each] for each in ids]))

    for each in ids:
        if broker.may(call, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, each):
            broker.transactions.submit(DescribeTransaction(partial(answered, each), each))
        else:
            answered(each, DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    return None


def _described(
    broker: Broker, call: Call, transactional_id: str, answer: DescribedTransaction
) -> describe.DescribedTransactionState:
    by_topic: dict[str, list[int]] = {}
    for topic, index in answer.partitions:
        if broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic):
            by_topic.setdefault(topic, []).append(index)
    return describe.DescribedTransactionState(
        answer.error,
        transactional_id,
        answer.state,
        answer.timeout_ms,
        answer.start_ms,
        answer.producer_id,
        answer.producer_epoch,
        [describe.TransactionTopicData(topic, indexes) for topic, indexes in by_topic.items()],
    )


_STATES = frozenset(state.label for state in TransactionState)


def list_transactions(broker: Broker, call: Call) -> listing.ListTransactionsResponse | None:
    request: listing.ListTransactionsRequest = call.request
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = compile_pattern(request.transactional_id_pattern)
        except BadPattern:
            return listing.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    answer = listing.ListTransactionsResponse(
        unknown_state_filters=[state for state in request.state_filters if state not in _STATES]
    )
    call.park()
    transactions = broker.transactions
    shards = len(transactions.runtime.shards)
    found: list[ListedTransaction] = []
    answers: list[ListedTransactions] = []

    def answered(one: ListedTransactions) -> None:
        answers.append(one)
        if one.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            answer.error_code = one.error
        found.extend(one.transactions)
        if len(answers) == shards:
            answer.transaction_states = [] if answer.error_code else _listed(broker, call, pattern, found)
            call.reply(answer)

    states, ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    for partition in range(shards):
        transactions.ask_shard(partition, ListTransactions(answered, states, ids, request.duration_filter))
    return None


def _listed(
    broker: Broker, call: Call, pattern: TopicPattern | None, found: list[ListedTransaction]
) -> list[listing.ListedTransactionState]:
    return [
        listing.ListedTransactionState(each.transactional_id, each.producer_id, each.state)
        for each in found
        if (pattern is None or pattern.matches(each.transactional_id))
        and broker.may(call, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, each.transactional_id)
    ]
