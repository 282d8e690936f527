"""Counts commits, and says how many partitions are assigned."""

from __future__ import annotations

from kohort.client.core.metrics import MetricRow, MetricTable, MetricWindow, Sensor, average, counter
from kohort.client.offsets.subscription import SubscriptionState


class CommitMetrics:
    """What `Commits` counts."""

    def __init__(self, window: MetricWindow, subscription: SubscriptionState) -> None:
        self.commits = Sensor(window)
        self.subscription = subscription


COMMITS = MetricTable[CommitMetrics](
    "{client}-coordinator-metrics",
    (),
    (
        *average("commit-latency", "ms until a commit was answered", lambda m: m.commits),
        *counter("commit", "commits that were answered", lambda m: m.commits),
        MetricRow(
            "assigned-partitions",
            "partitions that this consumer reads now",
            lambda m, now: len(m.subscription.partitions),
        ),
    ),
)
