"""What a share consumer counts, by Kafka's names."""

from __future__ import annotations

from kohort.client.consume.poll_metrics import POLLS
from kohort.client.core.metrics import (
    MS_PER_HOUR,
    MetricRow,
    MetricTable,
    MetricWindow,
    Sensor,
    average,
    counter,
    meter,
    seconds_since,
)


class ShareFetchMetrics:
    """What ShareFetches bring, and what is acknowledged."""

    def __init__(self, window: MetricWindow) -> None:
        self.latencies, self.throttles = Sensor(window), Sensor(window)
        self.sizes, self.acquired, self.records = Sensor(window), Sensor(window), Sensor(window)
        self.acknowledgements, self.refused = Sensor(window), Sensor(window)

    def fetched(self, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        self.latencies.record(latency_ms, now_ms)
        self.throttles.record(throttle_ms, now_ms)

    def brought(self, size: int, acquired: int, now_ms: int) -> None:
        """An answer has brought so many bytes, and has acquired so many records."""
        self.sizes.record(size, now_ms)
        self.acquired.record(acquired, now_ms)

    def handed_out(self, records: int, now_ms: int) -> None:
        self.records.record(records, now_ms)


class ShareGroupMetrics:
    """Heartbeats and assignments of a member."""

    def __init__(self, window: MetricWindow) -> None:
        self.heartbeats, self.rebalances = Sensor(window), Sensor(window)
        self.heartbeat_sent_ms: int | None = None

    def sent(self, now_ms: int) -> None:
        self.heartbeat_sent_ms = now_ms

    def answered(self, now_ms: int) -> None:
        if self.heartbeat_sent_ms is not None:
            self.heartbeats.record(now_ms - self.heartbeat_sent_ms, now_ms)


SHARE_FETCHES = MetricTable[ShareFetchMetrics](
    "{client}-fetch-manager-metrics",
    (),
    (
        *average("fetch-latency", "ms until a ShareFetch was answered", lambda m: m.latencies),
        *counter("fetch", "ShareFetches that were answered", lambda m: m.latencies),
        *average("fetch-throttle-time", "ms for which a quota has held back a ShareFetch", lambda m: m.throttles),
        *average("fetch-size", "bytes of an answer that has records", lambda m: m.sizes),
        *meter("bytes-consumed", "bytes of the answers that have records", lambda m: m.sizes),
        *average("records-per-request", "records that one answer has acquired", lambda m: m.acquired),
        *meter("records-consumed", "records that were handed out", lambda m: m.records),
        *meter("acknowledgements-send", "acknowledgements that were sent", lambda m: m.acknowledgements),
        *meter("acknowledgements-error", "acknowledgements that failed", lambda m: m.refused),
    ),
)  # fmt: skip

SHARE_GROUP = MetricTable[ShareGroupMetrics](
    "{client}-coordinator-metrics",
    (),
    (
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
        MetricRow(
            "rebalance-total",
            "new assignments, since the client was made",
            lambda m, now: m.rebalances.count,
        ),
        MetricRow(
            "rebalance-rate-per-hour",
            "new assignments per hour",
            lambda m, now: m.rebalances.count_rate(now) * MS_PER_HOUR / 1000,
        ),
    ),
)

SHARE_POLLS = MetricTable(
    POLLS.group, POLLS.tags, tuple(row for row in POLLS.rows if "commit" not in row.name)
)
