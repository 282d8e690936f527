"""Knows the sinks by their names: what each needs, what it promises, and how rows are written to it.

A SQL pipeline names its sink in a comment (`-- sink: postgresql orders`). A Python pipeline calls `write_to`:

    from kohort.spark.pipelines.sinks import write_to

    def pipeline(stream):
        return write_to(stream.select(…), "postgresql orders", {"key": "id"}, mode="update")

Nothing of Spark is loaded until a writer is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kohort.settings import nearest
from kohort.spark.pipelines.definition import PipelineError, Sink

OUTPUT_MODES = ("append", "update", "complete")
AT_LEAST_ONCE, EXACTLY_ONCE = "at least once", "exactly once"
NOTHING_KEPT = "nothing is kept"


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A sink that pipelines know by its name."""

    name: str
    target: str
    """What its target is, as in `a folder`; empty if it takes none."""
    promise: str
    """How often a row is there when batches were repeated."""
    example: str = ""
    modes: tuple[str, ...] = ("append",)


_FILES = tuple(
    SinkKind(name, "a folder", EXACTLY_ONCE, "./folder") for name in ("parquet", "json", "csv", "orc", "text")
)
KINDS = {
    kind.name: kind
    for kind in (
        *_FILES,
        SinkKind("delta", "a folder or a table", EXACTLY_ONCE, "./folder", ("append", "complete")),
        SinkKind("iceberg", "a table", EXACTLY_ONCE, "catalog.db.table", ("append", "complete")),
        SinkKind("postgresql", "a table", EXACTLY_ONCE, "orders", OUTPUT_MODES),
        SinkKind("kohort", "a topic", AT_LEAST_ONCE, "TOPIC", ("append", "complete")),
        SinkKind("kafka", "a topic", AT_LEAST_ONCE, "TOPIC", OUTPUT_MODES),
        SinkKind("jdbc", "a table", AT_LEAST_ONCE, "orders", OUTPUT_MODES),
        SinkKind("console", "", NOTHING_KEPT, modes=OUTPUT_MODES),
        SinkKind("noop", "", NOTHING_KEPT, modes=OUTPUT_MODES),
    )
}
FILES = tuple(kind.name for kind in _FILES)
TOPICS = ("kohort", "kafka")
TABLES = ("delta", "iceberg")
_WITHOUT_TARGET_TOO = ("jdbc",)  # its option dbtable says the same

# The newest that is on Maven Central for each version of Spark.
_DELTA = {"4.0": "4.4.0", "4.1": "4.4.0", "4.2": "4.4.0"}
_ICEBERG = {"4.0": ("4.0", "1.11.0"), "4.1": ("4.1", "1.12.0"), "4.2": ("4.1", "1.12.0")}
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


# --- what is said of a sink ---------------------------------------------------------------------------


def read_sink(text: str) -> Sink:
    """Reads a sink as people write it: `parquet ./folder`, or `parquet:./folder` as one word of a command."""
    found = re.fullmatch(r"\s*(\w[\w.-]*)(?:[:\s]\s*(.*?))?\s*", text, re.DOTALL)
    if found is None:
        raise PipelineError(f"{text!r} is no sink: write it as `parquet ./folder`")
    return Sink(found[1], found[2] or "")


def check_sink(sink: Sink) -> None:
    """Refuses a target that is missing or has no meaning, and a mode that the sink cannot do."""
    if sink.mode not in OUTPUT_MODES:
        raise PipelineError(f"mode is {', '.join(OUTPUT_MODES)}, not {sink.mode}")
    kind = KINDS.get(sink.form)
    if kind is None or not kind.target:
        if sink.target:
            close = nearest(sink.form, KINDS) if kind is None else ""
            raise PipelineError(
                f"-- sink: {sink.form} takes no target{close}; options are written as `-- sink option NAME: VALUE`"
            )
    elif not sink.target and sink.form not in _WITHOUT_TARGET_TOO:
        raise PipelineError(
            f"-- sink: {sink.form} needs {kind.target}: `-- sink: {sink.form} {kind.example}`"
        )
    if kind is not None and sink.mode not in kind.modes:
        raise PipelineError(
            f"-- sink: {sink.form} cannot do the mode {sink.mode}; it does {', '.join(kind.modes)}"
        )


def settings_of_spark(sink: Sink | None) -> dict[str, str]:
    """Returns the settings of Spark that a sink needs in its session, besides its jars."""
    return dict(_DELTA_SETTINGS) if sink is not None and sink.form == "delta" else {}


def package_of(form: str, spark_version: str) -> str:
    """Returns the package on Maven Central that brings a format to this version of Spark."""
    line = ".".join(spark_version.split(".")[:2])
    if form == "delta":
        newest = line if line in _DELTA else max(_DELTA)
        return f"io.delta:delta-spark_{newest}_2.13:{_DELTA[newest]}"
    fitting, version = _ICEBERG.get(line, _ICEBERG[max(_ICEBERG)])
    return f"org.apache.iceberg:iceberg-spark-runtime-{fitting}_2.13:{version}"


# --- writers ------------------------------------------------------------------------------------------


