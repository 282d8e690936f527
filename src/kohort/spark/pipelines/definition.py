"""Loads pipelines: a Python file with a function from streams to a writer, or a SQL file with a header.

orders.py                                           orders.sql
    topics = ["orders"]                                 -- topics: orders
    group = "orders-etl"                                -- group: orders-etl
    options = {"startingOffsets": "earliest"}           -- option startingOffsets: earliest
    parameters = {"out": "./orders"}                    -- parameter out: ./orders
                                                        -- sink: parquet ${out}
    def pipeline(stream):                               SELECT CAST(value AS STRING) AS text
        return stream.writeStream.format("parquet")…    FROM stream

Nothing of Spark is loaded here.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from kohort.settings import nearest
from kohort.wire.errors import KohortError

FUNCTION = "pipeline"
STREAM = "stream"
MODULE_PREFIX = "kohort_pipeline_"
# What a module may say besides its function, and what it means; docs/settings.md is written from it.
MODULE_SETTINGS = {
    "topics": "The topics of the stream, as a list; of several streams a dict of lists, by the function's parameters.",
    "group": "The consumer group; without it the name of the file. Each of several streams has its own: GROUP-STREAM.",
    "options": "Options of the source, by the names of Spark's Kafka connector.",
    "parameters": "What `--set NAME=VALUE` may change, with defaults; the function reads the values from this dict.",
    "bootstrap": "Where the brokers are, if `--bootstrap` does not say it.",
    "spark_settings": "Settings of Spark that the pipeline needs; `--set` wins over them.",
}


class PipelineError(KohortError):
    """A pipeline that cannot be run as it is written or called; the text says what to change."""

    what_to_do = (
        "Change the pipeline or its call as the text says; `kohort pipeline test FILE` tries it without a"
        " cluster."
    )


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows of a SQL pipeline go."""

    form: str
    target: str = ""
    """A folder, a topic or a table, by the form."""
    options: dict[str, str] = field(default_factory=dict)
    mode: str = "append"
    trigger: str | None = None

    def __str__(self) -> str:
        return f"{self.form} {self.target}".strip()

    def filled_in(self, parameters: Mapping[str, str]) -> Sink:
        """Returns the sink with `${name}` replaced in its target and its options."""
        return replace(
            self,
            target=filled_in(self.target, parameters),
            options={name: filled_in(value, parameters) for name, value in self.options.items()},
        )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as its author wrote it."""

    name: str
    origin: str
    """Its file, or "built in"."""
    make: Callable[[dict[str, Any], Mapping[str, str], str], Any]
    """Streams by name, the parameters, and where the brokers are -> a DataStreamWriter."""
    streams: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The topics of each stream. Empty topics: the options say what is read."""
    group: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    """Of the source, by the names of Spark's Kafka connector."""
    parameters: dict[str, str] = field(default_factory=dict)
    """What `--set` may change, with defaults."""
    bootstrap: str | None = None
    finish: Callable[[Any, Mapping[str, str]], None] | None = None
    """Called with the SparkSession and the parameters when the query has ended in order."""
    module: ModuleType | None = None
    sink: Sink | None = None
    """Of a SQL pipeline; what a Python pipeline does with its rows is known when its function was called."""
    spark_settings: dict[str, str] = field(default_factory=dict)
    """Settings of Spark that the pipeline needs, such as `spark.jars.packages`; `--set` wins over them."""

    def group_of(self, stream: str) -> str | None:
        """The group of a stream. Each of several streams has a group of its own, as it has offsets of its own."""
        return self.group if self.group is None or len(self.streams) == 1 else f"{self.group}-{stream}"


# --- files --------------------------------------------------------------------------------------------


def load_file(path: Path) -> Pipeline:
    """The pipeline in a .py or .sql file; PipelineError says what is wrong with it."""
    if not path.is_file():
        raise PipelineError(f"there is no file {path}; `kohort pipeline list` shows what is built in")
    if path.suffix == ".py":
        return _from_module(path)
    if path.suffix == ".sql":
        return from_sql(path.stem, str(path), path.read_text("utf-8"))
    raise PipelineError(f"{path}: a pipeline is a .py or a .sql file")


