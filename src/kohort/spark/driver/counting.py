"""Counts the records of topics without reading them into Spark: `kohort.spark.count`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def count(spark: Any, options: Mapping[str, str], *, from_offsets: bool = False) -> int:
    """The number of records that a batch with these options would give, counted by the headers of record batches.

    count(spark, {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"})

    `from_offsets` counts offsets instead, and fetches next to nothing. That is exact for topics that never had
    compaction or transactions, which only you can know: their configuration, first and last batches are checked.
    """
    how = "offsets" if from_offsets else "headers"
    rows = spark.read.format("kohort").options(**options).option("count", how).load().collect()
    return sum(row.records for row in rows)
