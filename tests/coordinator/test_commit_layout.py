"""Commits in a layout are what the same commits are without one: bytes, effects, state."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator import events as ev
from kohort.coordinator.commit_layout import CommitLayout, LaidOutOffsets, LaidOutRecords
from kohort.coordinator.effects import Append, CommitResponse
from kohort.coordinator.records import decode_offset
from kohort.coordinator.replay import Durable
from kohort.coordinator.runtime import Done, Runtime
from kohort.coordinator.settings import Settings, partition_for
from kohort.coordinator.shard import Shard
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.group_records import decode_key
from kohort.wire.records.batch import check_batch, encode_pairs_batch

KNOBS = Settings(
    group_initial_rebalance_delay_ms=0,
    offsets_retention_minutes=1,
    offset_metadata_max_bytes=10,
    offsets_topic_num_partitions=2,
)


def often(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Each as often as the others and as it is named; `one_of` does not count so."""
    return st.sampled_from(strategies).flatmap(lambda chosen: chosen)


int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
times = st.integers(0, 2**50)
metadata = st.none() | st.text(max_size=12) | st.sampled_from(["x" * 300, "ä" * 32_000])
topic_ids = st.sampled_from([bytes(16), bytes(range(16)), b"\xff" * 16])
places = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 2**31 - 1)), min_size=1, unique=True)


@st.composite
def layouts(draw: st.DrawFn) -> CommitLayout:
    items = [
        ev.OffsetToCommit(t, p, 0, draw(int32), draw(metadata), ErrorCode.NONE, draw(topic_ids))
        for t, p in draw(places)
    ]
    storable = [item for item in items if len((item.metadata or "").encode()) < 2**15]
    return CommitLayout(draw(st.text(max_size=100)), storable or [ev.OffsetToCommit("t", 0, 0)])


@given(layouts(), st.data(), times, times)
def test_a_batch_is_what_its_records_are_encoded_to(
    layout: CommitLayout, data: st.DataObject, committed_ms: int, now_ms: int
) -> None:
    for _ in range(2):
        offsets = tuple(data.draw(int64) for _ in layout.keys)
        records = LaidOutRecords(layout, offsets, committed_ms)
        batch, header = records.encode_batch(now_ms)
        assert (batch, header) == encode_pairs_batch(tuple(records), now_ms)
        assert check_batch(batch).record_count == len(records)


def test_sequences_of_a_layout_are_those_that_they_stand_for() -> None:
    items = (ev.OffsetToCommit("t", 0, 0, 3, "m"), ev.OffsetToCommit("u", 1, 0))
    offsets = LaidOutOffsets(CommitLayout("g", items), (7, 8))
    assert offsets == (items[0]._replace(offset=7), items[1]._replace(offset=8))
    assert (len(offsets), offsets[1].offset, repr(offsets)) == (2, 8, repr(tuple(offsets)))
    assert offsets != tuple(offsets)[:1]


# ---- two shards that hear the same; one of them hears of offsets without a layout

LAYOUTS = [
    CommitLayout(
        group,
        [
            ev.OffsetToCommit(topic, p, 0, epoch, text, ErrorCode.NONE, topic.encode() * 16)
            for topic, p in where
        ],
    )
    for group, epoch, text, where in (
        ("g", -1, "", [("t", 0), ("t", 1), ("u", 0)]),
        ("g", -1, None, [("t", 2)]),
        ("h", -1, "", [("t", 0)]),
        ("h", -1, "much too long", [("u", 0), ("t", 0)]),
        ("g", 5, "kept", [("t", 1), ("t", 2)]),
    )
]
which = st.integers(0, len(LAYOUTS) - 1)
groups = st.sampled_from("gh")
topics = st.sampled_from("tu")
indexes = st.integers(0, 2)
commits = st.tuples(st.just("commit"), which)
others = st.one_of(
    st.tuples(st.just("commit of an old client"), st.integers(0, 3)),  # these know no leader epochs
    st.tuples(st.just("commit of a stranger"), which),
    st.tuples(st.just("commit without a layout"), groups, topics, indexes),
    st.tuples(st.just("commit in a transaction"), groups, topics, indexes),
    st.tuples(st.just("end the transaction"), st.booleans()),
    st.tuples(st.just("delete"), groups, topics, indexes),
    st.tuples(st.just("delete the group"), groups),
    st.tuples(st.just("the topic goes"), topics),
    st.tuples(st.just("fetch"), groups),
    st.tuples(st.just("fetch one"), groups, topics, indexes),
    st.tuples(st.just("the log is slow"), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from([ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR])),
    st.tuples(st.just("time passes")),
    st.tuples(st.just("move away and come back")),
)
actions = often(commits, others)


