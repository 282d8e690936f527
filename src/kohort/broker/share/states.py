"""Runs the share coordinator on this node: the shards of `__share_group_state`, with a log, a clock and timers.

Each partition of the topic is a shard that is loaded separately, like the shards of the groups. The topic is never
compacted: the coordinator writes snapshots and deletes what is before all of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kohort.broker.groups.history import batches_of
from kohort.broker.names import SHARE_TOPIC
from kohort.log.datadir import new_uuid
from kohort.log.partition import Partition
from kohort.log.registry import TopicCreated
from kohort.share.state import SharePartitionKey
from kohort.share.state_events import (
    AppendShareState,
    DeleteState,
    InitializeState,
    PruneShareState,
    PruningDue,
    ReadStateSummary,
    ShareStateDurable,
    ShareStateEffect,
    ShareStateEvent,
    ShareStateLoadBegun,
    ShareStateLoadEnded,
    ShareStateLoadFailed,
    ShareStateLost,
    ShareStateNotWritten,
    ShareStateRecord,
    ShareStateReply,
    ShareStateRequest,
    ShareStatesRead,
    ShareTopicsDeleted,
    SnapshotsDue,
    StateAnswer,
)
from kohort.share.state_shard import ShareStateShard, StateSettings
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.java_hash import partition_of
from kohort.wire.records.batch import encode_pairs_batch, iter_batches, iter_records

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.config import BrokerConfig
    from kohort.log.topic import Topic

log = logging.getLogger("kohort.share")

_SLICE_S = 0.005  # how long loading may keep the event loop from others

OnStateAnswer = Callable[[StateAnswer], None]
Place = tuple[bytes, int]
"""A partition by its topic's id."""
OnErrors = Callable[[dict[Place, ErrorCode]], None]


