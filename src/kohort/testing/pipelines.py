"""`try_pipeline`: runs a pipeline on Spark once, against a broker of its own, and returns the rows that came out.

`kohort pipeline test` is this function with a terminal around it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.spark.built_in import find_pipeline
from kohort.spark.pipelines.definition import Pipeline, PipelineError
from kohort.spark.pipelines.state import PipelineState
from kohort.spark.pipelines.trial_records import TrialRecord, is_whole, read_given, whole_record
from kohort.spark.pipelines.trial_rows import TrialRow, text_of
from kohort.spark.versions import UnsupportedPySpark, check_pyspark
from kohort.testing.kafka import Kafka

if TYPE_CHECKING:
    from kohort.spark.pipelines.trial import TrialOutcome

Given = str | os.PathLike[str] | Iterable[object] | Mapping[str, object]
_MOST_PARTITIONS = 100


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial read, and what came out."""

    pipeline: str
    sink: str
    note: str
    records: dict[str, int] = field(default_factory=dict)
    """How many were written to each topic."""
    columns: list[str] = field(default_factory=list)
    rows: list[TrialRow] = field(default_factory=list)


def try_pipeline(
    pipeline: str | os.PathLike[str] | Pipeline,
    records: Given,
    parameters: Mapping[str, str] | None = None,
    *,
    call_functions: bool = False,
) -> TrialResult:
    """Runs a pipeline over these records, with its sink replaced, and returns what came out.

    `records` is what `--records` takes: a file or a folder; or a list of values and whole records (a dict is a value as
    JSON, unless it has `value`); or a dict with such a list for each topic. A SparkSession that there is is used;
    otherwise one is started, and stays for the next call.
    """
    found = pipeline if isinstance(pipeline, Pipeline) else find_pipeline(os.fspath(pipeline))
    wanted = topics_read(found)
    given = _in_topics(records, tuple(wanted))
    with PipelineTrial(found, given, wanted, parameters or {}, call_functions=call_functions) as trial:
        return trial.run()


def topics_read(pipeline: Pipeline) -> dict[str, int]:
    """Returns the topics that a pipeline reads, each with the partitions that it must have; built-in ones have none."""
    try:
        check_pyspark()
        from kohort.spark.pipelines.trial import topics_of
    except UnsupportedPySpark as unsupported:
        raise PipelineError(str(unsupported)) from None
    except ImportError as missing:
        raise PipelineError(f'pipelines run on Spark: pip install "kohort[spark]" ({missing})') from None
    if pipeline.origin == "built in":
        raise PipelineError(
            f"{pipeline.name} is built in: it reads __consumer_offsets, and cannot be tried with records"
        )
    return topics_of(pipeline)


