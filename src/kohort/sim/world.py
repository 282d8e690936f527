"""The simulated world: virtual time, a disk and a network that fail, and a node with the coordinator's runtime."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kohort.coordinator.commit_layout import CommitLayout, LaidOutOffsets, LaidOutRecords
from kohort.coordinator.effects import (
    Append,
    CommitResponse,
    ConsumerHeartbeatResponse,
    HeartbeatResponse,
    HistoryChanged,
    LoadFailed,
    Response,
)
from kohort.coordinator.events import (
    BeginLoad,
    ConsumerGroupHeartbeat,
    DurableWritten,
    EndLoad,
    Event,
    GroupRequest,
    Heartbeat,
    LoadRecords,
    LogRecord,
    OffsetCommit,
    Resign,
    Token,
)
from kohort.coordinator.group_config import GroupConfigOf
from kohort.coordinator.runtime import Done, Runtime
from kohort.coordinator.settings import Settings, partition_for
from kohort.coordinator.topic_catalog import TopicCatalog
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.wire.errors import ErrorCode, KafkaError

FAILURES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
SHORT_WAY_RATES = (0.0, 0.5, 0.5, 0.9)
AT_ONCE_RATE = 0.25
NO_TOKEN = -1


class VirtualClock:
    """Virtual time: actions that run in the order of their times."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, action))

    def run_until(self, end_ms: int) -> None:
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
        self.now_ms = end_ms


class ShortWays:
    """Chooses by the seed which requests take a short way of the coordinator (see coordinator/shard.py).

    It draws from random numbers of its own: a run without short ways is the same whether it could have had them or not.
    """

    def __init__(self, seed: int, rate: float | None = None) -> None:
        self.random = Random(f"short ways {seed}")
        self.rate = self.random.choice(SHORT_WAY_RATES) if rate is None else rate
        """How many of the requests that may take a short way try to do so."""
        self.disk_is_at_once = self.rate > 0 and self.random.random() < AT_ONCE_RATE
        """Whether each write is durable when it returns, as on a broker with `durability=os` or `memory`."""
        self.taken = 0

    def chosen(self) -> bool:
        return self.random.random() < self.rate

    def burst(self) -> list[int]:
        """When a member commits: now, and with short ways some times more, as only the second of two may take one."""
        count = self.random.randint(1, 4) if self.rate else 1
        return [number * self.random.randint(20, 150) for number in range(count)]


@dataclass(slots=True)
class _Writing:
    write: Append
    done: Done
    error: ErrorCode


