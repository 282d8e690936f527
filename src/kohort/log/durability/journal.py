"""Makes small appends of all partitions durable with one synced write (durability `disk`).

A sync of each partition that was written costs more than anything else when many partitions take a little each, as
those of `__consumer_offsets` do. So the bytes of a small append, which are in the partition's own log but not synced,
go into the journal as well. All appends that come while a round is being written make the next round: one synced
write, by the kernel or in a thread, and one call back to the loop, which answers all callers that wait. After a crash
`journal_replay.put_back` gives the logs what they lack.

The files are written once before they are used and keep their size, so a round changes no metadata. When a file is
full the next one takes over. A full file may be used again when the logs of all partitions that have something in it
are synced, which is done one after the other in the background. While no file is free, partitions are synced
separately, as if there were no journal.

All methods but `_create` run on the loop's thread.
"""

from __future__ import annotations

import logging
import mmap
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from kohort.log.durability.journal_files import JournalFile, Loop, Owner, RoundWrite, RoundWriter, create
from kohort.log.durability.rounds import HEAD, KEY, MAGIC, PATTERN, blocks

log = logging.getLogger(__name__)

FILES = 4
FILE_BYTES = 16 << 20
ROUND_BYTES = 1 << 20
SMALL_BYTES = 32 << 10  # for larger batches a sync of their own file costs less


