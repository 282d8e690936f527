"""Mapped parts of files: the bytes of the file, within limits, for as long as somebody has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.log import windows
from kohort.log.files import DiskDirectory, DiskFile
from kohort.log.windows import MB, MOST_BYTES, MOST_DESCRIPTORS, MOST_WINDOWS, WINDOW_BYTES

SIZE = 3 * WINDOW_BYTES + 12_345
CONTENT = os.urandom(64 * 1024) * (SIZE // (64 * 1024) + 1)


def file_of(directory: DiskDirectory, size: int, name: str = "a.log") -> DiskFile:
    file = directory.open(name)
    file.append(memoryview(CONTENT)[:size])
    return file


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    directory = DiskDirectory(tmp_path_factory.mktemp("log"))
    yield file_of(directory, SIZE)
    directory.pool.close()


@given(
    st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 2 * WINDOW_BYTES)), min_size=1, max_size=5)
)
def test_a_view_is_that_part_of_the_file(large, parts):
    for position, length in parts:
        length = min(length, SIZE - position)
        view = large.mapped(position, length)
        assert view is None or bytes(view) == CONTENT[position : position + length]
        if SIZE - position >= MB:
            assert view is not None


def test_a_view_of_what_was_appended_after_its_window_was_made(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    file = file_of(directory, MB)
    before = file.mapped(0, MB)
    file.append(b"x" * MB)
    after = file.mapped(MB // 2, MB)
    assert after is not None
    assert bytes(after) == CONTENT[MB // 2 : MB] + b"x" * (MB // 2)
    assert before is not None
    assert bytes(before) == CONTENT[:MB]
    assert len(directory.pool.windows) == 1


def test_the_end_of_a_file_is_sent_in_other_ways(tmp_path: Path) -> None:
    file = file_of(DiskDirectory(tmp_path), 2 * MB)
    assert file.mapped(2 * MB - 100_000, 100_000) is None
    assert file.mapped(MB // 2, 2 * MB) is None, "more than there is"


def test_what_is_mapped_has_limits(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    files = [file_of(directory, 8 * MB, f"{n}.log") for n in range(MOST_WINDOWS + 4)]
    before = open_descriptors()
    for file in files:
        assert file.mapped(0, MB) is not None
    pool = directory.pool
    assert len(pool.windows) <= MOST_WINDOWS
    assert len(pool.windows) * (WINDOW_BYTES + MB) <= MOST_BYTES
    assert open_descriptors() - before == len(pool.windows)
    assert files[0].mapped(0, windows.LARGEST_VIEW + 1) is None
    pool.close()
    assert len(pool.windows) == 0


def test_views_that_nobody_takes_do_not_take_all_descriptors(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    files = [file_of(directory, MB, f"{n}.log") for n in range(MOST_DESCRIPTORS + 4)]
    before = open_descriptors()
    held = [file.mapped(0, MB) for file in files]
    assert sum(view is not None for view in held) == open_descriptors() - before == MOST_DESCRIPTORS
    held.clear()
    assert open_descriptors() - before == len(directory.pool.windows)
    assert files[-1].mapped(0, MB) is not None


def test_what_was_used_lately_stays(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    busy = file_of(directory, 2 * MB, "busy")
    first = busy.mapped(0, MB)
    for n in range(3 * MOST_WINDOWS):
        file_of(directory, 2 * MB, f"{n}").mapped(0, MB)
        again = busy.mapped(0, MB)
        assert first is not None
        assert again is not None
        assert again.obj is first.obj, "the same mapping"


def test_a_view_outlives_its_file(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    file = file_of(directory, 2 * MB)
    view = file.mapped(10, MB)
    assert view is not None
    file.delete()
    assert len(directory.pool.windows) == 0
    assert bytes(view) == CONTENT[10 : MB + 10]


def test_when_nobody_reads_all_is_given_back(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    file = file_of(directory, MB)
    before = open_descriptors()
    file.mapped(0, MB)
    directory.pool.windows.rest()
    assert len(directory.pool.windows) == 1, "it was used since the last rest"
    directory.pool.windows.rest()
    assert len(directory.pool.windows) == 0
    assert open_descriptors() == before
    assert file.mapped(0, MB) is not None


def test_a_file_that_somebody_cut_is_not_mapped_beyond_its_end(tmp_path: Path) -> None:
    file = file_of(DiskDirectory(tmp_path), MB)
    os.truncate(file.path, 1000)
    assert file.mapped(0, MB) is None
