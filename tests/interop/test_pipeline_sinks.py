"""Sinks by name with what comes from outside: PostgreSQL (Debian), Delta Lake and Iceberg (Maven)."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from benchmarks import outside, targets

from kohort import Producer
from kohort.spark.pipelines.definition import PipelineError, from_sql
from kohort.spark.pipelines.progress import Terminal
from kohort.spark.pipelines.run import Run, run_pipeline
from kohort.spark.pipelines.state import PipelineState
from tests.clients.process import KOHORT
from tests.interop.postgres import Postgres
from tests.spark.conftest import spark  # noqa: F401

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TYPES = """
SELECT CAST(value AS STRING) AS t, true AS b, 1Y AS i1, 2S AS i2, 3 AS i4, 4L AS i8, 1.5F AS f4, 2.5D AS f8,
  CAST('12.30' AS DECIMAL(10, 2)) AS n, X'00ff' AS by, DATE'2026-11-16' AS d,
  TIMESTAMP'2026-11-16 12:00:00.123456 UTC' AS ts, TIMESTAMP_NTZ'2026-11-16 12:00:00' AS tn,
  array(1, 2) AS a, struct(1 AS x, 'a\\tb' AS y) AS s, map('k', 1) AS m, CAST(NULL AS STRING) AS nothing
FROM stream"""


class Sinks:
    """Runs SQL pipelines once, in this process, each with a topic of its own."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder, self._bootstrap = folder, bootstrap

    def send(self, topic: str, *values: Any) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            for value in values:
                producer.send(topic, value=value if isinstance(value, str) else json.dumps(value))

    def run(self, name: str, header: str, query: str, **keywords: Any) -> tuple[int, str]:
        text = f"-- topics: {name}\n-- option startingOffsets: earliest\n{header}\n{query}"
        shown = io.StringIO()
        run = Run(PipelineState(self._folder, name), self._bootstrap, once=True, **keywords)
        code = run_pipeline(from_sql(name, f"{name}.sql", text), run, Terminal(shown))
        return code, shown.getvalue()

    def checkpoint(self, name: str) -> Path:
        return self._folder / name / "checkpoint"


@pytest.fixture
def sinks(tmp_path: Path, spark: Any, start_broker: Callable[..., targets.Target]) -> Sinks:  # noqa: F811
    return Sinks(tmp_path, start_broker().address)


# --- PostgreSQL -----------------------------------------------------------------------------------------


def test_postgresql_table_is_made_with_the_types_of_the_rows(sinks: Sinks, postgres: Postgres) -> None:
    odd = "tab\there \\N \\ and\r\nnew “line”"
    sinks.send("pg-types", odd, "", "\\.")
    header = f"-- sink: postgresql pg_types\n-- sink option dsn: {postgres.dsn}"
    code, shown = sinks.run("pg-types", header, TYPES)
    assert code == 0, shown
    kinds = postgres.ask(
        "SELECT string_agg(format_type(atttypid, atttypmod), ',' ORDER BY attnum) FROM pg_attribute "
        "WHERE attrelid = 'pg_types'::regclass AND attnum > 0"
    )
    assert " ".join(kinds or []) == (
        "text,boolean,smallint,smallint,integer,bigint,real,double precision,numeric(10,2),bytea,date,"
        "timestamp with time zone,timestamp without time zone,jsonb,jsonb,jsonb,text"
    )
    import psycopg

    with psycopg.connect(postgres.dsn, options="-c timezone=UTC") as connection:
        rows = connection.execute("SELECT * FROM pg_types").fetchall()
    assert [row[0] for row in rows] == [odd, "", "\\."]
    first = rows[0]
    assert first[1:8] == (True, 1, 2, 3, 4, 1.5, 2.5)
    assert (str(first[8]), first[9], str(first[10])) == ("12.30", b"\x00\xff", "2026-11-16")
    assert first[11].isoformat() == "2026-11-16T12:00:00.123456+00:00"
    assert first[12].isoformat() == "2026-11-16T12:00:00"
    assert first[13:] == ([1, 2], {"x": 1, "y": "a\tb"}, {"k": 1}, None)


