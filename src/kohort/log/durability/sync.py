"""Syncs the files of partitions on worker threads: one sync serves all appends that wait for it (group commit).

A partition that has something to make durable calls `submit` once. When a worker is free the partition is asked for a
`SyncJob`, so one sync covers all that was appended until then. At most one job per partition is in flight; the next
one serves what is appended meanwhile. `submit`, `drain` and the partitions' methods run on the loop's thread; only the
files and steps of a job run on the workers. Small appends take another way if there is a journal.
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
    """The work of one worker: sync the files (pinned by the owner), run the steps, then those that may fail."""

    __slots__ = ("afterwards", "end", "error", "files", "owner", "steps")

    def __init__(self, owner: Syncable | None, files: list[File], steps: list[Callable[[], None]]) -> None:
        self.owner = owner
        self.files = files
        self.steps = steps
        self.afterwards: list[Callable[[], None]] = []  # if one fails the rest is left out, with a warning
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
        except Exception as problem:  # whatever it was, nobody may be told that the data is durable
            self.error = problem
            return
        try:
            for step in self.afterwards:
                step()
        except OSError as problem:
            log.warning("a state file was not written after a sync: %s", problem)


class Syncable(Protocol):
    """Something with files to sync: what one partition has to make durable."""

    def begin_sync(self) -> SyncJob: ...
    def end_sync(self, job: SyncJob) -> None: ...


class Syncer:
    """Runs sync jobs on a few threads. `call_soon` runs a function on the loop's thread, `on_fatal` stops the node."""

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
        # Workers get lists of jobs: when many partitions wait, a worker takes its share of them at once, because
        # every hand-over between threads costs as much as the sync itself.
        self._jobs: SimpleQueue[list[SyncJob] | None] = SimpleQueue()
        self._done: SimpleQueue[list[SyncJob]] = SimpleQueue()
        self._waiting: deque[Syncable] = deque()
        self._in_flight = 0
        self._in_background = 0
        self.journal: Journal | None = None  # for small appends; closed with us

    def submit(self, owner: Syncable) -> None:
        """Has `owner` asked for a job when a worker is free. Do not submit it again before its `end_sync`."""
        self._waiting.append(owner)
        if self._in_flight < self._workers:
            self._start()

    @property
    def is_crowded(self) -> bool:
        """Whether an owner waits for a worker."""
        return bool(self._waiting)

    def background(self, work: Callable[[], None]) -> None:
        """Runs something slow that nobody waits for, such as deleting large files."""
        self._in_background += 1
        self._put([SyncJob(None, [], [work])])

    def fatal(self, reason: str) -> None:
        self._on_fatal(reason)

    def begin_journal(self, directory: Path) -> None:
        """Sends small appends through a journal from now on. What an earlier journal held is forgotten."""
        self.journal = Journal(directory, self._call_soon, self.background, self._on_fatal, self._loop)

    def settle(self) -> None:
        """Blocks until everything is durable in the partitions' own files; the event loop need not run."""
        self.drain()
        if self.journal is not None:
            self.journal.flush_all()
            self.drain()

    def _start(self) -> None:
        """Hands a free worker its share of the owners that wait."""
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
                log.warning("work in the background failed: %s", first.error)
            return
        self._in_flight -= 1
        # Partitions that wait for a worker come before the next job of those that have just had one.
        if self._waiting:
            self._start()
        for job in jobs:
            assert job.owner is not None
            job.owner.end_sync(job)

    def drain(self) -> None:
        """Blocks until everything submitted is done; the event loop need not run."""
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
