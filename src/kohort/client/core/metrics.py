"""Counts what a client does, and says it by Kafka's names: totals, and averages, maxima and rates of the last minute.

A part of the client owns `Sensor`s and records into them once for each request, answer or batch, with the time of that
event. A `MetricTable` says which metrics are read off a part, by which names; it is also what the documentation shows.
Nothing is computed before somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any, Generic, TypeVar

from kohort.client.errors import WrongArgument

S = TypeVar("S")

MS_PER_HOUR = 3_600_000
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class MetricName:
    """Kafka's name for a metric: `records-lag` of the group `consumer-fetch-manager-metrics`, with tags."""

    name: str
    group: str
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return hash((self.name, self.group, frozenset(self.tags.items())))

    def __str__(self) -> str:
        tags = ", ".join(f"{tag}={value}" for tag, value in sorted(self.tags.items()))
        return f"{self.group}:{self.name}{{{tags}}}"


class Metrics(dict[MetricName, float]):
    """The metrics of a client at one moment, by their names; a metric without a value so far is NaN."""

    def value(self, name: str, group: str | None = None, **tags: object) -> float:
        """Returns the one metric of this name: `metrics.value("records-lag", topic="orders", partition=0)`.

        Without tags, that is the metric of the whole client. Write tags with underscores: `client_id="app"`. Raises
        WrongArgument if there is no such metric, or if the name stands for several: then say which.
        """
        wanted = {tag.replace("_", "-"): str(value) for tag, value in tags.items()}
        found = [
            (each, value)
            for each, value in self.items()
            if each.name == name and group in (None, each.group) and wanted.items() <= each.tags.items()
        ]
        if len(found) > 1:
            fewest = min(len(each.tags) for each, _ in found)
            found = [(each, value) for each, value in found if len(each.tags) == fewest]
        if len(found) == 1:
            return found[0][1]
        if found:
            names = ", ".join(str(each) for each, _ in found[:5])
            raise WrongArgument(
                f"{name} stands for {len(found)} metrics: give its group or tags, as in {names}"
            )
        which = f"{f' of {group}' if group else ''}{f' with the tags {wanted}' if wanted else ''}"
        raise WrongArgument(f"there is no metric {name}{which}: print the keys of metrics() for all names")


@dataclass(frozen=True, slots=True)
class MetricWindow:
    """The time that averages, maxima and rates look back: metrics.num.samples × metrics.sample.window.ms."""

    sample_ms: int = 30_000
    samples: int = 2

    @property
    def span_ms(self) -> int:
        return self.sample_ms * self.samples


@dataclass(slots=True)
class _Sample:
    """The values of one part of the window."""

    start_ms: int
    last_ms: int
    count: int
    sum: float
    max: float


