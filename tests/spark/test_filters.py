"""Less is read: what filters and the option `where` choose, and that no row is lost by it."""

from __future__ import annotations

import datetime
import random
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import IntegerType, LongType, StructType

from kohort import Admin, Producer, TopicPartition
from kohort.broker.running import running
from kohort.spark.conditions import read_condition
from kohort.spark.driver.filters import push
from kohort.spark.driver.planning import NEAR_OFFSETS, restrict
from kohort.spark.executor import range_reader
from kohort.spark.executor.row_filter import chosen
from kohort.spark.options import OptionError, SourceOptions
from kohort.spark.ranges import DataLoss, OffsetRange
from kohort.spark.restriction import ALL, EVERYTHING, HIGHEST, NOTHING, NumberSet, Restriction, pieces_within
from kohort.spark.source import FilteringReader, KohortDataSource, KohortReader, with_decoding
from kohort.wire.records.columns import Columns
from tests.clients.process import BrokerProcess
from tests.spark.reading import PLAIN, options_for

TOPICS = ("orders-eu", "orders-us", "payments")
PARTITIONS = 2
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
T0_MS = 1_790_000_000_000
Row = dict[str, Any]


def at_us(microseconds: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=microseconds)


def at(milliseconds: int) -> datetime.datetime:
    return at_us(milliseconds * 1000)


# --- sets of numbers ----------------------------------------------------------------------------------

SMALL = range(-12, 13)
number_sets = st.lists(st.integers(-10, 10), max_size=8).map(NumberSet.of)
any_sets = number_sets | number_sets.map(NumberSet.complement)


def members(numbers: NumberSet) -> set[int]:
    return {number for number in SMALL if number in numbers}


@given(any_sets, any_sets)
def test_sets_of_numbers(one: NumberSet, other: NumberSet) -> None:
    assert members(one & other) == members(one) & members(other)
    assert members(one.complement()) == set(SMALL) - members(one)
    assert members(one.scaled_down(3)) == {number for number in SMALL if number * 3 in one}
    assert one.complement().complement() == one
    assert (one & ALL) == one


@given(any_sets, st.integers(-12, 12), st.integers(0, 12), st.integers(1, 3), st.integers(1, 3))
def test_pieces_hold_all_that_is_wanted(
    wanted: NumberSet, start: int, size: int, near: int, most: int
) -> None:
    pieces = pieces_within(wanted, start, start + size, near, most)
    covered = [number for first, after in pieces for number in range(first, after)]
    assert (
        members(wanted) & set(range(start, start + size)) <= set(covered) <= set(range(start, start + size))
    )
    assert len(pieces) <= most
    assert len(covered) == len(set(covered))
    assert all(first in wanted and after - 1 in wanted for first, after in pieces)


# --- what filters mean --------------------------------------------------------------------------------


def truth(condition: Filter, row: Row) -> bool | None:
    """SQL's value of a condition, written down a second time: None is null."""
    if isinstance(condition, Not):
        inner = truth(condition.child, row)
        return None if inner is None else not inner
    each: Any = condition
    value = row[each.attribute[0]]
    if isinstance(each, (IsNull, IsNotNull)):
        return (value is None) is isinstance(each, IsNull)
    if isinstance(each, In):
        return True if value in each.value else None if None in each.value else False
    if each.value is None:
        return False if isinstance(each, EqualNullSafe) else None
    return bool(COMPARISONS[type(each)](value, each.value))


COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    StringStartsWith: lambda a, b: a.startswith(b),
    StringEndsWith: lambda a, b: a.endswith(b),
    StringContains: lambda a, b: b in a,
}
TEXTS = (StringStartsWith, StringEndsWith, StringContains)

literals: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from([*TOPICS, "", "orders", "s", "zz", "no such topic!"]),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-2, 70) | st.sampled_from([1 << 40, HIGHEST, -(1 << 63)]),
    # Half of them between two milliseconds: Spark has microseconds, Kafka has not.
    "timestamp": st.integers(-3_000, 60_000).map(lambda us: at_us(T0_MS * 1000 + us)),
}


