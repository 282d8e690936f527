"""Runs a script against a share partition whose state is kept by a share-state shard, and writes down what happens.

A line of a transcript is a command; indented lines are what followed, last the records in flight: `0-4 Acquired #1 m1`
were delivered once and are held by m1, `!` marks what waits for a write. Writes are durable at once, unless `hold` was
said: then `written` and `fail ERROR` tell the outcome of the oldest one. `log 0-4 5-9` says which batches the log has,
`abort 5-9` which of them were aborted. `ack m1 0-4:1 5-6:1,2` acknowledges two runs, the second record by record.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kohort.share.partition import (
    AcknowledgedRange,
    OffsetSpan,
    ShareLimits,
    SharePartition,
    ShareStateWrite,
    WantedRecords,
)
from kohort.share.state import SharePartitionKey
from kohort.share.state_events import (
    AppendShareState,
    InitializeState,
    PruneShareState,
    PruningDue,
    ReadState,
    ShareStateDurable,
    ShareStateEvent,
    ShareStateLoadBegun,
    ShareStateLoadEnded,
    ShareStateNotWritten,
    ShareStateRecord,
    ShareStateReply,
    ShareStatesRead,
    SnapshotsDue,
    StateAnswer,
    WriteState,
)
from kohort.share.state_shard import ShareStateShard, StateSettings
from kohort.wire.errors import ErrorCode

KEY = SharePartitionKey("g", bytes(16), 0)
START_MS = 1_000_000


class Stage:
    """A share partition, its log, and the coordinator that keeps its state."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.limits: dict[str, Any] = {}
        self.settings: dict[str, int] = {}
        self.batches: list[OffsetSpan] = []
        self.aborted: list[OffsetSpan] = []
        self.records: list[ShareStateRecord] = []
        self.held: deque[tuple[AppendShareState, int]] | None = None
        self.epoch = 0
        self.leader_epoch = 0
        self.state_epoch = 0
        self.lines: list[str] = []
        self.part = SharePartition(0)
        self.shard = ShareStateShard(0, StateSettings(), lambda topic_id, index: True)
        self.do_restart([])
        self.step(InitializeState(None, KEY, 0, 0))
        self.do_load([])
        self.lines = []

    @property
    def share_limits(self) -> ShareLimits:
        return ShareLimits(**self.limits)

    def say(self, line: str) -> None:
        self.lines.append(line)

    # ---- the coordinator

    def step(self, event: ShareStateEvent) -> None:
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case AppendShareState():
                    if self.held is None:
                        self.durable(effect)
                    else:
                        self.held.append((effect, len(self.records)))
                case ShareStateReply(request, answer):
                    if callable(request):
                        request(answer)
                    elif answer.error:
                        self.say(f"coordinator: {answer.error.name}")
                case PruneShareState(offset):
                    self.say(f"prune below {offset} of {len(self.records)}")

    def durable(self, append: AppendShareState) -> None:
        base = len(self.records)
        for number, (key, value) in enumerate(append.records):
            self.records.append(ShareStateRecord(base + number, key, value))
        self.step(ShareStateDurable(append.token, base))

    def persist(self, write: ShareStateWrite, who: str = "") -> None:
        states = " ".join(f"{f}-{last}:{state}#{count}" for f, last, state, count in write.batches)
        self.say(f"write start {write.start_offset} done {write.delivery_complete_count} {states}".rstrip())
        for letter in write.dead_letters:
            self.say(f"dead {letter.first}-{letter.last} #{letter.delivery_count} {letter.reason}")

        def done(answer: StateAnswer) -> None:
            wakes = self.part.written(write, answer.error, self.share_limits, self.now_ms)
            if who:
                self.say(f"{who}: {answer.error.name}")
            if wakes:
                self.say("wakes")

        self.step(
            WriteState(
                done,
                KEY,
                self.state_epoch,
                self.leader_epoch,
                write.start_offset,
                write.delivery_complete_count,
                write.batches,
            )
        )

    # ---- the script

    def run(self, line: str) -> list[str]:
        self.lines = []
        verb, *words = line.split()
        getattr(self, "do_" + verb.replace("-", "_"))(words)
        if verb not in ("set", "log", "abort", "hold", "release", "at", "prune", "snapshots"):
            self.show()
        return self.lines

    def show(self) -> None:
        spans = []
        for info in self.part.records:
            text = f"{info.first}-{info.last} {info.state.name.capitalize()} #{info.delivery_count}"
            spans.append(
                " ".join([text, info.member_id] if info.member_id else [text]) + "!" * info.is_pending
            )
        place = f"[{self.part.start_offset}..{self.part.end_offset}] next {self.part.next_fetch_offset()}"
        self.say(f"{place}: " + "; ".join(spans) if spans else place)

    def do_set(self, words: list[str]) -> None:
        for word in words:
            name, value = word.split("=")
            if name in ("updates_per_snapshot", "cold_snapshot_ms"):
                self.settings[name] = int(value)
                self.shard.settings = StateSettings(**self.settings)
            else:
                self.limits[name] = int(value)

    def do_log(self, words: list[str]) -> None:
        self.batches = ranges(words)

    def do_abort(self, words: list[str]) -> None:
        self.aborted = ranges(words)

    def do_fetch(self, words: list[str]) -> None:
        member, *rest = words
        options = dict(word.split("=") for word in rest)
        offset = self.part.next_fetch_offset()
        if not self.part.can_acquire(self.share_limits):
            self.say(f"{member}: all locks are taken")
            return
        most_batches = int(options.get("batches", 100))
        fetched = [b for b in self.batches if b.last >= offset][:most_batches]
        wanted = WantedRecords(
            int(options.get("max", 500)), int(options.get("size", 500)), options.get("mode") == "limit"
        )
        got = self.part.acquire(member, offset, fetched, wanted, self.share_limits, self.now_ms, self.aborted)
        self.say(
            f"{member} from {offset}: " + " ".join(f"{f}-{last}#{count}" for f, last, count in got.acquired)
        )
        if got.write is not None:
            self.persist(got.write)

    def do_ack(self, words: list[str]) -> None:
        member, *rest = words
        runs = []
        for word in rest:
            offsets, types = word.split(":")
            (run,) = ranges([offsets])
            runs.append(AcknowledgedRange(run.first, run.last, [int(t) for t in types.split(",")]))
        answer = self.part.acknowledge(member, runs, self.share_limits, self.now_ms)
        if isinstance(answer, ShareStateWrite):
            self.persist(answer, member)
        else:
            self.say(f"{member}: {answer.name}")

    def do_close(self, words: list[str]) -> None:
        write = self.part.release(words[0], self.share_limits)
        if write is not None:
            self.persist(write, words[0])

    def do_at(self, words: list[str]) -> None:
        until = self.now_ms + int(words[0])
        while (due := self.part.next_deadline_ms) is not None and due <= until:
            self.now_ms = due
            write = self.part.expire(self.share_limits, due)
            if write is not None:
                self.say(f"expired at +{due - START_MS}")
                self.persist(write)
        self.now_ms = until

    def do_log_start(self, words: list[str]) -> None:
        write = self.part.log_starts_at(int(words[0]))
        if write is not None:
            self.persist(write)

    def do_hold(self, words: list[str]) -> None:
        self.held = deque()

    def do_release(self, words: list[str]) -> None:
        self.held = None

    def do_written(self, words: list[str]) -> None:
        assert self.held is not None
        append, _ = self.held.popleft()
        held, self.held = self.held, None
        self.durable(append)
        self.held = held

    def do_fail(self, words: list[str]) -> None:
        assert self.held is not None
        append, _ = self.held.popleft()
        self.held.clear()
        self.step(ShareStateNotWritten(append.token, ErrorCode[words[0]]))

    def do_snapshots(self, words: list[str]) -> None:
        self.step(SnapshotsDue())

    def do_prune(self, words: list[str]) -> None:
        self.step(PruningDue())

    def do_initialize(self, words: list[str]) -> None:
        """`initialize EPOCH START`: what AlterShareGroupOffsets does."""
        self.step(InitializeState(None, KEY, int(words[0]), int(words[1])))

    def do_restart(self, words: list[str]) -> None:
        """Loads the coordinator from its log."""
        self.epoch += 1
        self.step(ShareStateLoadBegun(self.epoch))
        self.step(ShareStatesRead(self.epoch, list(self.records)))
        self.step(ShareStateLoadEnded(self.epoch))

    def do_load(self, words: list[str]) -> None:
        """Loads the share partition, as a new leader if there is a word."""
        if words:
            self.leader_epoch += 1

        def read(answer: StateAnswer) -> None:
            if answer.state is None:
                self.say(f"read: {answer.error.name}")
                return
            self.state_epoch = answer.state.state_epoch
            self.part = SharePartition(max(answer.state.start_offset, 0), answer.state.batches)

        self.step(ReadState(read, KEY, self.leader_epoch))

    def do_old_leader(self, words: list[str]) -> None:
        self.leader_epoch -= 1


def ranges(words: list[str]) -> list[OffsetSpan]:
    found = []
    for word in words:
        first, _, last = word.partition("-")
        found.append(OffsetSpan(int(first), int(last or first)))
    return found


def replay(text: str) -> str:
    """Runs the commands of a transcript and returns it with what follows now."""
    stage = Stage()
    out = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        out.append(line)
        if line and not line.startswith("#"):
            out += ["    " + said for said in stage.run(line)]
    return "\n".join(out) + "\n"
