"""Commits of offsets: by the user, waited for or not, and by the consumer itself.

All of them go through one queue (commit_queue.py), which keeps their order; look-ups of what is committed are in
committed.py. The consumer's own commits (`enable.auto.commit`) hold only what counts as processed: records that an
earlier `poll` returned, once the user has called `poll` again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.effects import Answer, Lane, Outbox
from kohort.client.core.operation import Operation
from kohort.client.errors import FencedInstanceId, RetriableCommitFailed
from kohort.client.offsets.commit_queue import CommitQueue, CommittingMember
from kohort.client.offsets.committed import ClusterSource, Committed, CommittedOffsets, CoordinatorSource
from kohort.client.offsets.offset_requests import Offsets
from kohort.client.offsets.subscription import Mode, SubscriptionState
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger("kohort.client.commits")

CommitCallback = Callable[[Offsets, Exception | None], Any]


class Commits:
    """A part with the purpose "commits."."""

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
    ) -> None:
        self._config, self._subscription = config, subscription
        self.on_commit: Callable[[Offsets], None] | None = None
        """Told of every commit that succeeded; called, like the callbacks, by whoever takes the callbacks."""
        self.fenced: FencedInstanceId | None = None
        """Set for good when an asynchronous commit found another consumer with this group.instance.id."""
        self.warn: Callable[[int, str], None] = lambda now_ms, text: log.warning("%s", text)
        """At what time, and what: a consumer has a way that counts what it says of the coordinator's node."""
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._queue = CommitQueue(out, config, coordinator, metadata, jitter)
        self._queue.membership = membership
        self._committed = CommittedOffsets(out, config, coordinator, metadata, jitter, self.lane_of_look_ups)
        self._callbacks: deque[Callable[[], None]] = deque()
        self._processed: Offsets = {}
        self._auto: Operation[Offsets] | None = None
        self._auto_at_ms: int | None = None
        self._before_join: Operation[Offsets] | None = None
        self._joins_as: GroupMetadata | None = None
        """Who wants to join again. A join can be given up; its commit is not that of the next one."""

    @property
    def membership(self) -> CommittingMember | None:
        return self._queue.membership

    @membership.setter
    def membership(self, membership: CommittingMember | None) -> None:
        self._queue.membership = membership

    # --- the user's -----------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        deadline_ms: int | None,
        retry: bool = True,
    ) -> Operation[Offsets]:
        """Done when it and all commits before it are. With no offsets it only waits for those before it."""
        return self._add(offsets, deadline_ms, self._intercept, retry=retry)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        callback: CommitCallback | None = None,
    ) -> Operation[Offsets]:
        """Tried once. It waits for a coordinator to be found, but no longer than a request may take."""
        settled = partial(self._tell, dict(offsets), callback)
        return self._add(offsets, now_ms + self._config.request_timeout_ms, settled, retry=False)

    def _add(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int | None,
        settled: Callable[[Operation[Offsets], int], None],
        *,
        retry: bool,
        before_join: bool = False,
    ) -> Operation[Offsets]:
        return self._queue.add(
            offsets,
            deadline_ms,
            settled,
            retry=retry,
            as_member=self._subscription.is_group,
            gives_up_on_unknown_topics=before_join,
        )

    def committed(
        self, partitions: Iterable[TopicPartition], now_ms: int, deadline_ms: int | None
    ) -> Operation[Committed]:
        """None for a partition: nothing is committed."""
        return self._committed.look_up(partitions, deadline_ms)

    @property
    def has_callbacks(self) -> bool:
        return bool(self._callbacks)

    def take_callback(self) -> Callable[[], None] | None:
        """The next that is to be called in the user's thread, in the order of the commits."""
        return self._callbacks.popleft() if self._callbacks else None

    @property
    def is_idle(self) -> bool:
        """Whether no commit is under way."""
        return self._queue.is_empty

    # --- the consumer's own ---------------------------------------------------------------------------

    def poll(self, now_ms: int) -> None:
        """The user has called poll: what was returned so far is processed. Commits it if that is due."""
        if not self._commits_itself:
            return
        self._processed = self._subscription.consumed()
        if self._auto_at_ms is None:
            self._auto_at_ms = now_ms + self._config.auto_commit_interval_ms
        if now_ms >= self._auto_at_ms and self._may_commit_itself and not self._is_committing_itself:
            self._auto_at_ms = now_ms + self._config.auto_commit_interval_ms
            self._auto_commit(self._processed, now_ms)

    def next_poll_ms(self) -> int | None:
        """When `poll` has something to do again, for a poll that waits long."""
        due = self._commits_itself and self._may_commit_itself and not self._is_committing_itself
        return self._auto_at_ms if due else None

    def commit_before_change(self, now_ms: int) -> Operation[Offsets] | None:
        """The partitions are about to be given up by assign() or unsubscribe(): no rebalance will commit them."""
        if not self._commits_itself:
            return None
        return self._auto_commit(self._subscription.consumed(), now_ms)

    def before_join(self, now_ms: int) -> bool:
        """Commits what is processed before the partitions may move. To be called again until it says True:
        nothing to do, done, failed, or `max.poll.interval.ms` has passed."""
        joins_as = self.membership.group_metadata() if self.membership is not None else None
        if self._before_join is None or joins_as != self._joins_as:
            self._before_join, self._joins_as = None, joins_as
            offsets = self._processed_and_assigned()
            if not self._commits_itself or not offsets:
                return True
            deadline_ms = now_ms + self._config.max_poll_interval_ms
            # A topic that was deleted must not keep the whole group waiting: such a commit is not repeated.
            self._before_join = self._add(offsets, deadline_ms, self._intercept, retry=True, before_join=True)
            self._queue.tick(now_ms)
        operation = self._before_join
        if not operation.done:
            return False
        self._before_join = None
        if operation.error is not None:
            self.warn(
                now_ms,
                f"the commit before the rebalance failed: {operation.error}; records may be processed twice",
            )
        return True

    def commit_on_close(self, now_ms: int, deadline_ms: int) -> Operation[Offsets]:
        """The last commit, if the consumer commits by itself; waits for all before it. It never fails."""
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
            return self.membership is not None and self.membership.is_stable
        return self._subscription.mode is Mode.ASSIGNED

    def _processed_and_assigned(self) -> Offsets:
        """Of what counted as processed at the last poll, that which is still ours; less if there was a seek back."""
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
        self.warn(now_ms, f"auto-commit failed: {operation.error}")
        if isinstance(operation.error, RetriableCommitFailed) and self._auto_at_ms is not None:
            self._auto_at_ms = min(self._auto_at_ms, now_ms + self._backoff.after(1))

    def lane_of_look_ups(self) -> Lane:
        """Where a question is not kept waiting: behind a fetch that waits for records, or behind a JoinGroup that
        waits for the others (where it would time out, and take the join down with it)."""
        joins = self.membership is not None and self.membership.rebalance_in_progress
        return Lane.DATA if joins else Lane.GROUP

    # --- what becomes of them -------------------------------------------------------------------------

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
            self.warn(now_ms, f"an asynchronous commit failed: {operation.error}")

    def _intercept(self, operation: Operation[Offsets], now_ms: int) -> None:
        if self.on_commit is not None and operation.result:
            self._callbacks.append(partial(self.on_commit, operation.result))

    # --- driven from outside --------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._queue.tick(now_ms)
        self._committed.tick(now_ms)

    def answer(self, answer: Answer, now_ms: int) -> None:
        if answer.send.purpose == "commits.committed":
            self._committed.answer(answer, now_ms)
        else:
            self._queue.answer(answer, now_ms)

    def next_deadline_ms(self) -> int | None:
        times = (self._committed.next_deadline_ms(), self._queue.next_deadline_ms())
        return min((ms for ms in times if ms is not None), default=None)
