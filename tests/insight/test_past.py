"""The past of a group: how old its unread records are, and its lag before anybody looked."""

from __future__ import annotations

import pytest

from kohort import Admin, TopicPartition
from kohort.insight.past import UnreadAges, past_lag, unread_since
from kohort.insight.samples import sample_cluster
from kohort.insight.trends import Trends
from kohort.testing import Kafka
from tests.insight.groups import member, settle

T0 = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


@pytest.fixture
def written(kafka: Kafka) -> Kafka:
    """A record a minute in the two hours before NOW_MS."""
    kafka.create_topic("t", partitions=2)
    kafka.produce(
        "t",
        [{"value": "x", "partition": 0, "timestamp": NOW_MS - (120 - n) * MINUTE_MS} for n in range(120)],
    )
    return kafka


@pytest.mark.parametrize("committed", [0, 1, 57, 119])
def test_the_age_of_the_first_unread_record_is_found_by_time(written: Kafka, committed: int) -> None:
    with Admin(bootstrap_servers=written.bootstrap_servers) as admin:
        found = unread_since(
            admin, {T0: committed, TopicPartition("t", 1): 0, TopicPartition("no", 0): 3}, NOW_MS
        )
    ((partition, (point,)),) = found.items()
    assert partition == T0
    assert (point.committed, point.end) == (None, committed)
    age_ms = (120 - committed) * MINUTE_MS
    assert abs(NOW_MS - point.at_ms - age_ms) <= 30_000


def test_one_sample_and_its_past_tell_the_lag_in_seconds(written: Kafka) -> None:
    with Admin(bootstrap_servers=written.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", {T0: 60})
        trends = Trends()
        trends.add(sample_cluster(admin, NOW_MS))
        trend = trends.group("g")
        assert trend is not None
        assert trend.lag_seconds is None
        ages = UnreadAges(admin)
        ages.fill(trends)
        trend = trends.group("g")
        assert trend is not None
        first = trend.lag_seconds
        ages.fill(trends)  # nothing is left to ask
    assert first == pytest.approx(3600, abs=30)
    trend = trends.group("g")
    assert trend is not None
    assert trend.lag_seconds == pytest.approx(3600, abs=30)


def test_the_lag_of_the_last_minutes_is_rebuilt_from_commits(kafka: Kafka) -> None:
    """The commits and the records have the time of their writing: the lag of then is that of the moment before each."""
    kafka.create_topic("t")
    own = {"bootstrap.servers": kafka.bootstrap_servers}
    kafka.produce("t", ["x"] * 10)
    with Admin(own) as admin:
        with member(kafka.bootstrap_servers, "g", "t") as consumer:
            settle(consumer, partitions=1)
            consumer.commit({T0: 4})
        written_ms = max(at.timestamp for at in admin.offsets_for_times({T0: 0}).values() if at is not None)
        later_ms = written_ms + 10 * MINUTE_MS
        past = past_lag(admin, own, "g", later_ms, span_ms=20 * MINUTE_MS, points=20)
        assert past_lag(admin, own, "g", later_ms + 10**9, span_ms=MINUTE_MS) == {}
    points = past[T0]
    assert {(point.committed, point.end, point.lag) for point in points} == {(4, 10, 6)}
    assert all(written_ms <= point.at_ms <= later_ms for point in points)
    assert len(points) in (9, 10)
