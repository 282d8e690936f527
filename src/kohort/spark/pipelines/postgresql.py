"""Writes the batches of a pipeline into a table of PostgreSQL, each exactly once.

Spark repeats a batch that it does not know to be done. So the number of the last batch of a query is kept in the table
`kohort_batches` of the same database, and is written in the same transaction as the rows: a batch that is there already
is not written again. A query is known by the id that Spark keeps in its checkpoint, so a new checkpoint is a new query.

Spark makes the lines of `COPY … FROM STDIN` on its executors; the driver passes them on to the database, in one
transaction and partition after partition, so that no more than the largest partition of a batch is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kohort.settings import nearest
from kohort.spark.pipelines.definition import PipelineError

BATCHES = "kohort_batches"
DSN_VARIABLE = "KOHORT_POSTGRESQL_DSN"
OPTIONS = ("dsn", "key")
_ROWS = "kohort_rows"
_ORDINAL = "kohort_ordinal"
_LINES = 2_000  # passed on at once
_SIMPLE = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "variant": "jsonb",
}
_PREFIXES = {"varchar(": "text", "char(": "text", "array<": "jsonb", "struct<": "jsonb", "map<": "jsonb"}


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """The options of the sink `postgresql`."""

    dsn: str = ""
    """Empty: libpq's own variables and files say where the database is (PGHOST, PGSERVICE, ~/.pgpass)."""
    key: tuple[str, ...] = ()
    """Columns that identify a row: a later row with the same key replaces the earlier one."""
    replace: bool = False
    """Whether each batch replaces all rows (the output mode `complete`)."""

    def __repr__(self) -> str:
        return f"PostgresOptions(key={self.key!r}, replace={self.replace!r})"  # the dsn may hold a password


def read_postgres_options(given: Mapping[str, str], mode: str) -> PostgresOptions:
    """Reads the options of the sink; PipelineError says what is wrong with them."""
    for name in given:
        if name not in OPTIONS:
            raise PipelineError(f"-- sink: postgresql has no option {name}{nearest(name, OPTIONS)}")
    key = tuple(each.strip() for each in given.get("key", "").split(",") if each.strip())
    if mode == "update" and not key:
        raise PipelineError(
            "-- sink: postgresql with the mode update needs the columns that identify a row, or it would add a row "
            "each time: `-- sink option key: id`"
        )
    return PostgresOptions(given.get("dsn") or os.environ.get(DSN_VARIABLE, ""), key, mode == "complete")


def column_type(spark_type: str) -> str | None:
    """Returns the type of PostgreSQL for a type of Spark, by its `simpleString`; None if there is none."""
    if spark_type in _SIMPLE:
        return _SIMPLE[spark_type]
    if spark_type.startswith("decimal("):
        return "numeric" + spark_type.removeprefix("decimal")
    return next((kind for start, kind in _PREFIXES.items() if spark_type.startswith(start)), None)


