"""Runs the transaction coordinator on this node: the sans-IO runtime, with a log, a clock, timers and markers.

Each partition of `__transaction_state` is a shard that is loaded separately, like the shards of the groups. Markers are
appended to the partitions of this node; those of `__consumer_offsets` go through the group coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kohort.broker.groups.history import batches_of
from kohort.broker.names import TRANSACTIONS_TOPIC
from kohort.broker.transactions.markers import MarkerWriter
from kohort.broker.verification import OnAnswer
from kohort.log.datadir import new_uuid
from kohort.log.partition import Partition
from kohort.log.registry import TopicCreated
from kohort.transactions.effects import (
    AddPartitionsAnswer,
    AppendStates,
    ProducerIdNeeded,
    SendMarkers,
    StateLoadFailed,
    TransactionResponse,
    refused,
)
from kohort.transactions.events import (
    AddPartitionsToTxn,
    ListTransactions,
    MarkersAnswered,
    RequestToken,
    StateLoadBegun,
    StateLoadEnded,
    StatePartitionLost,
    StateRecord,
    StatesRead,
    TransactionRequest,
)
from kohort.transactions.metadata import TopicPartition
from kohort.transactions.runtime import OnSettled, StateWritten, TransactionRuntime
from kohort.transactions.settings import TransactionSettings
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import encode_pairs_batch, iter_batches, iter_records

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.config import BrokerConfig
    from kohort.log.topic import Topic

log = logging.getLogger("kohort.transactions")

_SLICE_S = 0.005  # how long loading may keep the event loop from others

OnTransactionReply = Callable[[TransactionResponse], None]


class BrokerTransactions:
    """All transactional ids of this node. Used on the event loop's thread only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.markers = MarkerWriter(broker)
        self._runtime = TransactionRuntime(transaction_settings(broker.config), self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.now_ms = broker.clock.steady_ms  # timeouts are measured by a clock that cannot be set back
        self._load_task: asyncio.Task[None] | None = None
        self._creation = asyncio.Lock()
        self._has_resigned = False
        self._allocations: set[asyncio.Task[None]] = set()

    @property
    def runtime(self) -> TransactionRuntime:
        return self._runtime

    # --- requests ---------------------------------------------------------------------------------

    def submit(self, request: TransactionRequest) -> None:
        """Hands a request to its shard. Its `request` is an OnTransactionReply, which may be called at once."""
        self._runtime.submit(request, self.now_ms())
        self._arm()

    def ask_shard(self, partition: int, request: ListTransactions) -> None:
        self._runtime.handle(partition, request, self.now_ms())

    def ask_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        verify_only: bool,
        done: OnAnswer,
    ) -> None:
        """Adds partitions to a transaction, or verifies that they are in it, before a first batch is appended."""

        def answered(answer: AddPartitionsAnswer) -> None:
            done(answer.error, answer.missing)

        self.submit(
            AddPartitionsToTxn(
                answered, transactional_id, producer_id, producer_epoch, partitions, verify_only
            )
        )

    def when_settled(self, transactional_id: str, settled: OnSettled) -> None:
        self._runtime.when_settled(transactional_id, settled)

    def forget_settled(self, transactional_id: str, settled: OnSettled) -> None:
        self._runtime.forget_settled(transactional_id, settled)

    def _arm(self) -> None:
        """Sets the one timer of the loop to the earliest deadline of all shards."""
        deadline_ms = self._runtime.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_s = max(deadline_ms - self.now_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.fire_due)

    def fire_due(self) -> None:
        """Runs what is due. Called by the timer, and after a test has moved the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._runtime.fire_due(self.now_ms())
        self._arm()

    # --- what the runtime asks for: TransactionHost -----------------------------------------------

    def on_transaction_reply(self, request: RequestToken, response: TransactionResponse) -> None:
        assert callable(request)
        request(response)

    def append_states(self, partition: int, write: AppendStates, done: StateWritten) -> None:
        now_ms = self.now_ms()
        try:
            log_partition = self._partition(partition)
            batch, header = encode_pairs_batch(write.records, now_ms)
            base_offset = log_partition.append(memoryview(batch), header, now_ms)
        except KafkaError as error:
            done(error.code, now_ms)
            return

        def durable(error: ErrorCode) -> None:
            done(error, self.now_ms())
            self._arm()

        log_partition.when_durable(base_offset + len(write.records), durable)

    def _partition(self, index: int) -> Partition:
        topic = self._broker.store.topics.get(TRANSACTIONS_TOPIC)
        if topic is None or index >= len(topic.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"there is no {TRANSACTIONS_TOPIC}-{index}")
        return topic.partitions[index]

    def send_markers(self, partition: int, markers: SendMarkers) -> None:
        def written(errors: tuple[tuple[TopicPartition, ErrorCode], ...]) -> None:
            for (topic, index), error in errors:
                if error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    text = "the marker of transactional.id %r is not in %s-%d yet: %s"
                    log.warning(text, markers.transactional_id, topic, index, error.name)
            answered = MarkersAnswered(
                markers.transactional_id, markers.producer_id, markers.producer_epoch, errors
            )
            self._runtime.handle(partition, answered, self.now_ms())
            self._arm()

        self.markers.write_all(markers, written)

    def allocate_producer_id(self, partition: int, needed: ProducerIdNeeded) -> None:
        task = asyncio.get_running_loop().create_task(self._allocate(partition, needed))
        self._allocations.add(task)
        task.add_done_callback(self._allocations.discard)

    async def _allocate(self, partition: int, needed: ProducerIdNeeded) -> None:
        request = needed.request
        try:
            producer_id = await self._broker.off_loop(self._broker.store.allocate_producer_id)
        except KafkaError as error:
            self.on_transaction_reply(request.request, refused(request, error.code))
            return
        self._runtime.handle(partition, replace(request, fresh_producer_id=producer_id), self.now_ms())
        self._arm()

    def on_state_load_failed(self, partition: int, failed: StateLoadFailed) -> None:
        self._cannot_load(partition, failed.message)

    def _cannot_load(self, partition: int, why: object) -> None:
        if (meter := self._broker.meter) is not None:
            meter.transaction_load_failures += 1
        text = "%s-%d cannot be loaded, its transactional ids are not served: %s"
        log.error(text, TRANSACTIONS_TOPIC, partition, why)

    # --- the topic --------------------------------------------------------------------------------

    async def ensure_topic(self) -> bool:
        """Creates `__transaction_state` when it is first needed, as Kafka does; False if that failed."""
        topics, config = self._broker.store.topics, self._broker.config
        if TRANSACTIONS_TOPIC in topics:
            return True
        async with self._creation, self._broker.changes:
            if TRANSACTIONS_TOPIC not in topics:
                count = config.transaction_state_log_num_partitions
                settings = {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                }
                created = TopicCreated(TRANSACTIONS_TOPIC, new_uuid(), count, settings)
                error = await self._broker.commit([created])
                if error is not None:
                    log.error("%s could not be created: %s", TRANSACTIONS_TOPIC, error)
                    return False
                self.begin_load()
        await self.wait_until_loaded()
        return not self._has_resigned

    # --- loading ----------------------------------------------------------------------------------

    def begin_load(self) -> None:
        """Loads all shards from the log, if the topic exists; meanwhile they answer that they are loading."""
        topic = self._broker.store.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return
        if len(topic.partitions) != len(self._runtime.shards):
            # The topic was created with another number of partitions, which decides where ids are.
            settings = transaction_settings(self._broker.config, len(topic.partitions))
            self._runtime = TransactionRuntime(settings, self)
        epoch = self._broker.store.leader_epoch
        full = []
        for index, log_partition in enumerate(topic.partitions):
            self._runtime.handle(index, StateLoadBegun(epoch), self.now_ms())
            if log_partition.log_end_offset == log_partition.log_start_offset:
                self._runtime.handle(index, StateLoadEnded(epoch), self.now_ms())
            else:
                full.append(index)
        self._arm()
        if full:
            self._load_task = asyncio.get_running_loop().create_task(self._load(topic, full, epoch))

    async def _load(self, topic: Topic, indexes: list[int], epoch: int) -> None:
        began = slice_began = time.perf_counter()
        count = 0
        for index in indexes:
            try:
                for chunk in _records_of(topic.partitions[index]):
                    count += len(chunk)
                    self._runtime.handle(index, StatesRead(epoch, chunk), self.now_ms())
                    if time.perf_counter() - slice_began > _SLICE_S:
                        await asyncio.sleep(0)
                        slice_began = time.perf_counter()
                self._runtime.handle(index, StateLoadEnded(epoch), self.now_ms())
            except KafkaError as error:
                self._cannot_load(index, error)
        self._arm()
        ids = sum(len(shard.durable.known) for shard in self._runtime.shards)
        took_ms = (time.perf_counter() - began) * 1000
        if (meter := self._broker.meter) is not None:
            meter.transaction_loads.add(took_ms / 1000)
        text = "loaded %d transactional ids from %d records of %s in %.0f ms"
        log.info(text, ids, count, TRANSACTIONS_TOPIC, took_ms)

    async def wait_until_loaded(self) -> None:
        """Returns when no shard is being loaded any more."""
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    # --- the end ----------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way to the log, no marker either."""
        return not any(shard.writes or shard.unmarked for shard in self._runtime.shards)

    async def resign(self, deadline: float) -> None:
        """Waits until what has been decided is complete, then refuses all requests, because the node stops.

        `deadline` is the loop's time after which it is not waited for: the next start completes it.
        """
        loop = asyncio.get_running_loop()
        while not self.is_settled and loop.time() < deadline:
            await asyncio.sleep(0.001)
        self._has_resigned = True
        if self._load_task is not None:
            self._load_task.cancel()
        for partition in range(len(self._runtime.shards)):
            self._runtime.handle(partition, StatePartitionLost(), self.now_ms())

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = [*self._allocations, *([self._load_task] if self._load_task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def transaction_settings(config: BrokerConfig, partitions: int | None = None) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        state_log_num_partitions=partitions or config.transaction_state_log_num_partitions,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def _records_of(partition: Partition) -> Iterator[list[StateRecord]]:
    """Yields all records of a partition in order, some batches at a time."""
    for data in batches_of(partition):
        chunk: list[StateRecord] = []
        for position, header in iter_batches(data):
            if not header.is_control:
                records = iter_records(data[position : position + header.size])
                chunk += [StateRecord(r.offset, r.key, r.value) for r in records if r.key is not None]
        yield chunk
