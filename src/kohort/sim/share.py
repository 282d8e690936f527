"""Simulates consumers of a share group against the leader of a partition and the share coordinator, with faults.

`run_share(seed)` is one run: a stormy time in which writes fail, leaders and coordinators crash, old leaders go on, the
log is compacted and cut, and offsets are altered; then a calm one in which every record must end. One seed is one run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from kohort.share.partition import (
    AcknowledgedRange,
    OffsetSpan,
    ShareLimits,
    SharePartition,
    ShareStateWrite,
    WantedRecords,
)
from kohort.share.record_state import ACCEPT, GAP, REJECT, RELEASE, RENEW
from kohort.share.state import NO_OFFSET, SharePartitionKey
from kohort.share.state_events import (
    AppendShareState,
    InitializeState,
    PruneShareState,
    PruningDue,
    ReadState,
    ReadStateSummary,
    ShareStateDurable,
    ShareStateEvent,
    ShareStateLoadBegun,
    ShareStateLoadEnded,
    ShareStateLost,
    ShareStateNotWritten,
    ShareStateRecord,
    ShareStateReply,
    ShareStatesRead,
    SnapshotsDue,
    StateAnswer,
    WriteState,
)
from kohort.share.state_shard import ShareStateShard, StateSettings
from kohort.sim.invariants import Broken
from kohort.sim.share_witness import ShareWitness
from kohort.wire.errors import ErrorCode

_KEY = SharePartitionKey("g", bytes(16), 0)
_MOST_IN_A_BATCH = 9
_MEMBERS = ("m1", "m2", "m3")


@dataclass(frozen=True, slots=True)
class ShareReport:
    seed: int
    records: int
    deliveries: int
    accepted: int
    crashes: int

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.records} records, {self.deliveries} deliveries, {self.accepted} acknowledged, "
            f"{self.crashes} crashes"
        )


class _Leader:
    """A leader of the partition, with what it thinks of itself."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.state_epoch = 0
        self.part: SharePartition | None = None
        self.has_failed = False