@st.composite
def filters_on(draw: st.DrawFn, column: str) -> Filter:
    kinds = [EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
    kind: Any = draw(st.sampled_from([*kinds, In, IsNull, IsNotNull, *(TEXTS if column == "topic" else ())]))
    literal = literals[column]
    made: Filter
    if kind in (IsNull, IsNotNull):
        made = kind((column,))
    elif kind is In:
        made = In((column,), tuple(draw(st.lists(literal | st.none(), max_size=4))))
    else:
        made = kind((column,), draw(literal if kind in TEXTS else literal | st.none()))
    return Not(made) if draw(st.booleans()) else made


any_filters = st.lists(st.sampled_from(list(literals)).flatmap(filters_on), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("condition", "meaning"),
    [
        (EqualTo(("offset",), None), NOTHING),
        (Not(EqualTo(("offset",), None)), NOTHING),
        (EqualNullSafe(("offset",), None), NOTHING),
        (Not(EqualNullSafe(("offset",), None)), EVERYTHING),
        (Not(In(("partition",), (1, None))), NOTHING),
        (IsNull(("timestamp",)), NOTHING),
        (Not(IsNull(("timestamp",))), EVERYTHING),
        (IsNotNull(("topic",)), EVERYTHING),
    ],
)
def test_null_has_the_rules_of_sql(condition: Filter, meaning: Any) -> None:
    assert push([condition]).restriction == meaning


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("value",), b"1"),
        IsNotNull(("key",)),
        EqualTo(("timestampType",), 0),
        GreaterThan(("offset",), 1.5),
        EqualTo(("offset",), True),
        EqualTo(("offset",), "7"),
        GreaterThan(("timestamp",), datetime.datetime(2026, 1, 1)),  # without a zone
        GreaterThan(("timestamp",), datetime.date(2026, 1, 1)),
        In(("topic",), ("a", 1)),
        EqualTo(("value", "offset"), 3),
        StringContains(("offset",), "1"),
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_pushed_is_left_to_spark(condition: Filter) -> None:
    other = GreaterThan(("offset",), 5)
    pushed = push([condition, other])
    assert pushed.left == (condition,)
    assert pushed.left[0] is condition  # Spark compares by identity
    assert pushed.restriction == push([other]).restriction


def test_columns_that_the_frame_does_not_have_are_not_ours() -> None:
    condition = EqualTo(("offset",), 3)
    assert push([condition], ("value",)).left == (condition,)


def test_times_between_milliseconds_are_exact() -> None:
    def times(condition: Filter) -> NumberSet:
        return push([condition]).restriction.times

    half, whole = at_us(5_500), at_us(5_000)
    assert times(GreaterThan(("timestamp",), half)) == NumberSet.between(6, HIGHEST)
    assert times(GreaterThan(("timestamp",), whole)) == NumberSet.between(6, HIGHEST)
    assert times(GreaterThanOrEqual(("timestamp",), whole)) == NumberSet.between(5, HIGHEST)
    assert times(LessThan(("timestamp",), half)).last == 5
    assert times(LessThan(("timestamp",), whole)).last == 4
    assert not times(EqualTo(("timestamp",), half))
    assert times(EqualTo(("timestamp",), whole)) == NumberSet.of([5])


# --- ranges -------------------------------------------------------------------------------------------


def parts(whole: OffsetRange, wanted: NumberSet, **times: int) -> list[tuple[int, int, bool]]:
    return [(part.start, part.end, part.open_end) for part in restrict(whole, wanted, **times)]