class ShareStates:
    """The state of all share partitions that this node coordinates. Used on the event loop's thread only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.now_ms = broker.clock.now_ms  # records carry the time of day
        self._shards = self._make_shards(broker.config.share_coordinator_state_topic_num_partitions)
        self._waiting: deque[tuple[ShareStateShard, ShareStateEvent]] = deque()
        self._is_running = False
        self._load_task: asyncio.Task[None] | None = None
        self._creation = asyncio.Lock()
        self._has_resigned = False
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def _make_shards(self, count: int) -> list[ShareStateShard]:
        settings = settings_of(self._broker.config)
        return [ShareStateShard(index, settings, self._exists) for index in range(count)]

    def _exists(self, topic_id: bytes, index: int) -> bool:
        return not isinstance(self._broker.partition_by_id(topic_id, index), ErrorCode)

    @property
    def shards(self) -> list[ShareStateShard]:
        return self._shards

    # --- requests ---------------------------------------------------------------------------------

    def shard_of(self, key: SharePartitionKey) -> ShareStateShard:
        return self._shards[partition_of(key.coordinator_key, len(self._shards))]

    def submit(self, request: ShareStateRequest) -> None:
        """Hands a request to its shard. Its `request` is an OnStateAnswer, which may be called at once."""
        self._handle(self.shard_of(request.key), request)

    def _handle(self, shard: ShareStateShard, event: ShareStateEvent) -> None:
        self._waiting.append((shard, event))
        if self._is_running:
            return  # an event that comes during a step waits for its end
        self._is_running = True
        try:
            while self._waiting:
                shard, event = self._waiting.popleft()
                for effect in shard.step(event, self.now_ms()):
                    self._carry_out(shard, effect)
        finally:
            self._is_running = False

    def _carry_out(self, shard: ShareStateShard, effect: ShareStateEffect) -> None:
        match effect:
            case ShareStateReply(request, answer):
                assert callable(request)
                request(answer)
            case AppendShareState():
                self._append(shard, effect)
            case PruneShareState(offset):
                self._prune(shard.partition, offset)
            case ShareStateLoadFailed(_, message):
                self._cannot_load(shard.partition, message)

    def _append(self, shard: ShareStateShard, write: AppendShareState) -> None:
        now_ms = self.now_ms()
        try:
            log_partition = self._partition(shard.partition)
            base_offset = log_partition.log_end_offset
            if write.records:
                batch, header = encode_pairs_batch(write.records, now_ms)
                base_offset = log_partition.append(memoryview(batch), header, now_ms)
        except KafkaError as error:
            self._handle(shard, ShareStateNotWritten(write.token, error.code))
            return

        def durable(error: ErrorCode) -> None:
            if error:
                self._handle(shard, ShareStateNotWritten(write.token, error))
            else:
                self._handle(shard, ShareStateDurable(write.token, base_offset))

        log_partition.when_durable(base_offset + len(write.records), durable)

    def _partition(self, index: int) -> Partition:
        topic = self._broker.store.topics.get(SHARE_TOPIC)
        if topic is None or index >= len(topic.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"there is no {SHARE_TOPIC}-{index}")
        return topic.partitions[index]

    def _prune(self, index: int, offset: int) -> None:
        try:
            self._partition(index).delete_records(offset)
        except KafkaError as error:
            log.warning("%s-%d could not be pruned up to %d: %s", SHARE_TOPIC, index, offset, error)

    def topics_deleted(self, topic_ids: frozenset[bytes]) -> None:
        for shard in self._shards:
            self._handle(shard, ShareTopicsDeleted(topic_ids))

    def _cannot_load(self, partition: int, why: object) -> None:
        text = "%s-%d cannot be loaded, its share partitions are not served: %s"
        log.error(text, SHARE_TOPIC, partition, why)

    # --- many at once -----------------------------------------------------------------------------

    def initialize_all(
        self, group_id: str, state_epoch: int, offsets: Mapping[Place, int], done: OnErrors
    ) -> None:
        """Makes the state of partitions, each from its start offset on (-1: by the reset); makes the topic first."""
        self._run(self._initialize_all(group_id, state_epoch, dict(offsets), done))

    async def _initialize_all(
        self, group_id: str, state_epoch: int, offsets: dict[Place, int], done: OnErrors
    ) -> None:
        if not await self.ensure_topic():
            done(dict.fromkeys(offsets, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return

        def asked(token: object, place: Place) -> ShareStateRequest:
            return InitializeState(token, SharePartitionKey(group_id, *place), state_epoch, offsets[place])

        self._ask_all(list(offsets), asked, done)

    def delete_all(self, group_id: str, places: Iterable[Place], done: OnErrors) -> None:
        """Deletes the state of partitions; a partition that has none is fine."""

        def asked(token: object, place: Place) -> ShareStateRequest:
            return DeleteState(token, SharePartitionKey(group_id, *place))

        self._ask_all(list(places), asked, done)

    def summarize_all(
        self, group_id: str, places: Iterable[Place], done: Callable[[dict[Place, StateAnswer]], None]
    ) -> None:
        """Reads where share partitions start, and how many records above that are done."""

        def asked(token: object, place: Place) -> ShareStateRequest:
            return ReadStateSummary(token, SharePartitionKey(group_id, *place))

        self._gather(list(places), asked, done)

    def _ask_all(
        self, places: list[Place], asked: Callable[[object, Place], ShareStateRequest], done: OnErrors
    ) -> None:
        def answered(answers: dict[Place, StateAnswer]) -> None:
            done({place: answer.error for place, answer in answers.items()})

        self._gather(places, asked, answered)

    def _gather(
        self,
        places: list[Place],
        asked: Callable[[object, Place], ShareStateRequest],
        done: Callable[[dict[Place, StateAnswer]], None],
    ) -> None:
        answers: dict[Place, StateAnswer] = {}

        def slot(place: Place) -> OnStateAnswer:
            def answered(answer: StateAnswer) -> None:
                answers[place] = answer
                if len(answers) == len(places):
                    done(answers)

            return answered

        if not places:
            done(answers)
        for place in places:
            self.submit(asked(slot(place), place))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the topic --------------------------------------------------------------------------------

    async def ensure_topic(self) -> bool:
        """Creates `__share_group_state` when it is first needed, as Kafka does; False if that failed."""
        topics, config = self._broker.store.topics, self._broker.config
        if SHARE_TOPIC in topics:
            return True
        async with self._creation, self._broker.changes:
            if SHARE_TOPIC not in topics:
                settings = {
                    "cleanup.policy": "delete",
                    "retention.ms": "-1",
                    "compression.type": "producer",
                    "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                }
                count = config.share_coordinator_state_topic_num_partitions
                error = await self._broker.commit([TopicCreated(SHARE_TOPIC, new_uuid(), count, settings)])
                if error is not None:
                    log.error("%s could not be created: %s", SHARE_TOPIC, error)
                    return False
                self.begin_load()
        await self.wait_until_loaded()
        return not self._has_resigned

    # --- loading ----------------------------------------------------------------------------------

    def begin_load(self) -> None:
        """Loads all shards from the log, if the topic exists; meanwhile they answer that they are loading."""
        topic = self._broker.store.topics.get(SHARE_TOPIC)
        if topic is None:
            return
        if len(topic.partitions) != len(self._shards):
            # The topic was created with another number of partitions, which decides where states are.
            self._shards = self._make_shards(len(topic.partitions))
        epoch = self._broker.store.leader_epoch
        full = []
        for shard, log_partition in zip(self._shards, topic.partitions, strict=True):
            self._handle(shard, ShareStateLoadBegun(epoch))
            if log_partition.log_end_offset == log_partition.log_start_offset:
                self._handle(shard, ShareStateLoadEnded(epoch))
            else:
                full.append(shard)
        config = self._broker.config
        self._every(config.share_coordinator_cold_partition_snapshot_interval_ms, SnapshotsDue())
        self._every(config.share_coordinator_state_topic_prune_interval_ms, PruningDue())
        if full:
            self._load_task = asyncio.get_running_loop().create_task(self._load(topic, full, epoch))

    def _every(self, interval_ms: int, event: SnapshotsDue | PruningDue) -> None:
        slot = len(self._timers)

        def again() -> None:
            for shard in self._shards:
                self._handle(shard, event)
            self._timers[slot] = loop.call_later(interval_ms / 1000, again)

        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(interval_ms / 1000, again))

    async def _load(self, topic: Topic, shards: list[ShareStateShard], epoch: int) -> None:
        began = slice_began = time.perf_counter()
        count = 0
        for shard in shards:
            try:
                for chunk in _records_of(topic.partitions[shard.partition]):
                    count += len(chunk)
                    self._handle(shard, ShareStatesRead(epoch, chunk))
                    if time.perf_counter() - slice_began > _SLICE_S:
                        await asyncio.sleep(0)
                        slice_began = time.perf_counter()
                self._handle(shard, ShareStateLoadEnded(epoch))
            except KafkaError as error:
                self._cannot_load(shard.partition, error)
        states = sum(len(shard.durable.states) for shard in self._shards)
        took_ms = (time.perf_counter() - began) * 1000
        text = "loaded %d share partitions from %d records of %s in %.0f ms"
        log.info(text, states, count, SHARE_TOPIC, took_ms)

    async def wait_until_loaded(self) -> None:
        """Returns when no shard is being loaded any more."""
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    # --- the end ----------------------------------------------------------------------------------

    async def resign(self, deadline: float) -> None:
        """Waits until what is being written is answered, then refuses all requests, because the node stops."""
        loop = asyncio.get_running_loop()
        while any(shard.writes for shard in self._shards) and loop.time() < deadline:
            await asyncio.sleep(0.001)
        self._has_resigned = True
        if self._load_task is not None:
            self._load_task.cancel()
        for shard in self._shards:
            self._handle(shard, ShareStateLost())

    async def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        tasks = [*self._tasks, *([self._load_task] if self._load_task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def settings_of(config: BrokerConfig) -> StateSettings:
    return StateSettings(
        updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
        cold_snapshot_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
    )


def _records_of(partition: Partition) -> Iterator[list[ShareStateRecord]]:
    """Yields all records of a partition in order, some batches at a time."""
    for data in batches_of(partition):
        chunk: list[ShareStateRecord] = []
        for position, header in iter_batches(data):
            if not header.is_control:
                records = iter_records(data[position : position + header.size])
                chunk += [ShareStateRecord(r.offset, r.key, r.value) for r in records if r.key is not None]
        yield chunk
