"""Walking and finding batches in one segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.segment import Segment, walk
from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.batch import HEADER_SIZE, assign, read_header
from tests.log.support import append, make_batch, node_on


def filled(directory: Directory, sizes: list[int], *, base: int = 0) -> tuple[Segment, list[int]]:
    """A segment of batches with two records each; and where each begins."""
    segment = Segment(directory, base, 100, sealed=False)
    positions = []
    for n, size in enumerate(sizes):
        batch, header = make_batch(2, size=size, timestamp=1000 + n)
        offset = base + 2 * n
        assign(batch, 0, offset, 0)
        positions.append(segment.size)
        segment.append(batch, offset, offset + 1, header.max_timestamp)
    return segment, positions


@pytest.mark.parametrize("check", [True, False])
def test_a_walk_visits_every_batch_whatever_its_size(directory: Directory, check: bool) -> None:
    """Smaller and larger than the pieces that are read at a time, and across their borders."""
    sizes = [1, 3_000, 5_000, 10, 2_000_000, 20, 900_000, 1, 700_000, 30]
    segment, positions = filled(directory, sizes)
    found = list(walk(segment.file, 0, segment.size, check=check))
    assert [position for position, _ in found] == positions
    assert [header.base_offset for _, header in found] == list(range(0, 20, 2))
    later = walk(segment.file, positions[3], positions[6], check=check)
    assert [position for position, _ in later] == positions[3:6]


def test_a_walk_says_where_and_why_it_cannot_go_on(directory: Directory) -> None:
    segment, positions = filled(directory, [10, 10, 10])
    data = bytearray(segment.file.pread(0, segment.size))
    data[positions[1] + 40] ^= 1
    directory.replace(segment.file.path.rsplit("/", 1)[-1], bytes(data))
    file = directory.open(segment.file.path.rsplit("/", 1)[-1], private=True)
    assert len(list(walk(file, 0, file.size, check=False))) == 3, "headers alone do not show it"
    seen = []
    with pytest.raises(BadBatch, match=f"at byte {positions[1]}.*CRC.*offset 2") as bad:
        seen.extend(position for position, _ in walk(file, 0, file.size, check=True))
    assert bad.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(BadBatch, match="cut off"):
        list(walk(file, 0, file.size - 1, check=False))
    file.close()


@pytest.mark.parametrize("sealed", [True, False])
def test_locate_finds_the_batch_of_every_offset(directory: Directory, sealed: bool) -> None:
    segment, positions = filled(directory, [n % 90 for n in range(200)], base=1000)
    if sealed:
        segment.seal()
        segment.drop_indexes()
    ends = [*positions[1:], segment.size]
    for n, (start, end) in enumerate(zip(positions, ends, strict=True)):
        for offset in (1000 + 2 * n, 1001 + 2 * n):
            assert segment.locate(offset) == (start, end - start)
    assert sealed is False or segment.locate(1400) is None


def test_a_damaged_batch_is_reported_to_who_reads_it(directory: Directory) -> None:
    segment, positions = filled(directory, [10] * 5)
    segment.seal()
    segment.drop_indexes()
    name = segment.file.path.rsplit("/", 1)[-1]
    data = bytearray(segment.file.pread(0, segment.size))
    data[positions[2] + 16] = 99  # the magic
    directory.replace(name, bytes(data))
    again = Segment(directory, 0, 100, sealed=True)
    assert again.locate(3) == (positions[1], positions[2] - positions[1])
    with pytest.raises(BadBatch, match=name):
        again.locate(5)


def test_a_batch_with_an_index_entry_of_its_own_is_found_by_one_look(tmp_path: Path) -> None:
    """Large and small batches in turn: every offset is found in the batch that holds it."""
    with node_on(DiskDirectory(tmp_path)) as node:
        partition = node.open()
        ends = []
        for number in range(120):
            append(partition, 1 + number % 3, size=9000 if number % 4 else 50)
            ends.append(partition.log_end_offset)
        segment = partition.segments[0]
        segment.forget_recent()
        places = {}
        for offset in range(partition.log_end_offset):
            found = segment.locate(offset)
            assert found is not None
            header = read_header(segment.file.pread(found[0], HEADER_SIZE))
            assert header.base_offset <= offset <= header.last_offset
            assert found[1] == header.size
            places[found[0]] = header.last_offset + 1
        assert sorted(places.values()) == ends
