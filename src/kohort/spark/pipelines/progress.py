"""Reads Spark's progress reports, and shows them as lines on the terminal and as metrics for Prometheus."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any, TextIO

from kohort.exposition import Family, exposition
from kohort.spark.driver.query_lag import lag_in
from kohort.spark.pipelines.state import RUNNING, PipelineStatus


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What Spark reports of one trigger."""

    batch: int
    at: str
    rows: int
    duration_ms: int
    lag: dict[str, int] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        return self.rows * 1000 / self.duration_ms if self.duration_ms else 0.0


def read_progress(report: Any) -> BatchProgress:
    """From an element of `query.recentProgress`, or the dict in it."""
    fields = report if isinstance(report, dict) else json.loads(report.json)
    behind = {str(partition): count for partition, count in sorted(lag_in(fields).items())}
    duration = fields.get("durationMs") or {}
    return BatchProgress(
        int(fields["batchId"]),
        str(fields["timestamp"]),
        int(fields.get("numInputRows") or 0),
        int(duration.get("triggerExecution") or fields.get("batchDuration") or 0),
        behind,
    )


def note(status: PipelineStatus, batch: BatchProgress) -> bool:
    """Puts a report into the status; returns whether it was one with rows."""
    status.batch = batch.batch
    if batch.lag:
        status.lag = batch.lag
    if not batch.rows:
        return False
    status.batches += 1
    status.rows += batch.rows
    status.batch_rows, status.batch_duration_ms = batch.rows, batch.duration_ms
    status.rows_per_second = batch.rows_per_second
    return True


# --- the terminal -------------------------------------------------------------------------------------


def batch_line(batch: BatchProgress, status: PipelineStatus) -> str:
    """The line of a batch: `batch 12    1,204 rows in 0.80 s    1,505 rows/s    lag 230    orders-etl Stable`."""
    parts = [
        f"batch {batch.batch}",
        f"{batch.rows:,} rows in {batch.duration_ms / 1000:.2f} s",
        f"{batch.rows_per_second:,.0f} rows/s",
    ]
    return "    ".join(parts + _standing(status))


def idle_line(status: PipelineStatus) -> str:
    """The line that is shown while no records come."""
    parts = ["waiting for records", f"{status.rows:,} rows so far"]
    return "    ".join(parts + _standing(status))


def _standing(status: PipelineStatus) -> list[str]:
    parts = [] if status.total_lag is None else [f"lag {status.total_lag:,}"]
    for group, seen in status.groups.items():
        members = seen.get("members")
        count = "" if members is None else f", {members} member{'' if members == 1 else 's'}"
        parts.append(f"{group} {seen['state']}{count}")
    return parts


class Terminal:
    """Lines that stay, and on a terminal one last line that changes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._shown = ""

    def line(self, text: str) -> None:
        self._clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def now(self, text: str) -> None:
        """Replaces the last line; does nothing where there is no terminal."""
        if self._is_terminal and text != self._shown:
            self._clear()
            self._stream.write(text)
            self._stream.flush()
            self._shown = text

    def _clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._shown = ""


# --- metrics ------------------------------------------------------------------------------------------


def metrics_text(status: PipelineStatus, now_ms: int) -> str:
    """The metrics for Prometheus. Those of groups have the names that dashboards already know."""
    of = {"pipeline": status.name}
    gauges = [
        ("up", "1 while the query runs.", float(status.state == RUNNING)),
        ("batch_rows", "Rows of the last batch.", status.batch_rows),
        ("batch_duration_seconds", "How long the last batch took.", status.batch_duration_ms / 1000),
        ("rows_per_second", "Of the last batch.", round(status.rows_per_second, 3)),
        ("uptime_seconds", "Since the start.", max(0, now_ms - status.started_ms) / 1000),
    ]
    counters = [
        ("rows_total", "Rows read since the start.", status.rows),
        ("batches_total", "Batches with rows since the start.", status.batches),
    ]
    families = [Family(f"kohort_pipeline_{n}", "gauge", text, [(of, value)]) for n, text, value in gauges]
    families += [
        Family(f"kohort_pipeline_{n}", "counter", text, [(of, value)]) for n, text, value in counters
    ]
    lag = Family("kohort_pipeline_lag", "gauge", "Offsets not read at the last progress.")
    members = Family(
        "kafka_consumergroup_members", "gauge", "Members of the groups that the pipeline reads as."
    )
    of_group = Family("kafka_consumergroup_lag", "gauge", "Of each partition.")
    total = Family("kafka_consumergroup_lag_sum", "gauge", "Of all partitions.")
    for name, behind in status.lag.items():
        topic, _, partition = name.rpartition("-")
        lag.add(behind, **of, topic=topic, partition=partition)
        if len(status.groups) == 1:
            of_group.add(behind, consumergroup=next(iter(status.groups)), topic=topic, partition=partition)
    for group, seen in status.groups.items():
        if seen.get("members") is not None:
            members.add(seen["members"], consumergroup=group)
        if len(status.groups) == 1:
            total.add(status.total_lag or 0, consumergroup=group)
    return exposition([*families, lag, members, of_group, total])
