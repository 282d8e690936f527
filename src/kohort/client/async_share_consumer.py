"""The share consumer for asyncio; share/share_calls.py says what its calls do, this module how a task waits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kohort.client.config import SHARE_CONSUMER, read_config
from kohort.client.core.steps import Steps, T
from kohort.client.errors import ClosedClient, ConcurrentUse, CorruptRecord, DeserializationFailed, Wakeup
from kohort.client.io.async_engine import AsyncEngine
from kohort.client.io.driving import deadline_after, run_steps_async
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.tls import security_for
from kohort.client.records import Deserializer, K, Record, V
from kohort.client.share.acknowledgements import AcknowledgeType
from kohort.client.share.share_calls import CommitCallback, ShareConsumerCalls
from kohort.client.share.share_iteration import ShareIteration
from kohort.client.share_consumer import SHARE_OBJECTS, CommitResults, build_share_core, share_keywords
from kohort.client.types import TopicPartition
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    from kohort.client.keywords import ShareConsumerKeywords


class AsyncShareConsumer(MeasuredClient, Generic[K, V]):
    """Reads topics as a member of a share group, on the event loop in which it is made.

    async with AsyncShareConsumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "mails"}) as consumer:
        await consumer.subscribe(["mails"])
        async for record in consumer:
            await send(record.value)

    The same calls and settings as `ShareConsumer`; those that wait are coroutines. The acknowledgement commit callback
    may be a coroutine function. For one task at a time; only `wakeup` may come from another. All timeouts are in
    seconds.
    """

    _engine: AsyncEngine

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **keywords: Unpack[ShareConsumerKeywords],
    ) -> None:
        given = share_keywords(keywords, key_deserializer, value_deserializer)
        self._config, objects = read_config(SHARE_CONSUMER, settings, given, SHARE_OBJECTS)
        self._engine = AsyncEngine(self._config, security=security_for(self._config, objects))
        self._core = build_share_core(self._config, objects, self._engine)
        self._calls = ShareConsumerCalls(
            self._core, self._engine.now_ms, lambda: self._engine.network.last_error
        )
        self._engine.measure(self._calls.metric_sources)
        self._iteration = ShareIteration(self._core.in_flight)
        self._owner: asyncio.Task[Any] | None = None
        self._depth = 0
        self._closed = False
        self._closer: asyncio.Task[Any] | None = None
        self._pid = os.getpid()

    async def __aenter__(self) -> AsyncShareConsumer[K, V]:
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return (
            f"<AsyncShareConsumer {self._config.client_id} of {self._config.group_id}, "
            f"{len(self._core.membership.assignment)} partitions>"
        )

    # --- what to read ---------------------------------------------------------------------------------

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Joins the share group for these topics, and for no others any more."""
        await self._run(self._calls.subscribe(topics))

    async def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group. Records in flight can still be acknowledged and committed."""
        await self._run(self._calls.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Returns the topics that are subscribed to."""
        return self._core.membership.topics

    # --- records --------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 1.0) -> dict[TopicPartition, list[Record[K, V]]]:
        """Returns records by partition as soon as there are any; nothing if none came in time.

        `ShareConsumer.poll` says what becomes of the records of the poll before.
        """
        self._iteration.end()
        return await self._poll(timeout)

    async def _poll(self, timeout: float) -> dict[TopicPartition, list[Record[Any, Any]]]:
        steps = self._calls.poll(self._deadline(timeout))
        try:
            return await self._run(steps)
        except KohortError:
            raise
        except BaseException:
            self._calls.give_back()
            raise

    def __aiter__(self) -> AsyncGenerator[Record[K, V], None]:
        """Yields records one by one, without end. What was not given out is released when the iteration ends."""
        return self._iteration.over_async(lambda: self._poll(1.0))

    # --- acknowledgements -----------------------------------------------------------------------------

    def acknowledge(
        self,
        record: Record[Any, Any] | DeserializationFailed | CorruptRecord,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Says what became of a record of the last poll, without waiting; see `ShareConsumer.acknowledge`."""
        self._check_usable()
        self._calls.acknowledge(record, type)

    async def commit_sync(self, timeout: float | None = None) -> CommitResults:
        """Sends all acknowledgements and waits for the answers; returns for each partition None or what failed."""
        return await self._run(self._calls.commit_sync(self._deadline(timeout)))

    async def commit_async(self) -> None:
        """Sends all acknowledgements without waiting; the acknowledgement commit callback hears of the answers."""
        await self._run(self._calls.commit_async())

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Has `callback(offsets, error)` called, by a later call, when acknowledgements are answered or have failed."""
        self._check_usable()
        self._calls.set_callback(callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Returns how long records are locked for this consumer, as the broker said last; None before any came."""
        return self._core.in_flight.lock_timeout_ms

    # --- the end --------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Makes the call that waits now, or the next one that would, raise Wakeup."""
        self._engine.wakeup()

    async def close(self, timeout: float = 30.0) -> None:
        """Sends what was acknowledged, releases all other records, leaves the group; bounded by the timeout."""
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

    def _check_usable(self) -> asyncio.Task[Any] | None:
        """Guards the consumer: a callback may call it again, another task may not."""
        if self._closed:
            raise ClosedClient("this share consumer is closed")
        if os.getpid() != self._pid:
            raise ClosedClient(
                "this share consumer belongs to the parent process: make a new one after a fork"
            )
        task = asyncio.current_task()
        if self._closer not in (None, task):
            raise ClosedClient("another task closes this share consumer")
        if self._owner not in (None, task):
            raise ConcurrentUse(
                "another task is using this share consumer: it is for one task at a time (only wakeup() may come from "
                "another one)"
            )
        return task

    async def _run(self, steps: Steps[T]) -> T:
        task = self._check_usable()
        self._owner = task
        self._depth += 1
        try:
            return await run_steps_async(self._engine, steps)
        except Wakeup:
            if self._closer not in (None, task):
                raise ClosedClient("another task has closed this share consumer") from None
            raise
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None

    async def _until(self, condition: Callable[[], bool], deadline_ms: int) -> None:
        """Waits for a condition that no event of the engine reports: another task of this consumer goes on."""
        while not condition() and self._engine.now_ms() < deadline_ms:
            await asyncio.sleep(0.001)
