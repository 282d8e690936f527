"""Several samples of a cluster: rates, lag in seconds, the time until a group has caught up. Memory is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kohort.client.types import TopicPartition
from kohort.insight.health import Health, OffsetPoint, commits_in, group_health, partition_health
from kohort.insight.samples import ClusterSample, GroupSample, PartitionSample
from kohort.insight.series import UNKNOWN, Series

COARSE_MS = 60_000
"""Of points that are no longer recent, one in this time is kept."""
RATE_MS = 60_000
"""Rates are those of the last so many milliseconds."""
MOST_POINTS = 1_500_000
"""Of all partitions together, 24 bytes each."""
FEW = 20
"""With fewer recent points, older ones are looked at too."""
LONGEST, SHORTEST = 150, 20
"""Points of a partition: with few partitions, and with very many."""


@dataclass(frozen=True, slots=True)
class PartitionTrend:
    """How one partition of a group develops."""

    health: Health
    lag: int | None
    lag_seconds: float | None
    """How old the first record is that the group has not read; None if that is not known."""
    consume_rate: float | None
    """Records in a second that the group gets on with; None until there are two samples."""
    produce_rate: float | None
    caught_up_in_s: float | None
    """0 if it is; None if it never will be at these rates, or if the rates are not known yet."""
    _series: Series

    @property
    def series(self) -> list[OffsetPoint]:
        """What is known of the past, oldest first."""
        return _points(self._series)


@dataclass(frozen=True, slots=True)
class GroupTrend:
    """How a group develops."""

    health: Health
    lag: int
    lag_seconds: float | None
    """The largest of its partitions."""
    consume_rate: float | None
    """Of all partitions together."""
    produce_rate: float | None
    caught_up_in_s: float | None
    """When the last partition will have caught up; None if one of them never will, or if that is not known."""
    partitions: dict[TopicPartition, PartitionTrend]
    _series: Series = field(repr=False)

    @property
    def lag_series(self) -> list[tuple[int, int]]:
        """(at_ms, lag), oldest first."""
        return [(point[0], point[1]) for point in self._series]


class Trends:
    """Keeps what samples say: points of the last minutes finely, of the last hours coarsely."""

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self._most_points = most_points
        self.latest: ClusterSample | None = None
        self._partitions: dict[tuple[str, TopicPartition], Series] = {}
        self._groups: dict[str, Series] = {}
        self._length = LONGEST
        self._trends: dict[str, GroupTrend] = {}

    def add(self, sample: ClusterSample) -> None:
        """Takes a sample, which must be later than those before. What it does not have any more is forgotten."""
        assert self.latest is None or sample.at_ms > self.latest.at_ms, "samples come in the order of time"
        partitions, groups = self._partitions, self._groups
        self.latest, self._partitions, self._groups, self._trends = sample, {}, {}, {}
        count = sum(len(group.partitions) for group in sample.groups.values())
        self._length = max(SHORTEST, min(LONGEST, self._most_points // (2 * max(1, count))))
        for group_id, group in sample.groups.items():
            own = self._groups[group_id] = groups.get(group_id) or Series(1, COARSE_MS)
            own.add(sample.at_ms, (group.lag,), self._length)
            for each in group.partitions:
                key = group_id, TopicPartition(each.topic, each.partition)
                series = self._partitions[key] = partitions.get(key) or Series(2, COARSE_MS)
                series.add(sample.at_ms, (_number(each.committed), _number(each.end)), self._length)

    def add_past(self, group_id: str, points: Mapping[TopicPartition, Iterable[OffsetPoint]]) -> None:
        """Takes what is known of a time before the first sample, as `past_lag` and `unread_since` tell it."""
        for partition, past in points.items():
            series = self._partitions.get((group_id, partition))
            if series is not None:
                series.add_past(
                    [(at.at_ms, _number(at.committed), _number(at.end)) for at in past], self._length
                )
        self._trends.pop(group_id, None)
        if group_id in self._groups:
            self._groups[group_id].add_past(_sums(points), self._length)

    def group(self, group_id: str) -> GroupTrend | None:
        """Returns how a group develops, with all its partitions; None if the latest sample does not have it."""
        if self.latest is None or group_id not in self.latest.groups:
            return None
        if group_id not in self._trends:
            self._trends[group_id] = self._trend_of(self.latest.groups[group_id], self.latest.at_ms)
        return self._trends[group_id]

    def groups(self) -> dict[str, GroupTrend]:
        """Returns how all groups of the latest sample develop."""
        known = self.latest.groups if self.latest is not None else {}
        return {group_id: trend for group_id in known if (trend := self.group(group_id)) is not None}

    def _trend_of(self, group: GroupSample, now_ms: int) -> GroupTrend:
        partitions = {}
        for each in group.partitions:
            partition = TopicPartition(each.topic, each.partition)
            series = self._partitions[group.group_id, partition]
            partitions[partition] = _partition_trend(each, series, now_ms)
        every = list(partitions.values())
        lags = [each.lag_seconds for each in every if each.lag is not None]
        ahead = [each.caught_up_in_s for each in every if each.lag is not None]
        return GroupTrend(
            group_health(each.health for each in every),
            group.lag,
            _largest(lags),
            _total(each.consume_rate for each in every),
            _total(each.produce_rate for each in every),
            _largest(ahead),
            partitions,
            self._groups[group.group_id],
        )


def _partition_trend(sample: PartitionSample, series: Series, now_ms: int) -> PartitionTrend:
    points = _points(series.recent())
    if len(points) < FEW:
        points = _points(series)  # what `add_past` told belongs to it
    consume, produce = rates(points)
    behind_s = lag_seconds(points, now_ms)
    if behind_s is None and sample.lag:
        behind_s = lag_seconds(_points(series), now_ms)
    return PartitionTrend(
        partition_health(points, now_ms, is_owned=bool(sample.owners)),
        sample.lag,
        behind_s,
        consume,
        produce,
        caught_up_in_s(points, behind_s, consume, produce),
        series,
    )


# --- what follows from points --------------------------------------------------------------------------


def rates(points: Sequence[OffsetPoint]) -> tuple[float | None, float | None]:
    """Returns the records in a second that are read and written, over the last minute; None where that is not known.

    A group that goes back reads nothing by that: its rate is that of the time since.
    """
    if not points:
        return None, None
    since_ms = points[-1].at_ms - RATE_MS
    before = next((n for n in range(len(points) - 1, -1, -1) if points[n].at_ms <= since_ms), 0)
    # A point without a commit is one of `unread_since`: it says how old a record is, and nothing of the time between.
    recent = [point for point in points[before:] if point.committed is not None]
    return _rate([(p.at_ms, p.committed) for p in recent]), _rate([(p.at_ms, p.end) for p in recent])


def _rate(values: Sequence[tuple[int, int | None]]) -> float | None:
    known = [(at_ms, value) for at_ms, value in values if value is not None]
    for n in range(len(known) - 1, 0, -1):
        if known[n][1] < known[n - 1][1]:
            known = known[n:]
            break
    if len(known) < 2:
        return None
    (first_ms, first), (last_ms, last) = known[0], known[-1]
    return 1000.0 * (last - first) / (last_ms - first_ms)


def lag_seconds(points: Sequence[OffsetPoint], now_ms: int) -> float | None:
    """Returns for how long the first unread record has been there: since the end of the log was the committed offset.

    Between two points the log is taken to have grown evenly. None if the record is older than all points.
    """
    if not points or points[-1].lag is None:
        return None
    if points[-1].lag == 0:
        return 0.0
    committed = points[-1].committed
    assert committed is not None
    ends = [(point.at_ms, point.end) for point in points if point.end is not None]
    for (before_ms, before), (after_ms, after) in reversed(list(pairwise(ends))):
        if before <= committed:
            since_ms = before_ms
            if after > committed:
                since_ms += int((after_ms - before_ms) * (committed - before) / (after - before))
            return max(0.0, (now_ms - since_ms) / 1000)
    return None


def caught_up_in_s(
    points: Sequence[OffsetPoint], behind_s: float | None, consume: float | None, produce: float | None
) -> float | None:
    """Returns the seconds until nothing is left to read at these rates; None if that never happens or is not known.

    A lag that is younger than the time between two commits is no lag: the records may have been read, and that is not
    committed yet.
    """
    if not points or (lag := points[-1].lag) is None:
        return None
    if lag == 0 or (behind_s is not None and behind_s <= _commit_interval_s(points)):
        return 0.0
    if consume is None or produce is None or consume <= produce:
        return None
    return lag / (consume - produce)


def _commit_interval_s(points: Sequence[OffsetPoint]) -> float:
    """Returns how long it takes until a commit is seen, on average of the last minute; 0 if none is seen."""
    recent = [p for p in points if p.committed is not None and p.at_ms >= points[-1].at_ms - RATE_MS]
    commits = commits_in(recent)
    if len(commits) < 2:
        return 0.0
    between_ms = (commits[-1].at_ms - commits[0].at_ms) / (len(commits) - 1)
    step_ms = (recent[-1].at_ms - recent[0].at_ms) / (len(recent) - 1)
    return (between_ms + step_ms) / 1000


def _largest(values: Sequence[float | None]) -> float | None:
    """Returns the largest; None if one of them is not known, because it may be larger."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sums(points: Mapping[TopicPartition, Iterable[OffsetPoint]]) -> list[tuple[int, int]]:
    """Returns the lag of all partitions together at the times for which all of them have a point."""
    at: dict[int, list[int]] = {}
    for past in points.values():
        for point in past:
            if point.lag is not None:
                at.setdefault(point.at_ms, []).append(point.lag)
    return [(at_ms, sum(lags)) for at_ms, lags in sorted(at.items()) if len(lags) == len(points)]


def _number(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _points(points: Iterable[Sequence[int]]) -> list[OffsetPoint]:
    return [
        OffsetPoint(at_ms, None if committed == UNKNOWN else committed, None if end == UNKNOWN else end)
        for at_ms, committed, end in points
    ]
