"""Writes the text of a new pipeline, in SQL or in Python, from the answers of a person or of options.

How values are decoded is in `decoded` alone.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from kohort.spark.pipelines.definition import PipelineError, Sink
from kohort.spark.pipelines.guess import BINARY, JSON, fields_of
from kohort.spark.pipelines.sinks import TOPICS, check_sink

_TRIGGER = re.compile(r"\d+(\.\d+)? *(milliseconds?|ms|seconds?|minutes?|hours?|days?)", re.IGNORECASE)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Answers:
    """What a new pipeline should do."""

    file: Path
    topics: tuple[str, ...]
    bootstrap: str
    group: str
    form: str
    """Of the values: json, text or binary."""
    sink: Sink
    schema: str = ""
    select: str = ""
    """Empty: all fields."""
    where: str = ""
    start: str = "earliest"
    trigger: str = ""
    config: str | None = None
    records: Path | None = None
    """Where records of the topic were written to, for a trial."""

    @property
    def name(self) -> str:
        return self.file.stem


# --- answers that can be wrong ------------------------------------------------------------------------


def check_topics(text: str) -> tuple[str, ...]:
    """Reads names of topics with commas between them; PipelineError for what is no name."""
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    for topic in found:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise PipelineError(f"{topic!r} is no name of a topic: letters, digits, '.', '_' and '-'")
    if not found:
        raise PipelineError("a pipeline reads at least one topic")
    return found


def check_file(text: str) -> Path:
    """Reads the name of the file; its stem is the name of the pipeline."""
    path = Path(text)
    if path.suffix not in (".sql", ".py"):
        raise PipelineError(f"{text}: a pipeline is a .sql or a .py file")
    if not re.fullmatch(r"[\w.-]+", path.stem) or path.stem.startswith("."):
        raise PipelineError(f"{path.name}: the name of a pipeline has letters, digits, '.', '_' and '-'")
    return path


def check_trigger(text: str) -> str:
    """Reads a time between two batches; empty: as fast as it can."""
    if text and not _TRIGGER.fullmatch(text.strip()):
        raise PipelineError(
            f"{text!r} is no time between two batches: write it as `10 seconds` or `5 minutes`"
        )
    return text.strip()


def check_line(text: str, what: str) -> str:
    """Refuses a text with several lines, which would end a comment."""
    if "\n" in text or "\r" in text:
        raise PipelineError(f"{what} must be one line")
    return text.strip()


# --- the query ----------------------------------------------------------------------------------------


def decoded(answers: Answers) -> str:
    """Returns the query that makes columns of records: the one place that knows how values are decoded."""
    record = "struct(CAST(key AS STRING) AS key, topic, partition, offset, timestamp) AS record"
    if answers.form != JSON:
        value = "value" if answers.form == BINARY else "CAST(value AS STRING) AS value"
        return f"SELECT {value},\n    {record}\n  FROM stream"
    schema = answers.schema.replace("\\", "\\\\").replace("'", "\\'")
    return (
        "SELECT data.*, record\n  FROM (\n"
        f"    SELECT from_json(CAST(value AS STRING), '{schema}') AS data,\n"
        f"      {record}\n    FROM stream\n  )"
    )


def kept(answers: Answers) -> list[str]:
    """Returns the columns that are kept."""
    if answers.select.strip() and answers.select.strip() != "*":
        return [answers.select.strip()]
    return [*(fields_of(answers.schema) if answers.form == JSON else ["value"])]


def query_of(answers: Answers) -> str:
    """Returns the query of the pipeline."""
    columns = kept(answers)
    if answers.sink.form in TOPICS:
        # A topic takes a key and a value; whatever else is kept becomes the value, as JSON.
        if not re.search(r"(?i)(^|\bas\s+|,\s*)`?value`?\s*(,|$)", ", ".join(columns)):
            columns = [f"to_json(struct({', '.join(columns)})) AS value"]
        if not re.search(r"(?i)(^|\bas\s+|,\s*)`?key`?\s*(,|$)", ", ".join(columns)):
            columns = ["record.key AS key", *columns]
    listed = ",\n  ".join(columns)
    where = f"WHERE {answers.where.strip()}" if answers.where.strip() else f"-- WHERE {_example(answers)}"
    return f"SELECT\n  {listed}\nFROM (\n  {decoded(answers)}\n)\n{where}\n"


def _example(answers: Answers) -> str:
    first = next(iter(fields_of(answers.schema)), "") if answers.form == JSON else "value"
    return f"{first or 'value'} IS NOT NULL"


# --- the file -----------------------------------------------------------------------------------------


def draft(answers: Answers) -> str:
    """Returns the text of the file."""
    check_sink(answers.sink)
    return _as_python(answers) if answers.file.suffix == ".py" else _as_sql(answers)


def commands(answers: Answers) -> tuple[str, str]:
    """Returns the commands that test and run the pipeline."""
    file = shlex.quote(str(answers.file))
    records = shlex.quote(str(answers.records or f"{answers.topics[0]}.jsonl"))
    config = f" --config {shlex.quote(answers.config)}" if answers.config else ""
    return f"kohort pipeline test {file} --records {records}", f"kohort pipeline run {file}{config}"


def _about(answers: Answers) -> list[str]:
    test, run = commands(answers)
    lines = [
        f"Reads {', '.join(answers.topics)} and writes to {answers.sink}. This file is yours to change.",
        "",
    ]
    lines += [f"    {test}", f"    {run}"]
    return lines


_ABOUT_JSON = (
    "A value that is no such JSON gives nulls; `record` has its key, topic, partition, offset, timestamp."
)
_ABOUT_OTHER = "`record` has the key, topic, partition, offset and timestamp of a value."


def _as_sql(answers: Answers) -> str:
    header = [f"-- {line}".rstrip() for line in _about(answers)]
    header += [
        "",
        f"-- topics: {', '.join(answers.topics)}",
        f"-- bootstrap: {answers.bootstrap}",
        f"-- group: {answers.group}",
        f"-- option startingOffsets: {answers.start}",
    ]
    target = answers.sink.target
    if target:
        header += ["", "-- Where the rows go; `--set target=…` changes it for one run."]
        header += [f"-- parameter target: {target}"]
    header += [f"-- sink: {answers.sink.form}{' ${target}' if target else ''}"]
    header += [f"-- sink option {name}: {value}" for name, value in answers.sink.options.items()]
    if answers.trigger:
        header += [f"-- trigger: {answers.trigger}"]
    header += ["", "-- What is kept. " + (_ABOUT_JSON if answers.form == JSON else _ABOUT_OTHER)]
    return "\n".join(header) + "\n" + query_of(answers)


def _as_python(answers: Answers) -> str:
    about = "\n".join(_about(answers)).replace("\\", "\\\\")
    query = "\n".join(f"    {line}" for line in query_of(answers).rstrip().splitlines())
    escaped = query.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    call = ["rows", 'parameters["sink"]']
    if answers.sink.options:
        call.append(json.dumps(answers.sink.options, ensure_ascii=False))
    parameters = {"sink": str(answers.sink)}
    if answers.sink.form in TOPICS:
        parameters["cluster"] = answers.bootstrap
        call.append('bootstrap=parameters["cluster"]')
    if answers.trigger:
        call.append(f"trigger={json.dumps(answers.trigger)}")
    return f'''"""{about}
"""

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from kohort.spark.pipelines.sinks import write_to

topics = {json.dumps(list(answers.topics))}
bootstrap = {json.dumps(answers.bootstrap)}
group = {json.dumps(answers.group)}
options = {{"startingOffsets": {json.dumps(answers.start)}}}
# Where the rows go; `--set sink=…` changes it for one run.
parameters = {json.dumps(parameters, ensure_ascii=False)}

# What is kept. {_ABOUT_JSON if answers.form == JSON else _ABOUT_OTHER}
QUERY = """
{escaped}
"""


def pipeline(stream: DataFrame) -> DataStreamWriter:
    stream.createOrReplaceTempView("stream")
    rows = stream.sparkSession.sql(QUERY)
    return write_to({", ".join(call)})
'''
