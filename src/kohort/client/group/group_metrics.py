"""Counts joins, syncs, rebalances, heartbeats and callbacks of a group's member."""

from __future__ import annotations

from kohort.client.core.metrics import (
    MS_PER_HOUR,
    MetricRow,
    MetricTable,
    MetricWindow,
    Sensor,
    average,
    counter,
    seconds_since,
)
from kohort.client.group.callbacks import CallbackKind


class GroupMetrics:
    """What the membership counts."""

    def __init__(self, window: MetricWindow) -> None:
        self.joins, self.syncs, self.heartbeats = Sensor(window), Sensor(window), Sensor(window)
        self.rebalances, self.failed_rebalances = Sensor(window), Sensor(window)
        self.callbacks = {kind: Sensor(window) for kind in CallbackKind}
        self.heartbeat_sent_ms: int | None = None
        self.rebalanced_ms: int | None = None
        self._began_ms: int | None = None
        self._asked_ms = 0

    def asked(self, now_ms: int) -> None:
        """A JoinGroup or SyncGroup goes out. Tries after a failure belong to the rebalance that failed."""
        self._asked_ms = now_ms
        if self._began_ms is None:
            self._began_ms = now_ms

    def joined(self, now_ms: int) -> None:
        self.joins.record(now_ms - self._asked_ms, now_ms)

    def synced(self, now_ms: int) -> None:
        """The assignment has come: the rebalance is complete."""
        self.syncs.record(now_ms - self._asked_ms, now_ms)
        began_ms = self._asked_ms if self._began_ms is None else self._began_ms
        self.rebalances.record(now_ms - began_ms, now_ms)
        self.rebalanced_ms, self._began_ms = now_ms, None

    def rebalanced(self, now_ms: int) -> None:
        """An assignment is taken over, with no request that ends it: the consumer protocol."""
        began_ms = now_ms if self._began_ms is None else self._began_ms
        self.rebalances.record(now_ms - began_ms, now_ms)
        self.rebalanced_ms, self._began_ms = now_ms, None

    def failed(self, now_ms: int) -> None:
        self.failed_rebalances.record(1, now_ms)

    def left(self) -> None:
        """A rebalance that was under way does not go on."""
        self._began_ms = None

    def heartbeat_sent(self, now_ms: int) -> None:
        self.heartbeat_sent_ms = now_ms

    def heartbeat_answered(self, now_ms: int) -> None:
        if self.heartbeat_sent_ms is not None:
            self.heartbeats.record(now_ms - self.heartbeat_sent_ms, now_ms)

    def called_back(self, kind: CallbackKind, took_ms: int, now_ms: int) -> None:
        self.callbacks[kind].record(took_ms, now_ms)


def _per_hour(sensor: Sensor, now_ms: int) -> float:
    return sensor.count_rate(now_ms) * MS_PER_HOUR / 1000


GROUP = MetricTable[GroupMetrics](
    "{client}-coordinator-metrics",
    (),
    (
        *average("join-time", "ms until a JoinGroup was answered", lambda m: m.joins),
        *counter("join", "JoinGroups that were answered with a generation", lambda m: m.joins),
        *average("sync-time", "ms until a SyncGroup was answered", lambda m: m.syncs),
        *counter("sync", "SyncGroups that were answered with an assignment", lambda m: m.syncs),
        *average(
            "rebalance-latency", "ms from a rebalance's first JoinGroup to its assignment", lambda m: m.rebalances
        ),
        MetricRow(
            "rebalance-latency-total",
            "ms in rebalances that succeeded, since the client was made",
            lambda m, now: m.rebalances.total,
        ),
        MetricRow(
            "rebalance-total", "rebalances that succeeded, since the client was made", lambda m, now: m.rebalances.count
        ),
        MetricRow(
            "rebalance-rate-per-hour", "rebalances that succeeded per hour", lambda m, now: _per_hour(m.rebalances, now)
        ),
        MetricRow(
            "failed-rebalance-total",
            "joins that failed and were tried again or given up, since the client was made",
            lambda m, now: m.failed_rebalances.count,
        ),
        MetricRow(
            "failed-rebalance-rate-per-hour",
            "joins that failed, per hour",
            lambda m, now: _per_hour(m.failed_rebalances, now),
        ),
        MetricRow(
            "last-rebalance-seconds-ago",
            "seconds since the last rebalance that succeeded; -1 without one",
            lambda m, now: seconds_since(m.rebalanced_ms, now),
        ),
        MetricRow(
            "heartbeat-response-time-max",
            "ms until a heartbeat was answered: the maximum",
            lambda m, now: m.heartbeats.max(now),
        ),
        *counter("heartbeat", "heartbeats that were answered", lambda m: m.heartbeats),
        MetricRow(
            "last-heartbeat-seconds-ago",
            "seconds since the last heartbeat was sent; -1 without one",
            lambda m, now: seconds_since(m.heartbeat_sent_ms, now),
        ),
        *average(
            "partition-revoked-latency", "ms that `on_revoked` took", lambda m: m.callbacks[CallbackKind.REVOKED]
        ),
        *average(
            "partition-assigned-latency", "ms that `on_assigned` took", lambda m: m.callbacks[CallbackKind.ASSIGNED]
        ),
        *average("partition-lost-latency", "ms that `on_lost` took", lambda m: m.callbacks[CallbackKind.LOST]),
    ),
)  # fmt: skip
