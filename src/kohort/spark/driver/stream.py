"""Drives a streaming query: decides where it starts, how far each micro-batch goes and what is committed when.

Spark runs this in a process of its own and calls it from one thread. `latestOffset(start)` is called at every trigger,
and what is in `start` is durable in the checkpoint by then: that is when the group's offsets are committed. Spark ends
the process with SIGTERM; the last commit and the farewell to the group happen in `stop`.

Which methods Spark calls depends on its version: `admitting_stream` and `remembering_stream` have the readers.
"""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kohort.client.types import TopicPartition
from kohort.spark.driver.planning import Delay, limit, split, step_ranges
from kohort.spark.executor.tasks import RangePartition, RangesReader
from kohort.spark.offsets import Offsets, from_spark, to_json, to_spark
from kohort.spark.options import SourceOptions
from kohort.spark.ranges import DataLoss
from kohort.wire.struct import ZERO_UUID

if TYPE_CHECKING:
    from kohort.client.embedding import PartitionLeader

log = logging.getLogger("kohort.spark")

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


class StreamReader(RangesReader, DataSourceStreamReader):
    """What every Spark calls; it opens a `StreamDriver` with the first question. Executors only call `read`."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._driver: StreamDriver | None = None
        self._guard = Guard()

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "columns": self.columns, "_driver": None, "_guard": Guard()}

    @contextmanager
    def _driving(self) -> Iterator[StreamDriver]:
        with self._guard:
            if self._driver is None:
                write_compact_offsets()
                self._guard.install()
                self._driver = StreamDriver(self.options)
                if is_runner():
                    # A SIGTERM just before Spark's runner calls `stop` would leave a member behind that the group
                    # waits for. Registered now, this runs before what the client has registered for its own end.
                    atexit.register(self.stop)
            yield self._driver

    def initialOffset(self) -> dict[str, Any]:
        with self._driving() as driver:
            return to_spark(driver.initial())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._driving() as driver:
            return driver.tasks(from_spark(start), from_spark(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the `latestOffset` before it has committed these offsets already."""

    def stop(self) -> None:
        """Leaves the group.

        Spark closes the socket, which leads here, and then sends SIGTERM, which must not cut this short.
        """
        with self._guard:
            driver, self._driver = self._driver, None
            if driver is not None:
                driver.close()


class Guard:
    """Delays a SIGTERM until the call under way (or `stop`) is done; between two calls it ends the process at once."""

    def __init__(self) -> None:
        self._depth = 0
        self._terminated = False

    def install(self) -> None:
        if is_runner() and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the end must not be cut short
        if not self._depth:
            raise SystemExit(128 + number)
        self._terminated = True

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._terminated and not self._depth:
            self._terminated = False  # raised once only: `stop` runs after that
            raise SystemExit(128 + signal.SIGTERM)


