"""One run with model members: some minutes of faults, then calm, in which everything must settle."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.commit_layout import LaidOutOffsets
from kohort.coordinator.effects import (
    CommitResponse,
    FetchResponse,
    HeartbeatResponse,
    HistoryChanged,
    Response,
    SyncResponse,
)
from kohort.coordinator.events import (
    DeleteGroup,
    EndLoad,
    Event,
    GroupRequest,
    Heartbeat,
    LogRecord,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Resign,
    SyncGroup,
    TimerFired,
    TimerKind,
    Token,
    TopicsDeleted,
)
from kohort.coordinator.records import decode_offset
from kohort.coordinator.replay import Durable
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import Shard, ShardStatus
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken, check_group, check_shard, check_twin
from kohort.sim.member import Ledger, MemberLayouts, SimMember
from kohort.sim.world import Disk, Observer, ShortWays, SimulatedNetwork, SimulatedNode, VirtualClock
from kohort.wire.errors import ErrorCode
from kohort.wire.group_records import decode_group_metadata, decode_key
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue
from kohort.wire.messages.offset_commit_key import OffsetCommitKey

PARTITIONS = 4
CALM_MS = 180_000
TWIN_EVERY = 200


@dataclass(slots=True)
class Report:
    """What happened in a run; runs with the same arguments give the same report, but for the last field."""

    seed: int
    members: int
    minutes: float
    rebalances: int = 0
    steps: int = 0
    messages: int = 0
    commits_acknowledged: int = 0
    writes: int = 0
    restarts: int = 0
    resignations: int = 0
    short_ways: int = 0
    """Requests that took a short way of the coordinator."""
    outcomes: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0

    def __str__(self) -> str:
        per_second = self.rebalances / self.cpu_seconds if self.cpu_seconds else 0.0
        return (
            f"seed {self.seed}: {self.members} members, {self.minutes} minutes: {self.rebalances} rebalances, "
            f"{self.steps} steps ({self.short_ways} by a short way), {self.commits_acknowledged} commits, "
            f"{self.writes} records, "
            f"{self.restarts} restarts, {self.resignations} resignations, all invariants held; "
            f"{self.cpu_seconds:.1f} CPU s, {per_second:.0f} rebalances/s"
        )


def run(
    seed: int,
    members: int = 12,
    minutes: float = 10,
    faults: FaultRates | None = None,
    *,
    short_ways: float | None = None,
) -> Report:
    """Raises Broken, with the seed in its message, as soon as an invariant does not hold.

    `short_ways` is the part of the requests that try a short way of the coordinator; without it the seed decides.
    """
    started = time.process_time()
    simulation = Simulation(seed, members, minutes, faults or FaultRates(), short_ways)
    try:
        simulation.run()
    except Broken as error:
        raise Broken(f"{error}\n{simulation.again()}") from error
    except Exception as error:
        raise Broken(f"{type(error).__name__} in the core: {error}\n{simulation.again()}") from error
    simulation.report.cpu_seconds = time.process_time() - started
    return simulation.report


def _simple_commit(offsets: Sequence[OffsetToCommit], token: Token) -> OffsetCommit:
    return OffsetCommit(token, "simple", offsets)


class Simulation:
    """One run of the coordinator with model members."""

    def __init__(
        self, seed: int, members: int, minutes: float, faults: FaultRates, short_ways: float | None = None
    ) -> None:
        self.random = Random(seed)
        self.ways = ShortWays(seed, short_ways)
        self.faults = faults
        self.minutes = minutes
        self.report = Report(seed, members, minutes)
        self.loaded_ms = [0] * PARTITIONS  # when each was last loaded
        self.clock = VirtualClock()
        self.disk = Disk(self.clock, self.random, PARTITIONS)
        self.disk.on_written = self._written
        self.disk.is_at_once = self.ways.disk_is_at_once
        settings = self._settings(members)
        observer = Observer(self._before, self._after, self._replied, self._history)
        self.node = SimulatedNode(self.clock, self.random, settings, self.disk, observer, self.ways)
        self.network = SimulatedNetwork(self.clock, self.random, self.node)
        self.ledger = Ledger()
        self.simple_commits = MemberLayouts("simple", 0)
        groups = max(1, members // 5)
        self.members = [self._member(number, groups) for number in range(members)]
        self.twins = [Durable() for _ in range(PARTITIONS)]
        self.committed: dict[OffsetCommitKey, int] = {}
        self.commits_in_log: set[tuple[OffsetCommitKey, int]] = set()
        self.last_record: dict[str, GroupMetadataValue] = {}
        self._asked: GroupRequest | None = None
        self._group_before: tuple[Group | None, int, GroupState | None, frozenset[str]] = (
            None, -1, None, frozenset(),
        )  # fmt: skip

    def _settings(self, members: int) -> Settings:
        return Settings(
            offsets_topic_num_partitions=PARTITIONS,
            group_initial_rebalance_delay_ms=self.random.choice((0, 500)),
            group_max_size=self.random.choice((1_000, max(2, members // 2))),
            offsets_retention_minutes=5,
            offsets_retention_check_interval_ms=60_000,
        )

    def _member(self, number: int, groups: int) -> SimMember:
        instance = f"static{number}" if self.random.random() < 0.3 else None
        return SimMember(
            number, f"group{number % groups}", instance, self.clock, self.random, self.network,
            self.ledger, self.faults, self.random.choice((6_000, 8_000)), self.random.choice((6_000, 12_000)),
        )  # fmt: skip

    def again(self) -> str:
        """Returns the command that repeats the run."""
        report, rates = self.report, ",".join(f"{n}={getattr(self.faults, n)}" for n in FaultRates.__slots__)
        return (
            f"  at {self.clock.now_ms} ms; the same again: kohort sim --seed {report.seed} "
            f"--members {report.members} --minutes {report.minutes} --faults {rates}"
        )

    # ---- the course of a run

    def run(self) -> None:
        self.node.start()
        self.disk.faults = self.network.faults = self.faults
        for member in self.members:
            self.clock.after(self.random.randint(0, 3_000), member.join)
        end_ms = int(self.minutes * 60_000)
        self.clock.after(1_000, lambda: self._trouble(end_ms))
        self.clock.run_until(end_ms)
        self._calm_down()
        self.clock.run_until(end_ms + CALM_MS)
        self._check_calm()
        self.report.messages = self.network.messages
        self.report.restarts = self.node.restarts
        self.report.short_ways = self.ways.taken

    def _trouble(self, end_ms: int) -> None:
        """Makes faults happen, once per virtual second."""
        if self.clock.now_ms >= end_ms:
            return
        roll, faults = self.random.random, self.faults
        for member in self.members:
            if roll() < faults.churn:
                if member.alive:
                    member.churn()
                else:
                    member.alive = True
                    member.member_id = ""
                    member.join()
            elif roll() < 0.1:
                member.commit()
        if self.node.up and roll() < faults.crash:
            self.node.crash()
            self.clock.after(
                self.random.randint(100, 5_000), lambda: self.node.start(self.random.randint(0, 2_000))
            )
        elif self.node.up and roll() < faults.resign:
            self._move_partition()
        if roll() < 0.02:
            self._administer()
        self._fetch()
        self._commit_without_a_group()
        self.clock.after(1_000, lambda: self._trouble(end_ms))

    def _move_partition(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        self.report.resignations += 1
        self.node.resign(partition)
        runtime = self.node.runtime

        def back() -> None:
            if self.node.up and self.node.runtime is runtime:
                self.node.load(partition, self.random.randint(0, 1_000))

        self.clock.after(self.random.randint(10, 3_000), back)

    def _administer(self) -> None:
        group_id = self.random.choice(self.members).group_id
        if self.random.random() < 0.5:
            self.network.send(lambda token: DeleteGroup(token, group_id), lambda _: None)
        else:
            for partition in range(PARTITIONS):
                self.node.handle(partition, TopicsDeleted(("t",)))

    def _fetch(self) -> None:
        group_id = self.random.choice(self.members).group_id
        self.network.send(lambda token: OffsetFetch(token, group_id, None), lambda _: None)

    def _commit_without_a_group(self) -> None:
        """Commits as a consumer that only stores its offsets, and sometimes deletes the group meanwhile."""
        layout = self.simple_commits.chosen(self.ways.random)
        for delay_ms in self.ways.burst():
            offsets: Sequence[OffsetToCommit]
            if self.ways.chosen():
                offsets = LaidOutOffsets(layout, tuple(self.ledger.next() for _ in layout.keys))
            else:
                offsets = (OffsetToCommit("t", self.random.randint(0, 2), self.ledger.next()),)
            send = partial(self.network.send, partial(_simple_commit, offsets), lambda _: None)
            if delay_ms:
                self.clock.after(delay_ms, send)
            else:
                send()
        if self.random.random() < 0.1:
            self.network.send(lambda token: DeleteGroup(token, "simple"), lambda _: None)

    def _one_dies(self) -> None:
        """Ends one member in the calm, without a leave: the others must get what it had."""
        self.random.choice(self.members).alive = False

    def _calm_down(self) -> None:
        """Ends all faults; members that hang or are dead stay so, and the coordinator must cope with that."""
        self.disk.faults = self.network.faults = FaultRates.none()
        if not self.node.up:
            self.clock.after(5_000, lambda: None if self.node.up else self.node.start())
        for partition, shard in enumerate(self.node.runtime.shards if self.node.up else []):
            if shard.status is ShardStatus.NOT_LOADED:
                self.node.load(partition, 0)
        for member in self.members:
            member.silent_until_ms = 0
            member.recovers = True
        self.clock.after(CALM_MS // 2, self._one_dies)

    # ---- what is checked, step by step

    def _shard(self, partition: int) -> Shard:
        return self.node.runtime.shards[partition]

    def _before(self, partition: int, event: Event) -> None:
        group_id = getattr(event, "group_id", None)
        group = self._shard(partition).groups.get(group_id) if group_id else None
        if group is None:
            self._group_before = (None, -1, None, frozenset())
        else:
            self._group_before = (group, group.generation_id, group.state, frozenset(group.members))

    def _after(self, partition: int, event: Event) -> None:
        self.report.steps += 1
        shard = self._shard(partition)
        if isinstance(event, EndLoad):
            self.loaded_ms[partition] = self.clock.now_ms
        elif isinstance(event, Resign):
            self._check_all_answered(partition)
        group_id = getattr(event, "group_id", None)
        if group_id:
            group = shard.groups.get(group_id)
            # Two thirds of all steps are heartbeats, and those move a deadline only.
            if group is not None and (not isinstance(event, Heartbeat) or self.report.steps % 16 == 0):
                check_group(shard, group)
                self._check_generation(event, group)
            if isinstance(event, SyncGroup | Heartbeat | OffsetCommit):
                self._check_accepted(event, shard)
        else:
            check_shard(shard)
        if self.report.steps % TWIN_EVERY == 0 and shard.status is ShardStatus.ACTIVE:
            check_twin(shard, self.twins[partition])

    def _check_all_answered(self, partition: int) -> None:
        """Checks that no request waits for a partition that has moved away."""
        for request, _ in self.node.open.values():
            if self.node.partition_of(request.group_id or "") == partition:
                raise Broken(f"partition {partition} moved away, and this was not answered: {request}")

    def _check_generation(self, event: Event, group: Group) -> None:
        before, generation, state, _ = self._group_before
        if before is not group:
            return
        if group.generation_id < generation:
            raise Broken(f"{group.group_id}: generation went back from {generation}")
        by_timer = isinstance(event, TimerFired) and event.kind is TimerKind.JOIN
        began = group.generation_id > generation and state is not GroupState.EMPTY and bool(group.members)
        if began and not by_timer and group.pending_joins:
            raise Broken(
                f"{group.group_id}: generation {group.generation_id} began though "
                f"{list(group.pending_joins)} were told to come"
            )

    def _check_accepted(self, event: SyncGroup | Heartbeat | OffsetCommit, shard: Shard) -> None:
        """Checks that what was not refused was of the current generation and of a member."""
        _, generation, state, members = self._group_before
        if shard.status is not ShardStatus.ACTIVE or (
            event.request not in self.node.open and self._asked is not event
        ):
            return
        self._asked = None
        if event.generation_id < 0:
            return
        is_commit_in_completing = isinstance(event, OffsetCommit) and state is GroupState.COMPLETING_REBALANCE
        if event.generation_id != generation or event.member_id not in members or is_commit_in_completing:
            raise Broken(
                f"{type(event).__name__} of {event.member_id} in generation {event.generation_id} was accepted, "
                f"{event.group_id} was {state} in generation {generation} with {sorted(members)}"
            )

    def _replied(self, request: GroupRequest, response: Response) -> None:
        match response:
            case SyncResponse(error) | HeartbeatResponse(error):
                self._asked = request if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) else None
                if self._refusal_may_hide_a_stranger(request, error):
                    self._asked = None
                elif isinstance(request, Heartbeat) and error is ErrorCode.NONE:
                    self._check_heartbeat(request)
            case CommitResponse(errors) if isinstance(request, OffsetCommit):
                self._asked = request if ErrorCode.NONE in errors else None
                for item, error in zip(request.offsets, errors, strict=True):
                    if error is ErrorCode.NONE:
                        assert request.group_id is not None
                        key = OffsetCommitKey(request.group_id, item.topic, item.partition)
                        self.report.commits_acknowledged += 1
                        if (key, item.offset) not in self.commits_in_log:
                            raise Broken(
                                f"a commit of {item.offset} for {key} was acknowledged, but is not in the log"
                            )
            case FetchResponse(ErrorCode.NONE, group_id, topics):
                self._check_fetched(group_id, topics)

    def _check_heartbeat(self, request: Heartbeat) -> None:
        """Checks that a member whose heartbeat is good has nothing to do but to go on."""
        assert request.group_id is not None
        group = self._shard(self.node.partition_of(request.group_id)).groups.get(request.group_id)
        if group is None or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            raise Broken(f"a heartbeat of {request.member_id} is good, but the group is {group}")

    def _refusal_may_hide_a_stranger(self, request: GroupRequest, error: ErrorCode) -> bool:
        """Whether a partition is loading: then no member is known, so none is checked."""
        partition = self.node.partition_of(request.group_id or "")
        return self._shard(partition).status is not ShardStatus.ACTIVE

    def _check_fetched(self, group_id: str, topics: tuple[tuple[str, tuple[object, ...]], ...]) -> None:
        fetched = {
            OffsetCommitKey(group_id, topic, item.partition): item.offset  # type: ignore[attr-defined]
            for topic, items in topics
            for item in items
        }
        expected = {key: offset for key, offset in self.committed.items() if key.group == group_id}
        if fetched != expected:
            raise Broken(f"{group_id} was told {fetched}, the log says {expected}")

    def _history(self, changed: HistoryChanged) -> None:
        rebalance = changed.rebalance
        if rebalance.generation_after is None and rebalance.outcome == "running":
            self.report.rebalances += 1
        elif rebalance.outcome != "running":
            self.report.outcomes[rebalance.outcome] += 1

    # ---- what is checked in the log

    def _written(self, partition: int, record: LogRecord) -> None:
        self.report.writes += 1
        self.twins[partition].apply(record)
        assert record.key is not None
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey):
            if record.value is None:
                self.committed.pop(key, None)
            else:
                self.committed[key] = decode_offset(record.value).offset
                self.commits_in_log.add((key, self.committed[key]))
        elif isinstance(key, GroupMetadataKey):
            self._check_record(
                key.group, None if record.value is None else decode_group_metadata(record.value)
            )

    def _check_record(self, group_id: str, record: GroupMetadataValue | None) -> None:
        """Checks that generations only grow, also across restarts, and that one generation has one assignment."""
        before = self.last_record.get(group_id)
        if record is None:
            self.last_record.pop(group_id, None)
            return
        self.last_record[group_id] = record
        if before is None or record.generation > before.generation:
            return
        if record.generation != before.generation:
            raise Broken(f"{group_id}: generation {record.generation} was written after {before.generation}")
        ours = {m.group_instance_id or m.member_id: m.assignment for m in record.members}
        theirs = {m.group_instance_id or m.member_id: m.assignment for m in before.members}
        if ours != theirs:
            raise Broken(f"{group_id}: generation {record.generation} was given {theirs}, then {ours}")

    # ---- at the end

    def _is_forgotten_debt(self, member: SimMember) -> bool:
        """Whether it owes a sync that the coordinator has forgotten: with good heartbeats it stays, in Kafka as well.

        No record says which members have synced, so a load forgets it; and so does the return of a static member under
        a new id while the group is Stable. Only a client that is broken for good gets here.
        """
        if member.stuck != "sync":
            return False
        loaded_ms = self.loaded_ms[self.node.partition_of(member.group_id)]
        return member.group_instance_id is not None or member.joined_ms < loaded_ms

    def _check_calm(self) -> None:
        if self.node.open:
            raise Broken(f"never answered: {[r for r, _ in self.node.open.values()]}")
        expected: dict[str, set[str]] = {}
        for member in self.members:
            if member.alive and self.node.settings.group_max_size >= 1_000:
                if not member.stable and not self._is_forgotten_debt(member):
                    raise Broken(f"{member.name} of {member.group_id} did not become stable in the calm")
                expected.setdefault(member.group_id, set()).add(member.member_id)
        for partition, shard in enumerate(self.node.runtime.shards):
            if shard.writes:
                raise Broken(f"partition {partition} still writes")
            check_shard(shard)
            check_twin(shard, self.twins[partition])
            for group in shard.groups.values():
                if group.state not in (GroupState.STABLE, GroupState.EMPTY):
                    raise Broken(f"{group.group_id} is {group.state.value} after the calm")
                there, want = set(group.members), expected.get(group.group_id, set())
                if there != want and self.node.settings.group_max_size >= 1_000:
                    raise Broken(f"{group.group_id} has {sorted(there)}, alive are {sorted(want)}")