class Sensor:
    """Collects values and their times, as Kafka's sensors do: a few samples of time, the oldest of which is dropped.

    One thread records. Any thread may read, and gets a value that was right a moment ago.
    """

    __slots__ = (
        "_window", "_past", "_past_count", "_past_sum", "_ends_ms", "_start_ms", "_last_ms", "_count", "_sum", "_max",
    )  # fmt: skip

    def __init__(self, window: MetricWindow) -> None:
        self._window = window
        self._past: tuple[_Sample, ...] = ()
        self._past_count, self._past_sum = 0, 0.0
        self._ends_ms: float = 0
        self._start_ms = self._last_ms = 0
        self._count = 0
        self._sum: float = 0
        self._max = -float("inf")

    def record(self, value: float, now_ms: int) -> None:
        if now_ms >= self._ends_ms:
            self._advance(now_ms)
        self._count += 1
        self._sum += value
        if value > self._max:
            self._max = value
        self._last_ms = now_ms

    def record_many(self, value: float, count: int, now_ms: int) -> None:
        """Records several values at once, of which one is `value` and the others are 0."""
        self.record(value, now_ms)
        self._count += count - 1

    def _advance(self, now_ms: int) -> None:
        """Begins a sample. One more than the window has is kept: the oldest may still overlap the window."""
        if self._count:
            ended = _Sample(self._start_ms, self._last_ms, self._count, self._sum, self._max)
            self._past = (*self._past, ended)[-self._window.samples :]
            self._past_count += self._count
            self._past_sum += self._sum
        self._count, self._sum, self._max = 0, 0, -float("inf")
        self._start_ms, self._ends_ms = now_ms, now_ms + self._window.sample_ms

    # --- what is read -----------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many values there were since the client was made."""
        return self._past_count + self._count

    @property
    def total(self) -> float:
        """The sum of all values since the client was made."""
        return self._past_sum + self._sum

    def _samples(self, now_ms: int) -> list[_Sample]:
        current = _Sample(self._start_ms, self._last_ms, self._count, self._sum, self._max)
        span_ms = self._window.span_ms
        return [each for each in (*self._past, current) if each.count and now_ms - each.last_ms < span_ms]

    def recent(self, now_ms: int) -> tuple[float, int]:
        """Returns the sum and the number of the values in the window."""
        samples = self._samples(now_ms)
        return sum(each.sum for each in samples), sum(each.count for each in samples)

    def avg(self, now_ms: int) -> float:
        summed, count = self.recent(now_ms)
        return summed / count if count else nan

    def max(self, now_ms: int) -> float:
        return max((each.max for each in self._samples(now_ms)), default=nan)

    def rate(self, now_ms: int, more: float = 0) -> float:
        """Returns the sum of the values per second, as if `more` were recorded now."""
        return (self.recent(now_ms)[0] + more) * 1000 / self._elapsed_ms(now_ms)

    def count_rate(self, now_ms: int) -> float:
        """Returns the number of values per second."""
        return self.recent(now_ms)[1] * 1000 / self._elapsed_ms(now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        """Returns the time that a rate divides by: at least all samples but one, so that a start is no peak."""
        samples, sample_ms = self._samples(now_ms), self._window.sample_ms
        elapsed_ms = now_ms - min((each.start_ms for each in samples), default=now_ms)
        missing = self._window.samples - 1 - elapsed_ms // sample_ms
        return max(1, elapsed_ms + max(0, missing) * sample_ms)


@dataclass(frozen=True)
class MetricRow(Generic[S]):
    """One metric: its name, what it says, and how it is read off a part at a time."""

    name: str
    description: str
    read: Callable[[S, int], float]


@dataclass(frozen=True)
class MetricTable(Generic[S]):
    """The metrics that one class of a part gives; `tags` are those besides client-id."""

    group: str
    """With {client} for consumer, producer or admin-client."""
    tags: tuple[str, ...]
    rows: tuple[MetricRow[S], ...]


@dataclass(frozen=True, slots=True)
class MetricSource:
    """Something with metrics: a table, the object to read them off, and the values of the table's tags."""

    table: MetricTable[Any]
    counters: object
    tags: Mapping[str, str] = field(default_factory=dict)

    def read(self, client: str, client_id: str, now_ms: int) -> Iterator[tuple[MetricName, float]]:
        group = self.table.group.format(client=client)
        tags = {"client-id": client_id, **self.tags}
        for row in self.table.rows:
            yield (
                MetricName(row.name, group, tags, row.description),
                float(row.read(self.counters, now_ms)),
            )


# --- rows that belong together --------------------------------------------------------------------


def meter(name: str, what: str, sensor: Callable[[S], Sensor]) -> tuple[MetricRow[S], ...]:
    """Makes NAME-rate and NAME-total of the values' sum: bytes, records."""
    return (
        MetricRow(f"{name}-rate", f"{what} per second", lambda s, now: sensor(s).rate(now)),
        MetricRow(f"{name}-total", f"{what}, since the client was made", lambda s, now: sensor(s).total),
    )


def counter(name: str, what: str, sensor: Callable[[S], Sensor]) -> tuple[MetricRow[S], ...]:
    """Makes NAME-rate and NAME-total of the number of values: requests, rebalances."""
    return (
        MetricRow(f"{name}-rate", f"{what} per second", lambda s, now: sensor(s).count_rate(now)),
        MetricRow(f"{name}-total", f"{what}, since the client was made", lambda s, now: sensor(s).count),
    )


def average(name: str, what: str, sensor: Callable[[S], Sensor]) -> tuple[MetricRow[S], ...]:
    """Makes NAME-avg and NAME-max."""
    return (
        MetricRow(f"{name}-avg", f"{what}: the average", lambda s, now: sensor(s).avg(now)),
        MetricRow(f"{name}-max", f"{what}: the maximum", lambda s, now: sensor(s).max(now)),
    )


def seconds_since(time_ms: int | None, now_ms: int) -> float:
    """Returns whole seconds, as Kafka does; -1 if it never happened."""
    return -1 if time_ms is None else max(0, now_ms - time_ms) // 1000


COUNT = MetricTable[int](
    "kafka-metrics-count", (), (MetricRow("count", "how many metrics this client has", lambda n, now: n),)
)


def read_metrics(client: str, client_id: str, sources: Iterator[MetricSource], now_ms: int) -> Metrics:
    """Reads all sources of a client at one moment."""
    found = Metrics()
    for source in sources:
        found.update(source.read(client, client_id, now_ms))
    found.update(MetricSource(COUNT, len(found) + 1).read(client, client_id, now_ms))
    return found
