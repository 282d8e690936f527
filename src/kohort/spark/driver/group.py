"""What a streaming query is to its consumer group. The driver alone speaks for it; executors only read.

member   a static member that has all partitions to itself; the group and its lag show in every Kafka tool
assign   no member: commits offsets under the group's name
shared   a member among others: the group says which partitions this query reads
none     no group is named: nothing is committed

The checkpoint decides what is read, the group mirrors it: what is committed is durable in the checkpoint already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from kohort.client.administer.groups import GroupCalls
from kohort.client.core.operation import Operation
from kohort.client.core.requests import Requests
from kohort.client.errors import CommitFailed, FencedInstanceId, RebalanceInProgress
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.spark.driver.cluster import Cluster, settings_without_group
from kohort.spark.driver.offsets import Offsets
from kohort.spark.options import GroupMode, SourceOptions
from kohort.wire.errors import KohortError

log = logging.getLogger("kohort.spark.group")

STOP_TIMEOUT_S = 5.0
"""How long the end of a query may take: Spark does not wait for it."""


class GroupTaken(RuntimeError):
    """Another query, or other consumers, are in the group; the text says what to do."""


def join_group(options: SourceOptions) -> Group:
    """What the options ask for; nothing is sent yet."""
    from kohort.spark.driver.member import MemberGroup, SharedGroup

    kinds = {
        GroupMode.NONE: Group,
        GroupMode.ASSIGN: CommittingGroup,
        GroupMode.MEMBER: MemberGroup,
        GroupMode.SHARED: SharedGroup,
    }
    return kinds[options.group_mode](options)


class Group:
    """No group at all; and what the others have in common."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.cluster = Cluster(self._settings(options), options)

    def _settings(self, options: SourceOptions) -> dict[str, str]:
        name = options.kafka.get("client.id") or options.group_id_prefix
        return {**settings_without_group(options.kafka), "client.id": name}

    def enter(self, topics: Collection[str]) -> None:
        """Becomes what it is to be; again when the topics have changed. GroupTaken if that is not possible."""

    def check(self) -> None:
        """Raises what went wrong with the membership since."""

    def owned(self) -> frozenset[TopicPartition] | None:
        """What the group lets this query read; None: everything."""
        return None

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where the group has been, for those partitions where it has."""
        return {}

    def commit(self, offsets: Offsets, *, wait: bool) -> None:
        """Mirrors what is durable. Without `wait` it goes on by itself."""

    def commit_start(self, offsets: Offsets) -> None:
        """Returns when the group holds these offsets, where it had none before; raises if that cannot be."""

    def close(self) -> None:
        """Leaves in order, in bounded time."""
        self.cluster.close()


class CommittingGroup(Group):
    """Commits under the group's name without joining it. Only a group without members takes that."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        assert options.group_id is not None
        self.group_id = options.group_id
        self._pending: Operation[dict[TopicPartition, OffsetAndMetadata]] | None = None
        self._wanted: Offsets = {}
        self._done: Offsets = {}
        engine = self.cluster.engine
        requests = Requests(engine.out, self.cluster.config, engine.metadata, engine.jitter)
        engine.add(requests)
        self.calls = GroupCalls(requests, engine.metadata, engine.now_ms)
        engine.start_background(f"kohort-spark-{self.group_id}", everything=True)

    def _settings(self, options: SourceOptions) -> dict[str, str]:
        return {**super()._settings(options), "group.id": str(options.group_id)}

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        if not partitions:
            return {}
        calls = self.cluster.calls
        found = self.cluster.run(calls.committed(partitions, self.cluster.deadline()))
        return {partition: at.offset for partition, at in found.items() if at is not None}

    def commit(self, offsets: Offsets, *, wait: bool) -> None:
        wanted = dict(offsets)
        wait = wait or self.options.fail_on_commit_error
        self._settle(wait=wait)
        self._wanted = wanted
        if self._pending is not None or not wanted or wanted == self._done:
            return
        self._begin()
        self._settle(wait=wait)

    def commit_start(self, offsets: Offsets) -> None:
        if offsets:
            self.commit_now(offsets, self.cluster.deadline())

    def commit_now(self, offsets: Offsets, deadline_ms: int) -> None:
        """Waits until it is done; a rebalance in the middle is waited for too."""
        wanted: dict[tuple[str, int], int | OffsetAndMetadata] = dict(offsets.items())
        while True:
            try:
                self.cluster.run(self.cluster.calls.commit(wanted, deadline_ms), wakeable=False)
            except (CommitFailed, RebalanceInProgress):
                self.check()
                if self.cluster.engine.now_ms() >= deadline_ms:
                    raise
                time.sleep(0.05)
            else:
                return

    def _begin(self) -> None:
        engine = self.cluster.engine
        with engine.shielded():
            self._pending = self.cluster.core.commits.commit(
                {partition: OffsetAndMetadata(at) for partition, at in self._wanted.items()},
                engine.now_ms(),
                self.cluster.deadline(),
            )
            sent = self._wanted
            self._pending.on_done(lambda operation: self._note(operation.error, sent))
        engine.nudge()

    def _note(self, error: Exception | None, sent: Offsets) -> None:
        if error is None:
            self._done = sent

    def _settle(self, *, wait: bool, timeout_s: float | None = None) -> None:
        """Looks how the last commit went. What failed is tried again with the next one, unless it shall be an error."""
        pending = self._pending
        if pending is None:
            return
        if wait and not pending.done:
            self.cluster.engine.run(lambda: pending.done, self.cluster.deadline(timeout_s), wakeable=False)
        if not pending.done:
            return
        self._pending = None
        if pending.error is None:
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
            if self._pending is None and self._wanted != self._done:
                self._begin()
                self._settle(wait=True, timeout_s=STOP_TIMEOUT_S)
        except (KohortError, GroupTaken) as error:
            log.warning("group %s: the last commit failed: %s", self.group_id, error)

    def close(self) -> None:
        self._last_commit()
        self.cluster.close()


# --- words --------------------------------------------------------------------------------------------


def taken_over(group_id: str) -> GroupTaken:
    return GroupTaken(
        f"another query has taken over the group {group_id!r}, so this one ends: give each query its own "
        "kafka.group.id, or set groupMode=shared in both to share the partitions"
    )