class StreamDriver:
    """Decides on the offsets of a stream, for the methods of the reader."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        from kohort.spark.driver.offset_resolver import OffsetResolver
        from kohort.spark.driver.query_group import group_for

        self.options, self._clock = options, clock
        self.group = group_for(options)
        self._session = self.group.session
        self._resolver = OffsetResolver(self._session, options)
        self.ends: Offsets = {}
        """The true ends of the logs, as they were last seen."""
        self._leaders: dict[TopicPartition, PartitionLeader] = {}
        self._topic_ids: dict[str, bytes] = {}
        # Topics that were deleted and made anew under this query, with the offsets at which that was seen.
        self._anew: dict[str, Offsets] = {}
        self._initial: Offsets | None = None
        # What of that was chosen by the options, as the group has nothing there, and is not committed yet.
        self._chosen: Offsets = {}
        self._target: Offsets | None = None
        self._closed = False
        self._delay: Delay | None = None
        if options.min_offsets_per_trigger is not None:
            self._delay = Delay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)

    def close(self) -> None:
        """Leaves the group; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self.group.close()

    # --- where it starts --------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """The group's offsets, else those of the options. They are committed before they are used, so that they stay.

        Spark asks twice, when it begins and when it plans the first batch, and has to get the same.
        """
        start = self.resolve_start()
        if self._chosen:
            self.group.commit_start(self._chosen)
            self._chosen = {}
        return start

    def resolve_start(self) -> Offsets:
        """The same, for a query that may not start anew: nothing is committed."""
        if self._initial is None:
            self._look()
            start = self.group.committed(self._leaders)
            missing = [partition for partition in self._leaders if partition not in start]
            if missing:
                chosen = self._resolver.starting(self._leaders)
                self._chosen = {partition: chosen[partition] for partition in missing}
            self._initial = {**start, **self._chosen}
        return self._initial

    def freeze(self) -> None:
        """Fixes the end of an AvailableNow query: nothing after the ends of the logs of this moment is read."""
        self._look()
        self._target = self._session.end_offsets(self._leaders)

    # --- how far it goes --------------------------------------------------------------------------

    def next(self, start: Offsets, *, limited: bool, durable: Offsets | None = None) -> Offsets:
        """The end of the next micro-batch. What is durable by now is committed: `start`, unless that is given."""
        self._look(start)
        self.group.commit(start if durable is None else durable, wait=False)
        self.ends = self._session.end_offsets(self._leaders)
        end = {**self.ends}
        if self._target is not None:
            end = {
                partition: min(at, self._target[partition])
                for partition, at in end.items()
                if partition in self._target
            }
        end = self.group.claim(start, end)
        begin = self._begin_of_new(start, end)
        end = self._back_to_the_beginning(begin, end)
        self._check_loss(start, end)
        if limited and end != start:
            end = self._admitted(begin, start, end)
        end = self.group.plan(end)
        if end == start and self._target is not None:
            self.group.commit(start, wait=True)  # the query ends with this call
        return end

    def _admitted(self, begin: Offsets, start: Offsets, end: Offsets) -> Offsets:
        """Applies the limits: no more than maxOffsetsPerTrigger, and not before there is minOffsetsPerTrigger."""
        delay = self._delay if self._target is None else None
        if delay is not None and delay.holds(begin, end, int(self._clock() * 1000)):
            return start
        if self.options.max_offsets_per_trigger is not None:
            return limit(begin, end, self.options.max_offsets_per_trigger)
        return end

    def _begin_of_new(self, start: Offsets, end: Offsets) -> Offsets:
        """The start, with the partitions that were added since."""
        new = [partition for partition in end if partition not in start]
        return {**start, **self.group.begin_of(new, end)} if new else start

    # --- what became of the topics ----------------------------------------------------------------

    def _look(self, start: Offsets | None = None) -> None:
        """Asks which partitions there are, and notices topics that were deleted and made again."""
        self.group.check()
        self._leaders = self._resolver.partitions()
        self.group.enter({partition.topic for partition in self._leaders})
        for topic, leader in {p.topic: leader for p, leader in self._leaders.items()}.items():
            before = self._topic_ids.setdefault(topic, leader.topic_id)
            of_topic = {p: at for p, at in (start or {}).items() if p.topic == topic}
            if topic in self._anew and of_topic != self._anew[topic]:
                del self._anew[topic]
                before = self._topic_ids[topic] = leader.topic_id
            if start is None or ZERO_UUID in (before, leader.topic_id) or before == leader.topic_id:
                continue
            if topic not in self._anew:
                self._lose(
                    f"the topic {topic} was deleted and made anew (its id was {before.hex()} and is "
                    f"{leader.topic_id.hex()}): what was not read of the old one is gone"
                )
                self._anew[topic] = of_topic

    def _back_to_the_beginning(self, start: Offsets, end: Offsets) -> Offsets:
        """Lets the offsets of topics made anew go back, which means, also when planned again: read from the start."""
        back = dict(end)
        for partition, at in end.items():
            if partition.topic in self._anew and start.get(partition, 0) > 0:
                back[partition] = min(at, start[partition] - 1)
        return back

    def _check_loss(self, start: Offsets, end: Offsets) -> None:
        """Reports losses before Spark writes down offsets that it cannot read."""
        for reason in step_ranges(*self.group.readable(start, end), {}, self._anew, self._leaders).losses:
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLoss(reason)
        log.warning("%s; failOnDataLoss=false: reading goes on", reason)

    # --- tasks ------------------------------------------------------------------------------------

    def tasks(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """The tasks of one micro-batch, also of one that was planned before the driver died."""
        if start == end:
            return []
        if any(partition not in self._leaders for partition in (*start, *end)):
            self._look(start)
        start, end = self.group.readable(start, end)
        new = [partition for partition in end if partition not in start]
        step = step_ranges(start, end, self._session.beginning_offsets(new), self._anew, self._leaders)
        for reason in step.losses:
            self._lose(reason)
        pieces = split(step.ranges, self.options.min_partitions, self.options.max_records_per_partition)
        return [RangePartition(piece, self._leaders[piece.partition]) for piece in pieces]


# --- the process that Spark runs it in ------------------------------------------------------------------


def is_runner() -> bool:
    """Whether this is the process that Spark started for the source alone."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == RUNNER


def write_compact_offsets() -> None:
    """Makes Spark's runner write offsets as its Kafka connector does, without blanks.

    Spark compares the texts of offsets. Otherwise a checkpoint that the connector has written would seem to have moved
    when a query goes on from it, and the other way round.
    """
    main = sys.modules.get("__main__")
    runner = getattr(main, "json", None)
    if main is not None and is_runner() and not isinstance(runner, SimpleNamespace) and runner is not None:
        plain = runner.dumps

        def dumps(value: Any) -> str:
            try:
                return to_json(from_spark(value))
            except ValueError:
                return str(plain(value))  # a read limit

        main.json = SimpleNamespace(loads=runner.loads, dumps=dumps)  # type: ignore[attr-defined]
