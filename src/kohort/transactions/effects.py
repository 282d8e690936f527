"""What must follow a step of a transaction shard: records to append, markers to write, replies, timers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kohort.transactions.events import (
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    ListTransactions,
    RequestToken,
    TransactionRequest,
    TransactionTimer,
)
from kohort.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from kohort.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class ProducerIdAnswer:
    """Answers InitProducerId and EndTxn."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitionsAnswer:
    """Answers AddPartitionsToTxn: `error` is of all partitions, and TRANSACTION_ABORTABLE of those that are missing."""

    error: ErrorCode
    missing: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    error: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: tuple[TopicPartition, ...] = ()


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListedTransactions:
    error: ErrorCode
    transactions: tuple[ListedTransaction, ...] = ()


TransactionResponse = ProducerIdAnswer | AddPartitionsAnswer | DescribedTransaction | ListedTransactions


def refused(request: TransactionRequest | ListTransactions, error: ErrorCode) -> TransactionResponse:
    """Returns the response that carries nothing but an error, as the API of the request has it."""
    match request:
        case InitProducerId() | EndTxn():
            return ProducerIdAnswer(error)
        case AddPartitionsToTxn():
            return AddPartitionsAnswer(error)
        case ListTransactions():
            return ListedTransactions(error)
        case _:
            return DescribedTransaction(error)


class StateToWrite(NamedTuple):
    """Bytes for `__transaction_state`; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class AppendStates:
    """Records to write in one batch; StateDurable or StateNotWritten must follow with the token, in order."""

    token: int
    records: tuple[StateToWrite, ...]


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Markers to write; MarkersAnswered must follow with the ids and an error for each partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """The request must come again with a fresh producer id, or be refused if there is none."""

    request: InitProducerId | EndTxn


@dataclass(frozen=True, slots=True)
class TransactionReply:
    request: RequestToken
    response: TransactionResponse


@dataclass(frozen=True, slots=True)
class SetTransactionTimer:
    """A timer: TransactionTimerFired follows with the same fields. Timers are never cancelled, only ignored."""

    kind: TransactionTimer
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class StateLoadFailed:
    """The log holds a record that cannot be read; the shard serves nothing until it is loaded anew."""

    epoch: int
    message: str


TransactionEffect = (
    AppendStates | SendMarkers | ProducerIdNeeded | TransactionReply | SetTransactionTimer | StateLoadFailed
)
