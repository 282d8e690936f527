"""Runs the transaction shards of a node: routes events, appends records, sends markers, releases replies, keeps timers.

The same code runs in the broker and in the simulator. It does no I/O itself: a `TransactionHost` does, and whoever
owns the clock calls `fire_due` no later than `next_deadline_ms`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from kohort.transactions.effects import (
    AppendStates,
    ProducerIdNeeded,
    SendMarkers,
    SetTransactionTimer,
    StateLoadFailed,
    TransactionEffect,
    TransactionReply,
    TransactionResponse,
)
from kohort.transactions.events import (
    RequestToken,
    StateDurable,
    StateNotWritten,
    TransactionEvent,
    TransactionRequest,
    TransactionTimerFired,
)
from kohort.transactions.settings import TransactionSettings
from kohort.transactions.shard import TransactionShard
from kohort.wire.errors import ErrorCode
from kohort.wire.java_hash import partition_of

StateWritten = Callable[[ErrorCode, int], None]
"""done(error, now_ms) is called once for each append, in the order of the appends to a partition."""

OnSettled = Callable[[], None]
"""Is called once, when no transition of a transactional id is under way any more."""


class TransactionHost(Protocol):
    """What the runtime needs of the node."""

    def append_states(self, partition: int, write: AppendStates, done: StateWritten) -> None:
        """Writes the records as one batch and calls `done` when that is durable or has failed."""

    def send_markers(self, partition: int, markers: SendMarkers) -> None:
        """Writes the markers; `handle(partition, MarkersAnswered(…))` must follow."""

    def allocate_producer_id(self, partition: int, needed: ProducerIdNeeded) -> None:
        """Gets a fresh producer id; the request must be handled again with it, or be refused."""

    def on_transaction_reply(self, request: RequestToken, response: TransactionResponse) -> None:
        """Answers a request."""

    def on_state_load_failed(self, partition: int, failed: StateLoadFailed) -> None:
        """Is told that a partition cannot be loaded."""


class TransactionRuntime:
    """All transaction shards of one node. An event that comes during a step waits for its end."""

    def __init__(self, settings: TransactionSettings, host: TransactionHost) -> None:
        self.settings = settings
        self.shards = [TransactionShard(p, settings) for p in range(settings.state_log_num_partitions)]
        self._host = host
        self._timers: list[tuple[int, int, int, SetTransactionTimer]] = []
        self._timers_set = 0
        self._waiting: deque[tuple[int, TransactionEvent, int]] = deque()
        self._running = False
        self._unsettled: dict[str, list[OnSettled]] = {}
        """Transactional id -> who waits for its transition that is under way."""

    def partition_of(self, transactional_id: str) -> int:
        """Returns the partition of `__transaction_state` that holds a transactional id."""
        return partition_of(transactional_id, len(self.shards))

    def submit(self, request: TransactionRequest, now_ms: int) -> None:
        """Takes a request about one transactional id; the host is told the answer, perhaps before this returns."""
        self.handle(self.partition_of(request.transactional_id), request, now_ms)

    def handle(self, partition: int, event: TransactionEvent, now_ms: int) -> None:
        self._waiting.append((partition, event, now_ms))
        if self._running:
            return
        self._running = True
        try:
            while self._waiting:
                partition, event, now_ms = self._waiting.popleft()
                self._carry_out(partition, self.shards[partition].step(event, now_ms))
        finally:
            self._running = False
        if self._unsettled:
            self._tell_settled()

    def when_settled(self, transactional_id: str, settled: OnSettled) -> None:
        """Calls `settled` when the transition that made a request CONCURRENT_TRANSACTIONS is over.

        That is when the markers of the transaction before are written, and its Complete. It may never come, if the
        partition is lost: whoever waits has a deadline of their own.
        """
        self._unsettled.setdefault(transactional_id, []).append(settled)

    def forget_settled(self, transactional_id: str, settled: OnSettled) -> None:
        """Takes back a `when_settled` whose caller does not wait any more."""
        waiting = self._unsettled.get(transactional_id)
        if waiting is not None and settled in waiting:
            waiting.remove(settled)
            if not waiting:
                del self._unsettled[transactional_id]

    def _tell_settled(self) -> None:
        over = [each for each in self._unsettled if each not in self.shards[self.partition_of(each)].pending]
        told = [settled for each in over for settled in self._unsettled.pop(each)]
        for settled in told:
            settled()

    def next_deadline_ms(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def fire_due(self, now_ms: int) -> None:
        while self._timers and self._timers[0][0] <= now_ms:
            _, _, partition, timer = heapq.heappop(self._timers)
            self.handle(partition, TransactionTimerFired(timer.kind, timer.deadline_ms), now_ms)

    def _carry_out(self, partition: int, effects: Iterable[TransactionEffect]) -> None:
        for effect in effects:
            match effect:
                case TransactionReply(request, response):
                    self._host.on_transaction_reply(request, response)
                case AppendStates():
                    self._append(partition, effect)
                case SendMarkers():
                    self._host.send_markers(partition, effect)
                case SetTransactionTimer(_, deadline_ms):
                    self._timers_set += 1
                    heapq.heappush(self._timers, (deadline_ms, self._timers_set, partition, effect))
                case ProducerIdNeeded():
                    self._host.allocate_producer_id(partition, effect)
                case StateLoadFailed():
                    self._host.on_state_load_failed(partition, effect)

    def _append(self, partition: int, write: AppendStates) -> None:
        def done(error: ErrorCode, now_ms: int) -> None:
            if error:
                self.handle(partition, StateNotWritten(write.token, error), now_ms)
            else:
                self.handle(partition, StateDurable(write.token), now_ms)

        self._host.append_states(partition, write, done)
