"""Counts fetches and what `poll` hands out of them, by topic; and how far each partition is behind its end."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import Any

from kohort.client.core.metrics import (
    MetricRow,
    MetricSource,
    MetricTable,
    MetricWindow,
    Sensor,
    average,
    counter,
    meter,
)
from kohort.client.offsets.subscription import PartitionState, SubscriptionState
from kohort.client.types import TopicPartition


class TopicFetchMetrics:
    """What is counted of one topic."""

    def __init__(self, window: MetricWindow, client: FetchMetrics) -> None:
        self.sizes, self.bytes, self.records = Sensor(window), Sensor(window), Sensor(window)
        self._client = client

    def pending(self) -> int:
        return self._client.pending(self)


class PartitionFetchMetrics:
    """How far one partition was behind its end, and ahead of its beginning, at each poll that returned some of it."""

    def __init__(
        self, window: MetricWindow, state: PartitionState, topic: TopicFetchMetrics, read_committed: bool
    ) -> None:
        self.state, self.topic = state, topic
        self.handed_out = 0  # records of the answer that is being handed out
        self.lags, self.leads = Sensor(window), Sensor(window)  # leads are negative: their minimum is wanted
        self._read_committed = read_committed

    def settle(self) -> None:
        """The sensors know of all records that were handed out."""
        self.handed_out = 0

    @property
    def lag(self) -> float:
        # Taken once: another thread may read this while the position is reset.
        position = self.state.position
        end = self.state.last_stable_offset if self._read_committed else self.state.high_watermark
        return nan if position is None or end < 0 else max(0, end - position.offset)

    @property
    def lead(self) -> float:
        position, start = self.state.position, self.state.log_start_offset
        return nan if position is None or start < 0 else max(0, position.offset - start)


class FetchMetrics:
    """What the fetcher counts: once for each answer, and once for each partition of a poll."""

    def __init__(self, window: MetricWindow, subscription: SubscriptionState, read_committed: bool) -> None:
        self.latencies, self.throttles, self.sizes = Sensor(window), Sensor(window), Sensor(window)
        self.bytes, self.records = Sensor(window), Sensor(window)
        self.lags, self.leads = Sensor(window), Sensor(window)
        self._window, self._subscription, self._read_committed = window, subscription, read_committed
        self._topics: dict[str, TopicFetchMetrics] = {}
        self._partitions: dict[TopicPartition, PartitionFetchMetrics] = {}

    def fetched(self, latency_ms: int, throttle_ms: int, sizes: dict[str, int], now_ms: int) -> None:
        """An answer has come, with this many bytes of each topic."""
        self.latencies.record(latency_ms, now_ms)
        self.throttles.record(throttle_ms, now_ms)
        if not sizes:
            return
        self.sizes.record(sum(sizes.values()), now_ms)
        for topic, size in sizes.items():
            self._topic(topic).sizes.record(size, now_ms)

    def handed_out(self, partition: TopicPartition, state: PartitionState, records: int, now_ms: int) -> None:
        """Records of a partition were handed out; its position is behind them now.

        Most polls only add to a number: sensors get it when the answer is used up, and the lag at its first poll.
        """
        metrics = self._partitions.get(partition)
        if metrics is None or metrics.state is not state:
            metrics = self._add(partition, state, now_ms)
        if not metrics.handed_out:
            self._look(metrics, now_ms)
        metrics.handed_out += records

    def used_up(self, partition: TopicPartition, state: PartitionState, size: int, now_ms: int) -> None:
        """All records of a partition's answer were handed out."""
        metrics = self._partitions.get(partition)
        if metrics is None or metrics.state is not state:
            metrics = self._add(partition, state, now_ms)
        self._settle(metrics, now_ms)
        self._look(metrics, now_ms)
        self.bytes.record(size, now_ms)
        metrics.topic.bytes.record(size, now_ms)

    def _look(self, metrics: PartitionFetchMetrics, now_ms: int) -> None:
        """Records how far the partition is behind and ahead."""
        lag, lead = metrics.lag, metrics.lead
        if lag == lag:  # it is not NaN
            self.lags.record(lag, now_ms)
            metrics.lags.record(lag, now_ms)
        if lead == lead:
            self.leads.record(-lead, now_ms)
            metrics.leads.record(-lead, now_ms)

    def _settle(self, metrics: PartitionFetchMetrics, now_ms: int) -> None:
        if metrics.handed_out:
            self.records.record(metrics.handed_out, now_ms)
            metrics.topic.records.record(metrics.handed_out, now_ms)
            metrics.settle()

    def pending(self, topic: TopicFetchMetrics | None = None) -> int:
        """Returns how many records were handed out that the sensors do not know of yet."""
        counted = self._partitions.copy().values()
        return sum(each.handed_out for each in counted if topic is None or each.topic is topic)

    def _topic(self, topic: str) -> TopicFetchMetrics:
        metrics = self._topics.get(topic)
        if metrics is None:
            metrics = self._topics[topic] = TopicFetchMetrics(self._window, self)
        return metrics

    def _add(self, partition: TopicPartition, state: PartitionState, now_ms: int) -> PartitionFetchMetrics:
        assigned = self._subscription.partitions
        for p, each in self._partitions.items():
            if assigned.get(p) is not each.state:
                self._settle(each, now_ms)
        self._partitions = {p: each for p, each in self._partitions.items() if assigned.get(p) is each.state}
        metrics = PartitionFetchMetrics(
            self._window, state, self._topic(partition.topic), self._read_committed
        )
        self._partitions[partition] = metrics
        return metrics

    def sources(self) -> Iterator[MetricSource]:
        """Yields what there is to read: of all topics together, of each topic, of each partition that is assigned."""
        yield MetricSource(FETCHES, self)
        for topic, counters in self._topics.copy().items():
            yield MetricSource(TOPIC_FETCHES, counters, {"topic": topic})
        seen = self._partitions.copy()
        for partition, state in self._subscription.partitions.copy().items():
            of_partition = seen.get(partition)
            if of_partition is None or of_partition.state is not state:
                counted = self._topics.get(partition.topic) or TopicFetchMetrics(self._window, self)
                of_partition = PartitionFetchMetrics(self._window, state, counted, self._read_committed)
            tags = {"topic": partition.topic, "partition": str(partition.partition)}
            yield MetricSource(PARTITION_FETCHES, of_partition, tags)


