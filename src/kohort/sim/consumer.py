"""A consumer of the real client in a simulated world, with checks of all that its user sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from kohort.client.config import CONSUMER, read_config
from kohort.client.consume.calls import ConsumerCalls
from kohort.client.consume.consumer_core import ConsumerCore
from kohort.client.consume.interceptors import Interceptors
from kohort.client.core.steps import Steps
from kohort.client.group.assignors import RebalanceProtocol, load_assignors
from kohort.client.group.callbacks import CallbackKind
from kohort.client.group.member_state import MemberState
from kohort.client.group.membership import Membership
from kohort.client.offsets.offset_requests import Offsets
from kohort.client.records import Records
from kohort.client.types import TopicPartition
from kohort.sim.brokers import Brokers
from kohort.sim.driver import Program, UserDriver
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.sim.user import User
from kohort.sim.witness import Owned, Witness
from kohort.sim.world import VirtualClock

T = TypeVar("T")
SLACK_MS = 1_500
"""A poll looks at the time at least once in a second, and sees then that its time is up."""
MAX_POLL_INTERVAL_MS = 20_000


@dataclass(slots=True)
class ConsumerProfile:
    """What stays of a consumer when another process takes its place."""

    name: str
    group_id: str
    group_instance_id: str | None
    strategy: list[str]
    style: str
    topics: list[str]
    is_slow: bool = False
    """Whether its user works longer on a record than the next fetch takes: a fetched record always waits."""
    on_loop: bool = False


class SimConsumer:
    """One process with a consumer and its user."""

    def __init__(
        self,
        profile: ConsumerProfile,
        witness: Witness,
        clock: VirtualClock,
        random: Random,
        brokers: Brokers,
        faults: Callable[[], FaultRates],
        bad_callbacks: float,
    ) -> None:
        self.profile, self.witness, self.clock, self.random = profile, witness, clock, random
        settings = {
            "bootstrap.servers": "sim:9000",
            "group.id": profile.group_id,
            "client.id": profile.name,
            "group.instance.id": profile.group_instance_id,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 2_000,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            "max.poll.records": random.choice((3, 20, 500)),
            "enable.auto.commit": profile.style == "auto",
            "auto.commit.interval.ms": random.choice((2_000, 20_000)),
            "auto.offset.reset": "earliest",
            "metadata.max.age.ms": 15_000,
            "fetch.max.wait.ms": 1_500,
            "request.timeout.ms": 5_000,
            "default.api.timeout.ms": 10_000,
        }
        config, _ = read_config(CONSUMER, settings, {})
        self.driver = UserDriver(config, clock, random, brokers, faults, on_loop=profile.on_loop)
        engine = self.driver.engine
        assignors = load_assignors(profile.strategy)
        self.core = ConsumerCore(config, random.random, assignors, engine.out, engine.metadata)
        engine.add(self.core)
        self.calls = ConsumerCalls(self.core, lambda: clock.now_ms, Interceptors((self,)))
        self.user = User(self, random, profile.style, list(profile.topics), bad_callbacks, profile.is_slow)
        assert isinstance(self.core.membership, Membership)
        self.membership = self.core.membership
        self.owned: dict[TopicPartition, Owned] = {}
        """What it owns, as the callbacks told."""
        self.generation_id = -1
        """The generation in which `owned` was told."""
        self.revoking_now: frozenset[TopicPartition] = frozenset()
        self.left_poll_ms = clock.now_ms
        self.longest_pause_ms = 0
        self.in_poll = False
        self.last_member_id = ""
        self._told: object = None
        self._was_member = True
        self._joined = (-1, 0)
        self.driver.on_step = self._look

    @property
    def alive(self) -> bool:
        return self.driver.alive

    def start(self) -> None:
        self.driver.start(self.user.program())

    def __str__(self) -> str:
        kind = self.profile.style + ", slow" * self.user.is_slow + ", on a loop" * self.profile.on_loop
        return f"{self.profile.name} of {self.profile.group_id} ({kind}, {self.membership!r})"

    def require(self, condition: bool, message: str) -> None:
        if not condition:
            raise Broken(f"{self}: {message}")

    # ---- calls

    def poll(self, timeout_ms: int) -> Program[dict[TopicPartition, Records]]:
        now_ms = self.clock.now_ms
        limit = 1 if self.user.is_slow else self.core.config.max_poll_records
        self.longest_pause_ms = now_ms - self.left_poll_ms
        nothing: dict[TopicPartition, Records] = {}

        def take(at_ms: int) -> dict[TopicPartition, Records]:
            taken = self.core.fetcher.take(limit, at_ms)
            states = self.core.subscription.partitions
            wrong = [p for p in taken if p not in states or states[p].revoking]
            self.require(not wrong, f"poll takes records of {wrong}, which it has given back")
            return taken

        steps = self.calls.poll(now_ms + timeout_ms, take, nothing)
        self.in_poll = True
        try:
            polled = yield from self.bounded(steps, timeout_ms, "poll")
        finally:
            self.in_poll = False
            self.left_poll_ms = self.clock.now_ms
        self._check_polled(polled)
        return polled

    def bounded(self, steps: Steps[T], timeout_ms: int, what: str) -> Program[T]:
        """Runs a call and checks that it takes no longer than its timeout, without the time of the user's callbacks."""
        began_ms, before_ms = self.clock.now_ms, self.driver.in_callbacks_ms

        def check() -> None:
            took_ms = self.clock.now_ms - began_ms - (self.driver.in_callbacks_ms - before_ms)
            self.require(took_ms <= timeout_ms + SLACK_MS, f"{what} took {took_ms} ms, not {timeout_ms} ms")

        try:
            value = yield from self.driver.run(steps)
        except Exception:
            check()
            raise
        check()
        return value

    # ---- what is checked

    def _check_polled(self, polled: dict[TopicPartition, Records]) -> None:
        partitions = self.core.subscription.partitions
        for partition, records in polled.items():
            offsets = [record.offset for record in records]
            self.require(partition in self.owned, f"poll gave records of {partition}, which it does not own")
            owned = self.owned[partition]
            self.require(
                partition not in self.revoking_now, f"poll gave records of {partition} while it is revoked"
            )
            self.require(
                offsets == list(range(offsets[0], offsets[0] + len(offsets))),
                f"{partition}: offsets {offsets}",
            )
            if owned.next_offset is None:
                self.witness.begins(self, partition, owned, offsets[0])
            else:
                self.require(
                    offsets[0] == owned.next_offset,
                    f"poll gave {partition} from {offsets[0]} on, {owned.next_offset} was to come",
                )
            owned.next_offset = offsets[-1] + 1
            at = partitions[partition].position if partition in partitions else None
            self.require(
                at is not None and at.offset == owned.next_offset,
                f"the position of {partition} is {at} after {owned.next_offset - 1} was returned",
            )
            self.witness.check_sole_owner(self, partition)
        if self.membership.is_stable:
            self.witness.check_given(self)
            joined = self.membership.generation_id
            self.require(
                self.generation_id == joined, f"no callback said what it owns in generation {joined}"
            )
            self.require(
                set(self.owned) == set(partitions),
                f"owns {sorted(partitions)}, the callbacks said {sorted(self.owned)}",
            )

    def _look(self) -> None:
        """Checks after every round what is about to be told to the user, and whether it may still be a member."""
        self.last_member_id = self.membership.member_id or self.last_member_id
        if (
            self.membership.generation_id != self._joined[0]
        ):  # the clocks begin again with a join, as in Kafka
            self._joined = (self.membership.generation_id, self.clock.now_ms)
        since_ms = max(self.left_poll_ms, self._joined[1])
        overdue_ms = self.clock.now_ms - since_ms - self.core.config.max_poll_interval_ms
        if not self.in_poll and overdue_ms > SLACK_MS and self.membership.state is MemberState.STABLE:
            raise Broken(f"{self}: has not polled for too long by {overdue_ms} ms, and did not leave")
        callback = self.membership.callback
        if callback is self._told or callback is None:
            pass
        elif callback.kind is CallbackKind.REVOKED and not self._was_member:
            raise Broken(f"{self}: {callback}, though ownership is gone already")
        self._told = callback
        self._was_member = self.membership.generation_id >= 0

    def processed(self, partition: TopicPartition, offsets: list[int]) -> None:
        self.witness.processed(self, partition, offsets)

    def positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        states = self.core.subscription.partitions
        known = {p: states[p].position for p in partitions if p in states and states[p].has_position}
        return {p: at.offset for p, at in known.items() if at is not None}

    def on_commit(self, offsets: Offsets) -> None:
        """Checks every commit of this consumer that succeeded; called as an interceptor."""
        for partition, at in offsets.items():
            self.witness.check_in_log(self, partition, at.offset)
            state = self.core.subscription.partitions.get(partition)
            owned = self.owned.get(partition)
            if state is None or owned is None or owned.next_offset is None:
                continue
            position = state.position.offset if state.position is not None else -1
            self.require(
                position >= at.offset, f"the position of {partition} is {position}, {at.offset} is committed"
            )

    # ---- callbacks, as the user sees them

    def assigned(self, partitions: list[TopicPartition]) -> None:
        self.witness.callbacks["assigned"] += 1
        again = set(partitions) & set(self.owned)
        self.require(not again, f"assigned {sorted(again)}, which it owns already")
        self.require(not self.revoking_now, f"assigned while {sorted(self.revoking_now)} is revoked")
        gone = set(self.owned) - set(self.core.subscription.partitions)
        self.require(not gone, f"assigned before {sorted(gone)} was revoked")
        if self.membership.protocol is RebalanceProtocol.EAGER:
            self.require(not self.owned, f"assigned while it owns {sorted(self.owned)}")
        for partition in partitions:
            self.owned[partition] = self.witness.new_owner(partition)
        if self.membership.generation_id >= 0:
            self.generation_id = self.membership.generation_id

    def revoking(self, partitions: list[TopicPartition]) -> None:
        self.witness.callbacks["revoked"] += 1
        self._own("revoked", partitions)
        self.revoking_now = frozenset(partitions)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.revoking_now = frozenset()
        for partition in partitions:
            del self.owned[partition]

    def lost(self, partitions: list[TopicPartition]) -> None:
        self.witness.callbacks["lost"] += 1
        self._own("lost", partitions)
        for partition in partitions:
            del self.owned[partition]
        self.witness.check_lost(self, partitions)

    def _own(self, what: str, partitions: list[TopicPartition]) -> None:
        others = set(partitions) - set(self.owned)
        self.require(not others, f"{what}: {sorted(others)}, which it did not own")

    def gives(self, positions: dict[TopicPartition, int], clean: bool) -> None:
        """Notes that it gives partitions away; the work on them is done, and committed if `clean`.

        If nothing fails it must be committed, unless the user never commits before giving partitions away. A consumer
        with auto-commit commits before it joins. With the cooperative protocol it goes on reading after that, here as
        in Kafka: the next owner reads those records again.
        """
        if self.profile.style == "auto":
            eager = self.membership.protocol is RebalanceProtocol.EAGER
            clean = all(self.witness.committed(p) == at for p, at in positions.items())
            expected = eager or self.user.stopping
        else:
            expected = self.profile.style != "async"
        if clean:
            self.witness.handed_over(self, positions)
        elif expected and self.witness.is_settled(self.clock.now_ms):
            raise Broken(f"{self}: gave {positions} away without a commit, though nothing fails")
