"""Counts what a producer sends: batches, records, bytes, retries, errors, by topic; and who waits for memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kohort.client.core.metadata import Metadata
from kohort.client.core.metrics import (
    NS_PER_MS,
    MetricRow,
    MetricSource,
    MetricTable,
    MetricWindow,
    Sensor,
    average,
    counter,
    meter,
)
from kohort.client.produce.accumulator import Accumulator
from kohort.client.produce.batch import Batch


class TopicSendMetrics:
    """What is counted of one topic."""

    def __init__(self, window: MetricWindow) -> None:
        self.records, self.bytes = Sensor(window), Sensor(window)
        self.compression = Sensor(window)
        self.retries, self.errors = Sensor(window), Sensor(window)


class SenderMetrics:
    """What the sender counts, once for each batch and each request."""

    def __init__(self, window: MetricWindow, accumulator: Accumulator[Any], metadata: Metadata) -> None:
        self.accumulator, self.metadata = accumulator, metadata
        self.in_flight = 0
        self.latencies, self.throttles = Sensor(window), Sensor(window)
        self.sizes, self.uncompressed, self.queue_times = Sensor(window), Sensor(window), Sensor(window)
        self.compression, self.records, self.splits = Sensor(window), Sensor(window), Sensor(window)
        self.retries, self.errors = Sensor(window), Sensor(window)
        self._window = window
        self._topics: dict[str, TopicSendMetrics] = {}

    def sent(self, batches: list[Batch], compressed: bool, now_ms: int) -> None:
        """A request with these batches goes out."""
        self.in_flight += 1
        records = 0
        for batch in batches:
            assert batch.encoded is not None
            size = len(batch.encoded)
            rate = min(1.0, size / batch.size) if compressed else 1.0
            records += batch.count
            topic = self._topic(batch.queue.topic)
            self.sizes.record(size, now_ms)
            self.uncompressed.record(batch.size if compressed else size, now_ms)
            self.compression.record(rate, now_ms)
            self.queue_times.record(now_ms - batch.created_ms, now_ms)
            topic.records.record(batch.count, now_ms)
            topic.bytes.record(size, now_ms)
            topic.compression.record(rate, now_ms)
        self.records.record(records, now_ms)

    def answered(self, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        """A request was answered."""
        self.latencies.record(latency_ms, now_ms)
        self.throttles.record(throttle_ms, now_ms)

    def ended(self) -> None:
        """A request is done, answered or not."""
        self.in_flight -= 1

    def retried(self, batch: Batch, now_ms: int) -> None:
        self.retries.record(batch.count, now_ms)
        self._topic(batch.queue.topic).retries.record(batch.count, now_ms)

    def failed(self, batch: Batch, now_ms: int) -> None:
        """The records of a batch will not be written."""
        self.errors.record(batch.count, now_ms)
        self._topic(batch.queue.topic).errors.record(batch.count, now_ms)

    def split(self, now_ms: int) -> None:
        self.splits.record(1, now_ms)

    def _topic(self, topic: str) -> TopicSendMetrics:
        metrics = self._topics.get(topic)
        if metrics is None:
            metrics = self._topics[topic] = TopicSendMetrics(self._window)
        return metrics

    def sources(self) -> Iterator[MetricSource]:
        yield MetricSource(SENDER, self)
        for topic, counters in self._topics.copy().items():
            yield MetricSource(TOPIC_SENDS, counters, {"topic": topic})


class ProducerCallMetrics:
    """How long the callers of a producer have waited. Several threads call: the accumulator's lock is held."""

    def __init__(self, window: MetricWindow, accumulator: Accumulator[Any]) -> None:
        self.flush_ms = self.metadata_ms = 0
        self.memory_waits, self.exhausted = Sensor(window), Sensor(window)
        self._lock = accumulator.lock

    def flushed(self, took_ms: int) -> None:
        with self._lock:
            self.flush_ms += took_ms

    def waited_for_metadata(self, took_ms: int) -> None:
        with self._lock:
            self.metadata_ms += took_ms

    def waited_for_memory(self, took_ms: int, in_time: bool, now_ms: int) -> None:
        with self._lock:
            self.memory_waits.record(took_ms, now_ms)
            if not in_time:
                self.exhausted.record(1, now_ms)


