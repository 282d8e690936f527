"""Says what each call of a consumer does, step by step, for the blocking and the asyncio consumer alike.

Nothing here waits or locks: core/steps.py says how the fronts run it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kohort.client.consume.consumer_core import ConsumerCore
from kohort.client.consume.interceptors import Interceptors
from kohort.client.consume.poll_metrics import POLLS, PollMetrics
from kohort.client.core import arguments
from kohort.client.core.metrics import MetricSource
from kohort.client.core.offset_reset import (
    EARLIEST,
    EARLIEST_TIMESTAMP,
    LATEST,
    LATEST_TIMESTAMP,
    AutoOffsetResetStrategy,
)
from kohort.client.core.operation import Operation
from kohort.client.core.steps import CallUser, Look, Steps, T, Until
from kohort.client.errors import IllegalState, TimedOut, WrongArgument
from kohort.client.group.callbacks import Callback, CallbackKind
from kohort.client.group.rebalance_listener import RebalanceListener
from kohort.client.offsets.offset_requests import Offsets
from kohort.client.offsets.subscription import Mode, PartitionState, Position
from kohort.client.types import (
    ByPartition,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Partitions,
    SubscriptionPattern,
    TopicPartition,
)

log = logging.getLogger("kohort.client.consumer")

POLLED_EVERY_MS = 1_000
"""How often a poll that waits long tells the membership and the commits that it is still there."""

LOOK = Look()


class ConsumerCalls:
    """The calls of one consumer; each returns its steps."""

    def __init__(
        self,
        core: ConsumerCore,
        clock: Callable[[], int],
        interceptors: Interceptors | None = None,
        obstacle: Callable[[], str] = lambda: "",
    ) -> None:
        """`obstacle` says what the network is struggling with, for the text of a timeout."""
        self.core = core
        self.clock = clock
        self._obstacle = obstacle
        self.listener = RebalanceListener()
        self._telling: Callback | None = None  # what the user's function is being told, while it runs
        self._taken_from: dict[TopicPartition, tuple[PartitionState, Position | None]] = {}  # by this poll
        self._interceptors = interceptors or Interceptors(())
        self.intercept, self.intercepts = self._interceptors.consumed, self._interceptors.see_records
        core.commits.call_on_commit(self._interceptors.committed)
        self._metrics = PollMetrics(core.config.metric_window())

    def metric_sources(self) -> Iterator[MetricSource]:
        """Yields what the calls and the parts of this consumer count."""
        yield MetricSource(POLLS, self._metrics)
        yield from self.core.metric_sources()

    # --- what to read ---------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener,
    ) -> Steps[None]:
        if isinstance(topics, SubscriptionPattern):
            arguments.text(topics.pattern, "a pattern to subscribe to", longest=None)
            return self._subscribe_broker_pattern(topics, listener)
        if isinstance(topics, re.Pattern):
            arguments.text(topics.pattern, "a pattern to subscribe to", longest=None)
            return self._subscribe_pattern(topics, listener)
        if isinstance(topics, str):
            raise IllegalState(
                f"subscribe takes a list of topics: subscribe([{topics!r}]); for a pattern give re.compile(...)"
            )
        if not isinstance(topics, Iterable):
            raise WrongArgument(
                f"subscribe takes a list of topics or a compiled pattern, not {arguments.shown(topics)}"
            )
        names = [arguments.topic_name(name) for name in topics]
        return self._subscribe_topics(names, listener) if names else self.unsubscribe()

    def _subscribe_topics(self, topics: list[str], listener: RebalanceListener) -> Steps[None]:
        self._need_group("subscribe")
        core, now_ms = self.core, self.clock()
        core.subscription.subscribe(topics)
        self.listener = listener
        core.want_metadata(now_ms)
        log.info("subscribed to %s", ", ".join(sorted(topics)))
        yield from ()

    def _subscribe_pattern(self, pattern: re.Pattern[str], listener: RebalanceListener) -> Steps[None]:
        self._need_group("subscribe")
        core, now_ms = self.core, self.clock()
        core.subscribe_pattern(pattern)
        self.listener = listener
        core.want_metadata(now_ms)
        core.metadata.request_update("a pattern was subscribed to")
        log.info("subscribed to all topics that match %s", pattern.pattern)
        yield from ()

    def _subscribe_broker_pattern(
        self, pattern: SubscriptionPattern, listener: RebalanceListener
    ) -> Steps[None]:
        self._need_group("subscribe")
        core = self.core
        assert core.membership is not None
        if not core.membership.broker_matches:
            raise IllegalState(
                "a SubscriptionPattern is matched by the broker, for members of group.protocol=consumer only: set "
                "that, or give re.compile(...), which is matched here"
            )
        if not pattern.pattern:
            raise WrongArgument("a SubscriptionPattern must not be empty")
        core.subscription.subscribe_broker_pattern(pattern)
        self.listener = listener
        core.want_metadata(self.clock())
        log.info("subscribed to all topics that match %s at the broker", pattern.pattern)
        yield from ()

    def _need_group(self, what: str) -> None:
        if self.core.membership is None:
            raise IllegalState(
                f"{what}() needs group.id: name the group to join, or use assign() to read partitions alone"
            )

    def assign(self, partitions: Iterable[Partitions]) -> Steps[None]:
        core = self.core
        wanted = arguments.partitions(partitions)
        if not wanted:
            yield from self.unsubscribe()
            return
        now_ms = self.clock()
        if core.subscription.mode is Mode.ASSIGNED:
            core.commits.commit_before_change(now_ms)
        core.subscription.assign(wanted)
        core.want_metadata(now_ms)

    def unsubscribe(self) -> Steps[None]:
        """Leaves the group, after the callbacks, and reads nothing any more."""
        core = self.core
        if core.subscription.mode is Mode.ASSIGNED:
            core.commits.commit_before_change(self.clock())
        if core.membership is not None and core.subscription.is_group:
            deadline_ms = self.clock() + core.config.default_api_timeout_ms
            yield from self._leave("the consumer unsubscribed from all topics", deadline_ms)
        core.subscription.unsubscribe()
        self.listener = RebalanceListener()
        core.want_metadata(self.clock())
        core.raise_errors()

    def _leave(self, reason: str, deadline_ms: int) -> Steps[None]:
        membership = self.core.membership
        assert membership is not None
        left = membership.leave(reason, self.clock())
        yield from self._callbacks()
        yield Until(lambda: left.done or membership.callback is not None, deadline_ms)
        yield from self._callbacks()
        yield Until(lambda: left.done, deadline_ms)

    def assignment(self) -> frozenset[TopicPartition]:
        """Returns what is assigned, without what came while nobody polled: the callback tells the user of it first."""
        states = self.core.subscription.partitions.items()
        return frozenset(p for p, state in states if self._telling or not state.assigning)

    # --- poll -----------------------------------------------------------------------------------------

    def poll(self, deadline_ms: int, take: Callable[[int], T], empty: T) -> Steps[T]:
        """Makes one poll; `take(now_ms)` cuts from what is buffered."""
        self._taken_from = {}
        return self._checked_poll(deadline_ms, take, empty)

    def _checked_poll(self, deadline_ms: int, take: Callable[[int], T], empty: T) -> Steps[T]:
        if self.core.subscription.mode is Mode.NONE:
            raise IllegalState(
                "the consumer reads nothing: call subscribe(topics) or assign(partitions) first"
            )
        if self._telling is not None:
            raise IllegalState(
                "a rebalance callback runs within poll and cannot call it again: return, and that poll goes on"
            )
        began_ms = self.clock()
        self._metrics.poll_began(began_ms)
        try:
            return (yield from self._poll(began_ms, deadline_ms, take, empty))
        finally:
            now_ms = self.clock()
            self._metrics.poll_ended(now_ms)
            if self.core.membership is not None:
                self.core.membership.poll_ended(now_ms)

    def _poll(self, now_ms: int, deadline_ms: int, take: Callable[[int], T], empty: T) -> Steps[T]:
        core = self.core
        self._polled(now_ms)
        yield LOOK  # also while records are buffered: the group, metadata and a wakeup do not wait for their end
        while True:
            if core.has_news:
                yield from self._callbacks()
                core.raise_errors()
                self._taken_from = core.buffered_positions()
                taken = take(self.clock())
                if taken is not None and len(taken):  # type: ignore[arg-type]
                    return taken  # the front pumps: the next fetches leave before the caller begins to work
            now_ms = self.clock()
            if now_ms >= deadline_ms:
                return empty
            settled = not self._rebalance_due()
            soon_ms = min(deadline_ms, core.commits.next_poll_ms() or deadline_ms, now_ms + POLLED_EVERY_MS)
            yield Until(lambda: core.has_news or self._wants_poll(), soon_ms)
            if settled and self._rebalance_due() and not core.has_news:
                return empty  # the caller polls again, and the group settles sooner
            self._polled(self.clock())

    def give_back(self) -> None:
        """Takes back what the last poll has taken, because nobody has got it: the next poll returns it."""
        partitions = self.core.subscription.partitions
        for partition, (state, position) in self._taken_from.items():
            if position is not None and partitions.get(partition) is state and state.position != position:
                state.seek(position)

    def _wants_poll(self) -> bool:
        membership = self.core.membership
        return membership is not None and self.core.subscription.is_group and membership.wants_poll

    def _polled(self, now_ms: int) -> None:
        self.core.commits.poll(now_ms)
        if self.core.membership is not None and self.core.subscription.is_group:
            self.core.membership.poll(now_ms)

    def _rebalance_due(self) -> bool:
        membership = self.core.membership
        return membership is not None and self.core.subscription.is_group and membership.rebalance_due

    def _callbacks(self) -> Steps[None]:
        """Runs what waits for the user's thread: rebalance callbacks, then those of asynchronous commits."""
        core = self.core
        membership = core.membership
        while membership is not None and membership.callback is not None:
            callback, outer = membership.callback, self._telling
            function = self.listener.function(callback.kind)
            if outer is not None and CallbackKind.ASSIGNED not in (outer.kind, callback.kind):
                function = None  # the user leaves within the callback that tells them just this
            error: BaseException | None = None
            if function is not None:
                self._telling, began_ms = callback, self.clock()
                try:
                    yield CallUser(function, (list(callback.partitions),))
                except BaseException as raised:
                    error = raised
                finally:
                    self._telling, now_ms = outer, self.clock()
                    membership.metrics.called_back(callback.kind, now_ms - began_ms, now_ms)
            is_current = membership.callback is callback  # else the user left within it
            if is_current:
                membership.called_back(error, self.clock())
            if error is not None and not (is_current and isinstance(error, Exception)):
                raise error
            core.tick(self.clock())
        yield from self._tell_commits()

    def _tell_commits(self) -> Steps[None]:
        """Calls the callbacks of commits and interceptors. If one raises, the next call goes on with the others."""
        while (committed := self.core.commits.take_callback()) is not None:
            yield CallUser(committed, ())

    # --- positions ------------------------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int | OffsetAndMetadata) -> Steps[None]:
        at = arguments.offset(offset, "the offset to seek to")
        self.core.positions.seek(arguments.partition(partition), at, self.clock())
        yield from ()

    def seek_to(self, partitions: Iterable[Partitions], reset: AutoOffsetResetStrategy) -> Steps[None]:
        subscription = self.core.subscription
        wanted = arguments.partitions(partitions) or subscription.partitions
        for state in [subscription.state(partition) for partition in wanted]:
            state.reset_to(reset)
        yield from ()

    def seek_to_beginning(self, partitions: Iterable[Partitions]) -> Steps[None]:
        return self.seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[Partitions]) -> Steps[None]:
        return self.seek_to(partitions, LATEST)

    def position(self, partition: tuple[str, int], deadline_ms: int) -> Steps[int]:
        wanted = arguments.partition(partition)
        core = self.core
        core.subscription.state(wanted)

        def is_settled() -> bool:
            return core.subscription.user_position(wanted) is not None or core.positions.has_error

        while (found := core.subscription.user_position(wanted)) is None:
            core.subscription.state(wanted).ask_for_position()
            core.tick(self.clock())
            if not (yield Until(is_settled, deadline_ms)):
                raise self._timed_out(f"the position of {wanted}", self._is_missing(wanted))
            core.raise_errors()
        return found.offset

    def pause(self, partitions: Iterable[Partitions], paused: bool) -> Steps[None]:
        for state in [self.core.subscription.state(p) for p in arguments.partitions(partitions)]:
            if paused:
                state.pause()
            else:
                state.resume()
        yield from ()

    # --- commits --------------------------------------------------------------------------------------

    def offsets_to_commit(self, offsets: ByPartition[int | OffsetAndMetadata] | None) -> Offsets:
        """Returns what was given, or the positions after all records that were returned."""
        return self.core.subscription.consumed() if offsets is None else arguments.offsets(offsets)

    def commit(self, offsets: ByPartition[int | OffsetAndMetadata] | None, deadline_ms: int) -> Steps[None]:
        self._need_group("commit")
        chosen = self.offsets_to_commit(offsets)
        began_ms = self.clock()
        operation = self.core.commits.commit(chosen, began_ms, deadline_ms, retry=True)
        try:
            yield from self._finish(operation, deadline_ms, "the commit")
        finally:
            self._metrics.waited_for_commit(self.clock() - began_ms)
            yield from self._tell_commits()

    def commit_async(
        self,
        offsets: ByPartition[int | OffsetAndMetadata] | None,
        callback: Callable[[Offsets, Exception | None], Any] | None,
    ) -> Steps[None]:
        self._need_group("commit")
        arguments.function(callback, "the callback of a commit")
        chosen = None if offsets is None else arguments.offsets(offsets)
        yield from self._tell_commits()
        if chosen is None:
            chosen = self.core.subscription.consumed()
        self.core.commits.commit_async(chosen, self.clock(), callback)

    def committed(
        self, partitions: Iterable[Partitions], deadline_ms: int
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        self._need_group("committed")
        wanted = arguments.partitions(partitions)
        began_ms = self.clock()
        operation = self.core.commits.committed(wanted, began_ms, deadline_ms)
        try:
            return (yield from self._finish(operation, deadline_ms, "the committed offsets"))
        finally:
            self._metrics.waited_for_committed(self.clock() - began_ms)

    # --- looking things up ----------------------------------------------------------------------------

    def offsets_for_times(
        self, times: ByPartition[int], deadline_ms: int
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted = arguments.times(times)
        operation = self.core.positions.list_offsets(wanted, self.clock(), deadline_ms)
        return (yield from self._finish(operation, deadline_ms, "the offsets for times"))

    def boundary_offsets(
        self, partitions: Iterable[Partitions], timestamp: int, deadline_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        wanted = dict.fromkeys(arguments.partitions(partitions), timestamp)
        operation = self.core.positions.list_offsets(wanted, self.clock(), deadline_ms)
        found = yield from self._finish(operation, deadline_ms, "the offsets of the log")
        return {partition: at.offset if at is not None else 0 for partition, at in found.items()}

    def beginning_offsets(
        self, partitions: Iterable[Partitions], deadline_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        return self.boundary_offsets(partitions, EARLIEST_TIMESTAMP, deadline_ms)

    def end_offsets(
        self, partitions: Iterable[Partitions], deadline_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        return self.boundary_offsets(partitions, LATEST_TIMESTAMP, deadline_ms)

    def lag(
        self, partitions: Iterable[Partitions] | None, deadline_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        """Returns how far each assigned partition's position is behind the end of its log, which is asked now."""
        wanted = arguments.partitions(self.core.subscription.partitions if partitions is None else partitions)
        positions: dict[TopicPartition, int] = {}
        for partition in wanted:
            positions[partition] = yield from self.position(partition, deadline_ms)
        ends = yield from self.end_offsets(wanted, deadline_ms)
        return {partition: max(0, ends[partition] - positions[partition]) for partition in wanted}

    def partitions_for(self, topic: str, deadline_ms: int) -> Steps[tuple[TopicPartition, ...]]:
        topic = arguments.topic_name(topic)
        operation = self.core.metadata.look_up(frozenset((topic,)), self.clock(), deadline_ms)
        cluster = yield from self._finish(operation, deadline_ms, f"the partitions of {topic}")
        return tuple(cluster.partitions_of(topic))

    def list_topics(self, deadline_ms: int) -> Steps[dict[str, tuple[TopicPartition, ...]]]:
        operation = self.core.metadata.look_up(None, self.clock(), deadline_ms)
        cluster = yield from self._finish(operation, deadline_ms, "the list of topics")
        return {topic: tuple(cluster.partitions_of(topic)) for topic in cluster.topics}

    def enforce_rebalance(self, reason: str) -> Steps[None]:
        self._need_group("enforce_rebalance")
        reason, membership = arguments.reason(reason), self.core.membership
        assert membership is not None
        if self.core.subscription.is_group:
            membership.request_rejoin(reason or "rebalance enforced by the user")
        yield from ()

    def group_metadata(self) -> GroupMetadata:
        self._need_group("group_metadata")
        assert self.core.membership is not None
        return self.core.membership.group_metadata()

    # --- the end --------------------------------------------------------------------------------------

    def close(self, deadline_ms: int) -> Steps[None]:
        """Commits a last time (if it commits by itself), gives partitions back, leaves the group, ends sessions."""
        core, failed = self.core, list[Exception | None]()
        if core.config.group_id is not None:
            operation = core.commits.commit_on_close(self.clock(), deadline_ms)
            yield Until(lambda: operation.done, deadline_ms)
            failed.append((yield from self._tell_last_commits()))
        if core.membership is not None and core.subscription.is_group:
            try:
                yield from self._leave("the consumer was closed", deadline_ms)
                failed.append(core.membership.take_error())
            except Exception as error:
                failed.append(error)
            # This waits for what `on_revoked` committed without waiting for it.
            yield Until(lambda: core.commits.is_idle, deadline_ms)
            failed.append((yield from self._tell_last_commits()))
        core.fetcher.close_sessions(self.clock())
        self._interceptors.close()
        for first in filter(None, failed):
            raise first

    def _tell_last_commits(self) -> Steps[Exception | None]:
        """Calls all callbacks, whatever they raise, since no call follows; returns the first error."""
        failed: Exception | None = None
        while self.core.commits.has_callbacks:
            try:
                yield from self._tell_commits()
            except Exception as error:
                failed = failed or error
        return failed

    # --- waiting --------------------------------------------------------------------------------------

    def _finish(self, operation: Operation[T], deadline_ms: int, what: str) -> Steps[T]:
        yield Until(lambda: operation.done, deadline_ms)
        if not operation.done:
            operation.fail(self._timed_out(what))
        elif isinstance(operation.error, TimedOut):
            obstacle = self._obstacle()
            if obstacle and obstacle not in str(operation.error):
                raise TimedOut(f"{operation.error}; {obstacle}")
        return operation.value()

    def _is_missing(self, partition: TopicPartition) -> str:
        topic = self.core.metadata.cluster.topics.get(partition.topic)
        if topic is None or partition.partition in topic.partitions:
            return ""
        return f"{partition.topic} has no partition {partition.partition}"

    def _timed_out(self, what: str, why: str = "") -> TimedOut:
        obstacle = why or self._obstacle()
        return TimedOut(f"time was up before {what} came" + (f": {obstacle}" if obstacle else ""))