class Pair:
    def __init__(self) -> None:
        self.shards = (Shard(0, KNOBS), Shard(0, KNOBS))
        self.now_ms = self.epoch = self.count = 0
        self.log: list[ev.LogRecord] = []
        self.under_way: list[Append] = []
        self.slow = False
        self.step(ev.BeginLoad(0))
        self.step(ev.EndLoad(0))

    def step(self, event: ev.Event, other: ev.Event | None = None) -> None:
        effects = self.shards[0].step(event, self.now_ms)
        assert effects == self.shards[1].step(other or event, self.now_ms)
        self.under_way += [effect for effect in effects if isinstance(effect, Append)]
        while self.under_way and not self.slow:
            self.settle(ErrorCode.NONE)

    def settle(self, error: ErrorCode) -> None:
        append = self.under_way.pop(0)
        if error:
            self.step(ev.WriteFailed(append.token, error))
            return
        base = len(self.log)
        for number, (key, value) in enumerate(append.records):
            self.log.append(ev.LogRecord(base + number, key, value, append.producer_id))
        self.step(ev.DurableWritten(append.token, base))

    def commit(self, layout: CommitLayout, **more: Any) -> None:
        offsets = LaidOutOffsets(layout, tuple(self.next() for _ in layout.keys))
        self.step(
            ev.OffsetCommit("r", layout.group_id, offsets, **more),
            ev.OffsetCommit("r", layout.group_id, tuple(offsets), **more),
        )

    def next(self) -> int:
        self.count += 1
        return self.count

    def do(self, action: Any) -> None:
        match action:
            case ("commit", number):
                self.commit(LAYOUTS[number])
            case ("commit of an old client", number):
                self.commit(LAYOUTS[number], retention_time_ms=1_000)
            case ("commit of a stranger", number):
                self.commit(LAYOUTS[number], generation_id=3, member_id="stranger")
            case ("commit without a layout", group, topic, index):
                self.step(ev.OffsetCommit("r", group, (ev.OffsetToCommit(topic, index, self.next()),)))
            case ("commit in a transaction", group, topic, index):
                offsets = (ev.OffsetToCommit(topic, index, self.next()),)
                self.step(ev.TxnOffsetCommit("r", group, offsets, 9, 0))
            case ("end the transaction", commits):
                if not self.under_way:
                    self.log.append(ev.LogRecord(len(self.log), None, None, 9, commits))
                    self.step(ev.TxnMarker(9, commits))
            case ("delete", group, topic, index):
                self.step(ev.OffsetDelete("r", group, ((topic, (index,)),)))
            case ("delete the group", group):
                self.step(ev.DeleteGroup("r", group))
            case ("the topic goes", topic):
                self.step(ev.TopicsDeleted((topic,)))
            case ("fetch", group):
                self.step(ev.OffsetFetch("r", group, None))
            case ("fetch one", group, topic, index):
                self.step(ev.OffsetFetch("r", group, ((topic, (index,)),)))
            case ("the log is slow", slow):
                self.slow = slow
            case ("settle", error):
                if self.under_way:
                    self.settle(error)
            case ("time passes",):
                self.now_ms += 40_000
                deadline_ms = self.shards[0].expire_deadline_ms or 0
                self.step(ev.TimerFired(ev.TimerKind.EXPIRE, "", "", deadline_ms))
            case ("move away and come back",):
                self.epoch += 1
                self.under_way.clear()
                self.step(ev.BeginLoad(self.epoch))
                self.step(ev.LoadRecords(self.epoch, self.log))
                self.step(ev.EndLoad(self.epoch))
            case _:
                raise AssertionError(action)

    def replayed(self) -> Durable:
        durable = Durable()
        for record in self.log:
            durable.apply(record)
        return durable


