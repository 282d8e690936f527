"""Memberships around a real coordinator, in one thread and in virtual time; requests may be slow or lost, by seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from kohort.client.config import CONSUMER, read_config
from kohort.client.core.effects import Answer, Failure, FailureKind, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.group.assignors import load_assignors
from kohort.client.group.callbacks import CallbackKind
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.group_membership import make_membership
from kohort.client.offsets.subscription import SubscriptionState
from kohort.client.types import TopicPartition
from kohort.coordinator import events as ev
from kohort.coordinator.effects import Append, Reply, SetTimer
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topic_catalog import CatalogTopic
from kohort.wire.messages import consumer_group_heartbeat as beat
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.heartbeat import HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.messages.leave_group import LeaveGroupResponse, MemberResponse
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.sync_group import SyncGroupResponse

VERSION = {3: 12, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 68: 1}


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


class World:
    """A group `g`, its coordinator, and the topics; it is the coordinator's catalog as well."""

    def __init__(self, seed: int, topics: dict[str, int]) -> None:
        self.random = random.Random(seed)
        self.topics = topics
        self.now_ms = 0
        self.members: list[Member] = []
        self.loss = 0.0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._parked: dict[str, Callable[[Any], None]] = {}
        self.shard = Shard(0, Settings(group_initial_rebalance_delay_ms=100), self)
        for first in (ev.BeginLoad(0), ev.EndLoad(0)):
            self.shard.step(first, 0)

    # --- the catalog of topics ------------------------------------------------------------------

    def topic(self, name: str) -> CatalogTopic | None:
        count = self.topics.get(name)
        return None if count is None else CatalogTopic(topic_id(name), name, count)

    def topic_by_id(self, topic_id: bytes) -> CatalogTopic | None:
        return self.topic(topic_id.rstrip(b".").decode())

    def names(self) -> list[str]:
        return list(self.topics)

    # --- time ------------------------------------------------------------------------------------

    def at(self, in_ms: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now_ms + in_ms, self._count, what))

    def run(self, for_ms: int) -> None:
        until = self.now_ms + for_ms
        while self._due and self._due[0][0] <= until:
            when, _, what = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, when)
            what()
            self.check()
        self.now_ms = until

    def check(self) -> None:
        """Nobody owns what another member of the same generation owns.

        In a group of the consumer protocol epochs differ; there nobody owns what another one owns whom the coordinator
        knows with the same epoch: who was dropped may not know it yet.
        """
        modern = self.shard.consumer_groups.get("g")
        if modern is not None:
            self._check_modern({m.member_id: m.epoch for m in modern.members.values()})
            return
        owners: dict[tuple[int, TopicPartition], str] = {}
        for member in self.members:
            m = member.membership
            if not m.may_commit:
                continue
            for partition in member.owned:
                other = owners.setdefault((m.generation_id, partition), m.member_id)
                assert other == m.member_id, f"{partition} is owned by {other} and by {m!r}"

    def _check_modern(self, epochs: dict[str, int]) -> None:
        owners: dict[TopicPartition, str] = {}
        for member in self.members:
            m = member.membership
            if not m.may_commit or epochs.get(m.member_id) != m.generation_id:
                continue
            for partition in member.owned:
                other = owners.setdefault(partition, m.member_id)
                assert other == m.member_id, f"{partition} is owned by {other} and by {m!r}"

    # --- the broker ------------------------------------------------------------------------------

    def carry(self, send: Send, done: Callable[[Answer], None]) -> None:
        def arrive() -> None:
            if self.random.random() < self.loss:
                lost = Failure(FailureKind.DISCONNECTED, "lost on the way")
                self.at(5, lambda: done(Answer(send, failure=lost)))
                return
            self.serve(send, lambda response: self.at(self.random.randint(0, 20), lambda: back(response)))

        def back(response: Any) -> None:
            if self.random.random() < self.loss:
                done(Answer(send, failure=Failure(FailureKind.DISCONNECTED, "lost on the way back")))
            else:
                done(Answer(send, VERSION[send.api_key], response))

        self.at(self.random.randint(0, 20), arrive)

    def serve(self, send: Send, reply: Callable[[Any], None]) -> None:
        request: Any = send.make(VERSION[send.api_key])
        self._count += 1
        token = str(self._count)
        match send.api_key:
            case 3:
                names = sorted(self.topics) if request.topics is None else [t.name for t in request.topics]
                reply(self._metadata(names))
                return
            case 10:
                reply(FindCoordinatorResponse(coordinators=[Coordinator("g", 1, "b1", 9092)]))
                return
            case 11:
                protocols = tuple((p.name, bytes(p.metadata)) for p in request.protocols)
                event: Any = ev.JoinGroup(
                    token, "g", request.member_id, "consumer", protocols, request.session_timeout_ms,
                    request.rebalance_timeout_ms, token, request.group_instance_id, "m", "/h", reason=request.reason,
                )  # fmt: skip
            case 12:
                instance = request.group_instance_id
                event = ev.Heartbeat(token, "g", request.member_id, request.generation_id, instance)
            case 13:
                leavers = tuple(
                    ev.Leaver(m.member_id, m.group_instance_id, m.reason) for m in request.members
                )
                event = ev.LeaveGroup(token, "g", leavers)
            case 68:
                topics, owned = request.subscribed_topic_names, request.topic_partitions
                event = ev.ConsumerGroupHeartbeat(
                    token, "g", request.member_id, request.member_epoch, request.instance_id, request.rack_id,
                    request.rebalance_timeout_ms, None if topics is None else frozenset(topics),
                    request.subscribed_topic_regex, request.server_assignor,
                    None if owned is None else {each.topic_id: each.partitions for each in owned},
                )  # fmt: skip
            case _:
                given = tuple((a.member_id, bytes(a.assignment)) for a in request.assignments)
                event = ev.SyncGroup(
                    token, "g", request.member_id, request.generation_id, given, request.group_instance_id,
                    request.protocol_type, request.protocol_name,
                )  # fmt: skip
        self._parked[token] = reply
        self.step(event)

    def step(self, event: ev.Event) -> None:
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case Reply(token, response):
                    self._parked.pop(str(token))(_message(response))
                case SetTimer(kind, group_id, member_id, deadline_ms):
                    fired = ev.TimerFired(kind, group_id, member_id, deadline_ms)
                    self.at(max(0, deadline_ms - self.now_ms), lambda fired=fired: self.step(fired))  # type: ignore[misc]
                case Append(token=token):
                    self.at(1, lambda token=token: self.step(ev.DurableWritten(token, 0)))  # type: ignore[misc]

    def _metadata(self, names: list[str]) -> MetadataResponse:
        topics = [
            MetadataResponseTopic(
                0,
                name,
                topic_id(name),
                partitions=[
                    MetadataResponsePartition(0, i, 1, 0, [1], [1]) for i in range(self.topics[name])
                ],
            )
            for name in names
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(1, "b1", 9092)], cluster_id="c", controller_id=1, topics=topics
        )


