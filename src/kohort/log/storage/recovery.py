"""Opens a partition's directory at a start: as a clean stop left it, or recovered after a crash.

State files (`<end offset>.state`) say how far the log is known to be good and what the producers' state was there.
They are written at a roll and every 32 MB, after that part of the log is on disk. A start after a crash takes the
newest one that fits the data, walks only what was appended after it, and checks every CRC. It cuts the log at the first
bad or torn batch. Sealed segments before the state file's position are not read.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.log.storage.epochs import FILE_NAME as EPOCHS_FILE
from kohort.log.storage.epochs import Epochs
from kohort.log.storage.files import Directory
from kohort.log.storage.index import DamagedIndex
from kohort.log.storage.producers import ProducerStates
from kohort.log.storage.segment import (
    INDEX,
    LOG,
    MAX_RELATIVE_OFFSET,
    SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    Segment,
    file_name,
    walk,
)
from kohort.log.storage.transactions import end_marker
from kohort.settings import LONG_MAX
from kohort.wire.errors import BadBatch, ErrorCode, KafkaError
from kohort.wire.records.batch import BatchHeader

log = logging.getLogger(__name__)

STATE = ".state"
START_FILE = "log-start-offset"
STATES_KEPT = 2

_FRAME = struct.Struct(">4sI")  # magic, CRC of the rest
_STATE = struct.Struct(">qqqqqqqqqq")
_ABORTED = struct.Struct(">q")
_MAGIC = b"KHS2"
_OLD_MAGIC = b"KHS1"  # of versions without transactions: the number of aborted ones is not known
_NOT_KNOWN = -1


@dataclass(slots=True)
class CleanState:
    """The state that `Partition.close` returned; with it the next start need not read the directory."""

    log_start_offset: int = 0
    log_end_offset: int = 0
    size: int = 0
    first_unstable_offset: int = LONG_MAX


class StateFile(NamedTuple):
    """The content of a state file: the log is good up to `end_offset`, which is at `position` of the segment."""

    segment_base: int
    position: int
    end_offset: int
    last_batch_position: int
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    bytes_since_entry: int
    offset_entries: int
    time_entries: int
    producers: bytes
    aborted_entries: int = 0

    @property
    def name(self) -> str:
        return file_name(self.end_offset, STATE)

    def encode(self) -> bytes:
        body = _STATE.pack(*self[:-2]) + _ABORTED.pack(self.aborted_entries) + self.producers
        return _FRAME.pack(_MAGIC, zlib.crc32(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> StateFile | None:
        """Reads a state file; None if it is damaged."""
        if len(data) < _FRAME.size + _STATE.size:
            return None
        magic, crc = _FRAME.unpack_from(data)
        body = data[_FRAME.size :]
        if magic not in (_MAGIC, _OLD_MAGIC) or zlib.crc32(body) != crc:
            return None
        at, aborted = _STATE.size, _NOT_KNOWN
        if magic == _MAGIC:
            (aborted,) = _ABORTED.unpack_from(body, at)
            at += _ABORTED.size
        return cls._make((*_STATE.unpack_from(body), body[at:], aborted))


@dataclass(slots=True)
class Opened:
    """What `open_log` found in a partition's directory."""

    segments: list[Segment]
    log_start_offset: int = 0
    log_end_offset: int = 0
    producers: ProducerStates = field(default_factory=ProducerStates)
    epochs: Epochs = field(default_factory=Epochs)
    states: list[int] = field(default_factory=list)  # end offsets of the state files
    walked_bytes: int = 0  # since the state that was used
    walked: list[Segment] = field(default_factory=list)
    has_deleted: bool = False


def offsets_of(names: list[str], suffix: str) -> list[int]:
    """Returns the offsets that files with that suffix are named after, in ascending order."""
    return sorted(
        int(name[: -len(suffix)])
        for name in names
        if name.endswith(suffix) and name[: -len(suffix)].isdigit()
    )


def open_log(
    directory: Directory,
    topic: str,
    partition: int,
    interval: int,
    clean: CleanState | None,
    sync: bool,
    journaled: Container[int] = (),
) -> Opened:
    """Opens a log as the clean stop left it, if the directory still fits that; else recover it.

    `sync`: what survived a crash must be durable afterwards. `journaled` are the base offsets of the batches that the
    journal can put back.
    """
    if clean is None or clean.size:
        directory.make()  # it is there, but a crash may have left it without the topic's id
    if clean is not None:
        opened = open_clean(directory, clean, interval)
        if opened is not None:
            return opened
        log.warning("%s-%d is not as the clean stop left it: recovering", topic, partition)
    opened = recover(directory, topic, partition, interval, journaled)
    if sync and (opened.walked or opened.has_deleted):
        for segment in opened.walked:
            segment.file.sync()
        directory.sync()  # the process that died may not have done it
        directory.sync_parent()
    return opened


