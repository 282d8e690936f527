"""Commits offsets: for the user, who may wait for it or not, and for the consumer itself (`enable.auto.commit`).

All commits go through one queue, which keeps their order. Asynchronous commits leave at once, one behind the other, and
are never repeated, so that an older offset cannot overwrite a newer one. A commit with `retry` leaves when all before
it are done, and is repeated until it is answered for good or its time is up; those after it wait.

The consumer's own commits hold only what counts as processed: records that an earlier `poll` returned, once the user
has called `poll` again. Look-ups of what is committed are in committed.py; what errors mean is in commit_errors.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.effects import Answer, FailureKind, Lane, Outbox, Send
from kohort.client.core.operation import Operation
from kohort.client.errors import FencedInstanceId, RetriableCommitFailed, TimedOut, error_for_failure
from kohort.client.offsets.commit_errors import (
    CommitVerdict,
    commit_failed,
    fenced,
    how_large,
    judge,
    not_a_member,
    not_alone,
    rebalance_in_progress,
)
from kohort.client.offsets.commit_metrics import CommitMetrics
from kohort.client.offsets.committed import (
    ClusterSource,
    Committed,
    CommittedOffsets,
    CoordinatorSource,
    forget,
    no_coordinator,
)
from kohort.client.offsets.offset_requests import (
    BY_NAME,
    Offsets,
    as_partition,
    commit_errors,
    ids_of,
    names,
    names_by_id,
    offset_commit,
)
from kohort.client.offsets.subscription import Mode, SubscriptionState
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.offset_commit import OffsetCommitRequest

log = logging.getLogger("kohort.client.commits")

CommitCallback = Callable[[Offsets, Exception | None], Any]
WhenSettled = Callable[[Operation[Offsets], int], None]


class CommittingMember(Protocol):
    """What is used of a membership."""

    @property
    def may_commit(self) -> bool: ...
    @property
    def rebalance_in_progress(self) -> bool: ...
    @property
    def may_commit_itself(self) -> bool: ...
    @property
    def is_fenced(self) -> bool: ...
    @property
    def left_because(self) -> str | None: ...
    def group_metadata(self) -> GroupMetadata: ...
    def continues(self, earlier: GroupMetadata) -> bool: ...
    def fetches_as(self) -> GroupMetadata | None: ...
    def request_rejoin(self, reason: str) -> None: ...
    def reset_generation(self, reason: str, lost: bool = True, *, keep_member_id: bool = False) -> None: ...


@dataclass(slots=True, eq=False)
class QueuedCommit:
    """A commit in the queue."""

    offsets: Offsets
    operation: Operation[Offsets]
    retry: bool
    as_member: bool
    """Whether the group assigns the partitions; else anybody may commit, with generation -1."""
    settled: WhenSettled
    """Called when this commit and all before it are done."""
    gives_up_on_unknown_topics: bool = False
    in_flight: bool = False
    sent_as: GroupMetadata | None = None
    """The identity it was sent with. It is not sent again after another join: in a later generation its partitions may
    belong to another member, who has read further."""
    sent_ms: int = 0
    failures: int = 0
    retry_at_ms: int = 0
    obstacle: str = ""


def _log_warning(now_ms: int, text: str) -> None:
    log.warning("%s", text)


class Commits:
    """The part that commits offsets and looks up what is committed; see the module's docstring."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        coordinator: CoordinatorSource,
        subscription: SubscriptionState,
        metadata: ClusterSource,
        membership: CommittingMember | None = None,
        *,
        jitter: Jitter,
        warn: Callable[[int, str], None] = _log_warning,
    ) -> None:
        """`warn` gets the time and the text of a warning: a consumer counts what it says of each node."""
        self._out, self._config, self._coordinator, self._metadata = out, config, coordinator, metadata
        self._subscription, self._membership, self._warn = subscription, membership, warn
        self.fenced: FencedInstanceId | None = None
        """Set for good when an asynchronous commit found another consumer with this group.instance.id."""
        self._on_commit: Callable[[Offsets], None] | None = None
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self.metrics = CommitMetrics(config.metric_window(), subscription)
        self._queue: deque[QueuedCommit] = deque()
        self._committed = CommittedOffsets(
            out,
            config,
            coordinator,
            metadata,
            jitter,
            self.lane_of_look_ups,
            membership.fetches_as if membership is not None else lambda: None,
        )
        self._callbacks: deque[Callable[[], None]] = deque()
        self._processed: Offsets = {}
        self._auto: Operation[Offsets] | None = None
        self._auto_at_ms: int | None = None
        self._before_join: Operation[Offsets] | None = None
        self._joins_as: GroupMetadata | None = None
        """The identity that wants to join again. If a join is given up, its commit is not that of the next one."""

    def call_on_commit(self, function: Callable[[Offsets], None]) -> None:
        """Has a function called with every commit that succeeded, by whoever takes the callbacks."""
        self._on_commit = function

    # --- the user's commits ---------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        deadline_ms: int | None,
        retry: bool = True,
    ) -> Operation[Offsets]:
        """Begins a commit that is done when it and all before it are; without offsets it only waits for those."""
        return self._add(offsets, deadline_ms, self._intercept, retry=retry)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        callback: CommitCallback | None = None,
    ) -> Operation[Offsets]:
        """Begins a commit that is tried once.

        It waits for a coordinator to be found, but no longer than a request may take.
        """
        settled = partial(self._tell, dict(offsets), callback)
        return self._add(offsets, now_ms + self._config.request_timeout_ms, settled, retry=False)

    def committed(
        self, partitions: Iterable[TopicPartition], now_ms: int, deadline_ms: int | None
    ) -> Operation[Committed]:
        """Looks up what is committed; None for a partition without a commit."""
        return self._committed.look_up(partitions, deadline_ms)

    @property
    def has_callbacks(self) -> bool:
        return bool(self._callbacks)

    def take_callback(self) -> Callable[[], None] | None:
        """Returns the next callback for the user's thread, in the order of the commits."""
        return self._callbacks.popleft() if self._callbacks else None

    @property
    def is_idle(self) -> bool:
        """Whether no commit is under way."""
        return not self._queue

    # --- the consumer's own commits -------------------------------------------------------------------

    def poll(self, now_ms: int) -> None:
        """The user has called poll: what was returned so far is processed now. Commits it if that is due."""
        if not self._commits_itself:
            return
        self._processed = self._subscription.consumed()
        if self._auto_at_ms is None:
            self._auto_at_ms = now_ms + self._config.auto_commit_interval_ms
        if now_ms >= self._auto_at_ms and self._may_commit_itself and not self._is_committing_itself:
            self._auto_at_ms = now_ms + self._config.auto_commit_interval_ms
            self._auto_commit(self._processed, now_ms)

    def next_poll_ms(self) -> int | None:
        """Returns when `poll` has something to do again, for a poll that waits long."""
        due = self._commits_itself and self._may_commit_itself and not self._is_committing_itself
        return self._auto_at_ms if due else None

    def commit_before_change(self, now_ms: int) -> Operation[Offsets] | None:
        """Commits before assign() or unsubscribe() give the partitions up: no rebalance will do it."""
        if not self._commits_itself:
            return None
        return self._auto_commit(self._subscription.consumed(), now_ms)

    def before_join(self, now_ms: int) -> bool:
        """Commits what is processed before the partitions may move; returns whether the join may go on.

        It is called again until it returns True: there is nothing to commit, the commit is done or has failed, or
        `max.poll.interval.ms` has passed.
        """
        assert self._membership is not None
        if self._joins_as is None or not self._membership.continues(self._joins_as):
            self._before_join = None
        if self._before_join is None:
            self._joins_as = self._membership.group_metadata()
            offsets = self._processed_and_assigned()
            if not self._commits_itself or not offsets:
                return True
            deadline_ms = now_ms + self._config.max_poll_interval_ms
            # A topic that was deleted must not keep the whole group waiting: such a commit is not repeated.
            self._before_join = self._add(offsets, deadline_ms, self._intercept, retry=True, before_join=True)
            self._tick_queue(now_ms)
        operation = self._before_join
        if not operation.done:
            return False
        self._before_join = None
        if operation.error is not None:
            self._warn(
                now_ms,
                f"the commit before the rebalance failed: {operation.error}; records may be processed twice",
            )
        return True

    def commit_on_close(self, now_ms: int, deadline_ms: int) -> Operation[Offsets]:
        """Begins the last commit, if the consumer commits by itself, and waits for all before it. It never fails."""
        offsets = self._subscription.consumed() if self._commits_itself else {}
        last = self._add(offsets, deadline_ms, self._intercept, retry=True)
        closed: Operation[Offsets] = Operation(deadline_ms)

        def close(operation: Operation[Offsets]) -> None:
            if operation.error is not None:
                log.warning("the last commit failed: %s", operation.error)
            closed.finish(operation.result or {})

        last.on_done(close)
        return closed

    @property
    def _commits_itself(self) -> bool:
        return self._config.enable_auto_commit and self._config.group_id is not None

    @property
    def _is_committing_itself(self) -> bool:
        return self._auto is not None and not self._auto.done

    @property
    def _may_commit_itself(self) -> bool:
        if self._subscription.is_group:
            return self._membership is not None and self._membership.may_commit_itself
        return self._subscription.mode is Mode.ASSIGNED

    def _processed_and_assigned(self) -> Offsets:
        """Returns what counted as processed at the last poll and is still assigned; less after a seek back."""
        now = self._subscription.consumed()
        return {
            p: min(at, now[p], key=lambda one: one.offset) for p, at in self._processed.items() if p in now
        }

    def _auto_commit(self, offsets: Offsets, now_ms: int) -> Operation[Offsets] | None:
        if not offsets:
            return None
        deadline_ms = now_ms + self._config.request_timeout_ms
        self._auto = self._add(offsets, deadline_ms, self._auto_committed, retry=False)
        return self._auto

    def _auto_committed(self, operation: Operation[Offsets], now_ms: int) -> None:
        if operation.error is None:
            self._intercept(operation, now_ms)
            return
        self._warn(now_ms, f"auto-commit failed: {operation.error}")
        if isinstance(operation.error, RetriableCommitFailed) and self._auto_at_ms is not None:
            self._auto_at_ms = min(self._auto_at_ms, now_ms + self._backoff.after(1))

    def lane_of_look_ups(self) -> Lane:
        """Returns the lane on which a question is answered soon.

        On the data lane it may wait behind a fetch that waits for records, on the group lane behind a JoinGroup that
        waits for the other members: there it would time out, and take the join down with it.
        """
        joins = self._membership is not None and self._membership.rebalance_in_progress
        return Lane.DATA if joins else Lane.GROUP

    # --- the results of commits -----------------------------------------------------------------------

    def _tell(
        self, offsets: Offsets, callback: CommitCallback | None, operation: Operation[Offsets], now_ms: int
    ) -> None:
        if operation.error is None:
            self._intercept(operation, now_ms)
        elif isinstance(operation.error, FencedInstanceId):
            self.fenced = operation.error
        if callback is not None:
            self._callbacks.append(partial(callback, offsets, operation.error))
        elif operation.error is not None:
            self._warn(now_ms, f"an asynchronous commit failed: {operation.error}")

    def _intercept(self, operation: Operation[Offsets], now_ms: int) -> None:
        if self._on_commit is not None and operation.result:
            self._callbacks.append(partial(self._on_commit, operation.result))

    # --- the queue ------------------------------------------------------------------------------------

    def _add(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int | None,
        settled: WhenSettled,
        *,
        retry: bool,
        before_join: bool = False,
    ) -> Operation[Offsets]:
        assert self._config.group_id is not None, "commits need a group.id"
        chosen = {as_partition(partition): at for partition, at in offsets.items()}
        for partition, at in chosen.items():
            if at.offset < 0:
                raise ValueError(f"an offset to commit cannot be negative: {at.offset} of {partition}")
        commit = QueuedCommit(
            chosen, Operation(deadline_ms), retry, self._subscription.is_group, settled, before_join
        )
        self._queue.append(commit)
        return commit.operation

    def _tick_queue(self, now_ms: int) -> None:
        self._expire(now_ms)
        self._send_due(now_ms)
        self._settle(now_ms)

    def _expire(self, now_ms: int) -> None:
        for commit in self._queue:
            deadline_ms = commit.operation.deadline_ms
            if commit.operation.done or deadline_ms is None or now_ms < deadline_ms:
                continue
            why = commit.obstacle or (
                "no answer yet" if commit.in_flight else no_coordinator(self._coordinator)
            )
            if commit.retry:
                unsure = "was not confirmed in time and may or may not have happened"
                commit.operation.fail(
                    TimedOut(
                        f"the commit of {names(commit.offsets)} in group {self._config.group_id} "
                        f"{unsure if commit.sent_as is not None else 'could not be sent in time'}: {why}"
                    )
                )
            elif not commit.in_flight:  # else the request's own timeout ends it
                commit.operation.fail(
                    RetriableCommitFailed(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                        f"{names(commit.offsets)} not committed: {why}; commit again",
                    )
                )

    def _send_due(self, now_ms: int) -> None:
        others_before = False
        for commit in self._queue:
            if commit.operation.done:
                continue
            if not commit.in_flight:
                if (commit.retry and others_before) or now_ms < commit.retry_at_ms:
                    return
                commit.retry_at_ms = 0
                if not self._send(commit, now_ms):
                    return
            if commit.retry and not commit.operation.done:
                return  # later ones wait for it
            others_before = others_before or not commit.operation.done

    def _send(self, commit: QueuedCommit, now_ms: int) -> bool:
        """Sends a commit or ends it; returns False if the coordinator must be found first."""
        if not commit.offsets:
            commit.operation.finish({})
            return True
        node_id = self._coordinator.ensure(now_ms)
        if node_id is None:
            if (error := self._coordinator.error) is not None:
                commit.operation.fail(error)
            return error is not None
        member = self._identity(commit)
        if isinstance(member, KafkaError):
            log.info("not committed: %s", member)
            commit.operation.fail(member)
            return True
        ids = ids_of(self._metadata.cluster, commit.offsets)
        commit.in_flight, commit.sent_as, commit.sent_ms = True, member, now_ms
        self._out.append(
            Send(
                node_id,
                OffsetCommitRequest.API_KEY,
                offset_commit(commit.offsets, member, ids),
                "commits.commit",
                self._config.request_timeout_ms,
                lane=Lane.GROUP,
                max_version=None if ids is not None else BY_NAME,
                on_answer=partial(self._commit_answered, commit, member, names_by_id(ids)),
            )
        )
        return True

    def _identity(self, commit: QueuedCommit) -> GroupMetadata | KafkaError:
        """Returns the identity to commit with, or the error: only a poll can make this consumer a member again."""
        assert self._config.group_id is not None
        if not commit.as_member:
            return GroupMetadata(self._config.group_id)
        assert self._membership is not None
        if self._membership.rebalance_in_progress:
            return rebalance_in_progress(commit.offsets, self._config.group_id)
        if self._membership.is_fenced:
            return fenced(self._config.group_id)
        if not self._membership.may_commit:
            return not_a_member(commit.offsets, self._config.group_id, self._membership.left_because)
        member = self._membership.group_metadata()
        if commit.sent_as not in (None, member) and not self._still_owns(commit, commit.sent_as):
            return not_a_member(commit.offsets, self._config.group_id, "this consumer has joined again since")
        return member

    def _still_owns(self, commit: QueuedCommit, sent_as: GroupMetadata) -> bool:
        """Whether nobody else can have had the partitions of a commit since it was sent under this identity."""
        assert self._membership is not None
        owned = self._subscription.partitions.keys()
        return self._membership.continues(sent_as) and commit.offsets.keys() <= owned

    def _settle(self, now_ms: int) -> None:
        """Reports commits that are done, in the order of the queue, whatever order they were done in."""
        while self._queue and self._queue[0].operation.done:
            commit = self._queue.popleft()
            commit.settled(commit.operation, now_ms)

    def _next_queue_deadline_ms(self) -> int | None:
        times: list[int | None] = []
        for commit in self._queue:
            if commit.retry or not commit.in_flight:
                times.append(commit.operation.deadline_ms)
            if commit.retry_at_ms and not commit.in_flight:
                times.append(commit.retry_at_ms)
        return min((ms for ms in times if ms is not None), default=None)

    # --- answers --------------------------------------------------------------------------------------

    def _commit_answered(
        self,
        commit: QueuedCommit,
        member: GroupMetadata,
        topics: dict[bytes, str],
        answer: Answer,
        now_ms: int,
    ) -> None:
        commit.in_flight = False
        if answer.failure is not None:
            size = how_large(commit.offsets) if answer.failure.kind is FailureKind.DISCONNECTED else ""
            error = error_for_failure(answer.failure, f"committing {names(commit.offsets)}{size}")
            if not answer.failure.is_retriable:
                commit.operation.fail(error)
            else:
                assert isinstance(error, KafkaError)
                forget(self._coordinator, answer, str(error), now_ms)
                self._again(commit, error, now_ms)
        else:
            self.metrics.commits.record(now_ms - commit.sent_ms, now_ms)
            codes = commit_errors(answer.response, answer.version, commit.offsets, topics)
            if codes:
                self._refused(answer, commit, member, judge(codes, self._config.group_id), now_ms)
            else:
                self._coordinator.worked()
                log.debug("committed %s", names(commit.offsets))
                commit.operation.finish(commit.offsets)
        self._settle(now_ms)

    def _refused(
        self,
        answer: Answer,
        commit: QueuedCommit,
        member: GroupMetadata,
        verdict: CommitVerdict,
        now_ms: int,
    ) -> None:
        code = verdict.error.code
        if verdict.forget_coordinator:
            forget(self._coordinator, answer, f"the commit was answered with {code.name}", now_ms)
        if verdict.unknown_topics:
            self._metadata.request_update(f"a commit was answered with {code.name}")
        if verdict.retriable and not (commit.gives_up_on_unknown_topics and verdict.unknown_topics):
            self._again(commit, verdict.error, now_ms)
            return
        if code is ErrorCode.STALE_MEMBER_EPOCH and commit.as_member and self._still_owns(commit, member):
            # The answer to a heartbeat brings the epoch to commit with.
            assert self._membership is not None
            self._membership.reset_generation(f"a commit with epoch {member.generation_id} was refused")
            self._again(commit, verdict.error, now_ms)
            return
        log.info("the coordinator refused a commit of %s: %s", member, verdict.error)
        commit.operation.fail(self._moved_on(commit, member, verdict))

    def _moved_on(self, commit: QueuedCommit, member: GroupMetadata, verdict: CommitVerdict) -> KafkaError:
        """Tells the membership of a refusal and returns the error for the user.

        A refusal of a commit of an older generation never touches the current one.
        """
        code = verdict.error.code
        if not verdict.membership_ended:
            return verdict.error
        if not commit.as_member or self._membership is None:
            return not_alone(code, commit.offsets, self._config.group_id)
        is_current = self._membership.continues(member)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if is_current:
                self._membership.request_rejoin("a commit was refused: the group is rebalancing")
            return verdict.error
        if not is_current and self._membership.rebalance_in_progress:
            return rebalance_in_progress(commit.offsets, self._config.group_id)
        if code is ErrorCode.FENCED_INSTANCE_ID and is_current:
            return verdict.error
        why = self._membership.left_because
        if is_current:
            # After ILLEGAL_GENERATION the coordinator still knows the member itself.
            self._membership.reset_generation(
                f"the coordinator answered a commit with {code.name}",
                keep_member_id=code is ErrorCode.ILLEGAL_GENERATION,
            )
        return commit_failed(code, commit.offsets, self._config.group_id, why)

    def _again(self, commit: QueuedCommit, error: KafkaError, now_ms: int) -> None:
        if commit.retry:
            commit.failures += 1
            commit.obstacle = str(error)
            commit.retry_at_ms = now_ms + self._backoff.after(commit.failures)
        else:
            commit.operation.fail(
                RetriableCommitFailed(
                    error.code,
                    f"{error.message or error.code.name}; it may or may not have happened: commit again",
                )
            )

    # --- driven from outside --------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._tick_queue(now_ms)
        self._committed.tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        times = (self._committed.next_deadline_ms(), self._next_queue_deadline_ms())
        return min((ms for ms in times if ms is not None), default=None)
