"""Runs a pipeline once, for a trial: its sink is replaced by one that keeps the rows, so nothing real is written.

What happens to the rows depends on the sink that the pipeline names:

files (Parquet, JSON, CSV, ORC, text)   written by Spark to a temporary folder, and read back
a topic                                 written to the broker of the trial, and read back
a database, Delta, Iceberg, console …   kept before they are written; the types of columns are checked
a function (`foreachBatch`, `foreach`)  kept, and the function is not called, as it could write anywhere; with
                                        `call_functions` that of `foreachBatch` is called too
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kohort.spark.pipelines.definition import Pipeline, PipelineError
from kohort.spark.pipelines.run import Run, short_reason, stream_options, told_of
from kohort.spark.pipelines.sinks import FILES, TOPICS, TableWriter
from kohort.spark.pipelines.trial_rows import TrialRow, plain_value

TIMEOUT_S = 300.0
_LOOK_S = 1
# What says where a stream begins and how its cluster is reached: a trial reads everything from a broker of its own.
_NOT_IN_A_TRIAL = re.compile(
    r"starting.*|kafka\.(bootstrap\.servers|(enable\.)?(security|ssl|sasl|https)\..*)", re.IGNORECASE
)


@dataclass(slots=True)
class TrialOutcome:
    """What came out of a trial."""

    sink: str
    """The sink that the pipeline names."""
    note: str
    """What the trial did instead of writing to it."""
    columns: list[str] = field(default_factory=list)
    rows: list[TrialRow] = field(default_factory=list)
    is_topic: bool = False
    """The rows are in topics of the trial's broker, and are read by the caller."""


# --- what is read -------------------------------------------------------------------------------------


def without_cluster(options: Mapping[str, str]) -> dict[str, str]:
    """Returns options of a source or a sink without those that belong to the real cluster."""
    return {name: value for name, value in options.items() if not _NOT_IN_A_TRIAL.fullmatch(name)}


def topics_of(pipeline: Pipeline) -> dict[str, int]:
    """Returns the topics that a pipeline reads by name, each with the partitions that it must have at least."""
    topics = {topic: 1 for named in pipeline.streams.values() for topic in named}
    for name, value in pipeline.options.items():
        if name.lower() == "subscribe":
            topics |= {topic.strip(): 1 for topic in value.split(",") if topic.strip()}
        elif name.lower() == "assign":
            topics |= {topic: max(numbers) + 1 for topic, numbers in json.loads(value).items()}
    return topics


def trial_options(pipeline: Pipeline, run: Run) -> dict[str, dict[str, str]]:
    """Returns the options of each stream: from the first record on, from the broker of the trial."""
    return stream_options(
        replace(pipeline, options={**without_cluster(pipeline.options), "startingOffsets": "earliest"}), run
    )


# --- what is written ----------------------------------------------------------------------------------


class RecordedWriter(DataStreamWriter):
    """A DataStreamWriter that remembers what it was told, and cannot be started."""

    is_recorded = True

    def __init__(self, frame: Any) -> None:
        super().__init__(frame)
        self.frame = frame
        self.form: str | None = None
        self.mode: str | None = None
        self.given: dict[str, str] = {}
        self.partitions: tuple[Any, ...] = ()
        self.function: Any = None
        self.is_each = False

    def format(self, source: str) -> DataStreamWriter:
        self.form = source
        return self

    def outputMode(self, outputMode: str) -> DataStreamWriter:
        self.mode = outputMode
        return super().outputMode(outputMode)

    def option(self, key: str, value: Any) -> DataStreamWriter:
        if value is not None:
            self.given[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: Any) -> DataStreamWriter:
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: Any) -> DataStreamWriter:
        self.partitions = cols
        return self

    def foreachBatch(self, func: Callable[[Any, int], None]) -> DataStreamWriter:
        self.function = func
        return self

    def foreach(self, f: Any) -> DataStreamWriter:
        self.function, self.is_each = f, True
        return self

    def start(self, *arguments: Any, **keywords: Any) -> Any:
        raise PipelineError(
            "the function starts the query itself: it must return a writer that is not started, without .start()"
        )

    def toTable(self, tableName: str, *arguments: Any, **keywords: Any) -> Any:
        raise PipelineError(
            "the function starts the query itself, with .toTable(): return write_to(frame, "
            f'"delta {tableName}") or write_to(frame, "iceberg {tableName}") of kohort.spark.pipelines.sinks'
        )

    def named_sink(self) -> str:
        """Returns the sink as the pipeline names it."""
        if self.function is not None:
            if hasattr(self.function, "table"):
                return str(self.function)
            name = getattr(self.function, "__name__", type(self.function).__name__)
            return f"{'foreach' if self.is_each else 'foreachBatch'} {name}"
        target = self.given.get("path") or self.given.get("topic") or ""
        return f"{self.form or 'parquet'} {target}".strip()


@contextmanager
def recorded_writers() -> Iterator[None]:
    """Lets `frame.writeStream` return a RecordedWriter meanwhile."""
    from pyspark.sql.classic.dataframe import DataFrame

    before = DataFrame.writeStream
    DataFrame.writeStream = property(RecordedWriter)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        DataFrame.writeStream = before  # type: ignore[method-assign]


# --- running it ---------------------------------------------------------------------------------------


