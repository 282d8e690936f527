"""Tracks what of one partition is on disk: unsynced files, callers that wait for them, state files that are due.

An append is durable when it is in the journal, if it is small, or when the partition's own file is synced. Both ways
run side by side, but what was appended becomes durable in order: `_needs_file` is the end of the last append that is
not in the journal, and nothing behind it counts as durable before the file is synced up to there.

The partition owns the log: segments, offsets, high watermark, epochs, producers. The tracker owns what is unsynced,
who waits, and which state files there are. Neither writes a field of the other: the partition reports what it did
(`appended`, `file_created`, `sealed`, `dropped`, `epochs_changed`), the tracker calls `advance` and `stop`.

Partitions in memory have no tracker; others get one with their first use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kohort.log.durability.journal import SMALL_BYTES
from kohort.log.durability.journal_files import LogOffsetMetadata
from kohort.log.durability.rounds import KEY
from kohort.log.durability.sync import Syncer, SyncJob
from kohort.log.storage.epochs import FILE_NAME as EPOCHS_FILE
from kohort.log.storage.epochs import Epochs
from kohort.log.storage.files import Directory, File
from kohort.log.storage.producers import ProducerStates
from kohort.log.storage.recovery import STATE, STATES_KEPT, StateFile
from kohort.log.storage.segment import INDEX, NO_TIMESTAMP, TIME_INDEX, Segment, file_name
from kohort.settings import LONG_MAX
from kohort.wire.errors import ErrorCode

STATE_EVERY_BYTES = 32 << 20
STATE_EVERY_BATCHES = 50_000


class TrackedPartition(Protocol):
    """What the tracker reads of its partition, and tells it."""

    topic: str
    index: int
    high_watermark: int
    log_end_offset: int
    stopped: str | None
    deleted: bool

    @property
    def directory(self) -> Directory: ...
    @property
    def segments(self) -> list[Segment]: ...
    @property
    def epochs(self) -> Epochs: ...
    @property
    def producers(self) -> ProducerStates: ...
    def advance(self, end_offset: int, segment_base: int, position: int) -> None: ...
    def stop(self, reason: str) -> None: ...


class DurabilityTracker:
    """What one partition has to make durable, and who waits for it."""

    __slots__ = (
        "_batches_since_state",
        "_bytes_since_state",
        "_epochs_changed",
        "_failed",
        "_journaled",
        "_needs_file",
        "_new_names",
        "_partition",
        "_state_wanted",
        "_states",
        "_syncer",
        "_unsynced",
        "_waiting",
        "_wants_file",
        "is_busy",
        "key",
        "synced_offset",
        "waits_for_disk",
    )

    def __init__(
        self,
        partition: TrackedPartition,
        syncer: Syncer,
        *,
        topic_id: bytes,
        waits_for_disk: bool,
        states: list[int],
        walked_bytes: int,
        epochs_changed: bool,
    ) -> None:
        """`states` are the end offsets of the state files there are; `walked_bytes` lie behind the last one."""
        self._partition = partition
        self._syncer = syncer
        self.waits_for_disk = waits_for_disk
        self._states = states
        self._bytes_since_state = walked_bytes
        self._batches_since_state = 0
        self._unsynced: list[File] = []
        self._waiting: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self.is_busy = False  # submitted to the syncer, and not done yet
        self._failed = False
        self._state_wanted = False
        self._epochs_changed = epochs_changed  # since they were last written to their file
        self._new_names = False  # files were created since the directory was synced
        self.key = KEY.pack(topic_id, partition.index)  # of the partition in the journal
        # What is before it is in the partition's own files, as durably as it will ever be.
        self.synced_offset = partition.log_end_offset if waits_for_disk else LONG_MAX
        self._needs_file = self._wants_file = 0
        self._journaled: LogOffsetMetadata | None = None  # waits until the file is synced up to `_needs_file`

    # Called by the partition

    def appended(self, batch: memoryview, end_offset: int) -> None:
        """A batch is in the log and ends at `end_offset`; begin to make it durable."""
        size = len(batch)
        self._bytes_since_state += size
        self._batches_since_state += 1
        if self._bytes_since_state > STATE_EVERY_BYTES or self._batches_since_state > STATE_EVERY_BATCHES:
            self._state_wanted = True
        if self.waits_for_disk:
            journal = self._syncer.journal
            # The first bytes of a new file, and its name, need a sync of their own: the journal knows no files.
            if journal is None or size > SMALL_BYTES or self._new_names or not journal.add(self, batch):
                self._needs_file = self._wants_file = end_offset
                self._submit()
                return
        if self._state_wanted:
            self._submit()

    def _submit(self) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._syncer.submit(self)

    def file_created(self) -> None:
        """The directory has a new name in it, which must be durable too."""
        self._new_names = True

    def epochs_changed(self) -> None:
        """The next state file needs the epochs to be written before it."""
        self._epochs_changed = True

    def sealed(self, file: File) -> None:
        """A segment gets no more appends; its file must still be synced."""
        self._unsynced.append(file)
        self._state_wanted = True

    def dropped(self, file: File) -> None:
        """A segment is deleted or replaced; its file need not be synced any more."""
        if file in self._unsynced:
            self._unsynced.remove(file)
            self._new_names = True  # instead, the directory must be synced without its name

    def when_durable(self, end_offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Calls `done` once everything before `end_offset` is durable, or never will be."""
        if self._failed:
            done(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._waiting.append((end_offset, done))

    def is_settled(self) -> bool:
        """Tells whether everything is in the partition's own files; if a sync is all that is missing, begins it."""
        partition = self._partition
        if partition.stopped is not None or partition.high_watermark < partition.log_end_offset:
            return False
        if self.synced_offset < partition.log_end_offset:
            # Thousands of partitions may be asked at once; those that have callers waiting for a worker come first.
            if not self._syncer.is_crowded:
                self.flush(partition.log_end_offset)
            return False
        return not self.is_busy

    # Called by the Journal

    @property
    def is_gone(self) -> bool:
        return self._partition.deleted

    def end_of_log(self) -> LogOffsetMetadata:
        partition = self._partition
        active = partition.segments[-1]
        return LogOffsetMetadata(partition.log_end_offset, active.base_offset, active.file.size)

    def journaled(self, end: LogOffsetMetadata) -> None:
        """The journal has everything before `end`, but for what was too large for it."""
        if self._partition.deleted:
            self.abandon()
        elif self._needs_file <= self.synced_offset:
            self._advance(end)
        else:
            self._journaled = end

    def flush(self, end_offset: int) -> None:
        """Has the partition's own file synced, at least up to there."""
        if end_offset > self._wants_file:
            self._wants_file = end_offset
        self._submit()

    # Called by the Syncer

    def begin_sync(self) -> SyncJob:
        """Makes a job that syncs everything that was appended until now."""
        partition = self._partition
        active = partition.segments[-1]
        job = SyncJob(self, [], [])
        job.end = self.end_of_log()
        files, self._unsynced = self._unsynced, []
        if self.waits_for_disk and active.size:
            files.append(active.file)
        try:
            for file in files:
                file.pin()
                job.files.append(file)
            if self._new_names:
                job.steps += (partition.directory.sync, partition.directory.sync_parent)
                self._new_names = False
            if self._state_wanted:
                job.afterwards = self._state_steps(active, sync=True)
        except OSError as problem:
            job.error = problem
        return job

    def end_sync(self, job: SyncJob) -> None:
        """Answers the callers that waited for what the job has synced, or stops the partition if it failed."""
        for file in job.files:
            file.unpin()
        self.is_busy = False
        partition = self._partition
        if partition.deleted:
            self.abandon()
        elif job.error is not None:
            self.fail(job.error)
            self._syncer.fatal(f"{partition.topic}-{partition.index}: {partition.stopped}")
            return
        elif self.waits_for_disk:
            self.synced_offset = job.end.end_offset
            self._advance(job.end)
            if self._journaled is not None and self._needs_file <= self.synced_offset:
                self._advance(self._journaled)
                self._journaled = None
        if not partition.deleted and (self._wants_file > self.synced_offset or self._state_wanted):
            self._submit()
        if self._syncer.journal is not None:
            self._syncer.journal.file_synced(self)

    def _advance(self, end: LogOffsetMetadata) -> None:
        partition, waiting = self._partition, self._waiting
        partition.advance(*end)
        while waiting and waiting[0][0] <= partition.high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def fail(self, problem: Exception) -> None:
        """Stops the partition after a failed sync: nobody knows what is on disk, and a second sync would not tell."""
        self._failed = True
        self._answer_all(ErrorCode.KAFKA_STORAGE_ERROR)
        self._partition.stop(f"a sync failed: {problem}")

    def abandon(self) -> None:
        """The partition is deleted: tell all who wait."""
        self._answer_all(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _answer_all(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(code)

    # State files

    def _state_steps(self, active: Segment, *, sync: bool) -> list[Callable[[], None]]:
        """Returns the steps that write a state file for this moment, after the indexes and epochs that it counts on."""
        directory = self._partition.directory
        self._bytes_since_state = self._batches_since_state = 0
        self._state_wanted = False
        owing = [segment for segment in self._partition.segments if segment.owes_aborted]
        if not all(segment.flush_indexes() for segment in [*owing, active]):
            return []
        steps: list[Callable[[], None]] = []
        if self.waits_for_disk:  # even if the rest is not synced: no rebuild finds out what is missing here
            steps += (partial(segment.sync_txn_index, len(segment.txn_index)) for segment in owing)
        if sync:
            steps += (
                directory.open(file_name(active.base_offset, suffix), private=True).sync
                for suffix in (INDEX, TIME_INDEX)
            )
        if self._epochs_changed:
            steps.append(partial(directory.replace, EPOCHS_FILE, self._partition.epochs.encode(), sync=sync))
            self._epochs_changed = False
        state = self._state(active)
        steps.append(partial(directory.replace, state.name, state.encode(), sync=sync))
        states = [offset for offset in self._states if offset != state.end_offset] + [state.end_offset]
        steps += (partial(directory.delete, file_name(offset, STATE)) for offset in states[:-STATES_KEPT])
        self._states = states[-STATES_KEPT:]
        return steps

    def _state(self, active: Segment) -> StateFile:
        return StateFile(
            segment_base=active.base_offset,
            position=active.size,
            end_offset=self._partition.log_end_offset,
            last_batch_position=active.last_position,
            max_timestamp=active.largest_timestamp(),
            max_timestamp_offset=active.max_timestamp_offset,
            first_timestamp=NO_TIMESTAMP if active.first_timestamp is None else active.first_timestamp,
            bytes_since_entry=active.bytes_since_entry,
            offset_entries=len(active.offset_index),
            time_entries=len(active.time_index),
            producers=self._partition.producers.encode(),
            aborted_entries=len(active.txn_index),
        )

    def close(self) -> None:
        """Writes the state file of a clean stop, once everything else is on disk. Blocks.

        The state file is not synced: if a power failure takes it, the next start notices and recovers. So a stop
        costs one write per partition, not one disk flush.
        """
        if self.is_busy:
            self._syncer.drain()
        active = self._partition.segments[-1]
        active.close_time_index()
        for step in self._state_steps(active, sync=False):
            step()
