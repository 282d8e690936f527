"""Finds out what a new pipeline should do: from options, from the cluster, and by asking.

Each question has a default and a check; an answer that is wrong is told, and asked for again. Without somebody to ask,
the defaults are taken, and what has none must be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from kohort.settings import nearest
from kohort.spark.pipelines.cluster_sample import last_records, topics_of_cluster
from kohort.spark.pipelines.definition import PipelineError, Sink
from kohort.spark.pipelines.draft import Answers, check_file, check_line, check_topics, check_trigger
from kohort.spark.pipelines.guess import FORMATS, JSON, Guess, fields_of, guess_format
from kohort.spark.pipelines.sinks import KINDS, check_sink, read_sink
from kohort.spark.pipelines.trial_records import TrialRecord
from kohort.spark.pipelines.trial_rows import text_of
from kohort.wire.errors import KohortError

T = TypeVar("T")
OFFERED = ("parquet", "json", "csv", "delta", "iceberg", "postgresql", "kohort", "console")
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_TRIES = 10
_SHOWN = 3
_WIDTH = 100


class Person(Protocol):
    """Somebody who answers questions, or nobody."""

    is_there: bool

    def ask(self, question: str, default: str) -> str: ...

    def tell(self, text: str) -> None: ...


@dataclass(slots=True)
class Given:
    """What options say; None or empty: it is asked for."""

    file: str | None = None
    bootstrap: str | None = None
    config: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    topics: Sequence[str] = ()
    group: str | None = None
    form: str | None = None
    schema: str | None = None
    select: str | None = None
    where: str | None = None
    sink: str | None = None
    sink_options: Mapping[str, str] = field(default_factory=dict)
    start: str | None = None
    trigger: str | None = None
    save_records: str | None = None


class Interview:
    """Asks for what is not given, in the order in which answers depend on each other."""

    def __init__(self, given: Given, person: Person) -> None:
        self._given, self._person = given, person
        self._missing: list[str] = []

    def run(self) -> tuple[Answers, list[TrialRecord]]:
        """Returns the answers, and the records that were looked at. PipelineError names what is missing."""
        given, nobody = self._given, not self._person.is_there
        bootstrap = self._answer("cluster (HOST:PORT)", given.bootstrap, DEFAULT_BOOTSTRAP, _bootstrap)
        settings = {"bootstrap.servers": bootstrap, **given.kafka}
        there = None if self._knows_enough() else self._topics_there(settings)
        if nobody and not given.topics:
            self._missing.append("--topic")
        topics = () if self._missing else self._topics(there)
        records = self._look(settings, topics, there)
        guess = guess_format([record.value for record in records])
        form = self._form(guess, records)
        schema = self._schema(form, guess)
        if self._missing:
            raise PipelineError(
                f"there is no terminal to ask on, and nothing says {' and '.join(self._missing)}: give "
                f"{'it as an option' if len(self._missing) == 1 else 'them as options'}, for example: kohort pipeline "
                "new orders.sql --topic orders --format text --sink parquet:./out"
            )
        file = self._answer("file to write", given.file, f"{topics[0]}.sql", check_file)
        group = self._answer(
            "consumer group", given.group, file.stem, lambda text: check_line(text, "a group")
        )
        select, where = self._what_to_keep(form, schema)
        sink = self._sink(file.stem)
        start = self._answer(
            "start at earliest or latest", given.start, "earliest", _one_of("earliest", "latest")
        )
        trigger = self._answer(
            "time between batches, as `10 seconds` (empty: as fast as it can)",
            given.trigger,
            "",
            check_trigger,
        )
        saved = self._save_to(file, records)
        answers = Answers(
            file,
            topics,
            bootstrap,
            group,
            form,
            sink,
            schema,
            select,
            where,
            start,
            trigger,
            given.config,
            saved,
        )
        return answers, records

    def _knows_enough(self) -> bool:
        """Whether options say everything that the cluster would be looked at for."""
        given = self._given
        has_format = given.form is not None and (given.form != JSON or given.schema is not None)
        return bool(given.topics) and has_format and given.save_records is None

    # --- questions -----------------------------------------------------------------------------------

    def _answer(self, question: str, given: str | None, default: str, check: Callable[[str], T]) -> T:
        """Returns what was given or is answered, checked. What was given is not asked for again."""
        if given is not None:
            return check(given)
        if not self._person.is_there:
            return check(default)
        for _ in range(_TRIES):
            answer = self._person.ask(question, default).strip() or default
            try:
                return check(answer)
            except KohortError as wrong:
                self._person.tell(f"  {wrong}")
        raise PipelineError(f"no answer to `{question}` could be used")

    def _topics_there(self, settings: Mapping[str, str]) -> list[str] | None:
        """Returns the topics of the cluster; None if it cannot be reached."""
        try:
            found = topics_of_cluster(settings)
        except KohortError as error:
            self._person.tell(
                f"  {settings['bootstrap.servers']} does not answer ({error}); going on without it"
            )
            return None
        if self._person.is_there and not self._given.topics:
            more = f" … ({len(found)} in all)" if len(found) > _WIDTH // 5 else ""
            self._person.tell(f"  topics: {', '.join(found[: _WIDTH // 5]) or 'none yet'}{more}")
        return found

    def _topics(self, there: list[str] | None) -> tuple[str, ...]:
        def check(text: str) -> tuple[str, ...]:
            topics = check_topics(text)
            for topic in topics:
                if self._person.is_there and there and topic not in there and not self._given.topics:
                    raise PipelineError(f"there is no topic {topic}{nearest(topic, there)}")
            return topics

        given = ",".join(self._given.topics) if self._given.topics else None
        default = there[0] if there else ""
        found = self._answer("topics to read, with commas between them", given, default, check)
        for topic in found:
            if there is not None and topic not in there:
                self._person.tell(f"  note: there is no topic {topic} yet{nearest(topic, there)}")
        return found

    def _look(
        self, settings: Mapping[str, str], topics: tuple[str, ...], there: list[str] | None
    ) -> list[TrialRecord]:
        records: list[TrialRecord] = []
        for topic in topics if there is not None else ():
            if topic in there:  # type: ignore[operator]
                try:
                    records += last_records(settings, topic)
                except KohortError as error:
                    self._person.tell(f"  the records of {topic} cannot be looked at: {error}")
        return records

    def _form(self, guess: Guess, records: list[TrialRecord]) -> str:
        for record in records[-_SHOWN:] if self._given.form is None else ():
            self._person.tell(
                f"  {record.topic}-{record.partition}: {(text_of(record.value) or 'null')[:_WIDTH]}"
            )
        if records and self._given.form is None:
            self._person.tell(f"  {len(records)} records looked at: {guess.why}")
        elif not records and self._given.form is None and not self._person.is_there:
            self._missing.append("--format (no records to guess it from)")
        return self._answer(
            "format of the values: json, text or binary", self._given.form, guess.form, _one_of(*FORMATS)
        )

    def _schema(self, form: str, guess: Guess) -> str:
        if form != JSON:
            if self._given.schema is not None:
                raise PipelineError(f"--schema is for --format json, not for {form}")
            return ""
        if not guess.schema and self._given.schema is None and not self._person.is_there:
            self._missing.append("--schema (no records to guess it from)")
            return ""
        question = "fields and types, as `id BIGINT, name STRING`"
        return self._answer(question, self._given.schema, guess.schema, _schema)

    def _what_to_keep(self, form: str, schema: str) -> tuple[str, str]:
        fields = fields_of(schema) if form == JSON else ["value"]
        if self._person.is_there and self._given.select is None:
            places = ["record.key", "record.offset", "record.timestamp"]
            self._person.tell(f"  columns: {', '.join([*fields, *places])} …")
        select = self._answer(
            "what to keep, as in SQL after SELECT (*: all fields)", self._given.select, "*",
            lambda text: check_line(text, "--select"),
        )  # fmt: skip
        where = self._answer(
            "which rows, as in SQL after WHERE (empty: all)", self._given.where, "",
            lambda text: check_line(text, "--where"),
        )  # fmt: skip
        return select, where

    def _sink(self, name: str) -> Sink:
        def check(text: str) -> Sink:
            sink = replace(read_sink(text), options=dict(self._given.sink_options))
            if sink.form not in KINDS:
                raise PipelineError(
                    f"there is no sink {sink.form}{nearest(sink.form, KINDS)}; there are {', '.join(KINDS)}"
                )
            check_line(text, "a sink")
            check_sink(sink)
            return sink

        if self._person.is_there and self._given.sink is None:
            self._person.tell(f"  sinks: {', '.join(f'{k} {KINDS[k].example}'.strip() for k in OFFERED)}")
        return self._answer(
            "where the rows go: sink and target", self._given.sink, f"parquet ./{name}", check
        )

    def _save_to(self, file: Path, records: list[TrialRecord]) -> Path | None:
        if self._given.save_records is not None:
            if not records:
                raise PipelineError("--save-records: there are no records that could be saved")
            return Path(self._given.save_records)
        if not records or not self._person.is_there:
            return None
        default = str(file.with_suffix(".records.jsonl"))
        question = f"save these {len(records)} records for `kohort pipeline test`, to which file (-: no)"
        answer = self._answer(question, None, default, str)
        return None if answer == "-" else Path(answer)


def _bootstrap(text: str) -> str:
    for each in text.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not colon or not host or not port.isdigit():
            raise PipelineError(f"{each.strip()!r} is no address of a broker: write it as HOST:PORT")
    return text.strip()


def _one_of(*words: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in words:
            raise PipelineError(f"{text!r} is none of {', '.join(words)}{nearest(text.lower(), words)}")
        return text.lower()

    return check


def _schema(text: str) -> str:
    if not fields_of(check_line(text, "--schema")):
        raise PipelineError("a schema has at least one field: write it as `id BIGINT, name STRING`")
    return text.strip()
