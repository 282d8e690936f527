"""Sends the accumulator's batches to the leaders of their partitions, and sends them again where that helps. Sans-IO.

At most `max.in.flight.requests.per.connection` requests are in flight to a node; each carries at most one batch of a
partition. A batch that is written or has failed goes to `completed`; `ProducerPart` calls its callbacks and waiters.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from kohort.client.config import ProducerConfig
from kohort.client.core.arguments import shown
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import NO_NODE, Cluster
from kohort.client.core.effects import Answer, FailureKind, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.errors import AuthenticationFailed, ClosedClient, TimedOut, error_for
from kohort.client.produce.accumulator import (
    REQUEST_OVERHEAD,
    Accumulator,
    PartitionQueue,
    merge_limit,
)
from kohort.client.produce.batch import Batch, split, unmerge
from kohort.client.produce.encoding import encode, renumbered
from kohort.client.produce.idempotence import Idempotence, TransactionalNumbers
from kohort.client.produce.produce_errors import (
    FATAL,
    OUTDATED_METADATA,
    RETRIABLE,
    Outcome,
    is_worth_a_warning,
    outcomes_of,
    record_errors,
    words_for,
    words_for_retry,
)
from kohort.client.produce.producer_id import ProducerId
from kohort.client.produce.sender_metrics import SenderMetrics
from kohort.client.produce.transactions import ProducerTransactions
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kohort.wire.records.batch import HEADER_SIZE
from kohort.wire.records.compression import Buffer, Compression
from kohort.wire.struct import ZERO_UUID

_log = logging.getLogger("kohort.client.sender")

LAST_VERSION_WITH_NAMES = 12
MOST_AT_ONCE = 200
"""The most requests in one millisecond: with acks=0 they are answered at once, and a tick would never end."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """The batches that a Produce request carries, and the node that it was sent to."""

    node_id: int
    batches: list[Batch]
    sent_ms: int


class Sender:
    """The part of a producer that sends batches; see the module's docstring."""

    def __init__(
        self,
        out: Outbox,
        config: ProducerConfig,
        metadata: Metadata,
        accumulator: Accumulator[Any],
        jitter: Jitter,
    ) -> None:
        self.completed: list[Batch] = []
        """Batches that are done and whose callbacks were not called yet."""
        self.fatal: Exception | None = None
        """The error after which nothing can be sent any more."""
        self._out, self._config, self._metadata, self._accumulator = out, config, metadata, accumulator
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._acks = -1 if config.acks == "all" else int(config.acks)
        self._compression = Compression[config.compression_type.upper()]
        self._level: int | None = getattr(config, f"compression_{config.compression_type}_level", None)
        self._most_in_flight = config.max_in_flight_requests_per_connection
        self._idempotence: Idempotence | None = None
        self._id: ProducerId | None = None
        self.transactions: ProducerTransactions | None = None
        """Of a producer with a transactional.id; it has its producer id by them."""
        if config.transactional_id is not None:
            self._idempotence = numbers = TransactionalNumbers()
            self.transactions = ProducerTransactions(
                out, config, metadata, numbers, self._backoff,
                stop=self.stop, drop_unsent=self.drop_unsent, is_idle=lambda: self.is_idle,
            )  # fmt: skip
        elif config.enable_idempotence:
            self._idempotence = Idempotence()
            self._id = ProducerId(out, config, self._idempotence, self._backoff, self.abort_all)
        self.metrics = SenderMetrics(config.metric_window(), accumulator, metadata)
        self._in_flight: dict[int, int] = {}
        self._wanted: dict[str, int] = {}
        self._cluster: Cluster | None = None
        self._due_ms: int | None = None
        self._burst_ms = self._burst = 0
        self._merge_limit = merge_limit(config)
        accumulator.encode = partial(
            encode,
            compression=self._compression,
            level=self._level,
            transactional=self.transactions is not None,
            with_numbers=False,
        )

    # --- topics -----------------------------------------------------------------------------------

    def want_topic(self, topic: str, now_ms: int) -> None:
        """Asks for the metadata of a topic, and keeps it until the topic was not used for metadata.max.idle.ms."""
        new = topic not in self._wanted
        self._wanted[topic] = now_ms
        if new:
            self._metadata.want(frozenset(self._wanted), allow_auto_create=True, now_ms=now_ms)
        elif topic in self._metadata.cluster.errors:
            self._metadata.request_update(f"{topic} may be there by now")

    def _learn(self, now_ms: int) -> None:
        if self._metadata.cluster is self._cluster:
            return
        idle_ms = self._config.metadata_max_idle_ms
        if self.transactions is None:  # else its sequence numbers would be forgotten within an epoch
            self._accumulator.forget_idle(idle_ms, now_ms)
        kept = {
            t: ms for t, ms in self._wanted.items() if t in self._accumulator.topics or ms + idle_ms > now_ms
        }
        if kept != self._wanted:
            self._wanted = kept
            self._metadata.want(frozenset(kept), allow_auto_create=True, now_ms=now_ms)
        self._cluster = self._metadata.cluster
        self._accumulator.learn(self._cluster, now_ms)

    # --- the part ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._learn(now_ms)
        self._due_ms = None
        if self.fatal is not None:
            self.abort_all(self.fatal)
            self._accumulator.looked()
            return
        self._accumulator.close_due(now_ms)
        self._accumulator.looked()
        self._expire(now_ms)
        if self._idempotence is not None and self._id is not None:
            self._idempotence.tick()
            self._look_again_at(self._id.tick(now_ms))
            if not self._idempotence.has_id:
                return
        if self._accumulator.ready:
            self._send_ready(now_ms)
        if self.transactions is not None:  # after the batches: these say which partitions are to be added
            self._look_again_at(self.transactions.tick(now_ms))

    def next_deadline_ms(self) -> int | None:
        if self._accumulator.fresh or self._accumulator.full:
            return 0
        times = [t for t in (self._due_ms, self._accumulator.next_linger_ms()) if t is not None]
        oldest = self._accumulator.oldest()
        if oldest is not None:
            times.append(oldest.created_ms + self._config.delivery_timeout_ms)
        return min(times, default=None)

    @property
    def is_idle(self) -> bool:
        """Whether all batches are done."""
        return not self._accumulator.incomplete

    def _look_again_at(self, time_ms: int | None) -> None:
        if time_ms is not None:
            self._due_ms = time_ms if self._due_ms is None else min(self._due_ms, time_ms)

    # --- sending ----------------------------------------------------------------------------------

    def _send_ready(self, now_ms: int) -> None:
        """Sends requests to the leaders while there are batches that may be sent and requests that may be in flight."""
        if now_ms != self._burst_ms:
            self._burst_ms, self._burst = now_ms, 0
        while True:
            if self._burst >= MOST_AT_ONCE:
                self._look_again_at(now_ms + 1)
                return
            requests: dict[int, tuple[list[Batch], int]] = {}
            for queue in list(self._accumulator.ready):
                batch = self._next_batch(queue, now_ms)
                if batch is None:
                    continue
                taken, size = requests.get(queue.leader_id, ([], 0))
                if taken and size + batch.size > self._config.max_request_size - REQUEST_OVERHEAD:
                    continue
                room = self._config.max_request_size - REQUEST_OVERHEAD - size
                most_bytes = min(room, self._merge_limit, queue.topic_queues.merge_limit)
                batch = self._accumulator.take_first(queue, most_bytes)
                taken.append(batch)
                requests[queue.leader_id] = (taken, size + batch.size)
            if not requests:
                return
            self._burst += len(requests)
            for node_id, (batches, _) in requests.items():
                self._send(node_id, batches, now_ms)

    def _next_batch(self, queue: PartitionQueue, now_ms: int) -> Batch | None:
        """Returns the first batch of a partition if it may be sent now."""
        node_id = queue.leader_id
        if node_id == NO_NODE:
            self._metadata.request_update(f"{queue} has no known leader")
            return None
        if self._in_flight.get(node_id, 0) >= self._most_in_flight:
            return None
        batch = queue.closed[0]
        if batch.being_encoded:  # the caller who does it wakes the sender then
            return None
        if batch.attempts and now_ms < batch.retry_at_ms and queue.leader_epoch <= batch.leader_epoch:
            self._look_again_at(batch.retry_at_ms)
            return None
        if self._most_in_flight == 1 and any(other.on_the_wire for other in queue.in_flight):
            return None
        if self._idempotence is not None and not self._idempotence.may_send(batch):
            return None
        if self.transactions is not None and not self.transactions.may_send(queue):
            return None
        return batch

    def _send(self, node_id: int, batches: list[Batch], now_ms: int) -> None:
        batches = [batch for batch in batches if self._prepares(batch, node_id, now_ms)]
        if not batches:
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        self.metrics.sent(batches, self._compression is not Compression.NONE, now_ms)
        self._out.append(
            Send(
                node_id,
                ProduceRequest.API_KEY,
                lambda version: self._request(version, batches),
                "sender.produce",
                self._config.request_timeout_ms,
                max_version=self._last_version(batches),
                answered=self._acks != 0,
                on_answer=partial(self._produced, InFlight(node_id, batches, now_ms)),
            )
        )

    def _last_version(self, batches: list[Batch]) -> int | None:
        if self.transactions is not None and self.transactions.last_produce_version is not None:
            return self.transactions.last_produce_version
        return None if _all_have_ids(batches) else LAST_VERSION_WITH_NAMES

    def encode_early(self, columns: Any) -> Buffer | None:
        """Encodes and compresses columns, without the producer's numbers; None without compression: that is quick."""
        if self._compression is Compression.NONE:
            return None
        encoded: Buffer = columns.encode(
            self._compression, self._level, transactional=self.transactions is not None
        )
        return encoded

    def _prepares(self, batch: Batch, node_id: int, now_ms: int) -> bool:
        """Prepares a batch for its request; fails the batch, and returns False, if it cannot be encoded."""
        try:
            self._prepare(batch)
        except Exception as error:
            _log.error("%s: a batch cannot be encoded", batch.queue, exc_info=error)
            outcome = Outcome(ErrorCode.INVALID_RECORD, f"they cannot be encoded: {shown(error)}")
            self._fail(batch, outcome, node_id, now_ms)
            return False
        return True

    def _prepare(self, batch: Batch) -> None:
        queue = batch.queue
        if not batch.order:
            batch.order = (queue.sent,)
            queue.sent += 1
            if self._idempotence is not None:
                self._idempotence.assign(batch)
        if batch not in queue.in_flight:
            queue.in_flight.append(batch)
        if batch.encoded is None:
            batch.encoded = encode(
                batch, self._compression, self._level, transactional=self.transactions is not None
            )
        elif batch.was_reset:
            batch.encoded = renumbered(batch)
        batch.was_reset = False
        batch.on_the_wire = True
        batch.leader_epoch = queue.leader_epoch

    def _request(self, version: int, batches: list[Batch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            if batch.done:  # it has expired while the connection was opened
                continue
            topic = topics.get(batch.queue.topic)
            if topic is None:
                topic = TopicProduceData(batch.queue.topic, batch.queue.topic_queues.topic_id)
                topics[batch.queue.topic] = topic
            topic.partition_data.append(PartitionProduceData(batch.queue.index, batch.encoded))
        transactional_id = self._config.transactional_id
        return ProduceRequest(
            transactional_id, self._acks, self._config.request_timeout_ms, list(topics.values())
        )

    # --- answers ----------------------------------------------------------------------------------

    def _produced(self, flight: InFlight, answer: Answer, now_ms: int) -> None:
        left = self._in_flight.get(flight.node_id, 0) - 1
        if left > 0:
            self._in_flight[flight.node_id] = left
        else:
            self._in_flight.pop(flight.node_id, None)
        self.metrics.ended()
        if answer.response is not None:
            throttle_ms = answer.response.throttle_time_ms
            self.metrics.answered(now_ms - flight.sent_ms, throttle_ms, now_ms)
        outcomes, leaders = outcomes_of(answer, flight.batches)
        for partition, leader_id, leader_epoch, nodes in leaders:
            self._metadata.update_leader(partition, leader_id, leader_epoch, nodes)
        self._learn(now_ms)
        for batch in flight.batches:
            batch.on_the_wire = False
            self._take_outcome(batch, outcomes[batch.queue], flight.node_id, now_ms)

    def _take_outcome(self, batch: Batch, outcome: Outcome, node_id: int, now_ms: int) -> None:
        code = outcome.code
        if code in OUTDATED_METADATA:
            self._metadata.request_update(f"{batch.queue}: {code.name}")
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # A duplicate that the broker remembers without its offset: it is written, at an unknown offset.
            if self._idempotence is not None:
                self._idempotence.succeeded(batch, outcome.base_offset)
            if not batch.done:
                offset = outcome.base_offset if code is ErrorCode.NONE and self._acks != 0 else -1
                batch.succeed(offset, outcome.append_time_ms)
                self._end(batch)
        elif batch.done:
            return  # it has expired, or the producer was closed
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(batch, outcome)
            self.metrics.split(now_ms)
        elif self._may_retry(batch, outcome, now_ms):
            self._put_back(batch, outcome, node_id, now_ms)
        else:
            self._fail(batch, outcome, node_id, now_ms)

    def _may_retry(self, batch: Batch, outcome: Outcome, now_ms: int) -> bool:
        if batch.attempts >= self._config.retries or self._is_expired(batch, now_ms):
            return False
        if self._idempotence is not None and self._idempotence.may_retry(
            batch, outcome.code, outcome.log_start_offset
        ):
            return True
        return outcome.code in RETRIABLE

    def _put_back(self, batch: Batch, outcome: Outcome, node_id: int, now_ms: int) -> None:
        self.metrics.retried(batch, now_ms)
        batch.attempts += 1
        batch.retry_at_ms = now_ms + self._backoff.after(batch.attempts)
        self._accumulator.put_back(batch)
        if is_worth_a_warning(batch, outcome):
            text = words_for_retry(batch, outcome)
            self._metadata.warnings.warn(_log, self._metadata.name_of(node_id), now_ms, text)
        elif _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s", words_for_retry(batch, outcome))

    def _split(self, batch: Batch, outcome: Outcome) -> None:
        """Replaces a batch that the broker finds too large by smaller ones."""
        most_bytes = self._config.batch_size
        larger_than_asked = batch.merged_from is not None or batch.size > most_bytes
        if larger_than_asked:
            self._accumulator.lower_merge_limit(batch.queue.topic_queues, batch.size)
        if batch.merged_from is not None:
            self._put_parts(batch, unmerge(batch))
            return
        if batch.is_split or batch.size <= most_bytes:
            most_bytes = batch.size // 2
        parts = split(batch, max(most_bytes, HEADER_SIZE + 1))
        if not larger_than_asked:
            _log.warning(
                "%s: the broker finds a batch of %d records and %d bytes too large; sending it as %d. Lower "
                "batch.size, or raise the topic's max.message.bytes", batch.queue, batch.count, batch.size, len(parts),
            )  # fmt: skip
        self._accumulator.replace(batch, parts)
        self._put_parts(batch, parts)
        self.completed.append(batch)  # its waiters are called, and go on to wait for the parts

    def _put_parts(self, batch: Batch, parts: list[Batch]) -> None:
        at = batch.queue.in_flight.index(batch)
        batch.queue.in_flight[at : at + 1] = parts if self._idempotence is not None else []
        for part in parts:
            self._accumulator.put_back(part)

    def _fail(self, batch: Batch, outcome: Outcome, node_id: int, now_ms: int) -> None:
        code = outcome.code
        error = (
            AuthenticationFailed(outcome.message)
            if outcome.failure is FailureKind.AUTHENTICATION
            else error_for(code, words_for(batch, outcome, self._config))
        )
        if code in FATAL and self._idempotence is not None and self.transactions is None:
            self.stop(error)
        if self._idempotence is not None:
            # After the last attempt it is unknown whether one of them was written.
            self._idempotence.failed(batch, code, numbers_unused=batch.attempts < self._config.retries)
        self._metadata.warnings.warn(_log, self._metadata.name_of(node_id), now_ms, str(error))
        self.metrics.failed(batch, now_ms)
        batch.fail(error, record_errors(outcome))
        self._end(batch)
        if self.transactions is not None:
            self.transactions.batch_failed(error)

    def _end(self, batch: Batch) -> None:
        if batch in batch.queue.in_flight:
            batch.queue.in_flight.remove(batch)
        for member in batch.members():
            self._accumulator.release(member)
            self.completed.append(member)
            member.merged_into = None
        batch.merged_from = None

    # --- time and the end -------------------------------------------------------------------------

    def _is_expired(self, batch: Batch, now_ms: int) -> bool:
        return batch.created_ms + self._config.delivery_timeout_ms <= now_ms

    def _expire(self, now_ms: int) -> None:
        incomplete = self._accumulator.incomplete
        oldest = self._accumulator.oldest()
        if oldest is None or not self._is_expired(oldest, now_ms):
            return
        for batch in [b.merged_into or b for b in list(incomplete) if self._is_expired(b, now_ms)]:
            if batch.done:
                continue
            was_sent = bool(batch.order)
            self._accumulator.drop(batch)
            why = (
                f"it was sent {batch.attempts + 1} times without an answer that it is written"
                if was_sent
                else f"it could not be sent: {self._obstacle(batch)}"
            )
            error = TimedOut(
                f"{batch.count} records for {batch.queue} were given up {now_ms - batch.created_ms} ms after the first "
                f"of them was sent (delivery.timeout.ms is {self._config.delivery_timeout_ms}): {why}"
            )
            leader = self._metadata.name_of(batch.queue.leader_id)
            self._metadata.warnings.warn(_log, leader, now_ms, str(error))
            self.metrics.failed(batch, now_ms)
            batch.fail(error)
            if self._idempotence is not None and was_sent:
                self._idempotence.expired(batch)
            self._end(batch)
            if self.transactions is not None:
                self.transactions.batch_failed(error)

    def _obstacle(self, batch: Batch) -> str:
        if batch.queue.leader_id == NO_NODE:
            return f"the partition has no known leader ({self._metadata.last_failure or 'none is elected'})"
        if self._idempotence is not None and not self._idempotence.has_id:
            return "no broker has given a producer id"
        return "other batches before it are in flight"

    def stop(self, error: Exception) -> None:
        """Refuses all records from now on: nothing can be sent any more because of this error."""
        self.fatal = error
        self._accumulator.shut()

    def abandon_all(self, error: Exception) -> None:
        """Fails the batches that `abort_all` could not end, because they are not in order."""
        left = [batch for batch in self._accumulator.incomplete if not batch.done]
        for batch in left:
            batch.fail(error)
            self._accumulator.release(batch)
        self.completed += left

    def abort_all(self, error: Exception) -> None:
        """Fails all batches that are not done with this error."""
        for batch in [b.merged_into or b for b in list(self._accumulator.incomplete)]:
            if batch.done:
                continue
            self._accumulator.drop(batch)
            batch.fail(error)
            if self._idempotence is not None:
                self._idempotence.expired(batch)
            self._end(batch)

    def drop_unsent(self, error: Exception) -> None:
        """Fails the batches that were never sent, because their transaction will not be committed."""
        for batch in [b.merged_into or b for b in list(self._accumulator.incomplete)]:
            if not batch.done and not batch.order:
                self._accumulator.drop(batch)
                batch.fail(error)
                self._end(batch)

    def close_now(self) -> None:
        """Fails all batches that are not done, because the producer is closed."""
        self.abort_all(ClosedClient("the producer was closed before this record was written"))


def _all_have_ids(batches: list[Batch]) -> bool:
    return all(batch.queue.topic_queues.topic_id != ZERO_UUID for batch in batches)
