"""The connections of one simulated client: ordered as TCP's are, and slow, stalled or broken by the fault rates.

A connection that stalls lets nothing through any more, until the client's timeout closes it. A request that is under
way when a connection breaks may still arrive and be carried out; only the answer is lost for certain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Lane, Send
from kohort.client.core.metadata import Metadata
from kohort.sim.brokers import Brokers
from kohort.sim.faults import FaultRates
from kohort.sim.world import VirtualClock
from kohort.wire.compiler.compile import codec

FIRST_BACKOFF_MS, LONGEST_BACKOFF_MS = 50, 1_000
Done = Callable[[Answer], None]


@dataclass(slots=True, eq=False)
class _Request:
    send: Send
    done: Done
    deadline_ms: int
    version: int = -1
    response: Any = None


@dataclass(slots=True, eq=False)
class Link:
    """One connection to a broker."""

    node_id: int
    lane: Lane
    broker_life: int
    out_ms: int
    """When the last request arrives at the broker; the next one does not arrive earlier."""
    back_ms: int = 0
    asked: deque[_Request] = field(default_factory=deque)
    at_broker: deque[tuple[_Request, bytes]] = field(default_factory=deque)
    busy: bool = False
    """The broker answers one request of a connection after the other."""
    arrived: deque[_Request] = field(default_factory=deque)
    """Answers in the client's socket, which the client may not read for long."""
    stalled: bool = False
    open: bool = True