class Disk:
    """A disk with one log per partition; a crash keeps a random number of the writes under way, but leaves no hole."""

    def __init__(self, clock: VirtualClock, random: Random, partitions: int) -> None:
        self.clock = clock
        self.random = random
        self.faults = FaultRates.none()
        self.is_at_once = False
        """Whether each write is durable when it returns."""
        self.logs: list[list[LogRecord]] = [[] for _ in range(partitions)]
        self.on_written: Callable[[int, LogRecord], None] = lambda partition, record: None
        self._under_way: list[deque[_Writing]] = [deque() for _ in range(partitions)]
        self._busy_until_ms = [0] * partitions

    def append(self, partition: int, write: Append, done: Done) -> None:
        roll = self.random.random
        delay_ms = int(roll() * 1_500) if roll() < self.faults.slow_disk else int(roll() * 8)
        error = self.random.choice(FAILURES) if self._fails_later() else ErrorCode.NONE
        writing = _Writing(write, done, error)
        self._under_way[partition].append(writing)
        if self.is_at_once:
            self._finish(partition, writing)
            return
        ready_ms = max(self._busy_until_ms[partition], self.clock.now_ms) + delay_ms
        self._busy_until_ms[partition] = ready_ms
        self.clock.after(ready_ms - self.clock.now_ms, lambda: self._finish(partition, writing))

    def _fails_later(self) -> bool:
        return self.random.random() < self.faults.failed_write

    def write_at_once(self, partition: int, records: LaidOutRecords, now_ms: int) -> int:
        """Writes a commit of `Shard.commit_at_once`, which must not overtake anything."""
        if self._under_way[partition]:
            raise Broken(f"partition {partition}: a commit overtakes a write that is under way")
        if self.random.random() < self.faults.failed_write:
            raise KafkaError(self.random.choice(FAILURES), "the simulated disk fails")
        base = len(self.logs[partition])
        self._write(partition, Append(NO_TOKEN, records))
        return base

    def write_later(
        self, partition: int, records: LaidOutRecords, done: Callable[[int, ErrorCode], None]
    ) -> None:
        """Writes a commit of `Shard.begin_commit`; it may fail at once or later."""
        if self.random.random() < self.faults.failed_write / 2:
            raise KafkaError(self.random.choice(FAILURES), "the simulated disk fails")
        self.append(partition, Append(NO_TOKEN, records), lambda error, base, now_ms: done(base, error))

    def busy(self, partition: int) -> bool:
        return bool(self._under_way[partition])

    def _finish(self, partition: int, writing: _Writing) -> None:
        queue = self._under_way[partition]
        if not queue or queue[0] is not writing:
            return  # lost in a crash
        queue.popleft()
        base = len(self.logs[partition])
        if not writing.error:
            self._write(partition, writing.write)
        writing.done(writing.error, base, self.clock.now_ms)

    def _write(self, partition: int, write: Append) -> None:
        log = self.logs[partition]
        for key, value in write.records:
            log.append(LogRecord(len(log), key, value, write.producer_id))
            self.on_written(partition, log[-1])

    def crash(self) -> None:
        for partition, queue in enumerate(self._under_way):
            survivors = self.random.randint(0, len(queue))
            for writing in list(queue)[:survivors]:
                if not writing.error:
                    self._write(partition, writing.write)
            queue.clear()
            self._busy_until_ms[partition] = 0


@dataclass(slots=True)
class Observer:
    """Functions that check what must hold; they are called around every step and every short way of a runtime."""

    before: Callable[[int, Event], None] = lambda partition, event: None
    after: Callable[[int, Event], None] = lambda partition, event: None
    replied: Callable[[GroupRequest, Response], None] = lambda request, response: None
    history: Callable[[HistoryChanged], None] = lambda changed: None


class WatchedRuntime(Runtime):
    """The coordinator's runtime, with an observer around every step."""

    observer: Observer

    def handle(self, partition: int, event: Event, now_ms: int) -> None:
        if self._running:
            super().handle(partition, event, now_ms)
            return
        self.observer.before(partition, event)
        super().handle(partition, event, now_ms)
        self.observer.after(partition, event)


Answered = Callable[[Response | None], None]
"""Called with the response, or with None if the connection broke."""


