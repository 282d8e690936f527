"""A thread that looks at the cluster again and again, also while the cluster is away."""

from __future__ import annotations

import threading
import time

from kohort.client.admin import Admin
from kohort.errors import KohortError
from kohort.insight.past import UnreadAges
from kohort.insight.samples import sample_cluster
from kohort.insight.trends import Trends


class LookingThread(threading.Thread):
    """Adds a sample to `trends` every `interval_s`; hold `lock` to read them.

    What goes wrong is in `trouble`, until a sample succeeds again; `count` counts the samples.
    """

    def __init__(self, admin: Admin, interval_s: float) -> None:
        super().__init__(name="kohort-top", daemon=True)
        self._admin, self._interval_s = admin, interval_s
        self._ages = UnreadAges(admin)
        self._ends = threading.Event()
        self._looked = threading.Condition()
        self.lock = threading.Lock()
        self.trends = Trends()
        self.trouble = ""
        self.away_since_s: float | None = None
        self.count = self.attempts = 0

    def run(self) -> None:
        while not self._ends.is_set():
            began_s = time.monotonic()
            self._look()
            with self._looked:
                self.attempts += 1
                self._looked.notify_all()
            self._ends.wait(max(0.05, self._interval_s - (time.monotonic() - began_s)))

    def stop(self) -> None:
        """Ends the thread soon; close the admin afterwards, which ends a call that waits."""
        self._ends.set()

    def wait_for(self, attempts: int, timeout_s: float) -> bool:
        """Waits until so many attempts are made; False if time is up before."""
        with self._looked:
            return self._looked.wait_for(lambda: self.attempts >= attempts, timeout_s)

    def _look(self) -> None:
        try:
            # A cluster that is away should be told soon, and looked for again soon.
            sample = sample_cluster(self._admin, int(time.time() * 1000), timeout=max(2.0, self._interval_s))
            with self.lock:
                latest = self.trends.latest
                if latest is None or sample.at_ms > latest.at_ms:  # else the clock was set back
                    self.trends.add(sample)
                    self.count += 1
                self._ages.fill(self.trends)
        except KohortError as error:
            if self.away_since_s is None:
                self.away_since_s = time.time()
            self.trouble = str(error)
        else:
            self.trouble, self.away_since_s = "", None