class Journal:
    """The journal of one node. `call_soon` runs a function on the loop's thread, `background` on a worker.

    `on_fatal` stops the node. With a `loop` the kernel writes without a thread, where it can.
    """

    def __init__(
        self,
        directory: Path,
        call_soon: Callable[[Callable[[], None]], object],
        background: Callable[[Callable[[], None]], object],
        on_fatal: Callable[[str], None],
        loop: Loop | None = None,
    ) -> None:
        """Begins an empty journal. What the files hold from an earlier run is forgotten: the caller has put it back."""
        self._directory = directory
        self._background = background
        self._on_fatal = on_fatal
        self._at_end_of_iteration = call_soon if loop is None else loop.call_soon
        self._writer = RoundWriter(call_soon, self._finish, loop)
        self._file_bytes = FILE_BYTES
        self._buffers = [memoryview(mmap.mmap(-1, ROUND_BYTES)) for _ in range(2)]
        self._buffer = self._buffers[0]  # of the next round
        self._end = HEAD.size
        self._count = 0
        self._owners: dict[Owner, None] = {}
        self._sequence = secrets.randbits(48)
        self._file: JournalFile | None = None
        self._next: JournalFile | None = None  # takes the next round, because it does not fit into `_file`
        self._limit = 0  # how long the next round may be
        self._files: list[JournalFile] = []
        self._free: deque[JournalFile] = deque()
        self._full: deque[JournalFile] = deque()
        # The owner whose log is being synced so that the oldest full file can be used again.
        self._awaited: Owner | None = None
        self._may_create = True
        self._failed = False
        self._starting = False
        self._written: RoundWrite | None = None
        self._began = 0.0
        self.on_round: Callable[[float], None] | None = None  # hears how many seconds each round took
        self._take_files()

    def _take_files(self) -> None:
        for path in sorted(self._directory.glob(PATTERN)):
            if (
                path.stat().st_size != self._file_bytes
            ):  # its creation was interrupted, or another version made it
                path.unlink()
                continue
            file = JournalFile(path)
            self._files.append(file)
            self._free.append(file)

    # Append

    def add(self, owner: Owner, batch: memoryview) -> bool:
        """Puts a batch into the next round, after which `owner.journaled` is called; False if there is no room now."""
        at = self._end
        end = at + KEY.size + len(batch)
        if end > self._limit and not self._make_room(end):
            return False
        buffer = self._buffer
        buffer[at : at + KEY.size] = owner.key
        buffer[at + KEY.size : end] = batch
        self._end = end
        self._count += 1
        self._owners[owner] = None
        # After an idle time the round begins at the end of this iteration of the loop: all its appends share it.
        if self._written is None and not self._starting:
            self._starting = True
            self._at_end_of_iteration(self._start)
        return True

    def _make_room(self, end: int) -> bool:
        if end > ROUND_BYTES or self._failed:
            return False
        if self._next is None:
            if not self._free:
                self._create_soon()
                return False
            self._next = self._free.popleft()
        self._limit = min(ROUND_BYTES, self._file_bytes)
        return end <= self._limit

    def _create_soon(self) -> None:
        if self._may_create and len(self._files) < FILES:
            self._may_create = False
            self._background(self._create)

    def _create(self) -> None:
        """Creates one more file, on a worker."""
        path = self._directory / PATTERN.replace("*", str(len(self._files)))
        try:
            create(path, self._file_bytes)
            file = JournalFile(path)
        except OSError as problem:
            log.warning("%s could not be created, so partitions are synced one by one: %s", path, problem)
            return
        self._files.append(file)
        self._free.append(file)
        self._may_create = True

    # A round

    def _start(self) -> None:
        self._starting = False
        if self._written is not None or not self._count or self._failed:
            return
        file = self._file_for_round()
        length, sequence = self._end, self._sequence
        oldest = self._full[0] if self._full else file
        HEAD.pack_into(self._buffer, 0, MAGIC, 0, sequence, oldest.first_sequence, length, self._count)
        ends = {owner: owner.end_of_log() for owner in self._owners}
        for owner, end in ends.items():
            file.owed[owner] = end.end_offset
        self._written = RoundWrite(self._buffer, length, file, ends)
        if self.on_round is not None:
            self._began = monotonic()
        self._writer.begin(self._written)
        file.position += blocks(length)
        self._sequence = sequence + 1
        self._buffer = self._buffers[self._buffer is self._buffers[0]]
        self._owners = {}
        self._count, self._end = 0, HEAD.size
        self._limit = min(ROUND_BYTES, self._file_bytes - file.position)
        if 2 * file.position > self._file_bytes and not self._free:
            self._create_soon()

    def _file_for_round(self) -> JournalFile:
        if self._next is not None:
            if self._file is not None:
                self._full.append(self._file)
            self._file, self._next = self._next, None
            self._file.position, self._file.first_sequence = 0, self._sequence
            if self._awaited is None:
                self._clean()
        assert self._file is not None
        return self._file

    def _finish(self, written: RoundWrite) -> None:
        self._written = None
        if self.on_round is not None:
            self.on_round(monotonic() - self._began)
        if written.error is not None:
            self._fail(written.error, [*written.ends, *self._owners])
            return
        if self._count:
            self._start()  # before the answers, so that the disk works meanwhile
        for owner, end in written.ends.items():
            owner.journaled(end)

    def _fail(self, problem: Exception, owners: list[Owner]) -> None:
        """Fails for good: nobody knows what of the round is on disk, and writing it again would hide that."""
        self._failed = True
        self._limit = self._count = 0
        self._owners = {}
        for owner in dict.fromkeys(owners):
            owner.fail(problem)
        self._on_fatal(f"the journal in {self._directory} failed: {problem}")

    # Using a file again

    def _clean(self) -> None:
        """Has one partition synced after the other, until no log depends on the oldest full file."""
        while self._full and not self._failed:
            file = self._full[0]
            while file.owed:
                owner, end_offset = file.owed.popitem()
                if owner.synced_offset < end_offset and not owner.is_gone:
                    file.owed[owner] = end_offset
                    self._awaited = owner
                    owner.flush(end_offset)
                    return
            self._free.append(self._full.popleft())

    def file_synced(self, owner: Owner) -> None:
        """Hears of every partition whose own file was synced, or that is deleted."""
        if owner is self._awaited:
            self._awaited = None
            self._clean()

    def flush_all(self) -> None:
        """Has every partition synced that has something in the journal; `Syncer.drain` waits for it."""
        for file in self._files:
            for owner, end_offset in list(file.owed.items()):
                if owner.synced_offset < end_offset and not owner.is_gone:
                    owner.flush(end_offset)

    @property
    def is_owed_nothing(self) -> bool:
        """Whether everything in the journal is durable in the logs too."""
        return not self._failed and all(
            owner.synced_offset >= end_offset or owner.is_gone
            for file in self._files
            for owner, end_offset in file.owed.items()
        )

    # End

    def drain(self) -> None:
        """Blocks until all that was added is written; the event loop need not run."""
        while self._written is not None or (self._count and not self._failed):
            self._start()
            self._writer.wait()

    def close(self) -> None:
        """Closes the files; they are emptied first if no log depends on them, so that a start has nothing to read."""
        self.drain()
        self._writer.close()
        forget = self.is_owed_nothing
        for file in self._files:
            if forget:
                file.forget()
            file.close()
        self._files.clear()
