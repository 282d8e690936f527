"""The consumer for asyncio; consume/calls.py says what its calls do, this module how a task waits for them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kohort.client.config import CONSUMER, read_config
from kohort.client.consume.calls import ConsumerCalls
from kohort.client.consume.interceptors import Interceptors
from kohort.client.consume.iteration import Iteration
from kohort.client.consumer import OBJECTS, OffsetMap, Polled, build_core, with_deserializers
from kohort.client.core import arguments
from kohort.client.core.steps import Steps, T
from kohort.client.errors import ClosedClient, ConcurrentUse, Wakeup, WrongArgument
from kohort.client.group.rebalance_listener import RebalanceCallback, RebalanceListener
from kohort.client.io.async_engine import AsyncEngine
from kohort.client.io.driving import deadline_after, run_steps_async
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.tls import security_for
from kohort.client.offsets.offset_requests import Offsets
from kohort.client.records import Deserializer, K, Record, V
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

    from kohort.client.keywords import ConsumerKeywords


class AsyncConsumer(MeasuredClient, Generic[K, V]):
    """Reads topics, alone or as a member of a group, on the event loop in which it is made.

    async with AsyncConsumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "orders"}) as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.topic, record.partition, record.offset, record.key, record.value)

    The same calls and settings as `Consumer`; those that wait are coroutines. Rebalance callbacks may be coroutine
    functions. Heartbeats are sent by the event loop: code that blocks the loop for longer than `session.timeout.ms`
    loses the partitions. For one task at a time; only `wakeup` may come from another. All timeouts are in seconds.
    """

    _engine: AsyncEngine

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
        self._engine = AsyncEngine(self._config, security=security_for(self._config, objects))
        self._core = build_core(self._config, objects, self._engine)
        self._calls = ConsumerCalls(
            self._core, self._engine.now_ms, interceptors, lambda: self._engine.network.last_error
        )
        self._engine.measure(self._calls.metric_sources)
        self._iteration = Iteration(self._core.subscription)
        self._owner: asyncio.Task[Any] | None = None
        self._depth = 0
        self._closed = False
        self._closer: asyncio.Task[Any] | None = None
        self._pid = os.getpid()

    async def __aenter__(self) -> AsyncConsumer[K, V]:
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        group = f" of {self._config.group_id}" if self._config.group_id is not None else ""
        return f"<AsyncConsumer {self._config.client_id}{group}, {len(self._core.subscription.partitions)} partitions>"

    # --- what to read ---------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        *,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Joins the group for these topics, or for all that match a compiled pattern, with the next `poll`.

        With `group.protocol=consumer` a `SubscriptionPattern` has the broker match.

        await consumer.subscribe(re.compile("orders-.*"), on_revoked=my_coroutine_function)
        """
        await self._run(self._calls.subscribe(topics, RebalanceListener(on_assigned, on_revoked, on_lost)))

    async def assign(self, *partitions: Partitions) -> None:
        """Reads these partitions without a group's help: `await consumer.assign([("orders", 0)])`.

        One by one or in lists, as wherever partitions are named. An empty list is `unsubscribe`.
        """
        if not partitions:
            raise WrongArgument(
                'assign() needs partitions, as in assign([("orders", 0)]); for none, unsubscribe()'
            )
        await self._run(self._calls.assign(partitions))

    async def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        await self._run(self._calls.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Returns the topics that are subscribed to; for a pattern, those that it matches now."""
        return self._core.subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the partitions that this consumer reads now."""
        return self._calls.assignment()

    # --- records --------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> Polled[K, V]:
        """Returns records by partition as soon as there are any; nothing if none came in time. Keeps the membership.

        for partition, records in (await consumer.poll(1.0)).items():
            for record in records: ...
        """
        limit = arguments.limit(max_records, self._config.max_poll_records)
        empty: Polled[K, V] = {}
        take = self._core.take
        steps = self._calls.poll(self._deadline(timeout), lambda now_ms: take(limit, now_ms), empty)
        return await self._take(steps, self._calls.intercept if self._calls.intercepts else None)

    async def poll_arrow(
        self,
        timeout: float = 1.0,
        max_records: int | None = None,
        columns: tuple[str, ...] | None = None,
        *,
        binary_view: bool = False,
    ) -> pyarrow.RecordBatch | None:
        """Returns records as one pyarrow RecordBatch, without an object per record; None if nothing came in time.

        `binary_view` as in `Consumer.poll_arrow`.
        """
        most = None if max_records is None else arguments.limit(max_records, 1)
        take = partial(
            self._core.fetcher.take_arrow, most, arguments.columns(columns), binary_view=binary_view
        )
        return await self._take(self._calls.poll(self._deadline(timeout), take, None))

    def __aiter__(self) -> AsyncGenerator[Record[K, V], None]:
        """Yields records one by one, without end. What was not given out yet is not committed, and is read again."""
        return self._iteration.over_async(lambda: self.poll(1.0))

    # --- positions ------------------------------------------------------------------------------------

    async def seek(self, partition: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Makes the record at `offset` the next one of this partition."""
        at = arguments.offset(offset, "the offset to seek to")
        self._iteration.drop(arguments.partition(partition))
        await self._run(self._calls.seek(partition, at), pump=False)

    async def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Goes to the first record of these partitions, or of all that are assigned, with the next poll."""
        named = arguments.partitions(partitions)
        self._iteration.drop(*named)
        await self._run(self._calls.seek_to_beginning(named), pump=False)

    async def seek_to_end(self, *partitions: Partitions) -> None:
        """Goes behind the last record of these partitions, or of all that are assigned, with the next poll."""
        named = arguments.partitions(partitions)
        self._iteration.drop(*named)
        await self._run(self._calls.seek_to_end(named), pump=False)

    async def position(self, partition: tuple[str, int], timeout: float | None = None) -> int:
        """Returns the offset of the next record to be returned."""
        return await self._run(self._calls.position(partition, self._deadline(timeout)))

    async def pause(self, *partitions: Partitions) -> None:
        """Has `poll` return nothing of these until `resume`; what is fetched already is kept."""
        await self._run(self._calls.pause(partitions, True), pump=False)

    async def resume(self, *partitions: Partitions) -> None:
        await self._run(self._calls.pause(partitions, False), pump=False)

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(p for p, state in self._core.subscription.partitions.items() if state.paused)

    # --- commits --------------------------------------------------------------------------------------

    async def commit(self, offsets: OffsetMap | None = None, timeout: float | None = None) -> None:
        """Commits the positions after all records returned so far, or these offsets; returns when it is done.

        await consumer.commit({("orders", 0): OffsetAndMetadata(42, "checked")})
        """
        await self._run(self._calls.commit(offsets, self._deadline(timeout)))

    async def commit_async(
        self,
        offsets: OffsetMap | None = None,
        callback: Callable[[Offsets, Exception | None], Any] | None = None,
    ) -> None:
        """Begins a commit; `callback(offsets, error)` is called by a later `poll`, `commit` or `close`."""
        await self._run(self._calls.commit_async(offsets, callback))

    async def committed(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns what the group has committed for these partitions; None where there is nothing."""
        return await self._run(self._calls.committed(partitions, self._deadline(timeout)))

    # --- looking things up ----------------------------------------------------------------------------

    async def offsets_for_times(
        self, times: ByPartition[int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Finds the first record of each partition at or after a time (ms since 1970); None if there is none."""
        return await self._run(self._calls.offsets_for_times(times, self._deadline(timeout)))

    async def beginning_offsets(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._run(self._calls.beginning_offsets(partitions, self._deadline(timeout)))

    async def end_offsets(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns where the next record will be written (with `read_committed`: the end of what is committed)."""
        return await self._run(self._calls.end_offsets(partitions, self._deadline(timeout)))

    async def lag(self, *partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Returns how far positions are behind the ends of their logs; for all partitions if none are named."""
        return await self._run(self._calls.lag(partitions or None, self._deadline(timeout)))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """Returns the partitions of a topic; none if there is no such topic."""
        return await self._run(self._calls.partitions_for(topic, self._deadline(timeout)))

    async def list_topics(self, timeout: float | None = None) -> dict[str, tuple[TopicPartition, ...]]:
        """Returns all topics that this client may see, with their partitions."""
        return await self._run(self._calls.list_topics(self._deadline(timeout)))

    # --- the group ------------------------------------------------------------------------------------

    async def enforce_rebalance(self, reason: str = "") -> None:
        """Makes the group rebalance with the next poll; the broker is told the reason."""
        await self._run(self._calls.enforce_rebalance(reason))

    def group_metadata(self) -> GroupMetadata:
        """Returns group, generation, member id and instance id, as they are now."""
        return self._calls.group_metadata()

    # --- the end --------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Makes the call that waits now, or the next one that would, raise Wakeup."""
        self._engine.wakeup()

    async def close(self, timeout: float = 30.0) -> None:
        """Commits if `enable.auto.commit`, gives the partitions back, leaves the group; bounded by the timeout."""
        if self._closed:
            return
        if os.getpid() != self._pid:
            self._closed = True
            return  # the parent's connections are not ours to use
        task, deadline_ms = asyncio.current_task(), self._deadline(timeout)
        if self._closer not in (None, task):
            await self._until(lambda: self._closed, deadline_ms)
            return
        self._closer = task
        try:
            if self._owner not in (None, task):
                # Its call ends with ClosedClient before the group is left: it would join again.
                self._engine.wakeup()
                await self._until(lambda: self._owner is None, deadline_ms)
            self._iteration.end()
            await run_steps_async(self._engine, self._calls.close(deadline_ms), wakeable=False)
        finally:
            self._closed = True
            self._engine.close()

    # --- how this front waits ---------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> int:
        return deadline_after(self._engine, self._config, timeout)

    async def _run(self, steps: Steps[T], *, pump: bool = True) -> T:
        """Runs the steps of a call. A callback may call the consumer again; another task may not."""
        if self._closed:
            raise ClosedClient("this consumer is closed")
        if os.getpid() != self._pid:
            raise ClosedClient("this consumer belongs to the parent process: make a new one after a fork")
        task = asyncio.current_task()
        if self._closer not in (None, task):
            raise ClosedClient("another task closes this consumer")
        if self._owner not in (None, task):
            raise ConcurrentUse(
                "another task is using this consumer: a consumer is for one task at a time "
                "(only wakeup() may come from another one)"
            )
        self._owner = task
        self._depth += 1
        try:
            return await run_steps_async(self._engine, steps, pump=pump)
        except Wakeup:
            if self._closer not in (None, task):
                raise ClosedClient("another task has closed this consumer") from None
            raise
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None

    async def _take(self, steps: Steps[T], finish: Callable[[T], T] | None = None) -> T:
        """Runs a poll. If a deserializer or an interceptor raises, the next poll returns its records."""
        try:
            taken = await self._run(steps)
            return finish(taken) if finish is not None and taken else taken
        except KohortError:
            raise
        except BaseException:
            self._calls.give_back()
            raise

    async def _until(self, condition: Callable[[], bool], deadline_ms: int) -> None:
        """Waits for a condition that no event of the engine reports: another task of this consumer goes on."""
        while not condition() and self._engine.now_ms() < deadline_ms:
            await asyncio.sleep(0.001)
