"""A partition that is not used any more frees its memory, and is unchanged when it is used again."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from kohort.log.storage.files import DiskDirectory
from kohort.wire.errors import KafkaError
from kohort.wire.records.batch import read_header
from tests.log.support import append, content, make_batch, node_on


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_an_unloaded_partition_is_read_and_written_as_before(tmp_path: Path, durability) -> None:
    with node_on(DiskDirectory(tmp_path), durability, internal_segment_bytes=400) as node:
        partition = node.open()
        for number in range(20):
            append(partition, 3, timestamp=1000 + 10 * number)
        node.inbox.run_until(lambda: partition.high_watermark == 60)
        node.syncer.drain()
        before, places = content(partition), [segment.base_offset for segment in partition.segments]
        assert partition.unload()
        assert (partition.log_end_offset, partition.high_watermark) == (60, 60)
        assert content(partition) == before
        assert [segment.base_offset for segment in partition.segments] == places
        assert partition.find_time(1100) == (1100, 30)
        assert partition.unload()
        assert append(partition, 1) == 60
        node.inbox.run_until(lambda: partition.high_watermark == 61)
        node.syncer.drain()
        assert content(node.crash().open())[: len(before)] == before


def test_producers_are_remembered(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path)) as node:
        partition = node.open()
        batch, header = make_batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
        partition.append(memoryview(batch), header, 0)
        assert partition.unload()
        again, header = make_batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
        duplicate = partition.producers.check(header)
        assert duplicate is not None
        assert duplicate.base_offset == 0
        gap, header = make_batch(1, producer_id=7, producer_epoch=0, base_sequence=5)
        with pytest.raises(KafkaError):
            partition.producers.check(header)
        assert read_header(again).producer_id == read_header(gap).producer_id


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path)) as node:
        partition = node.open()
        append(partition)
        piece = partition.read(0, 100, at_least_one=True)
        piece.file.pin()
        assert not partition.unload(), "somebody is being sent a piece of it"
        piece.file.unpin()
        waiter = lambda: None  # noqa: E731
        partition.add_waiter(waiter)
        assert not partition.unload(), "somebody waits for what comes next"
        partition.remove_waiter(waiter)
        assert partition.unload()
        assert not partition.unload(), "it is unloaded already"


def test_a_clean_stop_of_an_unloaded_partition(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path)) as node:
        partition = node.open()
        append(partition, 5)
        before = content(partition)
        assert partition.unload()
        left = partition.close()
        assert (left.log_end_offset, left.size) == (5, len(before))
        assert content(node.crash().open(clean=left)) == before


def test_partitions_that_were_used_cost_little_when_idle(tmp_path: Path) -> None:
    count = 300
    with node_on(DiskDirectory(tmp_path)) as node:
        partitions = [node.open(index) for index in range(count)]
        for partition in partitions:
            append(partition)
        gc.collect()
        tracemalloc.start()
        try:
            for partition in partitions:
                assert partition.unload()
                partition.read(0, 100, at_least_one=True)
            gc.collect()
            in_use = tracemalloc.get_traced_memory()[0]
            for partition in partitions:
                assert partition.unload()
            gc.collect()
            idle = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert idle / count < 600
        assert idle < in_use
