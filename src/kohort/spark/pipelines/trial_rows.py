"""Shows the rows that came out of a trial as a table, and compares them with those that were expected."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.trial_records import rows_of_file

TrialRow = dict[str, Any]
"""A row by its columns, each value as JSON has it."""
_LEAST_WIDTH = 4
_NULL = "null"


def plain_value(value: Any) -> Any:
    """Returns a value of Spark as JSON has it: bytes are text where they are UTF-8, else base64."""
    if isinstance(value, bytes | bytearray | memoryview):
        return text_of(bytes(value))
    if isinstance(value, datetime):  # Spark gives times without a zone, in that of the session
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if hasattr(value, "asDict"):
        return {name: plain_value(each) for name, each in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(plain_value(key)): plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def text_of(data: bytes | None) -> str | None:
    """Returns bytes as text where they are UTF-8, else as base64 with a prefix that says so."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def utc_text(timestamp_ms: int) -> str:
    """Returns a time of a record, in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


# --- a table ------------------------------------------------------------------------------------------


def as_table(columns: Sequence[str], rows: Sequence[TrialRow], width: int, most: int) -> list[str]:
    """Returns the lines of a table that is no wider than the terminal; long cells are cut with `…`."""
    if not columns:
        return []
    shown = [[_shown(row.get(column)) for column in columns] for row in rows[:most]]
    grid = [list(columns), *shown]
    widths = _fitted([max(len(line[at]) for line in grid) for at in range(len(columns))], width)
    numbers = [
        bool(rows) and all(isinstance(row.get(c), int | float | None) for row in rows[:most]) for c in columns
    ]
    lines = ["  ".join(_cut(cell, w, right=n) for cell, w, n in zip(line, widths, numbers, strict=True)).rstrip()
             for line in grid]  # fmt: skip
    lines.insert(1, "  ".join("-" * w for w in widths))
    if len(rows) > most:
        lines.append(f"… and {len(rows) - most:,} more rows (--rows shows more, --json all of them)")
    return lines


def _fitted(widths: list[int], width: int) -> list[int]:
    """Takes from the widest column until the line fits."""
    fitted = list(widths)
    surplus = sum(fitted) + 2 * (len(fitted) - 1) - width
    while surplus > 0 and max(fitted) > _LEAST_WIDTH:
        fitted[fitted.index(max(fitted))] -= 1
        surplus -= 1
    return fitted


def _cut(text: str, width: int, *, right: bool) -> str:
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return cut.rjust(width) if right else cut.ljust(width)


def _shown(value: Any) -> str:
    if value is None:
        return _NULL
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


# --- expectations -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """How the rows differ from those that were expected."""

    missing: list[TrialRow]
    surplus: list[TrialRow]
    first_at: int | None = None
    """With the order compared: the first row, from 1, that is another one."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.first_at is not None)

    def lines(self, most: int = 50) -> list[str]:
        """Returns a line for each row that is missing (`-`) or was not expected (`+`)."""
        both = [f"- {as_json(row)}" for row in self.missing] + [f"+ {as_json(row)}" for row in self.surplus]
        told = both[:most] + ([f"… and {len(both) - most} more differences"] if len(both) > most else [])
        if not both and self.first_at is not None:
            told.append(f"the same rows in another order: row {self.first_at} is the first that differs")
        return told


def read_expected(path: Path) -> list[TrialRow]:
    """Reads the rows of a .jsonl or .csv file."""
    rows = []
    if not path.is_file():
        raise PipelineError(f"there is no file {path} with expected rows; --update writes it")
    for number, row, _ in rows_of_file(path):
        if not isinstance(row, dict):
            raise PipelineError(
                f'{path} line {number}: a row is an object, as in {{"id": 1}}, not {json.dumps(row)}'
            )
        rows.append(row)
    return rows


def compare(
    expected: Sequence[TrialRow],
    rows: Sequence[TrialRow],
    *,
    ordered: bool = False,
    ignored: Iterable[str] = (),
) -> Difference:
    """Compares rows, by default in any order. A column that is null is the same as one that is not there."""
    left = [_without(row, ignored) for row in expected]
    right = [_without(row, ignored) for row in rows]
    as_objects = {name for row in left for name, value in row.items() if isinstance(value, dict | list)}
    right = [{name: _parsed(v) if name in as_objects else v for name, v in row.items()} for row in right]
    wanted, came = Counter(map(_canonical, left)), Counter(map(_canonical, right))
    missing, surplus = wanted - came, came - wanted
    first = None
    if ordered and not missing and not surplus:
        pairs = zip(map(_canonical, left), map(_canonical, right), strict=True)
        first = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), None)
    return Difference(_picked(left, missing), _picked(right, surplus), first)


def as_json(row: TrialRow) -> str:
    return json.dumps(row, ensure_ascii=False)


def _without(row: TrialRow, ignored: Iterable[str]) -> TrialRow:
    left_out = set(ignored)
    return {name: value for name, value in row.items() if name not in left_out}


def _parsed(value: Any) -> Any:
    """Parses a text that is JSON: an expected object may be the value of a record."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _canonical(row: TrialRow) -> str:
    return json.dumps(_number(row), sort_keys=True, ensure_ascii=False)


def _number(value: Any) -> Any:
    """Returns the same number in one form: 1 and 1.0 are equal. A null column is left out."""
    if isinstance(value, dict):
        return {name: _number(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_number(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _picked(rows: list[TrialRow], wanted: Counter[str]) -> list[TrialRow]:
    left, found = Counter(wanted), []
    for row in rows:
        text = _canonical(row)
        if left[text] > 0:
            left[text] -= 1
            found.append(row)
    return found


def columns_not_there(
    names: Iterable[str], columns: Sequence[str], expected: Sequence[TrialRow]
) -> list[str]:
    """Returns those of the names that are no column of any row."""
    known = {*columns, *(name for row in expected for name in row)}
    return [name for name in names if name not in known]
