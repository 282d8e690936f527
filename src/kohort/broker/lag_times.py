"""Estimates how many seconds a group is behind, from the ends of logs that earlier scrapes have seen.

A group is behind by the time that has passed since the log ended where the group is now. Each scrape notes the end of
each log that a group reads. Between two notes the log is taken to have grown evenly; before the first one, as fast as
between the first and the last. kafka-lag-exporter, whose name the metric has, estimates it in the same way.
"""

from __future__ import annotations

from array import array

_MOST_NOTES = 32


class EndsOfLog:
    """The ends of one log and when they were seen; the older they are, the fewer are kept."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times, self._ends = array("q"), array("q")

    def note(self, now_ms: int, end: int) -> None:
        times, ends = self._times, self._ends
        if ends and end < ends[-1]:  # the topic was made anew
            del times[:], ends[:]
        if len(ends) >= 2 and ends[-2] == ends[-1] == end:
            times[-1] = now_ms  # while the log stands still, its first and its last note say all
            return
        times.append(now_ms)
        ends.append(end)
        if len(times) > _MOST_NOTES:
            half = len(times) // 2
            del times[1:half:2], ends[1:half:2]

    def lag_s(self, now_ms: int, committed: int) -> float | None:
        """The seconds since the log ended at this offset: 0 at its end, None if nothing is known of its growth."""
        times, ends = self._times, self._ends
        if not ends:
            return None
        if committed >= ends[-1]:
            return 0.0
        if committed >= ends[0]:
            after = next(i for i, end in enumerate(ends) if end > committed)
            return max(now_ms - _when(committed, after - 1, after, times, ends), 0.0) / 1000
        if ends[-1] == ends[0]:
            return None
        return max(now_ms - _when(committed, 0, len(ends) - 1, times, ends), 0.0) / 1000


def _when(offset: int, first: int, second: int, times: array[int], ends: array[int]) -> float:
    share = (offset - ends[first]) / (ends[second] - ends[first])
    return times[first] + share * (times[second] - times[first])


class LagTimes:
    """The ends of all logs that groups read."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, int], EndsOfLog] = {}

    def note(self, now_ms: int, ends: dict[tuple[str, int], int]) -> None:
        """Notes the ends of the logs that groups read now, and forgets all others."""
        logs = self._logs
        self._logs = {key: logs.get(key) or EndsOfLog() for key in ends}
        for key, end in ends.items():
            self._logs[key].note(now_ms, end)

    def lag_s(self, topic: str, partition: int, now_ms: int, committed: int) -> float | None:
        log = self._logs.get((topic, partition))
        return None if log is None else log.lag_s(now_ms, committed)
