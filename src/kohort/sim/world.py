"""Virtual time, a disk and a network that fail, and a node that runs the coordinator's own runtime."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kohort.coordinator.effects import Append, HistoryChanged, LoadFailed, Response
from kohort.coordinator.events import (
    BeginLoad,
    EndLoad,
    Event,
    GroupRequest,
    LoadRecords,
    LogRecord,
    Resign,
    Token,
)
from kohort.coordinator.runtime import Done, Runtime
from kohort.coordinator.settings import Settings, partition_for
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.wire.errors import ErrorCode

FAILURES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)


class VirtualClock:
    """Things to do, in the order of their times."""

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


@dataclass(slots=True)
class _Writing:
    write: Append
    done: Done
    error: ErrorCode


class Disk:
    """One log per partition. What a crash leaves of the writes under way is a matter of luck, but never a hole."""

    def __init__(self, clock: VirtualClock, random: Random, partitions: int) -> None:
        self.clock = clock
        self.random = random
        self.faults = FaultRates.none()
        self.logs: list[list[LogRecord]] = [[] for _ in range(partitions)]
        self.on_written: Callable[[int, LogRecord], None] = lambda partition, record: None
        self._under_way: list[deque[_Writing]] = [deque() for _ in range(partitions)]
        self._busy_until_ms = [0] * partitions

    def append(self, partition: int, write: Append, done: Done) -> None:
        roll = self.random.random
        delay_ms = int(roll() * 1_500) if roll() < self.faults.slow_disk else int(roll() * 8)
        failed = roll() < self.faults.failed_write
        error = self.random.choice(FAILURES) if failed else ErrorCode.NONE
        writing = _Writing(write, done, error)
        self._under_way[partition].append(writing)
        ready_ms = max(self._busy_until_ms[partition], self.clock.now_ms) + delay_ms
        self._busy_until_ms[partition] = ready_ms
        self.clock.after(ready_ms - self.clock.now_ms, lambda: self._finish(partition, writing))

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
    """Called around every step of a runtime; checks what must hold."""

    before: Callable[[int, Event], None] = lambda partition, event: None
    after: Callable[[int, Event], None] = lambda partition, event: None
    replied: Callable[[GroupRequest, Response], None] = lambda request, response: None
    history: Callable[[HistoryChanged], None] = lambda changed: None


class WatchedRuntime(Runtime):
    """The coordinator's runtime with someone who looks on."""

    observer: Observer

    def handle(self, partition: int, event: Event, now_ms: int) -> None:
        if self._running:
            super().handle(partition, event, now_ms)
            return
        self.observer.before(partition, event)
        super().handle(partition, event, now_ms)
        self.observer.after(partition, event)


Answered = Callable[[Response | None], None]
"""None: the connection broke."""


@dataclass(slots=True)
class SimulatedNode:
    """A broker that can die, start again from its log, and lose and regain partitions."""

    clock: VirtualClock
    random: Random
    settings: Settings
    disk: Disk
    observer: Observer
    up: bool = False
    runtime: WatchedRuntime = field(init=False)
    epoch: int = 0
    open: dict[Token, tuple[GroupRequest, Answered]] = field(default_factory=dict)
    restarts: int = 0
    _woken_for_ms: int = -1

    def start(self, load_ms: int = 0) -> None:
        self.runtime = WatchedRuntime(
            self.settings,
            self.disk,
            self._reply,
            on_history=self.observer.history,
            on_load_failed=self._load_failed,
        )
        self.runtime.observer = self.observer
        self.up = True
        self._woken_for_ms = -1
        for partition in range(self.settings.offsets_topic_num_partitions):
            self.load(partition, load_ms)

    def load(self, partition: int, load_ms: int) -> None:
        """The old epoch is fenced: nothing of it is under way any more when the log is read."""
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

    def deliver(self, request: GroupRequest, answered: Answered) -> None:
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
        """Asks the clock for the next deadline, once per deadline."""
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
    """Carries requests there and answers back, or does not."""

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
            self.clock.after(self._latency_ms() + 50, lambda: self.node.deliver(copy, lambda _: None))
            self.messages += 1
        if roll() < faults.lost:
            return
        request = make(self.messages)
        back = (lambda _: None) if roll() < faults.lost else self._back(answered)
        self.clock.after(self._latency_ms(), lambda: self.node.deliver(request, back))

    def _back(self, answered: Answered) -> Answered:
        return lambda response: self.clock.after(self._latency_ms(), lambda: answered(response))

    def _latency_ms(self) -> int:
        late = self.random.random() < self.faults.delayed
        return self.random.randint(500, 4_000) if late else self.random.randint(1, 10)