def open_clean(directory: Directory, clean: CleanState, interval: int) -> Opened | None:
    """Opens a log without walking it; None if the directory is not as the clean stop left it."""
    names = directory.names()
    bases = offsets_of(names, LOG)
    if not bases:
        if clean.size:
            return None
        return Opened([], clean.log_start_offset, clean.log_end_offset, epochs=Epochs.load(directory))
    opened = _open_segments(directory, bases, interval)
    if not _has_good_txn_indexes(opened.segments, names):
        return None
    state = _read_state(directory, clean.log_end_offset)
    active = opened.segments[-1]
    if state is None or state.segment_base != active.base_offset or state.position != active.size:
        return None
    if not _adopt(opened, active, state):
        return None
    opened.producers = ProducerStates.decode(state.producers)
    opened.epochs = Epochs.load(directory)
    if not opened.epochs.epochs and clean.log_end_offset > clean.log_start_offset:
        return None
    opened.log_start_offset, opened.log_end_offset = clean.log_start_offset, clean.log_end_offset
    opened.states = offsets_of(names, STATE)
    return opened


def recover(
    directory: Directory, topic: str, partition: int, interval: int, journaled: Container[int] = ()
) -> Opened:
    """Opens a log after a crash, or from a directory of unknown origin."""
    finish_interrupted_work(directory)
    names = directory.names()
    bases = offsets_of(names, LOG)
    _delete_orphans(directory, names, set(bases))
    start_offset = read_start_offset(directory)
    if not bases:
        for offset in offsets_of(names, STATE):
            directory.delete(file_name(offset, STATE))
        return Opened([], start_offset, start_offset)
    opened = _open_segments(directory, bases, interval)
    # A state file is of use only with the epochs and aborted transactions up to it; else the whole log is walked.
    is_usable = EPOCHS_FILE in names and _has_good_txn_indexes(opened.segments, names)
    state = _newest_fitting_state(directory, names, opened.segments) if is_usable else None
    _check_from(opened, state, topic, partition, journaled)
    for offset in offsets_of(names, STATE):
        if offset > opened.log_end_offset:
            directory.delete(file_name(offset, STATE))
        else:
            opened.states.append(offset)
    opened.log_start_offset = min(max(start_offset, bases[0]), opened.log_end_offset)
    opened.epochs.truncate_from_start(opened.log_start_offset)
    return opened


def read_start_offset(directory: Directory) -> int:
    data = directory.read(START_FILE)
    try:
        return int(data) if data else 0
    except ValueError:
        log.error("%s/%s is damaged: records that were deleted may be seen again", directory.path, START_FILE)
        return 0


def write_start_offset(directory: Directory, offset: int, *, make_room: Callable[[], None]) -> None:
    """Writes the log start offset, durably; `make_room` frees space on a full disk for a second try."""
    data = b"%d\n" % offset
    try:
        directory.replace(START_FILE, data)
    except OSError:
        make_room()
        directory.replace(START_FILE, data)


def _open_segments(directory: Directory, bases: list[int], interval: int) -> Opened:
    return Opened([Segment(directory, base, interval, sealed=base != bases[-1]) for base in bases])


def _has_good_txn_indexes(segments: list[Segment], names: list[str]) -> bool:
    """Loads the index of each segment that has one; False if one is damaged. Nothing but a walk can rebuild it."""
    bases = set(offsets_of(names, TXN_INDEX))
    for segment in segments:
        try:
            if segment.base_offset not in bases:
                segment.reset_txn_index()
            else:
                assert segment.txn_index is not None
        except DamagedIndex as damage:
            log.warning("%s: %s", segment.directory.path, damage)
            return False
    return True


def _read_state(directory: Directory, end_offset: int) -> StateFile | None:
    data = directory.read(file_name(end_offset, STATE))
    return StateFile.decode(data) if data is not None else None


def _newest_fitting_state(
    directory: Directory, names: list[str], segments: list[Segment]
) -> StateFile | None:
    by_base = {segment.base_offset: segment for segment in segments}
    for offset in reversed(offsets_of(names, STATE)):
        state = _read_state(directory, offset)
        segment = by_base.get(state.segment_base) if state is not None else None
        if state is not None and segment is not None and _fits(state, segment):
            return state
    return None


