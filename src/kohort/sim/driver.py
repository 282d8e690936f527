"""Runs a user's program with a consumer in virtual time: the same engine and steps as the real fronts.

A program is a generator, as the calls of a consumer are (client/core/steps.py). Besides their steps it may yield
`Work`: the user's code is busy outside of the consumer, and only the background work goes on. As in the real fronts a
socket is read only by a call that waits or looks, and in the background if it is on the group's lane.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from inspect import isgenerator
from random import Random
from typing import Any, TypeVar, cast

from kohort.client.config import ConsumerConfig
from kohort.client.core.effects import Lane
from kohort.client.core.steps import CallUser, Look, Steps, Until
from kohort.client.io.engine import FAR_MS, SHORTEST_NAP_MS, Pump
from kohort.client.io.network import Network
from kohort.client.io.reactor import Reactor
from kohort.sim.brokers import Brokers
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.sim.links import Links
from kohort.sim.world import VirtualClock

T = TypeVar("T")
MOST_STEPS = 500


@dataclass(frozen=True, slots=True)
class Work:
    """The user is busy for this long."""

    ms: int
    awaited: bool = False
    """Whether the user's task on an event loop awaits something else, so that the loop goes on; else it is blocked."""


Program = Generator[Until | Look | CallUser | Work, Any, T]


class _Time:
    """The part of a reactor that is used here."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms


class SimEngine(Pump):
    """The rounds of the real engine, over simulated links."""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: VirtualClock,
        random: Random,
        brokers: Brokers,
        faults: Callable[[], FaultRates],
        wake: Callable[[Lane], None],
    ) -> None:
        super().__init__(config, cast(Reactor, _Time(clock)), security=None, jitter=random.random)
        self.links = Links(clock, random, brokers, faults, self.metadata, config.client_id, wake)
        self.network = cast(Network, self.links)


class UserDriver:
    """One process with one consumer: a stack of generators, and the step that the topmost waits for."""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: VirtualClock,
        random: Random,
        brokers: Brokers,
        faults: Callable[[], FaultRates],
        *,
        on_loop: bool = False,
    ) -> None:
        """Drives as the asyncio front does if `on_loop`, else as the blocking one with its background thread."""
        self.clock, self.on_loop = clock, on_loop
        self.engine = SimEngine(config, clock, random, brokers, faults, self._arrived)
        self.alive = True
        self.on_step: Callable[[], None] = lambda: None
        """Called after every round of the engine, for checks."""
        self.in_callbacks_ms = 0
        """How long the user's callbacks have taken in all."""
        self._stack: list[tuple[Program[Any], int | None]] = []
        self._until: Until | None = None
        self._busy_until_ms = 0
        self._is_blocked = False
        self._wake_ms = FAR_MS
        self._counted = self._counted_ms = 0

    def start(self, program: Program[None]) -> None:
        self._stack = [(program, None)]
        self._go_on(None, None)

    def run(self, steps: Steps[T]) -> Program[T]:
        """Makes a call of the consumer as a front does."""
        value = yield from steps
        self.engine.pump()
        return value

    def kill(self) -> None:
        """Ends the process without a leave or a close."""
        self.alive = False
        self._stack = []
        self.engine.links.close()

    # ---- time

    def _arrived(self, lane: Lane) -> None:
        if self._until is not None or self.on_loop or lane is Lane.GROUP:
            self._wake_at(self.clock.now_ms)

    def _wake_at(self, at_ms: int) -> None:
        at_ms = max(at_ms, self.clock.now_ms)
        if self.alive and at_ms < self._wake_ms:
            self._wake_ms = at_ms
            self.clock.after(at_ms - self.clock.now_ms, lambda: self._woken(at_ms))

    def _woken(self, at_ms: int) -> None:
        if at_ms != self._wake_ms or not self.alive:
            return
        self._wake_ms = FAR_MS
        if self._until is not None:
            self._look()
        elif self.clock.now_ms >= self._busy_until_ms:
            self._go_on(None, None)
        else:
            self._meanwhile()

    def _meanwhile(self) -> None:
        """Does what goes on while the user works: the front's other thread, or the loop."""
        now_ms = self.clock.now_ms
        if self._is_blocked:
            due_ms = self._busy_until_ms
        elif self.on_loop:
            self._read_ready()
            due_ms = max(self.engine.next_deadline_ms(), now_ms + 1)
        else:
            self.engine.links.read(Lane.GROUP)
            self.engine.pump_background(now_ms)
            self.on_step()
            due_ms = max(self.engine.background_deadline_ms(), now_ms + SHORTEST_NAP_MS)
        self._wake_at(min(due_ms, self._busy_until_ms))

    def _read_ready(self) -> None:
        self.engine.links.read()
        self.engine.pump(self.clock.now_ms)
        self.on_step()

    def _look(self) -> None:
        until = self._until
        assert until is not None
        self._count()
        self._read_ready()
        came = until.condition()
        if came or self.clock.now_ms >= until.deadline_ms:
            self._until = None
            self._go_on(came, None)
        else:
            self._wake_at(min(until.deadline_ms, self.engine.next_deadline_ms()))

    # ---- the program

    def _go_on(self, value: Any, error: BaseException | None) -> None:
        while self._stack and self.alive:
            program, began_ms = self._stack[-1]
            try:
                step = program.send(value) if error is None else program.throw(error)
            except StopIteration as end:
                value, error = end.value, None
                self._ended(began_ms)
                continue
            except Exception as raised:
                value, error = None, raised
                self._ended(began_ms)
                if not self._stack:
                    raise
                continue
            value = error = None
            self._count()
            match step:
                case Until():
                    self.engine.pump(self.clock.now_ms)
                    self.on_step()
                    if not (value := step.condition()):
                        self._until = step
                        self._wake_ms = FAR_MS
                        is_readable = self.engine.links.is_readable
                        due_ms = 0 if is_readable else self.engine.next_deadline_ms()
                        self._wake_at(min(step.deadline_ms, due_ms))
                        return
                case Look():
                    self._read_ready()
                case Work(ms, awaited):
                    if ms > 0:
                        self._busy_until_ms = self.clock.now_ms + ms
                        self._is_blocked = self.on_loop and not awaited
                        self._wake_ms = FAR_MS
                        self._meanwhile()
                        return
                case CallUser(function, arguments):
                    try:
                        value = function(*arguments)
                    except Exception as raised:
                        error = raised
                    if isgenerator(value):
                        self._stack.append((cast(Program[Any], value), self.clock.now_ms))
                        value = None
        self.alive = self.alive and bool(self._stack)

    def _count(self) -> None:
        """Counts steps: a program that goes on while no time passes would use up a processor in the real world."""
        if self.clock.now_ms != self._counted_ms:
            self._counted_ms, self._counted = self.clock.now_ms, 0
        self._counted += 1
        if self._counted > MOST_STEPS:
            raise Broken(f"{self._counted} steps while no time passes: the consumer spins")

    def _ended(self, began_ms: int | None) -> None:
        self._stack.pop()
        if began_ms is not None and all(began is None for _, began in self._stack):
            self.in_callbacks_ms += self.clock.now_ms - began_ms
