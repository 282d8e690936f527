"""Queries that are members of their group: alone in it, or among others.

A thread of the driver is the member: it joins, answers rebalances and keeps the heartbeat going while Spark works.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable

from kohort.client.admin_types import MemberDescription
from kohort.client.consume.calls import RebalanceListener
from kohort.client.core.requests import GroupOf
from kohort.client.errors import FencedInstanceId, TimedOut, Wakeup
from kohort.client.types import TopicPartition
from kohort.spark.driver.cluster import ASSIGNORS
from kohort.spark.driver.group import STOP_TIMEOUT_S, CommittingGroup, GroupTaken, taken_over
from kohort.spark.driver.identity import process_lives, this_process
from kohort.spark.driver.offsets import Offsets
from kohort.spark.options import SourceOptions
from kohort.wire.errors import KohortError
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

log = logging.getLogger("kohort.spark.group")

TAKEOVER_TIMEOUT_S = 5.0
"""How long a driver waits for one before it that is just leaving."""


class MemberGroup(CommittingGroup):
    """A member with an identity of its own, so that a driver that was killed is replaced at once by the next one."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._topics: frozenset[str] = frozenset()
        self._error: Exception | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._owned: frozenset[TopicPartition] | None = None
        self._thread: threading.Thread | None = None

    def _settings(self, options: SourceOptions) -> dict[str, str]:
        settings = super()._settings(options)
        instance = options.kafka.get("group.instance.id") or f"kohort-spark-{options.group_id}"
        return {
            **settings,
            "group.instance.id": instance,
            "client.id": f"{settings['client.id']}@{this_process()}",
        }

    def enter(self, topics: Collection[str]) -> None:
        if frozenset(topics) == self._topics or not topics:
            return
        first = not self._topics
        if first:
            self._look_who_is_there()
        self._topics = frozenset(topics)
        listener = RebalanceListener(self._on_assigned, self._on_revoked, self._on_lost)
        self.cluster.run(self.cluster.calls.subscribe(sorted(topics), listener))
        if first:
            self._thread = threading.Thread(
                target=self._poll_on, name=f"kohort-member-{self.group_id}", daemon=True
            )
            self._thread.start()
            self._wait_for_assignment()

    def _wait_for_assignment(self) -> None:
        timeout_s = self.cluster.config.default_api_timeout_ms / 1000
        with self._changed:
            self._changed.wait_for(lambda: self._owned is not None or self._error is not None, timeout_s)
        self.check()
        if self._owned is None:
            state = self.cluster.core.membership
            raise TimedOut(f"joining the group {self.group_id} took more than {timeout_s:.0f} s: {state!r}")

    def check(self) -> None:
        error = self._error
        if isinstance(error, FencedInstanceId):
            raise taken_over(self.group_id) from error
        if error is not None:
            raise error

    # --- alone in the group -----------------------------------------------------------------------

    def _look_who_is_there(self) -> None:
        """A member of our name that is dead is replaced; one that lives, and anybody else, is a reason to stop."""
        give_up = time.monotonic() + TAKEOVER_TIMEOUT_S
        while True:
            others = [member for member in self._members() if not self._is_replaceable(member)]
            if not others:
                return
            if time.monotonic() > give_up:
                raise GroupTaken(_who(self.group_id, others, self.cluster.config.group_instance_id))
            time.sleep(0.1)

    def _members(self) -> tuple[MemberDescription, ...]:
        described = self.cluster.run(self.calls.describe_groups([self.group_id], self.cluster.deadline()))
        return described[self.group_id].members

    def _is_replaceable(self, member: MemberDescription) -> bool:
        if member.group_instance_id != self.cluster.config.group_instance_id:
            return False
        return not process_lives(process_of(member))

    # --- the thread that is the member ------------------------------------------------------------

    def _poll_on(self) -> None:
        """Heartbeats, rebalances, callbacks. Nothing is fetched here: the executors do that."""
        cluster = self.cluster
        while not self._stopping:
            try:
                cluster.run(cluster.calls.poll(cluster.deadline(1.0), lambda now_ms: None, None))
            except Wakeup:
                continue
            except Exception as error:
                if not self._stopping:
                    log.error("group %s: %s", self.group_id, error)
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.cluster.run(self.cluster.calls.pause(partitions, True))
        with self._changed:
            self._owned = (self._owned or frozenset()) | frozenset(partitions)
            self._changed.notify_all()
        log.info("group %s: assigned %s", self.group_id, ", ".join(map(str, partitions)) or "nothing")

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._give_up(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        self._give_up(partitions)
        log.warning("group %s: the membership was lost; joining again", self.group_id)

    def _give_up(self, partitions: Iterable[TopicPartition]) -> None:
        with self._changed:
            self._owned = (self._owned or frozenset()) - frozenset(partitions)
            self._changed.notify_all()

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        self._last_commit()
        self._end_thread()
        try:
            self._leave()
        except KohortError as error:
            log.warning("group %s: could not leave in order: %s", self.group_id, error)
        self.cluster.engine.close()

    def _end_thread(self) -> None:
        """Before the farewell, so that what a heartbeat hears of it is of no consequence."""
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self.cluster.engine.wakeup()
            self._thread.join(STOP_TIMEOUT_S)

    def _leave(self) -> None:
        """A static member stays in its group unless it is taken out by name; a fenced one has nothing to say."""
        membership = self.cluster.core.membership
        if self._thread is None or membership is None or isinstance(self._error, FencedInstanceId):
            return
        me = membership.group_metadata()
        if not me.member_id:
            return
        request = LeaveGroupRequest(
            self.group_id,
            me.member_id,
            members=[MemberIdentity(me.member_id, me.group_instance_id, "the query was stopped")],
        )
        deadline_ms = self.cluster.deadline(STOP_TIMEOUT_S)
        self.cluster.run(self.calls.ask(request, GroupOf(self.group_id), deadline_ms), wakeable=False)


class SharedGroup(MemberGroup):
    """One of several members: reads what the group gives it, and hands over only what is durable, if there is time."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._planned: Offsets = {}
        self._durable: Offsets = {}
        self._gained: set[TopicPartition] = set()

    def _settings(self, options: SourceOptions) -> dict[str, str]:
        settings = super()._settings(options)
        if "group.instance.id" not in options.kafka:
            del settings["group.instance.id"]
        if ASSIGNORS in options.kafka:
            settings[ASSIGNORS] = options.kafka[ASSIGNORS]
        return settings

    def _look_who_is_there(self) -> None:
        pass

    def owned(self) -> frozenset[TopicPartition] | None:
        with self._changed:
            return self._owned or frozenset()

    def gained(self) -> frozenset[TopicPartition]:
        """Partitions that came to this query and were not begun yet: there the group's offset counts."""
        with self._changed:
            return frozenset(self._gained)

    def holdings(self) -> tuple[frozenset[TopicPartition], frozenset[TopicPartition]]:
        """`owned` and `gained` of one moment: a rebalance between two looks would tell of partitions twice or never."""
        with self._changed:
            return self._owned or frozenset(), frozenset(self._gained)

    def began(self, partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            self._gained -= set(partitions)

    def plan(self, end: Offsets) -> Offsets:
        """A batch goes up to here. What was taken away meanwhile is left out."""
        with self._changed:
            owned = self._owned or frozenset()
            self._planned = {partition: at for partition, at in end.items() if partition in owned}
            return dict(self._planned)

    def is_durable(self, offsets: Offsets) -> None:
        with self._changed:
            self._durable = dict(offsets)
            self._changed.notify_all()

    def commit(self, offsets: Offsets, *, wait: bool) -> None:
        """Only of what this query has begun: elsewhere the group may be further than an old checkpoint."""
        begun = (self.owned() or frozenset()) - self.gained()
        super().commit({p: at for p, at in offsets.items() if p in begun}, wait=wait)

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._gained |= set(partitions)  # before they are owned, and so before anybody looks for them
        super()._on_assigned(partitions)

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        """Waits until the batch under way is durable, and commits it, before somebody else goes on from there."""
        self._give_up(partitions)
        patience_s = 0.8 * self.cluster.config.max_poll_interval_ms / 1000
        with self._changed:
            self._gained -= set(partitions)
            self._changed.wait_for(lambda: self._stopping or not self._under_way(partitions), patience_s)
            done = {p: self._durable[p] for p in partitions if p in self._durable and p in self._planned}
            late = self._under_way(partitions)
            self._planned = {p: at for p, at in self._planned.items() if p not in partitions}
        if late:
            log.warning("group %s: %s go to another member in the middle of a batch", self.group_id, late)
        if done:
            self._hand_over(done)

    def _under_way(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return [p for p in partitions if p in self._planned and self._durable.get(p) != self._planned[p]]

    def _hand_over(self, offsets: Offsets) -> None:
        try:
            self.commit_now(offsets, self.cluster.deadline(STOP_TIMEOUT_S))
        except KohortError as error:
            log.warning("group %s: %s go without their last commit: %s", self.group_id, list(offsets), error)


def process_of(member: MemberDescription) -> str:
    """The name of the process that a query's member lives in; of anybody else's member no process has the name."""
    return member.client_id.rpartition("@")[2]


def _who(group_id: str, others: list[MemberDescription], instance: str | None) -> str:
    names = ", ".join(f"{member.client_id} on {member.host}" for member in others)
    if any(member.group_instance_id == instance for member in others):
        return (
            f"the group {group_id!r} already has a query ({names}): a second one would commit over its offsets. Stop "
            "it, or give each query its own kafka.group.id, or set groupMode=shared in both to share the partitions"
        )
    return (
        f"the group {group_id!r} has other members ({names}), and groupMode=member reads all partitions alone: use "
        "another kafka.group.id, or groupMode=shared to share the partitions with them"
    )
