"""Commits in a layout are what the same commits are without one: bytes, effects, state."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator import events as ev
from kohort.coordinator.commit_layout import CommitLayout, LaidOutOffsets, LaidOutRecords
from kohort.coordinator.effects import Append
from kohort.coordinator.replay import Durable
from kohort.coordinator.settings import Settings
from kohort.coordinator.shard import Shard
from kohort.wire.errors import ErrorCode
from kohort.wire.records import check_batch, encode_pairs_batch

KNOBS = Settings(offsets_retention_minutes=1, offset_metadata_max_bytes=10)

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
times = st.integers(0, 2**50)
metadata = st.none() | st.text(max_size=12) | st.sampled_from(["x" * 300, "ä" * 32_000])
places = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 2**31 - 1)), min_size=1, unique=True)


@st.composite
def layouts(draw: st.DrawFn) -> CommitLayout:
    items = [ev.OffsetToCommit(t, p, 0, draw(int32), draw(metadata)) for t, p in draw(places)]
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
    CommitLayout(group, [ev.OffsetToCommit(topic, p, 0, epoch, text) for topic, p in where])
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
actions = st.one_of(commits, commits, commits, others)


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
    assert len(durable._together["g"]) == 2
    pair.commit(LAYOUTS[4])
    assert len(durable._together["g"]) == 1
    assert [each.committed.offset for each in durable.offsets_of("g").values()] == [9, 13, 11, 14]
