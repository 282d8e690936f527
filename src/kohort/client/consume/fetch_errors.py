"""Handles errors of single partitions in fetches: what is tried again and when, what the user is told.

An error at an offset ahead of the user's position does not concern them yet: the partition is not read ahead any more,
and is asked again when the user gets there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

from kohort.client.consume.fetch_buffer import FetchBuffer
from kohort.client.core.backoff import Backoff
from kohort.client.core.cluster import Node, PartitionInfo
from kohort.client.core.metadata import Metadata
from kohort.client.core.offset_reset import NO_RESET
from kohort.client.errors import CorruptRecord, OffsetOutOfRange, error_for
from kohort.client.offsets.subscription import PartitionState, SubscriptionState
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import PartitionData

log = logging.getLogger("kohort.client.fetcher")

# Another node leads, or this node does not know yet that it does: metadata will tell.
STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
# The topic is gone, or was made again with another id.
STALE_TOPIC = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Question(NamedTuple):
    """What was known of a partition when the fetch was sent."""

    state: PartitionState
    seeks: int
    offset: int

    def is_current(self, partition: TopicPartition, subscription: SubscriptionState) -> bool:
        """Whether the answer is still of use: there was no seek, reset or other assignment since."""
        state = subscription.partitions.get(partition)
        return state is self.state and state.seeks == self.seeks and state.has_position


@dataclass(slots=True)
class Retry:
    """A partition that waits after an error; a new leader or a seek ends the wait."""

    at_ms: int
    failures: int
    info: PartitionInfo | None
    seeks: int
    waiting: bool = True


class FetchErrors:
    """The errors of all partitions of a consumer, and the waits after them."""

    def __init__(
        self, subscription: SubscriptionState, metadata: Metadata, buffer: FetchBuffer, backoff: Backoff
    ) -> None:
        self._subscription = subscription
        self._metadata = metadata
        self._buffer = buffer
        self._backoff = backoff
        self._retries: dict[TopicPartition, Retry] = {}
        self._of_nodes: list[Exception] = []
        self._of_partitions: dict[TopicPartition, tuple[Question, Exception]] = {}
        self._stopped: dict[TopicPartition, PartitionState] = {}
        self._not_ahead: set[TopicPartition] = set()

    # --- waiting ------------------------------------------------------------------------------------------

    def may_read_ahead(self, partition: TopicPartition) -> bool:
        """Whether the partition may be fetched beyond what is buffered of it."""
        return partition not in self._not_ahead

    def reached_position(self, partition: TopicPartition) -> None:
        """Nothing of the partition is buffered any more: the next fetch is at the user's position."""
        self._not_ahead.discard(partition)

    def must_wait(self, partition: TopicPartition, state: PartitionState, info: PartitionInfo | None) -> bool:
        retry = self._retries.get(partition)
        return retry is not None and retry.waiting and retry.seeks == state.seeks and retry.info == info

    def end_waits(self, now_ms: int) -> None:
        for partition, retry in list(self._retries.items()):
            if partition not in self._subscription.partitions:
                del self._retries[partition]
            elif retry.at_ms <= now_ms:
                retry.waiting = False

    def next_deadline_ms(self) -> int | None:
        return min((retry.at_ms for retry in self._retries.values() if retry.waiting), default=None)

    def succeeded(self, partition: TopicPartition) -> None:
        self._retries.pop(partition, None)

    def _wait(self, partition: TopicPartition, seeks: int, info: PartitionInfo | None, now_ms: int) -> None:
        before = self._retries.get(partition)
        failures = before.failures + 1 if before is not None else 1
        at_ms = now_ms + max(1, self._backoff.after(failures))
        self._retries[partition] = Retry(at_ms, failures, info, seeks)

    # --- what a broker answered -----------------------------------------------------------------------------

    def failed(
        self,
        node_id: int,
        partition: TopicPartition,
        data: PartitionData,
        question: Question,
        leaders: tuple[Node, ...],
        now_ms: int,
    ) -> None:
        """Handles an error code for one partition in an answer that is not late; `leaders` are nodes it names."""
        # As it was when we asked: if the answer itself names a new leader, that one is asked at once.
        info = self._metadata.cluster.partition(partition)
        code, is_ahead = data.error_code, partition in self._buffer
        if code in STALE_LEADER or code in STALE_TOPIC:
            self._stale(partition, data, question.state, leaders)
        elif is_ahead:
            log.debug("%s: %s at offset %d, ahead of the position", partition, name(code), question.offset)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and info is not None and node_id != info.leader_id:
            log.info(
                "%s: replica %d has no offset %d, asking the leader", partition, node_id, question.offset
            )
            question.state.prefer_leader()
            return
        else:
            self._tell(node_id, partition, code, question)
        if is_ahead:
            self._not_ahead.add(partition)
        elif question.is_current(partition, self._subscription):
            self._wait(partition, question.seeks, info, now_ms)

    def _stale(
        self, partition: TopicPartition, data: PartitionData, state: PartitionState, leaders: tuple[Node, ...]
    ) -> None:
        """Renews metadata that is older than the broker's; the answer may already name the leader (KIP-951)."""
        code, leader = data.error_code, data.current_leader
        level = logging.WARNING if code in STALE_TOPIC else logging.DEBUG
        log.log(level, "%s: %s, asking for metadata", partition, name(code))
        state.prefer_leader()
        self._metadata.request_update(f"{name(code)} for {partition}")
        moved = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if moved and leader.leader_id >= 0 and leader.leader_epoch >= 0:
            self._metadata.update_leader(partition, leader.leader_id, leader.leader_epoch, leaders)

    def _tell(self, node_id: int, partition: TopicPartition, code: int, question: Question) -> None:
        """Handles what concerns the user: they are told, or their settings say what to do."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, question)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            words = f"not allowed to read topic {partition.topic}: this user needs READ on it"
            self._of_partitions[partition] = question, error_for(code, words)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            self.stop(partition, question.state, question.offset, f"node {node_id} finds its log damaged")
        else:
            log.warning("%s: %s at offset %d; trying again", partition, name(code), question.offset)

    def _out_of_range(self, partition: TopicPartition, question: Question) -> None:
        reset = self._subscription.default_reset
        where = f"offset {question.offset} is not in the log of {partition}"
        if reset != NO_RESET:
            log.info("%s; going on from where auto.offset.reset says: %s", where, reset.name)
            question.state.reset_to(reset)
            return
        words = f"{where} and auto.offset.reset is none: seek to an offset that is, or set a reset policy"
        self._of_partitions[partition] = question, OffsetOutOfRange(words, {partition: question.offset})

    def stop(self, partition: TopicPartition, state: PartitionState, offset: int, why: str) -> None:
        """Reads nothing more of the partition until a seek; the other partitions go on."""
        words = f"{partition} cannot be read at offset {offset}: {why}. Seek past it to go on"
        log.error("%s", words)
        state.stop(CorruptRecord(words, partition, offset))
        self._stopped[partition] = state
        self._buffer.drop(partition)
        self.reached_position(partition)

    # --- what poll raises -------------------------------------------------------------------------------------

    def add(self, error: Exception) -> None:
        self._of_nodes.append(error)

    @property
    def has_error(self) -> bool:
        return bool(self._of_nodes or self._first_of_partitions() or self._first_stopped())

    def take(self) -> Exception | None:
        if self._of_nodes:
            return self._of_nodes.pop(0)
        partition = self._first_of_partitions()
        if partition is not None:
            return self._of_partitions.pop(partition)[1]
        return self._first_stopped()

    def _first_of_partitions(self) -> TopicPartition | None:
        for partition, (question, _) in list(self._of_partitions.items()):
            if question.is_current(partition, self._subscription):
                return partition
            del self._of_partitions[partition]
        return None

    def _first_stopped(self) -> Exception | None:
        for partition, state in list(self._stopped.items()):
            if state.error is None or self._subscription.partitions.get(partition) is not state:
                del self._stopped[partition]
            elif not (state.paused or state.revoking):
                return state.error
        return None


def name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
