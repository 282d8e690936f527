"""Drives the parts of a client on an asyncio loop, without threads or locks, between the user's tasks."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

from kohort.client.config import ClientConfig
from kohort.client.core.backoff import Jitter
from kohort.client.errors import Wakeup
from kohort.client.io.engine import FAR_MS, Pump
from kohort.client.io.reactor import LoopReactor
from kohort.client.io.transport import Security

_Waiter = tuple[Callable[[], bool], "asyncio.Future[bool]"]


class AsyncEngine(Pump):
    """The engine of the asyncio clients, made on a running loop; everything goes on whenever the loop does."""

    def __init__(
        self,
        config: ClientConfig,
        reactor: LoopReactor | None = None,
        *,
        security: Security | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self.reactor = reactor or LoopReactor(asyncio.get_running_loop())
        super().__init__(config, self.reactor, security=security, jitter=jitter)
        self.is_closed = False
        self._woken = False
        self._pid = os.getpid()
        self._waiters: list[_Waiter] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = FAR_MS
        self._changes = 0
        self.reactor.call_after_iteration(self._after_io)

    async def wait(self, until: Callable[[], bool], deadline_ms: int, *, wakeable: bool = True) -> bool:
        """Waits for `until()`; returns True, or False at the deadline. Cancelling it changes nothing else.

        Raises Wakeup if `wakeup()` was or is called, and AuthenticationFailed if no broker accepts us, as Engine.run.
        """

        def ends() -> bool:
            return (wakeable and (self._woken or self.metadata.error is not None)) or until()

        self.check_usable()
        self.drive()
        self._raise_wakeup(wakeable)
        if until():
            return True
        if wakeable:
            self.raise_refusal()
        if self.now_ms() >= deadline_ms:
            # One iteration of the loop, so that what has arrived already still counts.
            await asyncio.sleep(0)
            self.check_usable()
            self.drive()
            return until()
        done: asyncio.Future[bool] = self.reactor.loop.create_future()
        waiter = (ends, done)
        self._waiters.append(waiter)
        late = self.reactor.loop.call_later((deadline_ms - self.now_ms()) / 1000, _finish, done, False)
        try:
            await done
        finally:
            late.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        self.check_usable()
        self._raise_wakeup(wakeable)
        if until():
            return True
        if wakeable:
            self.raise_refusal()
        return False

    async def look(self, *, wakeable: bool = True) -> None:
        """Lets the loop make one iteration, and drives with what has arrived; raises Wakeup if `wakeup()` was called.

        Sockets are read here: after the iteration the loop goes on with this task before it reads any.
        """
        self._raise_wakeup(wakeable)
        await asyncio.sleep(0)
        self.check_usable()
        self._raise_wakeup(wakeable)
        self.reactor.read_ready()
        if self._is_new(self._changes):
            self._changes = self.network.changes
            self.drive()

    def wakeup(self) -> None:
        """Makes the `wait` or `look` that is under way, or else the next one, raise Wakeup. From any thread."""
        self._woken = True
        self.reactor.wakeup()

    def _raise_wakeup(self, wakeable: bool) -> None:
        if self._woken and wakeable:
            self._woken = False
            raise Wakeup("wakeup() was called")

    def drive(self) -> None:
        """Makes one round of everything and lets waiters go on whose condition holds. Call it after a command."""
        if self.is_closed:
            return
        try:
            self.pump(self.now_ms())
            for until, done in self._waiters:
                if not done.done() and until():
                    done.set_result(True)
        except Exception as error:
            self.on_failure(error)
            if not self._waiters:
                raise
            for _, done in self._waiters:
                if not done.done():
                    done.set_exception(error)
        self._set_timer()

    def _after_io(self) -> None:
        """Drives after an iteration of the loop, unless only a part of a large answer came."""
        if self._answers or self._woken or self.network.changes != self._changes:
            self._changes = self.network.changes
            self.drive()

    def _set_timer(self) -> None:
        due_ms = self.next_deadline_ms()
        if self._timer is not None:
            if due_ms == self._timer_due_ms:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_due_ms = due_ms
        if due_ms < FAR_MS:
            # Rather a millisecond late than too early: the loop's clock is finer than ours.
            delay_ms = max(1, due_ms - self.now_ms() + 1)
            self._timer = self.reactor.loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.drive()

    def close(self) -> None:
        """Closes all connections; a task that still waits gets ClosedClient."""
        if self.is_closed:
            return
        self.is_closed = True
        self._call_closing()
        if self._timer is not None:
            self._timer.cancel()
        if os.getpid() != self._pid:
            self.network.abandon()
            return
        self.network.close()
        self._answers.clear()
        self.reactor.close()
        for _, done in self._waiters:
            _finish(done, False)


def _finish(done: asyncio.Future[bool], value: bool) -> None:
    if not done.done():
        done.set_result(value)
