"""Ten thousand partitions on one node."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from kohort.log.config import TopicConfig
from kohort.log.durability.sync import MOST_AT_ONCE, WORKERS
from kohort.log.partition import Partition
from kohort.log.storage.files import DiskDirectory
from kohort.log.storage.recovery import CleanState
from tests.log.support import Node, append, content, headers_of, node_on

FRESH = CleanState()


def test_ten_thousand_idle_partitions_cost_little_memory_and_no_files(tmp_path: Path) -> None:
    node = Node(DiskDirectory(tmp_path))
    config = TopicConfig()
    count = 10_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        partitions = [
            Partition.open(
                node.directory,
                "t",
                n,
                config,
                durability="disk",
                syncer=node.syncer,
                clean=CleanState(0, n, 0),
            )
            for n in range(count)
        ]
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(partitions) == count
    assert used / count < 2048
    assert list(tmp_path.iterdir()) == []


def test_the_open_files_of_many_partitions_stay_within_the_pool(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    directory.pool.limit = 20
    with node_on(directory, "disk") as node:
        partitions = [node.open(n, clean=FRESH) for n in range(100)]
        for _ in range(3):
            for partition in partitions:
                append(partition)
            node.syncer.drain()
            # While a file is being synced it stays open, whatever the pool says.
            assert len(directory.pool) <= 20 + WORKERS * MOST_AT_ONCE
        assert all(len(headers_of(content(partition))) == 3 for partition in partitions)
        directory.pool.close()