def test_parts_of_a_range() -> None:
    closed = OffsetRange(TopicPartition("t", 0), 10, 100_000)
    growing = replace(closed, open_start=True, open_end=True)
    far = NumberSet.of([20, 50_000])
    assert parts(closed, ALL) == [(10, 100_000, False)]
    assert parts(closed, NumberSet.between(0, 19)) == [(10, 20, False)]
    assert parts(closed, far) == [(20, 21, False), (50_000, 50_001, False)]
    assert parts(closed, NumberSet.of(range(0, 100_000, 2))) == [(10, 99_999, False)]
    assert parts(closed, ALL, first=500) == [(500, 100_000, False)]
    assert parts(closed, ALL, first=500, after=600) == [(500, 600, False)]
    assert parts(closed, ALL, first=100_000) == []
    assert parts(closed, NumberSet.of([100_000])) == []
    # What ends with the log does so when it is read.
    assert parts(growing, ALL, first=100_000) == [(100_000, 100_000, True)]
    assert parts(growing, NumberSet.between(200_000, HIGHEST)) == [(200_000, 200_000, True)]
    assert parts(growing, far) == [(20, 21, False), (50_000, 50_001, False)]
    assert parts(growing, ALL, after=600) == [(10, 600, False)]
    assert parts(growing, NumberSet.between(100_000 - NEAR_OFFSETS, HIGHEST))[0][2]
    assert all(part.open_start for part in restrict(growing, far))


# --- a reader -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker_here() -> Iterator[running]:
    with running() as broker:
        yield broker
        range_reader.close_sessions()


@pytest.fixture(scope="module")
def bootstrap(broker_here: running) -> str:
    return broker_here.bootstrap_servers


@pytest.fixture(scope="module")
def records(bootstrap: str) -> list[Row]:
    """Some records in all partitions of all topics, with times in any order; some batches are compressed."""
    chance = random.Random(14)
    with Admin(bootstrap_servers=bootstrap) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, PARTITIONS)
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            for codec in ("none", "lz4", "none"):
                with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
                    for _ in range(chance.randrange(3, 20)):
                        when = T0_MS + chance.randrange(-2, 60)
                        producer.send(topic, value=b"v", partition=partition, timestamp_ms=when)
    return rows_of_reader(reader_for(options_for(bootstrap, ",".join(TOPICS), streaming=False)))


def reader_for(options: SourceOptions, *filters: Filter) -> FilteringReader:
    reader = FilteringReader(options, PLAIN)
    if filters:
        assert list(reader.pushFilters(list(filters))) == []
    return reader


def rows_of_reader(reader: FilteringReader) -> list[Row]:
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def place(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def offsets_planned(reader: FilteringReader) -> int:
    return sum(getattr(task, "wanted").size for task in reader.partitions())  # noqa: B009 - InputPartition has none


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_filters, st.sampled_from([{}, {"minPartitions": 9}, {"maxRecordsPerPartition": 4}]))
def test_pushed_filters_give_what_filters_give(
    bootstrap: str, records: list[Row], filters: list[Filter], more: dict[str, Any]
) -> None:
    options = options_for(bootstrap, ",".join(TOPICS), streaming=False, **more)
    reader = reader_for(options, *filters)
    naive = [place(row) for row in records if all(truth(each, row) for each in filters)]
    assert sorted(map(place, rows_of_reader(reader))) == sorted(naive)
    assert offsets_planned(reader) <= len(records)


@pytest.mark.parametrize("as_column", [np.array, lambda numbers: memoryview(array("q", numbers))])
@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), any_sets, any_sets, st.booleans())
@settings(deadline=None)
def test_rows_are_chosen_in_columns_of_both_kinds(
    as_column: Callable[[list[int]], Any],
    times: list[int],
    offsets: NumberSet,
    wanted_times: NumberSet,
    decoded: bool,
) -> None:
    """Numba's way of decoding makes numpy arrays, Python's makes memoryviews."""
    numbers, unused = as_column(list(range(len(times)))), as_column([0] * len(times))
    columns = Columns(
        b"", numbers, as_column(times), *[unused] * 6, [(len(times), 0, 0)], False, False, False
    )
    wanted = Restriction(offsets=offsets, times=wanted_times)

    right = [n for n, time in enumerate(times) if n in offsets and time in wanted_times]

    def batch_of(part: Columns) -> pa.RecordBatch:
        assert not decoded or set(part.offsets.tolist()) <= set(right)
        return pa.record_batch({"offset": pa.array(part.offsets.tolist(), pa.int64())})

    batches = chosen(iter([columns]), wanted, batch_of, decoded=decoded)
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == right


