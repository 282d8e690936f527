"""The membership of one consumer in a share group: joins, stays and leaves by heartbeats. Sans-IO.

The coordinator alone assigns partitions, and there is nothing to revoke: an assignment holds at once, and what is not
in it any more is not read any more. Records that were acquired stay acquired, whoever the partition is assigned to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from functools import partial

from kohort.client.config import ShareConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import Cluster
from kohort.client.core.effects import Answer, Failure, Lane, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.refusals import code_name, seconds
from kohort.client.share.acknowledgements import TopicIdPartition
from kohort.client.share.share_metrics import ShareGroupMetrics
from kohort.client.share.share_words import heartbeat_failed, heartbeat_refused
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

log = logging.getLogger("kohort.client.share")

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
FIRST_INTERVAL_MS = 5_000
"""Between heartbeats before the coordinator has named an interval."""
SOON_MS, MOST_SOON = 100, 5
"""A member without partitions sends so many heartbeats sooner, each after twice the time of the one before: the
partitions of a new group are initialized after the first heartbeat, and assigned in answer to a later one."""

_FIND_AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_JOIN_AGAIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ShareMemberState(Enum):
    """Where a consumer stands with its share group."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    OVERDUE = (
        "overdue"  # it has left, because poll was not called for max.poll.interval.ms; the next poll joins
    )
    FAILED = "failed"  # poll raises why; the next poll joins
    LEAVING = "leaving"