@dataclass(slots=True)
class SimulatedNode:
    """A broker that can die, start again from its log, and lose and regain partitions."""

    clock: VirtualClock
    random: Random
    settings: Settings
    disk: Disk
    observer: Observer
    ways: ShortWays
    topics: TopicCatalog | None = None
    config_of: GroupConfigOf | None = None
    up: bool = False
    runtime: WatchedRuntime = field(init=False)
    epoch: int = 0
    open: dict[Token, tuple[GroupRequest, Answered]] = field(default_factory=dict)
    restarts: int = 0
    _woken_for_ms: int = -1
    _observed: int = 0

    def start(self, load_ms: int = 0) -> None:
        self.runtime = WatchedRuntime(
            self.settings,
            self.disk,
            self._reply,
            on_history=self.observer.history,
            on_load_failed=self._load_failed,
            topics=self.topics,
            config_of=self.config_of,
        )
        self.runtime.observer = self.observer
        self.up = True
        self._woken_for_ms = -1
        for partition in range(self.settings.offsets_topic_num_partitions):
            self.load(partition, load_ms)

    def load(self, partition: int, load_ms: int) -> None:
        """Loads a partition; the old epoch is fenced, so the log is read when none of its writes is under way."""
        self.epoch += 1
        epoch, runtime = self.epoch, self.runtime
        runtime.handle(partition, BeginLoad(epoch), self.clock.now_ms)

        def finish() -> None:
            if runtime is not self.runtime or not self.up:
                return
            if self.disk.busy(partition):
                self.clock.after(50, finish)
                return
            records = LoadRecords(epoch, list(self.disk.logs[partition]))
            runtime.handle(partition, records, self.clock.now_ms)
            runtime.handle(partition, EndLoad(epoch), self.clock.now_ms)
            self.wake()

        if load_ms:
            self.clock.after(load_ms, finish)
        else:
            finish()

    def resign(self, partition: int) -> None:
        self.epoch += 1
        self.runtime.handle(partition, Resign(self.epoch), self.clock.now_ms)

    def crash(self) -> None:
        self.up = False
        self.restarts += 1
        self.disk.crash()
        dropped, self.open = self.open, {}
        for _, answered in dropped.values():
            answered(None)

    # ---- requests

    def receive(self, request: GroupRequest, answered: Answered) -> None:
        """Serves a request as the broker's handlers do: by a short way if it may take one and the seed says so."""
        response: Response | None = None
        if isinstance(request, Heartbeat) and request.group_instance_id is None:
            error = self.heartbeat(request.group_id or "", request.member_id, request.generation_id)
            response = None if error is None else HeartbeatResponse(error)
        elif isinstance(request, ConsumerGroupHeartbeat):
            response = self._consumer_heartbeat(request)
        elif isinstance(request, OffsetCommit) and isinstance(request.offsets, LaidOutOffsets):
            who = (request.generation_id, request.member_id, request.group_instance_id)
            response = self.commit(request.offsets.layout, request.offsets.offsets, *who)
            if response is None:
                self.submit_commit(request, answered)
                return
        if response is None:
            self.deliver(request, answered)
        else:
            answered(response)

    def heartbeat(self, group_id: str, member_id: str, generation_id: int) -> ErrorCode | None:
        """The short way of a heartbeat, with the observer around it; None if the request must be delivered."""
        if not self.up or not self.ways.chosen():
            return None
        partition = self.partition_of(group_id)
        request = Heartbeat(self._observed_token(), group_id, member_id, generation_id)
        self.observer.before(partition, request)
        error = self.runtime.heartbeat_in_time(group_id, member_id, generation_id, self.clock.now_ms)
        if error is not None:
            self._took_short_way(partition, request, HeartbeatResponse(error))
        return error

    def _consumer_heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerHeartbeatResponse | None:
        """The short way of a heartbeat of KIP-848; None if the request must be delivered."""
        is_plain = request.topic_names is None and request.topic_regex is None and request.owned is None
        if not is_plain or request.member_epoch <= 0 or not self.up or not self.ways.chosen():
            return None
        group_id, member_id, epoch = request.group_id or "", request.member_id, request.member_epoch
        partition = self.partition_of(group_id)
        self.observer.before(partition, request)
        client = (request.client_id, request.client_host)
        interval_ms = self.runtime.consumer_heartbeat_in_time(
            group_id, member_id, epoch, request.instance_id, client, self.clock.now_ms
        )
        if interval_ms is None:
            return None
        response = ConsumerHeartbeatResponse(ErrorCode.NONE, None, member_id, epoch, interval_ms)
        self._took_short_way(partition, request, response)
        return response

    def commit(
        self,
        layout: CommitLayout,
        offsets: tuple[int, ...],
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
    ) -> CommitResponse | None:
        """The short way of a commit that is durable at once; None if the request must be delivered."""
        at_once = self.disk.is_at_once or self.ways.random.random() < 0.5
        if not self.up or not at_once or not self.ways.chosen():
            return None
        partition, who = self.partition_of(layout.group_id), (generation_id, member_id, group_instance_id)
        laid_out = LaidOutOffsets(layout, offsets)
        request = OffsetCommit(self._observed_token(), layout.group_id, laid_out, *who)
        self.observer.before(partition, request)
        response = self.runtime.commit_at_once(
            layout, offsets, *who, self.clock.now_ms, self.disk.write_at_once
        )
        if response is not None:
            self._took_short_way(partition, request, response)
        return response

    def _observed_token(self) -> Token:
        self._observed += 1
        return ("short way", self._observed)

    def _took_short_way(self, partition: int, request: GroupRequest, response: Response) -> None:
        self.ways.taken += 1
        self.observer.replied(request, response)
        self.observer.after(partition, request)

    def submit_commit(self, request: OffsetCommit, answered: Answered) -> None:
        """Delivers a commit in a layout by the short way for a log that needs time, or as an event."""
        if self.up and self.ways.chosen():
            partition = self.partition_of(request.group_id or "")
            self.open[request.request] = (request, answered)
            self.observer.before(partition, request)
            if self.runtime.commit_when_durable(request, self.clock.now_ms, self._write_later):
                self.ways.taken += 1
                self.observer.after(partition, request)
                self.wake()
                return
        self.deliver(request, answered)

    def _write_later(
        self, partition: int, records: LaidOutRecords, now_ms: int, done: Callable[[int, ErrorCode], None]
    ) -> None:
        def observed(base_offset: int, error: ErrorCode) -> None:
            done(base_offset, error)
            self.observer.after(partition, DurableWritten(NO_TOKEN, base_offset))

        self.disk.write_later(partition, records, observed)

    def deliver(self, request: GroupRequest, answered: Answered) -> None:
        """Hands a request to the coordinator as an event."""
        if not self.up:
            answered(None)
            return
        self.open[request.request] = (request, answered)
        self.runtime.submit(request, self.clock.now_ms)
        self.wake()

    def handle(self, partition: int, event: Event) -> None:
        if self.up:
            self.runtime.handle(partition, event, self.clock.now_ms)
            self.wake()

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def _reply(self, token: Token, response: Response) -> None:
        found = self.open.pop(token, None)
        if found is None:
            raise Broken(f"request {token} was answered twice, or never asked: {response}")
        request, answered = found
        self.observer.replied(request, response)
        answered(response)

    def _load_failed(self, partition: int, failure: LoadFailed) -> None:
        raise Broken(f"partition {partition} could not be loaded: {failure.message}")

    def wake(self) -> None:
        """Asks the clock to wake the node at the next deadline, once per deadline."""
        deadline_ms = self.runtime.next_deadline_ms()
        if deadline_ms is None or (self.clock.now_ms <= self._woken_for_ms <= deadline_ms):
            return
        self._woken_for_ms = max(deadline_ms, self.clock.now_ms)
        runtime = self.runtime
        self.clock.after(self._woken_for_ms - self.clock.now_ms, lambda: self._fire(runtime))

    def _fire(self, runtime: WatchedRuntime) -> None:
        if runtime is self.runtime and self.up:
            runtime.fire_due(self.clock.now_ms)
            self._woken_for_ms = -1
            self.wake()


