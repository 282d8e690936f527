"""Simulates groups of KIP-848: members that come, go, fall silent and commit, on a node that crashes.

`run_consumer_groups(seed)` is one run: a stormy time, in which topics come and grow too, then a calm one after which
every group must be Stable with all its partitions owned. One seed is one run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kohort.coordinator.consumer.state import ConsumerMember
from kohort.coordinator.effects import (
    Append,
    CommitResponse,
    ConsumerHeartbeatResponse,
    FetchResponse,
    Response,
)
from kohort.coordinator.events import (
    ConsumerGroupHeartbeat,
    Event,
    GroupRequest,
    LogRecord,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Token,
    TopicsChanged,
)
from kohort.coordinator.group_config import GroupConfig
from kohort.coordinator.replay import Durable
from kohort.coordinator.runtime import Done
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import ShardStatus
from kohort.coordinator.topic_catalog import CatalogTopic
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.sim.world import (
    FAILURES,
    Answered,
    Disk,
    Observer,
    ShortWays,
    SimulatedNetwork,
    SimulatedNode,
    VirtualClock,
)
from kohort.wire.errors import ErrorCode

GROUPS = ("g", "h")
_TOPICS = ("t", "u", "v")
_PATTERNS = ("t.*", "[tu]", ".*")
_TIMEOUT_MS = 3_000
_REBALANCE_TIMEOUT_MS = 10_000
_CALM_MS = 120_000
_CONFIG = GroupConfig(consumer_session_timeout_ms=15_000, consumer_heartbeat_interval_ms=2_000)
_SETTINGS = Settings(offsets_topic_num_partitions=2)
_REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
_LEAVE, _AWAY = -1, -2

Place = tuple[bytes, int]
"""A topic id and a partition."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupsReport:
    seed: int
    epochs: int
    """How often a group got a new epoch."""
    heartbeats: int
    commits: int
    fenced: int
    crashes: int

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.epochs} epochs, {self.heartbeats} heartbeats, {self.commits} commits, "
            f"{self.fenced} fenced, {self.crashes} crashes"
        )


class SimulatedTopics:
    """The topics of the world, which come, grow and go."""

    def __init__(self) -> None:
        self._topics: dict[str, CatalogTopic] = {}
        self._made = 0

    def put(self, name: str, partitions: int) -> bool:
        """Makes a topic or lets it grow; deletes it if `partitions` is 0. True if it is new."""
        old = self._topics.pop(name, None)
        if partitions:
            if old is None:
                self._made += 1
            topic_id = self._made.to_bytes(16, "big") if old is None else old.topic_id
            most = max(partitions, old.partitions if old is not None else 0)
            self._topics[name] = CatalogTopic(topic_id, name, most)
        return old is None

    def topic(self, name: str) -> CatalogTopic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> CatalogTopic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self._topics.keys()


class PromptDisk(Disk):
    """A disk whose writes fail at once or not at all, as a broker's log: if a sync fails, the node stops."""

    def append(self, partition: int, write: Append, done: Done) -> None:
        if self.random.random() < self.faults.failed_write:
            done(self.random.choice(FAILURES), -1, self.clock.now_ms)
        else:
            super().append(partition, write, done)

    def _fails_later(self) -> bool:
        return False


