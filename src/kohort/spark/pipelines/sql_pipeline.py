"""Makes the writer of a pipeline that is written in SQL alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.spark.pipelines.definition import STREAM, Sink, filled_in
from kohort.spark.pipelines.sinks import check_sink, write_to


def writer_of(
    stream: Any, query: str, sink: Sink, parameters: Mapping[str, str], bootstrap: str, name: str = ""
) -> Any:
    """Returns a DataStreamWriter for the rows that the query makes of the stream."""
    wanted = sink.filled_in(parameters)
    check_sink(wanted)
    stream.createOrReplaceTempView(STREAM)
    rows = stream.sparkSession.sql(filled_in(query, parameters))
    return write_to(rows, wanted, bootstrap=bootstrap, name=name)
