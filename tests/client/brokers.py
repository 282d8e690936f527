"""Scripted brokers that hold logs: what one Kohort cannot show. Leaders move, logs are cut back, replicas are near.

with log_cluster({TopicPartition("t", 0): Log([b"a", b"b"])}, nodes=2) as cluster:
    cluster.move_leader("t", 0, to=2)

They answer Fetch (with sessions, leader epochs and preferred replicas), ListOffsets and OffsetForLeaderEpoch as a
broker does; any answer can be replaced by `cluster[1].script(…)`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kohort.wire.records.batch import HEADER_SIZE, encode_batch, read_header
from kohort.wire.records.payload import BatchRecord
from tests.client.scripted import Received, ScriptedCluster, Versions

EARLIEST = -2


class Log:
    """One partition: batches as bytes, so that a test may write any."""

    def __init__(self, values: Iterable[bytes] = (), *, epoch: int = 0, records_per_batch: int = 0) -> None:
        self.batches: list[bytearray] = []
        self.start = 0
        self.end = 0
        self.aborted: list[tuple[int, int]] = []
        """Producer id and first offset of each aborted transaction."""
        self.last_stable_offset: int | None = None
        given = list(values)
        size = records_per_batch or max(1, len(given))
        for first in range(0, len(given), size):
            self.append(given[first : first + size], epoch=epoch)

    def append(
        self, values: Iterable[bytes], *, epoch: int = 0, producer_id: int = -1, control: bool = False
    ) -> int:
        """One batch; of a transaction if it has a producer. Returns its first offset."""
        first = self.end
        records = [
            BatchRecord(first + number, 1_000 + first + number, None, value, [])
            for number, value in enumerate(values)
        ]
        if control:
            records = [BatchRecord(first, 1_000, value.value, b"\x00" * 6, []) for value in records]
        self.batches.append(
            encode_batch(
                records,
                base_offset=first,
                partition_leader_epoch=epoch,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=0 if producer_id >= 0 and not control else -1,
                control=control,
                transactional=producer_id >= 0,
            )
        )
        self.end = first + len(records)
        return first

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The marker that the coordinator of transactions writes: version 0, type 0 (abort) or 1 (commit)."""
        self.append(
            [b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")], producer_id=producer_id, control=True
        )

    def damage(self, offset: int) -> None:
        """A bit of the last byte of that batch's last value flips on the disk."""
        batch = next(b for b in self.batches if read_header(b).last_offset >= offset)
        assert len(batch) > HEADER_SIZE
        batch[-2] ^= 1  # the last byte counts the headers

    def truncate(self, end: int) -> None:
        """A new leader that had not got everything."""
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset < end]
        self.end = end

    def read(self, offset: int) -> bytes:
        return b"".join(bytes(b) for b in self.batches if read_header(b).last_offset >= offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above it, and where that ended."""
        epochs = [read_header(batch).partition_leader_epoch for batch in self.batches]
        known = [e for e in epochs if e <= epoch]
        if not known or epoch > max(epochs):
            return (-1, -1) if not known else (max(epochs), self.end)
        later = [
            read_header(b).base_offset for b, e in zip(self.batches, epochs, strict=True) if e > max(known)
        ]
        return max(known), min(later, default=self.end)


@dataclass
class Session:
    partitions: dict[tuple[str, bytes, int], FetchPartition] = field(default_factory=dict)


class LogCluster(ScriptedCluster):
    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        nodes: int = 1,
        versions: Versions | None = None,
        *,
        epoch: int = 0,
    ) -> None:
        super().__init__(nodes, versions=versions)
        self.logs = dict(logs)
        self.preferred: dict[TopicPartition, int] = {}
        """Where a client with a rack is sent to read (KIP-392); that node then answers though it does not lead."""
        self.tells_leader = True
        """Whether NOT_LEADER_OR_FOLLOWER names the new leader (KIP-951)."""
        self._sessions: dict[tuple[int, int], Session] = {}
        self.lock = threading.RLock()
        """Held by all who look at the logs: for a test that changes more than one thing, which nobody may see half."""
        for topic in {name for name, _ in self.logs}:
            count = sum(name == topic for name, _ in self.logs)
            self.add_topic(topic, leaders=[1] * count, leader_epoch=epoch)
        for node in self.nodes.values():
            node.on(FetchRequest.API_KEY, lambda request, me=node.node_id: self.fetch(me, request))  # type: ignore[misc]
            node.on(ListOffsetsRequest.API_KEY, self._list_offsets)
            node.on(OffsetForLeaderEpochRequest.API_KEY, self._epochs)

    def __enter__(self) -> LogCluster:
        super().__enter__()
        return self

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def forget_sessions(self) -> None:
        """As after a restart."""
        self._sessions.clear()

    def fetches(self, node: int = 1) -> list[FetchRequest]:
        return [request.message for request in self[node].requests_of(FetchRequest.API_KEY)]

    # --- Fetch -----------------------------------------------------------------------------------------------

    def fetch(self, me: int, request: Received) -> FetchResponse:
        asked: FetchRequest = request.message
        named = {(t.topic, t.topic_id, p.partition): p for t in asked.topics for p in t.partitions}
        session_id, session = 0, Session(dict(named))
        if request.version >= 7 and asked.session_epoch == 0:
            with self.lock:
                session_id = 100 + len(self._sessions) + 1
                self._sessions[me, session_id] = session
        elif asked.session_epoch > 0:
            found = self._sessions.get((me, asked.session_id))
            if found is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session_id, session = asked.session_id, found
            session.partitions.update(named)
            for topic in asked.forgotten_topics_data:
                for index in topic.partitions:
                    session.partitions.pop((topic.topic, topic.topic_id, index), None)
        deadline = time.monotonic() + asked.max_wait_ms / 1000
        while True:
            with self.lock:
                answers = self._answers(me, request.version, asked, session)
            news = [a for a in answers if a[1].records or a[1].error_code or a[1].preferred_read_replica >= 0]
            if news or time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        told = news if asked.session_epoch > 0 else answers
        responses = [FetchableTopicResponse(name, topic_id, [part]) for (name, topic_id), part in told]
        endpoints = [NodeEndpoint(n.node_id, n.host, n.port) for n in self.nodes.values()]
        moved = any(part.current_leader.leader_id >= 0 for _, part in told)
        return FetchResponse(0, 0, session_id, responses, endpoints if moved else [])

    def _answers(
        self, me: int, version: int, asked: FetchRequest, session: Session
    ) -> list[tuple[tuple[str, bytes], PartitionData]]:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        found = []
        for (name, topic_id, index), part in list(session.partitions.items()):
            topic = name if version < 13 else names.get(topic_id)
            if topic is None:
                data = PartitionData(index, ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                data = self._read(me, version, asked, TopicPartition(topic, index), part)
            found.append(((name, topic_id), data))
        return found

    def _read(
        self, me: int, version: int, asked: FetchRequest, partition: TopicPartition, part: FetchPartition
    ) -> PartitionData:
        topic, index = partition
        leader, epoch = self.topics[topic][index]
        log, near = self.logs[partition], self.preferred.get(partition)
        if me not in (leader, near):
            hint = LeaderIdAndEpoch(leader, epoch) if self.tells_leader else None
            return PartitionData(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint)
        if 0 <= part.current_leader_epoch < epoch:
            return PartitionData(index, ErrorCode.FENCED_LEADER_EPOCH)
        if part.current_leader_epoch > epoch:
            return PartitionData(index, ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not log.start <= part.fetch_offset <= log.end:
            return PartitionData(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        stable = log.end if log.last_stable_offset is None else log.last_stable_offset
        if near is not None and near != me and asked.rack_id and version >= 11:
            return PartitionData(index, 0, log.end, stable, log.start, preferred_read_replica=near)
        records = log.read(part.fetch_offset)
        aborted = None
        if asked.isolation_level:
            records = b"".join(
                bytes(b)
                for b in log.batches
                if part.fetch_offset <= read_header(b).last_offset and read_header(b).base_offset < stable
            )
            aborted = [AbortedTransaction(*entry) for entry in log.aborted]
        return PartitionData(
            index, 0, log.end, stable, log.start, aborted_transactions=aborted, records=records
        )

    # --- ListOffsets, OffsetForLeaderEpoch -----------------------------------------------------------------

    def _list_offsets(self, request: Received) -> ListOffsetsResponse:
        asked: ListOffsetsRequest = request.message
        topics = []
        for topic in asked.topics:
            parts = []
            for p in topic.partitions:
                log = self.logs[TopicPartition(topic.name, p.partition_index)]
                end = log.last_stable_offset if asked.isolation_level and log.last_stable_offset else log.end
                offset = log.start if p.timestamp == EARLIEST else end
                parts.append(ListOffsetsPartitionResponse(p.partition_index, 0, -1, offset))
            topics.append(ListOffsetsTopicResponse(topic.name, parts))
        return ListOffsetsResponse(0, topics)

    def _epochs(self, request: Received) -> OffsetForLeaderEpochResponse:
        asked: OffsetForLeaderEpochRequest = request.message
        topics = []
        for topic in asked.topics:
            parts = []
            for p in topic.partitions:
                with self.lock:
                    log = self.logs[TopicPartition(topic.topic, p.partition)]
                    epoch, end = log.end_of_epoch(p.leader_epoch)
                parts.append(EpochEndOffset(0, p.partition, epoch, end))
            topics.append(OffsetForLeaderTopicResult(topic.topic, parts))
        return OffsetForLeaderEpochResponse(0, topics)


def log_cluster(
    logs: Mapping[TopicPartition, Log], nodes: int = 1, versions: Versions | None = None, *, epoch: int = 0
) -> LogCluster:
    """Node 1 leads everything at first."""
    return LogCluster(logs, nodes, versions, epoch=epoch)
