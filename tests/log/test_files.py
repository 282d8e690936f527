"""Files on disk and in memory behave the same, and few are open at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.log.storage.files import Directory, DiskDirectory, FilePool
from kohort.log.storage.memory import MemoryDirectory


def test_an_absent_file_is_empty_and_is_created_by_its_first_append(directory: Directory) -> None:
    file = directory.open("a")
    assert file.size == 0
    assert directory.names() == []
    file.append(b"")
    assert directory.names() == ["a"]


def test_what_was_appended_is_read_back(directory: Directory) -> None:
    file = directory.open("a")
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    assert file.size == 11
    assert file.pread(3, 5) == b"lo wo"
    assert directory.open("a").pread(0, 100) == b"hello world"


def test_a_slice_gives_its_bytes_even_if_the_file_has_grown(directory: Directory) -> None:
    file = directory.open("a")
    file.append(b"abc")
    part = file.slice(1, 2)
    file.append(b"def")
    assert len(part) == 2
    assert b"".join(part.chunks()) == b"bc"


def test_truncate_cuts_and_the_next_append_follows(directory: Directory) -> None:
    file = directory.open("a")
    file.append(b"abc")
    file.append(b"def")
    file.truncate(4)
    file.append(b"X")
    assert file.pread(0, 100) == b"abcdX"


def test_a_small_file_is_replaced_whole(directory: Directory) -> None:
    assert directory.read("a") is None
    directory.replace("a", b"one")
    directory.replace("a", b"2")
    assert directory.read("a") == b"2"
    assert directory.names() == ["a"]


def test_rename_takes_the_place_of_the_target(directory: Directory) -> None:
    directory.replace("a", b"A")
    directory.replace("b", b"B")
    directory.rename("a", "b")
    assert directory.names() == ["b"]
    assert directory.read("b") == b"A"
    with pytest.raises(FileNotFoundError):
        directory.rename("a", "b")


def test_a_deleted_file_is_read_on_by_who_has_it_pinned(directory: Directory) -> None:
    file = directory.open("a")
    file.append(b"old")
    file.pin()
    file.delete()
    directory.replace("a", b"new")
    assert file.pread(0, 3) == b"old"
    file.unpin()
    assert directory.read("a") == b"new"


def test_a_deleted_file_on_disk_is_not_opened_again_under_its_old_name(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    file = directory.open("a")
    file.append(b"old")
    file.delete()
    directory.replace("a", b"new")
    with pytest.raises(FileNotFoundError):
        file.pread(0, 3)


def test_removing_a_directory_takes_all_of_it(directory: Directory) -> None:
    child = directory.child("c")
    child.make()
    child.replace("a", b"x")
    assert child.exists()
    child.remove()
    assert not child.exists()
    assert child.names() == []


def open_descriptors(directory: Path) -> int:
    """Count the open files of a directory; threads of earlier tests may open and close others."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{fd}").startswith(f"{directory}/")
        except FileNotFoundError:
            continue  # it was closed meanwhile, as that of the listing itself
    return count


def test_the_pool_keeps_few_files_open(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FilePool(limit=10))
    before = open_descriptors(tmp_path)
    files = [directory.open(f"{n}") for n in range(100)]
    for turn in range(2):
        for n, file in enumerate(files):
            file.append(b"%d%d" % (turn, n))
    assert open_descriptors(tmp_path) - before <= 10
    assert len(directory.pool) <= 10
    assert all(file.pread(0, 100) == b"0%d1%d" % (n, n) for n, file in enumerate(files))
    directory.pool.close()
    assert open_descriptors(tmp_path) <= before


def test_files_closed_by_others_leave_room_in_the_pool(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FilePool(limit=4))
    before = open_descriptors(tmp_path)
    files = [directory.open(f"{n}") for n in range(8)]
    for _ in range(5):
        for file in files:
            file.append(b"x")
            file.close()
        for file in files:
            file.append(b"y")
        assert open_descriptors(tmp_path) - before <= 4
    directory.pool.close()


def test_a_pinned_file_keeps_its_descriptor(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FilePool(limit=2))
    pinned = directory.open("pinned")
    pinned.append(b"x")
    pinned.pin()
    descriptor = pinned.fd
    for n in range(20):
        directory.open(f"{n}").append(b"y")
    assert pinned.fd == descriptor
    assert os.pread(pinned.fd or -1, 1, 0) == b"x"
    pinned.unpin()


def test_pinned_files_beyond_the_limit_count_again_once_they_are_unpinned(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FilePool(limit=2))
    before = open_descriptors(tmp_path)
    files = [directory.open(f"{n}") for n in range(6)]
    for file in files:
        file.append(b"x")
        file.pin()
    assert open_descriptors(tmp_path) - before == 6, "all are in use"
    for file in files:
        file.unpin()
    directory.pool.close()
    assert open_descriptors(tmp_path) == before


def test_the_descriptor_of_a_deleted_file_goes_with_its_last_pin(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    before = open_descriptors(tmp_path)
    file = directory.open("a")
    file.append(b"x")
    file.pin()
    file.pin()
    file.delete()
    file.unpin()
    assert open_descriptors(tmp_path) == before + 1
    file.unpin()
    assert open_descriptors(tmp_path) == before


def test_what_is_used_stays_open_before_what_is_not(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FilePool(limit=3))
    busy = directory.open("busy")
    for n in range(20):
        busy.append(b"x")
        directory.open(f"{n}").append(b"y")
        assert busy.is_open


@given(
    st.lists(st.binary(max_size=8) | st.integers(0, 40), max_size=20),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_a_file_in_memory_is_like_one_string(steps: list[bytes | int], position: int, length: int) -> None:
    file = MemoryDirectory().open("a")
    model = b""
    for step in steps:
        if isinstance(step, int):
            size = min(step, len(model))
            file.truncate(size)
            model = model[:size]
        else:
            file.append(step)
            model += step
    assert file.size == len(model)
    assert file.pread(position, length) == model[position : position + length]
    buffer = bytearray(length)
    assert file.read_into(memoryview(buffer), position) == len(model[position : position + length])
