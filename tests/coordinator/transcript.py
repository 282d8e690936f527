"""Replays transcripts: lines at the margin are events, indented lines are the effects that followed.

Events:
    set group_max_size=2              settings, before anything else
    at 3000 | at +500                 time passes; timers that come due fire on the way
    join a                            a asks to join group g; from then on the runner remembers a's id and generation
         id= instance= protocols=range:m,roundrobin:m type= session= rebalance= group= reason= old (v0-3) v8 (no skip)
    sync a  a=x b=y                   names of members with what the leader assigns to them
    heartbeat a | leave a b | leave instance=i reason=bye
    commit a t/0=5 t/1=6:metadata     `commit - t/0=5` is a consumer without a group membership
    fetch t/0 t/1 | fetch all | describe | list | delete | offset-delete t/0 | topics-deleted t
    hold                              from here on the log is slow: `written` and `fail ERROR` settle the oldest write
    load | resign                     the partition moves away, and comes back from the log
    begin-load | end-load             the same, with time between

The verbs for consumer groups of KIP-848 are in consumer_verbs.py.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import fields
from typing import Any

from kohort.coordinator import events as ev
from kohort.coordinator.effects import Append, HistoryChanged, LoadFailed, Reply, SetTimer
from kohort.coordinator.records import decode_offset
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import Shard
from kohort.wire.errors import ErrorCode
from kohort.wire.group_records import decode_group_metadata, decode_key
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.offset_commit_key import OffsetCommitKey
from kohort.wire.struct import ZERO_UUID
from tests.coordinator.consumer_verbs import (
    ConsumerVerbs,
    assigned_bytes,
    show_assignment,
    show_consumer_record,
    show_response,
    subscription,
)


class Someone:
    """What a client would remember."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation_id = -1
        self.instance: str | None = None
        self.protocols = "range:m"
        self.session = "10000"
        self.rebalance = "60000"


