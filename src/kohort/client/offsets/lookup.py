"""Looks up offsets by time at the leaders of any partitions, until all are found or the time is up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import NO_NODE, Cluster, PartitionInfo
from kohort.client.core.effects import Answer, Lane, Outbox, Send
from kohort.client.core.offset_reset import LATEST_TIMESTAMP
from kohort.client.core.operation import Operation
from kohort.client.errors import AuthorizationFailed, TimedOut, error_for, error_for_failure
from kohort.client.offsets.offset_requests import as_partition, list_offsets, listed_offsets, names
from kohort.client.offsets.subscription import SubscriptionState
from kohort.client.types import OffsetAndTimestamp, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.list_offsets import ListOffsetsRequest

log = logging.getLogger("kohort.client.positions")

FoundOffsets = dict[TopicPartition, OffsetAndTimestamp | None]


class MetadataSource(Protocol):
    """What is used of `Metadata`."""

    @property
    def cluster(self) -> Cluster: ...
    def request_update(self, reason: str) -> None: ...
    def look_up(self, topics: frozenset[str] | None, now_ms: int, deadline_ms: int) -> Operation[Cluster]: ...


def not_allowed(partitions: Iterable[TopicPartition], to: str) -> AuthorizationFailed:
    topics = ", ".join(sorted({partition.topic for partition in partitions}))
    return AuthorizationFailed(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"not allowed to {to} of the topics {topics}: it needs DESCRIBE on them",
    )


def list_offsets_send(
    node_id: int,
    times: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, PartitionInfo],
    config: ConsumerConfig,
    purpose: str,
    on_answer: Callable[[Answer, int], None],
    lane: Lane = Lane.DATA,
) -> Send:
    make = list_offsets(
        times,
        {partition: leaders[partition].leader_epoch for partition in times},
        read_committed=config.isolation_level == "read_committed",
        timeout_ms=config.request_timeout_ms,
    )
    return Send(
        node_id,
        ListOffsetsRequest.API_KEY,
        make,
        purpose,
        config.request_timeout_ms,
        lane,
        on_answer=on_answer,
    )


@dataclass(slots=True, eq=False)
class _LookUp:
    times: dict[TopicPartition, int]
    operation: Operation[FoundOffsets]
    deadline_ms: int
    found: FoundOffsets = field(default_factory=dict)
    asked: set[TopicPartition] = field(default_factory=set)
    """The partitions whose answers are awaited."""
    others: Operation[Cluster] | None = None
    """Metadata of topics that the consumer does not read."""
    elsewhere: Cluster = field(default_factory=Cluster)
    failures: int = 0
    retry_at_ms: int = 0
    obstacle: str = ""

    @property
    def open(self) -> list[TopicPartition]:
        """The partitions that must still be asked for."""
        return [p for p in self.times if p not in self.found and p not in self.asked]


class OffsetLookup:
    """The look-ups that are under way; a part of positions.py."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        metadata: MetadataSource,
        jitter: Jitter,
        lane: Callable[[], Lane],
    ) -> None:
        self._out, self._config, self._subscription, self._metadata = out, config, subscription, metadata
        self._lane = lane
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._look_ups: list[_LookUp] = []

    def look_up(self, times: Mapping[TopicPartition, int], deadline_ms: int) -> Operation[FoundOffsets]:
        operation: Operation[FoundOffsets] = Operation(deadline_ms)
        wanted = {as_partition(partition): time for partition, time in times.items()}
        if wanted:
            self._look_ups.append(_LookUp(wanted, operation, deadline_ms))
        else:
            operation.finish({})
        return operation

    def tick(self, now_ms: int) -> None:
        for one in self._look_ups:
            if now_ms >= one.deadline_ms:
                missing = [p for p in one.times if p not in one.found]
                why = one.obstacle or ("no answer yet" if one.asked else "no metadata yet")
                one.operation.fail(TimedOut(f"the offsets of {names(missing)} were not found in time: {why}"))
        self._look_ups = [one for one in self._look_ups if not one.operation.done]
        for one in self._look_ups:
            if now_ms >= one.retry_at_ms:
                one.retry_at_ms = 0
                self._ask(one, now_ms)

    def _ask(self, one: _LookUp, now_ms: int) -> None:
        unknown = self._ask_leaders(one)
        if unknown:
            self._find_leaders(one, unknown, now_ms)

    def _ask_leaders(self, one: _LookUp) -> list[TopicPartition]:
        """Asks the leaders that are known; returns the partitions of the others."""
        by_node: dict[int, dict[TopicPartition, int]] = {}
        leaders: dict[TopicPartition, PartitionInfo] = {}
        unknown: list[TopicPartition] = []
        for partition in one.open:
            info = self._metadata.cluster.partition(partition) or one.elsewhere.partition(partition)
            if info is None or info.leader_id == NO_NODE:
                unknown.append(partition)
                continue
            leaders[partition] = info
            by_node.setdefault(info.leader_id, {})[partition] = one.times[partition]
        for node_id, times in by_node.items():
            one.asked.update(times)
            on_answer, lane = partial(self._answered, one, times), self._lane()
            self._out.append(
                list_offsets_send(node_id, times, leaders, self._config, "positions.list", on_answer, lane)
            )
        return unknown

    def _find_leaders(self, one: _LookUp, partitions: list[TopicPartition], now_ms: int) -> None:
        if one.others is not None and not one.others.done:
            return
        if one.others is None:
            topics = frozenset(partition.topic for partition in partitions)
            one.others = self._metadata.look_up(topics, now_ms, one.deadline_ms)
            return
        others, one.others = one.others, None
        cluster = others.result or Cluster()
        forbidden = [
            p for p in partitions if cluster.errors.get(p.topic) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]
        if forbidden:
            one.operation.fail(not_allowed(forbidden, "look up the offsets"))
        elif others.error is not None and not isinstance(others.error, TimedOut):
            one.operation.fail(others.error)
        elif any(cluster.leader_of(p) != NO_NODE for p in partitions):
            one.elsewhere = cluster
            self._ask_leaders(one)
            self._again(one, f"not all leaders of {names(partitions)} are known", now_ms)
        else:
            self._again(one, f"no leader of {names(partitions)} is known: do these partitions exist?", now_ms)

    def _answered(self, one: _LookUp, times: dict[TopicPartition, int], answer: Answer, now_ms: int) -> None:
        one.asked -= times.keys()
        if answer.failure is not None:
            error = error_for_failure(answer.failure, f"looking up the offsets of {names(times)}")
            if answer.failure.is_retriable:
                self._leaders_are_old(one, str(error), now_ms)
            else:
                one.operation.fail(error)
            return
        refused: dict[TopicPartition, ErrorCode] = {}
        for partition, (code, at) in listed_offsets(answer.response, times).items():
            if code is ErrorCode.NONE or code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                one.found[partition] = at
                self._learn_end(partition, times[partition], at, now_ms)
            else:
                refused[partition] = code
        self._judge(one, refused, now_ms)

    def _judge(self, one: _LookUp, refused: dict[TopicPartition, ErrorCode], now_ms: int) -> None:
        forbidden = [p for p, code in refused.items() if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        unsupported = [p for p, code in refused.items() if code is ErrorCode.UNSUPPORTED_VERSION]
        if forbidden:
            one.operation.fail(not_allowed(forbidden, "look up the offsets"))
        elif unsupported:
            one.operation.fail(
                error_for(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the broker cannot find such offsets of {names(unsupported)}",
                )
            )
        elif refused:
            code = next(iter(refused.values()))
            self._leaders_are_old(one, f"{names(refused)} answered with {code.name}", now_ms)
        elif len(one.found) == len(one.times):
            one.operation.finish(one.found)

    def _leaders_are_old(self, one: _LookUp, obstacle: str, now_ms: int) -> None:
        one.elsewhere = Cluster()
        self._metadata.request_update(obstacle)
        self._again(one, obstacle, now_ms)

    def _again(self, one: _LookUp, obstacle: str, now_ms: int) -> None:
        one.failures += 1
        one.obstacle = obstacle
        one.retry_at_ms = now_ms + self._backoff.after(one.failures)

    def _learn_end(
        self, partition: TopicPartition, time: int, at: OffsetAndTimestamp | None, now_ms: int
    ) -> None:
        """Keeps the end of the log with the state of an assigned partition."""
        state = self._subscription.partitions.get(partition)
        if state is not None and at is not None and time == LATEST_TIMESTAMP:
            read_committed = self._config.isolation_level == "read_committed"
            state.learn_end_offset(at.offset, now_ms, read_committed=read_committed)

    def next_deadline_ms(self) -> int | None:
        times = [one.deadline_ms for one in self._look_ups]
        times += [one.retry_at_ms for one in self._look_ups if one.retry_at_ms]
        return min(times, default=None)