class Links:
    """The part of a network that an engine uses; `wake(lane)` tells the client that it can read something."""

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        brokers: Brokers,
        faults: Callable[[], FaultRates],
        metadata: Metadata,
        client_id: str,
        wake: Callable[[Lane], None],
    ) -> None:
        self.clock, self.random, self.brokers, self.faults = clock, random, brokers, faults
        self.metadata, self.client_id, self.wake = metadata, client_id, wake
        self.links: dict[tuple[int, Lane], Link] = {}
        self.failures: dict[int, int] = {}
        self.retry_ms: dict[int, int] = {}
        self.last_error = ""
        self.closed = False
        self._unread: list[tuple[Lane, Done, Answer]] = []
        """Answers in the sockets of broken connections."""
        self._failed: list[tuple[Lane, Done, Answer]] = []

    # ---- what the engine calls

    def submit(self, send: Send, done: Done) -> None:
        request = _Request(send, done, self.clock.now_ms + send.timeout_ms)
        node_id = send.node_id
        if node_id == ANY_NODE:
            node_id = self.random.choice(self.brokers.alive() or list(self.brokers.brokers))
        elif self.metadata.node(node_id) is None:
            self._fail(request, FailureKind.DISCONNECTED, f"node {node_id} is not known")
            return
        request.version = self.brokers.version_for(send.api_key, send.max_version)
        try:
            message = send.make(request.version)
        except ValueError as error:
            self._fail(request, FailureKind.UNSUPPORTED_VERSION, str(error))
            return
        body = b"".join(codec(send.api_key, request.version).encode_request(message))
        link = self.links.get((node_id, send.lane)) or self._connect(node_id, send.lane)
        link.asked.append(request)
        self._carry(link, request, body)

    @property
    def is_readable(self) -> bool:
        return bool(self._unread or any(link.arrived for link in self.links.values()))

    def read(self, only: Lane | None = None) -> None:
        """Hands out what has arrived, all of it or on one lane; a client that does not read hears of nothing."""
        for link in list(self.links.values()):
            while link.arrived and (only is None or link.lane is only):
                request = link.arrived.popleft()
                request.done(Answer(request.send, request.version, request.response))
        self._unread = _hand_out(self._unread, only)

    def tick(self, now_ms: int, *, only: Lane | None = None) -> None:
        """Fails requests that are too late, and hands out failures; with `only` on that lane alone."""
        for link in list(self.links.values()):
            if only is not None and link.lane is not only:
                continue
            late = [request for request in link.asked if request.deadline_ms <= now_ms]
            if late:
                link.asked = deque(request for request in link.asked if request not in late)
                for request in late:
                    self._fail(request, FailureKind.TIMED_OUT, f"no answer for {request.send.timeout_ms} ms")
                self.broken(link, "a request was too late")
        self._failed = _hand_out(self._failed, only)

    def next_deadline_ms(self, *, only: Lane | None = None) -> int | None:
        return min(
            (
                request.deadline_ms
                for link in self.links.values()
                if only is None or link.lane is only
                for request in link.asked
            ),
            default=None,
        )

    def close(self) -> None:
        """Closes all connections, as the end of the process does; what it sent may still arrive."""
        self.closed = True
        for link in list(self.links.values()):
            self.broken(link, "closed")

    # ---- there

    def _connect(self, node_id: int, lane: Lane) -> Link:
        begins_ms = max(self.clock.now_ms, self.retry_ms.get(node_id, 0))
        ready_ms = begins_ms + self.random.randint(1, 5)
        broker = self.brokers.brokers[node_id]
        link = self.links[node_id, lane] = Link(node_id, lane, broker.lives, ready_ms)

        def connected() -> None:
            link.broker_life = broker.lives
            if not link.open:
                return
            if not broker.up:
                self.broken(link, f"broker {node_id} cannot be reached")

        self.clock.after(ready_ms - self.clock.now_ms, connected)
        return link

    def _carry(self, link: Link, request: _Request, body: bytes) -> None:
        roll, faults = self.random.random, self.faults()
        if roll() < faults.lost:
            link.stalled = True
        if roll() < faults.disconnected:
            self.clock.after(self.random.randint(1, 50), lambda: self.broken(link, "the connection broke"))
        link.out_ms = max(link.out_ms, self.clock.now_ms + self._latency_ms())
        stalled = link.stalled
        self.clock.after(link.out_ms - self.clock.now_ms, lambda: self._reach(link, request, body, stalled))

    def _reach(self, link: Link, request: _Request, body: bytes, stalled: bool) -> None:
        broker = self.brokers.brokers[link.node_id]
        if stalled or not broker.up or broker.lives != link.broker_life:
            return
        if not link.open and self.random.random() < 0.5:
            return
        link.at_broker.append((request, body))
        self._serve(link)

    def _serve(self, link: Link) -> None:
        if link.busy or not link.at_broker:
            return
        request, body = link.at_broker.popleft()
        link.busy = True
        life = link.broker_life

        def reply(response: Any) -> None:
            if life != self.brokers.brokers[link.node_id].lives:
                return
            link.busy = False
            self._answer(link, request, response)
            self._serve(link)

        self.brokers.serve(link.node_id, request.send.api_key, request.version, self.client_id, body, reply)

    # ---- and back

    def _answer(self, link: Link, request: _Request, response: Any) -> None:
        if not link.open or link.stalled:
            return
        roll, faults = self.random.random, self.faults()
        if roll() < faults.lost:
            link.stalled = True
            return
        if (
            roll() < faults.duplicated
        ):  # the request was carried out, but the client is not told and asks again
            self.broken(link, "the connection broke before the answer")
            return
        request.response = response
        link.back_ms = max(link.back_ms, self.clock.now_ms + self._latency_ms())

        def arrive() -> None:
            if link.open:
                assert link.asked[0] is request or request not in link.asked, "answers come in order"
                if request in link.asked:
                    link.asked.remove(request)
                    link.arrived.append(request)
                    self.failures[link.node_id] = 0
                    self.wake(link.lane)

        self.clock.after(link.back_ms - self.clock.now_ms, arrive)

    # ---- trouble

    def broken(self, link: Link, why: str) -> None:
        """Breaks a connection; the client learns of it when it looks, and still reads what is in its socket."""
        if not link.open:
            return
        link.open = False
        if self.links.get((link.node_id, link.lane)) is link:
            del self.links[link.node_id, link.lane]
        failures = self.failures[link.node_id] = self.failures.get(link.node_id, 0) + 1
        backoff_ms = min(FIRST_BACKOFF_MS << min(failures - 1, 10), LONGEST_BACKOFF_MS)
        self.retry_ms[link.node_id] = self.clock.now_ms + backoff_ms
        self.last_error = why
        for request in link.arrived:
            answer = Answer(request.send, request.version, request.response)
            self._unread.append((link.lane, request.done, answer))
        for request in link.asked:
            self._fail(request, FailureKind.DISCONNECTED, why)
        link.asked.clear()
        link.arrived.clear()
        if not self.closed:
            self.metadata.request_update(f"lost broker {link.node_id}")
        self.wake(link.lane)

    def broker_died(self, node_id: int) -> None:
        for link in list(self.links.values()):
            if link.node_id == node_id:
                self.broken(link, f"broker {node_id} died")

    def _fail(self, request: _Request, kind: FailureKind, message: str) -> None:
        answer = Answer(request.send, failure=Failure(kind, message))
        self._failed.append((request.send.lane, request.done, answer))
        self.wake(request.send.lane)

    def _latency_ms(self) -> int:
        late = self.random.random() < self.faults().delayed
        return self.random.randint(500, 4_000) if late else self.random.randint(1, 10)


def _hand_out(waiting: list[tuple[Lane, Done, Answer]], only: Lane | None) -> list[tuple[Lane, Done, Answer]]:
    """Hands out answers on one lane, or all; returns those that stay."""
    stays = []
    for lane, done, answer in waiting:
        if only is None or lane is only:
            done(answer)
        else:
            stays.append((lane, done, answer))
    return stays
