"""One run with consumers of the real client: brokers, topics and users, some minutes of faults, then calm."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kohort.client.group.consumer_protocol import decode_subscription
from kohort.client.types import TopicPartition
from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.events import LogRecord
from kohort.coordinator.records import decode_offset
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import ShardStatus
from kohort.sim.brokers import Brokers
from kohort.sim.consumer import MAX_POLL_INTERVAL_MS, ConsumerProfile, SimConsumer
from kohort.sim.data import Data
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken, check_shard, check_twin
from kohort.sim.simulation import PARTITIONS, Report, Simulation
from kohort.sim.user import STYLES
from kohort.sim.witness import Witness
from kohort.wire.group_records import decode_key
from kohort.wire.messages.offset_commit_key import OffsetCommitKey

BROKERS = [0, 1]
TOPICS = {"orders": 3, "payments": 2}
LATE_TOPIC = "refunds"
"""No consumer subscribes to it before the calm; then the leader of a group has to look it up."""
MOST_PARTITIONS = 6
CALM_MS = 120_000
SETTLED_MS = 40_000
"""After this much calm nothing may be lost any more, and every commit succeeds."""
SHAKE_MS = 65_000
"""After this much calm every group rebalances once more, without any fault."""
HURRY_MS = 85_000
"""After this much calm slow users hurry, so that they catch up before the end."""
CHECK_MS = 250
ANSWERED_MS = 1_000
"""If nothing fails and no member joins, the coordinator answers every request within this time."""
STRATEGIES = (
    ["range"],
    ["roundrobin"],
    ["sticky"],
    ["cooperative-sticky"],
    ["cooperative-sticky"],
    ["range", "cooperative-sticky"],
)
OLD_VERSIONS: tuple[dict[int, int], ...] = (
    {},
    {1: 12, 3: 9, 8: 9, 9: 9, 10: 3, 11: 8, 12: 3, 13: 4, 14: 4},
    {1: 6, 2: 4, 3: 7, 8: 5, 9: 5, 10: 2, 11: 3, 12: 1, 13: 2, 14: 1, 23: 3},
)
"""Newest versions of APIs: the current ones; those before topic ids; those before member ids and static members."""


@dataclass(slots=True)
class ConsumerReport(Report):
    records: int = 0
    repeated: int = 0
    produced: int = 0
    clean_handovers: int = 0
    callbacks: dict[str, int] = field(default_factory=dict)
    leader_moves: int = 0

    def __str__(self) -> str:
        per_second = self.rebalances / self.cpu_seconds if self.cpu_seconds else 0.0
        callbacks = ", ".join(f"{count} {kind}" for kind, count in sorted(self.callbacks.items()))
        return (
            f"seed {self.seed}: {self.members} consumers, {self.minutes} minutes: {self.rebalances} rebalances, "
            f"{self.produced} records produced, {self.records} processed ({self.repeated} again), "
            f"{self.clean_handovers} clean hand-overs, callbacks: {callbacks}; {self.commits_acknowledged} commits, "
            f"{self.messages} requests ({self.short_ways} by a short way), {self.restarts} restarts, "
            f"{self.resignations} resignations, "
            f"{self.leader_moves} leader moves, all invariants held; "
            f"{self.cpu_seconds:.1f} CPU s, {per_second:.0f} rebalances/s"
        )


def run_consumers(
    seed: int,
    members: int = 6,
    minutes: float = 3,
    faults: FaultRates | None = None,
    *,
    short_ways: float | None = None,
) -> ConsumerReport:
    """Raises Broken, with the seed in its message, as soon as an invariant does not hold.

    `short_ways` is as for `run`.
    """
    started = time.process_time()
    simulation = ConsumerSimulation(seed, members, minutes, faults or FaultRates(), short_ways)
    try:
        simulation.run()
    except Broken as error:
        raise Broken(f"{error}\n{simulation.again()}") from error
    except Exception as error:
        raise Broken(f"{type(error).__name__} in the core: {error}\n{simulation.again()}") from error
    simulation.consumer_report.cpu_seconds = time.process_time() - started
    return simulation.consumer_report


class ConsumerSimulation(Simulation):
    """A run with real consumers: the checks of the coordinator, and those of the consumers on top."""

    def __init__(
        self, seed: int, members: int, minutes: float, faults: FaultRates, short_ways: float | None = None
    ) -> None:
        super().__init__(seed, 0, minutes, faults, short_ways)
        self.report = self.consumer_report = ConsumerReport(seed, members, minutes)
        self.data = Data(self.clock, self.random, BROKERS)
        for name, partitions in (*TOPICS.items(), (LATE_TOPIC, 1)):
            self.data.create(name, partitions)
        self.brokers = Brokers(self.node, self.data, self.random, self.random.choice(OLD_VERSIONS))
        groups = max(1, members // 4)
        names = [f"group{n}" for n in range(groups)]
        self.witnesses = {name: Witness(name, partial(self._group, name)) for name in names}
        strategies = {group_id: self.random.choice(STRATEGIES) for group_id in self.witnesses}
        self.is_calm = False
        self.consumers: list[SimConsumer] = []
        for number in range(members):
            group_id = f"group{number % groups}"
            self._place(number, group_id, strategies[group_id])

    def _settings(self, members: int) -> Settings:
        return Settings(
            offsets_topic_num_partitions=PARTITIONS,
            group_initial_rebalance_delay_ms=self.random.choice((0, 500)),
        )

    def _group(self, group_id: str) -> Group | None:
        shard = self.node.runtime.shards[self.node.partition_of(group_id)]
        return shard.groups.get(group_id) if self.node.up and shard.status is ShardStatus.ACTIVE else None

    def again(self) -> str:
        return super().again().replace("kohort sim", "kohort sim --consumers")

    def _place(self, number: int, group_id: str, strategy: list[str]) -> None:
        # The first half of an upgrade: members that offer both, next to members that offer the new one alone.
        if strategy == ["range", "cooperative-sticky"] and self.random.random() < 0.5:
            strategy = ["cooperative-sticky"]
        has_instances = 11 not in self.brokers.versions or self.brokers.versions[11] >= 5
        instance = f"static{number}" if has_instances and self.random.random() < 0.3 else None
        topics = list(TOPICS) if self.random.random() < 0.7 else [self.random.choice(list(TOPICS))]
        is_slow, on_loop = self.random.random() < 0.3, self.random.random() < 0.3
        style = self.random.choice(STYLES)
        profile = ConsumerProfile(f"c{number}", group_id, instance, strategy, style, topics, is_slow, on_loop)
        self.clock.after(self.random.randint(0, 3_000), lambda: self._come(profile))

    # ---- consumers that come and go

    def _come(self, profile: ConsumerProfile) -> None:
        witness = self.witnesses[profile.group_id]
        bad_callbacks = 0.0 if self.is_calm else self.faults.stuck
        consumer = SimConsumer(
            profile,
            witness,
            self.clock,
            self.random,
            self.brokers,
            lambda: self.network.faults,
            bad_callbacks,
        )
        consumer.user.calm = self.is_calm
        witness.consumers = [other for other in witness.consumers if other.alive] + [consumer]
        self.consumers = [other for other in self.consumers if other.profile is not profile] + [consumer]
        consumer.start()

    def _again_later(self, consumer: SimConsumer) -> None:
        """Starts another process in its place when this one has ended."""

        def look() -> None:
            if consumer.alive:
                self.clock.after(500, look)
            else:
                self._come(consumer.profile)

        self.clock.after(self.random.randint(100, 10_000), look)

    def _replace_fenced(self) -> None:
        """Replaces fenced consumers: of two processes with one instance id the newer one may be fenced."""
        for consumer in self.consumers:
            if consumer.user.fenced and not consumer.user.stopping:
                consumer.user.stopping = True
                self._again_later(consumer)

    def _help_refused(self) -> None:
        """Makes members rejoin if another one is refused because of its assignors, as users would.

        As in Kafka, the coordinator knows only the assignor in use of members that it has read from the log. A
        consumer that offers only another one is refused until those members have joined again or are gone.
        """
        for consumer in self.consumers:
            if consumer.user.refused:
                consumer.user.refused = False
                others = [o for o in self.consumers if o.profile.group_id == consumer.profile.group_id]
                others = [other for other in others if other.profile.strategy != consumer.profile.strategy]
                was_read = self.node.restarts + self.report.resignations > 0
                consumer.require(was_read and bool(others), "the group refuses its assignors")
                for other in others:
                    other.user.rebalance = True

    # ---- the course of a run

    def run(self) -> None:
        self.node.start()
        self.disk.faults = self.network.faults = self.faults
        end_ms = int(self.minutes * 60_000)
        self.clock.after(1_000, lambda: self._trouble(end_ms))
        self._produce(end_ms + SHAKE_MS + 15_000)
        self.clock.run_until(end_ms)
        self._calm_down()
        self.clock.run_until(end_ms + CALM_MS)
        self._check_calm()
        report, witnesses = self.consumer_report, self.witnesses.values()
        report.messages, report.produced = self.brokers.requests, self.data.written
        report.restarts += self.node.restarts
        report.short_ways = self.ways.taken
        report.records = sum(w.records for w in witnesses)
        report.repeated = sum(w.repeated for w in witnesses)
        report.clean_handovers = sum(w.clean_handovers for w in witnesses)
        for witness in witnesses:
            for kind, count in witness.callbacks.items():
                report.callbacks[kind] = report.callbacks.get(kind, 0) + count

    def _produce(self, until_ms: int) -> None:
        if self.clock.now_ms >= until_ms:
            return
        self.data.write(self.random.choice(self.data.all_partitions()), self.random.randint(1, 6))
        self.clock.after(self.random.randint(1, 1_200), lambda: self._produce(until_ms))

    def _trouble(self, end_ms: int) -> None:
        """Makes faults happen, once per virtual second."""
        if self.clock.now_ms >= end_ms:
            return
        roll, faults = self.random.random, self.faults
        for consumer in self.consumers:
            if consumer.alive and not consumer.user.stopping and roll() < faults.churn:
                self._churn(consumer)
        self._replace_fenced()
        self._help_refused()
        if roll() < faults.crash:
            self._crash_broker(self.random.choice(BROKERS))
        elif self.node.up and roll() < faults.resign:
            self._move_partition()
            if roll() < 0.5:  # to another broker; what the old one was asked is still answered, late
                self.brokers.coordinator_id = self.random.choice(self.brokers.alive())
        if faults.churn and roll() < 0.03:
            self._move_leader()
        if faults.churn and roll() < 0.01:
            name = self.random.choice(list(TOPICS))
            if len(self.data.topics[name].partitions) < MOST_PARTITIONS:
                self.data.grow(name, 1)
        self.clock.after(1_000, lambda: self._trouble(end_ms))

    def _churn(self, consumer: SimConsumer) -> None:
        user = consumer.user
        match self.random.randrange(8):
            case 0:
                consumer.driver.kill()
                self._again_later(consumer)
            case 1:
                user.stopping = True
                self._again_later(consumer)
            case 2:
                user.rebalance = True
            case 3:
                user.topics = self.random.choice((list(TOPICS), ["orders"], ["payments"]))
            case 4:
                user.nap_ms = MAX_POLL_INTERVAL_MS + self.random.randint(-2_000, 10_000)
            case 5:
                user.nap_ms = self.random.randint(1_000, 12_000)
            case 6 if consumer.profile.group_instance_id is not None:
                # Two processes under one name: the older one is fenced.
                user.stopping = True
                self._come(consumer.profile)

    def _crash_broker(self, broker_id: int) -> None:
        broker = self.brokers.brokers[broker_id]
        others = [other for other in self.brokers.alive() if other != broker_id]
        if not broker.up or not others:
            return
        broker.up = False
        self.consumer_report.restarts += 1
        is_coordinator = self.brokers.coordinator_id == broker_id
        if is_coordinator and self.node.up:
            self.node.crash()
        for witness in self.witnesses.values():
            for consumer in witness.consumers:
                consumer.driver.engine.links.broker_died(broker_id)
        for partition in self.data.all_partitions():
            if partition.leader_id == broker_id:
                self.data.move(partition, others[0])
        self.clock.after(self.random.randint(500, 8_000), broker.restart)
        if is_coordinator:
            self.clock.after(self.random.randint(100, 5_000), lambda: self._coordinator_comes_back(others[0]))

    def _coordinator_comes_back(self, broker_id: int) -> None:
        self.brokers.coordinator_id = broker_id
        self.node.start(0 if self.is_calm else self.random.randint(0, 2_000))

    def _move_leader(self) -> None:
        alive = self.brokers.alive()
        partition = self.random.choice(self.data.all_partitions())
        self.data.move(partition, self.random.choice(alive))
        self.consumer_report.leader_moves += 1

    def _calm_down(self) -> None:
        """Ends all faults: from now on users behave, and every consumer is there and wants every topic."""
        self.is_calm = True
        self.disk.faults = self.network.faults = FaultRates.none()
        for partition, shard in enumerate(self.node.runtime.shards if self.node.up else []):
            if shard.status is ShardStatus.NOT_LOADED:
                self.node.load(partition, 0)
        for witness in self.witnesses.values():
            witness.calm_since_ms = self.clock.now_ms + SETTLED_MS
        for consumer in self.consumers:
            consumer.user.calm = True
            consumer.profile.topics = list(TOPICS)
            consumer.user.topics = list(TOPICS)
        for second in range(0, SETTLED_MS // 2, 1_000):
            self.clock.after(second, self._replace_fenced)
            self.clock.after(second, self._help_refused)
        self.clock.after(SETTLED_MS, self._all_nap)
        self.clock.after(SETTLED_MS, self._want_more)
        self.clock.after(HURRY_MS, self._hurry)
        self.clock.after(SHAKE_MS, self._shake)
        # Before the last rebalance, or after it: then only the leader can notice.
        self.clock.after(self.random.choice((SETTLED_MS, SHAKE_MS + 10_000)), self._grow)

    def _grow(self) -> None:
        for name in TOPICS:
            self.data.grow(name, 1)

    def _all_nap(self) -> None:
        """Lets all users pause longer than a session, but less than `max.poll.interval.ms`: nothing may be lost."""
        for consumer in self.consumers:
            consumer.user.nap_ms = MAX_POLL_INTERVAL_MS - 6_000

    def _want_more(self) -> None:
        """Subscribes one consumer of each group to a topic that no consumer has asked for yet."""
        for witness in self.witnesses.values():
            last = [consumer for consumer in witness.consumers if consumer.alive][-1]
            last.profile.topics = last.user.topics = [*TOPICS, LATE_TOPIC]

    def _hurry(self) -> None:
        for consumer in self.consumers:
            consumer.profile.is_slow = consumer.user.is_slow = False

    def _shake(self) -> None:
        """Closes and restarts one consumer of each group, and rebalances by another one: nothing may be read twice."""
        for group_id, witness in self.witnesses.items():
            alive = [consumer for consumer in witness.consumers if consumer.alive]
            self._check_subscriptions(group_id, alive)
            first, second = alive[0], alive[-1]
            second.user.rebalance = True
            first.user.stopping = True
            self.clock.after(CHECK_MS, partial(self._ending, first, self.clock.now_ms + 10_000))

    def _ending(self, gone: SimConsumer, deadline_ms: int) -> None:
        """Checks that a closed consumer ends and is no member any more; another process takes its place."""
        if gone.alive:
            gone.require(self.clock.now_ms < deadline_ms, "did not end though it was closed")
            self.clock.after(CHECK_MS, partial(self._ending, gone, deadline_ms))
            return
        group = self._group(gone.profile.group_id)
        stays = gone.profile.group_instance_id is not None or group is None
        gone.require(stays or gone.last_member_id not in group.members, "was closed but did not leave")  # type: ignore[union-attr]
        self.clock.after(5_000, lambda: self._come(gone.profile))

    def _check_subscriptions(self, group_id: str, consumers: list[SimConsumer]) -> None:
        """Checks that the group knows the topics that each consumer is subscribed to."""
        group = self._group(group_id)
        for consumer in consumers:
            member = group.members.get(consumer.membership.member_id) if group is not None else None
            if member is not None:
                told = set(decode_subscription(member.protocols[0][1]).topics)
                consumer.require(
                    told == set(consumer.user.subscribed), f"the group thinks that it wants {told}"
                )

    # ---- what is checked

    def _written(self, partition: int, record: LogRecord) -> None:
        super()._written(partition, record)
        assert record.key is not None
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey) and record.value is not None and key.group in self.witnesses:
            offset = decode_offset(record.value).offset
            self.witnesses[key.group].commit_written(TopicPartition(key.topic, key.partition), offset)

    def _check_fetched(self, group_id: str, topics: tuple[tuple[str, tuple[Any, ...]], ...]) -> None:
        """Checks the fetched offsets; consumers ask for some partitions, not for all."""
        for topic, items in topics:
            for item in items:
                expected = self.committed.get(OffsetCommitKey(group_id, topic, item.partition), -1)
                if item.offset != expected:
                    raise Broken(f"{group_id} was told {item} of {topic}, the log says {expected}")

    def _check_calm(self) -> None:
        for partition, shard in enumerate(self.node.runtime.shards):
            check_shard(shard)
            check_twin(shard, self.twins[partition])
        for group_id, witness in self.witnesses.items():
            self._check_group_calm(group_id, witness)
        asked = set(self.node.open)  # a consumer may commit at this very moment
        self.clock.run_until(self.clock.now_ms + ANSWERED_MS)
        never = [request for token, (request, _) in self.node.open.items() if token in asked]
        if never:
            raise Broken(f"never answered: {never}")

    def _check_group_calm(self, group_id: str, witness: Witness) -> None:
        consumers = [consumer for consumer in self.consumers if consumer.profile.group_id == group_id]
        for consumer in consumers:
            consumer.require(consumer.alive, "is gone after the calm")
            consumer.require(consumer.membership.is_stable, "is not stable after the calm")
            consumer.require(self.clock.now_ms - consumer.left_poll_ms < 10_000, "does not poll any more")
        group = self._group(group_id)
        assert group is not None
        there, want = set(group.members), {consumer.membership.member_id for consumer in consumers}
        if group.state is not GroupState.STABLE or there != want:
            raise Broken(f"{group_id} is {group.state.value} with {sorted(there)}, alive are {sorted(want)}")
        for partition in self.data.all_partitions():
            where = TopicPartition(partition.topic, partition.index)
            owners = [consumer for consumer in consumers if where in consumer.owned]
            if len(owners) != 1:
                raise Broken(f"{where} has {len(owners)} owners in {group_id}: {[str(o) for o in owners]}")
            self._check_lag(witness, owners[0], where, partition.end_offset)

    def _check_lag(self, witness: Witness, owner: SimConsumer, where: TopicPartition, end: int) -> None:
        processed = witness.ends.get(where, 0)
        owner.require(processed == end, f"{where} was processed up to {processed}, its end is {end}")
        at = owner.core.subscription.partitions[where].position
        owner.require(at is not None and at.offset == end, f"{where} is at {at}, its end is {end}")
        committed = witness.commits.get(where, [0])[-1]
        if owner.profile.style != "revoke":
            owner.require(committed == end, f"{where}: {committed} is committed, its end is {end}")