overlapping = st.sampled_from([("commit", 0), ("commit", 1), ("commit", 4)])


@settings(max_examples=300, deadline=None)
@given(st.lists(actions, max_size=40) | st.lists(overlapping, min_size=3, max_size=6))
def test_commits_do_the_same_with_a_layout_and_without(script: list[Any]) -> None:
    pair = Pair()
    for action in script:
        pair.do(action)
    while pair.under_way:
        pair.settle(ErrorCode.NONE)
    replayed, (laid_out, plain) = pair.replayed(), pair.shards
    for name in ("groups", "offsets", "open_transactions"):
        assert getattr(laid_out.durable, name) == getattr(plain.durable, name) == getattr(replayed, name)
    for group_id, offsets in plain.durable.offsets.items():  # in the order in which they are listed, too
        assert list(laid_out.durable.offsets_of(group_id)) == list(offsets)


def test_the_next_commit_in_a_layout_costs_no_more_for_more_partitions() -> None:
    """It stands in one place for all partitions, until somebody looks or something else is written there."""
    pair = Pair()
    for _ in range(3):
        pair.commit(LAYOUTS[0])
        pair.commit(LAYOUTS[1])
    durable = pair.shards[0].durable
    assert len(durable._merged["g"]) == 2
    pair.commit(LAYOUTS[4])
    assert len(durable._merged["g"]) == 1
    assert [each.committed.offset for each in durable.offsets_of("g").values()] == [9, 13, 11, 14]


# ---- a commit that is spared its event


