"""Runs the shards of a node: routes events, appends records, releases replies, keeps timers.

The same code runs in the broker and in the simulator. It does no I/O itself: a `Log` appends and calls back,
`on_reply` sends, and whoever owns the clock calls `fire_due` no later than `next_deadline_ms`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from kohort.coordinator.commit_layout import CommitLayout, LaidOutRecords
from kohort.coordinator.effects import (
    Append,
    CommitResponse,
    Effect,
    HistoryChanged,
    LoadFailed,
    Reply,
    Response,
    SetTimer,
    ShareStateWanted,
)
from kohort.coordinator.events import (
    DurableWritten,
    Event,
    GroupRequest,
    OffsetCommit,
    TimerFired,
    Token,
    WriteFailed,
)
from kohort.coordinator.group_config import GroupConfigOf
from kohort.coordinator.settings import Settings, partition_for
from kohort.coordinator.shard import Shard, WriteAtOnce
from kohort.coordinator.topic_catalog import TopicCatalog
from kohort.wire.errors import ErrorCode, KafkaError

Done = Callable[[ErrorCode, int, int], None]
"""done(error, base_offset, now_ms) is called once for each append, in the order of the appends to a partition."""

WriteLater = Callable[[int, LaidOutRecords, int, Callable[[int, ErrorCode], None]], None]
"""write(partition, records, now_ms, done) raises KafkaError, or calls done(base_offset, error) once.

It calls `done` in the order of the writes to a partition.
"""


class Log(Protocol):
    def append(self, partition: int, write: Append, done: Done) -> None:
        """Writes the records as one batch and calls `done` when that is durable or has failed."""


class Runtime:
    """All shards of one node. It is not re-entrant on purpose: an event that comes during a step waits for its end.

    Nor does a request take a short way during a step; it must be submitted and waits like any event.
    """

    def __init__(
        self,
        settings: Settings,
        log: Log,
        on_reply: Callable[[Token, Response], None],
        *,
        on_history: Callable[[HistoryChanged], None] | None = None,
        on_load_failed: Callable[[int, LoadFailed], None] | None = None,
        on_share_state: Callable[[int, ShareStateWanted], None] | None = None,
        topics: TopicCatalog | None = None,
        config_of: GroupConfigOf | None = None,
    ) -> None:
        self.settings = settings
        self.shards = [
            Shard(p, settings, topics, config_of) for p in range(settings.offsets_topic_num_partitions)
        ]
        self._log = log
        self._on_reply = on_reply
        self._on_history = on_history
        self._on_load_failed = on_load_failed
        self._on_share_state = on_share_state
        self._timers: list[tuple[int, int, int, SetTimer]] = []
        self._timers_set = 0
        self._waiting: deque[tuple[int, Event, int]] = deque()
        self._running = False

    def submit(self, request: GroupRequest, now_ms: int) -> None:
        """Takes a request about one group; the answer comes through `on_reply`, perhaps before this returns."""
        partition = partition_for(request.group_id or "", len(self.shards))
        self.handle(partition, request, now_ms)

    def heartbeat_in_time(
        self, group_id: str, member_id: str, generation_id: int, now_ms: int
    ) -> ErrorCode | None:
        """Answers a heartbeat of a dynamic member by the short way of its shard; None if it must be submitted."""
        if self._running:
            return None
        shard = self.shards[partition_for(group_id, len(self.shards))]
        return shard.heartbeat_in_time(group_id, member_id, generation_id, now_ms)

    def consumer_heartbeat_in_time(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        instance_id: str | None,
        client: tuple[str, str],
        now_ms: int,
    ) -> int | None:
        """Answers a heartbeat of KIP-848 by the short way of its shard; None if it must be submitted."""
        if self._running:
            return None
        shard = self.shards[partition_for(group_id, len(self.shards))]
        return shard.consumer_heartbeat_in_time(
            group_id, member_id, member_epoch, instance_id, client, now_ms
        )

    def commit_at_once(
        self,
        layout: CommitLayout,
        offsets: tuple[int, ...],
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        now_ms: int,
        write: WriteAtOnce,
    ) -> CommitResponse | None:
        """Answers a commit by the short way of its shard; None if it must be submitted.

        This is for a log whose writes are durable at once.
        """
        if self._running:
            return None
        shard = self.shards[partition_for(layout.group_id, len(self.shards))]
        return shard.commit_at_once(
            layout, offsets, generation_id, member_id, group_instance_id, now_ms, write
        )

    def commit_when_durable(self, request: OffsetCommit, now_ms: int, write: WriteLater) -> bool:
        """Takes a commit in a layout by the short way of its shard; the answer comes through `on_reply`.

        This is for a log that tells later that a write is durable. False, and nothing was done, if the request must
        be submitted.
        """
        if self._running:
            return False
        partition = partition_for(request.group_id or "", len(self.shards))
        begun = self.shards[partition].begin_commit(request, now_ms)
        if begun is None:
            return False
        token, records = begun
        try:
            write(partition, records, now_ms, partial(self._commit_written, partition, token, now_ms))
        except KafkaError as error:
            self.handle(partition, WriteFailed(token, error.code), now_ms)
        return True

    def _commit_written(
        self, partition: int, token: int, now_ms: int, base_offset: int, error: ErrorCode
    ) -> None:
        """Ends a commit of `commit_when_durable`, again by the short way where that is possible."""
        if error:
            self.handle(partition, WriteFailed(token, error), now_ms)
            return
        if self._running:
            self.handle(partition, DurableWritten(token, base_offset), now_ms)
            return
        settled = self.shards[partition].settle_commit(token, base_offset)
        if settled is not None:
            request, response = settled
            self._on_reply(request.request, response)

    def handle(self, partition: int, event: Event, now_ms: int) -> None:
        if self._running:
            self._waiting.append((partition, event, now_ms))
            return
        self._running = True
        try:
            self._carry_out(partition, self.shards[partition].step(event, now_ms))
            while self._waiting:
                partition, event, now_ms = self._waiting.popleft()
                self._carry_out(partition, self.shards[partition].step(event, now_ms))
        finally:
            self._running = False

    def next_deadline_ms(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def fire_due(self, now_ms: int) -> None:
        while self._timers and self._timers[0][0] <= now_ms:
            _, _, partition, timer = heapq.heappop(self._timers)
            fired = TimerFired(timer.kind, timer.group_id, timer.member_id, timer.deadline_ms)
            self.handle(partition, fired, now_ms)

    def _carry_out(self, partition: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            # Not `match`: every request has a Reply, and a class pattern takes six times as long.
            if isinstance(effect, Reply):
                self._on_reply(effect.request, effect.response)
            elif isinstance(effect, SetTimer):
                self._timers_set += 1
                heapq.heappush(self._timers, (effect.deadline_ms, self._timers_set, partition, effect))
            elif isinstance(effect, Append):
                self._append(partition, effect)
            elif isinstance(effect, HistoryChanged) and self._on_history is not None:
                self._on_history(effect)
            elif isinstance(effect, ShareStateWanted) and self._on_share_state is not None:
                self._on_share_state(partition, effect)
            elif isinstance(effect, LoadFailed) and self._on_load_failed is not None:
                self._on_load_failed(partition, effect)

    def _append(self, partition: int, write: Append) -> None:
        def done(error: ErrorCode, base_offset: int, now_ms: int) -> None:
            if error:
                self.handle(partition, WriteFailed(write.token, error), now_ms)
            else:
                self.handle(partition, DurableWritten(write.token, base_offset), now_ms)

        self._log.append(partition, write, done)
