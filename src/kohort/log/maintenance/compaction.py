"""Decides when a partition is compacted, and replaces its segments by the cleaned ones.

One partition is compacted at a time, the dirtiest first. `cleaner` does the work: on disk in a child process that a
thread waits for, in memory in slices on the loop. Cleaned segments replace the old ones on the loop, in steps. After a
crash between any two of them a start finishes or undoes the replacement (`recovery.finish_interrupted_work`):

    <base>.log.cleaned   written and synced by the cleaner; a start deletes it
    <base>.log.swap      renamed and the directory synced; from here on a start finishes the replacement
    (old segments renamed to .log.deleted, <base>.log.swap to <base>.log, then the indexes)

The index of aborted transactions goes with the .log, each time just before it: no start rebuilds it for a segment that
it does not walk.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import kohort
from kohort.log.maintenance.cleaner import (
    CLEANED,
    CleanedSegments,
    CleaningJob,
    Covered,
    SourceSegment,
    Spoiled,
    Step,
    clean,
    cleaned_name,
    log_name,
    step_from_json,
    txn_index_name,
)
from kohort.log.maintenance.retention import NEVER
from kohort.log.partition import Partition
from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, Segment, file_name
from kohort.wire.errors import BadBatch
from kohort.wire.records.batch import HEADER_SIZE, read_header

log = logging.getLogger(__name__)

SWAP = ".swap"
MAX_KEYS = 250_000
SLICE_S = 0.002


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What one pass of compaction would work on."""

    sources: list[Segment]
    first_dirty_offset: int
    end_offset: int
    dirty_ratio: float


