"""The topics of a simulated cluster: logs that only grow, leaders that move, and what brokers answer about them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kohort.broker.fetch_sessions import FetchPlan, FetchSessions, Wanted
from kohort.sim.world import VirtualClock
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import fetch as fetching
from kohort.wire.messages import list_offsets as listing
from kohort.wire.messages import metadata as described
from kohort.wire.messages import offset_for_leader_epoch as epochs
from kohort.wire.records.batch import encode_batch
from kohort.wire.records.payload import BatchRecord

E = ErrorCode
LATEST, EARLIEST = -1, -2
HOST = "sim"


@dataclass(slots=True)
class SimPartition:
    topic: str
    index: int
    leader_id: int
    leader_epoch: int = 0
    end_offset: int = 0
    batches: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The offset after each batch."""
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)
    waiters: list[Callable[[], None]] = field(default_factory=list)

    def append(self, count: int, now_ms: int) -> None:
        base = self.end_offset
        if not self.epoch_starts or self.epoch_starts[-1][0] != self.leader_epoch:
            self.epoch_starts.append((self.leader_epoch, base))
        records = [BatchRecord(base + n, now_ms, None, b"%d" % (base + n), []) for n in range(count)]
        self.batches.append(
            bytes(encode_batch(records, base_offset=base, partition_leader_epoch=self.leader_epoch))
        )
        self.end_offset = base + count
        self.ends.append(self.end_offset)
        self.wake()

    def wake(self) -> None:
        """Lets waiting fetches look again, because something changed."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns batches from the one that holds the offset on; at least that one."""
        first = bisect_right(self.ends, offset)
        taken = self.batches[first : first + 1]
        size = sum(map(len, taken))
        for batch in self.batches[first + 1 :]:
            size += len(batch)
            if size > max_bytes:
                break
            taken.append(batch)
        return b"".join(taken)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch that is not above this one, and its end offset."""
        if epoch == self.leader_epoch:
            return epoch, self.end_offset
        found = (-1, -1)
        for at, (known, _) in enumerate(self.epoch_starts):
            if known <= epoch:
                follows = self.epoch_starts[at + 1 :]
                found = (known, follows[0][1] if follows else self.end_offset)
        return found

    def error_for(self, broker_id: int, current_leader_epoch: int) -> ErrorCode:
        if self.leader_id != broker_id:
            return E.NOT_LEADER_OR_FOLLOWER
        if current_leader_epoch in (-1, self.leader_epoch):
            return E.NONE
        older = current_leader_epoch < self.leader_epoch
        return E.FENCED_LEADER_EPOCH if older else E.UNKNOWN_LEADER_EPOCH


@dataclass(slots=True)
class SimTopic:
    """A topic with the fields that the broker's handlers for groups look at."""

    name: str
    topic_id: bytes
    partitions: list[SimPartition] = field(default_factory=list)


