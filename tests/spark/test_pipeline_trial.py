"""`kohort pipeline test` and `try_pipeline`: real pipelines on a real Spark, with records from files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.main import main
from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.draft import Answers, draft
from kohort.spark.pipelines.sinks import package_of, read_sink
from kohort.testing import try_pipeline

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
ORDERS = [
    {"id": 1, "customer": "anna", "amount": 60.0},
    {"id": 2, "customer": "bob", "amount": 160.0},
    {"value": {"id": 3, "customer": "eve", "amount": 1000}, "key": "k", "timestamp": "2026-11-16T12:00:00Z"},
    {"value": "no json"},
]
Written = Callable[[str, str], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, "utf-8")
        return tmp_path / name

    return write


def lines(rows: list[Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


# --- the command ----------------------------------------------------------------------------------------


def test_the_rows_are_shown_and_compared(
    spark: Any, written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = written("orders.jsonl", lines(ORDERS))
    expected = tmp_path / "expected.jsonl"
    words = ["pipeline", "test", str(EXAMPLES / "large_orders.sql"), "--records", str(records)]
    assert main([*words, "--expect", str(expected), "--update"]) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "large_orders: 4 records in orders; starting Spark",
        "large_orders: running the pipeline",
    ]
    assert [line.split()[:3] for line in shown.out.splitlines()[:4]] == [
        ["id", "customer", "amount"],
        ["--", "--------", "------"],
        ["2", "bob", "160.0"],
        ["3", "eve", "1000.0"],
    ]
    assert "in   4 records (orders 4)" in shown.out
    assert "out  2 rows to parquet ./large (written to a temporary folder instead)" in shown.out
    rows = [json.loads(line) for line in expected.read_text().splitlines()]
    assert rows[0] == {
        "id": 2,
        "customer": "bob",
        "amount": 160.0,
        "topic": "orders",
        "partition": 0,
        "offset": 1,
    }

    # In another order and with a difference, which is told; and as a program reads it.
    expected.write_text(lines([{**rows[1], "amount": 7}, rows[0]]))
    assert main([*words, "--expect", str(expected)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert f"- {json.dumps({**rows[1], 'amount': 7})}" in told
    assert f"+ {json.dumps(rows[1])}" in told
    assert main([*words, "--expect", str(expected), "--ignore", "amount", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["as_expected"], found["records"], found["rows"]) == (True, {"orders": 4}, rows)
    # A parameter; the real folder was never touched.
    assert main([*words, "--set", "least=500", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["rows"]] == [3]
    assert not Path("large").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--records", "nothing.jsonl"], "there is no file nothing.jsonl with records"),
        (
            ["--records", "{}", "--expect", "nothing.jsonl"],
            "there is no file nothing.jsonl with expected rows",
        ),
        (["--records", "other={}"], "does not read the topic other"),
        (["--records", "{}", "--update"], "--update writes the file of --expect"),
        (["--records", "{}", "--set", "startingOffset=latest"], "did you mean startingOffsets"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_told_before_spark_is_started(
    written: Written,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_started(*_: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("kohort.spark.pipelines.run.start_spark", not_started)
    records = written("orders.jsonl", lines(ORDERS))
    given = [word.replace("{}", str(records)) for word in words]
    assert main(["pipeline", "test", str(EXAMPLES / "large_orders.sql"), *given]) == 1
    assert said in capsys.readouterr().err
    assert main(["pipeline", "test", "group-history", "--records", str(records)]) == 1
    assert "group-history is built in" in capsys.readouterr().err


# --- pipelines ------------------------------------------------------------------------------------------


def test_a_join_of_two_streams_to_a_topic(spark: Any) -> None:
    noon = "2026-11-16T12:00:00Z"
    orders = [{"value": {"id": n, "amount": 10.0 * n}, "timestamp": noon} for n in (1, 2)]
    payments = [{"value": {"order_id": 1, "paid": 10.0}, "timestamp": "2026-11-16T12:01:00Z"}]
    result = try_pipeline(EXAMPLES / "paid_orders.py", {"orders": orders, "payments": payments})
    assert result.records == {"orders": 2, "payments": 1}
    assert (result.sink, result.columns) == ("kohort paid-orders", ["key", "value"])
    (row,) = result.rows
    assert row["key"] == "1"
    assert json.loads(row["value"])["paid"] == 10.0


def test_the_function_of_foreach_batch_is_called_only_when_asked_for(spark: Any, written: Written) -> None:
    file = written(
        "each.py",
        "topics = ['t']\ncalled = []\n\n\ndef pipeline(stream):\n    def write(frame, batch_id):\n"
        "        with open(parameters['out'], 'a') as out:\n            out.write(f'{frame.count()} ')\n\n"
        "    return stream.selectExpr('CAST(value AS STRING) AS text', 'timestamp').writeStream.foreachBatch(write)\n"
        "\n\nparameters = {'out': ''}\n",
    )
    out = file.with_suffix(".out")
    records = [{"value": "a", "timestamp": "2026-11-16T12:00:00Z"}]
    result = try_pipeline(file, records, {"out": str(out)})
    assert result.rows == [{"text": "a", "timestamp": "2026-11-16T12:00:00+00:00"}]
    assert "was not called" in result.note
    assert not out.exists()
    result = try_pipeline(file, records, {"out": str(out)}, call_functions=True)
    assert (len(result.rows), out.read_text()) == (1, "1 ")


@pytest.mark.parametrize(
    "sink", ["postgresql orders", "delta ./x", "iceberg c.d.t", "console", "jdbc t", "csv ./x"]
)
def test_sinks_that_are_not_there_are_tried_without_them(spark: Any, sink: str, written: Written) -> None:
    """One file in SQL for each; Delta, Iceberg and a database are not installed, and not needed."""
    text = f"-- topics: t\n-- sink: {sink}\nSELECT CAST(value AS STRING) AS word, offset FROM stream"
    result = try_pipeline(written("any.sql", text), ["a", 'b,"c"\nd', {"value": None}])
    assert result.rows == [
        {"word": "a", "offset": 0}, {"word": 'b,"c"\nd', "offset": 1}, {"word": None, "offset": 2},
    ]  # fmt: skip
    assert result.sink == sink


@pytest.mark.parametrize("suffix", ["sql", "py"])
def test_what_new_writes_can_be_tried(spark: Any, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"orders.{suffix}"
    schema = "id BIGINT, customer STRING, `odd name` STRING, timestamp STRING"
    answers = Answers(
        file,
        ("orders",),
        "h:1",
        "g",
        "json",
        read_sink("kohort big"),
        schema,
        where="id > 1",
        trigger="1 second",
    )
    file.write_text(draft(answers), "utf-8")
    result = try_pipeline(
        file, [{"id": 1}, {"value": {"id": 2, "odd name": "x"}, "key": "k"}, {"value": "{"}]
    )
    (row,) = result.rows
    assert (row["key"], json.loads(row["value"])) == ("k", {"id": 2, "odd name": "x"})


# --- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.sql",
            "-- topics: t\n-- sink: noop\n\nSELECT\n  no_column\nFROM stream",
            "a.sql line 5: Analysis",
        ),
        ("b.sql", "-- topics: t\n-- sink: noop\nSELECT value FROM stream WERE 1", "b.sql line 3: Parse"),
        (
            "c.py",
            "topics = ['t']\n\n\ndef pipeline(stream):\n    return stream.writeStream.start()\n",
            "not started",
        ),
        ("d.py", "topics = ['t']\n\n\ndef pipeline(stream):\n    return stream\n", "returned DataFrame"),
        (
            "e.py",
            "from pyspark.sql.functions import udf\n\ntopics = ['t']\n\n\ndef bad(value):\n    return 1 // 0\n\n\n"
            "def pipeline(stream):\n    return stream.select(udf(bad, 'int')('value')).writeStream.format('noop')\n",
            "e.py line 7: ZeroDivisionError",
        ),
        (
            "f.py",
            "topics = ['t']\n\n\ndef pipeline(stream):\n    return stream.nothing()\n",
            "f.py line 5: ",
        ),
    ],
)
def test_a_pipeline_that_fails_is_told_with_its_line(
    spark: Any, written: Written, name: str, text: str, said: str
) -> None:
    with pytest.raises(PipelineError) as failed:
        try_pipeline(written(name, text), ["one"])
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_sink_without_its_package_says_what_to_install(spark: Any, written: Written) -> None:
    from kohort.spark.pipelines.sinks import write_to

    frame = spark.readStream.format("rate").load()
    for form, target in (("delta", "./x"), ("iceberg", "c.d.t")):
        with pytest.raises(PipelineError, match=r"--set spark\.jars\.packages=") as refused:
            write_to(frame, f"{form} {target}")
        assert package_of(form, spark.version) in str(refused.value)