class _SourceAsItIs(SourceFileLoader):
    """Compiles the file as it is now, and keeps no bytecode of it.

    Python takes bytecode for that of a file which was changed within the same second, to the same size; and a folder
    of the user is no place for ours.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _from_module(path: Path) -> Pipeline:
    name = MODULE_PREFIX + re.sub(r"\W", "_", path.stem)
    loader = _SourceAsItIs(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = line_in(error, str(path))
        raise PipelineError(f"{path}{line}: {type(error).__name__}: {error}") from error
    return from_module(path.stem, str(path), module)


def from_module(name: str, origin: str, module: ModuleType) -> Pipeline:
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise PipelineError(
            f"{origin} has no function {FUNCTION}: write `def {FUNCTION}(stream):`, which takes the stream and returns "
            "a writer (`return stream.writeStream…`)"
        )
    _check_spelling(origin, module)
    options = _texts(origin, "options", getattr(module, "options", {}))
    wanted = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
    ]
    streams = _streams(origin, wanted, getattr(module, "topics", None), options)

    def make(frames: dict[str, Any], parameters: Mapping[str, str], bootstrap: str) -> Any:
        module.parameters = dict(parameters)  # type: ignore[attr-defined]
        return function(*(frames[stream] for stream in streams))

    return Pipeline(
        name,
        origin,
        make,
        streams,
        getattr(module, "group", name),
        options,
        _texts(origin, "parameters", getattr(module, "parameters", {})),
        getattr(module, "bootstrap", None),
        module=module,
        spark_settings=_of_spark(
            origin, _texts(origin, "spark_settings", getattr(module, "spark_settings", {}))
        ),
    )


def _check_spelling(origin: str, module: ModuleType) -> None:
    """Refuses names that look like a setting: `topic = "orders"` would be ignored otherwise."""
    for name in ("topic", "option", "parameter", "groups", "bootstrap_servers"):
        if name in vars(module):
            raise PipelineError(
                f"{origin}: {name} is no setting of a pipeline{nearest(name, MODULE_SETTINGS)}"
            )


def _streams(
    origin: str, wanted: list[str], topics: object, options: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    if not wanted:
        raise PipelineError(f"{origin}: {FUNCTION}() takes no stream: write `def {FUNCTION}(stream):`")
    by_option = any(name.lower() in ("subscribe", "subscribepattern", "assign") for name in options)
    if isinstance(topics, dict):
        if set(topics) != set(wanted):
            raise PipelineError(
                f"{origin}: {FUNCTION}() takes {', '.join(wanted)}, but topics names {', '.join(map(str, topics))}"
            )
        return {stream: _topics(origin, topics[stream]) for stream in wanted}
    if len(wanted) > 1:
        example = "{" + ", ".join(f'"{stream}": ["{stream}"]' for stream in wanted) + "}"
        raise PipelineError(
            f"{origin}: {FUNCTION}() takes several streams: say which topics each has: {example}"
        )
    if topics is None and not by_option:
        raise PipelineError(f'{origin} names no topics: write `topics = ["orders"]` above the function')
    return {wanted[0]: () if topics is None else _topics(origin, topics)}


def _topics(origin: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise PipelineError(f'{origin}: topics is a list of names, as in ["orders"], not {given!r}')
    found = tuple(each.strip() for each in given if each.strip())
    if not found:
        raise PipelineError(f"{origin}: topics is empty")
    return found


def _texts(origin: str, what: str, given: object) -> dict[str, str]:
    if not isinstance(given, dict):
        raise PipelineError(f'{origin}: {what} is a dict, as in {{"name": "value"}}, not {given!r}')
    return {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }


def _of_spark(origin: str, settings: dict[str, str]) -> dict[str, str]:
    for name in settings:
        if not name.startswith("spark."):
            raise PipelineError(f"{origin}: {name} is no setting of Spark: their names begin with `spark.`")
    return settings


def line_in(error: BaseException, path: str) -> str:
    """The line in this file that an error came from, as ` line 7`; empty if it came from elsewhere."""
    if isinstance(error, SyntaxError):
        return f" line {error.lineno}"
    found = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in found if frame.filename == path]
    return f" line {lines[-1]}" if lines else ""


# --- SQL ----------------------------------------------------------------------------------------------

# The words of the header and what they mean; docs/settings.md is written from them.
HEADER_WORDS = {
    "topics": "The topics to read, with commas in between.",
    "group": "The consumer group; the name of the file if it is not given.",
    "bootstrap": "Where the brokers are, if `--bootstrap` does not say it.",
    "sink": "Where the rows go: a name of a sink and its target, as in `parquet ./orders`.",
    "mode": "Spark's output mode: `append` (default), `update` or `complete`.",
    "trigger": "How often a micro-batch starts, as in `10 seconds`.",
}
HEADER_WORDS_WITH_NAME = {
    "option": "An option of the source, by the names of Spark's Kafka connector.",
    "parameter": "A name and a default of what `--set NAME=VALUE` may change; `${NAME}` in the query stands for it.",
    "sink option": "An option of the sink.",
    "spark": "A setting of Spark that the pipeline needs; `--set` wins over it.",
}


def from_sql(name: str, origin: str, text: str) -> Pipeline:
    """The pipeline of a query over the view `stream`; comments above it say what is read and where the rows go."""
    said, by_name = _read_header(origin, text)
    if not re.search(rf"\bfrom\s+{STREAM}\b", text, re.IGNORECASE):
        raise PipelineError(f"{origin}: the query reads nothing: write `SELECT … FROM {STREAM}`")
    if "topics" not in said and not any(
        n.lower() in ("subscribepattern", "assign") for n in by_name["option"]
    ):
        raise PipelineError(f"{origin} names no topics: write `-- topics: orders` above the query")
    if "sink" not in said:
        raise PipelineError(
            f"{origin} does not say where the rows go: write `-- sink: parquet ./folder`, `-- sink: kohort TOPIC` or "
            "`-- sink: console` above the query"
        )
    form, _, target = said["sink"].partition(" ")
    sink = Sink(form, target.strip(), by_name["sink option"], said.get("mode", "append"), said.get("trigger"))

    def make(frames: dict[str, Any], parameters: Mapping[str, str], bootstrap: str) -> Any:
        from kohort.spark.pipelines.sql_pipeline import writer_of

        return writer_of(frames[STREAM], text, sink, parameters, bootstrap, name)

    topics = {STREAM: _topics(origin, said["topics"]) if "topics" in said else ()}
    return Pipeline(
        name, origin, make, topics, said.get("group", name) or None, by_name["option"], by_name["parameter"],
        said.get("bootstrap"), sink=sink, spark_settings=_of_spark(origin, by_name["spark"]),
    )  # fmt: skip


def _read_header(origin: str, text: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Reads the header above the query: `-- topics: orders` and `-- option NAME: VALUE`. Other comments are ignored."""
    said: dict[str, str] = {}
    by_name: dict[str, dict[str, str]] = {what: {} for what in HEADER_WORDS_WITH_NAME}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("--"):
            break
        head, colon, value = line.strip().removeprefix("--").partition(":")
        *first, last = head.split() or [""]
        if not colon:
            continue
        if not first and last in HEADER_WORDS:
            said[last] = value.strip()
        elif " ".join(first) in by_name:
            by_name[" ".join(first)][last] = value.strip()
        elif head.strip() in by_name:
            raise PipelineError(
                f"{origin} line {number}: {last} needs a name: `-- {head.strip()} NAME: VALUE`"
            )
        elif not first and nearest(last, HEADER_WORDS):
            raise PipelineError(f"{origin} line {number}: unknown word {last}{nearest(last, HEADER_WORDS)}")
    return said, by_name


def filled_in(text: str, parameters: Mapping[str, str]) -> str:
    """`${name}` replaced by the parameter of that name."""

    def value_of(found: re.Match[str]) -> str:
        if found[1] not in parameters:
            raise PipelineError(
                f"there is no parameter {found[1]}{nearest(found[1], parameters)}: "
                f"write `-- parameter {found[1]}: VALUE`"
            )
        return parameters[found[1]]

    return re.sub(r"\$\{(\w+)\}", value_of, text)