class SimulatedConsumer:
    """One process with a member of a group, which follows the protocol; what it says may be lost or late."""

    def __init__(self, world: GroupsWorld, group_id: str, number: int, instance_id: str | None) -> None:
        self.world, self.chance = world, world.chance
        self.group_id, self.instance_id = group_id, instance_id
        self.member_id = f"m{number}"
        self.epoch = 0
        self.assignment: set[Place] = set()
        """What the coordinator says that it may have."""
        self.owned: set[Place] = set()
        """What it has: it adds to this and takes away from it in its own time."""
        self._said_owned: set[Place] = set()
        self.positions: dict[Place, int] = {}
        self.topic_names: frozenset[str] = frozenset()
        self.topic_regex = ""
        self.is_alive = True
        self.silent_until_ms = 0
        self._asked = 0
        self._busy_until_ms = 0
        self._is_waiting = False
        self._says_all = True
        self._subscription_is_new = False
        self._is_giving_up = False
        self._reconciliations = 0
        self.subscribe()
        self._beat()

    def subscribe(self) -> None:
        if self.chance.random() < 0.3:
            self.topic_names, self.topic_regex = frozenset(), self.chance.choice(_PATTERNS)
        else:
            count = self.chance.randint(1, len(_TOPICS))
            self.topic_names, self.topic_regex = frozenset(self.chance.sample(_TOPICS, count)), ""
        self._subscription_is_new = True

    def wants(self, topic: str) -> bool:
        return topic in self.topic_names or re.fullmatch(self.topic_regex or "(?!)", topic) is not None

    def _send(self, make: Callable[[Token], GroupRequest], answered: Answered) -> None:
        """Sends on a connection, which keeps the order: what is late holds up what follows."""
        clock, late = self.world.clock, self.chance.random() < self.world.delayed
        delay_ms = self.chance.randint(500, 4_000) if late else 0
        self._busy_until_ms = max(clock.now_ms + delay_ms, self._busy_until_ms + 1)
        wait_ms = self._busy_until_ms - clock.now_ms
        clock.after(wait_ms, lambda: self.world.network.send(make, answered))

    # ---- heartbeats

    def _beat(self) -> None:
        """Sends a heartbeat, and sees to it that another one follows whatever becomes of it."""
        if not self.is_alive:
            return
        now_ms = self.world.clock.now_ms
        if now_ms < self.silent_until_ms:
            self.world.clock.after(self.silent_until_ms - now_ms, self._beat)
            return
        if self._is_waiting:  # the answer to the one before will not be looked at, whatever it says
            self._says_all = True
        self._is_waiting = True
        self._asked += 1
        number, is_join = self._asked, self.epoch == 0
        says_all = self._says_all or is_join
        fields: dict[str, Any] = {}
        if says_all or self._subscription_is_new:
            fields = {"topic_names": self.topic_names, "topic_regex": self.topic_regex}
            self._subscription_is_new = False
        if says_all:
            fields["rebalance_timeout_ms"] = _REBALANCE_TIMEOUT_MS
        if says_all or self.owned != self._said_owned:
            self._said_owned = set() if is_join else set(self.owned)
            fields["owned"] = _by_topic(self._said_owned)
        self._says_all = False
        epoch = self.epoch

        def make(token: Token) -> ConsumerGroupHeartbeat:
            return ConsumerGroupHeartbeat(
                token, self.group_id, self.member_id, epoch, self.instance_id, client_id="sim", **fields
            )

        def answered(response: Response | None) -> None:
            if self._asked == number and self.is_alive:
                self._asked += 1
                self._is_waiting = False
                self._heard(response)

        def timed_out() -> None:
            answered(None)

        self._send(make, answered)
        self.world.clock.after(_TIMEOUT_MS, timed_out)

    def _heard(self, response: Response | None) -> None:
        clock = self.world.clock
        if not isinstance(response, ConsumerHeartbeatResponse) or response.error:
            self._says_all = True
            error = response.error if isinstance(response, ConsumerHeartbeatResponse) else None
            if error in _REJOIN:
                self.world.fenced += 1
                self.lose_all()
            elif error is ErrorCode.UNRELEASED_INSTANCE_ID:
                self.lose_all()
            clock.after(self.chance.randint(20, 300), self._beat)
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assignment = {(t, p) for t, partitions in response.assignment for p in partitions}
        if self.assignment != self.owned and not self._is_giving_up:
            self._reconcile()
        else:
            clock.after(_CONFIG.consumer_heartbeat_interval_ms, self._beat)

    def _reconcile(self) -> None:
        """Gives up what it may not have any more, after a commit and in its own time, and takes what is new."""
        self._is_giving_up = True
        self._reconciliations += 1
        number = self._reconciliations
        clock, target = self.world.clock, set(self.assignment)
        gone = self.owned - target
        slow = self.chance.random() < self.world.faults.stuck
        delay_ms = self.chance.randint(0, 400) if not slow else self.chance.randint(3_000, 20_000)
        if gone:
            self.commit(gone)
            clock.after(_CONFIG.consumer_heartbeat_interval_ms, self._beat)

        def given_up() -> None:
            if not self.is_alive or not self._is_giving_up or self._reconciliations != number:
                return
            self._is_giving_up = False
            new = target - self.owned
            self.owned = target
            self.positions = {place: at for place, at in self.positions.items() if place in target}
            self._look_up(new)
            self._beat()

        clock.after(delay_ms if gone else 0, given_up)

    def lose_all(self) -> None:
        self.epoch, self._is_giving_up, self._says_all = 0, False, True
        self.assignment, self.owned, self.positions = set(), set(), {}

    # ---- offsets

    def _look_up(self, places: set[Place]) -> None:
        if not places:
            return
        topics = self.world.named(places)
        member_id, epoch = self.member_id, self.epoch

        def make(token: Token) -> OffsetFetch:
            return OffsetFetch(token, self.group_id, topics, True, member_id, epoch)

        def answered(response: Response | None) -> None:
            if not self.is_alive or self.epoch == 0:
                return
            if not isinstance(response, FetchResponse) or response.error:
                still = {place for place in places if place in self.owned and place not in self.positions}
                self.world.clock.after(300, lambda: self._look_up(still))
                return
            for name, partitions in response.topics:
                topic = self.world.topics.topic(name)
                for found in partitions:
                    place = (topic.topic_id if topic is not None else b"", found.partition)
                    if place in self.owned:
                        self.positions.setdefault(place, max(found.offset, 0))

        self._send(make, answered)

    def work(self) -> None:
        """Processes some records and commits now and then."""
        for place in self.positions:
            self.positions[place] += self.chance.randint(0, 5)
        if self.positions and self.chance.random() < 0.5:
            self.commit(set(self.positions))

    def commit(self, places: set[Place]) -> None:
        offsets = tuple(
            OffsetToCommit(name, p, self.positions[t, p], topic_id=t)
            for (t, p), name in self.world.names_of(places)
            if (t, p) in self.positions
        )
        member_id, epoch = self.member_id, self.epoch
        if offsets:
            self._send(
                lambda token: OffsetCommit(token, self.group_id, offsets, epoch, member_id, self.instance_id),
                lambda _: None,
            )

    # ---- the end

    def leave(self) -> None:
        """Leaves, or if it is static goes away for a while."""
        self.is_alive = False
        epoch = _LEAVE if self.instance_id is None or self.chance.random() < 0.2 else _AWAY
        if self.epoch > 0:
            self._send(
                lambda token: ConsumerGroupHeartbeat(
                    token, self.group_id, self.member_id, epoch, self.instance_id
                ),
                lambda _: None,
            )


