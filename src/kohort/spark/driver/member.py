"""Queries that are members of their group: alone in it, or among others.

A thread of the driver is the member: it joins, answers rebalances and keeps the heartbeat going while Spark works.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable

from kohort.client.admin_types import MemberDescription
from kohort.client.errors import FencedInstanceId, TimedOut, Wakeup
from kohort.client.types import TopicPartition
from kohort.spark.driver.commit_only import STOP_TIMEOUT_S, CommitOnlyGroup, GroupTaken, taken_over
from kohort.spark.driver.process_identity import process_lives, process_of, this_process
from kohort.spark.offsets import Offsets
from kohort.spark.options import ASSIGNORS, SourceOptions
from kohort.wire.errors import ErrorCode, KafkaError, KohortError

log = logging.getLogger("kohort.spark.group")

TAKEOVER_TIMEOUT_S = 5.0
"""How long a driver waits for one before it that is just leaving."""
SERVE_S = 1.0
"""How long the member's thread takes part in the group before it looks whether to end."""


class _Member(CommitOnlyGroup):
    """What members have in common: a thread that is the member, and what the group has assigned to it."""

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
        return {**settings, "client.id": f"{settings['client.id']}@{this_process()}"}

    def enter(self, topics: Collection[str]) -> None:
        if frozenset(topics) == self._topics or not topics:
            return
        first = not self._topics
        if first:
            self._before_joining()
        self._topics = frozenset(topics)
        self.session.join(topics, self._on_assigned, self._on_revoked, self._on_lost)
        if first:
            self._thread = threading.Thread(
                target=self._serve, name=f"kohort-member-{self.group_id}", daemon=True
            )
            self._thread.start()
            self._wait_for_assignment()

    def _before_joining(self) -> None:
        """Raises if this query must not join the group."""

    def _wait_for_assignment(self) -> None:
        timeout_s = self.session.config.default_api_timeout_ms / 1000
        with self._changed:
            self._changed.wait_for(lambda: self._owned is not None or self._error is not None, timeout_s)
        self.check()
        if self._owned is None:
            state = self.session.membership()
            raise TimedOut(f"joining the group {self.group_id} took more than {timeout_s:.0f} s: {state}")

    def check(self) -> None:
        error = self._error
        if isinstance(error, FencedInstanceId):
            raise taken_over(self.group_id) from error
        if error is not None:
            raise error

    # --- the thread that is the member ------------------------------------------------------------

    def _serve(self) -> None:
        """Does heartbeats, rebalances and callbacks. Nothing is fetched here: the executors do that."""
        while not self._stopping:
            try:
                self.session.serve(SERVE_S)
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
        self.session.pause(partitions)
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
        self.session.close()

    def _end_thread(self) -> None:
        """Ends the thread before the member leaves, so that a heartbeat that is refused then has no consequence."""
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self.session.wakeup()
            self._thread.join(STOP_TIMEOUT_S)

    def _leave(self) -> None:
        """Takes the member out of the group by name, as a static one has to be. A fenced one is out already."""
        if self._thread is not None and not isinstance(self._error, FencedInstanceId):
            self.session.leave("the query was stopped", STOP_TIMEOUT_S)


class SoleMember(_Member):
    """The only member, with a static identity, so that the next driver replaces at once one that was killed."""

    def _settings(self, options: SourceOptions) -> dict[str, str]:
        instance = options.kafka.get("group.instance.id") or f"kohort-spark-{options.group_id}"
        return {**super()._settings(options), "group.instance.id": instance}

    def _before_joining(self) -> None:
        """Waits until nobody else is in the group, but for a dead member of our name, which joining replaces.

        GroupTaken if that does not come to pass: a member of our name lives, or there are other consumers.
        """
        give_up = time.monotonic() + TAKEOVER_TIMEOUT_S
        while True:
            members = self.session.describe().members
            others = [member for member in members if not self._is_replaceable(member)]
            if not others:
                self._remove_dead(members)
                return
            if time.monotonic() > give_up:
                raise GroupTaken(_who(self.group_id, others, self.session.config.group_instance_id))
            time.sleep(0.1)

    def _remove_dead(self, members: Iterable[MemberDescription]) -> None:
        """Removes the dead member of our name where joining does not replace it: with the consumer protocol."""
        if any(member.protocol == "consumer" for member in members):
            instance = self.session.config.group_instance_id or ""
            try:
                self.session.remove_instance(instance, "its process is dead", STOP_TIMEOUT_S)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:  # else its session has just ended
                    raise

    def _is_replaceable(self, member: MemberDescription) -> bool:
        if member.group_instance_id != self.session.config.group_instance_id:
            return False
        return not process_lives(process_of(member.client_id))


