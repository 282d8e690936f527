"""What one partition owes the disk: unsynced files, who waits for them, and when a state file is due.

An append is durable when it is in the journal, if it is small, or when the partition's own file is synced. Both go on
beside each other, and what was appended becomes durable in order: `_needs_file` is the end of the last append that is
not in the journal, and nothing behind it counts before the file is synced up to there.

Partitions that live in memory have none of this; others get it with their first use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kohort.log.datadir import PartitionHome
from kohort.log.durability.journal import SMALL_BYTES
from kohort.log.durability.journal_files import Place
from kohort.log.durability.rounds import KEY
from kohort.log.durability.sync import Job, Syncer
from kohort.log.storage.epochs import FILE_NAME as EPOCHS_FILE
from kohort.log.storage.files import File
from kohort.log.storage.recovery import STATE, STATES_KEPT, State
from kohort.log.storage.segment import INDEX, NO_TIMESTAMP, TIME_INDEX, Segment, file_name
from kohort.settings import LONG_MAX
from kohort.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.log.partition import Partition

STATE_EVERY_BYTES = 32 << 20
STATE_EVERY_BATCHES = 50_000


class Commit:
    __slots__ = (
        "_batches_since_state",
        "_bytes_since_state",
        "_journaled",
        "_needs_file",
        "_partition",
        "_states",
        "_syncer",
        "_unsynced",
        "_waiting",
        "_wants_file",
        "busy",
        "epochs_changed",
        "failed",
        "key",
        "new_names",
        "state_wanted",
        "synced_offset",
        "waits_for_disk",
    )

    def __init__(
        self, partition: Partition, syncer: Syncer, waits_for_disk: bool, states: list[int], walked_bytes: int
    ) -> None:
        self._partition = partition
        self._syncer = syncer
        self.waits_for_disk = waits_for_disk
        self._states = states
        self._bytes_since_state = walked_bytes
        self._batches_since_state = 0
        self._unsynced: list[File] = []
        self._waiting: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()
        self.busy = False  # submitted, and not done yet
        self.failed = False
        self.state_wanted = False
        self.epochs_changed = False
        self.new_names = False  # files were created since the directory was synced
        home = partition.directory
        self.key = KEY.pack(home.topic_id, partition.index) if isinstance(home, PartitionHome) else b""
        # What is before it is in our own files for good, or as good as it gets.
        self.synced_offset = partition.log_end_offset if waits_for_disk else LONG_MAX
        self._needs_file = self._wants_file = 0
        self._journaled: Place | None = None  # waits until the file is synced up to `_needs_file`

    def appended(self, batch: memoryview, end_offset: int) -> None:
        size = len(batch)
        self._bytes_since_state += size
        self._batches_since_state += 1
        if self._bytes_since_state > STATE_EVERY_BYTES or self._batches_since_state > STATE_EVERY_BATCHES:
            self.state_wanted = True
        if self.waits_for_disk:
            journal = self._syncer.journal
            # A new file gets its first bytes and its name to disk by itself: the journal knows nothing of files.
            if journal is None or size > SMALL_BYTES or self.new_names or not journal.add(self, batch):
                self._needs_file = self._wants_file = end_offset
                self._submit()
                return
        if self.state_wanted:
            self._submit()

    def _submit(self) -> None:
        if not self.busy:
            self.busy = True
            self._syncer.submit(self)

    def sealed(self, file: File) -> None:
        self._unsynced.append(file)
        self.state_wanted = True

    def dropped(self, file: File) -> None:
        if file in self._unsynced:
            self._unsynced.remove(file)
            self.new_names = True  # instead, the directory must know on disk that it is gone

    def when_durable(self, end_offset: int, done: Callable[[ErrorCode], None]) -> None:
        if self.failed:
            done(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._waiting.append((end_offset, done))

    def settled(self) -> bool:
        """Whether nothing depends on us any more; if it is only that the file is not synced, that is begun."""
        partition = self._partition
        if partition.stopped is not None or partition.high_watermark < partition.log_end_offset:
            return False
        if self.synced_offset < partition.log_end_offset:
            if (
                not self._syncer.is_crowded
            ):  # thousands may be asked at once; who waits for the disk comes first
                self.flush(partition.log_end_offset)
            return False
        return not self.busy

    # Called by the Journal

    @property
    def is_gone(self) -> bool:
        return self._partition.deleted

    def place(self) -> Place:
        partition = self._partition
        active = partition.segments[-1]
        return Place(partition.log_end_offset, active.base_offset, active.file.size)

    def journaled(self, place: Place) -> None:
        if self._partition.deleted:
            self.abandon()
        elif self._needs_file <= self.synced_offset:
            self._advance(place)
        else:
            self._journaled = place

    def flush(self, end_offset: int) -> None:
        """Our own file is to be synced, at least up to there."""
        if end_offset > self._wants_file:
            self._wants_file = end_offset
        self._submit()

    # Called by the Syncer

    def begin_sync(self) -> Job:
        """Everything that was appended until now."""
        partition = self._partition
        active = partition.segments[-1]
        job = Job(self, [], [])
        job.place = self.place()
        files, self._unsynced = self._unsynced, []
        if self.waits_for_disk and active.size:
            files.append(active.file)
        try:
            for file in files:
                file.pin()
                job.files.append(file)
            if self.new_names:
                job.steps += (partition.directory.sync, partition.directory.sync_parent)
                self.new_names = False
            if self.state_wanted:
                job.afterwards = self._state_steps(active, sync=True)
        except OSError as problem:
            job.error = problem
        return job

    def end_sync(self, job: Job) -> None:
        for file in job.files:
            file.unpin()
        self.busy = False
        partition = self._partition
        if partition.deleted:
            self.abandon()
        elif job.error is not None:
            self.fail(job.error)
            self._syncer.fatal(f"{partition.topic}-{partition.index}: {partition.stopped}")
            return
        elif self.waits_for_disk:
            self.synced_offset = job.place.end_offset
            self._advance(job.place)
            if self._journaled is not None and self._needs_file <= self.synced_offset:
                self._advance(self._journaled)
                self._journaled = None
        if not partition.deleted and (self._wants_file > self.synced_offset or self.state_wanted):
            self._submit()
        if self._syncer.journal is not None:
            self._syncer.journal.file_synced(self)

    def _advance(self, place: Place) -> None:
        partition, waiting = self._partition, self._waiting
        partition.advance(*place)
        while waiting and waiting[0][0] <= partition.high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def fail(self, problem: Exception) -> None:
        """After a failed fdatasync nobody knows what is on disk, and to ask again would lie: it ends here."""
        self.failed = True
        self._answer_all(ErrorCode.KAFKA_STORAGE_ERROR)
        self._partition.stop(f"a sync failed: {problem}")

    def abandon(self) -> None:
        self._answer_all(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _answer_all(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(code)

    # State files

    def _state_steps(self, active: Segment, *, sync: bool) -> list[Callable[[], None]]:
        """A state file for this moment, written after the indexes and epochs that it counts on."""
        directory = self._partition.directory
        self._bytes_since_state = self._batches_since_state = 0
        self.state_wanted = False
        if not active.flush_indexes():
            return []
        steps: list[Callable[[], None]] = []
        if sync:
            steps += (
                directory.open(file_name(active.base_offset, suffix), private=True).sync
                for suffix in (INDEX, TIME_INDEX)
            )
        if self.epochs_changed:
            steps.append(partial(directory.replace, EPOCHS_FILE, self._partition.epochs.encode(), sync=sync))
            self.epochs_changed = False
        state = self._state(active)
        steps.append(partial(directory.replace, state.name, state.encode(), sync=sync))
        states = [offset for offset in self._states if offset != state.end_offset] + [state.end_offset]
        steps += (partial(directory.delete, file_name(offset, STATE)) for offset in states[:-STATES_KEPT])
        self._states = states[-STATES_KEPT:]
        return steps

    def _state(self, active: Segment) -> State:
        return State(
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
        )

    def close(self) -> None:
        """The clean stop: what must be on disk is there, and a state file says how it was left. Blocks.

        The state is not synced: if a power failure takes it, the next start notices and recovers. So a stop costs
        one write per partition, not one disk flush.
        """
        if self.busy:
            self._syncer.drain()
        active = self._partition.segments[-1]
        active.close_time_index()
        for step in self._state_steps(active, sync=False):
            step()
