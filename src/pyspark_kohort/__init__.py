"""Makes `format("kohort")` known: Spark imports every package named pyspark_* and registers its DefaultSource."""

from typing import TYPE_CHECKING

from kohort.spark.versions import UnsupportedPySpark, check_pyspark

if TYPE_CHECKING:
    from kohort.spark.source import KohortDataSource as DefaultSource
else:
    try:
        check_pyspark(tell=False)  # every process of Spark imports this
    except UnsupportedPySpark as unsupported:
        try:
            from pyspark.sql.datasource import DataSource
        except ImportError:
            raise unsupported from None
        words = str(unsupported)

        class DefaultSource(DataSource):
            """Stands in for the source: an import that fails would take all other Python sources down with it."""

            @classmethod
            def name(cls):
                return "kohort"

            def __init__(self, options):
                raise UnsupportedPySpark(words)
    else:
        from kohort.spark.source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
