"""Where Spark looks for `format("kohort")`: it imports every package named pyspark_* and takes its DefaultSource."""

from kohort.spark.source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
