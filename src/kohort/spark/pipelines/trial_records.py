"""Reads the records of a trial from files: JSON lines, CSV with a header, or lines of text.

A line of JSON is the value of a record, as it stands. An object with `value` (or `value_base64`) and no other fields
than `key`, `key_base64`, `headers`, `timestamp`, `partition` and `topic` is a whole record.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kohort.settings import nearest
from kohort.spark.pipelines.definition import PipelineError

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".txt")
_VALUES = ("value", "value_base64")
FIELDS = (*_VALUES, "key", "key_base64", "headers", "timestamp", "partition", "topic")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A record that is written to a topic before the pipeline runs."""

    value: bytes | None
    key: bytes | None = None
    headers: dict[str, bytes | None] = field(default_factory=dict)
    timestamp_ms: int | None = None
    partition: int | None = None
    topic: str | None = None
    """None: the topic that its file is for."""


# --- files --------------------------------------------------------------------------------------------


def read_given(
    given: Iterable[str], topics: tuple[str, ...], *, plain: bool = False
) -> dict[str, list[TrialRecord]]:
    """Reads what `--records` names: `FILE`, `TOPIC=FILE`, or a folder with a file for each topic, `TOPIC.jsonl`.

    With `plain`, each line of JSON is a value, whatever its fields are. Returns the records of each topic.
    """
    found: dict[str, list[TrialRecord]] = {topic: [] for topic in topics}
    for topic, path in (each for text in given for each in _files(text)):
        default = topic or (topics[0] if len(topics) == 1 else None)
        for place, record in read_records(path, plain=plain):
            named = record.topic or default
            if named is None:
                raise PipelineError(
                    f"{place}: which topic is it for? The pipeline reads {', '.join(topics) or 'a pattern'}: write "
                    f'--records TOPIC={path}, or "topic" into the record'
                )
            if topics and named not in found:
                raise PipelineError(
                    f"{place}: the pipeline does not read the topic {named}{nearest(named, topics)}; it reads "
                    f"{', '.join(topics)}"
                )
            found.setdefault(named, []).append(record)
    return found


def _files(text: str) -> Iterator[tuple[str | None, Path]]:
    path, topic = Path(text), None
    if not path.exists() and "=" in text:
        topic, _, rest = text.partition("=")
        path = Path(rest)
    if path.is_dir():
        inside = sorted(each for each in path.iterdir() if each.suffix.lower() in SUFFIXES)
        if not inside:
            raise PipelineError(
                f"{path} holds no records: name the files TOPIC.jsonl, TOPIC.csv or TOPIC.txt"
            )
        yield from ((topic or each.stem, each) for each in inside)
    elif not path.is_file():
        raise PipelineError(f"there is no file {path} with records")
    else:
        yield topic, path


def read_records(path: Path, *, plain: bool = False) -> Iterator[tuple[str, TrialRecord]]:
    """Yields the records of a file, each with its place for messages, as in `orders.jsonl line 3`."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise PipelineError(f"{path}: records are in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} files")
    if suffix == ".txt":
        for number, line in enumerate(read_text(path).splitlines(), 1):
            yield f"{path} line {number}", TrialRecord(line.encode())
        return
    for number, fields, text in rows_of_file(path):
        place = f"{path} line {number}"
        if plain or not is_whole(fields):
            yield place, TrialRecord(text.encode())
        else:
            yield place, whole_record(fields, place)


def rows_of_file(path: Path) -> Iterator[tuple[int, Any, str]]:
    """Yields each line of JSON, or row of CSV as an object, with its number and its text as JSON."""
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(text.splitlines(keepends=True), strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise PipelineError(
                        f"{path} line {reader.line_num}: it has another number of cells than the header"
                    )
                fields = {name: _cell(cell) for name, cell in row.items()}
                yield reader.line_num, fields, json.dumps(fields, ensure_ascii=False)
        except csv.Error as error:  # the line that it is in was not counted yet
            raise PipelineError(f"{path} line {reader.line_num + 1}: {error}") from None
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line), line.strip()
            except ValueError as error:
                raise PipelineError(
                    f"{path} line {number}: no JSON: {error}. Each line is a value of its own; text that is no JSON is "
                    'written as {"value": "the text"}'
                ) from None


def read_text(path: Path) -> str:
    """Reads a file as UTF-8, with or without a byte order mark."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise PipelineError(f"{path} is not a text in UTF-8") from None
    except OSError as error:
        raise PipelineError(f"cannot read {path}: {error.strerror}") from None


def _cell(text: str) -> Any:
    """Returns a cell of CSV as JSON has it: empty is null, numbers and true and false are what they look like."""
    if text == "":
        return None
    if text in ("true", "false"):
        return text == "true"
    return json.loads(text) if _NUMBER.fullmatch(text) else text


# --- records ------------------------------------------------------------------------------------------


def is_whole(fields: object) -> bool:
    """Whether an object is a whole record, and not a value."""
    return isinstance(fields, dict) and set(fields) <= set(FIELDS) and any(name in fields for name in _VALUES)


def whole_record(fields: Mapping[str, Any], place: str) -> TrialRecord:
    """Returns the record of an object with `value`, `key` and so on; PipelineError says what is wrong with it."""
    headers = fields.get("headers") or {}
    if not isinstance(headers, dict):
        raise PipelineError(f'{place}: headers is an object, as in {{"trace": "1"}}, not {headers!r}')
    partition = fields.get("partition")
    if partition is not None and (
        isinstance(partition, bool) or not isinstance(partition, int) or partition < 0
    ):
        raise PipelineError(f"{place}: partition is a number from 0 on, not {partition!r}")
    topic = fields.get("topic")
    return TrialRecord(
        _side(fields, "value", place),
        _side(fields, "key", place),
        {str(name): _bytes(value) for name, value in headers.items()},
        _timestamp_ms(fields.get("timestamp"), place),
        partition,
        None if topic is None else str(topic),
    )


def _side(fields: Mapping[str, Any], name: str, place: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is None:
        return _bytes(fields.get(name))
    if fields.get(name) is not None:
        raise PipelineError(f"{place}: {name} and {name}_base64 cannot both be given")
    try:
        return base64.b64decode(str(encoded), validate=True)
    except (binascii.Error, ValueError):
        raise PipelineError(f"{place}: {name}_base64 is no base64") from None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _timestamp_ms(value: Any, place: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise PipelineError(
            f"{place}: timestamp is in milliseconds, or as in 2026-11-16T12:00:00Z, not {value!r}"
        ) from None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