def _record_size(m: SenderMetrics, now_ms: int) -> float:
    records = m.records.recent(now_ms)[0]
    return m.uncompressed.recent(now_ms)[0] / records if records else float("nan")


SENDER = MetricTable[SenderMetrics](
    "{client}-metrics",
    (),
    (
        *meter("record-send", "records sent, those sent again included", lambda m: m.records),
        *meter("record-retry", "records sent again", lambda m: m.retries),
        *meter("record-error", "records that were not written", lambda m: m.errors),
        *average("batch-size", "bytes of a batch as it was sent", lambda m: m.sizes),
        *counter("batch-split", "batches that the broker found too large", lambda m: m.splits),
        MetricRow(
            "compression-rate-avg",
            "the size of a batch as it was sent, divided by about what it was before: the average",
            lambda m, now: m.compression.avg(now),
        ),
        MetricRow("records-per-request-avg", "records in a request", lambda m, now: m.records.avg(now)),
        MetricRow("record-size-avg", "bytes of a record before compression, about", _record_size),
        *average(
            "record-queue-time", "ms from a batch's first record until the batch was sent", lambda m: m.queue_times
        ),
        *average("request-latency", "ms until a Produce request was answered", lambda m: m.latencies),
        *average("produce-throttle-time", "ms that the broker throttled a request", lambda m: m.throttles),
        MetricRow("requests-in-flight", "Produce requests without an answer so far", lambda m, now: m.in_flight),
        MetricRow(
            "metadata-age", "seconds since metadata was last received", lambda m, now: m.metadata.age_ms(now) / 1000
        ),
        MetricRow("buffer-total-bytes", "buffer.memory", lambda m, now: m.accumulator.buffer_memory),
        MetricRow(
            "buffer-available-bytes",
            "what is left of buffer.memory",
            lambda m, now: m.accumulator.buffer_memory - m.accumulator.used_bytes,
        ),
        MetricRow(
            "waiting-threads", "callers that wait for memory", lambda m, now: m.accumulator.waiting_for_memory
        ),
    ),
)  # fmt: skip
TOPIC_SENDS = MetricTable[TopicSendMetrics](
    "{client}-topic-metrics",
    ("topic",),
    (
        *meter("record-send", "records sent, those sent again included", lambda m: m.records),
        *meter("byte", "bytes of batches as they were sent", lambda m: m.bytes),
        MetricRow(
            "compression-rate",
            "the size of a batch as it was sent, divided by about what it was before: the average",
            lambda m, now: m.compression.avg(now),
        ),
        *meter("record-retry", "records sent again", lambda m: m.retries),
        *meter("record-error", "records that were not written", lambda m: m.errors),
    ),
)
PRODUCER_CALLS = MetricTable[ProducerCallMetrics](
    "{client}-metrics",
    (),
    (
        MetricRow(
            "flush-time-ns-total", "ns spent in `flush`, to the millisecond", lambda m, now: m.flush_ms * NS_PER_MS
        ),
        MetricRow(
            "metadata-wait-time-ns-total",
            "ns that callers waited for a topic's metadata, to the millisecond",
            lambda m, now: m.metadata_ms * NS_PER_MS,
        ),
        MetricRow(
            "bufferpool-wait-time-ns-total",
            "ns that callers waited for memory, to the millisecond",
            lambda m, now: m.memory_waits.total * NS_PER_MS,
        ),
        MetricRow(
            "bufferpool-wait-ratio",
            "the part of the time in which a caller waited for memory",
            lambda m, now: m.memory_waits.rate(now) / 1000,
        ),
        *counter("buffer-exhausted", "records given up because no memory became free in time", lambda m: m.exhausted),
    ),
)  # fmt: skip
