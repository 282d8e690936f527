"""The blocking producer: `send` puts a record into a batch and returns; the producer's own thread does the rest."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kohort.client.core.arguments import function, seconds
from kohort.client.core.signals import HeldSignals, let_go, new_lock
from kohort.client.core.steps import Steps, T, Until
from kohort.client.errors import (
    ClosedClient,
    FatalProducerError,
    IllegalState,
    TimedOut,
    TransactionFailed,
)
from kohort.client.io.driving import deadline_after
from kohort.client.io.engine import FAR_MS, Engine
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.tls import security_for
from kohort.client.produce.accumulator import Accumulator, merge_limit
from kohort.client.produce.arrow import WrittenRange, leaves, ranges, send_arrow
from kohort.client.produce.batch import Batch, Headers, OnDelivery, RecordHandle, handle_of
from kohort.client.produce.calls import ProducerCalls
from kohort.client.produce.fast_send import fast_send
from kohort.client.produce.outgoing import K, Outgoing, ProducerRecord, Serializer, V
from kohort.client.produce.transaction_calls import TransactionCalls
from kohort.client.types import ByPartition, GroupMetadata, OffsetAndMetadata, RecordMetadata
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    import pyarrow

    from kohort.client.keywords import ProducerKeywords

_NS_PER_MS = 1_000_000
OffsetMap = ByPartition[int | OffsetAndMetadata]


class Delivery(RecordHandle):
    """The outcome of one record: its partition and offset, or the error why it was not written.

    delivery = producer.send("orders", b"one")
    metadata = delivery.result(timeout=10)       # waits; raises what went wrong
    """

    __slots__ = ()

    def done(self) -> bool:
        """Tells whether the record is written or has failed."""
        return self._position[0].done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits at most `timeout` seconds, and returns where the record was written; raises why it was not."""
        outcome = self._wait(timeout)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits as `result` does, and returns why the record was not written; None if it was."""
        outcome = self._wait(timeout)
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, call: Callable[[Delivery], object]) -> None:
        """Has `call(delivery)` called when it is done: on the producer's thread, or at once if it is done already."""
        function(call, "a callback of a delivery", optional=False)

        def check() -> None:
            batch, _ = self._position
            if batch.done:
                try:
                    called.pop()  # it is called once: the producer's thread may be here too
                except IndexError:
                    return
                call(self)
                return
            batch.waiters.append(check)
            if batch.told:
                check()

        called = [True]
        check()

    def _wait(self, timeout: float | None) -> RecordMetadata | Exception:
        deadline = None if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            batch, _ = self._position
            if batch.done:
                return self._outcome
            told = threading.Lock()
            told.acquire()
            batch.waiters.append(told.release)
            if batch.told:
                continue
            left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
            if not told.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                raise TimedOut(
                    f"the record for {batch.queue} is not written after {timeout:g} s; it stays on its way. Wait "
                    "again, or see to delivery.timeout.ms"
                )

    def __repr__(self) -> str:
        batch, _ = self._position
        return f"<Delivery to {batch.queue}: {self._outcome if batch.done else 'on its way'}>"