class PipelineTrial:
    """A broker with the records of a trial, and the run of the pipeline. Use it in a `with`."""

    def __init__(
        self,
        pipeline: Pipeline,
        records: Mapping[str, list[TrialRecord]],
        topics: Mapping[str, int],
        parameters: Mapping[str, str],
        *,
        options: Mapping[str, str] | None = None,
        spark: Mapping[str, str] | None = None,
        call_functions: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._pipeline, self._records, self._topics = pipeline, records, topics
        self._parameters, self._options, self._spark = parameters, options or {}, spark or {}
        self._call_functions, self._tell = call_functions, tell
        self._kafka = Kafka()
        self._folder = tempfile.TemporaryDirectory(prefix="kohort-trial-", ignore_cleanup_errors=True)
        self._session: Any = None
        self._owns_session = False

    def __enter__(self) -> PipelineTrial:
        self._kafka.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kafka.close()
        self._folder.cleanup()

    def stop_spark(self) -> None:
        """Stops the SparkSession if this trial has started it."""
        if self._session is not None and self._owns_session:
            self._session.stop()

    def run(self) -> TrialResult:
        """Writes the records, runs the pipeline once, and returns what came out."""
        from kohort.spark.pipelines.run import Run, start_spark
        from kohort.spark.pipelines.trial import Trial, trial_options

        folder = Path(self._folder.name)
        state = PipelineState(folder, self._pipeline.name)
        state.folder.mkdir(parents=True, exist_ok=True)
        run = Run(
            state,
            self._kafka.bootstrap_servers,
            master="local[2]",
            options=self._options,
            parameters=self._parameters,
            spark={**self._pipeline.spark_settings, **self._spark},
        )
        trial_options(self._pipeline, run)  # what is wrong with them is told before Spark is started
        counts = self._write_records()
        self._tell(f"{sum(counts.values()):,} records in {', '.join(counts) or 'no topic'}; starting Spark")
        self._session, self._owns_session = start_spark(self._pipeline, run)
        self._tell("running the pipeline")
        before = self._ends()
        trial = Trial(self._pipeline, run, folder, call_functions=self._call_functions)
        outcome = trial.run(self._session)
        if outcome.is_topic:
            self._read_topics(outcome, before)
        return TrialResult(
            self._pipeline.name, outcome.sink, outcome.note, counts, outcome.columns, outcome.rows
        )

    def _write_records(self) -> dict[str, int]:
        counts = {}
        for topic in dict.fromkeys([*self._topics, *self._records]):
            records = self._records.get(topic, [])
            highest = max((record.partition or 0 for record in records), default=0)
            if highest >= _MOST_PARTITIONS:
                raise PipelineError(
                    f"{topic}: partition {highest} is more than a trial needs; there are {_MOST_PARTITIONS}"
                )
            self._kafka.create_topic(topic, max(self._topics.get(topic, 1), highest + 1))
            self._kafka.produce(topic, [_as_given(record) for record in records])
            counts[topic] = len(records)
        return counts

    def _ends(self) -> dict[str, dict[int, int]]:
        names = self._kafka.on_broker(lambda broker: list(broker.store.topics))
        return {name: self._kafka.end_offsets(name) for name in names if not name.startswith("__")}

    def _read_topics(self, outcome: TrialOutcome, before: Mapping[str, Mapping[int, int]]) -> None:
        """Reads what the pipeline has written: what is new in all topics."""
        new = [
            record
            for topic in self._ends()
            for record in self._kafka.consume_all(topic)
            if record.offset >= before.get(topic, {}).get(record.partition, 0)
        ]
        several = len({record.topic for record in new}) > 1
        for record in new:
            row: TrialRow = {"topic": record.topic} if several else {}
            row |= {"key": text_of(record.key), "value": text_of(record.value)}
            if any(each.headers for each in new):
                row["headers"] = {name: text_of(value) for name, value in record.headers}
            outcome.rows.append(row)
        outcome.columns = list(outcome.rows[0]) if outcome.rows else ["key", "value"]


def _as_given(record: TrialRecord) -> dict[str, object]:
    return {
        "value": record.value,
        "key": record.key,
        "headers": record.headers,
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
    }


def _in_topics(records: Given, topics: tuple[str, ...]) -> dict[str, list[TrialRecord]]:
    if isinstance(records, str | os.PathLike):
        return read_given([os.fspath(records)], topics)
    if isinstance(records, Mapping):
        return {str(topic): [_record(each) for each in _listed(given)] for topic, given in records.items()}
    if len(topics) != 1:
        raise PipelineError(
            f"the pipeline reads {', '.join(topics) or 'a pattern'}: give the records by topic, as a dict of lists"
        )
    return {topics[0]: [_record(each) for each in records]}


def _listed(given: object) -> Iterable[object]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise PipelineError(f"the records of a topic are a list, not {given!r}")
    return given


def _record(given: object) -> TrialRecord:
    if isinstance(given, bytes):
        return TrialRecord(given)
    fields = given if isinstance(given, dict) and is_whole(given) else {"value": given}
    return whole_record(fields, "a record")
