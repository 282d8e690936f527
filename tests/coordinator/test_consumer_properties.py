"""Consumer groups under arbitrary requests: nobody shares a partition, epochs do not fall, and the log says it all."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator import events as ev
from kohort.coordinator.consumer.draft import ConsumerWrite
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconcile import Towards, reconcile
from kohort.coordinator.consumer.records import ClassicGroupChange
from kohort.coordinator.consumer.state import AWAY, STABLE, ConsumerMember, ConsumerState, Reconciliation
from kohort.coordinator.effects import Append, ConsumerHeartbeatResponse, JoinResponse, Reply, SetTimer
from kohort.coordinator.group_config import GroupConfig
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import Shard
from kohort.wire.errors import ErrorCode
from tests.coordinator.consumer_verbs import Topics, subscription, topic_id

KNOBS = Settings(group_initial_rebalance_delay_ms=0)
CONFIG = GroupConfig(consumer_assignment_interval_ms=1_000)
MEMBERS = 4
BOUNDED_ROUNDS = 12


@dataclass
class Client:
    """What a client remembers; it follows the protocol, but its answers may be lost."""

    name: str
    epoch: int = 0
    owned: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    generation: int = -1
    """Of a member that uses the classic protocol."""


class World:
    def __init__(self) -> None:
        self.topics = Topics(t=3, u=2)
        self.shard = self.new_shard()
        self.now_ms = 1_000_000
        self.log: list[ev.LogRecord] = []
        self.writes: deque[Append] = deque()
        self.clients = {name: Client(name) for name in "abcd"[:MEMBERS]}
        self.timers: list[SetTimer] = []
        self.open: dict[int, Client] = {}
        self.tokens = 0
        self.highest_epoch = 0
        for event in (ev.BeginLoad(0), ev.EndLoad(0)):
            self.step(event)

    def new_shard(self) -> Shard:
        return Shard(0, KNOBS, self.topics, lambda group_id: CONFIG)

    def step(self, event: ev.Event) -> None:
        effects: deque[Any] = deque(self.shard.step(event, self.now_ms))
        for effect in effects:
            match effect:
                case Append():
                    self.writes.append(effect)
                case Reply(token, response):
                    self.answered(self.open.pop(token), response)
                case SetTimer():
                    self.timers.append(effect)
        self.check()

    def answered(self, client: Client, response: Any) -> None:
        match response:
            case ConsumerHeartbeatResponse(ErrorCode.NONE):
                client.epoch = max(response.member_epoch, 0)
                if response.member_epoch < 0:
                    client.owned = {}
                elif response.assignment is not None:
                    client.owned = dict(response.assignment)
            case ConsumerHeartbeatResponse(ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID):
                client.epoch, client.owned = 0, {}
            case ConsumerHeartbeatResponse(ErrorCode.GROUP_ID_NOT_FOUND):
                client.epoch, client.owned = 0, {}
            case JoinResponse(ErrorCode.NONE):
                client.generation = response.generation_id

    def ask(self, client: Client, make: Any) -> None:
        self.tokens += 1
        self.open[self.tokens] = client
        self.step(make(self.tokens))

    def beat(self, client: Client, **fields: Any) -> None:
        epoch = fields.pop("epoch", client.epoch)
        if epoch == 0:
            client.owned = {}
            fields = {"rebalance_timeout_ms": 20_000, "topic_names": frozenset("t"), "owned": {}, **fields}
        self.ask(
            client,
            lambda token: ev.ConsumerGroupHeartbeat(token, "g", client.name, epoch, client_id="c", **fields),
        )

    def settle(self, count: int) -> None:
        for _ in range(min(count, len(self.writes))):
            write = self.writes.popleft()
            base = len(self.log)
            self.log += [ev.LogRecord(base + n, r.key, r.value) for n, r in enumerate(write.records)]
            self.step(ev.DurableWritten(write.token, base))

    def fail_all(self) -> None:
        """As a log that stops: what is on its way fails, in order."""
        for write in list(self.writes):
            if write in self.writes:
                self.writes.remove(write)
                self.step(ev.WriteFailed(write.token, ErrorCode.NOT_ENOUGH_REPLICAS))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        due = [timer for timer in self.timers if timer.deadline_ms <= self.now_ms]
        self.timers = [timer for timer in self.timers if timer.deadline_ms > self.now_ms]
        for timer in due:
            self.step(ev.TimerFired(timer.kind, timer.group_id, timer.member_id, timer.deadline_ms))

    def reload(self) -> None:
        self.settle(len(self.writes))
        before = {g: s.facts() for g, s in self.shard.durable.consumer_groups.items()}
        epoch = self.shard.epoch + 1
        for event in (ev.BeginLoad(epoch), ev.LoadRecords(epoch, self.log), ev.EndLoad(epoch)):
            self.step(event)
        assert {g: s.facts() for g, s in self.shard.durable.consumer_groups.items()} == before

    def topic(self, name: str, partitions: int) -> None:
        is_new = name not in self.topics.partitions
        if partitions:
            grown = max(partitions, self.topics.partitions.get(name, 0))
            self.topics.partitions[name] = grown
        elif not is_new:
            del self.topics.partitions[name]
        self.step(ev.TopicsChanged((name,), is_new))

    # ---- what always holds

    def check(self) -> None:
        assert not self.shard.groups.keys() & self.shard.consumer_groups.keys()
        for group in self.shard.consumer_groups.values():
            check_owners(group)
            check_epochs(group)
            assert group.facts() == what_the_log_will_say(self.shard, group.group_id).facts()


def check_owners(group: ConsumerGroup) -> None:
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        for owned in (member.assigned, member.pending):
            for topic, partitions in owned.items():
                for partition in partitions:
                    holder = owners.setdefault((topic, partition), member.member_id)
                    assert holder == member.member_id, (
                        f"{topic!r}/{partition} is with {holder} and {member.member_id}"
                    )
    assert {(t, p): m for t, ps in group.owners.items() for p, m in ps.items()} == owners


def check_epochs(group: ConsumerGroup) -> None:
    assert group.assignment_epoch <= group.group_epoch
    for member in group.members.values():
        assert member.epoch == AWAY or member.epoch <= group.assignment_epoch
    assert group.state_name() == ConsumerState.state_name(group)


def what_the_log_will_say(shard: Shard, group_id: str) -> ConsumerState:
    state = ConsumerState()
    if group_id in shard.durable.consumer_groups:
        state.take_over(shard.durable.consumer_groups[group_id])
    for write, _ in shard.writes.values():
        if isinstance(write, ConsumerWrite) and write.group.group_id == group_id and not write.is_doomed:
            state.apply_all(change for change in write.changes if not isinstance(change, ClassicGroupChange))
    return state


names = st.sampled_from("abcd")
subscriptions = st.sampled_from(["t", "u", "tu", ""]).map(frozenset)
actions = st.one_of(
    st.tuples(st.just("beat"), names),
    st.tuples(st.just("ack"), names),
    st.tuples(st.just("keep"), names),
    st.tuples(st.just("subscribe"), names, subscriptions),
    st.tuples(st.just("pattern"), names, st.sampled_from(["t.*", "u|t", ""])),
    st.tuples(st.just("join"), names),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("stale"), names, st.integers(-1, 3)),
    st.tuples(st.just("static"), st.integers(0, 2), st.sampled_from([0, -1, -2])),
    st.tuples(st.just("classic"), names, st.sampled_from(["t", "tu"])),
    st.tuples(st.just("classic beat"), names),
    st.tuples(st.just("classic leave"), names),
    st.tuples(st.just("topic"), st.sampled_from(["t", "u", "v", "t2"]), st.integers(0, 5)),
    st.tuples(st.just("time"), st.sampled_from([1, 900, 11_000, 21_000, 46_000])),
    st.tuples(st.just("settle"), st.integers(1, 4)),
    st.tuples(st.just("settle"), st.integers(1, 4)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("reload")),
    st.tuples(st.just("delete")),
)


def act(world: World, action: tuple[Any, ...]) -> None:
    client = world.clients.get(action[1]) if len(action) > 1 and isinstance(action[1], str) else None
    match action:
        case ("beat", _) if client:
            world.beat(client)
        case ("ack", _) if client:
            world.beat(client, **({"owned": client.owned} if client.epoch else {}))
        case ("keep", _) if client:  # it says that it owns more than it should
            more = {**client.owned, topic_id("t"): (0, 1, 2)}
            world.beat(client, **({"owned": more} if client.epoch else {}))
        case ("subscribe", _, topics) if client:
            world.beat(client, topic_names=topics)
        case ("pattern", _, regex) if client:
            world.beat(client, topic_regex=regex)
        case ("join", _) if client:
            world.beat(client, epoch=0)
        case ("leave", _) if client:
            world.beat(client, epoch=-1)
        case ("stale", _, off) if client:
            world.beat(client, epoch=max(client.epoch - off, 1))
        case ("static", number, epoch):
            static = world.clients.setdefault(f"s{number}", Client(f"s{number}"))
            world.beat(static, epoch=epoch, instance_id="i")
        case ("classic", _, topics) if client:
            old = Client(f"old-{client.name}")
            old = world.clients.setdefault(old.name, old)
            protocols = (("range", subscription("+".join(topics))),)
            world.ask(
                old,
                lambda token: ev.JoinGroup(
                    token, "g", old.name, "consumer", protocols, 30_000, 20_000, "uuid"
                ),
            )
        case ("classic beat", _) if client:
            member_id = f"old-{client.name}"
            generation = world.clients[member_id].generation if member_id in world.clients else 1
            world.ask(client, lambda token: ev.Heartbeat(token, "g", member_id, generation))
        case ("classic leave", _) if client:
            leaver = ev.Leaver(f"old-{client.name}")
            world.ask(client, lambda token: ev.LeaveGroup(token, "g", (leaver,)))
        case ("topic", name, partitions):
            world.topic(name, partitions)
        case ("time", ms):
            world.pass_time(ms)
        case ("settle", count):
            world.settle(count)
        case ("fail",):
            world.fail_all()
        case ("reload",):
            world.reload()
        case ("delete",):
            world.ask(world.clients["a"], lambda token: ev.DeleteGroup(token, "g"))


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, min_size=15, max_size=60))
def test_arbitrary_requests_keep_the_invariants(script: list[tuple[Any, ...]]) -> None:
    world = World()
    for action in script:
        act(world, action)
    world.settle(len(world.writes))
    every_prefix_replays(world)
    calm_down(world)


def every_prefix_replays(world: World) -> None:
    twin = world.new_shard()
    twin.step(ev.BeginLoad(0), 0)
    for record in world.log:
        assert not twin.step(ev.LoadRecords(0, [record]), 0)
        deepcopy(twin).step(ev.EndLoad(0), world.now_ms)
    for group_id, state in world.shard.durable.consumer_groups.items():
        assert twin.durable.consumer_groups[group_id].facts() == state.facts()
    assert twin.durable.groups == world.shard.durable.groups


def calm_down(world: World) -> None:
    """Lets the clients that are there go on as they should: the group becomes Stable, and all is owned."""
    world.fail_all()
    for client in world.clients.values():
        world.ask(client, lambda token, c=client: ev.LeaveGroup(token, "g", (ev.Leaver(c.name),)))
    world.settle(len(world.writes))
    world.pass_time(50_000)
    world.settle(len(world.writes))
    for name in world.topics.partitions.keys() | {"t"}:
        world.topic(name, 3)
    stay = [Client(name) for name in "wxyz"]
    for _ in range(BOUNDED_ROUNDS):
        world.pass_time(1_000)
        for client in stay:
            world.beat(client, **({"owned": client.owned} if client.epoch else {"topic_regex": "[tu].*"}))
            world.settle(len(world.writes))
        group = world.shard.consumer_groups["g"]
        if group.state_name() == "Stable" and not group.refresh_due:
            break
    assert group.state_name() == "Stable"
    owned = {(t, p) for member in group.members.values() for t, ps in member.assigned.items() for p in ps}
    subscribed = [world.topics.topic(name) for name in group.subscribed_topics()]
    assert owned == {(topic.topic_id, p) for topic in subscribed if topic for p in range(topic.partitions)}
    assert not [token for token, client in world.open.items() if client.name in "wxyz"]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(actions, min_size=5, max_size=30),
    st.lists(st.tuples(names, st.integers(-1, 1), st.sampled_from([0, 1, 9_000])), min_size=1, max_size=6),
)
def test_a_heartbeat_in_time_does_what_the_full_way_does(
    script: list[tuple[Any, ...]], beats: list[tuple[str, int, int]]
) -> None:
    world = World()
    for action in script:
        act(world, action)
    world.settle(len(world.writes))
    for name, off, later_ms in beats:
        world.now_ms += later_ms
        for group_id, known in world.shard.consumer_groups.items():
            member = known.members.get(name) or next(iter(known.members.values()), ConsumerMember("stranger"))
            epoch = member.epoch + off
            quick, full = deepcopy(world.shard), deepcopy(world.shard)
            interval_ms = quick.consumer_heartbeat_in_time(
                group_id, member.member_id, epoch, member.instance_id, ("c", ""), world.now_ms
            )
            if interval_ms is None:
                assert soft_state(quick) == soft_state(full), "no answer, yet something changed"
                continue
            beat = ev.ConsumerGroupHeartbeat(
                0, group_id, member.member_id, epoch, member.instance_id, client_id="c"
            )
            answer = ConsumerHeartbeatResponse(ErrorCode.NONE, None, member.member_id, epoch, interval_ms)
            assert full.step(beat, world.now_ms) == [Reply(0, answer)]
            assert soft_state(quick) == soft_state(full)


def test_a_quiet_member_takes_the_short_way_until_there_is_something_to_do() -> None:
    world = World()
    client = world.clients["a"]
    world.beat(client)
    way = world.shard.consumer_heartbeat_in_time
    assert way("g", "a", 2, None, ("c", ""), world.now_ms) is None, "its records are not durable yet"
    world.settle(1)
    assert way("g", "a", 2, None, ("c", ""), world.now_ms) == CONFIG.consumer_heartbeat_interval_ms
    assert way("g", "a", 1, None, ("c", ""), world.now_ms) is None
    assert way("g", "a", 2, "i", ("c", ""), world.now_ms) is None
    assert way("g", "a", 2, None, ("other", ""), world.now_ms) is None
    world.topic("t", 5)
    assert way("g", "a", 2, None, ("c", ""), world.now_ms) is None, "there are partitions to be had"


def soft_state(shard: Shard) -> list[Any]:
    return [
        (g.facts(), g.sessions, g.rebalance_deadlines, g.join_deadlines, g.sync_deadlines, g.refresh_due)
        for g in shard.consumer_groups.values()
    ]


partitions = st.dictionaries(
    st.sampled_from([b"t", b"u"]), st.dictionaries(st.integers(0, 4), st.integers(1, 5), min_size=1)
)
targets = st.dictionaries(st.sampled_from([b"t", b"u"]), st.frozensets(st.integers(0, 4), min_size=1))


@given(
    partitions,
    targets,
    st.frozensets(st.sampled_from([b"t", b"u"])),
    st.frozensets(st.tuples(st.sampled_from([b"t", b"u"]), st.integers(0, 4))),
    st.sampled_from([s for s in Reconciliation if s is not Reconciliation.UNKNOWN]),
)
def test_a_member_that_does_as_it_is_told_reaches_its_target(
    assigned: Any,
    target: Any,
    topics: frozenset[bytes],
    taken: frozenset[tuple[bytes, int]],
    state: Reconciliation,
) -> None:
    """In two steps it has all that is free of its target; it never gets what another member has."""
    member = ConsumerMember("m", 5, 4, STABLE, assigned)
    taken = frozenset((t, p) for t, p in taken if p not in assigned.get(t, {}))
    for _ in range(2):
        owned = {t: tuple(ps) for t, ps in member.assigned.items()}
        to = Towards(6, target, topics, owned, lambda t, p: (t, p) not in taken)
        moved = reconcile(member, to)
        assert moved is not None
        assert moved.epoch >= member.epoch
        assert not any((t, p) in taken for t, ps in moved.assigned.items() for p in ps)
        member = moved
    wanted = {(t, p) for t, ps in target.items() if t in topics for p in ps}
    assert {(t, p) for t, ps in member.assigned.items() for p in ps} == wanted - taken
    assert member.epoch == 6
    assert (member.state is STABLE) == (not wanted & taken)
