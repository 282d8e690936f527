"""Arbitrary requests of arbitrary members, with writes that succeed and fail in between, keep the invariants."""

from collections import deque
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator import events as ev
from kohort.coordinator.classic.heartbeat import in_full
from kohort.coordinator.effects import Append, HeartbeatResponse, Reply, SetTimer
from kohort.coordinator.replay import Durable
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import Shard
from kohort.coordinator.step_context import StepContext
from kohort.sim.invariants import check_shard, check_twin, require
from kohort.wire.errors import ErrorCode

KNOBS = Settings(
    group_initial_rebalance_delay_ms=300,
    group_max_size=4,
    offsets_retention_minutes=1,
    offsets_retention_check_interval_ms=20_000,
)
FAILURES = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE]


class World:
    """A shard, its log, and everything anyone has ever been told."""

    def __init__(self) -> None:
        self.shard = Shard(0, KNOBS)
        self.now_ms = 0
        self.log: list[ev.LogRecord] = []
        self.twin = Durable()
        self.writes: deque[Append] = deque()
        self.timers: list[SetTimer] = []
        self.open: set[object] = set()
        self.requests = 0
        self.epoch = 0
        self.known_ids = ["", "stranger"]
        self.step(ev.BeginLoad(0))
        self.step(ev.EndLoad(0))

    def step(self, event: ev.Event) -> None:
        for effect in self.shard.step(event, self.now_ms):
            match effect:
                case Append():
                    self.writes.append(effect)
                case SetTimer():
                    self.timers.append(effect)
                case Reply(request, response):
                    require(request in self.open, f"{request} is answered twice, or was never asked")
                    self.open.discard(request)
                    new_id = getattr(response, "member_id", "")
                    if new_id and new_id not in self.known_ids:
                        self.known_ids.append(new_id)
        check_shard(self.shard)

    def token(self) -> int:
        self.requests += 1
        self.open.add(self.requests)
        return self.requests

    def settle(self, error: ErrorCode) -> None:
        if self.writes:
            write = self.writes.popleft()
            if error:
                self.step(ev.WriteFailed(write.token, error))
                return
            base = len(self.log)
            for number, (key, value) in enumerate(write.records):
                self.log.append(ev.LogRecord(base + number, key, value, write.producer_id))
                self.twin.apply(self.log[-1])
            self.step(ev.DurableWritten(write.token, base))

    def pass_time(self, milliseconds: int) -> None:
        until = self.now_ms + milliseconds
        for _ in range(200):
            due = [t for t in self.timers if t.deadline_ms <= until]
            if not due:
                break
            timer = min(due, key=lambda t: t.deadline_ms)
            self.timers.remove(timer)
            self.now_ms = max(self.now_ms, timer.deadline_ms)
            self.step(ev.TimerFired(timer.kind, timer.group_id, timer.member_id, timer.deadline_ms))
        self.now_ms = until

    def reload(self) -> None:
        """The partition moves away and comes back; what was on its way to the log is lost."""
        self.epoch += 1
        self.step(ev.Resign(self.epoch))
        self.writes.clear()
        self.epoch += 1
        self.step(ev.BeginLoad(self.epoch))
        self.step(ev.LoadRecords(self.epoch, self.log))
        self.step(ev.EndLoad(self.epoch))


