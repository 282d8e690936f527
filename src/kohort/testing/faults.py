"""Faults that a test asks for, and the list of the requests that the broker has seen.

The broker serves from a table of APIs; `FaultTable` has the same rows, and looks at the faults before each handler. A
broker outside of tests knows nothing of this.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.api_row import Row
from kohort.broker.apis.table import TABLE
from kohort.broker.call import Call, Encoded, release
from kohort.testing.answers import MESSAGE as WHY
from kohort.testing.answers import error_answer
from kohort.testing.names import groups_in, topics_in
from kohort.testing.waiting import wait_until, wait_until_async
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

log = logging.getLogger("kohort.testing")

_MOST_REQUESTS = 100_000
_MOST_RECORD_BYTES = 64 << 20  # of produce requests that are remembered


class SeenRequest(NamedTuple):
    """A request that the broker has seen; `message` is the decoded message of Kafka's protocol."""

    api: str
    version: int
    client_id: str | None
    message: Any  # one class per API, in kohort.wire.messages


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a fault is for; None stands for any."""

    group: str | None = None
    topic: str | None = None
    client_id: str | None = None

    def fits(self, broker: Broker, call: Call) -> bool:
        return (
            (self.client_id is None or call.client_id == self.client_id)
            and (self.group is None or self.group in groups_in(call))
            and (self.topic is None or self.topic in topics_in(broker, call))
        )


class Fault:
    """One fault, which happens `times` times or until it is removed; at the end of a `with` it is removed."""

    def __init__(
        self,
        key: int,
        match: Match,
        times: int | None,
        remove: Callable[[Fault], None],
        *,
        error: ErrorCode | None = None,
        delay_ms: float = 0,
        cut: str = "",
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(
                f"times={times}: a fault happens at least once; times=None means until it is removed"
            )
        self.key, self.match = key, match
        self.error, self.delay_ms, self.cut = error, delay_ms, cut
        self.left = times
        self.hits = 0
        self._remove = remove

    @property
    def api(self) -> str:
        return TABLE[self.key].name

    def remove(self) -> None:
        """Ends the fault; does nothing if it has ended already."""
        self._remove(self)

    def wait(self, hits: int = 1, timeout: float = 30) -> None:
        """Waits until the fault has happened `hits` times; raises TimeoutError after `timeout` seconds."""
        wait_until(lambda: self.hits >= hits, timeout, lambda: self._still(hits, timeout))

    async def wait_async(self, hits: int = 1, timeout: float = 30) -> None:
        """Does what `wait` does, for a test with an event loop of its own."""
        await wait_until_async(lambda: self.hits >= hits, timeout, lambda: self._still(hits, timeout))

    def _still(self, hits: int, timeout: float) -> str:
        return f"{self!r} has not happened {hits} times within {timeout} s"

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def __repr__(self) -> str:
        what = self.error.name if self.error else self.cut or f"{self.delay_ms} ms late"
        return f"<{self.api}: {what}, {self.hits} times so far>"


BEFORE, AFTER = "disconnected before it is handled", "disconnected after it was handled"


class _Lost(Call):
    """A call whose answer never arrives: the connection is closed instead."""

    __slots__ = ()

    def answer(self, message: Message | Encoded) -> None:
        self._let_go(message)
        self.chunks = []
        self.connection.close_because(WHY)

    def reply(self, message: Message | Encoded) -> None:
        self._let_go(message)
        self.reply_nothing()
        self.connection.close_because(WHY)

    def reply_encoded(self, body: bytes) -> None:
        self.reply_nothing()
        self.connection.close_because(WHY)

    @staticmethod
    def _let_go(message: Message | Encoded) -> None:
        if isinstance(message, Encoded):
            release(message.chunks)


class FaultTable:
    """The table of APIs of one broker, with its faults: added from any thread, applied on the broker's."""

    def __init__(self) -> None:
        self.table = {key: self._row(row) for key, row in TABLE.items()}
        self._seen: deque[SeenRequest] = deque()
        self._record_bytes = 0
        self._faults: tuple[Fault, ...] = ()  # replaced, never changed, because the broker's thread reads it
        self._change = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        with self._change:
            self._faults = (*self._faults, fault)
        return fault

    def remove(self, fault: Fault) -> None:
        with self._change:
            self._faults = tuple(other for other in self._faults if other is not fault)

    def clear(self) -> None:
        with self._change:
            self._faults = ()

    def requests(self) -> list[SeenRequest]:
        with self._change:
            return list(self._seen)

    def forget_requests(self) -> None:
        with self._change:
            self._seen.clear()
            self._record_bytes = 0

    def _row(self, row: Row) -> Row:
        def handle(broker: Broker, call: Call) -> Any:
            outcome = self._apply_faults(row, broker, call)
            if outcome is None:
                return TABLE[row.key].handler(broker, call)  # not row.handler: some are loaded on first use
            if outcome.delay_ms:
                _carry_out_later(outcome, broker, call)
                return None
            return _carry_out(outcome, broker, call)

        async def handle_async(broker: Broker, call: Call) -> Any:
            outcome = self._apply_faults(row, broker, call)
            if outcome is not None and outcome.delay_ms:
                await _sleep(outcome.delay_ms, call)
            answer = row.handler(broker, call) if outcome is None else _carry_out(outcome, broker, call)
            return await answer if asyncio.iscoroutine(answer) else answer

        faulty = replace(row, handler=handle_async if row.is_async else handle)
        if row.own_codec is None:
            faulty.codecs = row.codecs
        return faulty

    # --- on the broker's thread ----------------------------------------------------------------------

    def _apply_faults(self, row: Row, broker: Broker, call: Call) -> _Outcome | None:
        """Remembers the request, and returns what must go wrong with it, or None."""
        recognized = None if isinstance(call.request, Message) else call.request
        if recognized is not None:
            call.request = recognized.message()  # for tests and faults, which look at messages
        self._remember(row, call)
        outcome: _Outcome | None = None
        for fault in self._faults:
            if fault.key != row.key or not fault.match.fits(broker, call):
                continue
            fault.hits += 1
            if fault.left is not None:
                fault.left -= 1
                if not fault.left:
                    self.remove(fault)
            outcome = outcome or _Outcome()
            outcome.delay_ms += fault.delay_ms
            if fault.error is not None or fault.cut:
                outcome.error, outcome.cut = fault.error, fault.cut
                break
        if recognized is not None and outcome is None:
            call.request = recognized  # so it may take the short way, as in production
        return outcome

    def _remember(self, row: Row, call: Call) -> None:
        message, size = call.request, 0
        if isinstance(message, ProduceRequest):
            # The records of a request are views of a buffer that the next request overwrites.
            message, size = _with_own_records(message)
            call.request, _ = _with_own_records(message)  # the broker writes offsets into its copy
        with self._change:
            self._seen.append(SeenRequest(row.name, call.version, call.client_id, message))
            self._record_bytes += size
            while len(self._seen) > _MOST_REQUESTS or self._record_bytes > _MOST_RECORD_BYTES:
                gone = self._seen.popleft()
                if isinstance(gone.message, ProduceRequest):
                    self._record_bytes -= _size_of(gone.message)


