"""What can happen to a transaction shard: requests, markers, timers, the outcome of writes, loading and resigning.

`request` identifies the caller who waits for the answer; the core hands it back in `TransactionReply`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kohort.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from kohort.wire.errors import ErrorCode

RequestToken = Hashable


def nobody(response: object) -> None:
    """Stands for the caller of a request that the coordinator makes itself: no answer is given."""


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A producer begins with a transactional id, or goes on after an error if it tells the id and epoch it has."""

    request: RequestToken
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    fresh_producer_id: int = NO_PRODUCER_ID
    """A producer id that nobody has; `ProducerIdNeeded` asks for one."""


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn:
    """Partitions of a transaction; a group is the partition of `__consumer_offsets` that holds it."""

    request: RequestToken
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    verify_only: bool = False
    """Whether nothing is added, and the answer tells which partitions are not in the transaction."""


@dataclass(frozen=True, slots=True)
class EndTxn:
    request: RequestToken
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    bumps_epoch: bool = False
    """v5+: the epoch is raised with each end (transaction.version 2)."""
    fresh_producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    request: RequestToken
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """Asks one shard for its transactional ids; an empty filter lets everything pass."""

    request: RequestToken
    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1


@dataclass(frozen=True, slots=True)
class MarkersAnswered:
    """What became of the markers of `SendMarkers`, for each partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    errors: tuple[tuple[TopicPartition, ErrorCode], ...]


class StateRecord(NamedTuple):
    """A record of `__transaction_state` as it is in the log."""

    offset: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StateLoadBegun:
    """The node now leads the partition; a stale epoch is ignored."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StatesRead:
    epoch: int
    records: Sequence[StateRecord]


@dataclass(frozen=True, slots=True)
class StateLoadEnded:
    epoch: int


@dataclass(frozen=True, slots=True)
class StatePartitionLost:
    """The partition has moved away, or the node stops."""


class TransactionTimer(Enum):
    ABORT = "abort timed-out transactions"
    EXPIRE = "expire transactional ids"
    RETRY = "retry what failed of an end"


@dataclass(frozen=True, slots=True)
class TransactionTimerFired:
    kind: TransactionTimer
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class StateDurable:
    """The records of an AppendStates are durable; these events come in the order of the appends."""

    token: int


@dataclass(frozen=True, slots=True)
class StateNotWritten:
    token: int
    error: ErrorCode


TransactionRequest = InitProducerId | AddPartitionsToTxn | EndTxn | DescribeTransaction
TransactionEvent = (
    TransactionRequest
    | ListTransactions
    | MarkersAnswered
    | StateLoadBegun
    | StatesRead
    | StateLoadEnded
    | StatePartitionLost
    | TransactionTimerFired
    | StateDurable
    | StateNotWritten
)
