"""What the driver asks a cluster: which partitions there are, where they begin and end, what was written when.

`Cluster` holds the connections, for the driver of a query and (without a group) for a worker; nothing is asked before
it is needed. Calls may come from several threads.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from kohort.client.config import CONSUMER, read_config
from kohort.client.consume.calls import ConsumerCalls
from kohort.client.consumer import build_core
from kohort.client.core.cluster import Cluster as Snapshot
from kohort.client.core.operation import Operation
from kohort.client.core.steps import Steps, Until
from kohort.client.io.driving import deadline_after, run_steps
from kohort.client.io.engine import Engine
from kohort.client.types import TopicPartition
from kohort.spark.driver.offsets import Offsets
from kohort.spark.driver.planning import Leader, check_named
from kohort.spark.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    AtOffsets,
    AtTimes,
    Edge,
    Place,
    SourceOptions,
    Strategy,
    Subscribe,
)
from kohort.wire.errors import ErrorCode, KafkaError

log = logging.getLogger("kohort.spark")

T = TypeVar("T")

# What the source decides, whatever a user's settings may say.
FIXED = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": "false",
}
ASSIGNORS = "partition.assignment.strategy"
OF_THE_GROUP = ("group.id", "group.instance.id", ASSIGNORS)


def settings_without_group(kafka: Mapping[str, str]) -> dict[str, str]:
    """The settings of somebody who reads but is no member: workers, and queries without a group."""
    return {name: value for name, value in kafka.items() if name not in OF_THE_GROUP}


class Cluster:
    def __init__(self, settings: Mapping[str, str], options: SourceOptions) -> None:
        self.options = options
        self.config, objects = read_config(CONSUMER, {**settings, **FIXED}, {}, (ASSIGNORS,))
        self.engine = Engine(self.config)
        self.core = build_core(self.config, objects, self.engine)
        self.calls = ConsumerCalls(self.core, self.engine.now_ms)
        self.calls.obstacle = lambda: self.engine.network.last_error

    def close(self) -> None:
        self.engine.close()

    def run(self, steps: Steps[T], *, wakeable: bool = True) -> T:
        return run_steps(self.engine, steps, wakeable=wakeable)

    def deadline(self, timeout_s: float | None = None) -> int:
        return deadline_after(self.engine, self.config, timeout_s)

    # --- partitions -------------------------------------------------------------------------------

    def partitions(self, strategy: Strategy) -> dict[TopicPartition, Leader]:
        """What a query reads now, in order. A topic that is named and does not exist is a KafkaError with its name."""
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
            partition: self._leader(snapshot, partition)
            for topic in sorted(wanted)
            for partition in snapshot.partitions_of(topic)
        }
        if isinstance(strategy, Assign):
            missing = [str(partition) for partition in strategy.partitions if partition not in found]
            if missing:
                log.warning("assign: there is no %s; it is left out", ", ".join(missing))
            found = {p: leader for p, leader in found.items() if p in strategy.partitions}
        return found

    def _look_up(self, strategy: Strategy) -> Snapshot:
        topics: frozenset[str] | None = None
        if isinstance(strategy, Subscribe):
            topics = frozenset(strategy.topics)
        elif isinstance(strategy, Assign):
            topics = frozenset(partition.topic for partition in strategy.partitions)
        snapshot = self.look_up(topics)
        for topic in sorted(topics or ()):
            if topic not in snapshot.topics:
                code = snapshot.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                raise _NotThere(code, topic)
        return snapshot

    def look_up(self, topics: frozenset[str] | None) -> Snapshot:
        """Asks the cluster now."""
        deadline_ms = self.deadline()

        def steps() -> Steps[Snapshot]:
            operation: Operation[Snapshot] = self.core.metadata.look_up(
                topics, self.engine.now_ms(), deadline_ms
            )
            yield Until(lambda: operation.done, deadline_ms)
            return operation.value()

        return self.run(steps())

    def _leader(self, snapshot: Snapshot, partition: TopicPartition) -> Leader:
        topic = snapshot.topics[partition.topic]
        info = topic.partitions[partition.partition]
        return Leader(topic.topic_id, snapshot.nodes.get(info.leader_id), info.leader_epoch)

    # --- offsets ----------------------------------------------------------------------------------

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        if not partitions:
            return {}
        return self.run(self.calls.beginning_offsets(partitions, self.deadline()))

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The ends of the logs; with read_committed, of what is committed."""
        if not partitions:
            return {}
        return self.run(self.calls.end_offsets(partitions, self.deadline()))

    def at(self, place: Place, partitions: Collection[TopicPartition], *, ending: bool = False) -> Offsets:
        """The offsets that an option means, of all these partitions."""
        if not partitions:
            return {}
        if place is Edge.EARLIEST:
            return self.earliest(partitions)
        if place is Edge.LATEST:
            return self.latest(partitions)
        if isinstance(place, AtOffsets):
            return self._at_offsets(place.offsets, partitions, "end" if ending else "start")
        assert isinstance(place, AtTimes)
        return self._at_times(place, partitions, ending)

    def _at_offsets(self, offsets: Offsets, partitions: Collection[TopicPartition], what: str) -> Offsets:
        check_named(what, offsets, partitions)
        first = self.earliest([p for p, offset in offsets.items() if offset == EARLIEST_OFFSET])
        last = self.latest([p for p, offset in offsets.items() if offset == LATEST_OFFSET])
        return {**offsets, **first, **last}

    def _at_times(self, place: AtTimes, partitions: Collection[TopicPartition], ending: bool) -> Offsets:
        times: dict[tuple[str, int], int]
        if place.common is not None:
            times = dict.fromkeys(partitions, place.common)
        else:
            check_named("end" if ending else "start", place.by_partition, partitions)
            times = dict(place.by_partition.items())
        may_miss = ending or self.options.latest_without_match

        def ask() -> Offsets:
            found = self.run(self.calls.offsets_for_times(times, self.deadline()))
            missing = sorted(partition for partition, at in found.items() if at is None)
            if missing and not may_miss:
                raise _NoMatch(
                    f"No offset matched from request of topic-partition {missing[0]} and timestamp "
                    f"{times[missing[0]]}. Set startingOffsetsByTimestampStrategy to latest to begin at the end there."
                )
            offsets = {partition: at.offset for partition, at in found.items() if at is not None}
            return {**offsets, **self.latest(missing)}

        return self._retried(ask)

    def _retried(self, ask: Callable[[], T]) -> T:
        """What is not there may be about to be made: asks some times before it gives up."""
        for left in range(max(0, self.options.offset_retries - 1), -1, -1):
            try:
                return ask()
            except (_NoMatch, _NotThere):
                if not left:
                    raise
            time.sleep(self.options.offset_retry_interval_ms / 1000)
        raise AssertionError("asked at least once")


class _NotThere(KafkaError):
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