class SharedMember(_Member):
    """One of several members: reads what it is assigned, and hands partitions over when their batch is durable."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._planned: Offsets = {}
        self._durable: Offsets = {}
        self._gained: set[TopicPartition] = set()

    def _settings(self, options: SourceOptions) -> dict[str, str]:
        own = ("group.instance.id", ASSIGNORS)
        given = {name: value for name, value in options.kafka.items() if name in own}
        return {**super()._settings(options), **given}

    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the group has assigned to this query."""
        with self._changed:
            return self._owned or frozenset()

    def _holdings(self) -> tuple[frozenset[TopicPartition], frozenset[TopicPartition]]:
        """What is owned, and what of it was gained and not begun yet, at one moment.

        A rebalance between two looks would show partitions twice or never.
        """
        with self._changed:
            return self._owned or frozenset(), frozenset(self._gained)

    def claim(self, start: Offsets, ends: Offsets) -> Offsets:
        """Goes on with what is ours; what we gained begins, with a step of no records, where the group has been.

        A partition that the group has read further than the checkpoint says leaves the offsets first and comes back
        with the next step: so a batch that is planned again reads the same.
        """
        owned, came = self._holdings()
        gained = [p for p in ends if p in owned and (p in came or p not in start)]
        committed = self.committed(gained)
        missing = self.session.beginning_offsets([p for p in gained if p not in committed])
        ours = {partition: at for partition, at in ends.items() if partition in owned and partition in start}
        for partition in gained:
            at = committed[partition] if partition in committed else missing[partition]
            if partition not in start:
                ours[partition] = at
                self._begin(partition)
            elif at > start[partition]:
                ours.pop(partition, None)
            else:
                self._begin(partition)
        return ours

    def _begin(self, partition: TopicPartition) -> None:
        with self._changed:
            self._gained.discard(partition)

    def begin_of(self, new: Collection[TopicPartition], end: Offsets) -> Offsets:
        """Where `claim` has put them."""
        return {partition: end[partition] for partition in new}

    def plan(self, end: Offsets) -> Offsets:
        """Leaves out what was taken away meanwhile."""
        with self._changed:
            owned = self._owned or frozenset()
            self._planned = {partition: at for partition, at in end.items() if partition in owned}
            return dict(self._planned)

    def readable(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """What we gained is read from the next step on; what others have read meanwhile is done."""
        ours = [p for p in end if p in start and end[p] >= start[p]]
        return {p: start[p] for p in ours}, {p: end[p] for p in ours}

    def commit(self, durable: Offsets, *, wait: bool) -> None:
        """Commits only what this query has begun: elsewhere the group may be further than an old checkpoint."""
        with self._changed:
            self._durable = dict(durable)
            self._changed.notify_all()
        owned, gained = self._holdings()
        super().commit({p: at for p, at in durable.items() if p in owned - gained}, wait=wait)

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._gained |= set(partitions)  # before they are owned, and so before `claim` can see them
        super()._on_assigned(partitions)

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        """Waits until the batch under way is durable, and commits it, before another member goes on from there."""
        self._give_up(partitions)
        patience_s = 0.8 * self.session.config.max_poll_interval_ms / 1000
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
            self.commit_now(offsets, STOP_TIMEOUT_S)
        except KohortError as error:
            log.warning("group %s: %s go without their last commit: %s", self.group_id, list(offsets), error)


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
