"""`kohort pipeline new`: what is guessed, asked and written; without Spark."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kohort.cli.main import main
from kohort.spark.pipelines.cluster_sample import as_line, last_records, topics_of_cluster
from kohort.spark.pipelines.definition import PipelineError, load_file
from kohort.spark.pipelines.draft import Answers, draft, query_of
from kohort.spark.pipelines.guess import BINARY, JSON, TEXT, fields_of, guess_format, schema_of
from kohort.spark.pipelines.interview import Given, Interview
from kohort.spark.pipelines.sinks import KINDS, read_sink
from kohort.spark.pipelines.trial_records import read_records
from kohort.testing import Kafka

# --- guessing -------------------------------------------------------------------------------------------


def test_the_fields_of_json_are_guessed_with_their_types() -> None:
    objects = [
        {"id": 1, "price": 2, "ok": True, "at": "2026-11-16T12:00:00Z", "who": {"name": "a", "n": None}},
        {
            "id": 2,
            "price": 2.5,
            "tags": ["x"],
            "odd name": None,
            "mixed": 1,
            "at": "2026-11-16T12:00:00.5+01:00",
        },
        {"id": 2**70, "mixed": "x", "who": {"age": 3}},
    ]
    assert schema_of(objects) == (
        "id DOUBLE, price DOUBLE, ok BOOLEAN, at TIMESTAMP, who STRUCT<name: STRING, n: STRING, age: BIGINT>, "
        "tags ARRAY<STRING>, `odd name` STRING, mixed STRING"
    )
    assert fields_of(schema_of(objects)) == ["id", "price", "ok", "at", "who", "tags", "`odd name`", "mixed"]


def test_fields_are_found_whatever_is_in_their_types() -> None:
    assert fields_of("a DECIMAL(10, 2), `b,c` INT, d STRUCT<e: INT, f: ARRAY<INT>>, g: STRING") == [
        "a", "`b,c`", "d", "g",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "form", "why"),
    [
        ([b'{"a": 1}', b"{broken", b'{"a": 2}'], JSON, "1 of 3 are something else"),
        ([b"one", None, "zwölf".encode()], TEXT, "UTF-8"),
        ([b"\xff\x00", b"text"], BINARY, "no text"),
        ([b"\x00\x00\x00\x00\x07abc"], BINARY, "schema id 7"),
        ([], TEXT, "the topic is empty"),
        ([None], TEXT, "only null"),
        ([b"1", b"2"], TEXT, "UTF-8"),
        ([b"{}"], TEXT, "UTF-8"),
    ],
)
def test_the_format_is_what_most_values_are(values: list[bytes | None], form: str, why: str) -> None:
    guess = guess_format(values)
    assert guess.form == form
    assert why in guess.why


# --- the file -------------------------------------------------------------------------------------------


def answers(file: str = "orders.sql", sink: str = "parquet ./out", form: str = JSON, **more: str) -> Answers:
    schema = "id BIGINT, `it's` STRING" if form == JSON else ""
    return Answers(
        Path(file), ("orders", "more"), "h:1", "g", form, read_sink(sink), **{"schema": schema, **more}
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["sql", "py"])
@pytest.mark.parametrize("form", [JSON, TEXT, BINARY])
def test_the_file_can_be_loaded_and_says_what_was_answered(tmp_path: Path, suffix: str, form: str) -> None:
    file = tmp_path / f"orders.{suffix}"
    for kind in KINDS.values():
        sink = f"{kind.name} {kind.example}"
        file.write_text(draft(answers(str(file), sink, form, trigger="10 seconds")), "utf-8")
        made = load_file(file)
        assert made.streams == {"stream": ("orders", "more")}
        assert (made.bootstrap, made.group, made.options) == ("h:1", "g", {"startingOffsets": "earliest"})
        if made.sink is not None:
            assert str(made.sink.filled_in(made.parameters)) == sink.strip()
            assert made.sink.trigger == "10 seconds"
        else:
            assert made.parameters["sink"] == sink.strip()


def test_a_topic_gets_a_key_and_a_value() -> None:
    def first(select: str) -> str:
        return query_of(answers(sink="kohort up", select=select)).split("\nFROM")[0]

    assert first("") == "SELECT\n  record.key AS key,\n  to_json(struct(id, `it's`)) AS value"
    assert first("upper(x) AS value") == "SELECT\n  record.key AS key,\n  upper(x) AS value"
    assert first("id AS key, x AS value") == "SELECT\n  id AS key, x AS value"


# --- the interview --------------------------------------------------------------------------------------


class Script:
    """Somebody who answers what a test says; who is asked for more, fails."""

    is_there = True

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.asked: list[str] = []
        self.told: list[str] = []

    def ask(self, question: str, default: str) -> str:
        self.asked.append(f"{question} [{default}]")
        return self._lines.pop(0)

    def tell(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def shop(kafka: Kafka) -> Kafka:
    kafka.produce(
        "orders", [{"value": json.dumps({"id": n, "item": "tea"}), "key": str(n)} for n in range(30)]
    )
    kafka.produce("payments", ["text"])
    return kafka


def test_a_person_is_shown_topics_and_records_and_asked_again_when_wrong(shop: Kafka) -> None:
    person = Script(
        "localhost", shop.bootstrap_servers, "ordrs", "orders", "", "", "", "", "id, record.offset", "id > 7",
        "parquett ./x", "parquet", "parquet ./x", "", "10", "10 seconds", "-",
    )  # fmt: skip
    made, records = Interview(Given(), person).run()
    assert (made.topics, made.form, made.schema) == (("orders",), JSON, "id BIGINT, item STRING")
    assert (str(made.file), made.group, str(made.sink)) == ("orders.sql", "orders", "parquet ./x")
    assert (made.select, made.where, made.start, made.trigger) == (
        "id, record.offset", "id > 7", "earliest", "10 seconds",
    )  # fmt: skip
    assert made.records is None
    assert len(records) == 20
    told = "\n".join(person.told)
    for said in (
        "'localhost' is no address of a broker",
        "topics: orders, payments",
        "there is no topic ordrs; did you mean orders?",
        '{"id": 29, "item": "tea"}',
        "20 records looked at: JSON objects",
        "there is no sink parquett; did you mean parquet?",
        "-- sink: parquet needs a folder",
        "'10' is no time between two batches",
    ):
        assert said in told


def test_what_is_given_is_not_asked_for() -> None:
    person = Script("", "", "", "", "", "")
    given = Given("x.sql", "h:1", topics=("t",), form="text", sink="console")
    made, _ = Interview(given, person).run()
    assert (made.topics, made.form, made.sink.form) == (("t",), "text", "console")
    assert [asked.split(" ")[0] for asked in person.asked] == ["consumer", "what", "which", "start", "time"]


def test_wrong_answers_are_not_asked_for_for_ever() -> None:
    with pytest.raises(PipelineError, match="no answer to"):
        Interview(Given(), Script(*["no"] * 10)).run()


def test_the_last_records_are_read_back_as_they_were(shop: Kafka, tmp_path: Path) -> None:
    shop.create_topic("odd", partitions=3)
    shop.produce(
        "odd",
        [
            {"value": b"\xff", "key": b"\xfe", "partition": 2, "timestamp": 1_700_000_000_123},
            {"value": None, "key": "k", "partition": 0, "timestamp": 1_700_000_000_000},
            {"value": '{"a": 1}', "partition": 1, "headers": {"h": "1"}, "timestamp": 1_700_000_000_000},
            {"value": '"text"', "partition": 1, "timestamp": 1_700_000_000_000},
        ],
    )
    settings = {"bootstrap.servers": shop.bootstrap_servers}
    assert topics_of_cluster(settings) == ["odd", "orders", "payments"]
    records = last_records(settings, "odd")
    assert len(records) == 4
    file = tmp_path / "odd.jsonl"
    file.write_text("".join(f"{as_line(record)}\n" for record in records), "utf-8")
    assert [record for _, record in read_records(file)] == records
    assert last_records(settings, "odd", most=1)[0].topic == "odd"
    assert last_records(settings, "nothing") == []


# --- the command ----------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_alone_write_the_file_and_never_over_another(
    here: Path, shop: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "new", "--topic", "orders", "--bootstrap", shop.bootstrap_servers, "--yes"]
    assert main([*words, "--save-records", "some.jsonl"]) == 0
    out = capsys.readouterr().out
    assert "kohort pipeline test orders.sql --records some.jsonl" in out
    assert "kohort pipeline run orders.sql" in out
    assert "'id BIGINT, item STRING'" in (here / "orders.sql").read_text()
    assert len((here / "some.jsonl").read_text().splitlines()) == 20
    before = (here / "orders.sql").read_text()
    assert main([*words, "orders.sql", "--sink", "console"]) == 1
    assert "orders.sql is there already" in capsys.readouterr().err
    assert (here / "orders.sql").read_text() == before
    assert main([*words, "orders.sql", "--sink", "console", "--force"]) == 0
    assert "-- sink: console" in (here / "orders.sql").read_text()
    assert sorted(os.listdir(here)) == ["orders.sql", "some.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "a b"], "'a b' is no name of a topic"),
        (["--topic", "t", "--format", "json"], "nothing says --schema"),
        (["--topic", "t"], "nothing says --format"),
        ([], "nothing says --topic and --format"),
        (["--topic", "t", "--format", "text", "--schema", "a INT"], "--schema is for --format json"),
        (["--topic", "t", "--format", "text", "--sink", "parquet"], "needs a folder"),
        (["--topic", "t", "--format", "text", "--sink", "iceburg:x"], "did you mean iceberg"),
        (["--topic", "t", "--format", "text", "--trigger", "soon"], "is no time between two batches"),
        (["x.txt", "--topic", "t", "--format", "text"], "is a .sql or a .py file"),
        (["--topic", "t", "--format", "text", "--select", "a\nb"], "--select must be one line"),
        (["--topic", "t", "--format", "text", "--sink-option", "x"], "write it as NAME=VALUE"),
    ],
)
def test_what_is_wrong_or_missing_is_named_and_nothing_is_written(
    here: Path, kafka: Kafka, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["pipeline", "new", "--bootstrap", kafka.bootstrap_servers, "--yes", *words]) == 1
    assert said in capsys.readouterr().err
    assert os.listdir(here) == []


def test_ctrl_c_at_a_question_leaves_nothing(here: Path, ctrl_c: None) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kohort.cli.main", "pipeline", "new", "--topic", "t", "--format", "text"]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)  # so that reading ends when the process has
        guard = threading.Timer(60, process.kill)
        guard.start()
        shown = b""
        while b"HOST:PORT" not in shown:
            shown += os.read(leader, 1000)
        while process.poll() is None:  # one that comes just before the line is read is seen with the next key
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        assert process.returncode == 130
        guard.cancel()
    os.close(leader)
    assert os.listdir(here) == []
