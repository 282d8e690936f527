"""Rates, lag in seconds and the time until caught up, from samples of a cluster whose truth is known."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.admin_types import ClusterDescription
from kohort.client.types import TopicPartition
from kohort.insight.health import Health, OffsetPoint
from kohort.insight.samples import ClusterSample, GroupSample, PartitionSample
from kohort.insight.series import Series
from kohort.insight.trends import LONGEST, Trends, caught_up_in_s, lag_seconds, rates

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SECOND = 1000


def sample(at_ms: int, **groups: list[tuple[int | None, int | None]]) -> ClusterSample:
    """Each group has (committed, end) of the partitions of topic t."""
    found = {
        group_id: GroupSample(
            group_id, "Stable", "classic", "consumer", "range", None, (),
            tuple(PartitionSample("t", n, c, "", 0, e, ("m",)) for n, (c, e) in enumerate(pairs)),
        )
        for group_id, pairs in groups.items()
    }  # fmt: skip
    return ClusterSample(at_ms, ClusterDescription("c", None, ()), found, {})


def test_a_group_that_catches_up() -> None:
    trends = Trends()
    for n in range(31):  # ten records a second are written and 30 are read, with a lag of 1000 at first
        trends.add(sample(n * SECOND, g=[(30 * n, 1000 + 10 * n)]))
    trend = trends.group("g")
    assert trend is not None
    assert (trend.consume_rate, trend.produce_rate, trend.lag) == (30.0, 10.0, 400)
    assert trend.caught_up_in_s == 20.0
    assert trend.health is Health.OK
    assert trend.lag_series[0] == (0, 1000)
    assert trend.lag_series[-1] == (30 * SECOND, 400)
    assert trend.partitions[T0].series[-1] == OffsetPoint(30 * SECOND, 900, 1300)
    assert trends.groups() == {"g": trend}


def test_a_group_that_never_will() -> None:
    trends = Trends()
    for n in range(30):
        trends.add(sample(n * SECOND, g=[(10 * n, 1000 + 20 * n), (5, 5)]))
    trend = trends.group("g")
    assert trend is not None
    assert trend.caught_up_in_s is None
    assert trend.partitions[T1].caught_up_in_s == 0.0
    assert trend.health is Health.WARN
    assert trend.partitions[T1].health is Health.OK


def test_one_sample_knows_the_lag_and_no_rates() -> None:
    trends = Trends()
    assert trends.group("g") is None
    assert trends.groups() == {}
    trends.add(sample(0, g=[(10, 50)], idle=[(50, 50)], new=[(None, 50)]))
    trend = trends.group("g")
    assert trend is not None
    assert (trend.lag, trend.consume_rate, trend.produce_rate, trend.lag_seconds) == (40, None, None, None)
    assert trend.caught_up_in_s is None
    idle, new = trends.group("idle"), trends.group("new")
    assert idle is not None
    assert new is not None
    assert (idle.lag_seconds, idle.caught_up_in_s) == (0.0, 0.0)
    assert (new.health, new.lag, new.lag_seconds) == (Health.NOTFOUND, 0, None)


def test_lag_in_seconds_is_the_age_of_the_first_unread_record() -> None:
    history = [OffsetPoint(n * SECOND, 55, 100 * n) for n in range(10)]
    assert lag_seconds(history, 9 * SECOND) == pytest.approx(8.45)


def test_a_burst_is_as_old_as_its_beginning() -> None:
    quiet = [OffsetPoint(n * SECOND, 100, 100) for n in range(100)]
    burst = OffsetPoint(100 * SECOND, 100, 5000)
    assert lag_seconds([*quiet, burst], 100 * SECOND) == 1.0


def test_a_lag_older_than_all_points_is_not_known_until_the_past_is_told() -> None:
    trends = Trends()
    trends.add(sample(100 * SECOND, g=[(40, 90), (90, 90)]))
    trend = trends.group("g")
    assert trend is not None
    assert trend.lag_seconds is None
    trends.add_past("g", {T0: [OffsetPoint(70 * SECOND, None, 40)]})
    trend = trends.group("g")
    assert trend is not None
    assert trend.lag_seconds == 30.0


def test_the_past_of_all_partitions_is_the_past_of_the_group() -> None:
    trends = Trends()
    trends.add(sample(100 * SECOND, g=[(40, 90), (80, 90)]))
    past = {
        T0: [OffsetPoint(n * SECOND, n, 2 * n) for n in (10, 20)],
        T1: [OffsetPoint(n * SECOND, 3, 3) for n in (10, 20, 200)],
    }
    trends.add_past("g", past)
    trends.add_past("unknown", past)
    trend = trends.group("g")
    assert trend is not None
    assert trend.lag_series == [(10 * SECOND, 10), (20 * SECOND, 20), (100 * SECOND, 60)]


def test_a_group_that_commits_now_and_then_and_keeps_up_is_caught_up() -> None:
    """Commits come every five seconds; between them the lag grows, and falls to what was written since."""
    history = []
    for n in range(120):
        committed = 100 * (5 * (n // 5))
        history.append(OffsetPoint(n * SECOND, committed, 100 * n))
    behind_s = lag_seconds(history, history[-1].at_ms)
    assert behind_s == 4.0
    assert caught_up_in_s(history, behind_s, *rates(history)) == 0.0


def test_a_rate_begins_anew_where_a_group_went_back() -> None:
    forward = [OffsetPoint(n * SECOND, 1000 * n, 50_000) for n in range(5)]
    again = [OffsetPoint((5 + n) * SECOND, 10 * n, 50_000) for n in range(5)]
    assert rates([*forward, *again]) == (10.0, 0.0)


def test_groups_and_partitions_that_are_gone_are_forgotten() -> None:
    trends = Trends()
    trends.add(sample(0, g=[(1, 2), (3, 4)], h=[(1, 1)]))
    trends.add(sample(1000, g=[(1, 2)]))
    assert list(trends.groups()) == ["g"]
    trend = trends.group("g")
    assert trend is not None
    assert list(trend.partitions) == [T0]
    trends.add(sample(2000, g=[(1, 2)], h=[(7, 9)]))
    back = trends.group("h")
    assert back is not None
    assert back.lag_series == [(2000, 2)]


def test_many_partitions_have_fewer_points_each() -> None:
    few, many = Trends(most_points=3000), Trends(most_points=3000)
    for n in range(400):
        few.add(sample(n * SECOND, g=[(n, 2 * n)]))
    for n in range(100):
        many.add(sample(n * SECOND, g=[(n, 2 * n)] * (60 if n > 50 else 1)))
    one, other = few.group("g"), many.group("g")
    assert one is not None
    assert other is not None
    assert len(one.partitions[T0].series) == LONGEST + 5  # and 250 s before those, one a minute
    assert len(other.partitions[T0].series) == 3000 // 60 // 2 + 2
    assert other.lag == 99 * 60


# --- properties ---------------------------------------------------------------------------------------

NUMBERS = st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 3)), max_size=200)


@given(NUMBERS, st.integers(2, 20))
def test_a_series_is_bounded_in_order_and_knows_its_last_points(
    steps: list[tuple[int, int]], length: int
) -> None:
    series, at_ms, added = Series(1, 60_000), 0, []
    for step_ms, value in steps:
        at_ms += step_ms
        series.add(at_ms, (value,), length)
        added.append((at_ms, value))
        assert len(series) <= 2 * length
    kept = [tuple(point) for point in series]
    assert kept == sorted(set(kept))
    assert set(kept) <= set(added)
    assert kept[-1:] == added[-1:]
    changes = [
        added[n] for n in range(len(added)) if n in (0, len(added) - 1) or added[n][1] != added[n - 1][1]
    ]
    assert set(changes[-(length // 2) :]) <= set(kept)


@given(
    st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=60)
)
def test_what_follows_from_points_makes_sense(steps: list[tuple[int, int, int]]) -> None:
    history, at_ms, committed, end = [], 0, 0, 100
    for step_ms, read, written in steps:
        at_ms, end = at_ms + step_ms, end + written
        committed = min(end, committed + read)
        history.append(OffsetPoint(at_ms, committed, end))
    consume, produce = rates(history)
    assert consume is not None
    assert produce is not None
    assert consume >= 0
    assert produce >= 0
    behind_s = lag_seconds(history, at_ms)
    if behind_s is not None:
        assert 0 <= behind_s <= (at_ms - history[0].at_ms) / 1000
        assert (behind_s == 0.0) or committed < end
    ahead_s = caught_up_in_s(history, behind_s, consume, produce)
    assert ahead_s is None or ahead_s >= 0
    assert ahead_s is not None or consume <= produce


@given(st.integers(1, 1000), st.integers(1, 300), st.integers(0, 200))
def test_lag_in_seconds_of_even_writing_is_exact(per_second: int, seconds: int, behind: int) -> None:
    behind = min(behind, seconds)
    committed = per_second * (seconds - behind)
    history = [OffsetPoint(n * SECOND, committed, per_second * n) for n in range(seconds + 1)]
    assert lag_seconds(history, seconds * SECOND) == pytest.approx(behind, abs=0.002)


def test_a_partition_that_does_not_change_takes_little_memory() -> None:
    series = Series(2, 60_000)
    for n in range(100_000):
        series.add(n, (1, 2), 150)
    assert len(series) == 2
    assert sys.getsizeof(series._fine) < 500
