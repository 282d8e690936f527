"""The lag of a group over time, in records and in seconds, from the points that samples left. Pure functions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from kohort.console.models import LagSecondsPoint
from kohort.insight.health import OffsetPoint

MOST_POINTS = 1_000


def lag_points(series: Sequence[OffsetPoint]) -> list[LagSecondsPoint]:
    """Returns the lag at each point of a partition's series.

    The lag in seconds is how long the first unread record had been there: since the end of the log was the committed
    offset. Between two points the log is taken to have grown evenly. It is not known for a record from before the
    first point.
    """
    known = [(point.at_ms, point.end) for point in series if point.end is not None]
    times, ends = [at_ms for at_ms, _ in known], [end for _, end in known]
    return [_lag_point(point, times, ends) for point in series]


def _lag_point(point: OffsetPoint, times: Sequence[int], ends: Sequence[int]) -> LagSecondsPoint:
    at_ms, committed, end = point
    if committed is None or end is None:
        return at_ms, None, None
    lag = max(0, end - committed)
    if lag == 0:
        return at_ms, 0, 0.0
    after = bisect_right(ends, committed)
    if after == 0 or after >= len(ends):
        return at_ms, lag, None
    before_ms, before = times[after - 1], ends[after - 1]
    since_ms = before_ms + (times[after] - before_ms) * (committed - before) / (ends[after] - before)
    return at_ms, lag, round(max(0.0, (at_ms - since_ms) / 1000), 3)


def total_points(
    totals: Sequence[tuple[int, int]], partitions: Sequence[Sequence[LagSecondsPoint]]
) -> list[LagSecondsPoint]:
    """Returns the lag of the whole group: its sum in records, and the longest of its partitions in seconds."""
    longest: dict[int, float] = {}
    for points in partitions:
        for at_ms, _, seconds in points:
            if seconds is not None:
                longest[at_ms] = max(seconds, longest.get(at_ms, 0.0))
    return [(at_ms, lag, longest.get(at_ms)) for at_ms, lag in totals]


def within(
    points: Sequence[LagSecondsPoint], from_ms: int, to_ms: int, most: int = MOST_POINTS
) -> list[LagSecondsPoint]:
    """Returns the points of a time, thinned evenly if there are too many."""
    inside = [point for point in points if from_ms <= point[0] <= to_ms]
    if len(inside) <= most:
        return inside
    step = (len(inside) - 1) / (most - 1)
    return [inside[round(step * index)] for index in range(most)]