class ArrowDelivery:
    """The outcome of the rows of one `send_arrow`."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def done(self) -> bool:
        """Tells whether all rows are written or have failed."""
        return all(batch.done for batch in leaves(self._batches))

    def result(self, timeout: float | None = None) -> list[WrittenRange]:
        """Waits, and returns where the rows were written, as ranges of offsets; raises the first error."""
        deadline = None if timeout is None else time.monotonic() + seconds(timeout)
        while not self.done():
            for batch in leaves(self._batches):
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                handle_of(Delivery, batch, 0).exception(left)
        return ranges(self._batches)


class Producer(MeasuredClient, Generic[K, V]):
    """Writes records to topics in batches, each record once and in order; any number of threads may use it.

    with Producer({"bootstrap.servers": "127.0.0.1:9092", "linger.ms": 5}) as producer:
        delivery = producer.send("orders", value=b"one", key=b"k", headers=[("h", b"1")])
        print(delivery.result(timeout=10).offset)

    Settings have Kafka's names, in a dict or as keywords (`linger_ms=5`). Keys and values are bytes, str (UTF-8) or
    None; for others give `key_serializer` and `value_serializer`, functions `(topic, object) -> bytes`. `partitioner`
    is a name or a function `(topic, key_bytes, partition_count) -> int`. `interceptors` are objects with
    `on_send(record) -> record` and `on_ack(metadata, error)`.

    Callbacks (`on_delivery`, `add_done_callback`, `on_ack`) run on the producer's own thread, as in Kafka: while one
    runs, nothing is sent, so they must be quick and must not wait.
    """

    _engine: Engine

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
        self._engine = engine = Engine(config, security=security_for(config, outgoing.objects))
        lock = new_lock()
        self._accumulator: Accumulator[Delivery] = Accumulator(
            Delivery, lock, random.random, self._wake, batch_size=outgoing.batch_limit,
            merge_limit=merge_limit(config), buffer_memory=config.buffer_memory, linger_ms=config.linger_ms,
        )  # fmt: skip
        self._calls: ProducerCalls[Delivery] = ProducerCalls(
            outgoing, self._accumulator, engine.out, engine.metadata, random.random, engine.now_ms, _wall_ms,
            lambda: engine.network.last_error,
        )  # fmt: skip
        self._part = self._calls.add_part(self._on_change, engine.reactor.wakeup)
        self._transactions = TransactionCalls(self._calls)
        engine.on_failure = self._calls.fail_everything
        engine.add(self._part)
        engine.add(self._calls.sender)
        engine.measure(self._calls.metric_sources)
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_closed = False
        self._send: Callable[..., Delivery] = self._send_ordinarily
        if outgoing.is_plain and config.transactional_id is None:
            self._send = fast_send(
                self._accumulator, outgoing, time.time_ns, engine.now_ms, self._send_ordinarily
            )
        send_ordinarily_after_fork(self)
        engine.start_background(f"kohort-producer-{config.client_id}", everything=True)
        self._thread_id = engine._thread.ident if engine._thread is not None else None

    def __enter__(self) -> Producer[K, V]:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- records ----------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Puts a record into the batch of its partition, and returns at once.

        It waits only if the topic is not known yet or buffer.memory is used up: at most max.block.ms, then TimedOut.
        `on_delivery(metadata, error)` is called on the producer's thread when the record is written, or will not be.
        """
        return self._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    def send_arrow(self, topic: str | None, records: pyarrow.RecordBatch | pyarrow.Table) -> ArrowDelivery:
        """Sends all rows of a pyarrow RecordBatch or Table, without an object per record, much faster than `send`.

        Columns by name: `value`, and if they are there `key`, `timestamp`, `headers`, `partition`, and `topic` if none
        is named here. The rows go out at once, in batches of their own, after what was sent to their partitions before.
        """
        return ArrowDelivery(self._run(send_arrow(self._calls, topic, records, _wall_ms())))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Returns the partitions of a topic; waits for its metadata, at most `timeout` seconds (or max.block.ms)."""
        block_ms = self._calls.config.max_block_ms
        queues = self._run(
            self._calls.topic(topic, self._deadline(block_ms / 1000 if timeout is None else timeout))
        )
        return list(range(len(queues.queues)))

    # --- transactions -----------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Takes over the transactional.id: fences producers that had it before, and aborts what they left open.

        It is called once, before the first transaction. Like all calls of transactions it waits at most `timeout`
        seconds (or max.block.ms), then raises TimedOut and can only be repeated.
        """
        self._run(self._transactions.init(self._block_deadline(timeout)))

    def begin_transaction(self) -> None:
        """Begins a transaction: all records that are sent from now on are in it, until it is committed or aborted."""
        self._engine.check_usable()
        self._transactions.begin()

    def send_offsets_to_transaction(
        self, offsets: OffsetMap, group_metadata: GroupMetadata, timeout: float | None = None
    ) -> None:
        """Makes offsets of a consumer's group part of the transaction: they are committed with its records.

        `offsets` are as in `Consumer.commit`: of each partition the offset to go on from. `group_metadata` is what
        `Consumer.group_metadata()` returns after the poll that brought the records.
        """
        steps = self._transactions.send_offsets(offsets, group_metadata, self._block_deadline(timeout))
        self._run(steps)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Sends what is left, and commits: readers with `read_committed` see all records of the transaction.

        TransactionFailed: call `abort_transaction`, and do it again. FatalProducerError: close this producer.
        """
        self._run(self._transactions.commit(self._block_deadline(timeout)))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drops all records and offsets of the transaction; the producer goes on with the next one."""
        self._run(self._transactions.abort(self._block_deadline(timeout)))

    @contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[None]:
        """Begins a transaction, commits it at the end of the block, and aborts it if the block raises.

        with producer.transaction():
            producer.send("orders", b"one")
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction(timeout)
        except BaseException as error:
            if self._transactions.is_open:
                try:
                    self.abort_transaction(timeout)
                except KohortError as failed:
                    if isinstance(failed, FatalProducerError) and isinstance(error, TransactionFailed):
                        raise failed from error  # this producer cannot do it again
                    error.add_note(f"and the transaction could not be aborted: {failed}")
            raise

    # --- the end ----------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Sends all batches without lingering, and returns when all records sent before are written or have failed.

        TimedOut after `timeout` seconds; the records stay on their way.
        """
        if threading.get_ident() == self._thread_id:
            raise IllegalState("flush() in a delivery callback would wait for itself: call it elsewhere")
        self._run(self._calls.flush(self._deadline(timeout)))
        self._engine._raise_background_error()

    def close(self, timeout: float | None = None) -> None:
        """Waits for the records on their way, at most `timeout` seconds, and frees everything.

        Records that are not written by then fail with ClosedClient. Without a timeout, delivery.timeout.ms is the
        limit; `close(0)` does not wait.
        """
        if self._is_closed:
            return
        on_own_thread = threading.get_ident() == self._thread_id
        deadline_ms = self._deadline(
            0 if on_own_thread else timeout
        )  # a wrong argument leaves the producer open
        self._is_closed = True
        self._send = self._send_ordinarily
        try:
            if _is_usable(self._engine):
                self._run(self._calls.close(deadline_ms), closing=True)
        finally:
            self._engine.close()

    # --- inside -----------------------------------------------------------------------------------

    def _block_deadline(self, timeout: float | None) -> int:
        return self._deadline(self._calls.config.max_block_ms / 1000 if timeout is None else timeout)

    def _deadline(self, timeout: float | None) -> int:
        """Returns when a call gives up: never, without a timeout, because delivery.timeout.ms bounds every record."""
        return FAR_MS if timeout is None else deadline_after(self._engine, self._engine.config, timeout)

    def _send_ordinarily(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """Sends any record, with all checks; what `fast_send` does not take comes here."""
        record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        return self._run(self._calls.send(record, on_delivery))

    def _wake(self) -> None:
        self._part.wake()

    def _on_change(self) -> None:
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def _run(self, steps: Steps[T], *, closing: bool = False) -> T:
        """Waits on the caller's thread where the steps must wait, while the producer's own thread drives everything."""
        self._engine.check_usable()
        in_time: bool | None = None
        while True:
            try:
                with HeldSignals():
                    step = steps.send(in_time)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            assert isinstance(step, Until)
            try:
                in_time = self._wait(step, closing)
            except BaseException:
                steps.close()
                raise

    def _wait(self, until: Until, closing: bool) -> bool:
        if threading.get_ident() == self._thread_id:
            # This is a callback: if it waited, nothing would ever change.
            self._part.tick(self._engine.now_ms()) if closing else None
            return until.condition()
        was_inside = self._changed._is_owned()  # type: ignore[attr-defined]  # a signal handler may call it
        try:
            with self._changed:
                self._waiting += 1
                try:
                    while not until.condition():
                        left_ms = until.deadline_ms - self._engine.now_ms()
                        if left_ms <= 0:
                            return False
                        self._engine.check_usable()
                        self._engine._raise_background_error()
                        self._changed.wait(min(left_ms, 1_000) / 1000)
                    return True
                finally:
                    self._waiting -= 1
        except BaseException:
            if not was_inside:
                let_go(self._changed)
            raise


def _is_usable(engine: Engine) -> bool:
    try:
        engine.check_usable()
    except ClosedClient:
        return False
    return True


def _wall_ms() -> int:
    return time.time_ns() // _NS_PER_MS


_producers: weakref.WeakSet[Any] = weakref.WeakSet()


def send_ordinarily_after_fork(producer: Any) -> None:
    """Takes the fast way from the producer in a forked child: the ordinary one says why it cannot be used there."""
    _producers.add(producer)


def _after_fork() -> None:
    for producer in list(_producers):
        producer._send = producer._send_ordinarily


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