class ShareStorm:
    """The log, the coordinator, the leaders and the consumers of one run."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now_ms = 1_000_000
        chance = self.chance
        self.limits = ShareLimits(
            delivery_count_limit=chance.choice((2, 3, 5, 6)),
            record_lock_ms=1000,
            max_record_locks=chance.choice((10, 40, 200)),
        )
        self.witness = ShareWitness(self.limits)
        self.batches: list[OffsetSpan] = []
        self.aborted: list[OffsetSpan] = []
        self.end = 0
        self.crashes = 0
        self.records: list[ShareStateRecord] = []
        self.pruned_to = 0
        self.appends: deque[AppendShareState] = deque()
        self.load_epoch = self.group_epoch = 0
        self.is_calm = False
        settings = StateSettings(updates_per_snapshot=chance.choice((1, 3, 20)), cold_snapshot_ms=5000)
        self.shard = ShareStateShard(0, settings, lambda topic_id, index: True)
        self.leader = _Leader(0)
        self.zombie: _Leader | None = None
        self.load_coordinator()
        self.step(InitializeState(None, _KEY, 0, 0))
        self.settle()
        self.elect()

    # --- the coordinator ---------------------------------------------------------------------------

    def step(self, event: ShareStateEvent) -> None:
        for effect in self.shard.step(event, self.now_ms):
            if isinstance(effect, AppendShareState):
                self.appends.append(effect)
            elif isinstance(effect, ShareStateReply):
                if callable(effect.request):
                    effect.request(effect.answer)
            elif isinstance(effect, PruneShareState):
                self.pruned_to = effect.offset

    def write_one(self, fails: bool) -> None:
        append = self.appends.popleft()
        if fails:
            self.appends.clear()
            self.step(ShareStateNotWritten(append.token, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        base = len(self.records)
        self.records += [
            ShareStateRecord(base + number, key, value) for number, (key, value) in enumerate(append.records)
        ]
        self.step(ShareStateDurable(append.token, base))

    def settle(self) -> None:
        while self.appends:
            self.write_one(fails=False)

    def load_coordinator(self) -> None:
        self.load_epoch += 1
        self.appends.clear()
        self.step(ShareStateLost())
        self.step(ShareStateLoadBegun(self.load_epoch))
        self.step(ShareStatesRead(self.load_epoch, self.records[self.pruned_to :]))
        self.step(ShareStateLoadEnded(self.load_epoch))

    # --- leaders -----------------------------------------------------------------------------------

    def elect(self, is_new_epoch: bool = True) -> None:
        """Begins a new leader; it serves when its state is read."""
        self.witness.leader_lost()
        leader = self.leader = _Leader(self.leader.epoch + is_new_epoch)

        def read(answer: StateAnswer) -> None:
            if leader is not self.leader:
                return
            if answer.state is None:
                leader.has_failed = True
                return
            leader.state_epoch = answer.state.state_epoch
            leader.part = SharePartition(max(answer.state.start_offset, 0), answer.state.batches)
            self.witness.loaded(leader.part)

        self.step(ReadState(read, _KEY, leader.epoch))

    def persist(
        self, leader: _Leader, write: ShareStateWrite, offsets: Mapping[int, int] | None = None
    ) -> None:
        part = leader.part
        assert part is not None
        mine = offsets or {}
        is_deposed = leader is not self.leader

        def done(answer: StateAnswer) -> None:
            if leader is not self.leader:
                if is_deposed and not answer.error:
                    raise Broken("an old leader has written")
                return
            part.written(write, answer.error, self.limits, self.now_ms)
            for offset, kind in mine.items():
                self.witness.unsure.discard(offset)
                if not answer.error:
                    self.witness.acknowledged(offset, kind != RELEASE)
            if answer.error in (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH):
                leader.has_failed = True

        self.witness.unsure |= {offset for offset, kind in mine.items() if kind != RELEASE}
        self.step(
            WriteState(
                done,
                _KEY,
                leader.state_epoch,
                leader.epoch,
                write.start_offset,
                write.delivery_complete_count,
                write.batches,
            )
        )

    # --- what happens ------------------------------------------------------------------------------

    def produce(self) -> None:
        first = self.end + (self.chance.random() < 0.1) * self.chance.randint(1, 3)
        self.witness.missing |= set(range(self.end, first))
        batch = OffsetSpan(first, first + self.chance.randint(0, _MOST_IN_A_BATCH - 1))
        self.batches.append(batch)
        if self.chance.random() < 0.1:
            self.aborted.append(batch)
            self.witness.aborted |= set(range(batch.first, batch.last + 1))
        self.end = batch.last + 1

    def fetch(self, member_id: str) -> None:
        part = self.leader.part
        if part is None or not part.can_acquire(self.limits):
            return
        offset = part.next_fetch_offset()
        fetched = [b for b in self.batches if b.last >= offset][: self.chance.randint(1, 4)]
        wanted = WantedRecords(
            self.chance.randint(1, 30), self.chance.choice((1, 5, 500)), self.chance.random() < 0.3
        )
        got = part.acquire(member_id, offset, fetched, wanted, self.limits, self.now_ms, self.aborted)
        self.witness.delivered(member_id, got.acquired, self.now_ms)
        most = wanted.max_records + (0 if wanted.is_record_limit else _MOST_IN_A_BATCH + 30)
        if got.count > most:
            raise Broken(f"{got.count} records were acquired, {wanted.max_records} were wanted")
        if got.write is not None:
            self.persist(self.leader, got.write)

    def acknowledge(self, member_id: str) -> None:
        part = self.leader.part
        if part is None:
            return
        now_ms = self.now_ms
        may = self.witness.may_acknowledge
        held = [o for o in sorted(self.witness.last) if may(member_id, o, now_ms)]
        if self.chance.random() < 0.2:  # what it held once, or never
            held = sorted(self.chance.sample(range(max(self.end, 1)), min(self.end, 4)))
        held = held[: self.chance.randint(1, 40)]
        if not held:
            return
        kinds = {offset: self._kind(offset) for offset in held}
        runs = [AcknowledgedRange(offset, offset, [kind]) for offset, kind in kinds.items()]
        before = part.records
        answer = part.acknowledge(member_id, runs, self.limits, now_ms)
        pending = {o for info in before if info.is_pending for o in range(info.first, info.last + 1)}
        in_flight = [offset for offset in held if offset >= part.start_offset]
        is_right = all(may(member_id, offset, now_ms) and offset not in pending for offset in in_flight)
        is_taken = isinstance(answer, ShareStateWrite) or answer is ErrorCode.NONE
        if is_taken != is_right:
            raise Broken(f"{member_id} acknowledged {held}: {answer!r}")
        if not is_taken:
            if part.records != before:
                raise Broken("a refused acknowledgement has changed something")
            return
        for offset in in_flight:
            if kinds[offset] == RENEW:
                self.witness.renewed(offset, now_ms)
        if isinstance(answer, ShareStateWrite):
            done = {offset: kinds[offset] for offset in in_flight if kinds[offset] != RENEW}
            self.persist(self.leader, answer, done)

    def _kind(self, offset: int) -> int:
        if offset in self.witness.missing:
            return GAP
        if self.is_calm:
            return ACCEPT
        return self.chance.choice((ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW))

    def close_session(self, member_id: str) -> None:
        part = self.leader.part
        if part is None:
            return
        write = part.release(member_id, self.limits)
        if write is not None:
            held = {o: RELEASE for first, last, _, _ in write.batches for o in range(first, last + 1)}
            self.persist(self.leader, write, held)

    def pass_time(self, ms: int) -> None:
        until = self.now_ms + ms
        part = self.leader.part
        while part is not None and (due := part.next_deadline_ms) is not None and due <= until:
            self.now_ms = max(due, self.now_ms)
            write = part.expire(self.limits, self.now_ms)
            if write is not None:
                self.persist(self.leader, write)
        self.now_ms = until

    def zombie_writes(self) -> None:
        """A leader of before does not know that it is one."""
        zombie = self.zombie
        if zombie is not None and zombie.part is not None:
            for member_id in _MEMBERS:
                write = zombie.part.release(member_id, self.limits)
                if write is not None:
                    self.persist(zombie, write)

    def depose(self) -> None:
        self.crashes += 1
        if self.leader.part is not None:
            self.zombie = self.leader
        self.elect()

    def crash(self) -> None:
        """The node stops: what is not durable is lost, and the same leader comes again."""
        self.crashes += 1
        self.zombie = None
        for _ in range(self.chance.randint(0, len(self.appends))):
            self.write_one(fails=False)  # durable, but nobody hears of some of them
        self.load_coordinator()
        self.elect(is_new_epoch=False)

    def alter(self) -> None:
        self.group_epoch += 1
        start = self.chance.randint(self._log_start(), self.end)

        def done(answer: StateAnswer) -> None:
            if not answer.error:
                self.witness.altered(start)
                self.zombie = None
                self.elect(is_new_epoch=False)

        self.settle()
        self.step(InitializeState(done, _KEY, self.group_epoch, start))
        self.settle()

    def _log_start(self) -> int:
        return self.batches[0].first if self.batches else self.end

    def compact(self) -> None:
        if len(self.batches) > 3:
            gone = self.batches.pop(self.chance.randrange(len(self.batches) - 2))
            self.witness.missing |= set(range(gone.first, gone.last + 1))

    def cut_log(self) -> None:
        for gone in self.batches[: self.chance.randint(0, 2)]:
            self.batches.remove(gone)
        start = self._log_start()
        self.witness.missing |= set(range(start))
        if self.leader.part is not None:
            write = self.leader.part.log_starts_at(start)
            if write is not None:
                self.persist(self.leader, write)

    # --- a run -------------------------------------------------------------------------------------

    def storm(self, steps: int) -> None:
        actions = (
            [self.produce] * 6
            + [lambda: self.fetch(self.chance.choice(_MEMBERS))] * 12
            + [lambda: self.acknowledge(self.chance.choice(_MEMBERS))] * 12
            + [lambda: self.close_session(self.chance.choice(_MEMBERS))] * 2
            + [lambda: self.pass_time(self.chance.choice((1, 100, 400, 1200)))] * 4
            + [lambda: self.step(SnapshotsDue()), lambda: self.step(PruningDue()), self.zombie_writes]
        )
        rare = (self.depose, self.crash, self.alter, self.compact, self.cut_log)
        for _ in range(steps):
            action = self.chance.choice(rare) if self.chance.random() < 0.03 else self.chance.choice(actions)
            action()
            while self.appends and self.chance.random() < 0.6:
                self.write_one(fails=self.chance.random() < 0.05)
            self.check()

    def check(self) -> None:
        if self.leader.has_failed:
            self.elect(is_new_epoch=False)
        if self.leader.part is not None:
            self.witness.check(self.leader.part, self.now_ms, _MOST_IN_A_BATCH)

    def calm(self) -> None:
        """Nothing fails any more: every record must end, and the lag must be 0."""
        self.is_calm = True
        for number in range(5000):
            self.settle()
            self.check()
            part = self.leader.part
            assert part is not None
            if part.start_offset >= self.end:
                self.step(ReadStateSummary(self._summary, _KEY))
                return
            self.fetch("m1")
            self.acknowledge("m1")
            if number % 20 == 19:
                self.pass_time(1200)
        raise Broken(f"not all of {self.end} records were done after a calm time: {self.leader.part}")

    def _summary(self, answer: StateAnswer) -> None:
        assert answer.state is not None
        start = answer.state.start_offset
        if self.end and start != NO_OFFSET:
            lag = self.end - start - answer.state.delivery_complete_count
            if lag != 0:
                raise Broken(f"a lag of {lag} when all is done: {answer.state}")


def run_share(seed: int, steps: int = 1000) -> ShareReport:
    """Runs one simulation; raises Broken, with the seed, when an invariant does not hold."""
    storm = ShareStorm(seed)
    try:
        storm.storm(steps)
        storm.calm()
    except (Broken, AssertionError) as error:
        raise Broken(f"share seed {seed}: {error!r}") from error
    witness = storm.witness
    return ShareReport(seed, storm.end, witness.deliveries, len(witness.accepted), storm.crashes)
