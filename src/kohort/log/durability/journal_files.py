"""Writes the rounds of the journal to its files: by the kernel on its own, or by a thread."""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from crc32c import crc32c

from kohort.log.durability.kernel_writes import KernelWriter
from kohort.log.durability.rounds import BLOCK, CRC, CRC_AT, CRC_FROM, blocks
from kohort.log.storage.files import sync_path
from kohort.log.storage.system_calls import sync_all, sync_data, synced_flags
from kohort.portable import PORTABLE

log = logging.getLogger(__name__)

# These are no errors of the disk: the kernel reports EINTR for a write that a signal interrupted.
_NOT_TRIED = (errno.EINTR, errno.EAGAIN)


class LogOffsetMetadata(NamedTuple):
    """An end offset and its position in the log, as Kafka's class of this name."""

    end_offset: int
    segment_base: int
    position: int


class Loop(Protocol):
    """The methods of an event loop that the journal uses."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...
    def add_reader(self, fd: int, callback: Callable[[], None], /) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...


class Owner(Protocol):
    """What the journal uses of a partition: its `DurabilityTracker`."""

    key: bytes
    synced_offset: int  # everything before it is durable in the partition's own files

    @property
    def is_gone(self) -> bool: ...
    def end_of_log(self) -> LogOffsetMetadata: ...
    def journaled(self, end: LogOffsetMetadata) -> None: ...
    def flush(self, end_offset: int) -> None: ...
    def fail(self, problem: Exception) -> None: ...


class JournalFile:
    """One file of the journal; `owed` are the partitions that must be synced before it is used again."""

    __slots__ = ("_portable", "fd", "first_sequence", "is_direct", "owed", "path", "position")

    def __init__(self, path: Path, *, portable: bool = PORTABLE) -> None:
        """Opens a file that `create` made. What it holds is forgotten, durably.

        Linux writes past the page cache where that is possible, which costs less CPU.
        """
        self.path = path
        self._portable = portable
        self.position = 0
        self.first_sequence = 0
        self.owed: dict[Owner, int] = {}
        self.fd = -1
        self.is_direct = not portable and self._open_direct()
        if not self.is_direct:
            self.fd = os.open(path, os.O_RDWR if portable else synced_flags(direct=False))
            self.forget()

    def _open_direct(self) -> bool:
        """Opens it past the page cache; False if the file system cannot do that."""
        try:
            self.fd = os.open(self.path, synced_flags(direct=True))
            self.forget()
        except OSError as problem:  # some file systems tell at the open, some at the write
            if self.fd >= 0:
                os.close(self.fd)
            if problem.errno != errno.EINVAL:
                raise
            return False
        return True

    def forget(self) -> None:
        """Empties the file: a start will find no round in it. Durable when this returns."""
        self.write(memoryview(mmap.mmap(-1, BLOCK)), 0)

    def write(self, data: memoryview, position: int) -> None:
        """Writes bytes that are on disk when this returns."""
        write_all(self.fd, data, position)
        if self._portable:
            sync_data(self.fd)

    def close(self) -> None:
        os.close(self.fd)


def create(path: Path, size: int) -> None:
    """Creates a file and writes all of its blocks, so that later writes need not allocate any."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        zeros = memoryview(bytes(min(size, 1 << 20)))
        for position in range(0, size, len(zeros)):
            write_all(fd, zeros[: size - position], position)
        sync_all(fd)
        sync_path(str(path.parent))
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def write_all(fd: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(fd, data, position)
        if written == 0:
            raise OSError(errno.EIO, "the journal takes no more bytes")
        data, position = data[written:], position + written


class RoundWrite:
    """A round on its way to its file, and the ends of the logs that are durable with it."""

    __slots__ = ("buffer", "ends", "error", "file", "length", "position")

    def __init__(
        self, buffer: memoryview, length: int, file: JournalFile, ends: dict[Owner, LogOffsetMetadata]
    ) -> None:
        self.buffer = buffer
        self.length = length
        self.file = file
        self.position = file.position
        self.ends = ends
        self.error: Exception | None = None

    def seal(self) -> None:
        """Puts the CRC into the round."""
        CRC.pack_into(self.buffer, CRC_AT, crc32c(self.buffer[CRC_FROM : self.length]))

    def write(self) -> None:
        try:
            self.seal()
            self.file.write(self.buffer[: blocks(self.length)], self.position)
        except Exception as problem:  # whatever it was, nobody may be told that the round is durable
            self.error = problem


class RoundWriter:
    """Writes one round at a time, and calls `done` on the loop's thread, where `call_soon` runs functions.

    With a `loop` the kernel writes by itself, where it can: a thread would take the interpreter's lock four times for
    each round, and a busy loop pays for every hand-over. Only `_work` runs on the thread.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        done: Callable[[RoundWrite], None],
        loop: Loop | None,
        *,
        portable: bool = PORTABLE,
    ) -> None:
        self._call_soon = call_soon
        self._done = done
        self._loop = loop
        self._in_kernel: RoundWrite | None = None
        self._kernel: KernelWriter | None = None
        self._rounds: SimpleQueue[RoundWrite | None] = SimpleQueue()
        self._written: SimpleQueue[RoundWrite] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if loop is not None and not portable:
            try:
                self._kernel = KernelWriter()
            except OSError as problem:
                log.info("a thread writes the journal: %s", problem)
            else:
                loop.add_reader(self._kernel.ready, self._collect_from_kernel)

    def begin(self, written: RoundWrite) -> None:
        if not self._begin_in_kernel(written):
            self._begin_in_thread(written)

    def wait(self) -> None:
        """Blocks for a while, or until the round is done and `done` was called; the event loop need not run."""
        if self._in_kernel is not None:
            self._collect_from_kernel(wait=True)
            return
        try:
            self._done(self._written.get(timeout=0.1))
        except Empty:
            pass  # an immediate `call_soon` has collected it

    def _begin_in_kernel(self, written: RoundWrite) -> bool:
        if self._kernel is None or not written.file.is_direct:
            return False
        written.seal()
        address = ctypes.addressof(ctypes.c_char.from_buffer(written.buffer))
        try:
            self._kernel.submit(written.file.fd, address, blocks(written.length), written.position)
        except OSError:
            return False  # nothing was begun; the thread finds out what is wrong
        self._in_kernel = written
        return True

    def _collect_from_kernel(self, *, wait: bool = False) -> None:
        assert self._kernel is not None
        result, written = self._kernel.result(wait=wait), self._in_kernel
        if result is None or written is None:
            return
        self._in_kernel = None
        if 0 <= result < blocks(written.length) or -result in _NOT_TRIED:
            self._begin_in_thread(written)  # completes it, or finds out what is wrong
            return
        if result < 0:
            written.error = OSError(-result, os.strerror(-result))
        self._done(written)

    def _begin_in_thread(self, written: RoundWrite) -> None:
        self._rounds.put(written)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="kohort-journal", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (written := self._rounds.get()) is not None:
            written.write()
            self._written.put(written)
            try:
                self._call_soon(self._collect)
            except RuntimeError:  # the loop is closed; `wait` collects
                pass

    def _collect(self) -> None:
        try:
            self._done(self._written.get_nowait())
        except Empty:
            pass  # `wait` was first

    def close(self) -> None:
        """Ends the thread and the kernel's context; nothing is being written then."""
        if self._thread is not None:
            self._rounds.put(None)
            self._thread.join()
        if self._kernel is not None and self._loop is not None:
            try:
                self._loop.remove_reader(self._kernel.ready)
            except RuntimeError:
                pass  # the loop is closed
            self._kernel.close()
