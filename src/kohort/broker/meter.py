"""Holds what a broker counts while its metrics are served; without them there is no meter, and nothing is counted."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

from kohort.broker.api_row import Row
from kohort.broker.request_meter import RequestMeter
from kohort.coordinator.effects import HistoryChanged
from kohort.coordinator.history import INTERRUPTED, LOST
from kohort.coordinator.rebalance_kinds import KINDS, kind_of
from kohort.security.quotas import QuotaKind

REBALANCE_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
SHORT_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
THROTTLE_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LOOK_S = 0.25  # how often the event loop's lag is measured


class TimeHistogram:
    """Times in buckets, in seconds; for what happens some times a second. `RequestMeter` has what is faster."""

    __slots__ = ("bounds", "buckets", "total_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds


class BrokerMeter:
    """All that one broker counts. Everything here belongs to the event loop's thread."""

    def __init__(self, table: dict[int, Row]) -> None:
        self.requests = RequestMeter(table)
        self.rebalances = Counter(dict.fromkeys(KINDS, 0))
        self.join = TimeHistogram(REBALANCE_S)
        self.sync = TimeHistogram(REBALANCE_S)
        self.loads = TimeHistogram(REBALANCE_S)
        self.load_failures = 0
        self.transaction_loads = TimeHistogram(REBALANCE_S)
        self.transaction_load_failures = 0
        self.verifications = TimeHistogram(SHORT_S)
        self.verification_failures = 0
        self.journal = TimeHistogram(SHORT_S)
        self.loop_lag = TimeHistogram(SHORT_S)
        self.connections_opened = 0
        self.connections_refused = 0
        self.throttles = {kind: TimeHistogram(THROTTLE_S) for kind in QuotaKind}
        self._look: asyncio.TimerHandle | None = None

    def on_history(self, changed: HistoryChanged) -> None:
        """Counts a rebalance when it begins, and its two times when they are known."""
        rebalance = changed.rebalance
        if rebalance.outcome in (INTERRUPTED, LOST):
            return
        if rebalance.join_ms is None:
            self.rebalances[kind_of(rebalance.reason)] += 1
        elif rebalance.sync_ms is None:
            self.join.add(rebalance.join_ms / 1000)
        else:
            self.sync.add(rebalance.sync_ms / 1000)

    # --- the event loop ----------------------------------------------------------------------------

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measures from now on how late the loop runs what is due."""
        due = loop.time() + _LOOK_S

        def look() -> None:
            self.loop_lag.add(max(loop.time() - due, 0.0))
            self.watch(loop)

        self._look = loop.call_at(due, look)

    def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
