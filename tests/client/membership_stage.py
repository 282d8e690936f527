"""One membership with its neighbours, in virtual time; what it sends and says becomes lines of text."""

from __future__ import annotations

import logging
import threading
from typing import Any, ClassVar

from kohort.client.config import CONSUMER, ConsumerConfig, read_config
from kohort.client.core.effects import ANY_NODE, Answer, Failure, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.group.assignors import Assignor, RebalanceProtocol, load_assignors
from kohort.client.group.assignors.assignor import TopicPartitions
from kohort.client.group.consumer_protocol import (
    Assignment,
    decode_assignment,
    decode_subscription,
)
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.membership import Membership
from kohort.client.offsets.subscription import Mode, SubscriptionState
from kohort.client.types import TopicPartition
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.struct import Message

NAMES = {
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    3: "Metadata",
}
HIGHEST = {10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 3: 12}
WORDS = {"find": 10, "join": 11, "heartbeat": 12, "left": 13, "sync": 14, "metadata": 3, "beat": 68}


class Broken(Assignor):
    """An assignor of a user's that raises."""

    name = "broken"

    def assign(self, cluster: TopicPartitions, members: Any) -> dict[str, Assignment]:
        raise RuntimeError("this assignor is broken")


class Greedy(Assignor):
    """Cooperative by name only: the first member gets everything, whoever owns it. Forgets the others."""

    name = "greedy"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.EAGER,
        RebalanceProtocol.COOPERATIVE,
    )
    extra: tuple[TopicPartition, ...] = ()

    def assign(self, cluster: TopicPartitions, members: Any) -> dict[str, Assignment]:
        topics = sorted({t for m in members.values() for t in m.topics})
        everything = [TopicPartition(t, p) for t in topics for p in range(cluster.counts.get(t, 0))]
        return {min(members): Assignment((*everything, *self.extra))}


class Generous(Greedy):
    """Gives away a topic that nobody asked for."""

    name = "generous"
    protocols = (RebalanceProtocol.EAGER,)
    extra = (TopicPartition("extra", 0),)