def write_to(
    frame: Any,
    sink: str | Sink,
    options: Mapping[str, object] | None = None,
    *,
    mode: str | None = None,
    trigger: str | None = None,
    bootstrap: str | None = None,
    name: str | None = None,
) -> Any:
    """Returns a writer, not started, that writes a streaming frame to a sink: `write_to(rows, "parquet ./out")`.

    `options` are those of the sink, `mode` is `append`, `update` or `complete`, `trigger` is a time such as
    `10 seconds`. `bootstrap` is the cluster of a topic, and `name` is told to the database that rows are written to.
    """
    wanted = read_sink(sink) if isinstance(sink, str) else sink
    given = {key: _text(value) for key, value in (options or {}).items()}
    wanted = replace(
        wanted,
        options={**wanted.options, **given},
        mode=mode or wanted.mode,
        trigger=trigger or wanted.trigger,
    )
    check_sink(wanted)
    writer = frame.writeStream.outputMode(wanted.mode)
    if wanted.trigger is not None:
        writer = writer.trigger(processingTime=wanted.trigger)
    return _attached(frame, writer, wanted, bootstrap, name or "")


def _attached(frame: Any, writer: Any, sink: Sink, bootstrap: str | None, name: str) -> Any:
    if sink.form == "postgresql":
        from kohort.spark.pipelines.postgresql import PostgresTable, read_postgres_options

        table = PostgresTable(sink.target, read_postgres_options(sink.options, sink.mode), name)
        table.check_columns(frame.schema)
        if not _is_trial(writer):
            table.check_package()
        return writer.foreachBatch(table)
    if sink.form == "jdbc":
        return writer.foreachBatch(JdbcTable(sink.target, sink.options))
    if sink.form in TABLES:
        return _into_table(frame.sparkSession, writer, sink)
    writer = writer.format(sink.form)
    if sink.form in FILES:
        writer = writer.option("path", sink.target)
    elif sink.form in TOPICS:
        writer = writer.option("topic", sink.target)
        if bootstrap is not None:
            writer = writer.option("kafka.bootstrap.servers", bootstrap)
    return writer.options(**sink.options)


class JdbcTable:
    """Appends each batch, at least once, as Spark has no streaming sink for JDBC. The driver's jar must be there."""

    def __init__(self, table: str, options: Mapping[str, str]) -> None:
        self.table = table or options.get("dbtable", "")
        self._options = {**({"dbtable": table} if table else {}), **options}

    def __str__(self) -> str:
        return f"jdbc {self.table}"

    def __call__(self, frame: Any, batch_id: int) -> None:
        frame.write.format("jdbc").options(**self._options).mode("append").save()


def _into_table(spark: Any, writer: Any, sink: Sink) -> Any:
    if not _is_trial(writer):
        check_package(spark, sink.form)
        if sink.form == "iceberg":
            _check_catalog(spark, sink.target)
    writer = writer.format(sink.form).options(**sink.options)
    if sink.form == "delta" and is_folder(sink.target):
        return writer.option("path", sink.target)
    return TableWriter(writer, sink.target)


def _is_trial(writer: Any) -> bool:
    """Whether the rows are only looked at (see trial.py): what the sink needs may be missing then."""
    return getattr(writer, "is_recorded", False)


def is_folder(target: str) -> bool:
    """Tells a folder (`./out`, `/out`, `s3a://bucket/out`, `C:\\out`) from a table (`db.orders`)."""
    return "/" in target or os.sep in target or "\\" in target or target in (".", "..")


def check_package(spark: Any, form: str) -> None:
    """Refuses a format whose jars this session does not have, with what brings them."""
    sources = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(form, spark._jsparkSession.sessionState().conf())
    except Exception:
        package = package_of(form, spark.version)
        raise PipelineError(
            f"-- sink: {form}: this Spark ({spark.version}) does not have {form}; it is got from Maven Central with "
            f"`--set spark.jars.packages={package}`, or with the line `-- spark spark.jars.packages: {package}`"
        ) from None


def _check_catalog(spark: Any, table: str) -> None:
    catalog, dot, _ = table.partition(".")
    if dot and spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        name = f"spark.sql.catalog.{catalog}"
        raise PipelineError(
            f"-- sink: iceberg {table}: there is no catalog {catalog}: write where it is, for a folder of tables as "
            f"`-- spark {name}: org.apache.iceberg.spark.SparkCatalog`, `-- spark {name}.type: hadoop` and "
            f"`-- spark {name}.warehouse: ./warehouse`"
        )


class TableWriter:
    """A DataStreamWriter that writes into a table of a catalog; a table that is not there is made at the start."""

    def __init__(self, writer: Any, table: str) -> None:
        self._writer, self._table = writer, table

    def __getattr__(self, name: str) -> Any:
        """Passes on what a DataStreamWriter can do; a writer that comes back is wrapped again."""
        found = getattr(self._writer, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **keywords: Any) -> Any:
            result = found(*arguments, **keywords)
            return TableWriter(result, self._table) if isinstance(result, type(self._writer)) else result

        return call

    def start(self) -> Any:
        return self._writer.toTable(self._table)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