class Side:
    """A runtime with a log that is durable at once, or slow, or full.

    Commits take the way of all `events`; or are answered `at once` if the log is not slow; or `later`, when what was
    written without an event is durable. In the `mixed` way each commit takes another of these.
    """

    def __init__(self, way: str) -> None:
        self.way = way
        self.answers: list[object] = []
        self.log: list[ev.LogRecord] = []
        self.queues: dict[int, list[tuple[Any, Callable[[ErrorCode, int], None]]]] = {}
        self.slow = self.full = False
        self.short_cuts = self.epoch = 0
        self.now_ms = 1_000_000
        self.runtime = Runtime(KNOBS, self, lambda request, response: self.answers.append(response))
        for partition in range(KNOBS.offsets_topic_num_partitions):
            self.runtime.handle(partition, ev.BeginLoad(0), self.now_ms)
            self.runtime.handle(partition, ev.EndLoad(0), self.now_ms)

    def append(self, partition: int, write: Append, done: Done) -> None:
        self.enqueue(partition, write.records, lambda error, base: done(error, base, self.now_ms))

    def write_later(
        self, partition: int, records: Any, now_ms: int, done: Callable[[int, ErrorCode], None]
    ) -> None:
        self.short_cuts += 1
        if self.full and not self.slow:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
        self.enqueue(partition, records, lambda error, base: done(base, error))

    def enqueue(self, partition: int, records: Any, done: Callable[[ErrorCode, int], None]) -> None:
        self.queues.setdefault(partition, []).append((records, done))
        if not self.slow:
            self.settle(partition)

    def settle(self, partition: int) -> None:
        while queue := self.queues.get(partition):
            records, done = queue.pop(0)
            try:
                base = self.write(0, records, self.now_ms)
            except KafkaError as error:
                done(error.code, -1)
            else:
                done(ErrorCode.NONE, base)

    def write(self, partition: int, records: Any, now_ms: int) -> int:
        if self.full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
        base = len(self.log)
        self.log += [ev.LogRecord(base + n, key, value) for n, (key, value) in enumerate(records)]
        return base

    def commit(
        self, layout: CommitLayout, offsets: tuple[int, ...], who: tuple[int, str, str | None]
    ) -> None:
        way = ("events", "later", "at once")[offsets[0] // 100 % 3] if self.way == "mixed" else self.way
        if way == "at once" and not self.slow:
            response = self.runtime.commit_at_once(layout, offsets, *who, self.now_ms, self.write)
            if response is not None:
                self.short_cuts += 1
                self.answers.append(response)
                return
        laid_out = LaidOutOffsets(layout, offsets)
        as_told = tuple(laid_out) if way == "events" else laid_out
        request = ev.OffsetCommit("r", layout.group_id, as_told, *who)
        if way != "later" or not self.runtime.commit_when_durable(request, self.now_ms, self.write_later):
            self.runtime.submit(request, self.now_ms)

    def do(self, action: Any, offset: int) -> None:
        self.now_ms += 10
        match action:
            case ("commit", number, generation, member_id, instance):
                layout = LAYOUTS[number]
                offsets = tuple(offset + n for n in range(len(layout.keys)))
                self.commit(layout, offsets, (generation, member_id, instance))
            case ("join", group, member_id, instance, metadata):
                protocols = (("range", metadata),)
                join = ev.JoinGroup(
                    "r", group, member_id, "consumer", protocols, 6_000, 6_000, str(offset), instance,
                    requires_member_id=False,
                )  # fmt: skip
                self.runtime.submit(join, self.now_ms)
            case ("sync", group, generation):
                given = (("-0", b"all"),)
                self.runtime.submit(ev.SyncGroup("r", group, "-0", generation, given), self.now_ms)
            case ("fetch", group):
                self.runtime.submit(ev.OffsetFetch("r", group, None), self.now_ms)
            case ("delete", group):
                self.runtime.submit(ev.DeleteGroup("r", group), self.now_ms)
            case ("log", slow, full):
                self.slow, self.full = slow, full
            case ("settle",):
                for partition in list(self.queues):
                    self.settle(partition)
            case ("time passes", milliseconds):
                self.now_ms += milliseconds
                self.runtime.fire_due(self.now_ms)
            case ("move away and come back",):
                self.epoch += 1
                late, self.queues = self.queues, {}  # whose writes are lost, though they were told otherwise
                for partition in range(KNOBS.offsets_topic_num_partitions):
                    mine = [record for record in self.log if self.partition_of(record) == partition]
                    self.runtime.handle(partition, ev.BeginLoad(self.epoch), self.now_ms)
                    self.runtime.handle(partition, ev.LoadRecords(self.epoch, mine), self.now_ms)
                    self.runtime.handle(partition, ev.EndLoad(self.epoch), self.now_ms)
                for _, done in chain(*late.values()):
                    done(ErrorCode.NONE, len(self.log))
            case _:
                raise AssertionError(action)

    @staticmethod
    def partition_of(record: ev.LogRecord) -> int:
        assert record.key is not None
        key = decode_key(record.key)
        assert not isinstance(key, int)
        return partition_for(key.group, KNOBS.offsets_topic_num_partitions)

    def told(self) -> list[object]:
        """Everything that can be seen from outside."""
        sessions = [
            (group.group_id, group.state, member.member_id, member.session)
            for shard in self.runtime.shards
            for group in shard.groups.values()
            for member in group.members.values()
        ]
        pending = [
            (group.group_id, sorted(group.pending_commits), len(shard.writes))
            for shard in self.runtime.shards
            for group in shard.groups.values()
        ]
        return [self.answers, self.log, sessions, pending, self.runtime.next_deadline_ms()]

    def offsets(self) -> list[object]:
        return [shard.durable.offsets for shard in self.runtime.shards]


ids = st.sampled_from(["-0", "-0", "-0", "", "stranger"])
generations = st.sampled_from([1, 1, 1, 2, 2, 3, 0])
instances = st.sampled_from([None, "i"])
of_members = st.tuples(st.just("commit"), st.just(0), generations, ids, instances)
of_others = st.tuples(st.just("commit"), st.sampled_from([0, 2, 2, 3]), st.just(-1), st.just(""), st.none())
shorter = st.tuples(st.just("join"), st.just("g"), st.just("-0"), instances, st.just(b"again"))
around = st.one_of(
    st.tuples(st.just("join"), groups, st.sampled_from(["", "-0"]), instances, st.binary(max_size=1)),
    st.tuples(st.just("sync"), groups, st.integers(1, 3)),
    st.tuples(st.just("fetch"), groups),
    st.tuples(st.just("delete"), groups),
    st.tuples(st.just("log"), st.booleans(), st.booleans()),
    st.tuples(st.just("log"), st.booleans(), st.just(False)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("time passes"), st.sampled_from([0, 100, 4_000, 7_000, 200_000])),
    st.tuples(st.just("move away and come back")),
)
settled = [("join", "g", "", None, b""), ("sync", "g", 1)]
with_instance = [("join", "g", "", "i", b""), ("sync", "g", 1)]
member_commits = ("commit", 0, 1, "-0", None)
other_commits = ("commit", 2, -1, "", None)
twice = [member_commits, member_commits, other_commits, other_commits]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([[], [*settled, *twice], [*with_instance, *twice]]),
    st.lists(often(of_members, of_members, of_others, shorter, around), max_size=15),
)
def test_a_commit_that_is_spared_its_event_does_what_the_event_does(
    before: list[Any], script: list[Any]
) -> None:
    long, *short = sides = Side("events"), Side("at once"), Side("later"), Side("mixed")
    for number, action in enumerate([*before, *script]):
        for side in sides:
            side.do(action, 100 * number)
        for side in short:
            assert side.told() == long.told()
    for side in sides:
        side.do(("log", False, False), 0)
        side.do(("settle",), 0)
    live = long.offsets()
    assert [side.offsets() for side in short] == [live, live, live]
    for side in sides:
        side.do(("move away and come back",), 0)
        assert side.offsets() == live, "what is loaded is what was visible"


