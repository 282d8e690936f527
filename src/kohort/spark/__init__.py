"""Spark reads and writes topics as a real consumer group: `format("kohort")`.

    spark = kohort.spark.session("orders")
    spark.readStream.format("kohort").option("kafka.bootstrap.servers", "127.0.0.1:9092") \\
        .option("subscribe", "orders").option("kafka.group.id", "orders-etl").load()

`session()` makes a session in which all that this needs is right, `builder()` a builder for one. Spark finds the format
by itself when Kohort is installed (`pyspark_kohort`). The options are in `source`. `lag(query)` says how far a running
query is behind, and `count(spark, options)` how many records there are to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.spark.advice import SparkSetupWarning as SparkSetupWarning
    from kohort.spark.driver.counting import count as count
    from kohort.spark.driver.query_lag import lag as lag
    from kohort.spark.sessions import SessionError as SessionError
    from kohort.spark.sessions import builder as builder
    from kohort.spark.sessions import session as session
    from kohort.spark.source import KohortDataSource as KohortDataSource

_HOME = {
    "KohortDataSource": "kohort.spark.source",
    "SessionError": "kohort.spark.sessions",
    "SparkSetupWarning": "kohort.spark.advice",
    "builder": "kohort.spark.sessions",
    "count": "kohort.spark.driver.counting",
    "lag": "kohort.spark.driver.query_lag",
    "session": "kohort.spark.sessions",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kohort.spark' has no attribute {name!r}")
    from importlib import import_module

    from kohort.spark.versions import check_pyspark

    check_pyspark()
    return getattr(import_module(_HOME[name]), name)


def _watch() -> None:
    """Watches over a process that makes sessions; processes that Spark has started must not pay for it."""
    import os

    if "SPARK_PYTHON_RUNTIME" not in os.environ:
        from kohort.spark.advice import watch

        watch()


_watch()
