"""Spark reads and writes topics as a real consumer group: `format("kohort")`.

    spark.readStream.format("kohort").option("kafka.bootstrap.servers", "127.0.0.1:9092") \\
        .option("subscribe", "orders").option("kafka.group.id", "orders-etl").load()

Spark finds the format by itself when Kohort is installed (`pyspark_kohort`). The options are in `source`.
`lag(query)` says how far a running query is behind, and `count(spark, options)` how many records there are to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.spark.driver.counting import count as count
    from kohort.spark.driver.query_lag import lag as lag
    from kohort.spark.source import KohortDataSource as KohortDataSource

_HOME = {
    "KohortDataSource": "kohort.spark.source",
    "count": "kohort.spark.driver.counting",
    "lag": "kohort.spark.driver.query_lag",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kohort.spark' has no attribute {name!r}")
    from importlib import import_module

    from kohort.spark.versions import check_pyspark

    check_pyspark()
    return getattr(import_module(_HOME[name]), name)
