"""Does the slow steps of logins on threads: hashes of passwords, and keys that are fetched.

Few run at a time, so that logins cannot take all processors. Those that wait take turns by address, so that one address
cannot keep the others waiting; what has the same key is done once for all that wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from kohort.security.mechanism import LoginRefused, Outcome, SlowStep

log = logging.getLogger("kohort.broker")

_AT_ONCE = 2
_MOST_WAITING = 1024
_BUSY = LoginRefused(reason="too many logins at once")

Done = Callable[[Outcome], None]


class _Job:
    __slots__ = ("step", "waiting")

    def __init__(self, step: SlowStep) -> None:
        self.step = step
        self.waiting: list[tuple[SlowStep, Done]] = []


class _Turns:
    """The jobs of one kind that run or wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None  # made for the first job
        self._jobs: dict[bytes, _Job] = {}
        self._by_address: dict[str, deque[_Job]] = {}
        self._running = 0

    def add(
        self,
        step: SlowStep,
        address: str,
        done: Done,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        job = self._jobs.get(step.key)
        if job is None:
            if len(self._jobs) >= _MOST_WAITING:
                done(_BUSY)
                return
            job = self._jobs[step.key] = _Job(step)
            self._by_address.setdefault(address, deque()).append(job)
        job.waiting.append((step, done))
        self._next(loop, now_ms)

    def _next(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        while self._running < _AT_ONCE and self._by_address:
            address, jobs = next(iter(self._by_address.items()))
            del self._by_address[address]
            job = jobs.popleft()
            if jobs:
                self._by_address[address] = jobs  # behind all others
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"kohort-{self._name}")
            self._running += 1
            future = asyncio.wrap_future(self._pool.submit(job.step.work), loop=loop)

            def ended(future: asyncio.Future[Any], job: _Job = job) -> None:
                self._running -= 1
                del self._jobs[job.step.key]
                for step, done in job.waiting:
                    done(_outcome(step, future, now_ms()))
                self._next(loop, now_ms)

            future.add_done_callback(ended)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class LoginWorkers:
    """The threads of one broker. Its methods are called on the event loop's thread, and so is `done`."""

    def __init__(self) -> None:
        self._hashes, self._fetches = _Turns("hash"), _Turns("fetch")

    def run(
        self,
        step: SlowStep,
        address: str,
        done: Done,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        """Does the work of a step, and calls `done` with the outcome; a refusal if too many wait."""
        turns = self._fetches if step.waits_for_network else self._hashes
        turns.add(step, address, done, loop, now_ms)

    def close(self) -> None:
        """Ends the threads; what waits is not done any more."""
        self._hashes.close()
        self._fetches.close()


def _outcome(step: SlowStep, future: asyncio.Future[Any] | Future[Any], now_ms: int) -> Outcome:
    if future.cancelled() or future.exception() is not None:
        if not future.cancelled():
            log.error("a login could not be checked", exc_info=future.exception())
        return LoginRefused(reason="the login could not be checked")
    return step.then(future.result(), now_ms)
