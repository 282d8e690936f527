"""Replays transcripts of a membership: lines at the margin are events, indented lines are what followed.

Events:
    set session.timeout.ms=10000 assignors=range versions=join:3,sync:0    before anything else
    cluster orders=4 payments=2           what brokers answer to Metadata from now on; `orders=2@r1,r2`: racks
    hold metadata | release metadata      Metadata requests wait in between
    subscribe orders payments | pattern ord.* | leave why | rejoin why | reset why
    poll | returned                       the user calls poll; poll has returned
    at +500 | at 9000                     time passes with the user in poll (and tick at every deadline)
    work +5000                            time passes while the user works: only the background thread ticks
    find 1 | find ERROR                   the oldest FindCoordinator is answered; likewise:
    join m-1 3 leader=m-1 m-1=orders m-2%i2=orders+payments:orders/0,orders/1@2   protocol= type= skip
                                          id, generation; members[%instance] with topics[:owned[@generation]]
    join ERROR id=m-1 | sync orders/0 orders/1 | sync raw=00 | sync ERROR | heartbeat [ERROR] | left [ERROR]
    lost join | slow sync | refused join KIND message    the oldest such request has no answer
    called [raising words]                the user's callback has run
    committing | committed                the commit before a join takes its time
    error                                 poll raises what there is
    show                                  repr of the membership
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

from kohort.client.assignors import Assignor, RebalanceProtocol, load_assignors
from kohort.client.assignors.assignor import TopicPartitions
from kohort.client.config import CONSUMER, ConsumerConfig, read_config
from kohort.client.consumer_protocol import (
    Assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.client.consumer_protocol import Subscription as Wanted
from kohort.client.effects import ANY_NODE, Answer, Failure, FailureKind, Outbox, Send
from kohort.client.group_coordinator import GroupCoordinator
from kohort.client.membership import Membership
from kohort.client.metadata import Metadata
from kohort.client.subscription import Mode, Subscription
from kohort.client.types import TopicPartition
from kohort.wire.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.heartbeat import HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.messages.leave_group import LeaveGroupResponse
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.sync_group import SyncGroupResponse
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
WORDS = {"find": 10, "join": 11, "heartbeat": 12, "left": 13, "sync": 14, "metadata": 3}


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
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.INFO)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
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
        self.subscription = Subscription(config.reset())
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
                self.metadata.answer(Answer(send, HIGHEST[3], self.metadata_response(send)), self.now_ms)
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
        answer = Answer(send, version, response, failure)
        part = self.coordinator if send.purpose.startswith("coordinator.") else self.membership
        part.answer(answer, self.now_ms)
        self.pump()

    # ---- the script

    def run(self, line: str) -> list[str]:
        self.lines = []
        handler = Lines(self.lines)
        logger = logging.getLogger("kohort.client")
        logger.addHandler(handler)
        before, logger.level = logger.level, logging.INFO
        try:
            verb, *words = line.split()
            getattr(self, "do_" + verb)(words)
        finally:
            logger.removeHandler(handler)
            logger.level = before
        return self.lines

    def do_set(self, words: list[str]) -> None:
        for name, value in (w.split("=", 1) for w in words):
            if name == "assignors":
                self.assignors = value
            elif name == "versions":
                for one in value.split(","):
                    api, _, version = one.partition(":")
                    self.versions[WORDS[api]] = int(version)
            else:
                self.settings[name] = value

    def do_cluster(self, words: list[str]) -> None:
        self.topics = {}
        for name, value in (w.split("=", 1) for w in words):
            count, _, racks = value.partition("@")
            self.topics[name] = [(r,) for r in racks.split(",")] if racks else [() for _ in range(int(count))]
        if self.membership_ is not None:
            self.metadata.request_update("the test says so")
            self.metadata._not_before_ms = self.now_ms
            self.pump()

    def do_hold(self, words: list[str]) -> None:
        self.metadata_held = True

    def do_release(self, words: list[str]) -> None:
        self.metadata_held = False
        self.take_out()
        self.pump()

    def do_subscribe(self, words: list[str]) -> None:
        self.membership.subscription.subscribe(words)
        self.want()

    def do_pattern(self, words: list[str]) -> None:
        self.membership.subscription.subscribe_pattern(re.compile(words[0]))
        self.want()

    def want(self) -> None:
        self.membership.want_topics(self.now_ms)

    def do_poll(self, words: list[str]) -> None:
        self.match()
        self.membership.poll(self.now_ms)
        self.pump()

    def do_returned(self, words: list[str]) -> None:
        self.membership.poll_ended(self.now_ms)

    def do_at(self, words: list[str]) -> None:
        self.pass_time(words[0], background=False)

    def do_work(self, words: list[str]) -> None:
        self.pass_time(words[0], background=True)

    def pass_time(self, word: str, background: bool) -> None:
        until = self.now_ms + int(word) if word.startswith("+") else int(word)
        self.pump(background)
        for _ in range(1000):
            due = self.next_deadline_ms(background)
            if due is None or due > until:
                break
            self.now_ms = max(due, self.now_ms)
            before = len(self.lines)
            self.pump(background)
            if len(self.lines) > before:
                self.lines.insert(before, f"(at {self.now_ms})")
        else:
            raise AssertionError("it is due again and again")
        self.now_ms = until

    def next_deadline_ms(self, background: bool) -> int | None:
        if background:
            return self.membership.next_background_deadline_ms()
        parts = (self.membership, self.coordinator, self.metadata)
        return min((due for part in parts if (due := part.next_deadline_ms()) is not None), default=None)

    def do_rejoin(self, words: list[str]) -> None:
        self.membership.request_rejoin(" ".join(words))
        self.pump()

    def do_reset(self, words: list[str]) -> None:
        self.membership.reset_generation(" ".join(words))
        self.pump()

    def do_leave(self, words: list[str]) -> None:
        operation = self.membership.leave(" ".join(words), self.now_ms)
        operation.on_done(lambda done: self.say("has left"))
        self.pump()

    def do_called(self, words: list[str]) -> None:
        assert self.membership.callback is not None, "there is no callback to run"
        self.membership.called_back(RuntimeError(" ".join(words[1:])) if words else None, self.now_ms)
        self.pump()

    def do_committing(self, words: list[str]) -> None:
        self.committing = True

    def do_committed(self, words: list[str]) -> None:
        self.committing = False
        self.pump()

    def do_error(self, words: list[str]) -> None:
        error = self.membership.take_error()
        self.say(f"{type(error).__name__}: {error}" if error is not None else "none")

    def do_show(self, words: list[str]) -> None:
        self.say(repr(self.membership))
        m = self.membership
        self.say(
            f"may commit: {m.may_commit}, rebalance in progress: {m.rebalance_in_progress}, "
            f"left because: {m.left_because}"
        )

    def do_find(self, words: list[str]) -> None:
        name = words[0]
        if name.isdigit():
            node_id, code, said = int(name), 0, None
        else:
            node_id, code, said = -1, ErrorCode[name].value, " ".join(words[1:]) or None
        host, port = (f"b{node_id}", 9092) if node_id >= 0 else ("", -1)
        coordinator = Coordinator("g", node_id, host, port, code, said)
        self.answer("find", FindCoordinatorResponse(0, code, said, node_id, host, port, [coordinator]))

    def do_join(self, words: list[str]) -> None:
        options = dict(w.split("=", 1) for w in words if "=" in w)
        names = [w for w in words if "=" not in w]
        response = JoinGroupResponse()
        if names[0] in ErrorCode.__members__:
            response.error_code = ErrorCode[names[0]].value
            response.member_id = options.get("id", "")
        else:
            response.member_id, response.generation_id = names[0], int(names[1])
            response.leader = options.pop("leader", "somebody")
            response.skip_assignment = "skip" in names
            response.protocol_type = options.pop("type", "consumer")
            response.protocol_name = options.pop("protocol", self.assignors.split(",")[0])
            response.members = [member(key, value) for key, value in options.items()]
        self.answer("join", response)

    def do_sync(self, words: list[str]) -> None:
        options = dict(w.split("=", 1) for w in words if "=" in w)
        response = SyncGroupResponse(protocol_type=options.get("type", "consumer"))
        response.protocol_name = options.get("protocol", self.membership.protocol_name)
        if words and words[0] in ErrorCode.__members__:
            response.error_code = ErrorCode[words[0]].value
        elif "raw" in options:
            response.assignment = bytes.fromhex(options["raw"])
        else:
            given = tuple(place(w) for w in words if "/" in w)
            response.assignment = encode_assignment(Assignment(given))
        self.answer("sync", response)

    def do_heartbeat(self, words: list[str]) -> None:
        self.answer("heartbeat", HeartbeatResponse(0, ErrorCode[words[0]].value if words else 0))

    def do_left(self, words: list[str]) -> None:
        self.answer("left", LeaveGroupResponse(0, ErrorCode[words[0]].value if words else 0))

    def do_lost(self, words: list[str]) -> None:
        self.answer(words[0], None, Failure(FailureKind.DISCONNECTED, "connection reset"))

    def do_slow(self, words: list[str]) -> None:
        self.answer(words[0], None, Failure(FailureKind.TIMED_OUT, "no answer in time"))

    def do_refused(self, words: list[str]) -> None:
        self.answer(words[0], None, Failure(FailureKind[words[1]], " ".join(words[2:])))


def place(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("/")
    return TopicPartition(topic, int(partition))


def member(name: str, text: str) -> JoinGroupResponseMember:
    """`m-2%instance=orders+payments:orders/0,orders/1@3`, or `m-2=!` for bytes that are no subscription."""
    member_id, _, instance = name.partition("%")
    if text == "!":
        return JoinGroupResponseMember(member_id, instance or None, b"\x00")
    topics, _, rest = text.partition(":")
    owned, _, generation = rest.partition("@")
    wanted = Wanted(
        tuple(topics.split("+")),
        owned_partitions=tuple(place(p) for p in owned.split(",") if p),
        generation_id=int(generation or -1),
    )
    return JoinGroupResponseMember(member_id, instance or None, encode_subscription(wanted))


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


def replay(text: str) -> str:
    """Runs the events of a transcript and returns it with what followed now."""
    stage = Stage()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += ["    " + said for said in stage.run(line)]
    return "\n".join(lines) + "\n"


def rerecord(names: list[str]) -> None:
    """`python -m tests.client.transcript --rerecord [part of a name …]` writes what a member does now into them."""
    for path in sorted((Path(__file__).parent / "transcripts").glob("*.txt")):
        if not names or any(name in path.stem for name in names):
            path.write_text(replay(path.read_text()))


if __name__ == "__main__" and sys.argv[1:2] == ["--rerecord"]:
    rerecord(sys.argv[2:])