def test_postgresql_a_repeated_batch_is_not_written_again(sinks: Sinks, postgres: Postgres) -> None:
    """As after a crash between the transaction and Spark's own note: the commit of the batch is taken away."""
    sinks.send("pg-once", *range(10))
    header = f"-- sink: postgresql pg_once\n-- sink option dsn: {postgres.dsn}"
    query = "SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM stream"
    assert sinks.run("pg-once", header, query)[0] == 0
    commits = sinks.checkpoint("pg-once") / "commits"
    for commit in commits.iterdir():
        if commit.name in ("0", ".0.crc"):
            commit.unlink()
    sinks.send("pg-once", *range(10, 15))
    code, shown = sinks.run("pg-once", header, query)
    assert code == 0, shown
    assert (commits / "0").is_file()  # the first batch did run again
    assert postgres.ask("SELECT count(*), count(DISTINCT n) FROM pg_once") == ["15|15"]
    assert postgres.ask("SELECT batch, pipeline FROM kohort_batches WHERE target = '\"pg_once\"'") == [
        "1|pg-once"
    ]


def test_postgresql_with_a_key_the_last_row_stays(sinks: Sinks, postgres: Postgres) -> None:
    orders = [{"id": n % 3, "state": f"s{n}"} for n in range(7)]
    sinks.send("pg-key", *orders)
    header = (
        "-- sink: postgresql pg_key\n-- sink option key: id\n"
        f"-- parameter d: {postgres.dsn}\n-- sink option dsn: ${{d}}"
    )
    query = (
        "SELECT o.* FROM (SELECT from_json(CAST(value AS STRING), 'id INT, state STRING') AS o FROM stream)"
    )
    assert sinks.run("pg-key", header, query)[0] == 0
    assert postgres.ask("SELECT id, state FROM pg_key ORDER BY id") == ["0|s6", "1|s4", "2|s5"]
    sinks.send("pg-key", {"id": 1, "state": "new"}, {"id": 9, "state": "new"})
    assert sinks.run("pg-key", header, query)[0] == 0
    assert postgres.ask("SELECT id, state FROM pg_key ORDER BY id") == ["0|s6", "1|new", "2|s5", "9|new"]


def test_postgresql_complete_replaces_and_update_upserts(sinks: Sinks, postgres: Postgres) -> None:
    query = "SELECT CAST(value AS STRING) AS word, count(*) AS times FROM stream GROUP BY 1"
    for mode, extra in (("complete", ""), ("update", "\n-- sink option key: word")):
        name = f"pg-{mode}"
        header = f"-- sink: postgresql pg_{mode}\n-- sink option dsn: {postgres.dsn}{extra}\n-- mode: {mode}"
        sinks.send(name, "a", "b", "a")
        assert sinks.run(name, header, query)[0] == 0
        sinks.send(name, "a", "c")
        assert sinks.run(name, header, query)[0] == 0
        assert postgres.ask(f"SELECT word, times FROM pg_{mode} ORDER BY 1") == ["a|3", "b|1", "c|1"]


