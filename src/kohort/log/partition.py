"""The log of one partition: append, read, high watermark, transactions, waiters, deleting records.

Nothing is read or created before the first use, and a partition that was never used has no files. With durability
`disk` the high watermark is what is on disk; with `os` and `memory` it is the end of the log. The last stable offset is
before it while a transaction is open, or has ended by a marker that is not durable yet.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Container, Sequence
from typing import Literal

from kohort.log.config import TopicConfig
from kohort.log.datadir import PartitionHome
from kohort.log.durability.sync import Syncer
from kohort.log.durability.tracker import DurabilityTracker
from kohort.log.storage import recovery
from kohort.log.storage.epochs import Epochs
from kohort.log.storage.files import Directory, Slice
from kohort.log.storage.memory import EMPTY
from kohort.log.storage.producers import Duplicate, ProducerStates
from kohort.log.storage.recovery import CleanState, storage_error
from kohort.log.storage.segment import Segment
from kohort.log.storage.segments import Segments
from kohort.log.storage.transactions import AbortedTxn, EndMarker, Verification, end_marker
from kohort.settings import LONG_MAX
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import (
    TRANSACTIONAL,
    BatchHeader,
    ControlKind,
    encode_control_batch,
    header_fields,
    read_header,
)

log = logging.getLogger(__name__)

Durability = Literal["disk", "os", "memory"]

_patch = header_fields("base_offset", "batch_length", "partition_leader_epoch").pack_into


class Partition:
    """The log of one partition of a topic. `durability/tracker.py` says what it owns and what its tracker does."""

    __slots__ = (
        "_active", "_clean", "_config", "_directory", "_durability", "_durable_base", "_durable_position",
        "_epoch", "_epochs", "_has_aborted", "_parent", "_producers", "_roll_after_ms", "_segment_size",
        "_segments", "_syncer", "_touched", "_tracker", "_waiters", "deleted", "first_unstable_offset",
        "high_watermark", "index", "leader_epoch", "log_end_offset", "log_start_offset", "stopped", "topic",
    )  # fmt: skip

    def __init__(
        self, parent: Directory, topic: str, index: int, durability: Durability, syncer: Syncer
    ) -> None:
        self._parent = parent
        self._directory: Directory | None = None
        self.topic = topic
        self.index = index
        self.leader_epoch = 0
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        # Of all transactions that have not ended durably; LONG_MAX if there is none. Kept while nothing is loaded.
        self.first_unstable_offset = LONG_MAX
        self._has_aborted = False  # an index of aborted transactions may have entries
        self.stopped: str | None = None
        self.deleted = False
        self._durability = durability
        self._syncer = syncer
        self._clean: CleanState | None = None
        self._segments: Segments | None = None
        self._active: Segment | None = None
        self._producers: ProducerStates | None = None
        self._epochs: Epochs | None = None
        self._epoch = -2  # of the last append since the start
        self._tracker: DurabilityTracker | None = None
        self._waiters: dict[Callable[[], None], None] | None = None
        self._durable_base = self._durable_position = 0
        self._touched = False  # something must be written at a clean stop

    @classmethod
    def open(
        cls,
        parent: Directory,
        topic: str,
        index: int,
        config: TopicConfig,
        *,
        durability: Durability,
        syncer: Syncer,
        clean: CleanState | None,
        leader_epoch: int = 0,
        journaled: Container[int] = (),
    ) -> Partition:
        """Opens the partition in `parent`, the node's directory.

        With `clean` nothing is read now; without it the log is recovered. `CleanState()` is the state of a new
        partition. `journaled`: see `recovery.open_log`.
        """
        partition = cls(parent, topic, index, durability, syncer)
        partition.config = config
        partition.leader_epoch = leader_epoch
        if clean is None:
            partition._load(journaled)
        else:
            partition._clean = clean
            partition.log_start_offset = clean.log_start_offset
            partition.log_end_offset = partition.high_watermark = clean.log_end_offset
            partition.first_unstable_offset = clean.first_unstable_offset
        return partition

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._segment_size = config.segment_size
        jitter_ms = min(config.segment_jitter_ms, config.max_segment_ms)
        jitter_ms = zlib.crc32(f"{self.topic}-{self.index}".encode()) % (jitter_ms + 1) if jitter_ms else 0
        self._roll_after_ms = config.max_segment_ms - jitter_ms

    @property
    def directory(self) -> Directory:
        if self._directory is None:
            self._directory = self._parent.child(f"{self.topic}-{self.index}")
        return self._directory

    @property
    def segments(self) -> list[Segment]:
        """The segments in order; the last one is active. Empty before the first append. Do not change the list."""
        return self._loaded().items

    def _loaded(self) -> Segments:
        if self._segments is None:
            self._load()
            assert self._segments is not None
        return self._segments

    @property
    def size(self) -> int:
        if self._segments is None:
            assert self._clean is not None
            return self._clean.size
        return self._segments.size

    @property
    def producers(self) -> ProducerStates:
        self._loaded()
        assert self._producers is not None
        return self._producers

    @property
    def epochs(self) -> Epochs:
        self._loaded()
        assert self._epochs is not None
        return self._epochs

    def _load(self, journaled: Container[int] = ()) -> None:
        """Reads the directory, which was put off until the first use."""
        must_sync = self._durability == "disk"
        at = (self.directory, self.topic, self.index, self._config.index_interval_bytes)
        try:
            opened = recovery.open_log(*at, self._clean, must_sync, journaled)
        except OSError as problem:
            raise storage_error(self.topic, self.index, str(problem)) from problem
        self._segments = Segments(opened.segments)
        self._active = active = self._segments.active
        if active is not None:
            self._durable_base, self._durable_position = active.base_offset, active.size
        self._producers, self._epochs = opened.producers, opened.epochs
        self.first_unstable_offset = opened.producers.first_unstable_offset
        self._has_aborted = any(len(segment.txn_index) for segment in opened.segments)
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = self.high_watermark = opened.log_end_offset
        if self._durability != "memory":
            home = self.directory
            self._tracker = DurabilityTracker(
                self,
                self._syncer,
                topic_id=home.topic_id if isinstance(home, PartitionHome) else bytes(16),
                waits_for_disk=must_sync,
                states=opened.states,
                walked_bytes=opened.walked_bytes,
                epochs_changed=bool(opened.walked),
            )
        self._touched = bool(opened.walked)

    # Append

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Writes one checked batch and returns its base offset.

        The next offsets and the leader epoch are patched into it, so `batch` must be writable; `header` is its header
        as it came.
        """
        if self._segments is None:
            self._load()
        base_offset = self.log_end_offset
        _patch(batch, 0, base_offset, header.batch_length, self.leader_epoch)
        self._write(batch, header, base_offset, self.leader_epoch, now_ms)
        return base_offset

    def check(self, header: BatchHeader, verification: Verification | None = None) -> Duplicate | None:
        """Returns None if a client's batch may be appended, or what it is a duplicate of; KafkaError if it may not be.

        `verification` is what `begin_verification` returned, once the transaction's coordinator has agreed; a batch
        of no transaction, or of one that is open here, needs none.
        """
        return self.producers.check(header, verification) if header.producer_id >= 0 else None

    def append_offsets(
        self, batch: memoryview, header: BatchHeader, now_ms: int, verification: Verification | None
    ) -> int:
        """Writes offsets that a group commits in a transaction, if they may be written, as `append` does.

        KafkaError: INVALID_TXN_STATE if neither the transaction is open here nor the verification is alive,
        INVALID_PRODUCER_EPOCH if the producer has a higher epoch by now.
        """
        self.producers.check_offsets(header, verification)
        return self.append(batch, header, now_ms)

    def append_as_is(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Writes one batch with the offsets it has, which must not be smaller than the end of the log."""
        if self._segments is None:
            self._load()
        assert header.base_offset >= self.log_end_offset, f"{header.base_offset} < {self.log_end_offset}"
        if header.base_offset > self.log_end_offset and self._active is not None:
            self._active.forget_recent()
        self._write(batch, header, header.base_offset, header.partition_leader_epoch, now_ms)

    def _write(
        self,
        batch: memoryview,
        header: BatchHeader,
        base_offset: int,
        epoch: int,
        now_ms: int,
        marker: EndMarker | None = None,
    ) -> None:
        if self.stopped is not None:
            raise storage_error(self.topic, self.index, self.stopped)
        size = len(batch)
        last_offset = base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        try:
            active = self._active
            if active is None:
                active = self._begin_segment(base_offset, now_ms)
            elif active.file.size and (
                active.file.size + size > self._segment_size
                or active.must_roll(
                    last_offset, timestamp, now_ms, self._roll_after_ms, self._config.segment_index_bytes
                )
            ):
                self._seal(active)
                active = self._begin_segment(base_offset, now_ms)
            active.append(batch, base_offset, last_offset, timestamp)
        except OSError as problem:
            self._cut_and_stop(problem)
            raise storage_error(self.topic, self.index, str(problem)) from problem
        self.log_end_offset = last_offset + 1
        if header.producer_id >= 0:
            if header.attributes & TRANSACTIONAL:
                self._note_transaction(batch, header, base_offset, marker)
            else:
                assert self._producers is not None
                self._producers.update(header, base_offset)
        if epoch != self._epoch:
            self._begin_epoch(epoch, base_offset)
        tracker = self._tracker
        if tracker is not None:
            tracker.appended(batch, last_offset + 1)
            if tracker.waits_for_disk:
                return
        self.high_watermark = last_offset + 1
        if self._waiters:
            self._notify()

    def _begin_segment(self, base_offset: int, now_ms: int) -> Segment:
        self.directory.make()
        interval = self._config.index_interval_bytes
        self._active = segment = self._loaded().begin(self.directory, base_offset, interval, now_ms)
        self._touched = True
        if self._tracker is not None:
            self._tracker.file_created()
        return segment

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch >= 0 and self.epochs.assign(epoch, start_offset) and self._tracker is not None:
            self._tracker.epochs_changed()
        self._epoch = epoch

    def _seal(self, active: Segment) -> None:
        active.seal()
        if self._tracker is not None:
            self._tracker.sealed(active.file)
        self._loaded().keep_loaded(active)

    def _cut_and_stop(self, problem: OSError) -> None:
        reason = f"a write failed: {problem}"
        if self._active is not None:
            try:
                self._active.file.cut_back()
            except OSError as worse:
                reason += f"; what it left at the end of {self._active.file.path} could not be cut: {worse}"
        self.stop(reason)

    # Transactions

    @property
    def last_stable_offset(self) -> int:
        """All transactions with records before this offset have ended, durably."""
        if self.first_unstable_offset >= self.high_watermark:
            return self.high_watermark
        return max(self.first_unstable_offset, self.log_start_offset)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Tells whether a transaction of this producer and epoch is open here: its batches need no verification."""
        return self.producers.has_open(producer_id, producer_epoch)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, adds: bool, now_ms: int
    ) -> Verification | None:
        """Returns the guard of a batch that would begin a transaction here; None if it is open already.

        The caller asks the transaction's coordinator to verify that the partition belongs to the transaction, or to
        add it (`adds`: Produce 12, TxnOffsetCommit 5 and newer), then hands the guard to `check` or `append_offsets`.
        Both refuse it with INVALID_TXN_STATE if it died meanwhile. Offset commits have the sequence -1.
        """
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        return self.producers.begin_verification(
            producer_id, producer_epoch, base_sequence, adds=adds, now_ms=now_ms
        )

    def append_marker(
        self,
        kind: ControlKind,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> int:
        """Writes the marker that ends a producer's transaction and returns its offset; `when_durable` tells the rest.

        KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED. Where nothing is open the marker is written
        as well, and raises the producer's epoch.
        """
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        offset = self.log_end_offset
        batch = encode_control_batch(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now_ms,
            coordinator_epoch=coordinator_epoch,
            base_offset=offset,
            partition_leader_epoch=self.leader_epoch,
        )
        marker = EndMarker(kind, coordinator_epoch)
        self._write(memoryview(batch), read_header(batch), offset, self.leader_epoch, now_ms, marker)
        return offset

    def _note_transaction(
        self, batch: memoryview, header: BatchHeader, base_offset: int, marker: EndMarker | None
    ) -> None:
        """Takes note of a transactional batch or a marker that was just written into the active segment."""
        producers = self.producers
        if not header.is_control:
            producers.update_transactional(header, base_offset)
        elif (marker := marker or end_marker(batch)) is not None:
            completed = producers.complete(header, base_offset, marker)
            if completed is not None and completed.is_aborted:
                assert self._active is not None
                self._active.note_aborted(completed, producers.stable_after(completed))
                self._has_aborted = True
        if self._tracker is None or not self._tracker.waits_for_disk:
            producers.forget_ended(self.log_end_offset)
        self.first_unstable_offset = producers.first_unstable_offset

    def aborted_transactions(self, start: int, records: Slice) -> list[AbortedTxn]:
        """Returns the aborted transactions that a reader of `records`, which `read` returned, must know of."""
        if not self._has_aborted:
            return []
        return self._loaded().aborted_transactions(start, records, self.last_stable_offset)

    def aborted_before(self, end: int) -> list[AbortedTxn]:
        """Returns all aborted transactions with records before `end`."""
        return self._loaded().aborted_before(end)

    # High watermark

    def when_durable(self, end_offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Calls `done(NONE)` once all before `end_offset` is durable; with KAFKA_STORAGE_ERROR if it never will be."""
        if self.high_watermark >= end_offset:
            done(ErrorCode.NONE)
        elif self._tracker is None or end_offset > self.log_end_offset:
            done(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._tracker.when_durable(end_offset, done)

    @property
    def synced_offset(self) -> int:
        """All before this offset is in the files of this partition, as durably as it will ever be."""
        return self._tracker.synced_offset if self._tracker is not None else self.high_watermark

    def advance(self, end_offset: int, segment_base: int, position: int) -> None:
        """Raises the high watermark: all before `end_offset`, which is at that position in the log, is durable."""
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset
            self._durable_base, self._durable_position = segment_base, position
            producers = self._producers
            if producers is not None and producers.has_ended:
                producers.forget_ended(end_offset)
                self.first_unstable_offset = producers.first_unstable_offset
            self._notify()

    def stop(self, reason: str) -> None:
        """Refuses all further appends. Reads go on."""
        log.error("%s-%d takes no more appends: %s", self.topic, self.index, reason)
        self.stopped = reason
        self._notify()

    def add_waiter(self, callback: Callable[[], None]) -> None:
        """Has `callback` called whenever the high watermark moves, and when the partition stops or is deleted."""
        if self._waiters is None:
            self._waiters = {}
        self._waiters[callback] = None

    def remove_waiter(self, callback: Callable[[], None]) -> None:
        if self._waiters is not None:
            self._waiters.pop(callback, None)
            if not self._waiters:
                self._waiters = None

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def _notify(self) -> None:
        for callback in list(self._waiters or ()):
            callback()

    # Read

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, up_to: int | None = None) -> Slice:
        """Reads at most `max_bytes`, from the batch that holds `offset` (or the next one, if it was compacted away).

        The slice never goes past `up_to`, the high watermark or the end of a segment. It may end inside a batch, but
        not inside the first: a first batch larger than `max_bytes` comes whole with `at_least_one`, else nothing does.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.index} has {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        limit = self.high_watermark if up_to is None else min(up_to, self.high_watermark)
        if offset >= limit:
            return EMPTY
        place = self._loaded().locate(offset)
        if place is None:
            return EMPTY
        segment, position, size = place
        available = self._end_in(segment, limit) - position
        if available <= 0 or (max_bytes < size and not at_least_one):
            return EMPTY
        return segment.file.slice(position, min(max(max_bytes, size), available))

    def _end_in(self, segment: Segment, limit: int) -> int:
        """Returns the position in `segment` before which all offsets are below `limit`, at most the high watermark."""
        if limit == self.log_end_offset:
            return segment.size
        if limit == self.high_watermark:
            return segment.end_before(self._durable_base, self._durable_position)
        place = self._loaded().locate(limit)
        return segment.end_before(place[0].base_offset, place[1]) if place is not None else segment.size

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first readable record at or after that time; None if there is none."""
        return self._if_readable(self._loaded().find_time(timestamp, self.log_start_offset))

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp; None if there is none."""
        return self._if_readable(self._loaded().find_max_timestamp())

    def _if_readable(self, found: tuple[int, int] | None) -> tuple[int, int] | None:
        return found if found is not None and found[1] < self.high_watermark else None

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) if it is not known."""
        return self.epochs.end_of(leader_epoch, self.log_end_offset, self.leader_epoch)

    # Delete

    def delete_records(self, offset: int) -> int:
        """Lets the log begin at `offset` (-1: the high watermark), durably, and returns where it begins."""
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            why = f"{offset} is not below the high watermark {self.high_watermark}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        if offset > self.log_start_offset:
            # Whole segments go first: on a full disk that frees the space for the small file.
            self.drop_segments(self._loaded().wholly_below(offset))
            if self._durability != "memory":
                try:
                    recovery.write_start_offset(self.directory, offset, make_room=self._syncer.drain)
                except OSError as problem:
                    raise storage_error(self.topic, self.index, str(problem)) from problem
            self._raise_start(offset)
        return self.log_start_offset

    def _raise_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self._touched = True
        if self.epochs.truncate_from_start(offset) and self._tracker is not None:
            self._tracker.epochs_changed()

    def drop_segments(self, count: int) -> list[Segment]:
        """Deletes the oldest segments (never the active one); the log begins at the next one."""
        segments = self._loaded()
        assert count < max(len(segments.items), 1), "the active segment stays: roll first"
        if not count:
            return []
        active = segments.items[-1]
        # The name of the last file tells the end offset after a crash: the new file must be there before it goes.
        if not active.size:
            active.file.append(b"")
            self.directory.sync()
        dropped = segments.drop(count)
        for segment in dropped:
            if self._tracker is None:
                segment.delete()
            else:
                self._tracker.dropped(segment.file)
                self._syncer.background(segment.retire())
        start = segments.items[0].base_offset
        if start > self.log_start_offset:
            self._raise_start(start)
        return dropped

    def replace_segments(self, old: Sequence[Segment], new: Segment | None) -> None:
        """Uses `new` instead of `old`: compaction has replaced the files."""
        self._loaded().replace(old, new)
        if self._tracker is not None:
            for segment in old:
                self._tracker.dropped(segment.file)

    def roll(self, now_ms: int) -> None:
        """Seals the active segment, if it has anything, and begins a new one."""
        active = self._loaded().active
        if active is not None and active.size and self.stopped is None:
            self._seal(active)
            self._begin_segment(self.log_end_offset, now_ms)

    # End

    def close(self) -> CleanState:
        """Stops cleanly: blocks until all is on disk, and returns what makes the next start cheap."""
        changed = self._touched or self._clean is None or self.log_end_offset != self._clean.log_end_offset
        if changed and self._tracker is not None and self._active is not None and self.stopped is None:
            self._tracker.close()
        for segment in self._segments.items if self._segments is not None else ():
            segment.file.close()
        return CleanState(self.log_start_offset, self.log_end_offset, self.size, self.first_unstable_offset)

    def unload(self) -> bool:
        """Frees the memory, as if the node had just started; False if the partition is in use."""
        segments, tracker = self._segments, self._tracker
        if (
            segments is None
            or tracker is None
            or self._waiters
            or segments.in_use
            or self.producers.is_verifying
            or not tracker.is_settled()
        ):
            return False
        try:
            self._clean = self.close()
        except OSError:
            return False  # the state file cannot be written: the partition stays loaded
        self._segments = self._active = self._producers = self._epochs = None
        self._tracker = self._directory = None
        self._epoch, self._touched = -2, False
        return True

    def delete(self) -> None:
        """Tells all who wait that the topic is deleted. The caller removes the directory."""
        self.deleted = True
        self.stopped = "the topic was deleted"
        self._notify()
        if self._tracker is not None and not self._tracker.is_busy:
            self._tracker.abandon()
        for segment in self._segments.items if self._segments is not None else ():
            segment.file.abandon()
