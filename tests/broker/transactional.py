"""A transactional producer by hand: each method is one request, and returns the error (or what was asked for)."""

from __future__ import annotations

import time
from typing import Any

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import add_partitions_to_txn as add
from kohort.wire.messages import txn_offset_commit as commit
from kohort.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.messages.describe_transactions import DescribeTransactionsRequest
from kohort.wire.messages.end_txn import EndTxnRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records.batch import iter_batches, iter_records
from tests.broker.peer import PATIENCE_S, batch_of, fetch

TV1, TV2 = 1, 2
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionalPeer:
    """`peer = TransactionalPeer(connection, "a"); peer.init(); peer.write("t", b"x"); peer.commit()`"""

    def __init__(
        self,
        connection: BlockingConnection,
        transactional_id: str,
        version: int = TV1,
        timeout_ms: int = 60_000,
        *,
        looks_for_coordinator: bool = True,
    ) -> None:
        self.connection, self.transactional_id = connection, transactional_id
        self.version, self.timeout_ms = version, timeout_ms
        self.producer_id = self.producer_epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        if looks_for_coordinator:
            self.find()

    def find(self) -> None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        assert self.connection.call(request, version=4).coordinators[0].error_code == 0

    def init(self, *, again: bool = False, version: int = 5) -> ErrorCode:
        """InitProducerId, repeated while an older transaction is being ended."""
        known = (self.producer_id, self.producer_epoch) if again else (-1, -1)
        request = InitProducerIdRequest(self.transactional_id, self.timeout_ms, *known)
        answer = self._until_not_concurrent(lambda: self.connection.call(request, version=version))
        if not answer.error_code:
            self._is_now(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _is_now(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.sequences = {}

    @staticmethod
    def _until_not_concurrent(ask: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while (answer := ask()).error_code == CONCURRENT and time.monotonic() < deadline:
            time.sleep(0.005)
        return answer

    def add(self, *places: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        """AddPartitionsToTxn, repeated while the last transaction is being ended."""
        topics = [add.AddPartitionsToTxnClientTopic(topic, [index]) for topic, index in places]
        request = add.AddPartitionsToTxnRequest(
            [], self.transactional_id, self.producer_id, self.producer_epoch, topics
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.connection.call(request, version=version)
            found = [
                ErrorCode(part.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ]
            if CONCURRENT not in found or time.monotonic() > deadline:
                return found

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None, **more: Any
    ) -> Any:
        """Produce alone, whatever the coordinator knows; returns the outcome of the partition."""
        sequence = self.sequences.get((topic, partition), 0)
        header = {
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "base_sequence": sequence,
            "transactional": True,
        } | more
        batch = batch_of(*values, **header)
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
        request = ProduceRequest(self.transactional_id, -1, 10_000, [data])
        if version is None:
            version = 12 if self.version == TV2 else 11
        answer = self.connection.call(request, version=version).responses[0].partition_responses[0]
        if not answer.error_code:
            self.sequences[topic, partition] = sequence + len(values)
        return answer

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Writes as a client of its version does; it must succeed."""
        if self.version == TV1:
            assert self.add((topic, partition)) == [ErrorCode.NONE]
        deadline = time.monotonic() + PATIENCE_S
        while (answer := self.produce(topic, *values, partition=partition)).error_code == CONCURRENT:
            assert time.monotonic() < deadline
        assert answer.error_code == 0, ErrorCode(answer.error_code).name

    def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, commit)
        if version is None:
            version = 5 if self.version == TV2 else 4
        answer = self._until_not_concurrent(lambda: self.connection.call(request, version=version))
        if not answer.error_code and version >= 5:
            self._is_now(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def commit(self) -> None:
        assert self.end(commit=True) is ErrorCode.NONE

    def abort(self) -> None:
        assert self.end(commit=False) is ErrorCode.NONE

    def add_group(self, group_id: str, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            self.transactional_id, self.producer_id, self.producer_epoch, group_id
        )
        answer = self._until_not_concurrent(lambda: self.connection.call(request, version=version))
        return ErrorCode(answer.error_code)

    def commit_offsets(
        self,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        *,
        member: tuple[int, str, str | None] = (-1, "", None),
        version: int | None = None,
    ) -> list[ErrorCode]:
        """TxnOffsetCommit alone; returns the errors of the partitions."""
        topics = [
            commit.TxnOffsetCommitRequestTopic(
                topic, [commit.TxnOffsetCommitRequestPartition(index, offset, -1, "")]
            )
            for (topic, index), offset in offsets.items()
        ]
        request = commit.TxnOffsetCommitRequest(
            self.transactional_id, group_id, self.producer_id, self.producer_epoch, *member, topics
        )
        if version is None:
            version = 5 if self.version == TV2 else 3
        answer = self.connection.call(request, version=version)
        return [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]

    def send_offsets(self, group_id: str, offsets: dict[tuple[str, int], int]) -> None:
        """Commits offsets as a client of its version does; it must succeed."""
        if self.version == TV1:
            assert self.add_group(group_id) is ErrorCode.NONE
        deadline = time.monotonic() + PATIENCE_S
        while CONCURRENT in (found := self.commit_offsets(group_id, offsets)):
            assert time.monotonic() < deadline
        assert set(found) == {ErrorCode.NONE}


def committed(
    connection: BlockingConnection, topic: str, partition: int = 0, start: int = 0
) -> list[bytes | None]:
    """What a reader with isolation.level=read_committed sees of a partition: it waits for transactions to end."""
    values: list[bytes | None] = []
    data = fetch(connection, topic, start, partition, isolation_level=1)
    assert data.error_code == 0
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    ignored: set[int] = set()
    view = memoryview(data.records or b"")
    for position, header in iter_batches(view):
        while aborted and aborted[0][0] <= header.last_offset:
            ignored.add(aborted.pop(0)[1])
        if header.is_control:
            ignored.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ignored):
            values += [record.value for record in iter_records(view[position : position + header.size])]
    return values


def until_stable(connection: BlockingConnection, topic: str, partition: int = 0) -> None:
    """Waits until no transaction is open in a partition: EndTxn is answered before the markers are there."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        data = fetch(connection, topic, 0, partition)
        if data.last_stable_offset == data.high_watermark:
            return
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.005)


def state_of(connection: BlockingConnection, transactional_id: str) -> Any:
    return connection.call(DescribeTransactionsRequest([transactional_id])).transaction_states[0]


def offsets_of(
    connection: BlockingConnection, group_id: str, topic: str, *partitions: int, stable: bool = False
) -> list[int | ErrorCode]:
    topics = [OffsetFetchRequestTopics(topic, partition_indexes=list(partitions))]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id, topics=topics)], require_stable=stable
    )
    answer = connection.call(request, version=9).groups[0]
    assert answer.error_code == 0
    return [
        ErrorCode(found.error_code) if found.error_code else found.committed_offset
        for found in answer.topics[0].partitions
    ]