def test_postgresql_says_what_is_wrong(
    sinks: Sinks, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks.send("pg-wrong", "x")
    query = "SELECT CAST(value AS STRING) AS word FROM stream"
    dsn = f"-- sink option dsn: {postgres.dsn}"
    for header, said in (
        ("-- sink: postgresql\n" + dsn, "needs a table"),
        ("-- sink: postgresql t\n-- sink option dns: x", "no option dns; did you mean dsn?"),
        (f"-- sink: postgresql t\n{dsn}\n-- mode: update", "needs the columns that identify a row"),
        (f"-- sink: postgresql t\n{dsn}\n-- sink option key: wort", "no column wort for the key"),
    ):
        with pytest.raises(PipelineError) as refused:
            sinks.run("pg-wrong", header, query)
        assert said in str(refused.value)
    with pytest.raises(PipelineError, match="column i is of the type interval"):
        sinks.run("pg-wrong", f"-- sink: postgresql t\n{dsn}", "SELECT INTERVAL 1 DAY AS i FROM stream")
    assert postgres.ask("CREATE TABLE pg_wrong (wird text)") == []
    for number, (header, said) in enumerate(
        (
            (
                f"-- sink: postgresql pg_wrong\n{dsn}",
                'postgresql "pg_wrong" has no column word; did you mean',
            ),
            ("-- sink: postgresql t\n-- sink option dsn: postgresql://127.0.0.1:1/x", "Connection refused"),
            (
                "-- sink: postgresql t\n-- sink option dsn: postgresql//me:secret@host",
                "the dsn cannot be read",
            ),
        )
    ):
        sinks.send(f"pg-wrong-{number}", "x")
        code, shown = sinks.run(f"pg-wrong-{number}", header, query)
        assert code == 1
        assert said in shown
        assert "secret" not in shown
        assert "PipelineError" not in shown
    # Without the option the variable says where it is; a unique index is asked for where there is none.
    monkeypatch.setitem(os.environ, "KOHORT_POSTGRESQL_DSN", postgres.dsn)
    assert postgres.ask("CREATE TABLE pg_plain (word text)") == []
    code, shown = sinks.run("pg-wrong", "-- sink: postgresql pg_plain\n-- sink option key: word", query)
    assert code == 1
    assert "the table needs a unique index" in shown


# --- Delta Lake and Iceberg -----------------------------------------------------------------------------

DELTA = (("io.delta", "delta-spark_4.2_2.13", "4.4.0"), ("io.delta", "delta-storage", "4.4.0"))
# There is none for Spark 4.2 yet; that for 4.1 writes with 4.2 too.
ICEBERG = (("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),)


class Command:
    """`kohort pipeline run FILE --once` in a process of its own, as its Spark has other jars."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self._bootstrap = folder, bootstrap

    def run(self, file: Path, *words: str) -> tuple[int, str]:
        command = [
            str(KOHORT), "pipeline", "run", str(file), "--bootstrap", self._bootstrap, "--once", "--master", "local[2]",
            "--state", str(self.folder / "state"), *words,
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=400, check=False, cwd=self.folder
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def command(tmp_path: Path, start_broker: Callable[..., targets.Target]) -> Command:
    return Command(tmp_path, start_broker().address)


def jars(name: str, wanted: tuple[tuple[str, str, str], ...]) -> str:
    folder = outside._maven(f"{name}-{wanted[0][2]}", wanted, "*.jar", name, alone=True)
    return ",".join(map(str, sorted(folder.glob("*.jar"))))


def forget_the_last_commit(state: Path) -> None:
    """Makes Spark repeat the last batch, as after a crash between the sink's commit and Spark's own."""
    commits = state / "checkpoint" / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def numbers_in(folder: Path, column: str) -> list[int]:
    found = pyarrow.dataset.dataset([str(path) for path in folder.rglob("*.parquet")], format="parquet")
    return sorted(found.to_table(columns=[column]).column(column).to_pylist())


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_gets_each_row_once_though_a_batch_is_repeated(command: Command, form: str) -> None:
    topic = f"to-{form}"
    query = "SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM stream"
    header = f"-- topics: {topic}\n-- option startingOffsets: earliest\n"
    file = command.folder / f"{form}.sql"
    if form == "delta":
        out, given = command.folder / "out", jars("delta-spark-4.2", DELTA)
        header += f"-- sink: delta {out}\n"
    else:
        out, given = command.folder / "house" / "db" / "numbers", jars("iceberg-spark-4.1", ICEBERG)
        header += (
            "-- sink: iceberg lake.db.numbers\n-- spark spark.sql.catalog.lake: org.apache.iceberg.spark.SparkCatalog\n"
            f"-- spark spark.sql.catalog.lake.type: hadoop\n"
            f"-- spark spark.sql.catalog.lake.warehouse: {command.folder / 'house'}\n"
        )
    file.write_text(header + query)
    with Producer(bootstrap_servers=command._bootstrap) as producer:
        for number in range(20):
            producer.send(topic, value=str(number))
    code, shown = command.run(file, "--set", f"spark.jars={given}")
    assert code == 0, shown
    assert numbers_in(out, "n") == list(range(20))
    forget_the_last_commit(command.folder / "state" / form)
    code, shown = command.run(file, "--set", f"spark.jars={given}")
    assert code == 0, shown
    assert numbers_in(out, "n") == list(range(20))
    assert (out / ("_delta_log" if form == "delta" else "metadata")).is_dir()
