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

from kohort.client.core.effects import Failure, FailureKind
from kohort.client.group.consumer_protocol import (
    Assignment,
    encode_assignment,
    encode_subscription,
)
from kohort.client.group.consumer_protocol import Subscription as Wanted
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.heartbeat import HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.messages.leave_group import LeaveGroupResponse
from kohort.wire.messages.sync_group import SyncGroupResponse
from tests.client.membership_stage import WORDS, Lines, Stage


class Script(Stage):
    """One method for each event of a transcript."""

    def run(self, line: str) -> list[str]:
        self.lines = []
        handler = Lines(self.lines)
        logger = logging.getLogger("kohort.client")
        logger.addHandler(handler)
        before = logger.level
        logger.setLevel(logging.INFO)  # not by .level: loggers remember what they found enabled
        try:
            verb, *words = line.split()
            getattr(self, "do_" + verb)(words)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
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
        response.protocol_name = options.get("protocol", self.membership.status.protocol_name)
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


def replay(text: str) -> str:
    """Runs the events of a transcript and returns it with what followed now."""
    stage = Script()
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