class Trial:
    """One run of a pipeline against the broker of a trial, with a folder for what is temporary."""

    def __init__(self, pipeline: Pipeline, run: Run, folder: Path, *, call_functions: bool = False) -> None:
        self._pipeline, self._run, self._folder = pipeline, run, folder
        self._call_functions = call_functions

    def run(self, spark: SparkSession, timeout_s: float = TIMEOUT_S) -> TrialOutcome:
        """Reads all records, and returns the rows that came out; PipelineError says where it failed."""
        writer = self._made(spark)
        kind, self._table = (writer, "")
        if isinstance(writer, TableWriter):
            kind, self._table = writer._writer, writer._table
        if not isinstance(kind, RecordedWriter):
            raise PipelineError(
                f"{self._pipeline.origin}: the function returned {type(kind).__name__}; it must return a writer that "
                "is not started: `return frame.writeStream.format(…)`"
            )
        outcome, ready, read_back = self._redirected(spark, kind)
        ready = ready.option("checkpointLocation", str(self._folder / "checkpoint"))
        with told_of(self._pipeline):
            query = ready.trigger(availableNow=True).start()
        self._wait(query, time.monotonic() + timeout_s)
        read_back()
        return outcome

    def _made(self, spark: SparkSession) -> Any:
        streams = {
            stream: spark.readStream.format("kohort").options(**given).load()
            for stream, given in trial_options(self._pipeline, self._run).items()
        }
        parameters = {**self._pipeline.parameters, **self._run.parameters}
        with recorded_writers(), told_of(self._pipeline):
            return self._pipeline.make(streams, parameters, self._run.bootstrap)

    def _redirected(
        self, spark: SparkSession, made: RecordedWriter
    ) -> tuple[TrialOutcome, DataStreamWriter, Callable[[], None]]:
        """Returns the outcome, which is filled later, the writer to start, and what to do when it has ended."""
        frame, form = made.frame, made.form or "parquet"
        writer = frame.writeStream
        if made.mode is not None:
            writer = writer.outputMode(made.mode)
        columns = list(frame.columns)
        if made.function is None and not self._table and form in FILES:
            out = str(self._folder / "out")
            outcome = TrialOutcome(made.named_sink(), "written to a temporary folder instead", columns)
            options = {name: value for name, value in made.given.items() if name.lower() != "path"}
            writer = writer.format(form).options(**options).option("path", out)
            if made.partitions:
                writer = writer.partitionBy(*made.partitions)

            def read() -> None:
                lines = {"multiLine": "true"} if form == "csv" else {}
                back = spark.read.schema(frame.schema).options(**lines, **options).format(form).load(out)
                outcome.rows = _rows(back.select(*[f"`{name}`" for name in columns]))

            return outcome, writer, read
        if made.function is None and form in TOPICS:
            options = without_cluster(made.given)
            writer = writer.format("kohort").options(**options)
            writer = writer.option("kafka.bootstrap.servers", self._run.bootstrap)
            note = "written to the broker of the trial instead"
            return TrialOutcome(made.named_sink(), note, is_topic=True), writer, lambda: None
        named = f"{form} {self._table}" if self._table else made.named_sink()
        outcome = TrialOutcome(named, "", columns)
        outcome.note, function = self._function(made)

        def keep(batch: Any, batch_id: int) -> None:
            batch.persist()
            try:
                found = _rows(batch)
                outcome.rows = found if made.mode == "complete" else outcome.rows + found
                if function is not None:
                    function(batch, batch_id)
            finally:
                batch.unpersist()

        return outcome, writer.foreachBatch(keep), lambda: None

    def _function(self, made: RecordedWriter) -> tuple[str, Callable[[Any, int], None] | None]:
        if made.function is None or hasattr(made.function, "table"):
            return "not written: these rows would be", None
        if made.is_each or not self._call_functions:
            return "the function was not called: these are the rows that it would get", None
        return "the function was called too", made.function

    def _wait(self, query: Any, deadline_s: float) -> None:
        try:
            while not query.awaitTermination(_LOOK_S):
                if time.monotonic() > deadline_s:
                    raise PipelineError(
                        f"{self._pipeline.origin}: the query was not done in time: does it wait for something?"
                    )
        except PipelineError:
            raise
        except Exception as error:
            text = str(error)
            raise PipelineError(
                f"{self._pipeline.origin}{_line_in_text(text, self._pipeline.origin)}: {short_reason(text)}"
            ) from error
        finally:
            query.stop()


def _line_in_text(text: str, origin: str) -> str:
    """Returns the line of the pipeline's file in the traceback of a Python worker, as ` line 7`."""
    found = re.findall(rf'File "{re.escape(origin)}", line (\d+)', text)
    return f" line {found[-1]}" if found else ""


def _rows(frame: Any) -> list[TrialRow]:
    kinds = frame.schema.fields
    return [
        {kind.name: _plain(value, kind.dataType) for kind, value in zip(kinds, row, strict=True)}
        for row in frame.collect()
    ]


def _plain(value: Any, kind: Any) -> Any:
    """Returns a value as JSON has it. Times with a zone are in UTC, wherever the trial runs."""
    if value is None:
        return None
    name = kind.typeName()
    if name == "timestamp":
        return value.astimezone(UTC).isoformat()
    if name == "struct":
        return {each.name: _plain(value[each.name], each.dataType) for each in kind.fields}
    if name == "array":
        return [_plain(each, kind.elementType) for each in value]
    if name == "map":
        return {str(_plain(key, kind.keyType)): _plain(each, kind.valueType) for key, each in value.items()}
    return plain_value(value)
