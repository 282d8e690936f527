"""A partition as producers, consumers and admins see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.log.partition import Durability, Partition
from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.memory import MemoryDirectory
from kohort.log.storage.recovery import CleanState
from kohort.log.storage.segment import Segment
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import assign, crc_is_good, read_header
from tests.log.support import append, content, headers_of, make_batch, node_on

FRESH = CleanState()


def read(partition: Partition, offset: int, max_bytes: int = 1 << 20, **how: int) -> bytes:
    return b"".join(partition.read(offset, max_bytes, at_least_one=True, **how).chunks())


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


# Append


def test_offsets_follow_each_other_and_are_written_into_the_batch(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        partition.leader_epoch = 3
        assert [append(partition, count) for count in (1, 4, 2)] == [0, 1, 5]
        assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == (0, 7, 7)
        stored = headers_of(content(partition))
        assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in stored] == [
            (0, 0, 3),
            (1, 4, 3),
            (5, 6, 3),
        ]
        last = read(partition, 5)
        assert crc_is_good(last, 0, len(last))


def test_append_as_is_keeps_offsets_and_reads_bridge_the_gap(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        for offset in (0, 10, 50):
            batch, _ = make_batch(2)
            assign(batch, 0, offset, 1)
            partition.append_as_is(batch, read_header(batch), 0)
        assert partition.log_end_offset == 52
        for offset, found in [(0, 0), (1, 0), (2, 10), (11, 10), (12, 50), (51, 50)]:
            assert headers_of(read(partition, offset))[0].base_offset == found
        assert read(partition, 52) == b""
        assert content(node.crash().open()) == content(partition)


def test_nothing_is_created_before_the_first_append(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path)) as node:
        partition = node.open(clean=FRESH)
        assert read(partition, 0) == b""
        assert partition.size == 0
        assert partition.find_time(0) is None
        assert partition.max_timestamp() is None
        assert partition.end_of_epoch(0) == (0, 0)
        assert partition.delete_records(0) == 0
        assert partition.close() == FRESH
        assert list(tmp_path.iterdir()) == []
        append(partition)
        assert sorted(path.name for path in (tmp_path / "t-0").iterdir()) == ["00000000000000000000.log"]


# Roll


def bases(partition: Partition) -> list[int]:
    return [segment.base_offset for segment in partition.segments]


def test_a_segment_is_full_by_size(directory: Directory) -> None:
    size = len(make_batch()[0])
    with node_on(directory, internal_segment_bytes=2 * size) as node:
        partition = node.open(clean=FRESH)
        for _ in range(5):
            append(partition)
        assert bases(partition) == [0, 2, 4]


def test_a_batch_larger_than_a_segment_has_one_of_its_own(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=100) as node:
        partition = node.open(clean=FRESH)
        for _ in range(3):
            append(partition, size=500)
        assert bases(partition) == [0, 1, 2]


def test_a_segment_is_full_by_the_time_between_its_first_batch_and_the_next(directory: Directory) -> None:
    with node_on(directory, segment_ms=1000) as node:
        partition = node.open(clean=FRESH)
        for timestamp in (5000, 6000, 4000, 6001, 7001, 7002):
            append(partition, timestamp=timestamp, now_ms=10**9)
        assert bases(partition) == [0, 3, 5]


def test_without_timestamps_the_clock_decides(directory: Directory) -> None:
    with node_on(directory, segment_ms=1000) as node:
        partition = node.open(clean=FRESH)
        for now_ms in (100, 1100, 1101):
            append(partition, timestamp=-1, step_ms=0, now_ms=now_ms)
        assert bases(partition) == [0, 2]


def test_a_segment_is_full_when_its_index_is(directory: Directory) -> None:
    with node_on(directory, segment_index_bytes=24, index_interval_bytes=1) as node:
        partition = node.open(clean=FRESH)
        for n in range(6):
            append(partition, timestamp=1000 + n)
        # Room for two time entries, and the last is kept for the roll.
        assert bases(partition) == [0, 2, 4]


def test_relative_offsets_do_not_overflow(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        for offset in (5, 5 + 2**31 - 2, 5 + 2**31, 5 + 2**31 + 1):
            batch, _ = make_batch()
            assign(batch, 0, offset, 0)
            partition.append_as_is(batch, read_header(batch), 0)
        assert bases(partition) == [5, 5 + 2**31]


# Read


def test_offsets_outside_the_log_are_refused(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        append(partition, 3)
        assert read(partition, 3) == b""
        for offset in (-1, 4):
            assert refused(lambda offset=offset: read(partition, offset)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_max_bytes_and_the_first_batch(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        append(partition, size=500)
        append(partition, size=10)
        whole = content(partition)
        large = headers_of(whole)[0].size
        assert len(partition.read(0, 100, at_least_one=True)) == large
        assert len(partition.read(0, 100, at_least_one=False)) == 0, (
            "a piece of the first batch serves nobody"
        )
        assert len(partition.read(0, 0, at_least_one=False)) == 0
        assert read(partition, 0, large + 10) == whole[: large + 10]


def test_up_to_is_never_passed(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        for _ in range(4):
            append(partition, 2)
        ends = [header.last_offset + 1 for header in headers_of(read(partition, 0, up_to=4))]
        assert ends == [2, 4]
        assert [h.base_offset for h in headers_of(read(partition, 2, up_to=5))] == [2], "5 is inside a batch"
        assert read(partition, 4, up_to=4) == b""
        assert len(headers_of(read(partition, 0, up_to=99))) == 4


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=25),
    gaps=st.lists(st.integers(0, 3), min_size=25, max_size=25),
    segment_bytes=st.sampled_from([150, 400, 10**6]),
    interval=st.sampled_from([0, 200, 10**6]),
    max_bytes=st.sampled_from([0, 1, 130, 10**6]),
    reopen=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_reads_at_every_offset_equal_a_naive_model(
    counts: list[int], gaps: list[int], segment_bytes: int, interval: int, max_bytes: int, reopen: bool
) -> None:
    with node_on(
        MemoryDirectory(), internal_segment_bytes=segment_bytes, index_interval_bytes=interval
    ) as node:
        partition = node.open(clean=FRESH)
        model: list[tuple[int, int, bytes]] = []  # first and last offset, bytes
        for count, gap in zip(counts, gaps, strict=False):
            batch, _ = make_batch(count, size=count * 7)
            offset = partition.log_end_offset + gap
            assign(batch, 0, offset, 0)
            partition.append_as_is(batch, read_header(batch), 0)
            model.append((offset, offset + count - 1, bytes(batch)))
        if reopen:
            partition = node.crash().open()
        segment_ends = [*bases(partition)[1:], partition.log_end_offset]
        for offset in range(partition.log_start_offset, partition.log_end_offset + 1):
            after = [entry for entry in model if entry[1] >= offset]
            if not after:
                assert read(partition, offset, max_bytes) == b""
                continue
            segment_end = next(end for end in segment_ends if end > after[0][0])
            rest = b"".join(data for first, _, data in after if first < segment_end)
            assert read(partition, offset, max_bytes) == rest[: max(max_bytes, len(after[0][2]))]


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_log_of_many_segments_reads_the_same_live_after_a_crash_and_after_a_stop(
    directory: Directory, durability: Durability
) -> None:
    with node_on(directory, durability, internal_segment_bytes=1000, index_interval_bytes=100) as node:
        partition = node.open(clean=FRESH)
        for n in range(200):
            append(partition, 1 + n % 5, timestamp=1000 + n)
        node.syncer.drain()
        live = content(partition)
        assert len(headers_of(live)) == 200
        crashed = node.crash().open()
        assert content(crashed) == live
        clean = crashed.close()
        stopped = node.crash().open(clean=clean)
        assert content(stopped) == live
        assert stopped.size == len(live) == clean.size


def test_indexes_of_few_sealed_segments_are_in_memory(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300, index_interval_bytes=10) as node:
        partition = node.open(clean=FRESH)
        for _ in range(60):
            append(partition)
        content(partition)
        sealed = partition.segments[:-1]
        assert len(sealed) > 10
        assert sum(segment.has_loaded_indexes for segment in sealed) <= 4


def test_a_segment_that_somebody_removed_is_a_storage_error_and_is_not_made_anew(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    with node_on(directory, internal_segment_bytes=300) as node:
        partition = node.open(clean=FRESH)
        for _ in range(10):
            append(partition)
        node.syncer.drain()
        directory.pool.close()
        (tmp_path / "t-0" / "00000000000000000000.log").unlink()
        assert refused(lambda: read(partition, 1)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert refused(lambda: partition.find_time(0)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert not (tmp_path / "t-0" / "00000000000000000000.log").exists()
        assert headers_of(read(partition, 9))[0].base_offset == 9


# Time


def test_find_time_is_exact_to_the_record(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=400, index_interval_bytes=50) as node:
        partition = node.open(clean=FRESH)
        times: list[int] = []
        for start in (100, 130, 90, 200, 200, 150, 300, 10, 400):
            append(partition, 3, timestamp=start, step_ms=5)
            times += [start, start + 5, start + 10]
        for which in (partition, node.crash().open()):
            for target in range(420):
                expected = next(((time, offset) for offset, time in enumerate(times) if time >= target), None)
                assert which.find_time(target) == expected
        partition.delete_records(5)
        assert partition.find_time(0) == partition.find_time(132) == (140, 5)


def test_max_timestamp_is_the_first_record_that_has_it(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=400) as node:
        partition = node.open(clean=FRESH)
        for start in (100, 500, 90, 500, 200):
            append(partition, 3, timestamp=start, step_ms=5)
        assert partition.max_timestamp() == (510, 5)
        assert node.crash().open().max_timestamp() == (510, 5)


# Waiters


def test_waiters_hear_of_every_append_until_they_are_removed(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        heard: list[int] = []

        def waiter() -> None:
            heard.append(partition.high_watermark)

        partition.add_waiter(waiter)
        append(partition)
        append(partition, 2)
        partition.remove_waiter(waiter)
        append(partition)
        assert heard == [1, 3]


def test_a_waiter_may_remove_itself(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        heard: list[int] = []

        def once() -> None:
            partition.remove_waiter(once)
            heard.append(1)

        partition.add_waiter(once)
        partition.add_waiter(lambda: heard.append(2))
        append(partition)
        append(partition)
        assert heard == [1, 2, 2]


def test_a_deleted_partition_wakes_its_waiters_and_takes_nothing_more(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        append(partition)
        heard: list[bool] = []
        partition.add_waiter(lambda: heard.append(partition.deleted))
        partition.delete()
        assert heard == [True]
        assert refused(lambda: append(partition)) == ErrorCode.KAFKA_STORAGE_ERROR


# Delete records


def test_delete_records_moves_the_start_for_good(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        partition = node.open(clean=FRESH)
        for _ in range(10):
            append(partition, 2)
        assert bases(partition) == [0, 6, 12, 18]
        assert partition.delete_records(7) == 7
        assert bases(partition) == [6, 12, 18]
        assert headers_of(read(partition, 7))[0].base_offset == 6, "the batch is sent whole"
        assert refused(lambda: read(partition, 6)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.delete_records(3) == 7, "never back"
        again = node.crash().open()
        assert (again.log_start_offset, again.log_end_offset) == (7, 20)
        assert again.delete_records(-1) == 20
        assert read(again, 20) == b""
        assert append(again) == 20
        last = node.crash().open(clean=again.close())
        assert (last.log_start_offset, last.log_end_offset) == (20, 21)


def test_delete_records_beyond_the_high_watermark_is_refused(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        append(partition, 2)
        for offset in (3, -2):
            assert (
                refused(lambda offset=offset: partition.delete_records(offset))
                == ErrorCode.OFFSET_OUT_OF_RANGE
            )


def test_offsets_go_on_after_all_segments_were_dropped(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        append(partition, 7)
        partition.roll(0)
        partition.drop_segments(1)
        assert (partition.log_start_offset, partition.log_end_offset, partition.size) == (7, 7, 0)
        again = node.crash().open()
        assert (again.log_start_offset, again.log_end_offset) == (7, 7)
        assert append(again) == 7


def test_a_dropped_segment_is_read_on_by_who_has_it_pinned(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        append(partition, 7)
        piece = partition.read(0, 1000, at_least_one=True)
        piece.file.pin()
        partition.roll(0)
        partition.drop_segments(1)
        node.syncer.drain()
        assert headers_of(b"".join(piece.chunks()))[0].last_offset == 6
        piece.file.unpin()
        assert not [name for name in partition.directory.names() if "deleted" in name]


def test_a_replaced_segment_is_read_from_its_successor(directory: Directory) -> None:
    """Replace segments as compaction does: the first batch is gone, and the second is at its position."""
    with node_on(directory) as node:
        partition = node.open(clean=FRESH)
        for _ in range(3):
            append(partition, 2)
        partition.roll(0)
        append(partition, 2)
        node.syncer.drain()  # nobody has the old file pinned
        (old, _) = partition.segments
        assert headers_of(read(partition, 3))[0].base_offset == 2
        name = "00000000000000000000.log"
        kept = old.file.pread(0, old.size)[headers_of(read(partition, 0))[0].size :]
        assert headers_of(read(partition, 3))[0].base_offset == 2
        old.delete()
        partition.directory.replace(name, kept)
        new = Segment(partition.directory, 0, 4096, sealed=True)
        partition.replace_segments([old], new)
        assert [headers_of(read(partition, offset))[0].base_offset for offset in (3, 2, 1, 0)] == [2, 2, 2, 2]
        assert [header.base_offset for header in headers_of(content(partition))] == [2, 4, 6]
