"""The sampler: one thread that looks at the cluster again and again, seldom when nobody looks at the console.

The time between two samples grows with the processor time that a sample takes here, which is more than the cluster
spends on it. So the cluster's work stays a small share of its time however many groups it has, and a cluster that is
far away is not asked less often for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kohort.client.admin import Admin
from kohort.client.types import TopicPartition
from kohort.console.events import EventHub
from kohort.errors import KohortError
from kohort.insight.health import OffsetPoint
from kohort.insight.samples import ClusterSample, sample_cluster
from kohort.insight.trends import GroupTrend, Trends

log = logging.getLogger("kohort.console")

FIRST_SAMPLE_S = 10.0
"""How long a request waits for the first sample."""
LONGEST_STEP_S = 5.0
"""How long the cluster may take for one step of a sample, unless the settings of the client say less."""
_REMEMBERED = 3
_LOADING_S = 0.5
"""The first sample also loads code: if it does not take more than this, it says nothing about the others."""
_TICK_S, _LOOKED_AT_S = 2.0, 15.0
"""While somebody looks at one group of many, pages are told so often to ask again: one group is cheap to look at."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait after a sample: a multiple of what it took, within limits."""

    shortest_s: float
    multiple: float
    longest_s: float

    def wait_s(self, took_s: float) -> float:
        """Returns the time to wait after a sample that took so much processor time."""
        return min(max(took_s * self.multiple, self.shortest_s), self.longest_s)


WATCHED = Pace(2.0, 150.0, 180.0)
UNWATCHED = Pace(30.0, 400.0, 600.0)
UNREACHABLE = Pace(1.0, 1.0, 15.0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of the cluster: the last sample, the one before, and how groups develop. It never changes.

    Only the series of points within the trends grow; whoever reads those holds the lock of the sampler.
    """

    sample: ClusterSample
    before: ClusterSample | None
    trends: Mapping[str, GroupTrend]


@dataclass(frozen=True, slots=True)
class Reachability:
    """Whether the cluster can be reached, since when, and why not."""

    reachable: bool
    since_ms: int
    problem: str | None


class Sampler:
    """Takes samples in a thread of its own; what it knows may be read by any thread."""

    def __init__(
        self,
        admin: Admin,
        hub: EventHub,
        *,
        watched: Pace = WATCHED,
        unwatched: Pace = UNWATCHED,
        timeout_s: float = LONGEST_STEP_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._admin, self._hub, self._timeout_s = admin, hub, timeout_s
        self._watched, self._unwatched = watched, unwatched
        self.now_ms = now_ms
        self._trends = Trends()
        self.snapshot: Snapshot | None = None
        self.lock = threading.Lock()
        """Held while the series of trends are read or changed."""
        self.reachability = Reachability(False, now_ms(), "the cluster has not been looked at yet")
        self.period_s = watched.shortest_s
        self._took_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._looked_at_until_s = 0.0
        self.changed_ms = 0
        """When something was changed through this console; what was sampled before is not to be shown as new."""
        self._first = threading.Event()
        self._soon = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="kohort-console-sampler", daemon=True)

    def start(self) -> None:
        """Begins to take samples."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; close the Admin first, so that a call that waits ends too."""
        self._ended = True
        self._soon.set()
        self._hub.arrived.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def sample_soon(self) -> None:
        """Makes the next sample come at once, because something was changed."""
        self.changed_ms = self.now_ms()
        self._soon.set()
        self._hub.arrived.set()

    def group_looked_at(self) -> None:
        """Notes that somebody looks at one group, whose page is to be told often that it may ask again."""
        self._looked_at_until_s = time.monotonic() + _LOOKED_AT_S

    def latest(self) -> Snapshot | None:
        """Returns what is known; waits for the first sample, for a while. None if there is none yet."""
        self._first.wait(FIRST_SAMPLE_S)
        return self.snapshot

    def add_past(self, group_id: str, points: Mapping[TopicPartition, Sequence[OffsetPoint]]) -> None:
        """Takes what is known of a group's time before the first sample, and tells the pages that there is news."""
        with self.lock:
            self._trends.add_past(group_id, points)
            trend, snapshot = self._trends.group(group_id), self.snapshot
            if trend is None or snapshot is None:
                return
            self.snapshot = replace(snapshot, trends={**snapshot.trends, group_id: trend})
        self._hub.tell("sample", {"at_ms": snapshot.sample.at_ms})

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            began_s = time.thread_time()
            reachable = self._sample()
            took_s = time.thread_time() - began_s
            if self._first.is_set() or took_s > _LOADING_S:
                self._took_s.append(took_s)
            self._first.set()
            self._wait(time.monotonic(), reachable)

    def _sample(self) -> bool:
        try:
            sample = sample_cluster(self._admin, self._next_ms(), timeout=self._timeout_s)
            self._add(sample)
        except KohortError as error:
            if not self._ended:
                self._become(False, str(error))
            return False
        except Exception as error:  # a fault of ours must not end the thread
            log.exception("the sample failed")
            self._become(False, f"the sample failed: {error!r}")
            return False
        self._become(True, None)
        self._hub.tell("sample", {"at_ms": sample.at_ms})
        return True

    def _next_ms(self) -> int:
        """Returns the time, which goes on even if somebody sets the clock back."""
        before = self.snapshot
        return self.now_ms() if before is None else max(self.now_ms(), before.sample.at_ms + 1)

    def _add(self, sample: ClusterSample) -> None:
        """Works out how each group develops, one by one: a request need not wait for a thousand of them."""
        with self.lock:
            self._trends.add(sample)
        before, trends = self.snapshot, {}
        for group_id in sample.groups:
            with self.lock:
                trend = self._trends.group(group_id)
            if trend is not None:
                trends[group_id] = trend
        with self.lock:
            self.snapshot = Snapshot(sample, None if before is None else before.sample, trends)

    def _become(self, reachable: bool, problem: str | None) -> None:
        before = self.reachability
        if before.reachable == reachable:
            self.reachability = Reachability(reachable, before.since_ms, problem)
            if reachable or not self._first.is_set():
                return
        else:
            self.reachability = Reachability(reachable, self.now_ms(), problem)
            if not reachable:
                log.warning("the cluster cannot be reached: %s", problem)
        now = self.reachability
        told = {"reachable": now.reachable, "since_ms": now.since_ms, "problem": now.problem}
        self._hub.tell("cluster", told)

    def _wait(self, since_s: float, reachable: bool) -> None:
        """Waits until the next sample is due, which changes when somebody comes or the last one goes."""
        while not self._ended:
            self._hub.arrived.clear()
            pace = self._watched if self._hub.watched.is_set() else self._unwatched
            if not reachable:
                pace = UNREACHABLE
            self.period_s = pace.wait_s(min(self._took_s, default=0.0))
            left_s = since_s + self.period_s - time.monotonic()
            if left_s <= 0 or self._soon.is_set():
                break
            if time.monotonic() > self._looked_at_until_s or not reachable:
                self._hub.arrived.wait(min(left_s, _LOOKED_AT_S))
            elif not self._hub.arrived.wait(min(left_s, _TICK_S)) and left_s > _TICK_S:
                self._hub.tell("sample", {"at_ms": self.now_ms()})
        self._soon.clear()