class Data:
    """All topics of the cluster; a broker that dies takes no record with it, as all are replicated."""

    def __init__(self, clock: VirtualClock, random: Random, broker_ids: list[int]) -> None:
        self.clock, self.random, self.broker_ids = clock, random, broker_ids
        self.topics: dict[str, SimTopic] = {}
        self.topics_by_id: dict[bytes, SimTopic] = {}
        self.written = 0

    def create(self, name: str, partitions: int) -> None:
        topic = SimTopic(name, self.random.randbytes(16))
        self.topics[name] = self.topics_by_id[topic.topic_id] = topic
        self.grow(name, partitions)

    def grow(self, name: str, by: int) -> None:
        topic = self.topics[name]
        for _ in range(by):
            leader_id = self.random.choice(self.broker_ids)
            topic.partitions.append(SimPartition(name, len(topic.partitions), leader_id))

    def all_partitions(self) -> list[SimPartition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def write(self, partition: SimPartition, count: int) -> None:
        self.written += count
        partition.append(count, self.clock.now_ms)

    def move(self, partition: SimPartition, leader_id: int) -> None:
        partition.leader_id = leader_id
        partition.leader_epoch += 1
        partition.wake()

    # ---- Metadata

    def metadata(self, request: described.MetadataRequest, alive: list[int]) -> described.MetadataResponse:
        if request.topics is None:
            found = [self._describe(topic) for topic in self.topics.values()]
        else:
            found = []
            for asked in request.topics:
                topic = self.topics.get(asked.name or "") or self.topics_by_id.get(asked.topic_id)
                unknown = described.MetadataResponseTopic(E.UNKNOWN_TOPIC_OR_PARTITION, asked.name)
                found.append(unknown if topic is None else self._describe(topic))
        brokers = [described.MetadataResponseBroker(node, HOST, port_of(node)) for node in alive]
        return described.MetadataResponse(
            brokers=brokers, cluster_id="sim", controller_id=alive[0], topics=found
        )

    def _describe(self, topic: SimTopic) -> described.MetadataResponseTopic:
        partitions = [
            described.MetadataResponsePartition(
                E.NONE, p.index, p.leader_id, p.leader_epoch, self.broker_ids, self.broker_ids, []
            )
            for p in topic.partitions
        ]
        return described.MetadataResponseTopic(E.NONE, topic.name, topic.topic_id, False, partitions)

    # ---- ListOffsets, OffsetForLeaderEpoch

    def _find(self, name: str, topic_id: bytes, index: int) -> SimPartition | None:
        topic = self.topics.get(name) or self.topics_by_id.get(topic_id)
        return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None

    def list_offsets(
        self, broker_id: int, request: listing.ListOffsetsRequest
    ) -> listing.ListOffsetsResponse:
        response = listing.ListOffsetsResponse()
        for topic in request.topics:
            answers = [self._list_one(broker_id, topic.name, asked) for asked in topic.partitions]
            response.topics.append(listing.ListOffsetsTopicResponse(topic.name, answers))
        return response

    def _list_one(
        self, broker_id: int, name: str, asked: listing.ListOffsetsPartition
    ) -> listing.ListOffsetsPartitionResponse:
        answer = listing.ListOffsetsPartitionResponse(asked.partition_index)
        partition = self._find(name, b"", asked.partition_index)
        if partition is None:
            answer.error_code = E.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        answer.error_code = partition.error_for(broker_id, asked.current_leader_epoch)
        if not answer.error_code:
            answer.offset = partition.end_offset if asked.timestamp == LATEST else 0
            answer.leader_epoch = partition.leader_epoch
        return answer

    def offset_for_leader_epoch(
        self, broker_id: int, request: epochs.OffsetForLeaderEpochRequest
    ) -> epochs.OffsetForLeaderEpochResponse:
        response = epochs.OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                answer = epochs.EpochEndOffset(E.UNKNOWN_TOPIC_OR_PARTITION, asked.partition)
                partition = self._find(topic.topic, b"", asked.partition)
                if partition is not None:
                    answer.error_code = partition.error_for(broker_id, asked.current_leader_epoch)
                    if not answer.error_code:
                        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(asked.leader_epoch)
                answers.append(answer)
            response.topics.append(epochs.OffsetForLeaderTopicResult(topic.topic, answers))
        return response

    # ---- Fetch

    def fetch(
        self,
        broker_id: int,
        sessions: FetchSessions,
        request: fetching.FetchRequest,
        version: int,
        reply: Callable[[fetching.FetchResponse], None],
    ) -> None:
        """Answers when there is something to tell, at the latest after `max_wait_ms`."""
        plan = sessions.plan(request, version, self.clock.now_ms)
        if plan.error:
            reply(fetching.FetchResponse(error_code=plan.error))
            return
        waiting = True

        def look(late: bool = False) -> None:
            nonlocal waiting
            if not waiting:
                return
            answers, has_news = self._read(broker_id, plan)
            if has_news or late or request.max_wait_ms <= 0:
                waiting = False
                reply(_fetched(plan, answers))
                return
            for wanted in plan.wanted:
                partition = self._find(*wanted.key)
                if partition is not None:
                    partition.waiters.append(look)

        look()
        if waiting:
            self.clock.after(request.max_wait_ms, lambda: look(True))

    def _read(
        self, broker_id: int, plan: FetchPlan
    ) -> tuple[list[tuple[Wanted, fetching.PartitionData]], bool]:
        answers, has_news = [], False
        for wanted in plan.wanted:
            data = fetching.PartitionData(wanted.key.partition)
            partition = self._find(*wanted.key)
            if partition is None:
                data.error_code = E.UNKNOWN_TOPIC_OR_PARTITION
            else:
                data.error_code = partition.error_for(broker_id, wanted.current_leader_epoch)
                if data.error_code == E.NOT_LEADER_OR_FOLLOWER:
                    data.current_leader = fetching.LeaderIdAndEpoch(
                        partition.leader_id, partition.leader_epoch
                    )
                elif not data.error_code and wanted.fetch_offset > partition.end_offset:
                    data.error_code = E.OFFSET_OUT_OF_RANGE
                elif not data.error_code:
                    data.high_watermark = data.last_stable_offset = partition.end_offset
                    data.log_start_offset = 0
                    if wanted.fetch_offset < partition.end_offset:
                        data.records = partition.read(wanted.fetch_offset, wanted.max_bytes)
            has_news = has_news or bool(data.error_code or data.records)
            answers.append((wanted, data))
        return answers, has_news


def _fetched(plan: FetchPlan, answers: list[tuple[Wanted, fetching.PartitionData]]) -> fetching.FetchResponse:
    response = fetching.FetchResponse(session_id=plan.session_id)
    topics: dict[tuple[str, bytes], fetching.FetchableTopicResponse] = {}
    for wanted, data in answers:
        if not plan.is_full and not data.records and not data.error_code:
            continue
        name = wanted.key[:2]
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = fetching.FetchableTopicResponse(*name)
            response.responses.append(topic)
        topic.partitions.append(data)
    if plan.session is not None:
        FetchSessions.served(plan.session, [wanted.key for wanted, data in answers if data.records])
    return response


def port_of(node_id: int) -> int:
    return 9000 + node_id
