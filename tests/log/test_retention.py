from __future__ import annotations

from dataclasses import replace

from kohort.log.maintenance.retention import NEVER, expire
from kohort.log.partition import Partition
from kohort.log.storage.files import Directory
from kohort.settings import Value
from tests.log.support import Node, append, content, headers_of, make_batch, node_on

BATCH = len(make_batch()[0])


def partition_with(node: Node, *timestamps: int, segment_size: int = BATCH, **config: Value) -> Partition:
    """One batch at each of these times; by default each in a segment of its own."""
    node.config = replace(node.config, internal_segment_bytes=segment_size, **config)  # type: ignore[arg-type]
    partition = node.open()
    for timestamp in timestamps:
        append(partition, timestamp=timestamp, now_ms=timestamp)
    return partition


def bases(partition: Partition) -> list[int]:
    return [segment.base_offset for segment in partition.segments]


def test_segments_go_when_their_largest_timestamp_is_older_than_retention_ms(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1000, 2000, 3000, retention_ms=100)
        assert expire(partition, 1100) == 1101
        assert bases(partition) == [0, 1, 2]
        assert expire(partition, 1101) == 2101
        assert bases(partition) == [1, 2]
        assert partition.log_start_offset == 1
        assert [header.base_offset for header in headers_of(content(partition))] == [1, 2]


def test_a_young_segment_protects_older_looking_ones_behind_it(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 5000, 1000, 1000, retention_ms=100)
        assert expire(partition, 3000) == 5101
        assert bases(partition) == [0, 1, 2]


def test_an_active_segment_that_expired_is_rolled_and_deleted(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1000, 2000, retention_ms=100)
        assert expire(partition, 9000) == NEVER
        assert bases(partition) == [2]
        assert (partition.log_start_offset, partition.log_end_offset) == (2, 2)
        assert append(partition, timestamp=9000) == 2
        assert expire(partition, 9000) == 9101


def test_records_without_a_timestamp_go_by_when_they_were_written(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, -1, -1, retention_ms=100)
        written_ms = expire(partition, 0) - 101
        assert bases(partition) == [0, 1]
        assert (written_ms == -1) if node.directory.path.startswith("memory") else (written_ms > 1e12)
        expire(partition, written_ms + 10_000)
        assert bases(partition) == [2]


def test_no_limit_means_for_ever(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1000, 2000, retention_ms=-1, retention_bytes=-1)
        assert expire(partition, 10**15) == NEVER
        assert bases(partition) == [0, 1]


def test_whole_segments_go_until_the_log_is_small_enough(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1, 2, 3, 4, retention_ms=-1, retention_bytes=2 * BATCH + 1)
        expire(partition, 0)
        assert bases(partition) == [1, 2, 3], "one more and it would be smaller than it may be"
        append(partition, timestamp=5)
        expire(partition, 0)
        assert bases(partition) == [2, 3, 4]


def test_retention_bytes_of_zero_empties_the_log(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1, 2, retention_ms=-1, retention_bytes=0)
        expire(partition, 0)
        assert (bases(partition), partition.log_start_offset) == ([2], 2)


def test_a_compacted_topic_is_not_deleted_by_time_or_size(directory: Directory) -> None:
    with node_on(directory) as node:
        only = partition_with(node, 1, 2, retention_ms=1, retention_bytes=0, cleanup_policy=("compact",))
        assert expire(only, 10**6) == NEVER
        assert bases(only) == [0, 1]


def test_compact_and_delete_deletes(directory: Directory) -> None:
    with node_on(directory) as node:
        both = partition_with(node, 1, 10**6, retention_ms=1, cleanup_policy=("compact", "delete"))
        expire(both, 10**6)
        assert bases(both) == [1]


def test_what_lies_before_the_log_start_goes_whatever_the_policy(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1, 2, 3, cleanup_policy=("compact",))
        partition.log_start_offset = 2
        expire(partition, 0)
        assert bases(partition) == [2]


def test_nothing_at_or_behind_the_high_watermark_goes(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1, 2, 3, retention_ms=1)
        partition.high_watermark = 2
        assert expire(partition, 10**6) == 10**6, "to be looked at again soon"
        assert bases(partition) == [2]
        assert partition.log_start_offset == 2


def test_an_empty_partition_has_nothing_to_wait_for(directory: Directory) -> None:
    with node_on(directory) as node:
        assert expire(partition_with(node), 10**6) == NEVER


def test_a_reader_keeps_what_it_was_given(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1, 2, retention_ms=1)
        slice_ = partition.read(0, 10**6, at_least_one=True)
        slice_.file.pin()
        expire(partition, 10**6)
        node.syncer.drain()
        assert headers_of(b"".join(slice_.chunks()))[0].base_offset == 0
        slice_.file.unpin()


def test_what_was_deleted_stays_deleted_after_a_restart(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1, 2, 3, retention_ms=1, retention_bytes=BATCH)
        expire(partition, 3)
        start, end = partition.log_start_offset, partition.log_end_offset
        assert start == 2
        if not node.directory.path.startswith("memory"):
            again = node.crash().open()
            assert (again.log_start_offset, again.log_end_offset) == (start, end)


def test_a_stopped_partition_is_left_alone(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = partition_with(node, 1, 2, retention_ms=1)
        partition.stop("the disk is full")
        assert expire(partition, 10**6) == NEVER
        assert bases(partition) == [0, 1]