@dataclass(slots=True)
class _Outcome:
    """The combined effect of all faults on one request."""

    delay_ms: float = 0
    error: ErrorCode | None = None
    cut: str = ""


def _carry_out(outcome: _Outcome, broker: Broker, call: Call) -> Any:
    """Answers with the error, or closes the connection, or lets the broker handle the request as usual."""
    if outcome.error is not None:
        if getattr(call.request, "acks", None) == 0:
            call.reply_nothing()
            call.connection.close_because(f"acks=0 and a partition answered {outcome.error.name}")
            return None
        return error_answer(broker, call, outcome.error)
    if outcome.cut:
        call.__class__ = _Lost
    if outcome.cut == BEFORE:
        call.reply_nothing()
        call.connection.close_because(WHY)
        return None
    return TABLE[call.codec.api_key].handler(broker, call)


async def _sleep(delay_ms: float, call: Call) -> None:
    """Sleeps; the task is cancelled when the client goes away."""
    task = asyncio.current_task()
    assert task is not None

    def end() -> None:
        task.cancel()

    call.on_close = end
    call.connection.answers_at_end = False
    await asyncio.sleep(delay_ms / 1000)
    call.connection.answers_at_end = True
    call.on_close = None


def _carry_out_later(outcome: _Outcome, broker: Broker, call: Call) -> None:
    def go_on() -> None:
        call.on_close = None
        call.connection.answers_at_end = True
        try:
            answer = _carry_out(outcome, broker, call)
        except Exception:
            log.exception("closing the connection of %s: a request could not be handled", call.peer)
            call.connection.close()
            return
        if answer is not None:
            call.reply(answer)

    timer = call.connection.loop.call_later(outcome.delay_ms / 1000, go_on)
    call.connection.answers_at_end = False
    call.park(on_close=timer.cancel)


def _with_own_records(message: ProduceRequest) -> tuple[ProduceRequest, int]:
    """Returns a copy that owns its records, and their size in bytes."""
    topics = [
        TopicProduceData(
            topic.name,
            topic.topic_id,
            [PartitionProduceData(part.index, _own(part.records)) for part in topic.partition_data],
        )
        for topic in message.topic_data
    ]
    copy = ProduceRequest(message.transactional_id, message.acks, message.timeout_ms, topics)
    return copy, _size_of(copy)


def _own(records: Any) -> Any:
    return records if records is None else memoryview(bytearray(records))


def _size_of(message: ProduceRequest) -> int:
    return sum(len(part.records or b"") for topic in message.topic_data for part in topic.partition_data)
