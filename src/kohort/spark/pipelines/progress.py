"""Reads Spark's progress reports, and shows them as lines on the terminal."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any, TextIO

from kohort.spark.driver.query_lag import lag_in
from kohort.spark.pipelines.state import PipelineStatus


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
