"""What travels to executors: a task's input, and the reader that turns it into rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from kohort.spark.executor.worker_process import keep_what_is_loaded
from kohort.spark.options import SourceOptions
from kohort.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from kohort.client.embedding import PartitionLeader


class RangePartition(InputPartition):
    """One task: a range of offsets, and the node that leads its partition."""

    def __init__(self, wanted: OffsetRange, leader: PartitionLeader) -> None:
        super().__init__((wanted, leader))
        self.wanted, self.leader = wanted, leader


class RangesReader:
    """What executors do, for batches and streams alike. Nothing in it is open, so that it can be pickled."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options, self.columns = options, columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of a task as Arrow batches."""
        from kohort.spark.executor.range_reader import read_range

        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in for "there is nothing to read"
        keep_what_is_loaded()
        if self.options.count_from is not None:
            from kohort.spark.executor.range_counter import counted_range

            return counted_range(partition.wanted, partition.leader, self.options)
        return read_range(partition.wanted, partition.leader, self.options, self.columns)
