"""Drives the parts of a client that do no I/O: ticks them, carries their Sends, brings them their Answers.

`Engine` is for blocking fronts. The thread that waits drives (`run`); if several wait, one of them does it for all.
A background thread drives while nobody waits: either only what a group needs (a consumer's heartbeats go on while user
code works), or everything, always (a producer). Parts are only touched under `lock`; no thread sleeps while holding it.

The handlers of Ctrl-C and of other signals that ask a program to end never run in the middle of a part: inside
`shielded` the signals are held until the next place that is safe.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from kohort.client.config import ClientConfig
from kohort.client.core.arguments import shown
from kohort.client.core.backoff import Jitter
from kohort.client.core.effects import Answer, Lane, Outbox, Part
from kohort.client.core.metadata import Metadata
from kohort.client.core.metrics import Metrics, MetricSource, read_metrics
from kohort.client.core.signals import HeldSignals
from kohort.client.errors import ClosedClient, Wakeup
from kohort.client.io.network import Network
from kohort.client.io.polling import Events
from kohort.client.io.reactor import Reactor, SelectorReactor
from kohort.client.io.transport import Security
from kohort.wire.records import columns

_log = logging.getLogger("kohort.client.engine")

FAR_MS = 1 << 62
LONGEST_WAIT_MS = 60_000
SHORTEST_NAP_MS = 10  # of the background thread, should a part say that it is due and then do nothing
MAX_ROUNDS = 100


@runtime_checkable
class BackgroundPart(Protocol):
    """A part that has something to do while user code works.

    If it has `background_deadline_ms`, that is its deadline: what is due only in the user's thread must not wake the
    background.
    """

    def tick_background(self, now_ms: int) -> None: ...
    def next_deadline_ms(self) -> int | None: ...


class Pump:
    """What the blocking and the asyncio engine share: parts, the outbox, and one round of everything."""

    def __init__(
        self, config: ClientConfig, reactor: Reactor, *, security: Security | None, jitter: Jitter
    ) -> None:
        self.config, self.jitter = config, jitter
        self.is_closed = False
        self._pid = os.getpid()
        self.out: Outbox = []
        self.metadata = Metadata(self.out, config, jitter)
        self.network = Network(self.metadata, reactor, config, security=security, jitter=jitter)
        self.now_ms = reactor.now_ms
        self.on_failure: Callable[[BaseException], None] = _nobody_waits
        """Called when driving has failed for good: fails what waits elsewhere than in `run` (a producer's records)."""
        self._reactor = reactor
        self._parts: list[Part] = []
        self._background_parts: list[BackgroundPart] = []
        self._answers: deque[Answer] = deque()
        self._measured: list[Callable[[], Iterator[MetricSource]]] = [self.network.metric_sources]
        self._closing: list[Callable[[], object]] = []
        self.add(self.metadata)
        if kernel := os.environ.get("KOHORT_KERNEL"):
            columns.prefer(kernel)  # python or numba: how record batches are read and written

    def add(self, part: Part) -> None:
        """From now on the part is ticked."""
        self._parts.append(part)
        if isinstance(part, BackgroundPart):
            self._background_parts.append(part)

    # --- metrics ---------------------------------------------------------------------------------

    def measure(self, sources: Callable[[], Iterator[MetricSource]]) -> None:
        """From now on `metrics` also reads these."""
        self._measured.append(sources)

    def metrics(self) -> Metrics:
        """Reads what the client has counted so far. From any thread, also when it is closed."""
        sources = (source for each in self._measured for source in each())
        return read_metrics(self.config.METRIC_PREFIX, self.config.client_id, sources, self.now_ms())

    def on_close(self, call: Callable[[], object]) -> None:
        """Has `call()` called when the client is closed; at once if it is closed already."""
        if self.is_closed:
            call()
        else:
            self._closing.append(call)

    def _call_closing(self) -> None:
        calls, self._closing = self._closing, []
        for call in calls:
            try:
                call()
            except Exception:
                _log.exception("a function that was to be called on close has failed")

    def check_usable(self) -> None:
        """Raises ClosedClient after `close`, and in a forked child."""
        if self.is_closed:
            raise ClosedClient("the client is closed")
        if os.getpid() != self._pid:
            raise ClosedClient(
                f"this client belongs to process {self._pid}, and a fork ({os.getpid()}) shares its connections: "
                "make a client of its own in each process"
            )

    def pump(self, now_ms: int | None = None) -> None:
        """Ticks all parts, submits what they want to send and hands out answers, until nothing is new."""
        now = self.now_ms() if now_ms is None else now_ms
        self.network.tick(now)
        for _ in range(MAX_ROUNDS):
            self._hand_out(now)
            for part in self._parts:
                part.tick(now)
            if not self.out and not self._answers:
                return
            self._submit()
        raise AssertionError(f"the parts do not come to rest: {[send.purpose for send in self.out]}")

    def pump_background(self, now_ms: int) -> None:
        """Does the same for what must go on while user code works."""
        self.network.tick(now_ms, only=Lane.GROUP)
        for _ in range(MAX_ROUNDS):
            self._hand_out(now_ms)
            for part in self._background_parts:
                part.tick_background(now_ms)
            if not self.out and not self._answers:
                return
            self._submit()
        raise AssertionError(f"the parts do not come to rest: {[send.purpose for send in self.out]}")

    def _is_new(self, changes: int) -> bool:
        """Whether a round is worth its time: a part asks or is answered, or the network has changed."""
        return bool(self.out or self._answers) or self.network.changes != changes

    def _submit(self) -> None:
        sends = deque(self.out)
        self.out.clear()
        try:
            while sends:
                self.network.submit(sends.popleft(), self._answers.append)
        finally:
            self.out[:0] = sends  # none, unless one of them could not even be tried: the others still can

    def _hand_out(self, now_ms: int) -> None:
        answers = self._answers
        while answers:
            answer = answers.popleft()
            answer.send.on_answer(answer, now_ms)

    def next_deadline_ms(self) -> int:
        nearest = self.network.next_deadline_ms()
        deadline_ms = FAR_MS if nearest is None else nearest
        for part in self._parts:
            due_ms = part.next_deadline_ms()
            if due_ms is not None and due_ms < deadline_ms:
                deadline_ms = due_ms
        return deadline_ms

    def raise_refusal(self) -> None:
        """Raises AuthenticationFailed, once per attempt that the brokers refused."""
        refusal = self.metadata.take_error()
        if refusal is not None:
            raise refusal

    def background_deadline_ms(self) -> int:
        dues = [
            getattr(part, "background_deadline_ms", part.next_deadline_ms)()
            for part in self._background_parts
        ]
        dues.append(self.network.next_deadline_ms(only=Lane.GROUP))
        return min((due for due in dues if due is not None), default=FAR_MS)


def _nobody_waits(error: BaseException) -> None:
    """Does nothing: a client whose calls all wait in `run` is told of a failed background there."""


class Shield:
    """The context manager of Engine.shielded; a part of Engine, whose private fields it uses."""

    __slots__ = ("_engine", "_holds")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holds = False

    def __enter__(self) -> None:
        engine = self._engine
        self._holds = engine._signals.hold()
        try:
            engine.lock.acquire()
        except BaseException:
            if self._holds:
                engine._signals.release()
            raise
        engine._depth += 1

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        engine = self._engine
        engine._depth -= 1
        try:
            if engine._thread is not None and not engine._depth:
                engine._rouse_background()
        finally:
            engine.lock.release()
            if self._holds:
                engine._signals.release()


class Engine(Pump):
    """The engine of the blocking clients; `close` frees every descriptor and ends the thread."""

    def __init__(
        self,
        config: ClientConfig,
        reactor: SelectorReactor | None = None,
        *,
        security: Security | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self.reactor = reactor or SelectorReactor()
        super().__init__(config, self.reactor, security=security, jitter=jitter)
        self.lock = threading.RLock()
        self._depth = 0  # of the lock
        self._round_made = threading.Condition(self.lock)
        self._waiting = 0  # threads in _round_made.wait
        self._left = threading.Condition(self.lock)
        self._callers = 0  # threads in run
        self._driving = False
        self._driving_until_ms = FAR_MS
        self._woken = False
        self._signals = HeldSignals(self.reactor.wakeup)
        self._thread: threading.Thread | None = None
        self._everything = False
        self._nap_until_ms = FAR_MS  # of the background thread
        self._background_error: BaseException | None = None

    # --- for fronts ------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool], deadline_ms: int, *, wakeable: bool = True) -> bool:
        """Drives until `until()` holds; returns True, or False at the deadline.

        Raises Wakeup if `wakeup()` was or is called, and AuthenticationFailed if no broker accepts us; neither if not
        `wakeable`, for what must come to its end. `until` is called under the lock, after every round. At least one
        round is made, also with no time left.
        """
        with self.shielded():
            self.check_usable()  # again: another thread may have closed it before we had the lock
            self._callers += 1
            try:
                while True:
                    self._raise_background_error()
                    now_ms = self.now_ms()
                    self.pump(now_ms)
                    self._raise_wakeup(wakeable)
                    if until():
                        return True
                    if wakeable:
                        self.raise_refusal()
                    if self._signals.let_in():
                        continue
                    if now_ms >= deadline_ms:
                        return self._last_look(until)
                    self._wait(now_ms, deadline_ms)
            finally:
                self._callers -= 1

    def look(self, *, wakeable: bool = True) -> None:
        """Makes one round with what has arrived, without waiting; raises Wakeup first, if `wakeup()` was called."""
        with self.shielded():
            self.check_usable()
            self._raise_wakeup(wakeable)
            self._raise_background_error()
            self._read_ready()

    def wakeup(self) -> None:
        """Makes the `run` or `look` that is under way, or else the next one, raise Wakeup. From any thread."""
        self._woken = True
        self.reactor.wakeup()

    def _raise_wakeup(self, wakeable: bool) -> None:
        if self._woken and wakeable:
            self._woken = False
            raise Wakeup("wakeup() was called")

    def nudge(self) -> None:
        """Has the thread that drives look what is to do now, after a command to a part outside `run`."""
        self.reactor.wakeup_all()

    def shielded(self) -> Shield:
        """Returns a context for commands to parts: it holds the lock, and holds signals back until its end."""
        self.check_usable()
        return Shield(self)

    def close(self) -> None:
        """Ends the background thread and closes everything; in a forked child it touches only the child's copy."""
        if self.is_closed:
            return
        self.is_closed = True
        self._call_closing()
        if os.getpid() != self._pid:
            self.network.abandon()
            self.reactor.close()
            return
        self.reactor.wakeup_all()
        with self.lock:
            self._round_made.notify_all()
            self._left.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self.lock:
            self._waiting += 1
            while self._driving:  # a thread that still waits for sockets sees that it is closed, and leaves
                self.reactor.wakeup_all()
                self._round_made.wait(0.05)
            self._waiting -= 1
            self.network.close()
            self._answers.clear()
            self.reactor.close()

    # --- one round -------------------------------------------------------------------------------

    def _wait(self, now_ms: int, deadline_ms: int) -> None:
        """Waits until something happens. The lock is free meanwhile."""
        assert self._depth == 1, "run is not called under the lock: a thread that waits must let others in"
        until_ms = min(deadline_ms, self.next_deadline_ms(), now_ms + LONGEST_WAIT_MS)
        if not self._driving and not self._everything:
            self._drive(now_ms, until_ms)
            return
        if until_ms < self._driving_until_ms:
            self.reactor.wakeup()  # the thread that drives would sleep longer than this one can
        self._waiting += 1
        self._depth -= 1
        try:
            self._round_made.wait(max(0, deadline_ms - now_ms) / 1000)
        finally:
            self._waiting -= 1
            self._depth += 1
        self.check_usable()

    def _drive(self, now_ms: int, until_ms: int) -> None:
        """Waits for sockets and serves them. Parts of a large answer are read here, without a round for each."""
        while True:
            changes = self.network.changes
            events = self._events(until_ms - now_ms)
            self.reactor.dispatch(events)
            if self._answers or not events or self.network.changes != changes or self.reactor.take_woken():
                return
            now_ms = self.now_ms()
            if now_ms >= until_ms:
                return

    def _events(self, timeout_ms: int) -> Events:
        self._driving, self._driving_until_ms = True, self.now_ms() + timeout_ms
        self._depth -= 1
        self.lock.release()
        try:
            events = self.reactor.wait(timeout_ms)
        finally:
            self.lock.acquire()
            self._depth += 1
            self._driving, self._driving_until_ms = False, FAR_MS
            if self._waiting:
                self._round_made.notify_all()
        self.check_usable()
        return events

    def _last_look(self, until: Callable[[], bool]) -> bool:
        """Reads what has arrived already and still counts, although the time is up."""
        if self._driving or self._everything:
            return False
        self._read_ready()
        return until()

    def _read_ready(self) -> None:
        changes = self.network.changes
        if not (self._driving or self._everything):  # else another thread reads
            self.reactor.run_once(0)
        if self._is_new(changes):
            self.pump()

    def _raise_background_error(self) -> None:
        error = self._background_error
        if error is not None:
            raise ClosedClient(f"the background thread of this client has failed: {shown(error)}") from error

    # --- the background thread -------------------------------------------------------------------

    def start_background(self, name: str, *, everything: bool = False) -> None:
        """Starts a thread that drives what a group needs while nobody is in `run`, or everything."""
        assert self._thread is None, "there is one background thread"
        self._everything = everything
        target = self._drive_everything if everything else self._drive_group
        self._thread = threading.Thread(target=self._guarded, args=(target,), name=name, daemon=True)
        self._thread.start()

    def _guarded(self, target: Callable[[], Any]) -> None:
        try:
            target()
        except BaseException as error:
            # First this, then what may take time: a thread that comes now is told, and does not begin to wait.
            self._background_error = error
            _log.error("the background thread has failed: %s", shown(error), exc_info=error)
            with self.lock:
                self.on_failure(error)
        finally:
            with self.lock:
                self._everything = False
                self._round_made.notify_all()
            if not self.is_closed:
                self.reactor.wakeup_all()  # the thread that drives now looks, and is told

    def _drive_everything(self) -> None:
        while not self.is_closed:
            with self.lock:
                now_ms = self.now_ms()
                self.pump(now_ms)
                if self._waiting:
                    self._round_made.notify_all()
                until_ms = min(self.next_deadline_ms(), now_ms + LONGEST_WAIT_MS)
                self._driving_until_ms = until_ms
            events = self.reactor.wait(until_ms - now_ms)
            with self.lock:
                self._driving_until_ms = 0
                if not self.is_closed:
                    self.reactor.dispatch(events)

    def _drive_group(self) -> None:
        while not self.is_closed:
            with self.lock:
                while self._callers and not self.is_closed:
                    # They drive; when the last one leaves, it rouses this thread if there is something to do.
                    self._nap_until_ms = FAR_MS
                    self._left.wait()
                self._nap_until_ms = 0
                now_ms = self.now_ms()
                self.pump_background(now_ms)
                due_ms = max(self.background_deadline_ms(), now_ms + SHORTEST_NAP_MS)
                self._nap_until_ms = until_ms = min(due_ms, now_ms + LONGEST_WAIT_MS)
            events = self.reactor.wait_group(until_ms - now_ms)
            with self.lock:
                self._nap_until_ms = 0
                if not self._callers and not self.is_closed:
                    self.reactor.dispatch(events)

    def _rouse_background(self) -> None:
        """Wakes the background thread if something is due now before it would look by itself."""
        if self._callers or self._everything:
            return
        if self._nap_until_ms == FAR_MS:
            self._left.notify_all()
        elif self.background_deadline_ms() < self._nap_until_ms:
            self.reactor.wakeup_group()
