"""Fetches records of one partition as raw bytes, from any offset, without positions and fetch sessions. Sans-IO."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kohort.client.config import ConsumerConfig
from kohort.client.consume.fetch_buffer import end_of
from kohort.client.consume.fetch_errors import STALE_LEADER, STALE_TOPIC
from kohort.client.consume.fetch_session import FIRST_VERSION, FIRST_VERSION_WITH_TOPIC_IDS
from kohort.client.core.cluster import Cluster, Node
from kohort.client.core.effects import Answer, Failure, Outbox, Send
from kohort.client.core.operation import Operation
from kohort.client.errors import OffsetOutOfRange, error_for, error_for_failure
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kohort.wire.struct import ZERO_UUID


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """Where a partition is read, and which topic it belongs to, in case the topic's name is used again."""

    topic_id: bytes
    """Zeroes where the broker is too old to say."""
    node: Node | None
    """None while there is no leader."""
    leader_epoch: int

    @classmethod
    def of(cls, cluster: Cluster, partition: TopicPartition) -> PartitionLeader | None:
        """The leader according to a snapshot of the cluster; None if the topic does not exist."""
        topic = cluster.topics.get(partition.topic)
        if topic is None:
            return None
        info = topic.partitions.get(partition.partition)
        if info is None:
            return cls(topic.topic_id, None, -1)
        return cls(topic.topic_id, cluster.nodes.get(info.leader_id), info.leader_epoch)

    def is_of_another_topic(self, other: PartitionLeader) -> bool:
        """Whether the topic was deleted, and created again under its name, between the two."""
        return ZERO_UUID not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id


class FetchedRecords(NamedTuple):
    """What one answer of a leader holds."""

    records: memoryview
    """Record batches as they are in the log. The last one may be cut off."""
    next_offset: int | None
    """The offset after the last whole batch; None if there is none, or if the headers make no sense."""
    log_end_offset: int
    """The end of what may be read: the high watermark, or with `read_committed` the last stable offset."""
    aborted: list[tuple[int, int]] | None
    """Producer id and first offset of each aborted transaction; None with `read_uncommitted`."""


class Obstacle(NamedTuple):
    """Why the leader gave no records, where asking again may help."""

    reason: str


class FetchReply(NamedTuple):
    """What came back for one fetch.

    It does not hold the `Answer`, which leads by its `Send` back to the operation: such a cycle would keep the memory
    of every answer until the garbage collector runs, and each answer would need fresh memory.
    """

    response: FetchResponse | None = None
    failure: Failure | None = None


class RangeFetches:
    """The part of an engine that carries fetches of single partitions."""

    def __init__(self, out: Outbox, config: ConsumerConfig) -> None:
        self._out, self._config = out, config
        self._reads_committed = config.isolation_level == "read_committed"

    def fetch(
        self, leader: PartitionLeader, partition: TopicPartition, offset: int, max_bytes: int
    ) -> Operation[FetchReply]:
        """Asks the leader for what follows an offset; without a leader the operation is done at once."""
        operation: Operation[FetchReply] = Operation()
        node, config = leader.node, self._config
        if node is None:
            operation.finish(FetchReply())
            return operation
        size = min(config.max_partition_fetch_bytes, max_bytes)

        def make(version: int) -> FetchRequest:
            if version < FIRST_VERSION:
                raise ValueError(
                    f"Fetch v{version} has no record batches; v{FIRST_VERSION} or later is needed"
                )
            asked = FetchPartition(
                partition.partition,
                current_leader_epoch=leader.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=size,
            )
            # Without a rack the leader answers itself; a replica nearby would have to be looked for.
            return FetchRequest(
                max_wait_ms=config.fetch_max_wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=config.fetch_max_bytes,
                isolation_level=1 if self._reads_committed else 0,
                topics=[FetchTopic(partition.topic, leader.topic_id, [asked])],
            )

        by_name = FIRST_VERSION_WITH_TOPIC_IDS - 1 if leader.topic_id == ZERO_UUID else None
        self._out.append(
            Send(
                node.node_id,
                FetchRequest.API_KEY,
                make,
                "fetch.range",
                config.request_timeout_ms,
                max_version=by_name,
                on_answer=partial(_answered, operation),
            )
        )
        return operation

    def read(self, reply: FetchReply, partition: TopicPartition, offset: int) -> FetchedRecords | Obstacle:
        """What a reply says. Raises OffsetOutOfRange, and what asking again does not cure."""
        if reply.failure is not None:
            if not reply.failure.is_retriable:
                raise error_for_failure(reply.failure, f"reading {partition}")
            return Obstacle(f"{reply.failure.kind.value} {reply.failure.message}")
        if reply.response is None:
            return Obstacle("the partition has no leader")
        code = reply.response.error_code
        data: PartitionData | None = None
        for topic in reply.response.responses:
            for each in topic.partitions:
                data, code = each, each.error_code or code
        if code == ErrorCode.NONE and data is not None:
            return self._fetched(data)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(f"{partition} has no offset {offset}", {partition: offset})
        if code in STALE_LEADER or code in STALE_TOPIC:
            return Obstacle(ErrorCode(code).name)
        raise error_for(code, f"reading {partition} from offset {offset}")

    def _fetched(self, data: PartitionData) -> FetchedRecords:
        records = memoryview(data.records or b"")  # type: ignore[arg-type]
        found = end_of(records)
        aborted, log_end_offset = None, data.high_watermark
        if self._reads_committed:
            aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
            log_end_offset = data.last_stable_offset
        return FetchedRecords(records, None if found is None else found[0], log_end_offset, aborted)


def _answered(operation: Operation[FetchReply], answer: Answer, now_ms: int) -> None:
    operation.finish(FetchReply(answer.response, answer.failure))
