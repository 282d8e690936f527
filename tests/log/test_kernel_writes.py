"""Writes that the kernel does on its own: each result is reported once, and not before the write is done."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.log.durability.journal_files import JournalFile, RoundWrite, RoundWriter, create
from kohort.log.durability.kernel_writes import KernelWriter
from kohort.log.durability.rounds import BLOCK
from tests.log.support import PATIENCE_S, Inbox

SIZE = 8 * BLOCK


@pytest.fixture
def writer() -> Iterator[KernelWriter]:
    made = KernelWriter()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[JournalFile]:
    create(tmp_path / "appends-0.journal", SIZE)
    made = JournalFile(
        tmp_path / "appends-0.journal", portable=False
    )  # Linux's own way is what is tested here
    assert made.is_direct, "these tests need a file system that can write past the page cache"
    yield made
    made.close()


def filled(text: bytes) -> tuple[memoryview, int]:
    buffer = memoryview(mmap.mmap(-1, SIZE))
    buffer[: len(text)] = text
    return buffer, ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def test_a_write_is_told_when_it_is_there(writer: KernelWriter, file: JournalFile) -> None:
    for number in range(3):
        text = bytes([65 + number]) * 2 * BLOCK
        _buffer, address = filled(text)
        assert writer.result() is None
        writer.submit(file.fd, address, len(text), number * BLOCK)
        assert select.select([writer.ready], [], [], PATIENCE_S)[0] == [writer.ready]
        assert writer.result() == len(text)
        assert file.path.read_bytes()[number * BLOCK :][: len(text)] == text
        assert writer.result() is None
        assert select.select([writer.ready], [], [], 0)[0] == []


def test_who_cannot_watch_waits(
    writer: KernelWriter, file: JournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[int]()
    eventfd_read = os.eventfd_read

    def watched(fd: int) -> int:
        told.append(eventfd_read(fd))
        return told[-1]

    monkeypatch.setattr(os, "eventfd_read", watched)
    _buffer, address = filled(b"x" * BLOCK)
    writer.submit(file.fd, address, BLOCK, 0)
    assert writer.result(wait=True) == BLOCK
    if not told:  # we were sooner than the kernel tells
        assert select.select([writer.ready], [], [], PATIENCE_S)[0] == [writer.ready]
    assert writer.result() is None
    assert told == [1]
    assert select.select([writer.ready], [], [], 0)[0] == [], "it is not told for ever"


def test_what_the_kernel_refuses(writer: KernelWriter, file: JournalFile) -> None:
    _buffer, address = filled(b"x" * BLOCK)
    with pytest.raises(OSError, match="Bad file descriptor") as refused:
        writer.submit(1 << 20, address, BLOCK, 0)
    assert refused.value.errno == errno.EBADF
    assert writer.result() is None, "nothing was begun"
    writer.submit(file.fd, address + 1, BLOCK, 0)  # not as the disk wants it
    assert writer.result(wait=True) == -errno.EINVAL


class Answers(KernelWriter):
    """A kernel that does what it is asked and reports another result."""

    says = 0

    def result(self, *, wait: bool = False) -> int | None:
        return None if super().result(wait=wait) is None else self.says


def _written(file: JournalFile, says: int, monkeypatch: pytest.MonkeyPatch) -> RoundWrite:
    monkeypatch.setattr("kohort.log.durability.journal_files.KernelWriter", Answers)
    monkeypatch.setattr(Answers, "says", says)
    buffer, _ = filled(b"round" * 2_000)
    inbox, done = Inbox(), list[RoundWrite]()
    writer = RoundWriter(inbox, done.append, inbox, portable=False)
    writer.begin(RoundWrite(buffer, 10_000, file, {}))
    inbox.run_until(lambda: bool(done))
    writer.close()
    (written,) = done
    return written


def test_an_error_of_the_disk_is_the_error_of_the_round(
    file: JournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = _written(file, -errno.EIO, monkeypatch).error
    assert isinstance(problem, OSError)
    assert problem.errno == errno.EIO


@pytest.mark.parametrize("says", [BLOCK, 0, -errno.EINTR, -errno.EAGAIN])
def test_what_the_kernel_left_half_written_a_thread_brings_to_its_end(
    file: JournalFile, monkeypatch: pytest.MonkeyPatch, says: int
) -> None:
    threads = list[int]()
    pwrite = os.pwrite

    def watched(fd: int, data: memoryview, position: int) -> int:
        threads.append(len(data))
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", watched)
    written = _written(file, says, monkeypatch)
    assert written.error is None
    assert threads == [3 * BLOCK]
    assert file.path.read_bytes()[: 3 * BLOCK] == bytes(written.buffer[: 3 * BLOCK])


def test_a_system_without_it_has_a_thread(file: JournalFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.log.durability.kernel_writes.platform.machine", lambda: "abacus")
    with pytest.raises(OSError, match="not known"):
        KernelWriter()
    inbox, done = Inbox(), list[RoundWrite]()
    writer = RoundWriter(inbox, done.append, inbox, portable=False)
    buffer, _ = filled(b"round" * 2_000)
    writer.begin(RoundWrite(buffer, 10_000, file, {}))
    inbox.run_until(lambda: bool(done))
    writer.close()
    assert file.path.read_bytes()[: 3 * BLOCK] == bytes(buffer[: 3 * BLOCK])
