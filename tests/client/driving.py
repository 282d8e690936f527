"""A part for tests that asks what it is told to ask, and engines around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kohort.client.config import CONSUMER, ConsumerConfig, read_config
from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Lane, Outbox, Send
from kohort.client.io.engine import Engine
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.struct import Message

HEARTBEAT = HeartbeatRequest.API_KEY
PATIENCE_MS = 60_000  # only ends a test that hangs: a machine may be busy


def config_for(bootstrap_servers: str, **settings: object) -> ConsumerConfig:
    config, _ = read_config(CONSUMER, {"bootstrap.servers": bootstrap_servers}, settings)
    return config


class Asker:
    """A part: `ask` puts a request into the outbox, `answers` is what came of them."""

    def __init__(self, out: Outbox, name: str = "asker") -> None:
        self.out, self.name = out, name
        self.answers: list[Answer] = []
        self.ticks = 0

    def ask(
        self,
        message: Message | None = None,
        node_id: int = ANY_NODE,
        *,
        timeout_ms: int = 30_000,
        **more: Any,
    ) -> Send:
        asked = message or HeartbeatRequest("g", 1, "m")
        purpose = f"{self.name}.ask"
        send = Send(
            node_id, asked.API_KEY, lambda version: asked, purpose, timeout_ms, on_answer=self.answer, **more
        )
        self.out.append(send)
        return send

    def tick(self, now_ms: int) -> None:
        self.ticks += 1

    def answer(self, answer: Answer, now_ms: int) -> None:
        self.answers.append(answer)

    def next_deadline_ms(self) -> int | None:
        return None

    @property
    def last(self) -> Answer:
        return self.answers[-1]


class GroupAsker(Asker):
    """One ("beats") that goes on in the background: it asks every `interval_ms`, on the group lane."""

    def __init__(self, out: Outbox, node_id: int, interval_ms: int) -> None:
        super().__init__(out, "beats")
        self.node_id, self.interval_ms = node_id, interval_ms
        self.due_ms = 0
        self.stopped = False

    def tick(self, now_ms: int) -> None:
        self.tick_background(now_ms)

    def tick_background(self, now_ms: int) -> None:
        self.ticks += 1
        if now_ms >= self.due_ms and not self.stopped:
            self.due_ms = now_ms + self.interval_ms
            self.ask(node_id=self.node_id, lane=Lane.GROUP)

    def next_deadline_ms(self) -> int | None:
        return self.due_ms

    def background_deadline_ms(self) -> int | None:
        return self.due_ms


class Driven:
    """An engine with an Asker, and the usual waits."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.asker = Asker(engine.out)
        engine.add(self.asker)

    def run(self, until: Callable[[], bool], timeout_ms: int = PATIENCE_MS) -> bool:
        return self.engine.run(until, self.engine.now_ms() + timeout_ms)

    def call(self, message: Message | None = None, node_id: int = ANY_NODE, **more: Any) -> Answer:
        """One request and its answer, whichever it is."""
        send, engine = self.asker.ask(message, node_id, **more), self.engine
        until_ms = engine.now_ms() + PATIENCE_MS
        answered = engine.run(
            lambda: any(answer.send is send for answer in self.asker.answers), until_ms, wakeable=False
        )
        assert answered, "no answer at all"
        return next(answer for answer in self.asker.answers if answer.send is send)

    def failure(self, says: str, kind: FailureKind = FailureKind.TIMED_OUT, **more: Any) -> Failure:
        """Returns the failure of a request that times out, once its message has these words.

        On a busy machine the obstacle may not have shown itself within one timeout, so the request is sent again.
        """
        deadline_ms = self.engine.now_ms() + PATIENCE_MS
        while True:
            failure = self.call(**more).failure
            assert failure is not None
            assert failure.kind is kind
            if says in failure.message:
                return failure
            assert self.engine.now_ms() < deadline_ms, failure.message

    def eventually(self, condition: Callable[[], object]) -> None:
        """Drives the engine until a condition holds that no event reports, for example what a broker has received."""
        deadline_ms = self.engine.now_ms() + PATIENCE_MS
        while not condition():
            assert self.engine.now_ms() < deadline_ms, "it did not happen"
            self.run(lambda: bool(condition()), 5)

    def know_nodes(self) -> None:
        assert self.run(lambda: bool(self.engine.metadata.cluster.nodes)), "no metadata"


@contextmanager
def driven(bootstrap_servers: str, **settings: Any) -> Iterator[Driven]:
    """An engine for these addresses; settings as keywords; `reactor=` for one with its own names."""
    apart = {name: settings.pop(name) for name in ("reactor", "security") if name in settings}
    engine = Engine(config_for(bootstrap_servers, **settings), **apart)
    try:
        yield Driven(engine)
    finally:
        engine.close()


def soon(call: Callable[..., object], *args: object) -> Callable[[], bool]:
    """A condition that never holds; a moment after it was first looked at, so within the run, this is called."""
    timers: list[threading.Timer] = []

    def until() -> bool:
        if not timers:
            timers.append(threading.Timer(0.02, call, args))
            timers[0].start()
        return False

    return until