class SimulatedNetwork:
    """Carries requests to the node and answers back, or loses them."""

    def __init__(self, clock: VirtualClock, random: Random, node: SimulatedNode) -> None:
        self.clock = clock
        self.random = random
        self.node = node
        self.faults = FaultRates.none()
        self.messages = 0

    def send(self, make: Callable[[Token], GroupRequest], answered: Answered) -> None:
        roll = self.random.random
        faults = self.faults
        self.messages += 1
        if roll() < faults.disconnected:
            self.clock.after(self._latency_ms(), lambda: answered(None))
            return
        if roll() < faults.duplicated:
            self.messages += 1
            copy = make(self.messages)
            self.clock.after(self._latency_ms() + 50, lambda: self.node.receive(copy, lambda _: None))
            self.messages += 1
        if roll() < faults.lost:
            return
        request = make(self.messages)
        back = (lambda _: None) if roll() < faults.lost else self._back(answered)
        self.clock.after(self._latency_ms(), lambda: self.node.receive(request, back))

    def _back(self, answered: Answered) -> Answered:
        return lambda response: self.clock.after(self._latency_ms(), lambda: answered(response))

    def _latency_ms(self) -> int:
        late = self.random.random() < self.faults.delayed
        return self.random.randint(500, 4_000) if late else self.random.randint(1, 10)