Counted = FetchMetrics | TopicFetchMetrics


def _records_per_request(m: Counted, now_ms: int) -> float:
    requests = m.sizes.recent(now_ms)[1]
    return (m.records.recent(now_ms)[0] + m.pending()) / requests if requests else nan


def _consumed(what: str) -> tuple[MetricRow[Any], ...]:
    """Makes the rows of the records that were handed out, those included that the sensors do not know of yet."""

    def rate(m: Counted, now_ms: int) -> float:
        return m.records.rate(now_ms, m.pending())

    def total(m: Counted, now_ms: int) -> float:
        return m.records.total + m.pending()

    return (
        MetricRow("records-consumed-rate", f"{what} per second", rate),
        MetricRow("records-consumed-total", f"{what}, since the client was made", total),
    )


FETCHES = MetricTable[FetchMetrics](
    "{client}-fetch-manager-metrics",
    (),
    (
        *average("fetch-latency", "ms until a fetch was answered", lambda m: m.latencies),
        *counter("fetch", "fetches that were answered", lambda m: m.latencies),
        *average("fetch-size", "bytes of records in an answer that had any", lambda m: m.sizes),
        *average("fetch-throttle-time", "ms that the broker throttled a fetch", lambda m: m.throttles),
        *meter("bytes-consumed", "bytes of answers that were handed out to the end", lambda m: m.bytes),
        *_consumed("records that were handed out"),
        MetricRow(
            "records-per-request-avg", "records handed out for each answer that had any", _records_per_request
        ),
        MetricRow(
            "records-lag-max", "records that any partition was behind: the maximum", lambda m, now: m.lags.max(now)
        ),
        MetricRow(
            "records-lead-min",
            "records that any partition was ahead of its beginning: the minimum",
            lambda m, now: -m.leads.max(now),
        ),
    ),
)  # fmt: skip
TOPIC_FETCHES = MetricTable[TopicFetchMetrics](
    "{client}-fetch-manager-metrics",
    ("topic",),
    (
        *average("fetch-size", "bytes of the topic's records in an answer that had any", lambda m: m.sizes),
        *meter(
            "bytes-consumed",
            "bytes of the topic's answers that were handed out to the end",
            lambda m: m.bytes,
        ),
        *_consumed("records of the topic that were handed out"),
        MetricRow(
            "records-per-request-avg",
            "records of the topic handed out for each answer that had any",
            _records_per_request,
        ),
    ),
)
PARTITION_FETCHES = MetricTable[PartitionFetchMetrics](
    "{client}-fetch-manager-metrics",
    ("topic", "partition"),
    (
        MetricRow(
            "records-lag", "records between the position and the end, as far as is known", lambda m, now: m.lag
        ),
        *average("records-lag", "records that the partition was behind", lambda m: m.lags),
        MetricRow(
            "records-lead", "records between the beginning and the position, as far as is known", lambda m, now: m.lead
        ),
        MetricRow(
            "records-lead-avg", "records ahead of the beginning: the average", lambda m, now: -m.leads.avg(now)
        ),
        MetricRow(
            "records-lead-min", "records ahead of the beginning: the minimum", lambda m, now: -m.leads.max(now)
        ),
        MetricRow(
            "preferred-read-replica",
            "the replica that is read from; -1 for the leader",
            lambda m, now: m.state.preferred_replica,
        ),
    ),
)  # fmt: skip