def plan(partition: Partition, checkpoint: int | None, now_ms: int) -> tuple[CompactionPlan | None, int]:
    """Returns what is to be compacted now, by Kafka's rules, or when to ask again if nothing is appended."""
    config, segments = partition.config, partition.segments
    if len(segments) < 2 or partition.stopped is not None:
        return None, NEVER
    first_dirty = checkpoint if checkpoint is not None else -1
    if not partition.log_start_offset <= first_dirty <= partition.log_end_offset:
        first_dirty = partition.log_start_offset
    sealed = segments[:-1]
    ends = [segment.base_offset for segment in segments[1:]]
    dirty = [segment for segment, end in zip(sealed, ends, strict=True) if end > first_dirty]
    synced = partition.synced_offset  # the journal lets the high watermark be ahead of the files
    is_settled = synced >= ends[-1] and partition.high_watermark == partition.log_end_offset
    again_ms = NEVER if is_settled else now_ms
    end_offset = segments[-1].base_offset
    # How a transaction ends is known up to the last stable offset.
    limit = min(synced, partition.last_stable_offset)
    for segment, end in zip(sealed, ends, strict=True):
        if end > limit:
            end_offset = min(end_offset, segment.base_offset)
    for segment in dirty if config.min_compaction_lag_ms else ():
        if segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms:
            end_offset = min(end_offset, segment.base_offset)
            again_ms = min(again_ms, segment.largest_timestamp() + config.min_compaction_lag_ms)
            break
    sources = [segment for segment in sealed if segment.base_offset < end_offset]
    dirty = [segment for segment in dirty if segment.base_offset < end_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return None, again_ms
    clean_bytes = sum(segment.size for segment in sources if segment.base_offset < first_dirty)
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    overdue_ms = min(map(_first_timestamp, dirty)) + config.max_compaction_lag_ms
    if ratio > config.min_cleanable_dirty_ratio or overdue_ms < now_ms:
        return CompactionPlan(sources, first_dirty, end_offset, ratio), now_ms
    return None, min(again_ms, overdue_ms + 1)


def _first_timestamp(segment: Segment) -> int:
    """Returns the timestamp of the first batch; NEVER if it has none."""
    if segment.first_timestamp is None:
        try:
            segment.first_timestamp = read_header(segment.file.pread(0, HEADER_SIZE)).max_timestamp
        except BadBatch:
            return NEVER
    return segment.first_timestamp if segment.first_timestamp > 0 else NEVER


def job_for(partition: Partition, chosen: CompactionPlan, now_ms: int, max_keys: int) -> CleaningJob:
    entries = list(partition.producers.entries())
    producers = {entry.producer_id: entry.batches[-1].last_offset for entry in entries if entry.batches}
    return CleaningJob(
        [SourceSegment(segment.base_offset, segment.size) for segment in chosen.sources],
        chosen.first_dirty_offset,
        chosen.end_offset,
        now_ms,
        partition.config.delete_retention_ms,
        partition.config.segment_size,
        partition.config.index_interval_bytes,
        max_keys,
        producers,
        {entry.producer_id: entry.producer_epoch for entry in entries if not entry.batches},
        partition.aborted_before(chosen.end_offset),
    )


def swap_is_possible(partition: Partition, group: CleanedSegments) -> bool:
    """Tells whether the old segments are still there, as they were when the pass began."""
    bases = [segment.base_offset for segment in partition.segments[:-1]]
    first = group.sources[0]
    at = bases.index(first) if first in bases else 0
    same = bases[at : at + len(group.sources)] == group.sources
    return same and not partition.deleted and partition.stopped is None


def prepare_swap(directory: Directory, group: CleanedSegments) -> None:
    """Renames the cleaned file; from here on a start finishes the replacement. Runs off the loop."""
    base = group.sources[0]
    aborted = txn_index_name(base)
    if aborted + CLEANED in directory.names():
        directory.rename(aborted + CLEANED, aborted + SWAP)
    directory.rename(cleaned_name(base), log_name(base) + SWAP)
    directory.sync()


def swap(partition: Partition, group: CleanedSegments) -> list[Callable[[], None]]:
    """Replaces the old segments, on the loop; returns the slow work that is left, deleting their files."""
    directory, base = partition.directory, group.sources[0]
    old = [segment for segment in partition.segments if segment.base_offset in set(group.sources)]
    slow = [segment.retire() for segment in old]
    names = directory.names()
    if txn_index_name(base) + SWAP in names:  # before the .log: with that the replacement is finished
        directory.rename(txn_index_name(base) + SWAP, txn_index_name(base))
    directory.rename(log_name(base) + SWAP, log_name(base))
    for suffix in (INDEX, TIME_INDEX):
        name = file_name(base, suffix)
        if name + CLEANED in names:
            directory.rename(name + CLEANED, name)
    new = Segment(directory, base, partition.config.index_interval_bytes, sealed=True)
    if not isinstance(directory, DiskDirectory):
        new.rebuild_indexes()
    partition.replace_segments(old, new)
    return slow


def discard_unfinished(directory: Directory) -> None:
    """Deletes the files that a cancelled pass left behind."""
    for name in directory.names():
        if name.endswith((CLEANED, LOG + SWAP, TXN_INDEX + SWAP)):
            directory.delete(name)


class Pass(ABC):
    """One pass over one partition. `done(result)` is called on the loop, unless it is aborted before."""

    def __init__(
        self, partition: Partition, job: CleaningJob, done: Callable[[Covered | Spoiled | None], None]
    ) -> None:
        self.partition = partition
        self.job = job
        self.done = done
        self.dropped = 0
        self.is_aborted = False
        # A waiter keeps the partition loaded: loading it again would finish a prepared replacement before this pass.
        self._stay: Callable[[], None] = lambda: None
        partition.add_waiter(self._stay)

    @abstractmethod
    def start(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True
        self.partition.remove_waiter(self._stay)

    def finish(self, result: Covered | Spoiled | None) -> None:
        if not self.is_aborted:
            self.partition.remove_waiter(self._stay)
            self.done(result)


class MemoryPass(Pass):
    """A pass in slices on the loop, for partitions in memory."""

    def __init__(
        self,
        partition: Partition,
        job: CleaningJob,
        done: Callable[[Covered | Spoiled | None], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__(partition, job, done)
        self._call_soon = call_soon
        self._steps: Iterator[Step] = iter(())

    def start(self) -> None:
        discard_unfinished(self.partition.directory)
        self._steps = clean(self.partition.directory, self.job)
        self._call_soon(self._slice)

    def _slice(self) -> None:
        until = perf_counter() + SLICE_S
        while not self.is_aborted and not self.partition.deleted:
            step = next(self._steps)
            if isinstance(step, CleanedSegments):
                if not swap_is_possible(self.partition, step):
                    break
                prepare_swap(self.partition.directory, step)
                for remove in swap(self.partition, step):
                    remove()
                self.dropped += step.records_dropped
            elif step is not None:
                self.finish(step)
                return
            if perf_counter() > until:
                self._call_soon(self._slice)
                return
        discard_unfinished(self.partition.directory)
        self.finish(None)


class ChildPass(Pass):
    """A pass in a child process, which a thread of this process feeds and waits for."""

    def __init__(
        self,
        partition: Partition,
        job: CleaningJob,
        done: Callable[[Covered | Spoiled | None], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__(partition, job, done)
        self._call_soon = call_soon
        self._directory = partition.directory
        self._child: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="kohort-compaction", daemon=True)
        self._swapped = threading.Event()
        self._is_swapped = False
        self._is_stuck = False  # a replacement failed halfway; the next start finishes it

    def start(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "kohort.log.maintenance.cleaner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": _search_path()},
        )
        self._thread.start()

    def abort(self) -> None:
        """Ends the child process and the thread; when this returns nothing writes into the directory."""
        super().abort()
        self._swapped.set()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._thread.join()

    def _run(self) -> None:
        assert self._child is not None
        result: Covered | Spoiled | None = None
        problem = ""
        try:
            discard_unfinished(self._directory)
            result = self._talk(self._child)
            self._child.stdin.close()  # type: ignore[union-attr]
            problem = self._child.stderr.read() if self._child.stderr is not None else ""
        except (OSError, ValueError) as error:
            problem = str(error)
        finally:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
                _close(pipe)
            if not self._is_stuck:
                discard_unfinished(self._directory)
        if result is None and not self.is_aborted and not self.partition.deleted:
            where = f"{self.partition.topic}-{self.partition.index}"
            log.warning(
                "%s: compaction was cancelled: %s", where, problem.strip()[-500:] or "the log changed"
            )
        if not self.is_aborted:
            self._call_soon(lambda: self.finish(result))

    def _talk(self, child: subprocess.Popen[str]) -> Covered | Spoiled | None:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{self._directory.path}\n{self.job.to_json()}\n")
        child.stdin.flush()
        for line in child.stdout:
            step = step_from_json(line)
            if not isinstance(step, CleanedSegments):
                return step
            prepare_swap(self._directory, step)
            if self.is_aborted or not self._swap_on_loop(step):
                return None
            self._directory.sync()
            self.dropped += step.records_dropped
        return None

    def _swap_on_loop(self, group: CleanedSegments) -> bool:
        slow: list[Callable[[], None]] = []

        def on_loop() -> None:
            try:
                if not self.is_aborted and swap_is_possible(self.partition, group):
                    slow.extend(swap(self.partition, group))
                    self._is_swapped = True
            except OSError as problem:
                self._is_stuck = True
                self.partition.stop(f"compacted segments could not be put in place: {problem}")
            finally:
                self._swapped.set()

        self._is_swapped = False
        self._swapped.clear()
        if not self.is_aborted:
            self._call_soon(on_loop)
            self._swapped.wait()
        for remove in slow:
            remove()
        return self._is_swapped


def _close(pipe: object) -> None:
    try:
        pipe.close()  # type: ignore[attr-defined]
    except OSError:
        pass  # the child process has ended, and its end of the pipe is closed


def _search_path() -> str:
    """Returns a search path with which the child process runs the same code as this one."""
    here = str(Path(kohort.__file__).parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
