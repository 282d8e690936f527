"""The sparse indexes: Kafka's bytes, and the same entries live, rebuilt and reloaded."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.log.storage.files import Directory
from kohort.log.storage.index import DamagedIndex, OffsetIndex, TimeIndex
from kohort.log.storage.segment import Segment
from tests.log.support import append, make_batch, node_on


def test_offset_entries_are_two_big_endian_int32() -> None:
    index = OffsetIndex()
    index.append(7, 4_200)
    index.append(2**31 - 1, 2**31 - 2)
    assert index.encode() == struct.pack(">iiii", 7, 4_200, 2**31 - 1, 2**31 - 2)
    assert index.encode(1) == index.encode()[8:]


def test_time_entries_are_an_int64_and_an_int32() -> None:
    index = TimeIndex()
    index.maybe_append(1_700_000_000_123, 7)
    index.maybe_append(1_700_000_000_124, 9)
    assert index.encode() == struct.pack(">qiqi", 1_700_000_000_123, 7, 1_700_000_000_124, 9)
    assert index.encode(1) == index.encode()[12:]


def test_only_a_larger_timestamp_is_a_time_entry() -> None:
    index = TimeIndex()
    for timestamp, offset in [(-1, 0), (5, 1), (5, 2), (4, 3), (6, 4)]:
        index.maybe_append(timestamp, offset)
    assert list(zip(index.timestamps, index.offsets, strict=True)) == [(5, 1), (6, 4)]


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=30), st.integers(0, 30_000))
def test_floor_finds_the_last_entry_at_or_before(gaps: list[tuple[int, int]], offset: int) -> None:
    index, entries, last = OffsetIndex(), [(0, 0)], (0, 0)
    for gap in gaps:
        last = (last[0] + gap[0], last[1] + gap[1])
        index.append(*last)
        entries.append(last)
    assert index.floor(offset) == max(entry for entry in entries if entry[0] <= offset)[1]
    again = OffsetIndex.decode(index.encode(), last[1] + 1)
    assert (again.offsets, again.positions) == (index.offsets, index.positions)


@pytest.mark.parametrize(
    "entries",
    [
        b"1234567",
        struct.pack(">iiii", 5, 100, 5, 200),
        struct.pack(">iiii", 5, 200, 6, 100),
        struct.pack(">ii", 5, 1000),
    ],
    ids=["odd size", "same offset", "position goes back", "behind the log"],
)
def test_a_damaged_offset_index_is_noticed(entries: bytes) -> None:
    with pytest.raises(DamagedIndex):
        OffsetIndex.decode(entries, 1000)


@pytest.mark.parametrize(
    "entries", [b"12345678901", struct.pack(">qiqi", 5, 1, 5, 2), struct.pack(">qiqi", 5, 2, 6, 1)]
)
def test_a_damaged_time_index_is_noticed(entries: bytes) -> None:
    with pytest.raises(DamagedIndex):
        TimeIndex.decode(entries)


def test_entries_are_where_kafka_puts_them(directory: Directory) -> None:
    """More than index.interval.bytes since the last entry: one for this batch, with its last offset."""
    with node_on(directory, index_interval_bytes=150) as node:
        partition = node.open()
        sizes = []
        for n in range(6):
            append(partition, 2, timestamp=1000 + 10 * n, size=20)
            sizes.append(partition.size // (n + 1))
        (size,) = set(sizes)
        assert size <= 150 < 2 * size
        index = partition.segments[0].offset_index
        assert list(zip(index.offsets, index.positions, strict=True)) == [(5, 2 * size), (9, 4 * size)]
        times = partition.segments[0].time_index
        assert list(zip(times.timestamps, times.offsets, strict=True)) == [(1021, 5), (1041, 9)]
        partition.roll(0)
        assert list(times.timestamps) == [1021, 1041, 1051]


def test_exactly_the_interval_is_not_yet_enough(directory: Directory) -> None:
    size = len(make_batch()[0])
    with node_on(directory, index_interval_bytes=size) as node:
        partition = node.open()
        for _ in range(5):
            append(partition)
        assert list(partition.segments[0].offset_index.offsets) == [2, 4]


def indexes_of(segment: Segment) -> tuple[bytes, bytes]:
    return segment.offset_index.encode(), segment.time_index.encode()


def test_a_rebuilt_index_equals_the_written_one(directory: Directory) -> None:
    with node_on(directory, index_interval_bytes=200, internal_segment_bytes=4000) as node:
        partition = node.open()
        for n in range(150):
            append(partition, 1 + n % 3, timestamp=1000 + (n * 7) % 50, size=n % 40)
        assert len(partition.segments) > 3
        node.syncer.drain()  # nobody else has anything to do with the files
        for segment in partition.segments[:-1]:
            written = indexes_of(segment)
            assert len(written[0]) > 8 * 5
            assert directory.child("t-0").read(f"{segment.base_offset:020d}.index") == written[0]
            segment.drop_indexes()
            assert indexes_of(segment) == written
            segment.drop_indexes()
            directory.child("t-0").delete(f"{segment.base_offset:020d}.index")
            assert indexes_of(segment) == written
            segment.drop_indexes()
            directory.child("t-0").replace(f"{segment.base_offset:020d}.timeindex", b"garbage")
            assert indexes_of(segment) == written
            assert directory.child("t-0").read(f"{segment.base_offset:020d}.timeindex") == written[1]


@pytest.mark.parametrize("torn", [False, True])
def test_an_index_that_is_ahead_of_an_older_state_is_cut_to_it(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    monkeypatch.setattr("kohort.log.durability.tracker.STATE_EVERY_BATCHES", 10)
    with node_on(directory, index_interval_bytes=100) as node:
        partition = node.open()
        for n in range(35):
            append(partition, timestamp=1000 + n)
            node.syncer.drain()
        before = indexes_of(partition.segments[0])
        older, newest = sorted(name for name in directory.child("t-0").names() if name.endswith(".state"))
        assert older < newest
        directory.child("t-0").replace(newest, b"damaged")
        if torn:
            partition.segments[0].file.truncate(partition.size * 25 // 35)
        again = node.crash().open()
        assert again.log_end_offset == (25 if torn else 35)
        found = indexes_of(again.segments[0])
        assert torn or found == before
        again.segments[0].rebuild_indexes()
        assert indexes_of(again.segments[0]) == found


def test_the_index_after_a_crash_equals_the_one_before(directory: Directory) -> None:
    with node_on(directory, index_interval_bytes=200) as node:
        partition = node.open()
        for n in range(100):
            append(partition, 2, timestamp=1000 + n)
        before = indexes_of(partition.segments[0])
        again = node.crash().open()
        assert indexes_of(again.segments[0]) == before
