"""The reader of a stream for PySpark 4.2 and later, which say where a query stands and how much to read."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kohort.spark.driver.stream import StreamReader
from kohort.spark.offsets import from_spark, to_spark


class KohortStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """Adds what Spark asks since it has admission control. What it gives as `start` is durable in the checkpoint."""

    def prepareForTriggerAvailableNow(self) -> None:
        with self._driving() as driver:
            driver.freeze()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tells Spark that there is a limit, which the options hold. Trigger.Once asks without one."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with self._driving() as driver:
            return to_spark(driver.next(from_spark(start), limited=not isinstance(limit, ReadAllAvailable)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        with self._driving() as driver:
            return to_spark(driver.ends) if driver.ends else None
