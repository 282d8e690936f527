"""The reader of a stream for PySpark 4.0 and 4.1, which do not say where a query stands: it remembers.

Spark calls there, from one thread and for each kind of trigger:

    restart                partitions(last, last); if the last batch was not done, also partitions(start, last)
    each trigger           latestOffset(), commit(end of the batch before), partitions(start, end)
    Once, AvailableNow     the same, one trigger only; then stop()
    AvailableNow with      latestOffset() first of all: what it returns is the end of the whole query; then as above,
    Spark's wrapper        where the value of further latestOffset() is only shown in the progress

From this follows what is durable in the checkpoint. When Spark asks for a new end, the batch that it planned last is
done. The start of a batch that it plans was the end of one that is done. What it commits is done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition

from kohort.spark.driver.stream import StreamDriver, StreamReader
from kohort.spark.offsets import Offsets, from_spark, to_spark
from kohort.wire.errors import KohortError

log = logging.getLogger("kohort.spark")

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class UnknownStart(KohortError):
    """Spark asked for the end of a query before it said where the query stands, and they do not fit together."""

    what_to_do = (
        "Start the query again; if it repeats, start it with a new checkpoint: the group has its offsets."
    )


@dataclass(slots=True)
class QueryPosition:
    """Where a query stands and what of it is durable, from what Spark has asked so far."""

    at: Offsets | None = None
    """Where the next micro-batch begins; None before Spark has asked or said anything."""
    durable: Offsets = field(default_factory=dict)
    """What is known to be durable in the checkpoint."""
    _planned: Offsets | None = None
    """The end of the batch that Spark planned last, until it is known to be done."""
    _guessed: Offsets | None = None
    """The first end, if it was counted from a start that Spark has not said."""

    def begin(self) -> Offsets | None:
        """The start of the batch whose end Spark asks for, which means that the one before is done."""
        if self._planned is not None:
            self.durable, self._planned = self._planned, None
        return self.at

    def answer(self, end: Offsets, *, guessed: bool) -> None:
        """Notes the end that Spark was told, and whether it was counted from a start that Spark has not said."""
        if guessed:
            self._guessed = end
        self.at = end

    def plan(self, start: Offsets, end: Offsets) -> None:
        """Notes a batch, or, if it is empty, where the last batch of the query's last run ended."""
        guessed, self._guessed = self._guessed, None
        if start == end and guessed is not None:
            back = {p: at for p, at in end.items() if guessed.get(p, at) < at}
            if back:
                raise UnknownStart(
                    f"Spark asked how far to read before it said where the query stands, and the answer was before "
                    f"that for {', '.join(map(str, sorted(back)))}: before PySpark 4.2, availableNow on a checkpoint "
                    f"does not go together with maxOffsetsPerTrigger and {WRAPPER}=true. Leave out one of the two"
                )
        if start != end:
            self.durable = start
        self.at = self._planned = end

    def commit(self, end: Offsets) -> None:
        """Notes that a batch up to here is done."""
        self.durable = end


class RememberingStreamReader(StreamReader):
    """Applies the limits of the options itself: Spark neither passes them on nor tells how far it is."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._position = QueryPosition()
        self._has_asked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_position": QueryPosition(), "_has_asked": False}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the signature before 4.2
        with self._driving() as driver:
            start = self._position.begin()
            if start is None:
                end = self._guess(driver)
            else:
                end = driver.next(start, limited=True, durable=self._position.durable)
            # Without a limit an end before the start means that records are gone, which `tasks` looks after.
            is_limited = self.options.max_offsets_per_trigger is not None
            self._position.answer(end, guessed=start is None and is_limited)
            if not self._has_asked:
                self._has_asked = True
                self._warn_of_a_cut(driver, end)
            return to_spark(end)

    def _guess(self, driver: StreamDriver) -> Offsets:
        """The end of the first batch of a new query, or of an AvailableNow query that has a checkpoint.

        In the second case the start does not matter, nor that the options may have none for the topics of today: Spark
        asks for it only if the query is new, and then the error is told.
        """
        try:
            start = driver.resolve_start()
        except ValueError:
            return driver.next({}, limited=False, durable={})
        return driver.next(start, limited=True, durable={})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._position.plan(from_spark(start), from_spark(end))
        return super().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Notes that a batch is durable; the next `latestOffset` commits it for the group."""
        self._position.commit(from_spark(end))

    def _warn_of_a_cut(self, driver: StreamDriver, end: Offsets) -> None:
        left = sum(max(0, at - end.get(partition, 0)) for partition, at in driver.ends.items())
        if left and self.options.max_offsets_per_trigger is not None:
            log.warning(
                "the first micro-batch ends %d offsets before the end of the topics, because of maxOffsetsPerTrigger. "
                "Before PySpark 4.2, a query with availableNow or once has no other: if this is one, run it again "
                "for the rest, or leave the option out",
                left,
            )