NEW_PROTOCOL = "the consumer protocol"
"""Instead of assignors: the member leaves it to the coordinator (KIP-848)."""


class Member:
    """A consumer that polls every so often; what it was told is `owned`."""

    def __init__(self, world: World, assignors: str, topics: list[str], **settings: object) -> None:
        self.world = world
        base = {"bootstrap.servers": "b:1", "group.id": "g", "max.poll.interval.ms": 10_000}
        if assignors == NEW_PROTOCOL:
            base["group.protocol"] = "consumer"
        config, _ = read_config(CONSUMER, base, settings)
        self.out: Outbox = []
        jitter = world.random.random
        self.subscription = SubscriptionState(config.reset())
        self.metadata = Metadata(self.out, config, jitter)
        self.coordinator = GroupCoordinator(self.out, config, self.metadata, jitter)
        self.membership = make_membership(
            self.out, config, self.coordinator, self.subscription, self.metadata,
            lambda: load_assignors(assignors.split(",")), f"uuid-{world.random.getrandbits(32):08x}",
            lambda now_ms: True, jitter,
        )  # fmt: skip
        self.subscription.subscribe(topics)
        self.metadata.want(frozenset(topics), now_ms=0)
        self.parts = (self.metadata, self.coordinator, self.membership)
        self.owned: set[TopicPartition] = set()
        self.told: list[str] = []
        self.works = self.closed = False
        self._wake_ms: int | None = None
        world.members.append(self)
        self.poll()

    def poll(self) -> None:
        if self.closed:
            return
        if not self.works:
            self.membership.poll(self.world.now_ms)
            self.pump()
            self.run_callbacks()
            error = self.membership.take_error()
            assert error is None, error
        self.world.at(self.world.random.randint(10, 200), self.poll)

    def run_callbacks(self) -> None:
        while (callback := self.membership.callback) is not None:
            partitions = set(callback.partitions)
            self.told.append(callback.kind.value)
            if callback.kind is CallbackKind.ASSIGNED:
                assert not partitions & self.owned, f"{partitions} is assigned twice: {self.told}"
                self.owned |= partitions
                assert self.owned == set(self.subscription.partitions)
            else:
                assert partitions <= self.owned, f"{partitions} was never assigned: {self.told}"
                self.owned -= partitions
            self.membership.called_back(None, self.world.now_ms)
            self.pump()

    def pump(self) -> None:
        now_ms = self.world.now_ms
        for _ in range(20):
            self.metadata.tick(now_ms)
            self.coordinator.tick(now_ms)
            if self.works:
                self.membership.tick_background(now_ms)
            else:
                self.membership.tick(now_ms)
            if not self.out:
                break
            sends, self.out[:] = list(self.out), []
            for send in sends:
                self.world.carry(send, self.answered)
        else:
            raise AssertionError(f"never at rest: {self.membership!r}")
        self._set_timer()

    def answered(self, answer: Answer) -> None:
        if self.closed and "leave" not in answer.send.purpose:
            return
        answer.send.on_answer(answer, self.world.now_ms)
        self.pump()

    def _set_timer(self) -> None:
        dues = [due for part in self.parts if (due := part.next_deadline_ms()) is not None]
        due = min(dues, default=None)
        if due is None or (self._wake_ms is not None and self.world.now_ms < self._wake_ms <= due):
            return
        self._wake_ms = max(due, self.world.now_ms + 1)
        self.world.at(self._wake_ms - self.world.now_ms, lambda: None if self.closed else self.pump())

    def close(self) -> None:
        self.membership.leave("the consumer was closed", self.world.now_ms)
        self.run_callbacks()
        self.pump()
        assert self.owned == set()
        self.closed = True
        self.world.members.remove(self)


def _message(response: Any) -> Any:
    """The coordinator's answer as the broker would send it."""
    code = int(response.error)
    match type(response).__name__:
        case "JoinResponse":
            members = [
                JoinGroupResponseMember(m.member_id, m.group_instance_id, m.metadata)
                for m in response.members
            ]
            return JoinGroupResponse(
                0, code, response.generation_id, response.protocol_type, response.protocol_name, response.leader,
                response.skip_assignment, response.member_id, members,
            )  # fmt: skip
        case "SyncResponse":
            return SyncGroupResponse(
                0, code, response.protocol_type, response.protocol_name, response.assignment
            )
        case "HeartbeatResponse":
            return HeartbeatResponse(0, code)
        case "ConsumerHeartbeatResponse":
            given = response.assignment
            owned = [] if given is None else [beat.TopicPartitions(id_, list(of)) for id_, of in given]
            return beat.ConsumerGroupHeartbeatResponse(
                0, code, response.message, response.member_id, response.member_epoch,
                response.heartbeat_interval_ms, None if given is None else beat.Assignment(owned),
            )  # fmt: skip
        case _:
            return LeaveGroupResponse(
                0,
                code,
                [MemberResponse(m.member_id, m.group_instance_id, int(m.error)) for m in response.members],
            )
