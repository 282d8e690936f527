"""Runs the group coordinator on this node: the sans-IO runtime, with a log, a clock and timers.

Each partition of `__consumer_offsets` is a shard that is loaded separately. Records are appended to the topic like any
others, and a shard applies them when they are durable; only then is a request answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kohort.broker.groups import history
from kohort.broker.groups.catalog import StoreCatalog
from kohort.broker.groups.history import HistoryLog
from kohort.broker.names import OFFSETS_TOPIC
from kohort.coordinator.commit_layout import CommitLayout, LaidOutRecords
from kohort.coordinator.effects import (
    Append,
    CommitResponse,
    HistoryChanged,
    LoadFailed,
    Response,
    ShareStateWanted,
)
from kohort.coordinator.events import (
    BeginLoad,
    EndLoad,
    FinishShareDeletion,
    GroupRequest,
    ListGroups,
    LoadRecords,
    LogRecord,
    OffsetCommit,
    Resign,
    RestoreHistory,
    ShareStateInitialized,
    TopicsChanged,
    TopicsDeleted,
    TxnMarker,
)
from kohort.coordinator.history import HISTORY_TOPIC
from kohort.coordinator.runtime import Done, Runtime
from kohort.coordinator.settings import Settings, partition_for
from kohort.coordinator.shard import ShardStatus
from kohort.coordinator.share.group import ShareGroup
from kohort.log.datadir import new_uuid
from kohort.log.partition import Partition
from kohort.log.registry import TopicCreated
from kohort.log.storage.transactions import Verification
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import (
    BatchHeader,
    ControlKind,
    control_kind,
    encode_pairs_batch,
    iter_batches,
    iter_records,
    with_append_time,
)

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.config import BrokerConfig
    from kohort.log.topic import Topic

log = logging.getLogger("kohort.groups")

_SLICE_S = 0.005  # how long loading may keep the event loop from others

OnReply = Callable[[Response], None]


class Groups:
    """All groups of this node. Used on the event loop's thread only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        settings = settings_of(broker.config)
        self._meter = broker.meter
        self._history = HistoryLog(broker.store, settings.history_length, broker.now_ms)
        self._runtime = self._make_runtime(settings)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._waits_for_disk = broker.store.durability == "disk"
        self.now_ms = broker.clock.steady_ms  # sessions are timed by a clock that cannot be set back
        self._load_task: asyncio.Task[None] | None = None
        self._creation = asyncio.Lock()
        self._has_resigned = False

    def _make_runtime(self, settings: Settings) -> Runtime:
        return Runtime(
            settings,
            self,
            _on_reply,
            on_history=self._history.on_history if self._meter is None else self._on_history,
            on_load_failed=self._on_load_failed,
            on_share_state=self._on_share_state,
            topics=StoreCatalog(self._broker.store),
            config_of=self._broker.group_config,
        )

    def _on_history(self, changed: HistoryChanged) -> None:
        assert self._meter is not None
        self._meter.on_history(changed)
        self._history.on_history(changed)

    def _on_share_state(self, partition: int, wanted: ShareStateWanted) -> None:
        """Has the state of partitions made, and tells the group what has become of that."""

        def done(errors: Mapping[tuple[bytes, int], ErrorCode]) -> None:
            self.tell_initialized(wanted.group_id, errors)

        offsets = {(topic_id, index): -1 for topic_id, ps in wanted.partitions.items() for index in ps}
        self._broker.share_states.initialize_all(wanted.group_id, wanted.state_epoch, offsets, done)

    def tell_initialized(self, group_id: str, errors: Mapping[tuple[bytes, int], ErrorCode]) -> None:
        """Tells a share group of which partitions the state was made."""
        for has_failed in (False, True):
            found: dict[bytes, set[int]] = {}
            for (topic_id, index), error in errors.items():
                if bool(error) is has_failed:
                    found.setdefault(topic_id, set()).add(index)
            if found:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE if has_failed else ErrorCode.NONE
                partitions = {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
                self.tell_share_state(ShareStateInitialized(group_id, partitions, error))

    def tell_share_state(self, event: ShareStateInitialized | FinishShareDeletion) -> None:
        """Tells a group what has become of the state of its partitions."""
        partition = partition_for(event.group_id, len(self._runtime.shards))
        self._runtime.handle(partition, event, self.now_ms())
        self._arm()

    def share_group(self, group_id: str) -> ShareGroup | None:
        shards = self._runtime.shards
        return shards[partition_for(group_id, len(shards))].share_groups.get(group_id)

    def _on_load_failed(self, partition: int, failed: LoadFailed) -> None:
        self._cannot_load(partition, failed.message)

    def _cannot_load(self, partition: int, why: object) -> None:
        if self._meter is not None:
            self._meter.load_failures += 1
        log.error("%s-%d cannot be loaded, its groups are not served: %s", OFFSETS_TOPIC, partition, why)

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    # --- requests ---------------------------------------------------------------------------------

    def submit(self, request: GroupRequest) -> None:
        """Hands a request about one group to its shard. Its `request` is an OnReply, which may be called at once."""
        self._runtime.submit(request, self.now_ms())
        self._arm()

    def heartbeat(self, group_id: str, member_id: str, generation_id: int) -> ErrorCode | None:
        """The answer to a heartbeat of a dynamic member, if it can be given at once; else it is to be submitted."""
        return self._runtime.heartbeat_in_time(group_id, member_id, generation_id, self.now_ms())

    def consumer_heartbeat(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        instance_id: str | None,
        client: tuple[str, str],
    ) -> int | None:
        """The interval for the answer to a heartbeat of KIP-848 without other fields; None if it is to be submitted."""
        return self._runtime.consumer_heartbeat_in_time(
            group_id, member_id, member_epoch, instance_id, client, self.now_ms()
        )

    def commit(
        self,
        layout: CommitLayout,
        offsets: tuple[int, ...],
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
    ) -> CommitResponse | None:
        """The answer to a commit in a layout, if it can be given at once; else it is to be submitted."""
        if self._waits_for_disk:
            return None
        now_ms, write = self.now_ms(), self._write_at_once
        return self._runtime.commit_at_once(
            layout, offsets, generation_id, member_id, group_instance_id, now_ms, write
        )

    def submit_commit(self, request: OffsetCommit) -> None:
        """As `submit`, of a commit in a layout."""
        if not self._runtime.commit_when_durable(request, self.now_ms(), self._write_later):
            self.submit(request)

    def has_members(self, group_id: str) -> bool:
        """Tells whether the group has members, or members that are about to join."""
        shards = self._runtime.shards
        shard = shards[partition_for(group_id, len(shards))]
        consumer_group = shard.consumer_groups.get(group_id)
        if consumer_group is not None:
            return bool(consumer_group.members)
        group = shard.groups.get(group_id)
        return group is not None and bool(group.members or group.pending_joins)

    def is_active(self, partition: int) -> bool:
        """Tells whether a shard is loaded, and the marker of a transaction may be written to its partition."""
        shards = self._runtime.shards
        return partition < len(shards) and shards[partition].status is ShardStatus.ACTIVE

    def transaction_ended(self, partition: int, producer_id: int, commit: bool) -> None:
        """Shows or drops what a producer committed in a transaction, whose marker is durable."""
        self._runtime.handle(partition, TxnMarker(producer_id, commit), self.now_ms())
        self._arm()

    def ask_shard(self, partition: int, request: ListGroups) -> None:
        self._runtime.handle(partition, request, self.now_ms())

    def topics_deleted(self, names: tuple[str, ...]) -> None:
        """Deletes the committed offsets of deleted topics, in every group."""
        now_ms = self.now_ms()
        for partition in range(len(self._runtime.shards)):
            self._runtime.handle(partition, TopicsDeleted(names), now_ms)
        self._arm()

    def topics_changed(self, names: tuple[str, ...], *, created: bool) -> None:
        """Tells the groups that topics were created, have grown or were deleted; the store already shows it."""
        now_ms, event = self.now_ms(), TopicsChanged(names, created)
        for partition, shard in enumerate(self._runtime.shards):
            if shard.consumer_groups or shard.share_groups:
                self._runtime.handle(partition, event, now_ms)

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

    # --- the log ----------------------------------------------------------------------------------

    def append(self, partition: int, write: Append, done: Done) -> None:
        """Writes what a shard asks for, and calls `done` when it is durable. Part of the runtime's `Log`."""
        now_ms = self.now_ms()
        records = write.records
        try:
            if isinstance(records, LaidOutRecords):
                base_offset = self._write(partition, *records.encode_batch(now_ms), now_ms)
            else:
                batch, header = encode_pairs_batch(records, now_ms, write.producer_id, write.producer_epoch)
                base_offset = self._write(partition, batch, header, now_ms, write.verification)
        except KafkaError as error:
            done(error.code, -1, now_ms)
            return

        def durable(error: ErrorCode) -> None:
            done(error, base_offset, self.now_ms())
            self._arm()

        log_partition = self._broker.store.topics[OFFSETS_TOPIC].partitions[partition]
        log_partition.when_durable(base_offset + len(records), durable)

    def _write(
        self,
        partition: int,
        batch: bytearray,
        header: BatchHeader,
        now_ms: int,
        verification: object = None,
    ) -> int:
        topic = self._broker.store.topics.get(OFFSETS_TOPIC)
        if topic is None or partition >= len(topic.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"there is no {OFFSETS_TOPIC}-{partition}")
        if len(batch) > topic.config.max_message_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {len(batch)} bytes")
        if topic.config.append_time:
            # The append time is the time of day, as for produced records; the steady clock may differ from it.
            now_ms = self._broker.now_ms()
            header = with_append_time(batch, header, now_ms)
        log_partition = topic.partitions[partition]
        if header.producer_id >= 0:
            assert verification is None or isinstance(verification, Verification)
            return log_partition.append_offsets(memoryview(batch), header, now_ms, verification)
        return log_partition.append(memoryview(batch), header, now_ms)

    def _write_at_once(self, partition: int, records: LaidOutRecords, now_ms: int) -> int:
        return self._write(partition, *records.encode_batch(now_ms), now_ms)

    def _write_later(
        self, partition: int, records: LaidOutRecords, now_ms: int, done: Callable[[int, ErrorCode], None]
    ) -> None:
        base_offset = self._write(partition, *records.encode_batch(now_ms), now_ms)
        log_partition = self._broker.store.topics[OFFSETS_TOPIC].partitions[partition]
        log_partition.when_durable(base_offset + len(records), partial(done, base_offset))

    # --- the topic --------------------------------------------------------------------------------

    async def ensure_topic(self) -> bool:
        """Creates `__consumer_offsets` when it is first needed, as Kafka does; False if that failed.

        The topic of the history is created with it, or later if a client created `__consumer_offsets`.
        """
        topics = self._broker.store.topics
        if OFFSETS_TOPIC in topics and HISTORY_TOPIC in topics:
            return True
        async with self._creation, self._broker.changes:
            is_new = OFFSETS_TOPIC not in topics
            error = await self._broker.commit(self._missing_topics())
            if error is not None:
                log.error("the topics of the groups could not be created: %s", error)
                return not is_new
            if is_new:
                self.begin_load()
        await self.wait_until_loaded()
        return not self._has_resigned

    def _missing_topics(self) -> list[TopicCreated]:
        topics, config = self._broker.store.topics, self._broker.config
        offsets = topics.get(OFFSETS_TOPIC)
        count = config.offsets_topic_num_partitions if offsets is None else len(offsets.partitions)
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        made = [] if offsets is not None else [TopicCreated(OFFSETS_TOPIC, new_uuid(), count, settings)]
        if HISTORY_TOPIC not in topics:
            made.append(TopicCreated(HISTORY_TOPIC, new_uuid(), count, dict(history.SETTINGS)))
        return made

    # --- loading ----------------------------------------------------------------------------------

    def begin_load(self) -> None:
        """Loads all shards from the log, if the topic exists; meanwhile they answer that they are loading."""
        topic = self._broker.store.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        if len(topic.partitions) != len(self._runtime.shards):
            # The topic was created with another offsets.topic.num.partitions, which decides where groups are.
            self._runtime = self._make_runtime(settings_of(self._broker.config, len(topic.partitions)))
        epoch = self._broker.store.leader_epoch
        full = []
        for index, partition in enumerate(topic.partitions):
            self._runtime.handle(index, BeginLoad(epoch), self.now_ms())
            if partition.log_end_offset == partition.log_start_offset:
                self._runtime.handle(index, EndLoad(epoch), self.now_ms())
            else:
                full.append(index)
        self._arm()
        if full:
            self._load_task = asyncio.get_running_loop().create_task(self._load(topic, full, epoch))

    async def _load(self, topic: Topic, indexes: list[int], epoch: int) -> None:
        began = time.perf_counter()
        records = 0
        slice_began = began
        for index in indexes:
            try:
                for chunk in log_records_of(topic.partitions[index]):
                    records += len(chunk)
                    self._runtime.handle(index, LoadRecords(epoch, chunk), self.now_ms())
                    if time.perf_counter() - slice_began > _SLICE_S:
                        await asyncio.sleep(0)
                        slice_began = time.perf_counter()
                self._restore_history(index, epoch)
                self._runtime.handle(index, EndLoad(epoch), self.now_ms())
            except KafkaError as error:
                self._cannot_load(index, error)
        self._arm()
        groups = sum(len(shard.groups) + len(shard.consumer_groups) for shard in self._runtime.shards)
        took_s = time.perf_counter() - began
        if self._meter is not None:
            self._meter.loads.add(took_s)
        took_ms = took_s * 1000
        log.info("loaded %d groups from %d records of %s in %.0f ms", groups, records, OFFSETS_TOPIC, took_ms)

    async def wait_until_loaded(self) -> None:
        """Returns when no shard is being loaded any more."""
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    def _restore_history(self, index: int, epoch: int) -> None:
        topic = self._broker.store.topics.get(HISTORY_TOPIC)
        if topic is not None and index < len(topic.partitions):
            for group_id, rebalances in history.restored(topic.partitions[index]).items():
                self._runtime.handle(index, RestoreHistory(epoch, group_id, tuple(rebalances)), self.now_ms())

    async def resign(self, deadline: float) -> None:
        """Waits until what is being written is answered, then refuses all requests, because the node stops.

        Members that wait in a rebalance are answered NOT_COORDINATOR, as by a Kafka broker that shuts down.
        `deadline` is the loop's time after which writes are not waited for.
        """
        loop = asyncio.get_running_loop()
        while any(shard.writes for shard in self._runtime.shards) and loop.time() < deadline:
            await asyncio.sleep(0.001)
        self._has_resigned = True
        if self._load_task is not None:
            self._load_task.cancel()
        for partition in range(len(self._runtime.shards)):
            self._runtime.handle(partition, Resign(), self.now_ms())

    async def close(self) -> None:
        self._history.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._load_task is not None:
            self._load_task.cancel()
            await asyncio.gather(self._load_task, return_exceptions=True)


def settings_of(config: BrokerConfig, partitions: int | None = None) -> Settings:
    return Settings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_consumer_max_size=config.group_consumer_max_size,
        group_share_max_size=config.group_share_max_size,
        group_consumer_assignors=config.group_consumer_assignors,
        group_consumer_migration_policy=config.group_consumer_migration_policy,
        group_consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        offsets_retention_minutes=config.offsets_retention_minutes,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_topic_num_partitions=partitions or config.offsets_topic_num_partitions,
    )


def _on_reply(waiter: object, response: Response) -> None:
    assert callable(waiter)
    waiter(response)


def log_records_of(partition: Partition) -> Iterator[list[LogRecord]]:
    """Yields all records of a partition in order, some batches at a time."""
    for data in history.batches_of(partition):
        chunk: list[LogRecord] = []
        for position, header in iter_batches(data):
            batch, producer_id = data[position : position + header.size], header.producer_id
            if header.is_control:
                # In a log that Kafka wrote, the marker of a transaction says whether its commits count or are dropped.
                kinds = ((r.offset, control_kind(r.key)) for r in iter_records(batch))
                chunk += [
                    LogRecord(offset, None, None, producer_id, kind is ControlKind.COMMIT)
                    for offset, kind in kinds
                    if kind is not None
                ]
            else:
                chunk += [LogRecord(r.offset, r.key, r.value, producer_id) for r in iter_records(batch)]
        yield chunk
