"""Finds the partitions and offsets that the options of a query mean, by asking the cluster."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from kohort.client.embedding import Cluster, ClusterSession, PartitionLeader
from kohort.client.types import TopicPartition
from kohort.spark.driver.planning import check_named
from kohort.spark.offsets import Offsets
from kohort.spark.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    AtOffsets,
    AtTimes,
    Edge,
    OffsetSpec,
    SourceOptions,
    Strategy,
    Subscribe,
    SubscribePattern,
)
from kohort.wire.errors import ErrorCode, KafkaError

log = logging.getLogger("kohort.spark")

T = TypeVar("T")


class OffsetResolver:
    """Answers with what the cluster says now; topics and records that are about to appear are asked for again."""

    def __init__(self, session: ClusterSession, options: SourceOptions) -> None:
        self._session, self._options = session, options

    # --- partitions -------------------------------------------------------------------------------

    def partitions(self) -> dict[TopicPartition, PartitionLeader]:
        """What a query reads now, in order. A topic that is named and does not exist is a KafkaError with its name.

        Topics and partitions that the conditions of the query exclude are not asked for.
        """
        strategy, restriction = self._options.strategy, self._options.wanted
        if restriction.is_nothing or self._named_topics(strategy) == frozenset():
            return {}
        snapshot = self._retried(lambda: self._look_up(strategy))
        wanted: Collection[str] = snapshot.topics
        if not isinstance(strategy, (Subscribe, Assign)):
            pattern = re.compile(strategy.pattern)
            wanted = [
                name
                for name, topic in snapshot.topics.items()
                if pattern.search(name) and not topic.is_internal
            ]
        found = {
            partition: leader
            for topic in sorted(wanted)
            for partition in snapshot.partitions_of(topic)
            if restriction.admits(partition.topic, partition.partition)
            and (leader := PartitionLeader.of(snapshot, partition)) is not None
        }
        if isinstance(strategy, Assign):
            assigned = [p for p in strategy.partitions if restriction.admits(p.topic, p.partition)]
            missing = [str(partition) for partition in assigned if partition not in found]
            if missing:
                log.warning("assign: there is no %s; it is left out", ", ".join(missing))
            found = {p: leader for p, leader in found.items() if p in assigned}
        return found

    def _named_topics(self, strategy: Strategy) -> frozenset[str] | None:
        """The topics to ask for, as far as options and conditions name them; None if all of them may be wanted."""
        if isinstance(strategy, SubscribePattern):
            return self._options.wanted.topic_names()
        named = (
            strategy.topics
            if isinstance(strategy, Subscribe)
            else (each.topic for each in strategy.partitions)
        )
        return frozenset(name for name in named if self._options.wanted.admits_topic(name))

    def _look_up(self, strategy: Strategy) -> Cluster:
        topics = self._named_topics(strategy)
        snapshot = self._session.look_up(topics)
        if isinstance(strategy, SubscribePattern):
            return snapshot
        for topic in sorted(topics or ()):
            if topic not in snapshot.topics:
                code = snapshot.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                raise _NoTopic(code, topic)
        return snapshot

    # --- offsets ----------------------------------------------------------------------------------

    def starting(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where the options say that these partitions are read from."""
        return self._resolve(self._options.starting, partitions, ending=False)

    def ending(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where the options say that reading ends."""
        return self._resolve(self._options.ending, partitions, ending=True)

    def _resolve(self, spec: OffsetSpec, partitions: Collection[TopicPartition], *, ending: bool) -> Offsets:
        if not partitions:
            return {}
        if spec is Edge.EARLIEST:
            return self._session.beginning_offsets(partitions)
        if spec is Edge.LATEST:
            return self._session.end_offsets(partitions)
        if isinstance(spec, AtOffsets):
            return self._at_offsets(spec.offsets, partitions, "end" if ending else "start")
        assert isinstance(spec, AtTimes)
        return self._at_times(spec, partitions, ending)

    def _at_offsets(self, offsets: Offsets, partitions: Collection[TopicPartition], what: str) -> Offsets:
        offsets = self._wanted_of(offsets)
        check_named(what, offsets, partitions)
        first = self._session.beginning_offsets(
            [p for p, offset in offsets.items() if offset == EARLIEST_OFFSET]
        )
        last = self._session.end_offsets([p for p, offset in offsets.items() if offset == LATEST_OFFSET])
        return {**offsets, **first, **last}

    def at_times(
        self, time_ms: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The first record at or after a time in each partition; None where there is none yet."""
        if not partitions:
            return {}
        found = self._session.offsets_for_times(dict.fromkeys(partitions, time_ms))
        return {partition: None if at is None else at.offset for partition, at in found.items()}

    def _wanted_of(self, named: Offsets) -> Offsets:
        """A user names all partitions, whichever of them the conditions leave."""
        wanted = self._options.wanted
        return {p: value for p, value in named.items() if wanted.admits(p.topic, p.partition)}

    def _at_times(self, spec: AtTimes, partitions: Collection[TopicPartition], ending: bool) -> Offsets:
        times: dict[tuple[str, int], int]
        if spec.common is not None:
            times = dict.fromkeys(partitions, spec.common)
        else:
            named = self._wanted_of(spec.by_partition)
            check_named("end" if ending else "start", named, partitions)
            times = dict(named.items())
        may_miss = ending or self._options.latest_without_match

        def ask() -> Offsets:
            found = self._session.offsets_for_times(times)
            missing = sorted(partition for partition, at in found.items() if at is None)
            if missing and not may_miss:
                raise _NoMatch(
                    f"No offset matched from request of topic-partition {missing[0]} and timestamp "
                    f"{times[missing[0]]}. Set startingOffsetsByTimestampStrategy to latest to begin at the end there."
                )
            offsets = {partition: at.offset for partition, at in found.items() if at is not None}
            return {**offsets, **self._session.end_offsets(missing)}

        return self._retried(ask)

    def _retried(self, ask: Callable[[], T]) -> T:
        """Asks several times before it gives up: what is not there may be about to be created."""
        for left in range(max(0, self._options.offset_retries - 1), -1, -1):
            try:
                return ask()
            except (_NoMatch, _NoTopic):
                if not left:
                    raise
            time.sleep(self._options.offset_retry_interval_ms / 1000)
        raise AssertionError("asked at least once")


class _NoTopic(KafkaError):
    def __init__(self, code: ErrorCode, topic: str) -> None:
        what = f"topic '{topic}'"
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            what = (
                "UnknownTopicOrPartitionException: This server does not host this topic-partition. "
                f"There is no topic '{topic}'; reading does not create it"
            )
        super().__init__(code, what)


class _NoMatch(ValueError):
    """No record at or after the time that was asked for."""
