"""Counts how often the user polls, how long they work in between, and how long commits keep them waiting."""

from __future__ import annotations

from kohort.client.core.metrics import (
    NS_PER_MS,
    MetricRow,
    MetricTable,
    MetricWindow,
    Sensor,
    average,
    seconds_since,
)


class PollMetrics:
    """What the calls of a consumer count."""

    def __init__(self, window: MetricWindow) -> None:
        self.between, self.idle_ratios = Sensor(window), Sensor(window)
        self.polled_ms: int | None = None
        self.commit_ms = self.committed_ms = 0
        self._away_ms = 0
        self._in_same_ms = (
            0  # polls that began in the millisecond of the one before, as many do of what is buffered
        )

    def poll_began(self, now_ms: int) -> None:
        before_ms, self.polled_ms = self.polled_ms, now_ms
        if now_ms == before_ms:
            self._in_same_ms += 1
            self._away_ms = 0
            return
        self._away_ms = 0 if before_ms is None else now_ms - before_ms
        self.between.record_many(self._away_ms, 1 + self._in_same_ms, now_ms)
        self._in_same_ms = 0

    def poll_ended(self, now_ms: int) -> None:
        """Notes which part of the time since the poll before was spent in this poll."""
        assert self.polled_ms is not None
        in_poll_ms = now_ms - self.polled_ms
        if both_ms := in_poll_ms + self._away_ms:
            self.idle_ratios.record(in_poll_ms / both_ms, now_ms)

    def waited_for_commit(self, took_ms: int) -> None:
        self.commit_ms += took_ms

    def waited_for_committed(self, took_ms: int) -> None:
        self.committed_ms += took_ms


POLLS = MetricTable[PollMetrics](
    "{client}-metrics",
    (),
    (
        *average("time-between-poll", "ms from one poll to the next", lambda m: m.between),
        MetricRow(
            "poll-idle-ratio-avg",
            "the part of its time that the consumer spends in poll: 0 if all of it is the user's work",
            lambda m, now: m.idle_ratios.avg(now),
        ),
        MetricRow(
            "last-poll-seconds-ago",
            "seconds since the last poll began; -1 without one",
            lambda m, now: seconds_since(m.polled_ms, now),
        ),
        MetricRow(
            "commit-sync-time-ns-total",
            "ns that `commit` has kept the user waiting, to the millisecond",
            lambda m, now: m.commit_ms * NS_PER_MS,
        ),
        MetricRow(
            "committed-time-ns-total",
            "ns that `committed` has kept the user waiting, to the millisecond",
            lambda m, now: m.committed_ms * NS_PER_MS,
        ),
    ),
)