def test_a_record_that_is_not_wanted_is_not_decoded(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("typed", 1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b'{"n": 0}', b"no JSON", b'{"n": 2}'):
            producer.send("typed", value=value, partition=0)
    given = {"valueFormat": "json", "valueSchema": "n int"}
    options = options_for(bootstrap, "typed", streaming=False, where="offset <> 1", **given)
    schema = StructType().add("value", StructType().add("n", IntegerType())).add("offset", LongType())
    reader = KohortReader(with_decoding(options, schema), ("value", "offset"))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows == [{"value": {"n": 0}, "offset": 0}, {"value": {"n": 2}, "offset": 2}]


def new_topic(bootstrap: str, name: str, times: list[int]) -> str:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, 1)
    send(bootstrap, name, times)
    return name


def send(bootstrap: str, topic: str, times: list[int]) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for time_ms in times:
            producer.send(topic, value=b"v", partition=0, timestamp_ms=time_ms)


def ranges(reader: FilteringReader) -> list[tuple[int, int]]:
    return [(task.wanted.start, task.wanted.end) for task in reader.partitions()]  # type: ignore[attr-defined]


def test_times_choose_offsets_before_anything_is_fetched(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "hours", [T0_MS + n for n in range(100)])
    options = options_for(bootstrap, topic, streaming=False)
    assert ranges(reader_for(options, GreaterThanOrEqual(("timestamp",), at(T0_MS + 99)))) == [(99, 100)]
    assert ranges(reader_for(options, GreaterThan(("timestamp",), at_us(T0_MS * 1000 + 89_500)))) == [
        (90, 100)
    ]
    until = LessThan(("timestamp",), at(T0_MS + 10))
    assert ranges(reader_for(options, until)) == [(0, 100)]  # a later record might be earlier again
    in_order = replace(options, timestamps_in_order=True)
    assert ranges(reader_for(in_order, until)) == [(0, 10)]
    assert len(rows_of_reader(reader_for(in_order, until))) == 10
    assert ranges(reader_for(options, GreaterThan(("timestamp",), at(-5_000)))) == [(0, 100)]
    assert ranges(reader_for(in_order, LessThan(("timestamp",), at(-5_000)))) == [(0, 100)]


def test_a_late_record_with_an_early_time_is_not_lost(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "disorder", [T0_MS + 50, T0_MS + 10, T0_MS + 90, T0_MS + 20])
    options = options_for(bootstrap, topic, streaming=False)
    early = LessThanOrEqual(("timestamp",), at(T0_MS + 20))
    assert [row["offset"] for row in rows_of_reader(reader_for(options, early))] == [1, 3]


def test_a_frame_that_is_evaluated_again_sees_new_records(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "growing", [T0_MS] * 5)
    options = options_for(bootstrap, topic, streaming=False)

    def tasks(*filters: Filter) -> Callable[[], list[int]]:
        reader = reader_for(options, *filters)
        planned = reader.partitions()
        return lambda: [row["offset"] for task in planned for b in reader.read(task) for row in b.to_pylist()]

    recent = tasks(GreaterThan(("timestamp",), at(T0_MS + 1)))
    far, near = tasks(GreaterThanOrEqual(("offset",), 7)), tasks(LessThan(("offset",), 6))
    assert (recent(), far(), near()) == ([], [], [0, 1, 2, 3, 4])
    send(bootstrap, topic, [T0_MS + 2, T0_MS, T0_MS + 3, T0_MS])
    assert (recent(), far(), near()) == ([5, 7], [7, 8], [0, 1, 2, 3, 4, 5])


