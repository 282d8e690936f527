"""Queries that are no members of a group: without a group at all, or committing under a group's name."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from kohort.client.embedding import ClusterSession, CommitInFlight, GroupSession
from kohort.client.errors import CommitFailed, FencedInstanceId, RebalanceInProgress
from kohort.client.types import TopicPartition
from kohort.spark.offsets import Offsets
from kohort.spark.options import FIXED_SETTINGS, SourceOptions, settings_without_group
from kohort.wire.errors import KohortError

log = logging.getLogger("kohort.spark.group")

STOP_TIMEOUT_S = 5.0
"""How long the end of a query may take: Spark does not wait for it."""
RETRY_S = 0.05
"""The pause before a commit that a rebalance has refused is tried again."""


class GroupTaken(RuntimeError):
    """Another query, or other consumers, are in the group; the text says what to do."""

    what_to_do = (
        "Stop the other query or the other consumers, use another kafka.group.id, or share the partitions with them: "
        "groupMode=shared."
    )


class _AllPartitions:
    """Reads all partitions of its topics. New ones begin at their first record."""

    session: ClusterSession

    def enter(self, topics: Collection[str]) -> None:
        pass

    def check(self) -> None:
        pass

    def claim(self, start: Offsets, ends: Offsets) -> Offsets:
        return ends

    def begin_of(self, new: Collection[TopicPartition], end: Offsets) -> Offsets:
        return self.session.beginning_offsets(new)

    def plan(self, end: Offsets) -> Offsets:
        return end

    def readable(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        return start, end


class NoGroup(_AllPartitions):
    """No group: nothing is committed."""

    def __init__(self, options: SourceOptions) -> None:
        self.session = ClusterSession({**named_settings(options), **FIXED_SETTINGS})

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {}

    def commit_start(self, offsets: Offsets) -> None:
        pass

    def commit(self, durable: Offsets, *, wait: bool) -> None:
        pass

    def close(self) -> None:
        self.session.close()


class CommitOnlyGroup(_AllPartitions):
    """Commits under the group's name without joining it. Only a group without members accepts that."""

    session: GroupSession

    def __init__(self, options: SourceOptions) -> None:
        assert options.group_id is not None
        self.options, self.group_id = options, options.group_id
        settings = {**self._settings(options), **FIXED_SETTINGS}
        self.session = GroupSession(settings, f"kohort-spark-{self.group_id}")
        self._pending: CommitInFlight | None = None
        self._wanted: Offsets = {}
        self._committed: Offsets = {}

    def _settings(self, options: SourceOptions) -> dict[str, str]:
        return {**named_settings(options), "group.id": str(options.group_id)}

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        found = self.session.committed(partitions)
        return {partition: at.offset for partition, at in found.items() if at is not None}

    def commit_start(self, offsets: Offsets) -> None:
        if offsets:
            self.commit_now(offsets, self.session.config.default_api_timeout_ms / 1000)

    def commit_now(self, offsets: Offsets, timeout_s: float) -> None:
        """Waits until the commit is done, and for a rebalance to end that refuses it."""
        give_up_s = time.monotonic() + timeout_s
        while True:
            try:
                self.session.commit(offsets, max(0.0, give_up_s - time.monotonic()))
            except (CommitFailed, RebalanceInProgress):
                self.check()
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def commit(self, durable: Offsets, *, wait: bool) -> None:
        wanted = dict(durable)
        wait = wait or self.options.fail_on_commit_error
        self._settle(wait=wait)
        self._wanted = wanted
        if self._pending is not None or not wanted or wanted == self._committed:
            return
        self._pending = self.session.begin_commit(wanted)
        self._settle(wait=wait)

    def _settle(self, *, wait: bool, timeout_s: float | None = None) -> None:
        """Looks how the last commit went. One that failed is repeated by the next, unless it shall be an error."""
        pending = self._pending
        if pending is None:
            return
        if wait:
            pending.wait(timeout_s)
        if not pending.done:
            return
        self._pending = None
        if pending.error is None:
            self._committed = pending.offsets
            return
        if isinstance(pending.error, FencedInstanceId):
            raise taken_over(self.group_id) from pending.error
        log.warning(
            "group %s: offsets were not committed, that is tried again: %s", self.group_id, pending.error
        )
        if self.options.fail_on_commit_error:
            raise pending.error

    def _last_commit(self) -> None:
        try:
            self._settle(wait=True, timeout_s=STOP_TIMEOUT_S)
            if self._pending is None and self._wanted != self._committed:
                self._pending = self.session.begin_commit(self._wanted)
                self._settle(wait=True, timeout_s=STOP_TIMEOUT_S)
        except (KohortError, GroupTaken) as error:
            log.warning("group %s: the last commit failed: %s", self.group_id, error)

    def close(self) -> None:
        self._last_commit()
        self.session.close()


def named_settings(options: SourceOptions) -> dict[str, str]:
    """The settings of a session without a group; its client id is the user's, or that of Spark's connector."""
    name = options.kafka.get("client.id") or options.group_id_prefix
    return {**settings_without_group(options.kafka), "client.id": name}


def taken_over(group_id: str) -> GroupTaken:
    """The error of a query whose member was replaced by that of another query."""
    return GroupTaken(
        f"another query has taken over the group {group_id!r}, so this one ends: give each query its own "
        "kafka.group.id, or set groupMode=shared in both to share the partitions"
    )
