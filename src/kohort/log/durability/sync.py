"""Group commit: one fdatasync for all who wait, off the event loop.

A partition that has something to make durable calls `submit` once; it is asked for a `SyncJob` when a worker is free, so
one sync covers all that was appended until then. There is at most one job per partition in flight; who appends
meanwhile is served by the next. `submit`, `drain` and the partitions' methods run on one thread, only the files and
steps of a job run on the workers. Small appends go another way, if there is a journal.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from kohort.log.durability.journal import Journal
from kohort.log.durability.journal_files import LogOffsetMetadata, Loop
from kohort.log.storage.files import File

log = logging.getLogger(__name__)

WORKERS = 4
BEGINNING = LogOffsetMetadata(0, 0, 0)
MOST_AT_ONCE = 8  # partitions in one hand-over: their files stay open meanwhile


class SyncJob:
    """What a worker does: sync the files (pinned by the owner), then the steps, then what may fail."""

    __slots__ = ("afterwards", "end", "error", "files", "owner", "steps")

    def __init__(self, owner: Syncable | None, files: list[File], steps: list[Callable[[], None]]) -> None:
        self.owner = owner
        self.files = files
        self.steps = steps
        self.afterwards: list[Callable[[], None]] = []  # the first that fails ends them; a warning is enough
        self.error: Exception | None = None
        self.end = BEGINNING  # everything before it is durable when the job is done

    def run(self) -> None:
        if self.error is not None:
            return
        try:
            for file in self.files:
                file.sync()
            for step in self.steps:
                step()
        except Exception as problem:  # whatever it was: nobody may be told that it is durable
            self.error = problem
            return
        try:
            for step in self.afterwards:
                step()
        except OSError as problem:
            log.warning("after a sync: %s", problem)


class Syncable(Protocol):
    def begin_sync(self) -> SyncJob: ...
    def end_sync(self, job: SyncJob) -> None: ...


class Syncer:
    """`call_soon` brings a function to the partitions' thread; `on_fatal` stops the node."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        on_fatal: Callable[[str], None],
        loop: Loop | None = None,
        workers: int = WORKERS,
    ) -> None:
        self._call_soon = call_soon
        self._on_fatal = on_fatal
        self._loop = loop
        self._workers = workers
        self._threads: list[threading.Thread] = []
        # Jobs travel in lists: when many partitions wait, a worker takes its share of them at once, because every
        # hand-over between threads costs as much as the sync itself.
        self._jobs: SimpleQueue[list[SyncJob] | None] = SimpleQueue()
        self._done: SimpleQueue[list[SyncJob]] = SimpleQueue()
        self._waiting: deque[Syncable] = deque()
        self._in_flight = 0
        self._in_background = 0
        self.journal: Journal | None = None  # for small appends; closed with us

    def submit(self, owner: Syncable) -> None:
        """Not again before `end_sync`."""
        self._waiting.append(owner)
        if self._in_flight < self._workers:
            self._start()

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits for a worker."""
        return bool(self._waiting)

    def background(self, work: Callable[[], None]) -> None:
        """Something slow that nobody waits for, such as deleting large files."""
        self._in_background += 1
        self._put([SyncJob(None, [], [work])])

    def fatal(self, reason: str) -> None:
        self._on_fatal(reason)

    def begin_journal(self, directory: Path) -> None:
        """From now on small appends share their syncs. What an earlier journal had is forgotten."""
        self.journal = Journal(directory, self._call_soon, self.background, self._on_fatal, self._loop)

    def settle(self) -> None:
        """Block until everything is in the partitions' own files for good, without the event loop."""
        self.drain()
        if self.journal is not None:
            self.journal.flush_all()
            self.drain()

    def _start(self) -> None:
        """Hands a free worker its share of those who wait."""
        waiting = self._waiting
        share = min(-(-len(waiting) // (self._workers - self._in_flight)), MOST_AT_ONCE)
        self._in_flight += 1
        self._put([waiting.popleft().begin_sync() for _ in range(share)])

    def _put(self, jobs: list[SyncJob]) -> None:
        if len(self._threads) < self._workers:
            name = f"kohort-sync-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(jobs)

    def _work(self) -> None:
        while (jobs := self._jobs.get()) is not None:
            for job in jobs:
                job.run()
            self._done.put(jobs)
            try:
                self._call_soon(self._collect)
            except RuntimeError:  # the loop is closed; `drain` collects
                pass

    def _collect(self) -> None:
        while True:
            try:
                jobs = self._done.get_nowait()
            except Empty:
                return
            self._finish(jobs)

    def _finish(self, jobs: list[SyncJob]) -> None:
        first = jobs[0]
        if first.owner is None:
            self._in_background -= 1
            if first.error is not None:
                log.warning("in the background: %s", first.error)
            return
        self._in_flight -= 1
        # Who waits for a worker comes before the same partition's next turn.
        if self._waiting:
            self._start()
        for job in jobs:
            assert job.owner is not None
            job.owner.end_sync(job)

    def drain(self) -> None:
        """Block until everything submitted is done, without the event loop."""
        if self.journal is not None:
            self.journal.drain()
        while self._in_flight or self._in_background:
            try:
                self._finish(self._done.get(timeout=0.1))
            except Empty:  # an immediate `call_soon` has collected it
                continue

    def close(self) -> None:
        self.drain()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self.journal is not None:
            self.journal.close()
            self.journal = None