def _by_topic(places: Iterable[Place]) -> dict[bytes, tuple[int, ...]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in found.items()}


def _has_had(member: ConsumerMember, commit: OffsetCommit, epoch: int) -> bool:
    """Whether a member has had all partitions of a commit since that epoch, which is before its own."""
    held = {
        (topic_id, partition): since
        for owned in (member.assigned, member.pending)
        for topic_id, partitions in owned.items()
        for partition, since in partitions.items()
    }
    return epoch < member.epoch and all(
        held.get((o.topic_id, o.partition), epoch + 1) <= epoch for o in commit.offsets
    )


@dataclass(slots=True)
class GroupsWitness:
    """Sees every answer, every record and every step, and raises Broken if one of them must not be."""

    world: GroupsWorld
    shadows: list[Durable] = field(
        default_factory=lambda: [Durable() for _ in range(_SETTINGS.offsets_topic_num_partitions)]
    )
    """What the records say that are in the log."""
    group_epochs: Counter[str] = field(default_factory=Counter)
    member_epochs: dict[tuple[str, str], int] = field(default_factory=dict)
    must_be_refused: set[Token] = field(default_factory=set)
    """Commits of who had given up a partition or is no member, and heartbeats of another epoch."""
    heartbeats: int = 0
    commits: int = 0

    def written(self, partition: int, record: LogRecord) -> None:
        """Each record must make sense after those before it: a crash may come right behind it."""
        try:
            self.shadows[partition].apply(record)
        except Exception as error:
            raise Broken(
                f"record {record.offset} of partition {partition} does not replay: {error}"
            ) from error

    def replied(self, request: GroupRequest, response: Response) -> None:
        if isinstance(request, ConsumerGroupHeartbeat) and isinstance(response, ConsumerHeartbeatResponse):
            if not response.error:
                self._check_heartbeat(request, response)
        elif isinstance(request, OffsetCommit) and isinstance(response, CommitResponse):
            self._check_commit(request, response)

    def _check_heartbeat(self, request: ConsumerGroupHeartbeat, response: ConsumerHeartbeatResponse) -> None:
        self.heartbeats += 1
        if request.request in self.must_be_refused:
            raise Broken(f"{request.member_id} goes on with the epoch {request.member_epoch}")
        who = (request.group_id or "", response.member_id or request.member_id)
        self._check_given(who, response)
        if request.member_epoch <= 0:
            self.member_epochs[who] = response.member_epoch
            return
        if response.member_epoch < self.member_epochs.get(who, 0):
            raise Broken(f"{who} went from epoch {self.member_epochs[who]} to {response.member_epoch}")
        self.member_epochs[who] = response.member_epoch

    def _check_given(self, who: tuple[str, str], response: ConsumerHeartbeatResponse) -> None:
        """Nobody is given what another member, who is one for the coordinator too, still has."""
        group_id, member_id = who
        given = {(t, p) for t, partitions in response.assignment or () for p in partitions}
        shard = self.world.node.runtime.shards[self.world.node.partition_of(group_id)]
        members = shard.consumer_groups[group_id].members if group_id in shard.consumer_groups else {}
        for other in self.world.consumers:
            is_other = other.group_id == group_id and other.member_id != member_id
            if is_other and other.epoch > 0 and other.member_id in members and given & other.owned:
                raise Broken(f"{member_id} is given what {other.member_id} still has")

    def before(self, partition: int, event: Event) -> None:
        """Notes what must become of a commit or a heartbeat, by the state of its member when it comes."""
        if not isinstance(event, OffsetCommit | ConsumerGroupHeartbeat):
            return
        shard = self.world.node.runtime.shards[partition]
        group = shard.consumer_groups.get(event.group_id or "")
        if shard.status is not ShardStatus.ACTIVE or group is None:
            return
        member = group.members.get(event.member_id)
        if isinstance(event, ConsumerGroupHeartbeat):
            epochs = (0, member.epoch, member.previous_epoch) if member is not None else (0,)
            if event.member_epoch >= 0 and event.member_epoch not in epochs:
                self.must_be_refused.add(event.request)
            return
        epoch = event.generation_id
        is_current = member is not None and epoch == member.epoch
        if not is_current and not (member is not None and _has_had(member, event, epoch)):
            self.must_be_refused.add(event.request)

    def _check_commit(self, request: OffsetCommit, response: CommitResponse) -> None:
        taken = sum(not error for error in response.errors)
        self.commits += taken
        if taken and request.request in self.must_be_refused:
            raise Broken(
                f"{request.member_id} committed with the epoch {request.generation_id} what it has lost"
            )

    def after(self, partition: int, event: Event) -> None:
        shard = self.world.node.runtime.shards[partition]
        if shard.status is not ShardStatus.ACTIVE:
            return
        for group_id, group in shard.consumer_groups.items():
            if group.group_epoch < group.assignment_epoch:
                raise Broken(f"{group_id}: assignment epoch {group.assignment_epoch} of {group.group_epoch}")
            owners: dict[Place, str] = {}
            for member in group.members.values():
                if member.epoch > group.assignment_epoch:
                    raise Broken(
                        f"{member.member_id} is at {member.epoch}, the target at {group.assignment_epoch}"
                    )
                for owned in (member.assigned, member.pending):
                    for topic_id, partitions in owned.items():
                        for index in partitions:
                            holder = owners.setdefault((topic_id, index), member.member_id)
                            if holder != member.member_id:
                                raise Broken(f"{group_id}: {index} is with {holder} and {member.member_id}")
        self._check_durable(partition)

    def _check_durable(self, partition: int) -> None:
        """What is durable is what the log says, and epochs do not fall in it."""
        shard = self.world.node.runtime.shards[partition]
        if self.world.node.disk.busy(partition) or shard.writes:
            return
        for group_id, state in self.shadows[partition].consumer_groups.items():
            found = shard.durable.consumer_groups.get(group_id)
            if found is None or found.facts() != state.facts():
                raise Broken(f"{group_id} is not what its records say")
            live = shard.consumer_groups.get(group_id)
            if live is not None and live.facts() != state.facts():
                raise Broken(f"{group_id} lives on with what was not written")
            if state.exists:
                if state.group_epoch < self.group_epochs[group_id]:
                    raise Broken(f"{group_id} fell from {self.group_epochs[group_id]} to {state.group_epoch}")
                self.group_epochs[group_id] = state.group_epoch