def _fits(state: StateFile, segment: Segment) -> bool:
    """Tells whether the last batch before the state's position is in the log. What is before it was synced earlier."""
    if state.position > segment.size or state.aborted_entries > len(segment.txn_index):
        return False
    if state.position == 0:
        return state.end_offset == segment.base_offset
    try:
        batches = list(walk(segment.file, state.last_batch_position, state.position, check=True))
    except BadBatch:
        return False
    return len(batches) == 1 and batches[0][1].last_offset + 1 == state.end_offset


def _renew_index_files(opened: Opened, segment: Segment) -> None:
    segment.forget_index_files()
    opened.has_deleted = True
    if len(segment.offset_index) or len(segment.txn_index):
        segment.flush_indexes()  # else a crash before the next state file would cost a walk through all of it


def _adopt(opened: Opened, segment: Segment, state: StateFile) -> bool:
    """Gives the segment the indexes it had when the state was written; False if its files lack them."""
    aborted = len(segment.txn_index)
    aborted_then = state.aborted_entries
    if aborted_then == _NOT_KNOWN:  # the file may be Kafka's
        aborted_then = sum(entry.last_offset < state.end_offset for entry in segment.txn_index.entries)
    if aborted < aborted_then:
        return False
    segment.txn_index.truncate(aborted_then)
    try:
        offsets, times = segment.read_indexes(may_be_empty=not state.offset_entries)
    except DamagedIndex:
        return False
    if len(offsets) < state.offset_entries or len(times) < state.time_entries:
        return False
    is_longer = (
        len(offsets) > state.offset_entries or len(times) > state.time_entries or aborted > aborted_then
    )
    offsets.truncate(state.offset_entries)
    times.truncate(state.time_entries)
    if offsets and offsets.positions[-1] >= state.position:
        return False
    try:
        segment.check_last_entries(offsets, times)
    except DamagedIndex:
        return False
    segment.use_indexes(offsets, times)
    if is_longer:
        _renew_index_files(opened, segment)
    segment.max_timestamp = state.max_timestamp
    segment.max_timestamp_offset = state.max_timestamp_offset
    segment.first_timestamp = state.first_timestamp
    segment.bytes_since_entry = state.bytes_since_entry
    segment.last_position = state.last_batch_position
    return True


def _check_from(
    opened: Opened, state: StateFile | None, topic: str, partition: int, journaled: Container[int]
) -> None:
    segments = opened.segments
    first, position, end_offset = 0, 0, segments[0].base_offset
    opened.epochs = Epochs.load(segments[0].directory)
    if state is not None:
        first = next(at for at, segment in enumerate(segments) if segment.base_offset == state.segment_base)
        position, end_offset = state.position, state.end_offset
        opened.producers = ProducerStates.decode(state.producers)
        segments[first].sealed = False
        if not _adopt(opened, segments[first], state):
            segments[first].rebuild_indexes(position)
            _renew_index_files(opened, segments[first])
    opened.epochs.truncate_from_end(end_offset)
    for at in range(first, len(segments)):
        segment = segments[at]
        if end_offset < segment.base_offset and end_offset in journaled:
            # Compaction leaves gaps too, but here the end of a segment is lost that was not synced when the next
            # one began. Nothing in the next one was acknowledged then.
            bad = (
                segments[at - 1].size,
                f"the journal has what is missing before offset {segment.base_offset}",
            )
            _cut(opened, at - 1, end_offset, bad, topic, partition)
            break
        segment.sealed = False  # its indexes are as unknown as its data
        if at > first or state is None:
            segment.reset_indexes()
            segment.reset_txn_index()
            _renew_index_files(opened, segment)
            position, end_offset = 0, max(end_offset, segment.base_offset)
        end_offset, wrong = _check_segment(opened, segment, position, end_offset)
        if wrong is not None:
            _cut(opened, at, end_offset, wrong, topic, partition)
            break
    opened.log_end_offset = end_offset
    for segment in segments[first:-1]:
        segment.seal()


