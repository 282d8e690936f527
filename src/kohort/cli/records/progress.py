"""Progress of long work, on a terminal alone, and nothing for work that is done within a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_PATIENCE_S = 1.0
"""Nothing is drawn, and rich is not loaded, before this."""
_EVERY_S = 0.1


class ProgressLine:
    """A line on stderr: how much is done, of how much if that is known, and how fast. Use it with `with`."""

    def __init__(self, what: str, unit: str, *, total: int | None = None, wanted: bool = True) -> None:
        """Draws only if it is wanted and stderr is a terminal."""
        self._what, self._unit, self._total = what, unit, total
        self._wanted = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._next_s = time.monotonic() + _PATIENCE_S
        self._drawn: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._drawn is not None:
            self._drawn.stop()

    def show(self, done: int, note: str = "") -> None:
        """Shows how far the work is; most calls only look at the clock."""
        if not self._wanted:
            return
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        if self._drawn is None:
            self._start()
        self._drawn.update(self._task, completed=done, note=note)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        amount = (
            DownloadColumn() if self._unit == "bytes" else TextColumn("{task.completed:,.0f} " + self._unit)
        )
        columns = [TextColumn("{task.description}"), amount, TextColumn("{task.fields[note]}")]
        if self._total is not None:
            columns[1:1] = [BarColumn()]  # type: ignore[list-item]
            columns.append(TimeRemainingColumn())  # type: ignore[arg-type]
        self._drawn = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._drawn.add_task(self._what, total=self._total, note="")
        self._drawn.start()
