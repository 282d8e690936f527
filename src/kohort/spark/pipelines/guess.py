"""Guesses what the values of a topic are from a few records: JSON with these fields, text, or binary."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

JSON, TEXT, BINARY = "json", "text", "binary"
FORMATS = (JSON, TEXT, BINARY)
_LEAST_SHARE = 0.5  # of the values must be objects: a few may be broken
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class Guess:
    """What values seem to be."""

    form: str
    schema: str = ""
    """The fields of JSON, as a DDL of Spark."""
    why: str = ""

    @property
    def fields(self) -> list[str]:
        return fields_of(self.schema)


def guess_format(values: Sequence[bytes | None]) -> Guess:
    """Returns what most values are. Without values there is nothing to go by: text."""
    there = [value for value in values if value is not None]
    if not there:
        return Guess(TEXT, why="the topic is empty" if not values else "there are only null values")
    objects = [found for found in map(_object, there) if found is not None]
    if len(objects) >= max(1, _LEAST_SHARE * len(there)):
        bad = len(there) - len(objects)
        aside = f"; {bad} of {len(there)} are something else" if bad else ""
        return Guess(JSON, schema_of(objects), f"JSON objects{aside}")
    if all(len(value) > 5 and value[0] == 0 for value in there):
        ids = sorted({int.from_bytes(value[1:5], "big") for value in there})
        shown = ", ".join(map(str, ids[:5]))
        return Guess(BINARY, why=f"they begin as with a schema registry (schema id {shown})")
    if all(_is_text(value) for value in there):
        return Guess(TEXT, why="text in UTF-8")
    return Guess(BINARY, why="no text in UTF-8")


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found else None


def _is_text(value: bytes) -> bool:
    try:
        return "\x00" not in value.decode()
    except UnicodeDecodeError:
        return False


# --- schemas ------------------------------------------------------------------------------------------


def schema_of(objects: Sequence[dict[str, Any]]) -> str:
    """Returns the DDL of the fields that these objects have, in the order in which they first come."""
    names = dict.fromkeys(name for each in objects for name in each)
    return ", ".join(
        f"{quoted(name)} {_type([each.get(name) for each in objects])}" for name in names if name
    )


def quoted(name: str) -> str:
    """Returns a name as SQL has it: with backticks if it is no plain one."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def fields_of(schema: str) -> list[str]:
    """Returns the names of the columns of a DDL, as SQL has them; commas within types and backticks do not count."""
    parts, depth, is_quoted = [""], 0, False
    for character in schema:
        if character == "`":
            is_quoted = not is_quoted
        elif not is_quoted and character in "<(":
            depth += 1
        elif not is_quoted and character in ">)":
            depth -= 1
        if character == "," and not depth and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    found = [re.match(r"\s*(`(?:[^`]|``)+`|[^\s:]+)", part) for part in parts if part.strip()]
    return [each[1] for each in found if each is not None]


def _type(values: list[Any]) -> str:
    """Returns the type that fits all values: STRING if they are of several kinds, or if all are null."""
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if len(kinds) != 1:
        return "STRING"
    (kind,) = kinds
    there = [value for value in values if value is not None]
    if kind == "STRUCT":
        inside = [each for each in there if each]
        names = dict.fromkeys(name for each in inside for name in each if name)
        if not names:
            return "STRING"
        fields = ", ".join(f"{quoted(n)}: {_type([each.get(n) for each in inside])}" for n in names)
        return f"STRUCT<{fields}>"
    if kind == "ARRAY":
        return f"ARRAY<{_type([each for array in there for each in array])}>"
    return kind


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -_LARGEST <= value < _LARGEST else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, dict):
        return "STRUCT"
    if isinstance(value, list):
        return "ARRAY"
    return "TIMESTAMP" if _TIMESTAMP.fullmatch(str(value)) else "STRING"
