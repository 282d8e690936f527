"""The producer for asyncio: everything happens on the event loop, without a thread."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kohort.client.core.arguments import function
from kohort.client.core.signals import new_lock
from kohort.client.core.steps import Steps, T, Until
from kohort.client.errors import ClosedClient, FatalProducerError, TransactionFailed
from kohort.client.io.async_engine import AsyncEngine
from kohort.client.io.driving import deadline_after
from kohort.client.io.engine import FAR_MS
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.tls import security_for
from kohort.client.produce.accumulator import Accumulator, merge_limit
from kohort.client.produce.arrow import WrittenRange, leaves, ranges, send_arrow
from kohort.client.produce.batch import Batch, Headers, OnDelivery, RecordHandle
from kohort.client.produce.calls import ProducerCalls
from kohort.client.produce.fast_send import fast_send
from kohort.client.produce.outgoing import K, Outgoing, ProducerRecord, Serializer, V
from kohort.client.produce.producer_part import log_failed_callback
from kohort.client.produce.transaction_calls import TransactionCalls
from kohort.client.producer import send_ordinarily_after_fork
from kohort.client.types import ByPartition, GroupMetadata, OffsetAndMetadata, RecordMetadata
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    import pyarrow

    from kohort.client.keywords import ProducerKeywords

_NS_PER_MS = 1_000_000
OffsetMap = ByPartition[int | OffsetAndMetadata]


class AsyncDelivery(RecordHandle):
    """The outcome of one record: `metadata = await delivery`, which raises why it was not written."""

    __slots__ = ()

    def done(self) -> bool:
        """Tells whether the record is written or has failed."""
        return self._position[0].done

    def result(self) -> RecordMetadata:
        """Returns where the record was written, once `done()`; raises why it was not, or InvalidStateError before."""
        if not self.done():
            raise asyncio.InvalidStateError("the record is still on its way: await the delivery")
        outcome = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def add_done_callback(self, call: Callable[[AsyncDelivery], object]) -> None:
        """Has `call(delivery)` called when it is done; at once if it is done already."""
        function(call, "a callback of a delivery", optional=False)

        def check() -> None:
            batch, _ = self._position
            if batch.done:
                call(self)
            else:
                batch.waiters.append(check)

        check()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.done():
            batch, _ = self._position
            yield from _told(batch)
        return self.result()

    def __repr__(self) -> str:
        batch, _ = self._position
        return f"<AsyncDelivery to {batch.queue}: {self._outcome if batch.done else 'on its way'}>"


class AsyncArrowDelivery:
    """The outcome of the rows of one `send_arrow`: `ranges = await delivery`, which raises the first error."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def done(self) -> bool:
        return all(batch.done for batch in leaves(self._batches))

    def __await__(self) -> Generator[Any, None, list[WrittenRange]]:
        while not self.done():
            for batch in leaves(self._batches):
                if not batch.done:
                    yield from _told(batch)
        return ranges(self._batches)


def _told(batch: Batch) -> asyncio.Future[None]:
    """Returns a future that is done when the batch is done or was split."""
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    batch.waiters.append(lambda: None if told.done() else told.set_result(None))
    return told


