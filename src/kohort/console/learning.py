"""Finds out what a group did before the first sample, once somebody looks at it: its pictures do not begin empty.

It is done for one group at a time, in a thread of its own, and once for each group.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from kohort.client.admin import Admin
from kohort.client.types import TopicPartition
from kohort.console.sampler import Sampler
from kohort.errors import KohortError
from kohort.insight.health import OffsetPoint
from kohort.insight.past import past_lag, unread_since

log = logging.getLogger("kohort.console")

_WAIT_S = 1.0
"""How long a request waits for it; the page is told when it is there."""
_MOST_WAITING = 20


class PastLearner:
    """Learns the past of the groups that are looked at."""

    def __init__(self, admin: Admin, settings: Mapping[str, str], sampler: Sampler) -> None:
        self._admin, self._settings, self._sampler = admin, settings, sampler
        self._executor = ThreadPoolExecutor(1, "kohort-console-past")
        self._learned: dict[str, Future[None]] = {}

    def close(self) -> None:
        """Ends the thread; close the Admin first, so that a call that waits ends too."""
        self._executor.shutdown(cancel_futures=True)

    def learn(self, group_id: str) -> None:
        """Learns the past of a group of the last sample, if that was not done before; waits a moment for it."""
        snapshot = self._sampler.snapshot
        if snapshot is None or group_id not in snapshot.sample.groups:
            return
        if group_id not in self._learned:
            if sum(not each.done() for each in self._learned.values()) >= _MOST_WAITING:
                return
            self._learned = {
                name: each for name, each in self._learned.items() if name in snapshot.sample.groups
            }
            self._learned[group_id] = self._executor.submit(self._learn, group_id)
        wait([self._learned[group_id]], _WAIT_S)

    def _learn(self, group_id: str) -> None:
        snapshot = self._sampler.snapshot
        group = None if snapshot is None else snapshot.sample.groups.get(group_id)
        if group is None:
            return
        now_ms = self._sampler.now_ms()
        points: dict[TopicPartition, list[OffsetPoint]] = {}
        try:
            behind = {
                TopicPartition(each.topic, each.partition): each.committed
                for each in group.partitions
                if each.lag and each.committed is not None
            }
            points = dict(unread_since(self._admin, behind, now_ms)) if behind else {}
            for at, past in past_lag(self._admin, self._settings, group_id, now_ms).items():
                points[at] = sorted([*points.get(at, []), *past], key=lambda point: point.at_ms)
        except KohortError as error:
            log.debug("the past of %s is not known: %s", group_id, error)
        except Exception:  # a fault of ours must not end the thread
            log.exception("the past of %s was not found", group_id)
        if points:
            self._sampler.add_past(group_id, points)