def _check_segment(
    opened: Opened, segment: Segment, position: int, end_offset: int
) -> tuple[int, tuple[int, str] | None]:
    """Returns the end offset after the good batches, and position and fault of the first bad one."""
    if segment.size > position:
        opened.walked.append(segment)
        opened.walked_bytes += segment.size - position
    producers, epochs = opened.producers, opened.epochs
    try:
        for at, header in walk(segment.file, position, segment.size, check=True):
            last_offset = header.last_offset
            if header.base_offset < end_offset or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                return end_offset, (at, f"offset {header.base_offset} where {end_offset} is due")
            segment.note(at, last_offset, header.max_timestamp, header.size)
            if header.producer_id >= 0:
                if header.is_control:
                    _end_transaction(producers, segment, at, header)
                elif header.is_transactional:
                    producers.update_transactional(header, header.base_offset)
                else:
                    producers.update(header, header.base_offset)
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            end_offset = last_offset + 1
            position = at + header.size
    except BadBatch as bad:
        return end_offset, (position, bad.message)
    return end_offset, None


def _end_transaction(producers: ProducerStates, segment: Segment, position: int, header: BatchHeader) -> None:
    """Takes note of a marker that a start has walked over."""
    marker = end_marker(segment.file.pread(position, header.size))
    if marker is not None:
        completed = producers.complete(header, header.base_offset, marker)
        producers.forget_ended(header.base_offset + 1)  # what a start finds in the log counts as durable
        if completed is not None and completed.is_aborted:
            segment.note_aborted(completed, producers.stable_after(completed))


def _cut(opened: Opened, at: int, end_offset: int, bad: tuple[int, str], topic: str, partition: int) -> None:
    position, why = bad
    segment = opened.segments[at]
    lost = segment.size - position + sum(later.size for later in opened.segments[at + 1 :])
    log.warning(
        "%s-%d: cut %d bytes from offset %d on, which were not acknowledged or are damaged on disk: %s",
        topic, partition, lost, end_offset, why,
    )  # fmt: skip
    segment.cut(position)
    segment.file.sync()
    for later in opened.segments[at + 1 :]:
        later.delete()
        opened.has_deleted = True
    del opened.segments[at + 1 :]


def finish_interrupted_work(directory: Directory) -> None:
    """Finishes or undoes what a crash interrupted: a compaction, or the replacement of a small file.

    `.swap` is a finished result, and replaces the segments it covers. `.cleaned` and `.tmp` were not finished, and
    `.deleted` was to be deleted: they are removed.
    """
    names = directory.names()
    for name in names:
        if name.endswith((".cleaned", ".tmp", ".deleted")):
            directory.delete(name)
    for base in offsets_of(names, LOG + ".swap"):
        swap = directory.open(file_name(base, LOG + ".swap"), private=True)
        last_offset = base
        try:
            for _, header in walk(swap, 0, swap.size, check=False):
                last_offset = header.last_offset
        except BadBatch as bad:  # it covers at least what is before that batch; the other old segments stay
            log.error("%s", bad.message)
        swap.close()
        for old in offsets_of(names, LOG):
            if base <= old <= last_offset:
                for suffix in reversed(SUFFIXES):  # the .log last: while it is there, this is done again
                    directory.delete(file_name(old, suffix))
        if file_name(base, TXN_INDEX + ".swap") in names:
            directory.rename(file_name(base, TXN_INDEX + ".swap"), file_name(base, TXN_INDEX))
        directory.rename(file_name(base, LOG + ".swap"), file_name(base, LOG))
    for name in directory.names():
        if name.endswith(
            ".swap"
        ):  # indexes; they are rebuilt, because those of the old segment may be here too
            directory.delete(name)
    if any(name.endswith(".swap") for name in names):
        directory.sync()


def _delete_orphans(directory: Directory, names: list[str], bases: set[int]) -> None:
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        for base in offsets_of(names, suffix):
            if base not in bases:
                directory.delete(file_name(base, suffix))


@dataclass(frozen=True, slots=True)
class Damage:
    """A bad batch, described for people."""

    topic: str
    partition: int
    path: str
    offset: int  # the first offset that cannot be read
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: offset {self.offset}: {self.reason}"


def verify(directory: Directory, topic: str, partition: int) -> Iterator[Damage]:
    """Checks every batch of a partition that no process has open, and yields one Damage per bad segment."""
    for base in offsets_of(directory.names(), LOG):
        file = directory.open(file_name(base, LOG), private=True)
        expected = base
        try:
            for position, header in walk(file, 0, file.size, check=True):
                if header.base_offset < expected:
                    reason = f"{file.path} at byte {position}: offset {header.base_offset} again"
                    yield Damage(topic, partition, file.path, expected, reason)
                    break
                expected = header.last_offset + 1
        except BadBatch as bad:
            yield Damage(topic, partition, file.path, expected, bad.message)
        finally:
            file.close()


def storage_error(topic: str, partition: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition}: {reason}")
