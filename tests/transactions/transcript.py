"""Runs a script of requests against a transaction shard, and writes down what it does.

A line of a transcript is a command; indented lines are what followed. `init a` is InitProducerId of the transactional
id `a`; the stage remembers the producer id and epoch that were given, and the next commands use them. Writes are
durable at once, unless `hold` was said: then `written` and `fail ERROR` tell the outcome of the oldest one. Markers are
answered by `marked` and `marked ERROR`, or at once after `auto-markers`.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import fields, replace
from typing import Any

from kohort.transactions import effects as ef
from kohort.transactions import events as ev
from kohort.transactions.metadata import (
    TopicPartition,
    decode_id,
    decode_metadata,
    encode_id,
    encode_metadata,
)
from kohort.transactions.settings import TransactionSettings
from kohort.transactions.shard import TransactionShard
from kohort.wire.errors import ErrorCode

START_MS = 1_000_000


class Stage:
    """A shard with a log in memory, a clock and the producers that use it."""

    def __init__(self) -> None:
        self.settings: dict[str, int] = {}
        self.shard = TransactionShard(0, TransactionSettings())
        self.now_ms = START_MS
        self.log: list[ev.StateRecord] = []
        self.timers: list[tuple[int, int, ef.SetTransactionTimer]] = []
        self.timers_set = 0
        self.events: deque[ev.TransactionEvent] = deque()
        self.held: deque[ef.AppendStates] | None = None
        self.markers: deque[ef.SendMarkers] = deque()
        self.marks_at_once = False
        self.next_producer_id = 1000
        self.epoch = 0
        self.producers: dict[str, tuple[int, int]] = {}
        self.lines: list[str] = []
        self.do_load([], {})
        self.lines = []

    def step(self, event: ev.TransactionEvent) -> None:
        self.events.append(event)
        while self.events:
            for effect in self.shard.step(self.events.popleft(), self.now_ms):
                self.carry_out(effect)

    def carry_out(self, effect: ef.TransactionEffect) -> None:
        match effect:
            case ef.TransactionReply(request, response):
                self.say(f"{request}: {show(response)}")
                self.learn(str(request), response)
            case ef.AppendStates(_, records):
                self.say("append " + "; ".join(show_record(r.key, r.value) for r in records))
                if self.held is None:
                    self.write(effect)
                else:
                    self.held.append(effect)
            case ef.SendMarkers():
                what = "COMMIT" if effect.commit else "ABORT"
                where = " ".join(f"{t}/{p}" for t, p in effect.partitions)
                self.say(
                    f"markers {what} {effect.producer_id}/{effect.producer_epoch} version "
                    f"{effect.transaction_version} coordinator {effect.coordinator_epoch}: {where}"
                )
                self.markers.append(effect)
                if self.marks_at_once:
                    self.answer_markers(ErrorCode.NONE)
            case ef.SetTransactionTimer(kind, deadline_ms):
                self.timers_set += 1
                heapq.heappush(self.timers, (deadline_ms, self.timers_set, effect))
                if kind is ev.TransactionTimer.RETRY:
                    self.say(f"timer {kind.value} at +{deadline_ms - START_MS}")
            case ef.ProducerIdNeeded(request):
                self.next_producer_id += 1
                self.events.appendleft(replace(request, fresh_producer_id=self.next_producer_id))
            case ef.StateLoadFailed(_, message):
                self.say(f"load failed: {message}")

    def write(self, append: ef.AppendStates) -> None:
        for record in append.records:
            self.log.append(ev.StateRecord(len(self.log), record.key, record.value))
        self.events.append(ev.StateDurable(append.token))

    def answer_markers(self, error: ErrorCode, only: TopicPartition | None = None) -> None:
        sent = self.markers.popleft()
        errors = tuple((p, error if only in (None, p) else ErrorCode.NONE) for p in sent.partitions)
        self.events.append(
            ev.MarkersAnswered(sent.transactional_id, sent.producer_id, sent.producer_epoch, errors)
        )

    def learn(self, request: str, response: Any) -> None:
        if isinstance(response, ef.ProducerIdAnswer) and not response.error and response.producer_id >= 0:
            self.producers[request.split(" ")[1]] = (response.producer_id, response.producer_epoch)

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

    def who(self, name: str, options: dict[str, str]) -> tuple[int, int]:
        """The id and epoch of a producer; `epoch=-1` in a command is relative, as in `epoch=+1`."""
        producer_id, epoch = self.producers.get(name, (0, 0))
        if "epoch" in options:
            told = options["epoch"]
            epoch = epoch + int(told) if told[0] in "+-" else int(told)
        return int(options.get("pid", producer_id)), epoch

    def do_set(self, names: list[str], options: dict[str, str]) -> None:
        self.settings.update({k: int(v) for k, v in options.items()})
        self.shard.settings = TransactionSettings(**self.settings)

    def do_at(self, names: list[str], options: dict[str, str]) -> None:
        until = self.now_ms + int(names[0])
        while self.timers and self.timers[0][0] <= until:
            deadline_ms, _, timer = heapq.heappop(self.timers)
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(ev.TransactionTimerFired(timer.kind, timer.deadline_ms))
        self.now_ms = until

    def do_init(self, names: list[str], options: dict[str, str]) -> None:
        """With `again`: as a producer that goes on after an error, and tells its id and epoch."""
        name = names[0] if names else ""
        given = self.who(name, options) if "again" in names or "pid" in options else (-1, -1)
        if "half" in names:
            given = (7, -1)
        self.step(ev.InitProducerId(f"init {name}", name, int(options.get("timeout", 60_000)), *given))

    def do_add(self, names: list[str], options: dict[str, str]) -> None:
        self.add(names, options, verify_only=False)

    def do_verify(self, names: list[str], options: dict[str, str]) -> None:
        self.add(names, options, verify_only=True)

    def add(self, names: list[str], options: dict[str, str], *, verify_only: bool) -> None:
        name, verb = ("" if "/" in names[0] else names[0]), "verify" if verify_only else "add"
        partitions = frozenset(place(n) for n in names if "/" in n)
        producer = self.who(name, options)
        self.step(ev.AddPartitionsToTxn(f"{verb} {name}", name, *producer, partitions, verify_only))

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        self.end(names, options, commit=True)

    def do_abort(self, names: list[str], options: dict[str, str]) -> None:
        self.end(names, options, commit=False)

    def end(self, names: list[str], options: dict[str, str], *, commit: bool) -> None:
        verb = "commit" if commit else "abort"
        name = names[0] if names else ""
        producer = self.who(name, options)
        self.step(ev.EndTxn(f"{verb} {name}", name, *producer, commit, "v5" in names))

    def do_describe(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.DescribeTransaction("describe", names[0] if names else ""))

    def do_list(self, names: list[str], options: dict[str, str]) -> None:
        states = frozenset(options["states"].split(",")) if "states" in options else frozenset()
        ids = frozenset({int(options["pid"])}) if "pid" in options else frozenset[int]()
        self.step(ev.ListTransactions("list", states, ids, int(options.get("longer", -1))))

    def do_hold(self, names: list[str], options: dict[str, str]) -> None:
        self.held = deque()

    def do_release(self, names: list[str], options: dict[str, str]) -> None:
        self.held = None

    def do_written(self, names: list[str], options: dict[str, str]) -> None:
        assert self.held is not None
        self.write(self.held.popleft())
        self.step(self.events.popleft())

    def do_fail(self, names: list[str], options: dict[str, str]) -> None:
        assert self.held is not None
        self.step(ev.StateNotWritten(self.held.popleft().token, ErrorCode[names[0]]))

    def do_auto_markers(self, names: list[str], options: dict[str, str]) -> None:
        self.marks_at_once = True

    def do_marked(self, names: list[str], options: dict[str, str]) -> None:
        """`marked ERROR t/0`: the error is of that partition alone."""
        error = ErrorCode[names[0]] if names else ErrorCode.NONE
        self.answer_markers(error, place(names[1]) if len(names) > 1 else None)
        self.step(self.events.popleft())

    def do_epoch(self, names: list[str], options: dict[str, str]) -> None:
        """Lets a producer be near its last epoch, as a record of the log says."""
        metadata = self.shard.durable.known[names[0]]
        record = (encode_id(names[0]), encode_metadata(metadata._replace(producer_epoch=int(names[1]))))
        self.log.append(ev.StateRecord(len(self.log), *record))
        self.producers[names[0]] = (metadata.producer_id, int(names[1]))
        self.do_load([], {})

    def do_load(self, names: list[str], options: dict[str, str]) -> None:
        self.do_begin_load([], {})
        self.do_end_load([], {})

    def do_begin_load(self, names: list[str], options: dict[str, str]) -> None:
        self.epoch += 1
        self.step(ev.StateLoadBegun(self.epoch))

    def do_end_load(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.StatesRead(self.epoch, tuple(self.log)))
        self.step(ev.StateLoadEnded(self.epoch))

    def do_lose(self, names: list[str], options: dict[str, str]) -> None:
        self.step(ev.StatePartitionLost())

    def do_damage(self, names: list[str], options: dict[str, str]) -> None:
        """A record as some other version would write it: of a newer key, a newer value, or cut off."""
        key = b"\x00\x01?" if names[0] == "key" else b"\x00\x00\x00\x01z"
        value = {"key": b"", "value": b"\x00\x09", "cut": b"\x00\x01\x00"}[names[0]]
        self.log.append(ev.StateRecord(len(self.log), key, value))


def place(text: str) -> TopicPartition:
    topic, _, partition = text.partition("/")
    return topic, int(partition)


def show(value: Any) -> str:
    """A response as `ERROR field=value`, without what has its default."""
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "(" + " ".join(show(v) for v in value) + ")"
    if isinstance(value, frozenset):
        return show(tuple(sorted(value)))
    if isinstance(value, tuple):
        return "[" + ", ".join(show(v) for v in value) + "]"
    if not hasattr(value, "__dataclass_fields__"):
        return str(value)
    parts = []
    for field in fields(value):
        item = getattr(value, field.name)
        if field.name == "error":
            parts.append(item.name)
        elif item != field.default:
            parts.append(f"{field.name}={show(item)}")
    return " ".join(parts)


def show_record(key: bytes, value: bytes | None) -> str:
    name = decode_id(key)
    if value is None:
        return f"tombstone of {name}"
    found = decode_metadata(value)
    assert found is not None
    where = "".join(f" {t}/{p}" for t, p in sorted(found.partitions))
    text = f"{name} {found.state.label} {found.producer_id}/{found.producer_epoch}{where}"
    if found.start_ms >= 0:
        text += f" start +{found.start_ms - START_MS}"
    if found.previous_producer_id not in (-1, found.producer_id):
        text += f" previous {found.previous_producer_id}"
    if found.next_producer_id != -1:
        text += f" next {found.next_producer_id}"
    return text + (f" version {found.client_version}" if found.client_version else "")


def replay(text: str) -> str:
    """Runs the commands of a transcript and returns it with the effects that followed now."""
    stage = Stage()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += ["    " + said for said in stage.run(line)]
    return "\n".join(lines) + "\n"
