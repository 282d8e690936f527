"""The calls of a producer that may have to wait, written once for both fronts (see `steps`). Sans-IO."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic

from kohort.client.core import arguments
from kohort.client.core.backoff import Jitter
from kohort.client.core.effects import Outbox
from kohort.client.core.metadata import Metadata
from kohort.client.core.metrics import MetricSource
from kohort.client.core.operation import Operation
from kohort.client.core.steps import Steps, Until
from kohort.client.errors import AuthenticationFailed, ClosedClient, TimedOut, error_for
from kohort.client.produce.accumulator import Accumulator, NoRoom, TopicQueues, record_size
from kohort.client.produce.batch import Batch, H, OnDelivery
from kohort.client.produce.outgoing import Outgoing, ProducerRecord
from kohort.client.produce.producer_part import ProducerPart, log_failed_callback
from kohort.client.produce.sender import Sender
from kohort.client.produce.sender_metrics import PRODUCER_CALLS, ProducerCallMetrics
from kohort.client.produce.transactions import ProducerTransactions
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.records.batch import HEADER_SIZE

_log = logging.getLogger("kohort.client.producer")

_NO_SUCH_TOPIC = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_END_MS = 5_000
"""How long an abort may take: it waits for callbacks only."""


class ProducerCalls(Generic[H]):
    """Puts the parts of a producer together, and makes the calls that may have to wait."""

    def __init__(
        self,
        outgoing: Outgoing,
        accumulator: Accumulator[H],
        out: Outbox,
        metadata: Metadata,
        jitter: Jitter,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        obstacle: Callable[[], str],
    ) -> None:
        self.outgoing, self.accumulator = outgoing, accumulator
        self.config = outgoing.config
        self.sender = Sender(out, outgoing.config, metadata, accumulator, jitter)
        self.part: ProducerPart
        self._metadata = metadata
        self._metrics = ProducerCallMetrics(self.config.metric_window(), accumulator)
        self.now_ms, self._wall_ms, self._obstacle = now_ms, wall_ms, obstacle

    def metric_sources(self) -> Iterator[MetricSource]:
        """Yields what the calls and the parts of this producer count."""
        yield from self.sender.metrics.sources()
        yield MetricSource(PRODUCER_CALLS, self._metrics)

    def add_part(
        self,
        on_change: Callable[[], None],
        waker: Callable[[], None],
        on_error: Callable[[BaseException], None] = log_failed_callback,
    ) -> ProducerPart:
        """Makes the part that calls callbacks; `on_error` is called with what they raise."""
        self.part = ProducerPart(self.sender, on_change, waker, on_error)
        return self.part

    def fail_everything(self, error: BaseException) -> None:
        """Fails all records that are not written, and all to come, because the producer's thread or loop has failed.

        The parts may be in any state: batches that cannot be ended in order are ended all the same.
        """
        failed = ClosedClient(
            f"this producer has failed and sends nothing any more: {arguments.shown(error)}"
        )
        failed.__cause__ = error
        self.sender.stop(failed)
        try:
            self.sender.abort_all(failed)
        except Exception:
            _log.exception("the records of a failed producer could not be ended in order")
        self.sender.abandon_all(failed)
        self.part.tick_failed()

    # --- records ----------------------------------------------------------------------------------

    def send(self, record: ProducerRecord, callback: OnDelivery | None) -> Steps[H]:
        self.check_may_send()
        arguments.function(callback, "on_delivery")
        record = self.outgoing.intercept(record)
        try:
            handle = yield from self._send(record, self.outgoing.with_acknowledgement(callback))
        except Exception as error:
            self.outgoing.acknowledge(None, error)
            raise
        return handle

    def _send(self, record: ProducerRecord, callback: OnDelivery | None) -> Steps[H]:
        outgoing, name = self.outgoing, arguments.topic_name(record.topic)
        if record.partition is not None:  # before the topic is waited for; how many it has is looked at below
            arguments.record_partition(record.partition, name)
        key = outgoing.key_bytes(name, record.key)
        value = outgoing.value_bytes(name, record.value)
        headers = arguments.headers(record.headers)
        outgoing.check_size(key, value, headers)
        timestamp = (
            self._wall_ms() if record.timestamp_ms is None else arguments.timestamp(record.timestamp_ms)
        )
        deadline_ms = self.now_ms() + self.config.max_block_ms
        queues = yield from self.topic(name, deadline_ms)
        partition = outgoing.partition_for(queues, record.partition, key)
        while True:
            handle = self.accumulator.append(
                queues, partition, key, value, timestamp, headers, callback, self.now_ms()
            )
            if not isinstance(handle, NoRoom):
                return handle
            yield from self.after(handle, HEADER_SIZE + record_size(key, value, headers), deadline_ms)
            queues = yield from self.topic(name, deadline_ms)
            if partition >= len(queues.queues):  # the topic was created anew; else the choice stands
                partition = outgoing.partition_for(queues, record.partition, key)

    def after(self, refusal: NoRoom, size: int, deadline_ms: int) -> Steps[None]:
        """Waits until a refused record can be tried again; raises if that is not in time, or never."""
        if refusal is NoRoom.CLOSED:
            self._check_fatal()
            raise ClosedClient("the producer is closed")
        if refusal is NoRoom.MEMORY:
            self.accumulator.wait_for_memory(1)
            self.part.wake()
            began_ms, in_time = self.now_ms(), False
            try:
                in_time = yield Until(lambda: self.accumulator.has_room(size), deadline_ms)
            finally:
                self.accumulator.wait_for_memory(-1)
                now_ms = self.now_ms()
                self._metrics.waited_for_memory(now_ms - began_ms, bool(in_time), now_ms)
            self._check_fatal()
            if not in_time:
                raise TimedOut(
                    f"no room for the record within max.block.ms ({self.config.max_block_ms} ms): records that are not "
                    f"written yet take all of buffer.memory ({self.config.buffer_memory} bytes). Send more slowly, "
                    f"raise one of the two, or find out why brokers are slow{self._last_obstacle()}"
                )

    def check_may_send(self) -> None:
        """Raises if no record can be sent: the producer has failed, or it is transactional and in no transaction."""
        self._check_fatal()
        if self.sender.transactions is not None:
            self.sender.transactions.check_may_send()

    # --- topics -----------------------------------------------------------------------------------

    def topic(self, name: str, deadline_ms: int) -> Steps[TopicQueues]:
        """Returns the queues of a topic; asks for its metadata and waits if the topic is not known."""
        name = arguments.topic_name(name)
        topics, metadata = self.accumulator.topics, self._metadata
        known = topics.get(name)
        if known is not None:
            return known
        version = metadata.cluster.version

        def refused() -> ErrorCode | None:
            code = metadata.cluster.errors.get(name)
            return code if code in _NO_SUCH_TOPIC and metadata.cluster.version > version else None

        def settled() -> bool:
            return (
                name in topics
                or refused() is not None
                or self.sender.fatal is not None
                or self._is_shut_out()
            )

        self.part.topics.append(name)
        self.part.wake()
        began_ms = self.now_ms()
        yield Until(settled, deadline_ms)
        self._metrics.waited_for_metadata(self.now_ms() - began_ms)
        known = topics.get(name)
        if known is not None:
            return known
        self._check_fatal()
        code = refused()
        if code is not None:
            advice = (
                "check its name"
                if code is ErrorCode.INVALID_TOPIC_EXCEPTION
                else "allow this client WRITE there"
            )
            raise error_for(code, f"topic {name!r}: {advice}")
        if self._is_shut_out():
            raise AuthenticationFailed(metadata.last_failure)
        error = metadata.cluster.errors.get(name)
        why = f"the brokers answer {error.name}" if error is not None else "no broker knows it"
        raise TimedOut(
            f"topic {name!r} is not known after max.block.ms ({self.config.max_block_ms} ms): {why}. Create it, or "
            f"check its name and bootstrap.servers={','.join(self.config.bootstrap_servers)}{self._last_obstacle()}"
        )

    def _is_shut_out(self) -> bool:
        return self._metadata.last_failure.startswith("authentication failed")

    def _last_obstacle(self) -> str:
        obstacle = self._obstacle() or self._metadata.last_failure
        return f" (last: {obstacle})" if obstacle else ""

    # --- the end ----------------------------------------------------------------------------------

    def flush(self, deadline_ms: int) -> Steps[None]:
        left, began_ms = self.accumulator.flush(), self.now_ms()
        self.part.wake()
        in_time = yield Until(lambda: self.part.is_quiet and all_settled(left), deadline_ms)
        self._metrics.flushed(self.now_ms() - began_ms)
        if not in_time:
            raise TimedOut(
                f"{sum(batch.count for batch in left)} records are not written yet; they stay on their way. Flush "
                f"again, with more time{self._last_obstacle()}"
            )

    def close(self, deadline_ms: int) -> Steps[None]:
        """Refuses new records, waits for those that were sent, and fails the rest. An open transaction is aborted."""
        if self.sender.transactions is not None:
            yield from self._leave_transaction(self.sender.transactions, deadline_ms)
        left = self.accumulator.flush()
        self.accumulator.shut()
        left = list(dict.fromkeys((*left, *self.accumulator.flush())))
        self.part.wake()
        if not (yield Until(lambda: self.part.is_quiet and all_settled(left), deadline_ms)):
            self.part.commands.append(self.sender.close_now)
            self.part.wake()
            yield Until(lambda: self.part.is_quiet and all_settled(left), self.now_ms() + _END_MS)
        self.outgoing.close_interceptors()

    def _leave_transaction(self, transactions: ProducerTransactions, deadline_ms: int) -> Steps[None]:
        """Aborts an open transaction, so that readers need not wait for its timeout; waits for one that is ending."""
        ended: list[Operation[None]] = []

        def command() -> None:
            try:
                if transactions.is_open:
                    ended.append(transactions.abort())
                elif transactions.pending is not None:
                    ended.append(transactions.pending)
                else:
                    ended.append(Operation.of(None))
            except KohortError:
                ended.append(Operation.of(None))  # it failed for good meanwhile
            for operation in ended:
                operation.on_done(lambda done: self.part.changed())

        self.part.commands.append(command)
        self.part.wake()
        deadline_ms = min(deadline_ms, self.now_ms() + self.config.max_block_ms)
        if not (yield Until(lambda: any(operation.done for operation in ended), deadline_ms)):
            _log.warning("the producer is closed before its transaction has ended: %s", transactions)

    def _check_fatal(self) -> None:
        if self.sender.fatal is not None:
            raise self.sender.fatal


def all_settled(batches: list[Batch]) -> bool:
    """Tells whether the callbacks of all batches have returned; removes from the list those whose callbacks have."""
    while batches:
        batch = batches[-1]
        if batch.parts:
            batches[-1:] = [part for _, part in batch.parts]
        elif batch.told:
            batches.pop()
        else:
            return False
    return True