def test_what_is_excluded_is_not_asked_for(bootstrap: str, records: list[Row]) -> None:
    missing = options_for(bootstrap, "payments,does-not-exist", streaming=False)
    assert {row["topic"] for row in rows_of_reader(reader_for(missing, EqualTo(("topic",), "payments")))} == {
        "payments"
    }
    pattern = options_for(bootstrap, "", streaming=False, subscribePattern="^orders")
    both = reader_for(pattern, In(("topic",), ("orders-us", "payments", "no such topic!")))
    assert {row["topic"] for row in rows_of_reader(both)} == {"orders-us"}
    away = options_for("127.0.0.1:1", "payments", streaming=False)  # nobody listens there
    for contradiction in (
        [GreaterThan(("offset",), 5), LessThan(("offset",), 3)],
        [EqualTo(("topic",), "a"), EqualTo(("topic",), "b")],
        [EqualTo(("topic",), "other")],
        [EqualTo(("partition",), None)],
    ):
        assert reader_for(away, *contradiction).partitions() == []


def test_offsets_of_all_partitions_may_be_named(bootstrap: str, records: list[Row]) -> None:
    start = '{"payments":{"0":1,"1":2}}'
    options = options_for(bootstrap, "payments", streaming=False, startingOffsets=start)
    rows = rows_of_reader(reader_for(options, EqualTo(("partition",), 1), LessThan(("offset",), 5)))
    assert [place(row)[1:] for row in rows] == [(1, 2), (1, 3), (1, 4)]


def test_a_restricted_range_reports_no_loss_that_is_none(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "shortened", [T0_MS + n for n in range(20)])
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})
    start = f'{{"{topic}":{{"0":3}}}}'
    options = options_for(bootstrap, topic, streaming=False, startingOffsets=start)
    with pytest.raises(DataLoss):
        rows_of_reader(reader_for(options))
    assert [r["offset"] for r in rows_of_reader(reader_for(options, GreaterThan(("offset",), 17)))] == [
        18,
        19,
    ]
    late = GreaterThan(("timestamp",), at(T0_MS + 17))
    assert [r["offset"] for r in rows_of_reader(reader_for(options, late))] == [18, 19]
    assert rows_of_reader(reader_for(options, GreaterThan(("offset",), 1_000))) == []


# --- the option where ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("offset = 3", [EqualTo(("offset",), 3)]),
        ("offset != 3 AND `partition` <> 0", [Not(EqualTo(("offset",), 3)), Not(EqualTo(("partition",), 0))]),
        ("(offset > 3 and Offset <= 9)", [GreaterThan(("offset",), 3), LessThanOrEqual(("offset",), 9)]),
        ("partition not in (0, 1)", [Not(In(("partition",), (0, 1)))]),
        ("offset between -1 and 8", [GreaterThanOrEqual(("offset",), -1), LessThan(("offset",), 9)]),
        ("offset not between 2 and 8", [Not(In(("offset",), tuple(range(2, 9))))]),
        ("topic in ('a', 'it''s')", [In(("topic",), ("a", "it's"))]),
        ("topic like 'a%'", [StringStartsWith(("topic",), "a")]),
        ("topic not like '%a'", [Not(StringEndsWith(("topic",), "a"))]),
        ("topic like '%a%'", [StringContains(("topic",), "a")]),
        ("topic >= 'b'", [GreaterThanOrEqual(("topic",), "b")]),
        ("timestamp >= '1970-01-01T00:00:05.0005Z'", [GreaterThanOrEqual(("timestamp",), at_us(5_000_500))]),
        ("timestamp < timestamp '1970-01-01 01:00:05+01:00'", [LessThan(("timestamp",), at(5_000))]),
        ("timestamp = 5000", [EqualTo(("timestamp",), at(5_000))]),
    ],
)
def test_a_condition_means_what_spark_s_filters_mean(text: str, filters: list[Filter]) -> None:
    assert read_condition(text) == push(filters).restriction


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected one of topic, partition, offset, timestamp, found the end"),
        ("value = 3", "found value"),
        ("offset = 3 or offset = 4", "joined by AND only"),
        ("offset > 'a'", "expected an integer for offset, found 'a'"),
        ("offset = 1.5", "cannot read '1.5'"),
        ("offset >", "found the end"),
        ("offset = 3)", "expected AND, found )"),
        ("(offset = 3", "found the end"),
        ("topic = orders", "a text in single quotes"),
        ("topic like 'a_c'", "'%abc%'"),
        ("topic between 'a' and 'b'", "BETWEEN is for"),
        ("timestamp > '2026-11-16 10:00'", "has no time zone"),
        ("timestamp > 'soon'", "is no time"),
        ("offset not = 3", "expected a comparison"),
    ],
)
def test_a_condition_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=r"^where: ") as caught:
        options_for("127.0.0.1:1", "t", streaming=False, where=text)
    assert words in str(caught.value)