class AsyncProducer(MeasuredClient, Generic[K, V]):
    """A `Producer` for asyncio: it is made on a running loop and used on that loop alone.

    async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        delivery = await producer.send("orders", b"one", key=b"k")    # waits for room only
        print((await delivery).offset)
        await producer.send_and_wait("orders", b"two")

    Callbacks run on the loop. Serializers, partitioner and interceptors are plain functions.
    """

    _engine: AsyncEngine

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        serializers = {"key_serializer": key_serializer, "value_serializer": value_serializer}
        given = {name: each for name, each in serializers.items() if each is not None}
        outgoing = Outgoing(settings, {**keywords, **given}, random.random)
        config = outgoing.config
        self._engine = engine = AsyncEngine(config, security=security_for(config, outgoing.objects))
        self._accumulator: Accumulator[AsyncDelivery] = Accumulator(
            AsyncDelivery, new_lock(), random.random, self._wake, batch_size=outgoing.batch_limit,
            merge_limit=merge_limit(config), buffer_memory=config.buffer_memory, linger_ms=config.linger_ms,
        )  # fmt: skip
        self._calls: ProducerCalls[AsyncDelivery] = ProducerCalls(
            outgoing, self._accumulator, engine.out, engine.metadata, random.random, engine.now_ms, _wall_ms,
            lambda: engine.network.last_error,
        )  # fmt: skip
        self._part = self._calls.add_part(lambda: None, self._iterate_soon, self._callback_failed)
        self._transactions = TransactionCalls(self._calls)
        engine.on_failure = self._calls.fail_everything
        engine.add(self._part)
        engine.add(self._calls.sender)
        engine.measure(self._calls.metric_sources)
        self._is_closed = False
        self._is_scheduled = False
        self._send: Callable[..., AsyncDelivery | Awaitable[AsyncDelivery]] = self._send_ordinarily
        if outgoing.is_plain and config.transactional_id is None:
            # No clock: where a batch is begun, `_send_ordinarily` lets the loop write.
            self._send = fast_send(self._accumulator, outgoing, time.time_ns, None, self._send_ordinarily)
        send_ordinarily_after_fork(self)
        self._iterate_soon()

    async def __aenter__(self) -> AsyncProducer[K, V]:
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- records ----------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> AsyncDelivery:
        """Puts a record into the batch of its partition; await the delivery that it returns for the record's offset.

        It waits only for a topic that is not known and for room in buffer.memory: at most max.block.ms, then TimedOut.
        """
        sent = self._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return sent if isinstance(sent, AsyncDelivery) else await sent

    async def send_and_wait(
        self, topic: str, value: V | None = None, key: K | None = None, **rest: Any
    ) -> RecordMetadata:
        """Sends a record (see `send` for the rest) and waits until it is written."""
        return await (await self.send(topic, value, key, **rest))

    async def send_arrow(
        self, topic: str | None, records: pyarrow.RecordBatch | pyarrow.Table
    ) -> AsyncArrowDelivery:
        """Sends all rows of a pyarrow RecordBatch or Table, as `Producer.send_arrow` does."""
        return AsyncArrowDelivery(await self._run(send_arrow(self._calls, topic, records, _wall_ms())))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Returns the partitions of a topic; waits for its metadata, at most `timeout` seconds (or max.block.ms)."""
        block_ms = self._calls.config.max_block_ms
        deadline_ms = self._deadline(block_ms / 1000 if timeout is None else timeout)
        queues = await self._run(self._calls.topic(topic, deadline_ms))
        return list(range(len(queues.queues)))

    # --- transactions -----------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Takes over the transactional.id: fences producers that had it before, and aborts what they left open.

        It is called once, before the first transaction. Like all calls of transactions it waits at most `timeout`
        seconds (or max.block.ms), then raises TimedOut and can only be repeated.
        """
        await self._run(self._transactions.init(self._block_deadline(timeout)))

    async def begin_transaction(self) -> None:
        """Begins a transaction: all records that are sent from now on are in it, until it is committed or aborted."""
        self._engine.check_usable()
        self._transactions.begin()

    async def send_offsets_to_transaction(
        self, offsets: OffsetMap, group_metadata: GroupMetadata, timeout: float | None = None
    ) -> None:
        """Makes offsets of a consumer's group part of the transaction: they are committed with its records.

        `offsets` are as in `Consumer.commit`: of each partition the offset to go on from. `group_metadata` is what
        `Consumer.group_metadata()` returns after the poll that brought the records.
        """
        steps = self._transactions.send_offsets(offsets, group_metadata, self._block_deadline(timeout))
        await self._run(steps)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Sends what is left, and commits: readers with `read_committed` see all records of the transaction.

        TransactionFailed: call `abort_transaction`, and do it again. FatalProducerError: close this producer.
        """
        await self._run(self._transactions.commit(self._block_deadline(timeout)))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Drops all records and offsets of the transaction; the producer goes on with the next one."""
        await self._run(self._transactions.abort(self._block_deadline(timeout)))

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[None]:
        """Begins a transaction, commits it at the end of the block, and aborts it if the block raises.

        async with producer.transaction():
            await producer.send("orders", b"one")
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction(timeout)
        except BaseException as error:
            if self._transactions.is_open:
                try:
                    await self.abort_transaction(timeout)
                except KohortError as failed:
                    if isinstance(failed, FatalProducerError) and isinstance(error, TransactionFailed):
                        raise failed from error  # this producer cannot do it again
                    error.add_note(f"and the transaction could not be aborted: {failed}")
            raise

    # --- the end ----------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Sends all batches without lingering, and returns when all records sent before are written or have failed."""
        await self._run(self._calls.flush(self._deadline(timeout)))

    async def close(self, timeout: float | None = None) -> None:
        """Waits for the records on their way, at most `timeout` seconds; fails the rest with ClosedClient."""
        if self._is_closed:
            return
        deadline_ms = self._deadline(timeout)  # a wrong argument leaves the producer open
        self._is_closed = True
        self._send = self._send_ordinarily
        try:
            await self._run(self._calls.close(deadline_ms))
        except ClosedClient:
            pass  # a forked child closes its copy only
        finally:
            self._engine.close()

    # --- inside -----------------------------------------------------------------------------------

    def _block_deadline(self, timeout: float | None) -> int:
        return self._deadline(self._calls.config.max_block_ms / 1000 if timeout is None else timeout)

    def _deadline(self, timeout: float | None) -> int:
        """Returns when a call gives up: never, without a timeout, because delivery.timeout.ms bounds every record."""
        return FAR_MS if timeout is None else deadline_after(self._engine, self._engine.config, timeout)

    async def _send_ordinarily(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> AsyncDelivery:
        """Sends any record, with all checks; what `fast_send` does not take comes here."""
        record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        made = await self._run(self._calls.send(record, on_delivery))
        # A batch was begun: the loop gets a chance, so that a caller that only sends does not keep it from writing.
        await asyncio.sleep(0)
        return made

    def _wake(self) -> None:
        self._part.wake()

    def _callback_failed(self, error: BaseException) -> None:
        """Logs it; SystemExit and KeyboardInterrupt end the loop, as from any asyncio callback, but after this one."""
        log_failed_callback(error)
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            self._engine.reactor.loop.call_soon(_raise, error)

    def _iterate_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._engine.reactor.loop.call_soon(self._iterate)

    def _iterate(self) -> None:
        self._is_scheduled = False
        self._engine.drive()

    async def _run(self, steps: Steps[T]) -> T:
        self._engine.check_usable()
        in_time: bool | None = None
        while True:
            try:
                step = steps.send(in_time)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            assert isinstance(step, Until)
            deadline_ms = min(step.deadline_ms, self._engine.now_ms() + _LONG_MS)
            try:
                in_time = await self._engine.wait(step.condition, deadline_ms)
            except BaseException:
                steps.close()
                raise


_LONG_MS = 7 * 86_400_000
"""The longest wait: an event loop cannot wait for ever."""


def _wall_ms() -> int:
    return time.time_ns() // _NS_PER_MS


def _raise(error: BaseException) -> None:
    raise error
