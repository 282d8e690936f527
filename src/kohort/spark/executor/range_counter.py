"""Counts the records of a range: by the headers of its batches, or by its offsets where a user vouches for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kohort.client.embedding import ClusterSession, PartitionLeader
from kohort.spark.executor.range_reader import RangeReader, at_its_end, read_range, session_for
from kohort.spark.options import CountFrom, SourceOptions
from kohort.spark.ranges import OffsetRange
from kohort.spark.restriction import NumberSet

SCHEMA = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("records", pa.int64())]
)


def counted_range(wanted: OffsetRange, leader: PartitionLeader, options: SourceOptions) -> Iterator[Any]:
    """One row: topic, partition and the number of records in the range."""
    partition = wanted.partition
    values = [[partition.topic], [partition.partition], [count_range(wanted, leader, options)]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(value, field.type) for value, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA
    )


def count_range(wanted: OffsetRange, leader: PartitionLeader, options: SourceOptions) -> int:
    """The number of records that `read_range` would give."""
    session = session_for(options)
    wanted = at_its_end(wanted, session, options)
    if not wanted.size:
        return 0
    offsets = NumberSet.between(wanted.start, wanted.end - 1)
    if not options.wanted.times.is_everything or offsets & options.wanted.offsets != offsets:
        return sum(batch.num_rows for batch in read_range(wanted, leader, options, ("offset",)))
    if options.count_from is CountFrom.OFFSETS:
        return _by_offsets(session, wanted, leader, options)
    return RangeReader(session, wanted, leader, options).count()


def _by_offsets(
    session: ClusterSession, wanted: OffsetRange, leader: PartitionLeader, options: SourceOptions
) -> int:
    """The number of offsets; ValueError if the first or the last batch shows that not all of them are records."""
    if wanted.open_start:
        first = session.beginning_offsets([wanted.partition])[wanted.partition]
        wanted = replace(wanted, start=min(max(wanted.start, first), wanted.end), open_start=False)
    for probe in (replace(wanted, end=wanted.start + 1), replace(wanted, start=wanted.end - 1)):
        if not wanted.size:
            break
        reader = RangeReader(session, probe, leader, options)
        reader.count()
        if reader.has_gaps:
            raise ValueError(
                f"{wanted.partition} has offsets without records near {probe.start}, from transactions or compaction: "
                "count it with count=headers"
            )
    return wanted.size