group_ids = st.sampled_from(["g", "h"])
ids = st.integers(0, 6)
generations = st.integers(-1, 4)
instances = st.sampled_from([None, None, "i", "k"])
protocols = st.sampled_from(
    [
        (("range", b"1"),),
        (("range", b"2"), ("sticky", b"1")),
        (("sticky", b"1"),),
        (("range", b"\0\0\0\0\0\1\0\1t"),),
    ]
)
partitions = st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 1)), min_size=1, max_size=3)
actions = st.one_of(
    st.tuples(
        st.just("join"), group_ids, ids, instances, protocols, st.booleans(), st.sampled_from([6_000, 20_000])
    ),
    st.tuples(st.just("join"), group_ids, ids, instances, protocols, st.booleans(), st.just(10_000)),
    st.tuples(st.just("sync"), group_ids, ids, generations, instances),
    st.tuples(st.just("sync now"), group_ids, ids),
    st.tuples(st.just("everyone rejoins"), group_ids),
    st.tuples(st.just("everyone syncs"), group_ids),
    st.tuples(st.just("the group settles"), group_ids),
    st.tuples(st.just("the group settles"), st.just("g")),
    st.tuples(st.just("the group settles"), st.just("g")),
    st.tuples(st.just("static restart"), group_ids, protocols),
    st.tuples(st.just("metadata changes"), group_ids, ids, protocols),
    st.tuples(st.just("heartbeat"), group_ids, ids, generations, instances),
    st.tuples(st.just("leave"), group_ids, st.lists(st.tuples(ids, instances), min_size=1, max_size=3)),
    st.tuples(st.just("commit"), group_ids, ids, generations, partitions),
    st.tuples(st.just("commit now"), group_ids, ids, partitions),
    st.tuples(st.just("txn"), group_ids, partitions, st.integers(1, 2)),
    st.tuples(st.just("marker"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("fetch"), group_ids, st.booleans()),
    st.tuples(st.just("delete"), group_ids),
    st.tuples(st.just("offset delete"), group_ids, partitions),
    st.tuples(st.just("describe"), group_ids),
    st.tuples(st.just("list")),
    st.tuples(st.just("topic deleted"), st.sampled_from("tu")),
    st.tuples(st.just("written")),
    st.tuples(st.just("written")),
    st.tuples(st.just("written")),
    st.tuples(st.just("failed"), st.sampled_from(FAILURES)),
    st.tuples(st.just("time"), st.sampled_from([1, 400, 6_000, 70_000])),
    st.tuples(st.just("reload")),
)


def act(world: World, action: tuple[Any, ...]) -> None:
    def who(number: int) -> str:
        return world.known_ids[number % len(world.known_ids)]

    def now(group_id: str) -> int:
        group = world.shard.groups.get(group_id)
        return group.generation_id if group else 0

    def member_of(group_id: str, number: int) -> str:
        group = world.shard.groups.get(group_id)
        return list(group.members)[number % len(group.members)] if group and group.members else who(number)

    def rejoin(group_id: str, member_id: str, supported: Any, instance: str | None) -> None:
        token = world.token()
        event = ev.JoinGroup(
            token, group_id, member_id, "consumer", supported, 10_000, 8_000, str(token), instance, "c", "/h"
        )
        world.step(event)

    def everyone_rejoins(group_id: str) -> None:
        group = world.shard.groups.get(group_id)
        for member in list(group.members.values()) if group else []:
            rejoin(group_id, member.member_id, member.protocols, member.group_instance_id)
        for member_id in list(group.pending_joins) if group else []:
            rejoin(group_id, member_id, (("range", b"3"),), None)

    def everyone_syncs(group_id: str) -> None:
        group = world.shard.groups.get(group_id)
        for member_id in list(group.members) if group else []:
            assignments = tuple((i, f"{i} {world.requests}".encode()) for i in world.known_ids)
            world.step(ev.SyncGroup(world.token(), group_id, member_id, now(group_id), assignments))

    match action:
        case ("everyone rejoins", group):
            everyone_rejoins(group)
        case ("everyone syncs", group):
            everyone_syncs(group)
        case ("the group settles", group):
            world.pass_time(400)
            everyone_rejoins(group)
            everyone_syncs(group)
            while world.writes:
                world.settle(ErrorCode.NONE)
        case ("static restart", group, supported):
            found = world.shard.groups.get(group)
            for instance in list(found.static_members)[:1] if found else []:
                rejoin(group, "", supported, instance)
        case ("metadata changes", group, member, supported):
            rejoin(group, member_of(group, member), supported, None)
        case ("join", group, member, instance, supported, required, session):
            event = ev.JoinGroup(
                world.token(), group, who(member), "consumer", supported, session, 8_000,
                str(world.requests), instance, "c", "/h", required, required,
            )  # fmt: skip
            world.step(event)
        case ("sync", group, member, generation, instance):
            assignments = tuple((i, i.encode()) for i in world.known_ids)
            world.step(ev.SyncGroup(world.token(), group, who(member), generation, assignments, instance))
        case ("sync now", group, member):
            assignments = tuple((i, i.encode()) for i in world.known_ids[::2])
            member_id = member_of(group, member)
            world.step(ev.SyncGroup(world.token(), group, member_id, now(group), assignments))
        case ("heartbeat", group, member, generation, instance):
            world.step(ev.Heartbeat(world.token(), group, who(member), generation, instance))
        case ("leave", group, members):
            leavers = tuple(ev.Leaver(who(m), i, "bye") for m, i in members)
            world.step(ev.LeaveGroup(world.token(), group, leavers))
        case ("commit", group, member, generation, places):
            offsets = tuple(ev.OffsetToCommit(t, p, world.requests) for t, p in places)
            world.step(ev.OffsetCommit(world.token(), group, offsets, generation, who(member)))
        case ("commit now", group, member, places):
            offsets = tuple(ev.OffsetToCommit(t, p, world.requests) for t, p in places)
            member_id = member_of(group, member)
            world.step(ev.OffsetCommit(world.token(), group, offsets, now(group), member_id))
        case ("txn", group, places, producer):
            offsets = tuple(ev.OffsetToCommit(t, p, world.requests) for t, p in places)
            world.step(ev.TxnOffsetCommit(world.token(), group, offsets, producer, 0))
        case ("marker", producer, commit):
            while world.writes:
                world.settle(ErrorCode.NONE)
            world.log.append(ev.LogRecord(len(world.log), None, None, producer, commit))
            world.twin.apply(world.log[-1])
            world.step(ev.TxnMarker(producer, commit))
        case ("fetch", group, stable):
            world.step(ev.OffsetFetch(world.token(), group, None, stable))
        case ("delete", group):
            world.step(ev.DeleteGroup(world.token(), group))
        case ("offset delete", group, places):
            world.step(ev.OffsetDelete(world.token(), group, tuple((t, (p,)) for t, p in places)))
        case ("describe", group):
            world.step(ev.DescribeGroup(world.token(), group))
        case ("list",):
            world.step(ev.ListGroups(world.token()))
        case ("topic deleted", topic):
            world.step(ev.TopicsDeleted((topic,)))
        case ("written",):
            world.settle(ErrorCode.NONE)
        case ("failed", error):
            world.settle(error)
        case ("time", milliseconds):
            world.pass_time(milliseconds)
        case ("reload",):
            world.reload()


@settings(max_examples=250, deadline=None)
@given(st.lists(actions, min_size=15, max_size=60))
def test_arbitrary_requests_keep_the_invariants(script: list[tuple[Any, ...]]) -> None:
    world = World()
    for action in script:
        act(world, action)
        check_twin(world.shard, world.twin)
    while world.writes:
        world.settle(ErrorCode.NONE)
    check_twin(world.shard, world.twin)
    twin = Shard(0, KNOBS)
    for event in (ev.BeginLoad(0), ev.LoadRecords(0, world.log), ev.EndLoad(0)):
        twin.step(event, world.now_ms)
    check_shard(twin)
    check_twin(twin, world.twin)
    world.reload()
    assert world.open == set(), "someone was never answered"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(actions, min_size=5, max_size=40),
    st.lists(
        st.tuples(ids, st.integers(-1, 1), st.sampled_from([0, 1, 3_000, 9_000])), min_size=1, max_size=6
    ),
)
def test_a_heartbeat_in_time_does_what_the_full_way_does(
    script: list[tuple[Any, ...]], beats: list[tuple[int, int, int]]
) -> None:
    world = World()
    for action in script:
        act(world, action)
    for number, off, later_ms in beats:
        world.now_ms += later_ms
        for group_id in world.shard.groups:
            quick, full = deepcopy(world.shard), deepcopy(world.shard)
            group, of_full = quick.groups[group_id], full.groups[group_id]
            known = [*group.members, *group.pending_joins, "stranger"]
            beat = ev.Heartbeat(0, group_id, known[number % len(known)], group.generation_id + off)
            answer = quick.heartbeat_in_time(group_id, beat.member_id, beat.generation_id, world.now_ms)
            assert quick.durable == full.durable
            assert quick.writes.keys() == full.writes.keys()
            if answer is None:
                assert quick.groups == full.groups, "no answer, yet something changed"
                continue
            step = StepContext(full, world.now_ms)
            in_full(step, of_full, beat)
            assert step.effects == [Reply(0, HeartbeatResponse(answer))]
            assert quick.groups == full.groups
