"""Asks the coordinator of a transaction about the partitions in which its first batches arrive (KIP-890).

A transactional batch is appended at once where its transaction is open. Elsewhere the coordinator must know the
partition, or nobody would ever write the marker that ends the transaction there. Newer clients let the broker add the
partition, older ones have added it, and the broker verifies that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kohort.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.meter import BrokerMeter

TopicIndex = tuple[str, int]
"""The name of a topic, and a partition of it."""

OnAnswer = Callable[[ErrorCode, frozenset[TopicIndex]], None]
"""Gets the error for all partitions, and those that do not belong to the transaction."""

# Clients of old versions would not retry these, and NOT_ENOUGH_REPLICAS lets all of them retry, as in Kafka.
_NOT_THERE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class PartitionsOfTransactions(Protocol):
    """What a partition's append asks of the transaction coordinator."""

    def ask_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicIndex],
        verify_only: bool,
        done: OnAnswer,
    ) -> None:
        """Adds partitions to a transaction, or tells which are not in it (`verify_only`). `done` may come at once."""

    def when_settled(self, transactional_id: str, settled: Callable[[], None]) -> None:
        """Calls `settled` once, when the transition is over that made an answer CONCURRENT_TRANSACTIONS."""

    def forget_settled(self, transactional_id: str, settled: Callable[[], None]) -> None:
        """Takes back a `when_settled` that has not come."""


class PartitionsQuestion:
    """The question about the first batches of one request. An end that is still under way is waited for, shortly.

    Kafka asks again every `add.partitions.to.txn.retry.backoff.ms`. Here the coordinator tells when the end is there,
    and that pause is only how long to wait if it does not.
    """

    def __init__(
        self,
        coordinator: PartitionsOfTransactions,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        adds: bool,
        done: OnAnswer,
        meter: BrokerMeter | None = None,
    ) -> None:
        """`producer` is the producer's id and epoch; `adds` as for `Partition.begin_verification`."""
        self._meter, self._began = meter, loop.time()
        self._coordinator = coordinator
        self._loop = loop
        self._pause_s = config.add_partitions_to_txn_retry_backoff_ms / 1000
        self._give_up = loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        self._transactional_id = transactional_id
        self._producer = producer
        self._adds = adds
        self._done = done
        self._partitions: frozenset[TopicIndex] = frozenset()
        self._pause: asyncio.TimerHandle | None = None

    def ask(self, partitions: frozenset[TopicIndex]) -> None:
        self._partitions = partitions
        self._ask()

    def _ask(self) -> None:
        self._coordinator.ask_partitions(
            self._transactional_id, *self._producer, self._partitions, not self._adds, self._answered
        )

    def _answered(self, error: ErrorCode, missing: frozenset[TopicIndex]) -> None:
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and self._adds and self._loop.time() < self._give_up:
            self._pause = self._loop.call_later(self._pause_s, self._pause_is_over)
            self._coordinator.when_settled(self._transactional_id, self._ask_again)
        else:
            if self._meter is not None:
                self._meter.verifications.add(self._loop.time() - self._began)
                self._meter.verification_failures += bool(error or missing)
            self._done(error, missing)

    def _pause_is_over(self) -> None:
        self._coordinator.forget_settled(self._transactional_id, self._ask_again)
        self._ask()

    def _ask_again(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._ask()


def commit_error(error: ErrorCode, version: int) -> ErrorCode:
    """Returns what a TxnOffsetCommit request of that version is answered if the coordinator said `error`."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version <= 3:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error is ErrorCode.NETWORK_EXCEPTION else error


def produce_error(error: ErrorCode, version: int) -> ErrorCode:
    """Returns what a Produce request of that version is answered if the coordinator said `error`."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version <= 10:
        return ErrorCode.INVALID_TXN_STATE
    if error in _NOT_THERE or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < 12):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
