"""Gives every assigned partition a position: the committed offset, or else where auto.offset.reset says.

A position is validated against the leader's log whenever the leader changes (validation.py). Each question remembers
the partition's state and how often it was sought; an answer that a seek or a rebalance has overtaken is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import NO_NODE, PartitionInfo
from kohort.client.core.effects import Answer, Lane, Outbox
from kohort.client.core.offset_reset import LATEST_TIMESTAMP, NO_RESET, AutoOffsetResetStrategy
from kohort.client.core.operation import Operation
from kohort.client.errors import NoOffsetForPartition, OffsetOutOfRange, error_for_failure
from kohort.client.offsets.committed import Committed
from kohort.client.offsets.lookup import (
    FoundOffsets,
    MetadataSource,
    OffsetLookup,
    list_offsets_send,
    not_allowed,
)
from kohort.client.offsets.offset_requests import listed_offsets, names
from kohort.client.offsets.subscription import PartitionState, Position, SubscriptionState
from kohort.client.offsets.validation import Validation
from kohort.client.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.wire.errors import ErrorCode, KohortError

log = logging.getLogger("kohort.client.positions")


class CommittedSource(Protocol):
    """What is used of `Commits`."""

    def committed(
        self, partitions: Iterable[TopicPartition], now_ms: int, deadline_ms: int | None
    ) -> Operation[Committed]: ...
    def lane_of_look_ups(self) -> Lane: ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """A partition as it was when a question about it was sent."""

    state: PartitionState
    seeks: int
    reset: AutoOffsetResetStrategy | None = None
    fallback: OffsetAndTimestamp | None = None

    def is_like(self, other: _Asked | None) -> bool:
        return other is not None and other.state is self.state and other.seeks == self.seeks


class Positions:
    """The part that gives each assigned partition its position; see the module's docstring."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        metadata: MetadataSource,
        commits: CommittedSource,
        jitter: Jitter,
    ) -> None:
        self._out, self._config, self._subscription = out, config, subscription
        self._metadata, self._commits = metadata, commits
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._lookup = OffsetLookup(out, config, subscription, metadata, jitter, commits.lane_of_look_ups)
        self._validation = Validation(out, config, subscription, metadata, self._backoff, self._fail)
        self._committed: Operation[Committed] | None = None
        self._committed_for: dict[TopicPartition, _Asked] = {}
        self._fallbacks: dict[TopicPartition, _Asked] = {}
        self._error: Exception | None = None
        self._error_about: dict[TopicPartition, _Asked] = {}
        self._seen_version = 0

    # --- commands -------------------------------------------------------------------------------------

    def list_offsets(
        self, times: Mapping[TopicPartition, int], now_ms: int, deadline_ms: int
    ) -> Operation[FoundOffsets]:
        """Looks up offsets of any partitions by timestamp (-1: the end, -2: the beginning). None: no such record."""
        return self._lookup.look_up(times, deadline_ms)

    def seek(self, partition: TopicPartition, at: OffsetAndMetadata, now_ms: int) -> None:
        """Moves to an offset; raises IllegalState if the partition is not assigned.

        With a leader epoch the offset is first validated against the leader's log.
        """
        if at.offset < 0:
            raise ValueError(f"an offset to seek to cannot be negative: {at.offset}")
        state = self._subscription.state(partition)
        self._seek(TopicPartition._make(partition), state, at)
        log.debug("%s sought to %d", partition, at.offset)

    @property
    def has_error(self) -> bool:
        if self._error is not None and not all(self._is_current(p, a) for p, a in self._error_about.items()):
            self._error = None  # the user sought, or gave the partition up, before they were told
        return self._error is not None

    def take_error(self) -> Exception | None:
        """Returns an error once; it comes again if its cause is still there at the next tick."""
        if not self.has_error:
            return None
        error, self._error = self._error, None
        return error

    def maybe_validate(self, now_ms: int) -> None:
        """Metadata has changed: positions whose leader is another one now are validated before more is read."""
        self._seen_version = self._metadata.cluster.version
        self._validation.look_at_leaders()

    # --- driven from outside --------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        if self._metadata.cluster.version != self._seen_version:
            self.maybe_validate(now_ms)
        self._lookup.tick(now_ms)
        self._take_committed()
        if self._subscription.has_all_positions:
            return
        if not self.has_error:  # the user is told first, and then everything is looked at again
            self._ask_committed(now_ms)
            self._ask_resets(now_ms)
            self._validation.tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        times = [self._lookup.next_deadline_ms()]
        if self._error is None:
            states = self._subscription.partitions.values()
            times += [state.retry_at_ms for state in states if state.retry_at_ms and not state.has_position]
        return min((ms for ms in times if ms is not None), default=None)

    def _fail(self, error: Exception) -> None:
        if not self.has_error:
            self._error, states = error, self._subscription.partitions
            about = error.partitions if isinstance(error, (NoOffsetForPartition, OffsetOutOfRange)) else ()
            self._error_about = {p: _Asked(states[p], states[p].seeks) for p in about if p in states}
        else:
            log.warning("another error of positions, while one waits to be raised: %s", error)

    def _is_current(self, partition: TopicPartition, asked: _Asked) -> bool:
        state = self._subscription.partitions.get(partition)
        return state is asked.state and state.seeks == asked.seeks

    # --- the committed offset, or the reset policy ----------------------------------------------------

    def _initializing(self) -> dict[TopicPartition, _Asked]:
        return {
            partition: _Asked(state, state.seeks)
            for partition, state in self._subscription.partitions.items()
            if state.position is None and state.reset is None
            if state.asked_for or not (state.revoking or state.assigning)
        }

    def _ask_committed(self, now_ms: int) -> None:
        waiting = self._initializing()
        if self._committed is not None:
            if all(asked.is_like(self._committed_for.get(partition)) for partition, asked in waiting.items()):
                return
            # Partitions have come or gone: one question for all of them, the old one is not asked again.
            self._committed.fail(KohortError("the assignment has changed"))
            self._committed = None
        if not waiting:
            return
        if self._config.group_id is None:
            self._begin(dict.fromkeys(waiting), waiting)
            return
        self._committed_for = waiting
        self._committed = self._commits.committed(waiting, now_ms, None)

    def _take_committed(self) -> None:
        if self._committed is None or not self._committed.done:
            return
        operation, self._committed = self._committed, None
        if operation.error is not None:
            self._fail(operation.error)
        else:
            self._begin(operation.result or {}, self._committed_for)

    def _begin(self, committed: Committed, asked: Mapping[TopicPartition, _Asked]) -> None:
        missing: list[TopicPartition] = []
        for partition, at in committed.items():
            if not self._is_current(partition, asked[partition]):
                continue
            state = asked[partition].state
            if at is not None:
                self._seek(partition, state, at, committed=True)
                log.info("%s begins at the committed offset %d", partition, at.offset)
            elif self._subscription.default_reset == NO_RESET:
                missing.append(partition)
            else:
                state.reset_to(self._subscription.default_reset)
        if missing:
            self._fail(self._no_offset(missing))

    def _no_offset(self, partitions: list[TopicPartition]) -> NoOffsetForPartition:
        which, group_id = names(partitions), self._config.group_id
        why = f"group {group_id} has no committed offset for {which}"
        if group_id is None:
            why = f"nothing is committed for {which}, since there is no group.id"
        return NoOffsetForPartition(
            f"{why}, and auto.offset.reset is none: seek() to where reading should begin, commit an offset, or set "
            "auto.offset.reset to earliest or latest",
            tuple(sorted(partitions)),
        )

    def _seek(
        self, partition: TopicPartition, state: PartitionState, at: OffsetAndMetadata, committed: bool = False
    ) -> None:
        """Moves to an offset and has it validated if its epoch is known.

        A committed offset of the leader's present epoch needs no validation: nothing can have been cut off since.
        """
        leader = self._leader(partition)
        epoch = at.leader_epoch if at.leader_epoch is not None else -1
        position = Position(at.offset, epoch, leader.leader_id, leader.leader_epoch)
        state.seek(position, validate=epoch >= 0 and not (committed and epoch == leader.leader_epoch))

    def _leader(self, partition: TopicPartition) -> PartitionInfo:
        return self._metadata.cluster.partition(partition) or PartitionInfo()

    # --- resets ---------------------------------------------------------------------------------------

    def _ask_resets(self, now_ms: int) -> None:
        by_node: dict[int, dict[TopicPartition, int]] = {}
        leaders: dict[TopicPartition, PartitionInfo] = {}
        for partition, state in self._subscription.partitions.items():
            if state.reset is None or now_ms < state.retry_at_ms:
                continue
            if state.reset.name == NO_RESET.name:
                self._fail(self._no_offset([partition]))
                continue
            leader = self._leader(partition)
            if leader.leader_id == NO_NODE:
                state.end_wait()
                self._metadata.request_update(f"the leader of {partition} is not known")
                continue
            leaders[partition] = leader
            by_node.setdefault(leader.leader_id, {})[partition] = self._time(partition, state, now_ms)
        for node_id, times in by_node.items():
            about: dict[TopicPartition, _Asked] = {}
            for partition in times:
                state = self._subscription.partitions[partition]
                # Not again before the answer: the request's own timeout comes first.
                state.wait_until(now_ms + self._config.request_timeout_ms + self._backoff.after(1))
                fallback = self._fallback(partition, state)
                about[partition] = _Asked(state, state.seeks, state.reset, fallback)
            # A first reset uses the connection of the fetches that follow; a later one would wait behind a fetch.
            is_first = all(asked.seeks == 1 for asked in about.values())
            lane = Lane.DATA if is_first else self._commits.lane_of_look_ups()
            on_answer = partial(self._reset_answered, about)
            self._out.append(
                list_offsets_send(node_id, times, leaders, self._config, "positions.reset", on_answer, lane)
            )

    def _time(self, partition: TopicPartition, state: PartitionState, now_ms: int) -> int:
        """Returns the time to ask for. by_duration asks for the end first: it begins there if no record is so young."""
        assert state.reset is not None
        if state.reset.before_ms is not None and self._fallback(partition, state) is None:
            return LATEST_TIMESTAMP
        time = state.reset.timestamp_at(now_ms)
        assert time is not None
        return time

    def _fallback(self, partition: TopicPartition, state: PartitionState) -> OffsetAndTimestamp | None:
        known = self._fallbacks.get(partition)
        return known.fallback if known is not None and self._is_current(partition, known) else None

    def _reset_answered(self, about: dict[TopicPartition, _Asked], answer: Answer, now_ms: int) -> None:
        current = {p: asked for p, asked in about.items() if self._is_current(p, asked)}
        if answer.failure is not None:
            error = error_for_failure(answer.failure, f"looking up where {names(about)} begins or ends")
            if not answer.failure.is_retriable and current:
                self._fail(error)
            self._reset_again(current, str(error), now_ms)
            return
        refused: dict[TopicPartition, _Asked] = {}
        forbidden: list[TopicPartition] = []
        for partition, (code, at) in listed_offsets(answer.response, about).items():
            asked = current.get(partition)
            if asked is None:
                log.debug("%s was sought or given away while its reset was under way", partition)
            elif code is ErrorCode.NONE:
                self._reset(partition, asked, at)
            else:
                refused[partition] = asked
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    forbidden.append(partition)
                log.debug("the reset of %s was answered with %s", partition, code.name)
        if forbidden:
            self._fail(not_allowed(forbidden, "look up the offsets"))
        if refused:
            self._reset_again(refused, f"the reset of {names(refused)} was refused", now_ms)

    def _reset(self, partition: TopicPartition, asked: _Asked, at: OffsetAndTimestamp | None) -> None:
        state = asked.state
        assert state.reset is not None
        if state.reset.before_ms is not None and asked.fallback is None:
            if at is not None:
                self._fallbacks[partition] = replace(asked, fallback=at)
            state.end_wait()  # the second question, for the time itself, is due at once
            return
        self._fallbacks.pop(partition, None)
        found = at or asked.fallback
        if found is None:
            state.end_wait()
            return
        leader = self._leader(partition)
        log.info("%s is reset to offset %d (%s)", partition, found.offset, state.reset.name)
        state.seek(Position(found.offset, -1, leader.leader_id, leader.leader_epoch))

    def _reset_again(self, asked: Mapping[TopicPartition, _Asked], reason: str, now_ms: int) -> None:
        for one in asked.values():
            one.state.wait_until(now_ms + self._backoff.after(1))
        if asked:
            self._metadata.request_update(reason)