def test_where_restricts_a_batch(bootstrap: str, records: list[Row]) -> None:
    where = f"topic like 'orders%' and partition = 1 and timestamp >= {T0_MS + 30}"
    options = options_for(bootstrap, ",".join(TOPICS), streaming=False, where=where)
    expected = [
        place(row)
        for row in records
        if row["topic"] != "payments" and row["partition"] == 1 and row["timestamp"] >= at(T0_MS + 30)
    ]
    assert sorted(map(place, rows_of_reader(reader_for(options)))) == sorted(expected)
    further = reader_for(options, EqualTo(("topic",), "orders-us"))
    assert sorted(map(place, rows_of_reader(further))) == sorted(p for p in expected if p[0] == "orders-us")


def test_where_of_a_stream_is_for_topics_and_partitions() -> None:
    assert options_for("127.0.0.1:1", "t", where="partition = 1").wanted.partitions == NumberSet.of([1])
    with pytest.raises(OptionError, match="a stream chooses topics and partitions only"):
        options_for("127.0.0.1:1", "t", where="offset > 3")


def test_what_is_not_possible_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("filterPushdown", "timestampsInOrder"):
        with pytest.raises(OptionError, match=f"{name} is for batches"):
            options_for("127.0.0.1:1", "t", **{name: True})
    with pytest.raises(OptionError, match="groupMode=shared cannot go with a condition on partition"):
        options_for("127.0.0.1:1", "t", where="partition = 1", kafka__group__id="g", groupMode="shared")
    assert options_for("127.0.0.1:1", "t", where="topic = 't'", kafka__group__id="g", groupMode="shared")
    monkeypatch.delattr(DataSourceReader, "pushFilters")  # as in PySpark 4.0
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "filterpushdown": "true"}
    source = KohortDataSource(options)
    with pytest.raises(
        OptionError, match=r"filterPushdown needs PySpark 4\.1 or later: use the option where"
    ):
        source.reader(source.schema())


