"""The blocking consumer; consume/calls.py says what its calls do, this module how a thread waits for them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kohort.client.config import CONSUMER, SECURITY_OBJECTS, ConsumerConfig, read_config
from kohort.client.consume.calls import ConsumerCalls
from kohort.client.consume.consumer_core import DEFAULT_ASSIGNORS, ConsumerCore
from kohort.client.consume.interceptors import Interceptors
from kohort.client.consume.iteration import Iteration
from kohort.client.core import arguments
from kohort.client.core.steps import Steps, T
from kohort.client.errors import ClosedClient, ConcurrentUse, WrongArgument
from kohort.client.group.assignors import load_assignors
from kohort.client.group.rebalance_listener import RebalanceCallback, RebalanceListener
from kohort.client.io.driving import deadline_after, run_steps
from kohort.client.io.engine import Engine
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.member_ids import new_member_id
from kohort.client.io.tls import security_for
from kohort.client.offsets.offset_requests import Offsets
from kohort.client.records import Deserializer, K, Record, Records, V
from kohort.client.types import (
    ByPartition,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Partitions,
    SubscriptionPattern,
    TopicPartition,
)
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    import pyarrow

    from kohort.client.io.async_engine import AsyncEngine
    from kohort.client.keywords import ConsumerKeywords

OBJECTS = (
    "key.deserializer",
    "value.deserializer",
    "interceptors",
    "partition.assignment.strategy",
    *SECURITY_OBJECTS,
)

Polled = dict[TopicPartition, Records[K, V]]
OffsetMap = ByPartition[int | OffsetAndMetadata]


def build_core(
    config: ConsumerConfig, objects: Mapping[str, Any], engine: Engine | AsyncEngine
) -> ConsumerCore:
    """Makes the parts of a consumer and hands them to the engine, which is closed if they do not fit."""
    strategy = objects.get("partition.assignment.strategy", DEFAULT_ASSIGNORS)
    if not isinstance(strategy, (str, list, tuple)):
        strategy = [strategy]
    try:
        core = ConsumerCore(
            config,
            engine.jitter,
            load_assignors(strategy),
            engine.out,
            engine.metadata,
            member_id=new_member_id(),
        )
        core.deserialize_with(objects.get("key.deserializer"), objects.get("value.deserializer"))
    except BaseException:
        engine.close()
        raise
    engine.add(core)
    return core


def with_deserializers(
    keywords: ConsumerKeywords, key: Deserializer[Any] | None, value: Deserializer[Any] | None
) -> dict[str, object]:
    """Returns all keywords; those that give a consumer its types are apart in its signature."""
    deserializers = {"key_deserializer": key, "value_deserializer": value}
    return {**keywords, **{name: each for name, each in deserializers.items() if each is not None}}


class Consumer(MeasuredClient, Generic[K, V]):
    """Reads topics, alone or as a member of a group. For one thread at a time; only `wakeup` may come from another.

    with Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "orders"}) as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.topic, record.partition, record.offset, record.key, record.value)

    Settings have Kafka's names, in a dict or as keywords (`group_id="orders"`). Besides these there are
    `key.deserializer` and `value.deserializer` (callables of topic and bytes), `interceptors` (objects with
    `on_consume(records)` or `on_commit(offsets)`) and `partition.assignment.strategy` (names or classes of assignors).
    All timeouts are in seconds.
    """

    _engine: Engine

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None:
        given = with_deserializers(keywords, key_deserializer, value_deserializer)
        self._config, objects = read_config(CONSUMER, settings, given, OBJECTS)
        interceptors = Interceptors(objects.get("interceptors", ()))
        self._engine = Engine(self._config, security=security_for(self._config, objects))
        self._core = build_core(self._config, objects, self._engine)
        self._calls = ConsumerCalls(
            self._core, self._engine.now_ms, interceptors, lambda: self._engine.network.last_error
        )
        self._engine.measure(self._calls.metric_sources)
        self._iteration = Iteration(self._core.subscription)
        self._owner: dict[str, int] = {}  # the thread inside; setdefault looks and takes it in one step
        self._depth = 0
        self._closed = False
        self._pid = os.getpid()
        if self._config.group_id is not None:
            self._engine.start_background(f"kohort-heartbeat-{self._config.group_id}")

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        group = f" of {self._config.group_id}" if self._config.group_id is not None else ""
        return f"<Consumer {self._config.client_id}{group}, {len(self._core.subscription.partitions)} partitions>"

    # --- what to read ---------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        *,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Joins the group for these topics, or for all that match a compiled pattern, with the next `poll`.

        With `group.protocol=consumer` a `SubscriptionPattern` has the broker match.

        The callbacks get a list of partitions and run in the thread that polls: `on_revoked` before partitions go to
        others (commit there), `on_lost` when they are gone already, `on_assigned` with what is new (seek there).

        consumer.subscribe(re.compile("orders-.*"), on_revoked=lambda partitions: consumer.commit())
        """
        self._run(self._calls.subscribe(topics, RebalanceListener(on_assigned, on_revoked, on_lost)))

    def assign(self, *partitions: Partitions) -> None:
        """Reads these partitions without a group's help: `consumer.assign([("orders", 0)])`.

        One by one or in lists, as wherever partitions are named. An empty list is `unsubscribe`.
        """
        if not partitions:
            raise WrongArgument(
                'assign() needs partitions, as in assign([("orders", 0)]); for none, unsubscribe()'
            )
        self._run(self._calls.assign(partitions))

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        self._run(self._calls.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Returns the topics that are subscribed to; for a pattern, those that it matches now."""
        return self._core.subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the partitions that this consumer reads now."""
        return self._calls.assignment()

    # --- records --------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> Polled[K, V]:
        """Returns records by partition as soon as there are any; nothing if none came in time. Keeps the membership.

        for partition, records in consumer.poll(1.0).items():
            for record in records: ...
        """
        limit = arguments.limit(max_records, self._config.max_poll_records)
        empty: Polled[K, V] = {}
        take = self._core.take
        steps = self._calls.poll(self._deadline(timeout), lambda now_ms: take(limit, now_ms), empty)
        return self._take(steps, self._calls.intercept if self._calls.intercepts else None)

    def poll_arrow(
        self,
        timeout: float = 1.0,
        max_records: int | None = None,
        columns: tuple[str, ...] | None = None,
        *,
        binary_view: bool = False,
    ) -> pyarrow.RecordBatch | None:
        """Returns records as one pyarrow RecordBatch, without an object per record; None if nothing came in time.

        batch = consumer.poll_arrow(1.0, max_records=100_000, columns=("value", "offset"))

        With `binary_view`, key and value have Arrow's type of that name instead of binary: nothing is copied, and the
        batch keeps the fetched bytes as long as it lives. Not everything reads that type yet.
        """
        most = None if max_records is None else arguments.limit(max_records, 1)
        take = partial(
            self._core.fetcher.take_arrow, most, arguments.columns(columns), binary_view=binary_view
        )
        return self._take(self._calls.poll(self._deadline(timeout), take, None))

    def __iter__(self) -> Generator[Record[K, V], None, None]:
        """Yields records one by one, without end. What was not given out yet is not committed, and is read again."""
        return self._iteration.over(lambda: self.poll(1.0))

    # --- positions ------------------------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Makes the record at `offset` the next one of this partition."""
        at = arguments.offset(offset, "the offset to seek to")
        self._iteration.drop(arguments.partition(partition))
        self._run(self._calls.seek(partition, at), pump=False)

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Goes to the first record of these partitions, or of all that are assigned, with the next poll."""
        named = arguments.partitions(partitions)
        self._iteration.drop(*named)
        self._run(self._calls.seek_to_beginning(named), pump=False)

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Goes behind the last record of these partitions, or of all that are assigned, with the next poll."""
        named = arguments.partitions(partitions)
        self._iteration.drop(*named)
        self._run(self._calls.seek_to_end(named), pump=False)

    def position(self, partition: tuple[str, int], timeout: float | None = None) -> int:
        """Returns the offset of the next record to be returned."""
        return self._run(self._calls.position(partition, self._deadline(timeout)))

    def pause(self, *partitions: Partitions) -> None:
        """Has `poll` return nothing of these until `resume`; what is fetched already is kept."""
        self._run(self._calls.pause(partitions, True), pump=False)

    def resume(self, *partitions: Partitions) -> None:
        """Has `poll` return records of these again."""
        self._run(self._calls.pause(partitions, False), pump=False)

    def paused(self) -> frozenset[TopicPartition]:
        """Returns the partitions that are paused."""
        return frozenset(p for p, state in self._core.subscription.partitions.items() if state.paused)

    # --- commits --------------------------------------------------------------------------------------

    def commit(self, offsets: OffsetMap | None = None, timeout: float | None = None) -> None:
        """Commits the positions after all records returned so far, or these offsets; returns when it is done.

        consumer.commit({("orders", 0): OffsetAndMetadata(42, "checked")})
        """
        self._run(self._calls.commit(offsets, self._deadline(timeout)))

    def commit_async(
        self,
        offsets: OffsetMap | None = None,
        callback: Callable[[Offsets, Exception | None], Any] | None = None,
    ) -> None:
        """Begins a commit; `callback(offsets, error)` is called by a later `poll`, `commit` or `close`."""
        self._run(self._calls.commit_async(offsets, callback))

    def committed(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns what the group has committed for these partitions; None where there is nothing."""
        return self._run(self._calls.committed(partitions, self._deadline(timeout)))

    # --- looking things up ----------------------------------------------------------------------------

    def offsets_for_times(
        self, times: ByPartition[int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Finds the first record of each partition at or after a time (ms since 1970); None if there is none."""
        return self._run(self._calls.offsets_for_times(times, self._deadline(timeout)))

    def beginning_offsets(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._run(self._calls.beginning_offsets(partitions, self._deadline(timeout)))

    def end_offsets(self, *partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Returns where the next record will be written (with `read_committed`: the end of what is committed)."""
        return self._run(self._calls.end_offsets(partitions, self._deadline(timeout)))

    def lag(self, *partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Returns how far positions are behind the ends of their logs; for all partitions if none are named."""
        return self._run(self._calls.lag(partitions or None, self._deadline(timeout)))

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """Returns the partitions of a topic; none if there is no such topic."""
        return self._run(self._calls.partitions_for(topic, self._deadline(timeout)))

    def list_topics(self, timeout: float | None = None) -> dict[str, tuple[TopicPartition, ...]]:
        """Returns all topics that this client may see, with their partitions."""
        return self._run(self._calls.list_topics(self._deadline(timeout)))

    # --- the group ------------------------------------------------------------------------------------

    def enforce_rebalance(self, reason: str = "") -> None:
        """Makes the group rebalance with the next poll; the broker is told the reason."""
        self._run(self._calls.enforce_rebalance(reason))

    def group_metadata(self) -> GroupMetadata:
        """Returns group, generation, member id and instance id, as they are now."""
        return self._calls.group_metadata()

    # --- the end --------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Makes the call that waits now, or the next one that would, raise Wakeup. From any thread."""
        self._engine.wakeup()

    def close(self, timeout: float = 30.0) -> None:
        """Commits if `enable.auto.commit`, gives the partitions back, leaves the group; bounded by the timeout."""
        if self._closed:
            return
        if os.getpid() != self._pid:
            self._closed = True
            return  # the parent's connections are not ours to use
        deadline_ms = self._deadline(timeout)  # a wrong one leaves the consumer open
        with self._one_thread():
            self._iteration.end()
            try:
                run_steps(self._engine, self._calls.close(deadline_ms), wakeable=False)
            finally:
                self._closed = True
                self._engine.close()

    # --- how this front waits ---------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> int:
        return deadline_after(self._engine, self._config, timeout)

    def _run(self, steps: Steps[T], *, pump: bool = True) -> T:
        with self._one_thread():
            return run_steps(self._engine, steps, pump=pump)

    def _take(self, steps: Steps[T], finish: Callable[[T], T] | None = None) -> T:
        """Runs a poll. If the handler of a signal raises before it returns, the next poll returns its records."""
        try:
            taken = self._run(steps)
            return finish(taken) if finish is not None and taken else taken
        except KohortError:
            raise
        except BaseException:
            self._calls.give_back()
            raise

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """Guards the consumer: a callback may call it again, another thread may not."""
        if self._closed:
            raise ClosedClient("this consumer is closed")
        if os.getpid() != self._pid:
            raise ClosedClient("this consumer belongs to the parent process: make a new one after a fork")
        me = threading.get_ident()
        if self._owner.setdefault("thread", me) != me:
            raise ConcurrentUse(
                "another thread is using this consumer: a consumer is for one thread at a time "
                "(only wakeup() may come from another one)"
            )
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._owner.clear()