class GroupsWorld:
    """One run."""

    def __init__(self, seed: int, members: int, faults: FaultRates) -> None:
        self.chance = Random(seed)
        self.clock = VirtualClock()
        self.clock.now_ms = 1_000_000
        self.topics = SimulatedTopics()
        self.faults = faults
        self.delayed = faults.delayed
        self.witness = GroupsWitness(self)
        disk = PromptDisk(self.clock, self.chance, _SETTINGS.offsets_topic_num_partitions)
        disk.on_written = self.witness.written
        observer = Observer(self.witness.before, self.witness.after, self.witness.replied)
        ways = ShortWays(seed)
        self.node = SimulatedNode(
            self.clock, self.chance, _SETTINGS, disk, observer, ways, self.topics, lambda group_id: _CONFIG
        )
        self.network = SimulatedNetwork(self.clock, self.chance, self.node)
        self._use(faults)
        self.fenced = self.crashes = self.made = 0
        self._most = members
        for name in _TOPICS[:2]:
            self.topics.put(name, self.chance.randint(1, 8))
        self.node.start()
        self.consumers: list[SimulatedConsumer] = []
        for _ in range(members):
            self._join()

    def _use(self, faults: FaultRates) -> None:
        """Takes the rates of the faults. Requests are late in their order alone, and come once: clients use TCP."""
        self.faults = self.node.disk.faults = faults
        self.delayed = faults.delayed
        self.network.faults = replace(faults, delayed=0, duplicated=0)

    def _join(self, instance_id: str | None = None) -> None:
        if instance_id is None and self.chance.random() < 0.3:
            instance_id = f"i{self.made}"
        self.made += 1
        self.consumers.append(SimulatedConsumer(self, self.chance.choice(GROUPS), self.made, instance_id))

    # ---- topics by their names

    def names_of(self, places: Iterable[Place]) -> list[tuple[Place, str]]:
        found = ((place, self.topics.topic_by_id(place[0])) for place in sorted(places))
        return [(place, topic.name) for place, topic in found if topic is not None]

    def named(self, places: Iterable[Place]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        by_name: dict[str, list[int]] = {}
        for (_, partition), name in self.names_of(places):
            by_name.setdefault(name, []).append(partition)
        return tuple((name, tuple(partitions)) for name, partitions in by_name.items())

    # ---- what happens

    def run(self, minutes: float) -> None:
        for _ in range(int(minutes * 60)):
            self.clock.run_until(self.clock.now_ms + 1_000)
            self._second()
        self._use(FaultRates.none())
        if not self.node.up:
            self.node.start()
        for name in _TOPICS:
            self._change_topic(name, 4)
        self.clock.run_until(self.clock.now_ms + _CALM_MS)
        self._check_calm()

    def _second(self) -> None:
        chance, faults = self.chance, self.faults
        if not self.node.up:
            self.node.start(chance.randint(0, 500))
        elif chance.random() < faults.crash:
            self.crashes += 1
            self.node.crash()
        elif chance.random() < faults.resign:
            partition = chance.randrange(_SETTINGS.offsets_topic_num_partitions)
            self.node.resign(partition)
            self.clock.after(500, lambda: self._load(partition))
        if chance.random() < faults.churn / 4:
            self._change_topic(chance.choice(_TOPICS), chance.randint(1, 8))
        for consumer in list(self.consumers):
            if chance.random() < 0.3:
                consumer.work()
            if chance.random() < faults.churn / 2:
                self._churn(consumer)

    def _load(self, partition: int) -> None:
        if self.node.up:
            self.node.load(partition, 0)

    def _change_topic(self, name: str, partitions: int) -> None:
        is_new = self.topics.put(name, partitions)
        for partition in range(_SETTINGS.offsets_topic_num_partitions):
            self.node.handle(partition, TopicsChanged((name,), is_new))

    def _churn(self, consumer: SimulatedConsumer) -> None:
        kind = self.chance.random()
        if kind < 0.3:
            consumer.subscribe()
        elif kind < 0.5:
            consumer.silent_until_ms = self.clock.now_ms + self.chance.randint(1_000, 30_000)
        elif len(self.consumers) > 1:
            self.consumers.remove(consumer)
            if kind < 0.8:
                consumer.leave()
            consumer.is_alive = False
            back_ms = self.chance.randint(10, 20_000)
            instance_id, group_id = consumer.instance_id, consumer.group_id
            self.clock.after(back_ms, lambda: self._come_back(instance_id, group_id))
        elif len(self.consumers) < self._most:
            self._join()

    def _come_back(self, instance_id: str | None, group_id: str) -> None:
        self.made += 1
        self.consumers.append(SimulatedConsumer(self, group_id, self.made, instance_id))

    # ---- the end

    def _check_calm(self) -> None:
        for group_id in GROUPS:
            living = [consumer for consumer in self.consumers if consumer.group_id == group_id]
            if living:
                self._check_group(group_id, living)

    def _check_group(self, group_id: str, living: list[SimulatedConsumer]) -> None:
        shard = self.node.runtime.shards[self.node.partition_of(group_id)]
        group = shard.consumer_groups[group_id]
        if group.state_name() != "Stable":
            raise Broken(f"{group_id} is {group.state_name()} after {_CALM_MS} ms of calm")
        if group.members.keys() != {consumer.member_id for consumer in living}:
            raise Broken(f"{group_id} has the members {sorted(group.members)}")
        wanted = {
            (topic.topic_id, partition)
            for name in self.topics.names()
            if any(consumer.wants(name) for consumer in living) and (topic := self.topics.topic(name))
            for partition in range(topic.partitions)
        }
        owned = {place for consumer in living for place in consumer.owned}
        if owned != wanted:
            raise Broken(f"{group_id}: {len(owned)} of {len(wanted)} partitions are owned")
        for consumer in living:
            member = group.members[consumer.member_id]
            given = {(t, p) for t, partitions in member.assigned.items() for p in partitions}
            if given != consumer.owned or consumer.epoch != group.group_epoch:
                raise Broken(f"{consumer.member_id} has other partitions than the coordinator says")
        self._check_balance(group_id, living)

    def _check_balance(self, group_id: str, living: list[SimulatedConsumer]) -> None:
        if len({(consumer.topic_names, consumer.topic_regex) for consumer in living}) == 1:
            sizes = [len(consumer.owned) for consumer in living]
            if max(sizes) - min(sizes) > 1:
                raise Broken(f"{group_id}: members that subscribe alike have {sizes} partitions")

    def report(self, seed: int) -> ConsumerGroupsReport:
        witness = self.witness
        epochs = sum(witness.group_epochs.values())
        return ConsumerGroupsReport(
            seed, epochs, witness.heartbeats, witness.commits, self.fenced, self.crashes
        )


def run_consumer_groups(
    seed: int, *, members: int = 6, minutes: float = 2, faults: FaultRates | None = None
) -> ConsumerGroupsReport:
    """Runs one simulation; raises Broken, with the seed, if an invariant does not hold."""
    world = GroupsWorld(seed, members, faults or FaultRates())
    try:
        world.run(minutes)
    except Broken as error:
        raise Broken(f"seed {seed}: {error}") from error
    return world.report(seed)