class PostgresTable:
    """A function for `foreachBatch`."""

    def __init__(self, table: str, options: PostgresOptions, name: str = "") -> None:
        self.table = table
        self._options, self._name = options, name

    def __str__(self) -> str:
        return f"postgresql {self.table}"

    def check_package(self) -> Any:
        """Returns the driver of the database; PipelineError says how to get it."""
        try:
            import psycopg
        except ImportError as missing:
            raise PipelineError(
                f'-- sink: postgresql needs the package psycopg: pip install "psycopg[binary]" ({missing})'
            ) from None
        return psycopg

    def check_columns(self, schema: Any) -> dict[str, str]:
        """Returns the columns with their types in PostgreSQL; PipelineError names one that cannot be written."""
        found = {}
        for field in schema.fields:
            kind = column_type(field.dataType.simpleString())
            if kind is None:
                raise PipelineError(
                    f"{self}: the column {field.name} is of the type {field.dataType.simpleString()}, which PostgreSQL "
                    f"does not have: write CAST({field.name} AS STRING) AS {field.name} in the query"
                )
            found[field.name] = kind
        for name in self._options.key:
            if name not in found:
                raise PipelineError(f"{self}: there is no column {name} for the key{nearest(name, found)}")
        return found

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Writes a batch, if it is not written yet."""
        psycopg = self.check_package()
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise PipelineError(f"{self}: Spark does not say which query this batch is of")
        columns = self.check_columns(frame.schema)
        try:
            connection = psycopg.connect(self._options.dsn, application_name=f"kohort {self._name}".strip())
        except psycopg.OperationalError as error:
            raise PipelineError(f"{self}: {_first_line(error)}") from None
        except psycopg.Error:
            raise PipelineError(  # its text would show the dsn, which may hold a password
                f"{self}: the dsn cannot be read: write it as postgresql://USER@HOST/DATABASE, and its password into "
                "~/.pgpass or PGPASSWORD"
            ) from None
        try:
            with connection, connection.cursor() as cursor:
                batch = _Batch(cursor, self.table, columns, self._options)
                if batch.is_new(query, batch_id, self._name):
                    batch.write(_copy_lines(frame, columns))
        except psycopg.Error as error:
            raise PipelineError(f"{self}: {_first_line(error)}{_advice(error)}") from None


class _Batch:
    """One transaction."""

    def __init__(self, cursor: Any, table: str, columns: Mapping[str, str], options: PostgresOptions) -> None:
        from psycopg import sql

        self._sql, self._cursor, self._columns, self._options = sql, cursor, columns, options
        *schema, _ = parts = table.split(".")
        self._table = sql.Identifier(*parts)
        self._batches = sql.Identifier(*schema, BATCHES)
        self._target = self._table.as_string(cursor)

    def is_new(self, query: str, batch_id: int, name: str) -> bool:
        """Notes the batch; returns whether it was not noted yet. A second process would wait here for the first."""
        if self._is_missing(self._batches):
            # Of two that make a table at the same time one would fail, in spite of IF NOT EXISTS.
            self._run("SELECT pg_advisory_xact_lock(hashtext('kohort'))")
            self._run(
                "CREATE TABLE IF NOT EXISTS {} (query text, target text, batch bigint NOT NULL, pipeline text, "
                "written_at timestamptz NOT NULL, PRIMARY KEY (query, target))",
                self._batches,
            )
        self._run(
            "INSERT INTO {} AS known VALUES (%s, %s, %s, %s, now()) ON CONFLICT (query, target) DO UPDATE "
            "SET batch = excluded.batch, written_at = excluded.written_at WHERE known.batch < excluded.batch",
            self._batches,
            values=(query, self._target, batch_id, name),
        )
        return bool(self._cursor.rowcount)

    def write(self, lines: Iterator[str]) -> None:
        names = self._names_in_table()
        listed = self._listed(names.values())
        if not self._options.key:
            if self._options.replace:
                self._run("DELETE FROM {}", self._table)
            self._copy(self._table, listed, lines)
            return
        rows = self._sql.Identifier(_ROWS)
        self._run(
            "CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA", rows, listed, self._table
        )
        self._run("ALTER TABLE {} ADD COLUMN {} bigserial", rows, self._sql.Identifier(_ORDINAL))
        self._copy(rows, listed, lines)
        if self._options.replace:
            self._run("DELETE FROM {}", self._table)
        sql, ordinal = self._sql, self._sql.Identifier(_ORDINAL)
        key = self._listed(names[name] for name in self._options.key)
        others = [sql.Identifier(name) for column, name in names.items() if column not in self._options.key]
        change = sql.SQL("NOTHING")
        if others:
            each = (sql.SQL("{0} = excluded.{0}").format(name) for name in others)
            change = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(each))
        self._run(
            "INSERT INTO {table} ({all}) SELECT DISTINCT ON ({key}) {all} FROM {rows} ORDER BY {key}, {ordinal} DESC "
            "ON CONFLICT ({key}) DO {change}",
            table=self._table, all=listed, key=key, rows=rows, ordinal=ordinal, change=change,
        )  # fmt: skip

    def _names_in_table(self) -> dict[str, str]:
        """Makes the table if it is not there; returns how it spells the columns of the rows."""
        if self._is_missing(self._table):
            self._run("SELECT pg_advisory_xact_lock(hashtext('kohort'))")
            self._create_table()
        self._cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self._target,),
        )
        there = [row[0] for row in self._cursor.fetchall()]
        lower = {name.lower(): name for name in there}
        found = {}
        for name in self._columns:
            spelled = name if name in there else lower.get(name.lower())
            if spelled is None:
                raise PipelineError(
                    f"postgresql {self._target} has no column {name}{nearest(name, there)}: add it "
                    f"(ALTER TABLE … ADD COLUMN) or leave it out of the query"
                )
            found[name] = spelled
        return found

    def _create_table(self) -> None:
        sql = self._sql
        parts = [
            sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(kind)) for n, kind in self._columns.items()
        ]
        if self._options.key:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(self._listed(self._options.key)))
        self._run("CREATE TABLE IF NOT EXISTS {} ({})", self._table, sql.SQL(", ").join(parts))

    def _copy(self, table: Any, listed: Any, lines: Iterator[str]) -> None:
        with self._cursor.copy(self._sql.SQL("COPY {} ({}) FROM STDIN").format(table, listed)) as copy:
            while chunk := list(islice(lines, _LINES)):
                copy.write("\n".join(chunk) + "\n")

    def _is_missing(self, name: Any) -> bool:
        self._cursor.execute("SELECT to_regclass(%s) IS NULL", (name.as_string(self._cursor),))
        return bool(self._cursor.fetchone()[0])

    def _listed(self, names: Any) -> Any:
        return self._sql.SQL(", ").join(self._sql.Identifier(name) for name in names)

    def _run(self, text: str, *parts: Any, values: tuple[object, ...] | None = None, **named: Any) -> None:
        self._cursor.execute(self._sql.SQL(text).format(*parts, **named), values)


# --- lines of COPY ------------------------------------------------------------------------------------


def _copy_lines(frame: Any, columns: Mapping[str, str]) -> Iterator[str]:
    """Yields the rows in the text format of COPY, in the order in which the tasks made them."""
    from pyspark.sql import functions as f

    cells = [f.coalesce(_cell(frame[f"`{name}`"], kind), f.lit("\\N")) for name, kind in columns.items()]
    for row in frame.select(f.concat_ws("\t", *cells)).toLocalIterator(prefetchPartitions=True):
        yield row[0]


def _cell(column: Any, kind: str) -> Any:
    """Returns the text of a column, as COPY reads it back; null stays null."""
    from pyspark.sql import functions as f

    if kind == "bytea":
        return f.concat(f.lit("\\\\x"), f.hex(column))
    if kind == "timestamptz":
        return f.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSxxx")
    if kind not in ("text", "jsonb"):
        return column.cast("string")
    text = f.to_json(column) if kind == "jsonb" else column
    for character, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = f.replace(text, f.lit(character), f.lit(escape))
    return text


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    context = next((line for line in lines if line.startswith("CONTEXT:")), "")
    first = lines[0] if lines else type(error).__name__
    return f"{first} ({context.removeprefix('CONTEXT:').strip()})" if context else first


def _advice(error: Any) -> str:
    if error.sqlstate == "42P10":  # invalid_column_reference: ON CONFLICT without a unique index
        return ": the table needs a unique index on the columns of the option key (CREATE UNIQUE INDEX …)"
    return ""