class Stage(ConsumerVerbs):
    def __init__(self) -> None:
        self.init_consumers()
        self.settings: dict[str, Any] = {}
        self.shard: Shard | None = None
        self.now_ms = 0
        self.people: dict[str, Someone] = {}
        self.timers: list[tuple[int, int, SetTimer]] = []
        self.log: list[ev.LogRecord] = []
        self.held: deque[Append] | None = None
        self.timers_set = self.uuids = 0
        self.epoch = 0
        self.lines: list[str] = []
        self.events: deque[ev.Event] = deque()

    # ---- the world around the shard

    def step(self, event: ev.Event) -> None:
        if self.shard is None:
            self.shard = Shard(0, Settings(**self.settings), self.topics, lambda group_id: self.config)
            if not isinstance(event, ev.BeginLoad):
                for first in (ev.BeginLoad(0), ev.EndLoad(0)):
                    self.shard.step(first, self.now_ms)
        self.events.append(event)
        while self.events:
            for effect in self.shard.step(self.events.popleft(), self.now_ms):
                self.carry_out(effect)

    def carry_out(self, effect: Any) -> None:
        match effect:
            case Reply(request, response):
                self.learn(str(request), response)
                self.say(f"{request}: {show(response)}")
            case SetTimer(kind, group_id, member_id, deadline_ms):
                self.timers_set += 1
                heapq.heappush(self.timers, (deadline_ms, self.timers_set, effect))
                if kind is not ev.TimerKind.EXPIRE:
                    self.say(f"timer {kind.value} {member_id or group_id} at {deadline_ms}")
            case Append():
                self.say("append " + "; ".join(show_record(r.key, r.value) for r in effect.records))
                if self.held is None:
                    self.write(effect)
                else:
                    self.held.append(effect)
            case HistoryChanged(_, rebalance):
                self.say(f"history {rebalance.number}: {rebalance.sentence()}")
                if rebalance.outcome != "running":
                    self.say_details(rebalance)
            case LoadFailed(_, message):
                self.say(f"load failed: {message}")

    def say_details(self, rebalance: Any) -> None:
        for name in ("came", "went", "moved"):
            found = getattr(rebalance, name)
            if found:
                shown = (f"{x[0]} ({x[1]})" if isinstance(x, tuple) else x for x in found)
                self.say(f"history {rebalance.number}: {name} {', '.join(shown)}")

    def write(self, append: Append) -> None:
        base = len(self.log)
        for number, record in enumerate(append.records):
            entry = ev.LogRecord(base + number, record.key, record.value, append.producer_id)
            self.log.append(entry)
        self.events.append(ev.DurableWritten(append.token, base))

    def learn(self, request: str, response: Any) -> None:
        who = self.people.get(request.split(" ")[-1])
        if request.startswith("beat"):
            self.learn_beat(request.split(" ")[-1], response)
        elif who is not None and request.startswith("join") and response.error in (0, 79):
            who.member_id, who.generation_id = response.member_id, response.generation_id

    def say(self, line: str) -> None:
        self.lines.append(line)

    # ---- the script

    def run(self, line: str) -> list[str]:
        self.lines = []
        verb, *words = line.split()
        options = dict(w.split("=", 1) for w in words if "=" in w)
        names = [w for w in words if "=" not in w]
        getattr(self, "do_" + verb.replace("-", "_"))(names, options)
        return self.lines

    def do_set(self, names: list[str], options: dict[str, str]) -> None:
        self.settings.update({k: int(v) if v.isdigit() else v for k, v in options.items()})

    def do_at(self, names: list[str], options: dict[str, str]) -> None:
        until = self.now_ms + int(names[0]) if names[0].startswith("+") else int(names[0])
        while self.timers and self.timers[0][0] <= until:
            deadline_ms, _, timer = heapq.heappop(self.timers)
            self.now_ms = max(self.now_ms, deadline_ms)
            before = len(self.lines)
            self.step(ev.TimerFired(timer.kind, timer.group_id, timer.member_id, timer.deadline_ms))
            if len(self.lines) > before:
                self.lines.insert(before, f"({timer.kind.value} timer at {self.now_ms})")
        self.now_ms = until

    def do_join(self, names: list[str], options: dict[str, str]) -> None:
        person = self.person(names[0])
        person.instance = options.get("instance", person.instance)
        person.protocols = options.get("protocols", person.protocols)
        person.session = options.get("session", person.session)
        person.rebalance = options.get("rebalance", person.rebalance)
        self.uuids += 1
        protocols = tuple(
            (name, decode_metadata(data))
            for name, _, data in (p.partition(":") for p in person.protocols.split(",") if p)
        )
        self.step(
            ev.JoinGroup(
                f"join {names[0]}",
                options.get("group", "g"),
                options.get("id", person.member_id),
                options.get("type", "consumer"),
                protocols,
                int(person.session),
                int(person.rebalance),
                str(self.uuids),
                person.instance,
                names[0],
                "/127.0.0.1",
                "old" not in names,
                "old" not in names and "v8" not in names,
                options.get("reason"),
            )
        )

    def do_sync(self, names: list[str], options: dict[str, str]) -> None:
        person = self.person(names[0])
        known = {"generation", "id", "type", "protocol", "group"}
        assignments = tuple(
            (self.people[k].member_id if k in self.people else k, assigned_bytes(v))
            for k, v in options.items()
            if k not in known
        )
        self.step(
            ev.SyncGroup(
                f"sync {names[0]}",
                options.get("group", "g"),
                options.get("id", person.member_id),
                int(options.get("generation", person.generation_id)),
                assignments,
                person.instance,
                options.get("type"),
                options.get("protocol"),
            )
        )

    def do_heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        person = self.person(names[0])
        generation = int(options.get("generation", person.generation_id))
        member_id = options.get("id", person.member_id)
        group = options.get("group", "g")
        self.step(ev.Heartbeat(f"heartbeat {names[0]}", group, member_id, generation, person.instance))

    def do_leave(self, names: list[str], options: dict[str, str]) -> None:
        reason = options.get("reason")
        leavers = [ev.Leaver(self.person(n).member_id, self.person(n).instance, reason) for n in names]
        if "instance" in options:
            leavers.append(ev.Leaver("", options["instance"], reason))
        self.step(ev.LeaveGroup("leave", options.get("group", "g"), tuple(leavers)))

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        person = self.person(names[0]) if names[0] != "-" else Someone()
        offsets = []
        for key, value in options.items():
            if "/" in key:
                offset, _, metadata = value.partition(":")
                refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if "unknown" in key else ErrorCode.NONE
                metadata = "x" * int(metadata) if metadata.isdigit() else metadata
                offsets.append(ev.OffsetToCommit(*place(key), int(offset), 7, metadata, refused))
        generation = int(options.get("generation", person.generation_id))
        self.step(
            ev.OffsetCommit(
                f"commit {names[0]}",
                options.get("group", "g"),
                tuple(offsets),
                generation,
                options.get("id", person.member_id),
                person.instance,
                int(options.get("retention", -1)),
                "v8" not in names,
            )
        )

    def do_txn_commit(self, names: list[str], options: dict[str, str]) -> None:
        offsets = tuple(ev.OffsetToCommit(*place(k), int(v)) for k, v in options.items() if "/" in k)
        epoch, member = int(options.get("epoch", -1)), options.get("member", "")
        self.step(ev.TxnOffsetCommit("txn-commit", "g", offsets, int(options["producer"]), 0, epoch, member))

    def do_txn_marker(self, names: list[str], options: dict[str, str]) -> None:
        commit = names[0] == "commit"
        self.log.append(ev.LogRecord(len(self.log), None, None, int(options["producer"]), commit))
        self.step(ev.TxnMarker(int(options["producer"]), commit))

    def do_fetch(self, names: list[str], options: dict[str, str]) -> None:
        stable = "stable" in names
        wanted = [place(n) for n in names if "/" in n]
        topics = None if "all" in names else tuple((t, (p,)) for t, p in wanted)
        epoch = int(options.get("epoch", -1))
        self.step(
            ev.OffsetFetch("fetch", options.get("group", "g"), topics, stable, options.get("member"), epoch)
        )

    def do_describe(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.DescribeGroup("describe", options.get("group", "g"), "v5" not in names))

    def do_list(self, names: list[str], options: dict[str, str]) -> None:
        states = tuple(options["states"].split(",")) if "states" in options else ()
        types = tuple(options["types"].split(",")) if "types" in options else ()
        self.step(ev.ListGroups("list", states, types))

    def do_delete(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.DeleteGroup("delete", options.get("group", "g")))

    def do_offset_delete(self, names: list[str], options: dict[str, str]) -> None:
        topics = tuple((t, (p,)) for t, p in map(place, names))
        self.step(ev.OffsetDelete("offset-delete", options.get("group", "g"), topics))

    def do_topics_deleted(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.TopicsDeleted(tuple(names)))

    def do_hold(self, names: list[str], options: dict[str, str]) -> None:
        self.held = deque()

    def do_written(self, names: list[str], options: dict[str, str]) -> None:
        assert self.held is not None
        self.write(self.held.popleft())
        self.step(self.events.popleft())

    def do_fail(self, names: list[str], options: dict[str, str]) -> None:
        assert self.held is not None
        self.step(ev.WriteFailed(self.held.popleft().token, ErrorCode[names[0]]))

    def do_begin_load(self, names: list[str], options: dict[str, str]) -> None:
        self.epoch = int(options.get("epoch", self.epoch + 1))
        self.step(ev.BeginLoad(self.epoch))

    def do_end_load(self, names: list[str], options: dict[str, str]) -> None:
        epoch = int(options.get("epoch", self.epoch))
        self.step(ev.LoadRecords(epoch, tuple(self.log)))
        self.step(ev.EndLoad(epoch))

    def do_load(self, names: list[str], options: dict[str, str]) -> None:
        """With settings: as after a restart with others."""
        if options:
            assert self.shard is not None
            self.settings.update({k: int(v) if v.isdigit() else v for k, v in options.items()})
            self.shard.settings = Settings(**self.settings)
        self.do_begin_load([], {})
        self.do_end_load([], {})

    def do_resign(self, names: list[str], options: dict[str, str]) -> None:
        epoch = int(options["epoch"]) if "epoch" in options else self.epoch + 1
        self.epoch = max(self.epoch, epoch)
        self.step(ev.Resign(epoch))

    def do_damage(self, names: list[str], options: dict[str, str]) -> None:
        """A record as some other version would write it."""
        key = b"\x00\x02\x00\x01g" if "value" in options else b"\x7f\xff"
        value = int(options.get("value", 0)).to_bytes(2, "big")
        self.log.append(ev.LogRecord(len(self.log), key, value))

    def person(self, name: str) -> Someone:
        return self.people.setdefault(name, Someone())