@pytest.mark.parametrize("way", ["at once", "later"])
def test_members_and_others_are_spared_it_from_the_second_commit_on(way: str) -> None:
    side = Side(way)
    for number, action in enumerate([*settled, *[member_commits] * 5, *[other_commits] * 5]):
        side.do(action, number)
    assert side.short_cuts == 8
    side.do(("log", False, True), 0)
    side.do(member_commits, 99)
    assert side.answers[-1] == CommitResponse((ErrorCode.NOT_COORDINATOR,) * 3)


def test_a_commit_does_not_overtake_one_that_is_on_its_way_to_the_log() -> None:
    side = Side("at once")
    for number in range(2):
        side.do(other_commits, number)
    side.do(("log", True, False), 0)
    side.do(other_commits, 2)
    side.do(("log", False, False), 0)
    side.do(other_commits, 3)
    assert side.short_cuts == 1
    assert [decode_offset(record.value or b"").offset for record in side.log] == [0, 1, 2, 3]


def test_a_commit_that_takes_a_timer_is_not_spared_its_event() -> None:
    side = Side("at once")
    for number, action in enumerate([*settled, member_commits, member_commits]):
        side.do(action, number)
    (group,) = (shard.groups["g"] for shard in side.runtime.shards if "g" in shard.groups)
    session = group.members["-0"].session
    session.timer_ms = None  # as after a timer that fired while the member was parked
    side.do(member_commits, 9)
    assert side.short_cuts == 1
    assert session.timer_ms == session.deadline_ms == side.now_ms + 6_000


def test_a_commit_is_answered_and_visible_when_it_is_durable_and_not_before() -> None:
    side = Side("later")
    for number in range(2):
        side.do(other_commits, number)
    side.do(("log", True, False), 0)
    told = len(side.answers)
    for number in range(2, 6):  # all of them are spared their event, though others are on their way
        side.do(other_commits, number)
    assert (side.short_cuts, len(side.answers)) == (5, told)
    (shard,) = (shard for shard in side.runtime.shards if "h" in shard.groups)
    assert [each.committed.offset for each in shard.durable.offsets_of("h").values()] == [1]
    side.do(("settle",), 0)
    assert side.answers[told:] == [LAYOUTS[2].accepted] * 4
    assert [each.committed.offset for each in shard.durable.offsets_of("h").values()] == [5]


def test_who_waits_for_a_commit_is_told_that_the_partition_moves_away() -> None:
    side = Side("later")
    for number in range(2):
        side.do(other_commits, number)
    side.do(("log", True, False), 0)
    side.do(other_commits, 2)
    told = len(side.answers)
    side.do(("move away and come back",), 0)
    assert side.answers[told:] == [CommitResponse((ErrorCode.NOT_COORDINATOR,))]
