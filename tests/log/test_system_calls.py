"""Both ways of each system call do the same; what a system lacks is told in one sentence."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.log.storage import system_calls
from kohort.log.storage.files import files_that_fit

CONTENT = bytes(range(256)) * 4096  # 1 MB

Send = Callable[[int, int, int, int], int]
Read = Callable[[int, memoryview, int], int]
SENDS = pytest.mark.parametrize("send", [os.sendfile, system_calls._send_by_copying])
READS = pytest.mark.parametrize("read", [system_calls._read_by_preadv, system_calls._read_by_pread])


@pytest.fixture
def fd(tmp_path: Path) -> int:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return os.open(path, os.O_RDWR)


@SENDS
def test_a_piece_of_a_file_is_sent(send: Send, fd: int) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        position, end, received = 1000, 900_000, bytearray()
        while position < end:
            try:
                position += send(near.fileno(), fd, position, end - position)
            except BlockingIOError:
                received += far.recv(1 << 20)
        near.close()
        while more := far.recv(1 << 20):
            received += more
    assert received == CONTENT[1000:900_000]
    os.close(fd)


@SENDS
def test_behind_the_end_of_a_file_nothing_is_sent(send: Send, fd: int) -> None:
    near, far = socket.socketpair()
    with near, far:
        assert send(near.fileno(), fd, len(CONTENT), 10) == 0
    os.close(fd)


@SENDS
def test_a_reader_that_is_gone_is_an_error(send: Send, fd: int) -> None:
    near, far = socket.socketpair()
    far.close()
    with near, pytest.raises(OSError, match="Broken pipe"):
        send(near.fileno(), fd, 0, 10)
    os.close(fd)


@READS
def test_a_file_is_read_into_a_buffer(read: Read, fd: int) -> None:
    buffer = memoryview(bytearray(1000))
    assert read(fd, buffer, 5000) == 1000
    assert buffer == CONTENT[5000:6000]
    assert read(fd, buffer, len(CONTENT) - 10) == 10
    assert buffer[:10] == CONTENT[-10:]
    assert read(fd, buffer, len(CONTENT)) == 0
    os.close(fd)


@pytest.mark.parametrize("sync", [system_calls._fdatasync, system_calls._fsync])
def test_a_failed_sync_is_told(sync: Callable[[int], None], fd: int) -> None:
    sync(fd)
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync(fd)


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert system_calls.try_lock(first)
    assert not system_calls.try_lock(second)
    os.close(first)
    assert system_calls.try_lock(second)
    os.close(second)


def test_the_limit_of_open_files_goes_up_as_far_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS says that there is no limit, and refuses more than 10,240."""
    limits = [(256, resource.RLIM_INFINITY)]

    def set_limit(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert files_that_fit() == 102
    system_calls.raise_open_files_limit(65_536)
    assert limits[-1] == (10_240, resource.RLIM_INFINITY)
    system_calls.raise_open_files_limit(1000)
    assert limits[-1] == (10_240, resource.RLIM_INFINITY), "it is never lowered"
    limits.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert system_calls.open_files_limit() is None
    assert files_that_fit() == 400


def test_where_nobody_knows_a_limit_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert system_calls.open_files_limit() is None


def test_what_a_broker_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    system_calls.check_system()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.delattr(os, "pwrite")
    monkeypatch.setattr(sys, "platform", "plan9")
    with pytest.raises(system_calls.SystemNotSupported) as told:
        system_calls.check_system()
    assert "(plan9) lacks fcntl, os.pwrite; run the broker on Linux or macOS" in str(told.value)