class ShareMembership:
    """The part that sends heartbeats. `member_id` is the client's own, and stays the same for its whole life."""

    def __init__(
        self,
        out: Outbox,
        config: ShareConsumerConfig,
        coordinator: GroupCoordinator,
        metadata: Metadata,
        member_id: str,
        jitter: Jitter,
    ) -> None:
        self.member_id = member_id
        self.state = ShareMemberState.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.topics: frozenset[str] = frozenset()
        self.assignment: tuple[TopicIdPartition, ...] = ()
        """What the coordinator has assigned, of the topics whose names are known."""
        self.metrics = ShareGroupMetrics(config.metric_window())
        self._out, self._config, self._coordinator, self._metadata = out, config, coordinator, metadata
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._target: dict[bytes, tuple[int, ...]] = {}
        self._named_by = -1  # the version of the cluster that gave the topics of the target their names
        self._said_topics: frozenset[str] | None = (
            None  # what the coordinator was told; None: it must be told
        )
        self._attempt = 0
        self._asked = False
        self._next_ms = 0
        self._interval_ms = FIRST_INTERVAL_MS
        self._failures = 0
        self._soon = 0  # heartbeats that were sent sooner since it joined
        self._found = 0  # how often a coordinator had been found when the last heartbeat was sent
        self._polled_ms = 0
        self._in_poll = False
        self._error: KohortError | None = None
        self._left: Operation[None] | None = None

    def __repr__(self) -> str:
        assigned = ", ".join(map(str, self.assignment)) or "nothing"
        return (
            f"<membership in share group {self._config.group_id}: {self.state.value}, member {self.member_id}, "
            f"epoch {self.epoch}, assigned {assigned}>"
        )

    # --- commands ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> None:
        """Wants these topics from now on; the coordinator is told with the next heartbeat, which is due at once."""
        self.topics = frozenset(topics)
        self._polled_ms = now_ms
        if self.state in (ShareMemberState.UNSUBSCRIBED, ShareMemberState.FAILED, ShareMemberState.OVERDUE):
            self._join(now_ms)
        elif self.topics != self._said_topics and not self._asked:
            self._next_ms = now_ms

    def poll(self, now_ms: int) -> None:
        """The user is in poll, until `poll_ended`."""
        self._polled_ms, self._in_poll = now_ms, True
        if self.state in (ShareMemberState.OVERDUE, ShareMemberState.FAILED):
            self._join(max(now_ms, self._next_ms))

    def poll_ended(self, now_ms: int) -> None:
        """The user works: max.poll.interval.ms counts from now."""
        self._polled_ms, self._in_poll = now_ms, False

    def leave(self, now_ms: int) -> Operation[None]:
        """Leaves the group. Done when the coordinator has answered; the caller bounds the wait."""
        was = self.state
        self._forget_assignment()
        self.topics, self._said_topics, self._error = frozenset(), None, None
        operation: Operation[None] = Operation()
        node_id = self._coordinator.node_id
        if (
            was not in (ShareMemberState.JOINING, ShareMemberState.STABLE)
            or node_id is None
            or (self.epoch == JOIN_EPOCH and not self._asked)
        ):
            self.state, self.epoch = ShareMemberState.UNSUBSCRIBED, JOIN_EPOCH
            self._attempt += 1
            self._asked = False
            operation.finish(None)
            return operation
        self.state, self._left = ShareMemberState.LEAVING, operation
        self._send(node_id, LEAVE_EPOCH, now_ms)
        log.info("share group %s: member %s leaves", self._config.group_id, self.member_id)
        return operation

    @property
    def has_error(self) -> bool:
        return self._error is not None

    def take_error(self) -> KohortError | None:
        error, self._error = self._error, None
        return error

    # --- the part -----------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        if self._in_poll:
            self._polled_ms = now_ms
        self._name_topics(self._metadata.cluster)
        self._stay(now_ms)

    def tick_background(self, now_ms: int) -> None:
        """While the user works: heartbeats, and leaving when poll is overdue."""
        self._in_poll = False
        self._stay(now_ms)

    def next_deadline_ms(self) -> int | None:
        if self.state not in (ShareMemberState.JOINING, ShareMemberState.STABLE):
            return None
        due = [] if self._in_poll else [self._poll_deadline_ms]
        if not self._asked and self._coordinator.node_id is not None:
            due.append(self._next_ms)
        return min(due, default=None)

    @property
    def _poll_deadline_ms(self) -> int:
        return self._polled_ms + self._config.max_poll_interval_ms

    def _stay(self, now_ms: int) -> None:
        if self.state not in (ShareMemberState.JOINING, ShareMemberState.STABLE):
            return
        if not self._in_poll and now_ms >= self._poll_deadline_ms:
            self._leave_overdue(now_ms)
            return
        if self._asked:
            return
        node_id = self._coordinator.ensure(now_ms, Lane.GROUP)
        if node_id is None:
            if self._coordinator.error is not None:
                self._fail(self._coordinator.error, now_ms)
            return
        if now_ms >= self._next_ms or self._found != self._coordinator.changes:
            self._send(node_id, self.epoch, now_ms)

    def _leave_overdue(self, now_ms: int) -> None:
        log.warning(
            "share group %s: poll was not called for %s (max.poll.interval.ms), so this consumer leaves; the next poll "
            "joins again. Handle fewer records per poll (max.poll.records) or raise max.poll.interval.ms",
            self._config.group_id,
            seconds(self._config.max_poll_interval_ms),
        )
        if self._coordinator.node_id is not None and (self.epoch != JOIN_EPOCH or self._asked):
            self._send(self._coordinator.node_id, LEAVE_EPOCH, now_ms)
        self._attempt += 1  # the answer changes nothing
        self._asked, self._next_ms = False, now_ms
        self.state, self.epoch = ShareMemberState.OVERDUE, JOIN_EPOCH
        self._forget_assignment()

    def _join(self, at_ms: int) -> None:
        self._attempt += 1
        self._asked, self._soon = False, 0
        self.state, self.epoch, self._said_topics = ShareMemberState.JOINING, JOIN_EPOCH, None
        self._next_ms = at_ms

    # --- heartbeats ---------------------------------------------------------------------------------------

    def _send(self, node_id: int, epoch: int, now_ms: int) -> None:
        self._attempt += 1
        self._asked, self._found = True, self._coordinator.changes
        names = None if epoch == LEAVE_EPOCH or self._said_topics == self.topics else sorted(self.topics)
        rack = self._config.client_rack or None if epoch == JOIN_EPOCH else None
        request = ShareGroupHeartbeatRequest(self._config.group_id or "", self.member_id, epoch, rack, names)
        self._said_topics = self.topics
        self.metrics.sent(now_ms)
        self._out.append(
            Send(
                node_id,
                ShareGroupHeartbeatRequest.API_KEY,
                lambda version: request,
                "share.leave" if epoch == LEAVE_EPOCH else "share.heartbeat",
                self._config.request_timeout_ms,
                Lane.GROUP,
                on_answer=partial(self._answered, self._attempt),
            )
        )

    def _answered(self, attempt: int, answer: Answer, now_ms: int) -> None:
        if attempt != self._attempt:
            return
        self._asked = False
        if self.state is ShareMemberState.LEAVING:
            self._has_left()
        elif answer.failure is not None:
            self._not_answered(answer.failure, now_ms)
        else:
            self.metrics.answered(now_ms)
            response: ShareGroupHeartbeatResponse = answer.response
            if response.error_code == ErrorCode.NONE:
                self._stays(response, now_ms)
            else:
                self._refused(response, now_ms)

    def _has_left(self) -> None:
        self.state, self.epoch = ShareMemberState.UNSUBSCRIBED, JOIN_EPOCH
        left, self._left = self._left, None
        assert left is not None
        left.finish(None)

    def _stays(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        self._coordinator.worked()
        self._failures = 0
        if self.state is ShareMemberState.JOINING:
            log.info(
                "share group %s: joined as %s in epoch %d",
                self._config.group_id,
                self.member_id,
                response.member_epoch,
            )
        self.state, self.epoch = ShareMemberState.STABLE, response.member_epoch
        self._interval_ms = max(1, response.heartbeat_interval_ms)
        if response.assignment is not None:
            self._assigned(response.assignment, now_ms)
        wait_ms = self._interval_ms
        if not self._target and self._soon < MOST_SOON:
            wait_ms = min(wait_ms, SOON_MS << self._soon)
            self._soon += 1
        self._next_ms = now_ms if self._said_topics != self.topics else now_ms + wait_ms

    def _assigned(self, assignment: Assignment, now_ms: int) -> None:
        target = {each.topic_id: tuple(sorted(each.partitions)) for each in assignment.topic_partitions}
        if target == self._target:
            return
        self._target, self._named_by = target, -1
        self.metrics.rebalances.record(1, now_ms)
        self._name_topics(self._metadata.cluster)
        log.info(
            "share group %s: reads %s in epoch %d",
            self._config.group_id,
            ", ".join(map(str, self.assignment)) or "nothing",
            self.epoch,
        )

    def _name_topics(self, cluster: Cluster) -> None:
        """Looks up the names of assigned topics; a topic that is not known yet is read when metadata names it."""
        if self._named_by == cluster.version:
            return
        self._named_by = cluster.version
        names = {info.topic_id: name for name, info in cluster.topics.items()}
        self.assignment = tuple(
            TopicIdPartition(topic_id, names[topic_id], partition)
            for topic_id, partitions in self._target.items()
            if topic_id in names
            for partition in partitions
        )
        if any(topic_id not in names for topic_id in self._target):
            self._metadata.request_update("a topic was assigned whose id is not known yet")

    def _forget_assignment(self) -> None:
        self._target, self.assignment, self._named_by = {}, (), -1

    # --- errors -------------------------------------------------------------------------------------------

    def _not_answered(self, failure: Failure, now_ms: int) -> None:
        self._said_topics = None
        if not failure.is_retriable:
            self._fail(heartbeat_failed(failure, self._config), now_ms)
            return
        self._later(now_ms)
        self._coordinator.forget(f"ShareGroupHeartbeat {failure.kind.value}: {failure.message}", now_ms)

    def _refused(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        code = response.error_code
        self._said_topics = None
        if code in _FIND_AGAIN:
            self._coordinator.forget(code_name(code), now_ms)
            self._next_ms = now_ms
        elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._later(now_ms)
        elif code in _JOIN_AGAIN or (code == ErrorCode.GROUP_ID_NOT_FOUND and self.epoch != JOIN_EPOCH):
            log.info(
                "share group %s: member %s is not in epoch %d any more (%s); it joins again",
                self._config.group_id,
                self.member_id,
                self.epoch,
                code_name(code),
            )
            again = self.state is ShareMemberState.JOINING
            self._forget_assignment()
            self._join(now_ms)
            if again:
                self._later(now_ms)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._error = heartbeat_refused(code, response.error_message, self._config)
            self._later(now_ms)
        else:
            self._fail(heartbeat_refused(code, response.error_message, self._config), now_ms)

    def _later(self, now_ms: int) -> None:
        self._failures += 1
        self._next_ms = now_ms + self._backoff.after(self._failures)

    def _fail(self, error: KohortError, now_ms: int) -> None:
        """What asking again does not cure: poll raises it, and the poll after that joins again."""
        self._later(now_ms)
        self.state, self.epoch, self._error = ShareMemberState.FAILED, JOIN_EPOCH, error
        self._attempt += 1
        self._forget_assignment()
