"""Follows the history of groups while somebody looks, and tells pages of each rebalance as it happens.

Only Kohort's coordinator keeps a history. On other clusters pages learn of a rebalance by the next sample.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from kohort.client.admin import Admin
from kohort.console.answers import rebalance_row
from kohort.console.events import EventHub
from kohort.errors import KohortError
from kohort.insight.rebalances import RebalanceFeed

log = logging.getLogger("kohort.console")

_POLL_S = 1.0
_AGAIN_S = 10.0
"""How long to wait before a cluster that keeps no history, or does not answer, is asked again."""
_OWN = {"fetch.max.wait.ms": "10000"}
"""An answer comes at once when there is something; without news the broker is asked six times a minute."""


class HistoryFollower:
    """A thread that reads the history of all groups as long as a page listens."""

    def __init__(self, admin: Admin, settings: Mapping[str, str], hub: EventHub) -> None:
        self._admin, self._hub = admin, hub
        self._settings = {**settings, **_OWN}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kohort-console-history", daemon=True)

    def start(self) -> None:
        """Begins to wait for pages."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; close the Admin first, so that a call that waits ends too."""
        self._end.set()
        self._hub.watched.set()  # the hub is closed; whoever waits for pages wakes
        if self._thread.is_alive():
            self._thread.join(3 * _POLL_S)

    def _run(self) -> None:
        while not self._end.is_set():
            if not self._hub.watched.wait(_POLL_S):
                continue
            try:
                self._follow()
            except KohortError as error:
                log.debug("the history of groups is not followed: %s", error)
                self._end.wait(_AGAIN_S)
            except Exception:  # a fault of ours must not end the thread
                log.exception("following the history of groups failed")
                self._end.wait(_AGAIN_S)

    def _follow(self) -> None:
        with RebalanceFeed(self._admin, self._settings) as feed:
            while self._hub.watched.is_set() and not self._end.is_set():
                for group_id, rebalance in feed.poll(_POLL_S):
                    told = rebalance_row(rebalance).model_dump()
                    self._hub.tell("rebalance", {"group": group_id, "rebalance": told})