# --- with Spark ---------------------------------------------------------------------------------------

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def filled(new_topic: Any, broker: BrokerProcess) -> str:
    """Three partitions of 20 records, a second apart."""
    topic: str = new_topic(partitions=3)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for n in range(60):
            producer.send(topic, value=b"%d" % n, partition=n % 3, timestamp_ms=T0_MS + 1000 * (n // 3))
    return topic


@pytest.fixture
def pushdown(spark: Any) -> Iterator[None]:
    yield from set_pushdown(spark, "true")


@pytest.fixture
def no_pushdown(spark: Any) -> Iterator[None]:
    yield from set_pushdown(spark, "false")


def set_pushdown(spark: Any, value: str) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, value)
    yield
    spark.conf.set(PUSHDOWN, before)


CONDITIONS = (
    f"timestamp > timestamp_millis({T0_MS + 3_000}) and timestamp < timestamp_millis({T0_MS + 9_000})",
    "offset in (1, 19, 4000) and partition != 0",
    "topic like '%-%' and offset > 17 and length(value) > 1",
    "offset > 18 or partition = 2",
    "timestamp is null",
)


def test_spark_gets_the_same_rows(spark: Any, read: Any, filled: str, pushdown: None) -> None:
    everything = read(subscribe=filled).collect()
    plain = spark.createDataFrame(everything, read(subscribe=filled).schema)
    for condition in CONDITIONS:
        frame = read(subscribe=filled, filterPushdown=True).where(condition)
        assert sorted(frame.collect()) == sorted(plain.where(condition).collect()), condition


def test_the_plan_says_what_was_pushed(
    read: Any, filled: str, pushdown: None, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = read(subscribe=filled, filterPushdown=True)
    frame.where("offset > 5 and length(value) = 1 and value = binary('7')").explain("formatted")
    plan = capsys.readouterr().out
    assert "PushedFilters: [IsNotNull(offset), GreaterThan(offset,5)]" in plan
    condition = next(line for line in plan.splitlines() if line.startswith("Condition"))
    assert "value" in condition
    assert "offset" not in condition


def test_a_session_without_pushdown_reads_as_ever(read: Any, filled: str, no_pushdown: None) -> None:
    assert read(subscribe=filled).where("offset > 17").count() == 6
    with pytest.raises(Exception, match=r"filterPushdown\.enabled"):
        read(subscribe=filled, filterPushdown=True).where("offset > 17").count()


def test_without_the_option_frames_of_one_load_do_not_disturb_each_other(
    read: Any, filled: str, pushdown: None
) -> None:
    """Spark 4.1 to 4.3 keep what a pushed filter chose for all frames of one load(): so it is not the default."""
    frame = read(subscribe=filled)
    assert frame.where("offset >= 15").count() == 15
    assert frame.count() == 60
    assert frame.where("offset < 2").union(frame.where("offset >= 18")).count() == 12


def test_spark_keeps_what_a_filter_chose_for_all_frames_of_a_load(
    read: Any, filled: str, pushdown: None
) -> None:
    """Why filterPushdown is not the default, as docs/spark.md says. If this fails, Spark has become better."""
    frame = read(subscribe=filled, filterPushdown=True)
    assert frame.where("offset >= 15").count() == 15
    assert frame.count() == 15  # of 60


def test_where_in_spark(read: Any, filled: str) -> None:
    last = datetime.datetime.fromtimestamp(T0_MS / 1000 + 15, datetime.UTC).isoformat()
    frame = read(subscribe=filled, where=f"timestamp >= '{last}'")
    assert frame.count() == 15
    assert frame.where("offset = 15").count() == 3
    assert frame.where("offset < 17").union(frame.where("partition = 0")).count() == 6 + 5
    assert frame.count() == 15
    assert read(subscribe=filled, where="partition = 1").rdd.getNumPartitions() == 1


def test_where_in_a_stream(spark: Any, broker: BrokerProcess, filled: str, checkpoint: str) -> None:
    reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    frame = reader.option("subscribe", filled).option("startingOffsets", "earliest")
    seen: list[tuple[int, int]] = []

    def keep(batch: Any, number: int) -> None:
        seen.extend((row.partition, row.offset) for row in batch.collect())

    query = (
        frame.option("where", "partition in (0, 2)")
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted(seen) == [(partition, offset) for partition in (0, 2) for offset in range(20)]
    assert set(query.lastProgress.sources[0].endOffset.split('"')) >= {"0", "2"}
    assert '"1":' not in query.lastProgress.sources[0].endOffset


def test_the_examples_of_the_page(
    spark: Any, broker: BrokerProcess, filled: str, pushdown: None, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
    section = page.partition("\n## Read less\n")[2].partition("\n## ")[0]
    examples = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert len(examples) == 3
    names: dict[str, Any] = {"spark": spark}
    for example in examples:
        here = example.replace("127.0.0.1:9092", broker.bootstrap_servers).replace('"orders"', f'"{filled}"')
        exec(here, names)
    shown = capsys.readouterr().out
    assert "GreaterThanOrEqual(offset,100)" in shown
    assert shown.endswith("60\n60\n")
    assert names["recent"].count() == 0  # its records are of September
