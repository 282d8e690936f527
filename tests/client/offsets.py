"""Commits and positions in virtual time; the test is the coordinator (node 9) and the leaders (nodes 1, 2).

Requests and answers go through the real codec, so that a test sees what a broker would see in that version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kohort.client.config import CONSUMER, read_config
from kohort.client.core.cluster import Cluster, Node, PartitionInfo, TopicInfo
from kohort.client.core.effects import Answer, Failure, FailureKind, Send
from kohort.client.core.metadata import Metadata
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.offsets.commits import Commits
from kohort.client.offsets.positions import Positions
from kohort.client.offsets.subscription import PartitionState, Position, SubscriptionState
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
COORDINATOR = 9
NEWEST = {2: 11, 8: 10, 9: 10, 10: 6, 23: 4}
NONE = ErrorCode.NONE
ME = GroupMetadata("shop", 5, "me-1")


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def at(offset: int, epoch: int | None = None, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, metadata, epoch)


@dataclass
class Member:
    """The membership as commits see it."""

    me: GroupMetadata = ME
    may_commit: bool = True
    rebalance_in_progress: bool = False
    may_commit_itself: bool = True
    is_fenced: bool = False
    left_because: str | None = None
    rejoins: list[str] = field(default_factory=list)
    resets: list[tuple[str, bool]] = field(default_factory=list)

    def group_metadata(self) -> GroupMetadata:
        return self.me

    def continues(self, earlier: GroupMetadata) -> bool:
        return earlier == self.me

    def fetches_as(self) -> GroupMetadata | None:
        return None

    def request_rejoin(self, reason: str) -> None:
        self.rejoins.append(reason)

    def reset_generation(self, reason: str, lost: bool = True, *, keep_member_id: bool = False) -> None:
        self.resets.append((reason, keep_member_id))
        self.me = self.me._replace(generation_id=-1, member_id=self.me.member_id if keep_member_id else "")
        self.may_commit = self.may_commit_itself = False


class World:
    """`orders` with two partitions, led by nodes 1 and 2 in epoch 4; the member `me-1` of generation 5."""

    def __init__(self, versions: Mapping[int, int] | None = None, **settings: object) -> None:
        self.now_ms = 1_000_000
        self.versions = NEWEST | dict(versions or {})
        settings = {"group_id": "shop"} | settings
        self.config, _ = read_config(CONSUMER, {"bootstrap.servers": "a:1"}, settings)
        self.out: list[Send] = []
        self.sent: list[Send] = []
        """What waits to be taken by the test."""
        self.history: list[Send] = []
        """All that was ever sent."""
        self.subscription = SubscriptionState(self.config.reset())
        self.metadata = Metadata(self.out, self.config, lambda: 0.5)
        self.coordinator = GroupCoordinator(self.out, self.config, self.metadata, lambda: 0.5)
        self.coordinator_is_found = True
        self.member = Member()
        self.commits = Commits(
            self.out,
            self.config,
            self.coordinator,
            self.subscription,
            self.metadata,
            self.member,
            jitter=lambda: 0.5,
        )
        self.positions = Positions(
            self.out, self.config, self.subscription, self.metadata, self.commits, lambda: 0.5
        )
        nodes = {n: Node(n, f"node{n}", 9092) for n in (1, 2, COORDINATOR)}
        partitions = {0: PartitionInfo(1, 4), 1: PartitionInfo(2, 4)}
        topics = {"orders": TopicInfo("orders", topic_id("orders"), partitions)}
        self.metadata.cluster = Cluster("c", 1, nodes, topics, {}, 1)
        self.forget_requested_update()

    # --- the user and the group -------------------------------------------------------------------------

    def subscribe(self, *partitions: TopicPartition) -> None:
        """A member of the group, to which these are assigned."""
        self.subscription.subscribe(["orders"])
        self.subscription.assign_from_group(partitions)
        self.subscription.assigned_callback_ran()

    def returned(self, partition: TopicPartition, offset: int, epoch: int = 4) -> None:
        """Records before this offset have been handed out."""
        leader = self.metadata.cluster.partition(partition)
        assert leader is not None
        self.state(partition).position = Position(offset, epoch, leader.leader_id, leader.leader_epoch)

    def state(self, partition: TopicPartition = ORDERS_0) -> PartitionState:
        return self.subscription.state(partition)

    def position(self, partition: TopicPartition = ORDERS_0) -> int | None:
        """None while there is no position that may be fetched from."""
        state = self.state(partition)
        return state.position.offset if state.has_position and state.position is not None else None

    # --- the cluster --------------------------------------------------------------------------------------

    def lead(self, partition: TopicPartition, leader: int, epoch: int) -> None:
        cluster = self.metadata.cluster
        info = cluster.topics[partition.topic]
        partitions = {**info.partitions, partition.partition: PartitionInfo(leader, epoch)}
        topics = {**cluster.topics, partition.topic: replace(info, partitions=partitions)}
        self.metadata.cluster = replace(cluster, topics=topics, version=cluster.version + 1)

    @property
    def update_requested(self) -> bool:
        return self.metadata.is_due

    def forget_requested_update(self) -> None:
        self.metadata._due = False

    # --- time and requests --------------------------------------------------------------------------------

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        for _ in range(4):
            self.coordinator.tick(self.now_ms)
            self.commits.tick(self.now_ms)
            self.positions.tick(self.now_ms)
            while self.out:
                send = self.out.pop(0)
                if send.purpose == "coordinator.find":
                    self._find(send)
                else:
                    self.sent.append(send)
                    self.history.append(send)

    def _find(self, send: Send) -> None:
        if self.coordinator_is_found:
            found = Coordinator("shop", COORDINATOR, f"node{COORDINATOR}", 9092)
            answer = Answer(send, 6, FindCoordinatorResponse(coordinators=[found]))
        else:
            answer = Answer(send, failure=Failure(FailureKind.DISCONNECTED, "refused"))
        send.on_answer(answer, self.now_ms)

    def take(self, purpose: str) -> Question:
        """The oldest request of this purpose that was sent and not taken yet."""
        self.tick()
        send = next((send for send in self.sent if send.purpose == purpose), None)
        assert send is not None, f"no {purpose} was sent; but {[send.purpose for send in self.sent]}"
        self.sent.remove(send)
        return Question(self, send)

    def nothing_sent(self) -> bool:
        self.tick()
        return not self.sent


class Question:
    """A request as the broker decodes it, and the ways to answer it."""

    def __init__(self, world: World, send: Send) -> None:
        self.world, self.send = world, send
        newest = world.versions[send.api_key]
        self.version = newest if send.max_version is None else min(newest, send.max_version)
        self._codec = codec(send.api_key, self.version)
        encoded = memoryview(b"".join(self._codec.encode_request(send.make(self.version))))
        self.request: Any = self._codec.decode_request(encoded)

    def answer(self, response: Any) -> None:
        encoded = memoryview(b"".join(self._codec.encode_response(response)))
        self._give(Answer(self.send, self.version, self._codec.decode_response(encoded)))

    def fail(self, kind: FailureKind = FailureKind.DISCONNECTED) -> None:
        self._give(Answer(self.send, failure=Failure(kind, "the cable was cut")))

    def _give(self, answer: Answer) -> None:
        self.send.on_answer(answer, self.world.now_ms)

    # --- OffsetCommit -----------------------------------------------------------------------------------

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit asks to be stored; topics by whichever name or id the version has."""
        return {
            TopicPartition(topic.name or topic.topic_id.decode().rstrip("."), p.partition_index): at(
                p.committed_offset,
                p.committed_leader_epoch if p.committed_leader_epoch >= 0 else None,
                p.committed_metadata,
            )
            for topic in self.request.topics
            for p in topic.partitions
        }

    def committed(self, errors: Mapping[TopicPartition, ErrorCode] | ErrorCode = NONE) -> None:
        """Answers a commit: for all partitions alike, or these with errors and the others with none."""
        codes = dict.fromkeys(self.offsets, errors) if isinstance(errors, ErrorCode) else errors
        self.answer(
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        topic,
                        topic_id(topic),
                        [OffsetCommitResponsePartition(p, codes.get(TopicPartition(topic, p), NONE))],
                    )
                    for topic, p in self.offsets
                ]
            )
        )

    # --- OffsetFetch ------------------------------------------------------------------------------------

    def found(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | ErrorCode | None],
        error: ErrorCode = NONE,
    ) -> None:
        rows = []
        for partition, one in offsets.items():
            code = one if isinstance(one, ErrorCode) else NONE
            where = one if isinstance(one, OffsetAndMetadata) else at(-1)
            epoch = where.leader_epoch if where.leader_epoch is not None else -1
            rows.append((partition, (partition.partition, where.offset, epoch, where.metadata, code)))
        if self.version < 8:
            topics = [
                OffsetFetchResponseTopic(p.topic, [OffsetFetchResponsePartition(*row)]) for p, row in rows
            ]
            self.answer(OffsetFetchResponse(topics=topics, error_code=error))
            return
        grouped = [
            OffsetFetchResponseTopics(p.topic, topic_id(p.topic), [OffsetFetchResponsePartitions(*row)])
            for p, row in rows
        ]
        self.answer(OffsetFetchResponse(groups=[OffsetFetchResponseGroup("shop", grouped, error)]))

    # --- ListOffsets and OffsetForLeaderEpoch -----------------------------------------------------------

    @property
    def times(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic.name, p.partition_index): p.timestamp
            for topic in self.request.topics
            for p in topic.partitions
        }

    def listed(self, offsets: Mapping[TopicPartition, int | ErrorCode], timestamp: int = -1) -> None:
        """Offset -1: no record is so young."""
        self.answer(
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        p.topic,
                        [
                            ListOffsetsPartitionResponse(p.partition, one)
                            if isinstance(one, ErrorCode)
                            else ListOffsetsPartitionResponse(p.partition, 0, timestamp, one, 4)
                        ],
                    )
                    for p, one in offsets.items()
                ]
            )
        )

    def epoch_ended(self, ends: Mapping[TopicPartition, tuple[int, int] | ErrorCode]) -> None:
        """By partition: leader epoch and end offset, or an error."""
        self.answer(
            OffsetForLeaderEpochResponse(
                topics=[
                    OffsetForLeaderTopicResult(
                        p.topic,
                        [
                            EpochEndOffset(one, p.partition)
                            if isinstance(one, ErrorCode)
                            else EpochEndOffset(0, p.partition, *one)
                        ],
                    )
                    for p, one in ends.items()
                ]
            )
        )
