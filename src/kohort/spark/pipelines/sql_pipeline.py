"""Makes the writer of a pipeline that is written in SQL alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.spark.pipelines.definition import STREAM, PipelineError, Sink, filled_in

FILES = ("parquet", "json", "csv", "orc", "text", "delta")
TOPICS = ("kohort", "kafka")
OUTPUT_MODES = ("append", "update", "complete")


def writer_of(stream: Any, query: str, sink: Sink, parameters: Mapping[str, str], bootstrap: str) -> Any:
    """A DataStreamWriter for the rows that the query makes of the stream."""
    stream.createOrReplaceTempView(STREAM)
    if sink.mode not in OUTPUT_MODES:
        raise PipelineError(f"mode is {', '.join(OUTPUT_MODES)}, not {sink.mode}")
    writer = stream.sparkSession.sql(filled_in(query, parameters)).writeStream.outputMode(sink.mode)
    if sink.trigger is not None:
        writer = writer.trigger(processingTime=sink.trigger)
    target = filled_in(sink.target, parameters)
    options = {name: filled_in(value, parameters) for name, value in sink.options.items()}
    if sink.form == "jdbc":
        return writer.foreachBatch(_into_jdbc({"dbtable": target, **options} if target else options))
    writer = writer.format(sink.form)
    if sink.form in FILES:
        if not target:
            raise PipelineError(f"-- sink: {sink.form} needs a folder: `-- sink: {sink.form} ./folder`")
        writer = writer.option("path", target)
    elif sink.form in TOPICS:
        if not target:
            raise PipelineError(f"-- sink: {sink.form} needs a topic: `-- sink: {sink.form} TOPIC`")
        writer = writer.option("topic", target).option("kafka.bootstrap.servers", bootstrap)
    elif target:
        raise PipelineError(
            f"-- sink: {sink.form} takes no target; options are written as `-- sink option NAME: VALUE`"
        )
    return writer.options(**options)


def _into_jdbc(options: dict[str, str]) -> Any:
    """Appends each batch, at least once, as Spark has no streaming sink for JDBC. The driver's jar must be there."""

    def append(frame: Any, batch_id: int) -> None:
        frame.write.format("jdbc").options(**options).mode("append").save()

    return append