class Lines(logging.Handler):
    """What is logged in this thread: a consumer that another test has left behind may still have one of its own."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.INFO)
        self.lines, self.thread = lines, threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self.thread:
            return
        word = "log" if record.levelno == logging.INFO else record.levelname.lower()
        self.lines.append(f"{word}: {record.getMessage()}")


class Stage:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {"bootstrap.servers": "b:1", "group.id": "g"}
        self.versions = dict(HIGHEST)
        self.assignors = "range"
        self.topics: dict[str, list[tuple[str, ...]]] = {}
        self.lines: list[str] = []
        self.now_ms = 0
        self.out: Outbox = []
        self.waiting: list[Send] = []
        self.metadata_held = self.committing = False
        self.membership_: Membership | None = None
        self.seen = -1
        self.shown: tuple[Any, ...] = ()

    # ---- the world around the membership

    def build(self) -> None:
        config, _ = read_config(CONSUMER, self.settings, {})
        self.config: ConsumerConfig = config
        mine = {kind.name: kind for kind in (Broken, Greedy, Generous)}
        assignors = load_assignors([mine.get(name, name) for name in self.assignors.split(",")])
        self.subscription = SubscriptionState(config.reset())
        self.metadata = Metadata(self.out, config, lambda: 0.5)
        self.coordinator = GroupCoordinator(self.out, config, self.metadata, lambda: 0.5)
        self.membership_ = Membership(
            self.out,
            config,
            self.coordinator,
            self.subscription,
            self.metadata,
            assignors,
            lambda now_ms: not self.committing,
            lambda: 0.5,
        )

    @property
    def membership(self) -> Membership:
        if self.membership_ is None:
            self.build()
        assert self.membership_ is not None
        return self.membership_

    def pump(self, background: bool = False) -> None:
        """What the engine does: ticks and answers, until nothing new comes of it."""
        for _ in range(20):
            if not background:
                self.match()
                self.metadata.tick(self.now_ms)
            self.coordinator.tick(self.now_ms)
            if background:
                self.membership.tick_background(self.now_ms)
            elif self.subscription.is_group:
                self.membership.tick(self.now_ms)
            if not self.take_out():
                break
        else:
            raise AssertionError("it never comes to rest")
        self.tell()

    def match(self) -> None:
        """As the consumer does when metadata changes."""
        cluster = self.metadata.cluster
        if cluster.version != self.seen and self.subscription.mode is Mode.PATTERN and cluster.version:
            self.subscription.match(t for t, info in cluster.topics.items() if not info.is_internal)
        self.seen = cluster.version

    def take_out(self) -> bool:
        sends, self.out[:] = list(self.out), []
        for send in sends:
            self.waiting.append(send)
            if send.api_key != 3:
                self.say(self.show_send(send))
        if not self.metadata_held:
            for send in [s for s in self.waiting if s.api_key == 3]:
                self.waiting.remove(send)
                send.on_answer(Answer(send, HIGHEST[3], self.metadata_response(send)), self.now_ms)
        return bool(sends)

    def metadata_response(self, send: Send) -> Message:
        request: Any = send.make(HIGHEST[3])
        wanted = [t.name for t in request.topics] if request.topics is not None else sorted(self.topics)
        racks = sorted({rack for topic in self.topics.values() for racks in topic for rack in racks})
        brokers = [
            MetadataResponseBroker(i, f"b{i}", 9092, rack) for i, rack in enumerate(racks or [None], 1)
        ]
        topics = []
        for name in wanted:
            if name not in self.topics:
                topics.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
                continue
            partitions = [
                MetadataResponsePartition(0, i, 1, 0, [racks.index(r) + 1 for r in its] or [1], [1])
                for i, its in enumerate(self.topics[name])
            ]
            topics.append(
                MetadataResponseTopic(0, name, is_internal=name.startswith("__"), partitions=partitions)
            )
        return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)

    def tell(self) -> None:
        """State, callback and fetchable partitions, where they are others than before."""
        m = self.membership
        stopped = [str(p) for p, s in sorted(m.subscription.partitions.items()) if s.revoking or s.assigning]
        shown = (m.state, m.callback, sorted(m.subscription.partitions), stopped)
        if shown != self.shown:
            line = f"is {m.state.name}"
            if m.callback is not None:
                line += f", calls back: {m.callback}"
            if m.subscription.partitions:
                line += f" [assigned {', '.join(map(str, sorted(m.subscription.partitions)))}"
                line += f"; not fetched {', '.join(stopped)}]" if stopped else "]"
            self.say(line)
        self.shown = shown

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show_send(self, send: Send) -> str:
        version = self.versions[send.api_key]
        try:
            made = send.make(version)
        except ValueError as error:
            return f"-> {NAMES[send.api_key]} v{version} cannot be made: {error}"
        which = codec(send.api_key, version)
        raw = b"".join(bytes(chunk) for chunk in which.encode_request(made))
        request: Any = which.decode_request(memoryview(raw))
        to = "any node" if send.node_id == ANY_NODE else f"node {send.node_id}"
        lane = f", {send.lane.name.lower()} lane" if (send.lane == 1) != (send.api_key != 10) else ""
        limit = f", {send.timeout_ms} ms" if send.timeout_ms != self.config.request_timeout_ms else ""
        return f"-> {NAMES[send.api_key]} to {to}{lane}{limit}: {show_request(request)}"

    def answer(self, word: str, response: Message | None, failure: Failure | None = None) -> None:
        send = next(s for s in self.waiting if s.api_key == WORDS[word])
        self.waiting.remove(send)
        version = self.versions[send.api_key]
        if response is not None:
            which = codec(send.api_key, version)
            raw = b"".join(bytes(chunk) for chunk in which.encode_response(response))
            response = which.decode_response(memoryview(raw))
        send.on_answer(Answer(send, version, response, failure), self.now_ms)
        self.pump()


def show_request(request: Any) -> str:
    """The fields that say something."""
    shown = []
    for name in request.FIELDS:
        value = getattr(request, name)
        if name == "protocols":
            value = "; ".join(f"{p.name} {show_wanted(bytes(p.metadata))}" for p in value)
        elif name == "assignments":
            value = "; ".join(f"{a.member_id} {show_given(bytes(a.assignment))}" for a in value)
        elif name == "members":
            value = "; ".join(f"{m.member_id} ({m.reason})" for m in value)
        if value not in (None, "", [], -1) and name != "group_id":
            shown.append(f"{name}={value}")
    return " ".join(shown)


def show_wanted(data: bytes) -> str:
    wanted = decode_subscription(data)
    owns = f" owns {', '.join(map(str, wanted.owned_partitions))} of {wanted.generation_id}"
    rack = f" in {wanted.rack_id}" if wanted.rack_id else ""
    return f"[{', '.join(wanted.topics)}{owns if wanted.owned_partitions else ''}{rack}]"


def show_given(data: bytes) -> str:
    return f"[{', '.join(map(str, decode_assignment(data).partitions))}]"