def decode_metadata(text: str) -> bytes:
    """`t+u` stands for a consumer's subscription to the topics t and u, `~…` for what consumer_verbs says of it."""
    if text.startswith("~"):
        return subscription(text[1:])
    if "+" not in text:
        return text.encode()
    topics = [t.encode() for t in text.split("+") if t]
    names = b"".join(len(t).to_bytes(2, "big") + t for t in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def place(text: str) -> tuple[str, int]:
    topic, _, partition = text.partition("/")
    return topic, int(partition)


def show(value: Any) -> str:
    """A response as `ERROR field=value`, without what has its default."""
    known = show_response(value)
    if known is not None:
        return known
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, bytes):
        return value.decode("latin-1") if value.isascii() and value.isalnum() else show_assignment(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        shown = value[:-1] if value[-1:] == (ZERO_UUID,) else value  # the id of a topic that nobody gave one
        return "(" + " ".join(show(v) for v in shown) + ")"
    if isinstance(value, tuple):
        return "[" + ", ".join(show(v) for v in value) + "]"
    if not hasattr(value, "__dataclass_fields__"):
        return str(value) if len(str(value)) < 60 else f"<{len(str(value))} characters>"
    parts = []
    for field in fields(value):
        item = getattr(value, field.name)
        if field.name == "error":
            parts.append(item.name)
        elif item != field.default:
            parts.append(f"{field.name}={show(item)}")
    return " ".join(parts)


def show_record(key: bytes, value: bytes | None) -> str:
    of_consumer_group = show_consumer_record(key, value)
    if of_consumer_group is not None:
        return of_consumer_group
    match decode_key(key):
        case GroupMetadataKey(group_id) if value is None:
            return f"tombstone of {group_id}"
        case GroupMetadataKey(group_id):
            group = decode_group_metadata(value or b"")
            members = ", ".join(f"{m.member_id}={show(m.assignment)}" for m in group.members)
            return f"{group_id} generation {group.generation} leader {group.leader} members [{members}]"
        case OffsetCommitKey(group_id, topic, partition) if value is None:
            return f"tombstone of {group_id} {topic}/{partition}"
        case OffsetCommitKey(group_id, topic, partition):
            return f"{group_id} {topic}/{partition}={decode_offset(value or b'').offset}"
        case other:
            return f"key version {other}"


def replay(text: str) -> str:
    """Runs the events of a transcript and returns it with the effects that followed now."""
    stage = Stage()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += ["    " + said for said in stage.run(line)]
    return "\n".join(lines) + "\n"
