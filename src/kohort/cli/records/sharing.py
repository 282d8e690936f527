"""The loop of `consume --share`: prints records as a member of a share group, and accepts what was printed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from kohort import AcknowledgeType
from kohort.cli.records.formats import Rows
from kohort.cli.records.interrupts import Interrupts
from kohort.cli.records.progress import ProgressLine
from kohort.cli.records.reading import matches
from kohort.client.records import Record
from kohort.client.share_consumer import ShareConsumer

_LOOK_S = 0.25
"""How long a poll waits while progress is drawn, or a time may be up."""


@dataclass(slots=True)
class SharedReading:
    """What is read and how it ends. `run` returns when it has ended; `commit` tells the broker what was printed."""

    consumer: ShareConsumer[bytes, bytes]
    render: Callable[[Rows], bytes]
    out: BinaryIO
    count: int | None = None
    idle_s: float | None = None
    pattern: re.Pattern[bytes] | None = None
    progress: ProgressLine | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    printed: int = field(default=0, init=False)

    def run(self) -> None:
        """Prints records until the count or the time is reached, or until a signal."""
        last_s = time.monotonic()
        while self.count is None or self.printed < self.count:
            try:
                with self.interrupts.at_once():
                    polled = self.consumer.poll(_LOOK_S)
            except KeyboardInterrupt:
                return
            for records in polled.values():
                self._take(records)
            now_s = time.monotonic()
            if polled:
                last_s = now_s
            elif self.idle_s is not None and now_s - last_s >= self.idle_s:
                return
            if self.progress is not None:
                self.progress.show(self.printed)

    def commit(self) -> None:
        """Sends what was said of the records so far; all others are released by the end of the consumer."""
        for partition, error in self.consumer.commit_sync(timeout=10).items():
            if error is not None:
                print(f"kohort: records of {partition} may be delivered again: {error}", file=sys.stderr)

    def _take(self, records: list[Record[Any, Any]]) -> None:
        found: list[Record[Any, Any]] = []
        for record in records:
            if self.count is not None and self.printed + len(found) >= self.count:
                self.consumer.acknowledge(record, AcknowledgeType.RELEASE)
                continue
            if self.pattern is None or matches(self.pattern, record):
                found.append(record)
        if found:
            self.out.write(self.render(found))
            self.out.flush()
            self.printed += len(found)
        last = found[-1].offset if found and self.printed == self.count else None
        for record in records:
            if last is None or record.offset <= last:
                self.consumer.acknowledge(record)
