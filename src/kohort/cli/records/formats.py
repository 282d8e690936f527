"""What `consume` prints of records: text, a format as kcat takes it, JSON lines, or bytes as they are.

A format becomes a template for the operator % and a column for each of its fields, so that the loop over the records
of a poll runs in C: a million records take well under a second.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import repeat
from operator import itemgetter
from typing import Any

import click

from kohort.cli.records.envelope import failed_field, field_of, json_line, object_field
from kohort.cli.records.escapes import for_terminal, json_for_terminal, unescaped
from kohort.cli.records.serdes import Deserialize, as_text
from kohort.client.records import Record
from kohort.errors import KohortError

Rows = Sequence[Record[Any, Any]]
"""Records of one partition."""
Column = Callable[[Rows], Iterable[Any]]

_FIELD = re.compile(r"%(.|$)", re.DOTALL)
_LETTERS = "tpoksKSRThI"
_SHOWN_FAILURES = 5
_offset, _timestamp, _key, _value = itemgetter(2), itemgetter(3), itemgetter(5), itemgetter(6)


@dataclass(slots=True)
class Rendering:
    """How keys and values are shown: by which deserializers, for a terminal or not, and what stands for a null."""

    key: Deserialize | None = None
    value: Deserialize | None = None
    pretty_key: bool = False
    pretty_value: bool = False
    null: bytes = b""
    to_terminal: bool = False
    failures: int = field(default=0, init=False)
    """How many keys and values a deserializer could not read."""

    def text(self, name: str, record: Record[Any, Any]) -> bytes:
        """Returns the key or the value of a record as it is shown."""
        data = record.key if name == "key" else record.value
        if data is None:
            return self.null
        read = self.key if name == "key" else self.value
        if read is not None:
            pretty = self.pretty_key if name == "key" else self.pretty_value
            try:
                data = as_text(read(record.topic, data), pretty=pretty)
            except (KohortError, ValueError, RecursionError) as error:
                self._failed(name, record, error)
        return for_terminal(data) if self.to_terminal else data

    def json_field(self, name: str, record: Record[Any, Any]) -> str:
        """Returns the field of the key or the value in a line of JSON."""
        data = record.key if name == "key" else record.value
        read = self.key if name == "key" else self.value
        if read is None or data is None:
            return field_of(name, data)
        try:
            return object_field(name, read(record.topic, data))
        except (KohortError, ValueError, RecursionError) as error:
            self._failed(name, record, error)
            return failed_field(name, data, str(error))

    def is_plain(self, name: str) -> bool:
        """Tells whether bytes are shown as they are."""
        return not self.to_terminal and (self.key if name == "key" else self.value) is None

    def _failed(self, name: str, record: Record[Any, Any], error: Exception) -> None:
        self.failures += 1
        if self.failures <= _SHOWN_FAILURES:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            print(f"kohort: the {name} of {where} is shown as it is: {error}", file=sys.stderr)
        elif self.failures == _SHOWN_FAILURES + 1:
            print("kohort: more of them are shown as they are", file=sys.stderr)


class TextFormat:
    """Prints records by a format: literal texts, and fields such as %t, %o and %s."""

    def __init__(self, parts: Sequence[bytes | str], how: Rendering) -> None:
        """Takes literals as bytes and fields as letters."""
        letters = [part for part in parts if isinstance(part, str)]
        self._columns = [_column(letter, how) for letter in letters]
        self._template = b"".join(
            part.replace(b"%", b"%%") if isinstance(part, bytes) else _PLACES.get(part, b"%b")
            for part in parts
        )

    def __call__(self, rows: Rows) -> bytes:
        if not self._columns:
            return (self._template % ()) * len(rows)
        made = list(rows)  # once for all columns
        columns = [column(made) for column in self._columns]
        return b"".join(map(self._template.__mod__, zip(*columns, strict=False)))


_PLACES = dict.fromkeys("poTSK", b"%d")


def value_format(delimiter: bytes, how: Rendering) -> Callable[[Rows], bytes]:
    """Prints values alone, each with the delimiter behind it: the quickest way, and the most common one."""
    ordinary = TextFormat(["s", delimiter], how)
    if not how.is_plain("value"):
        return ordinary

    def quick(rows: Rows) -> bytes:
        try:
            return delimiter.join(map(_value, rows)) + delimiter if len(rows) else b""
        except TypeError:  # a null
            return ordinary(rows)

    return quick


def json_format(how: Rendering) -> Callable[[Rows], bytes]:
    """Prints a line of JSON for each record."""

    def lines(rows: Rows) -> bytes:
        made = [json_line(row, how.json_field("key", row), how.json_field("value", row)) for row in rows]
        if how.to_terminal:
            made = [json_for_terminal(line) for line in made]
        made.append("")
        return "\n".join(made).encode("utf-8", "surrogatepass")

    return lines


def parsed_format(text: str) -> list[bytes | str]:
    """Reads a format as kcat takes it, into literals and the letters of fields."""
    parts: list[bytes | str] = []
    at = 0
    for found in _FIELD.finditer(text):
        if found.start() > at:
            parts.append(unescaped(text[at : found.start()]))
        letter = found[1]
        if letter == "%":
            parts.append(b"%")
        elif letter and letter in _LETTERS:
            parts.append(letter)
        else:
            raise click.UsageError(
                f"-f has %{letter}, which is no field: there are %t topic, %p partition, %o offset, %k key, %s value, "
                "%h headers, %T timestamp in ms, %I timestamp in ISO form, %K and %S sizes of key and value, "
                "%R size of the value in 4 bytes, and %% for %"
            )
        at = found.end()
    if at < len(text):
        parts.append(unescaped(text[at:]))
    return parts


# --- the columns --------------------------------------------------------------------------------------


def _column(letter: str, how: Rendering) -> Column:
    if letter in "ks":
        return _bytes_column("key" if letter == "k" else "value", how)
    simple: dict[str, Column] = {
        "t": lambda rows: repeat(rows[0].topic.encode(), len(rows)),
        "p": lambda rows: repeat(rows[0].partition, len(rows)),
        "o": lambda rows: map(_offset, rows),
        "T": lambda rows: map(_timestamp, rows),
        "K": lambda rows: (_size(row.key) for row in rows),
        "S": lambda rows: (_size(row.value) for row in rows),
        "R": lambda rows: (struct.pack(">i", _size(row.value)) for row in rows),
        "I": lambda rows: (_iso_time(row.timestamp) for row in rows),
        "h": lambda rows: (_headers(row, how.to_terminal) for row in rows),
    }
    return simple[letter]


def _bytes_column(name: str, how: Rendering) -> Column:
    item = _key if name == "key" else _value

    def column(rows: Rows) -> Iterable[bytes]:
        if how.is_plain(name):
            null = how.null
            return [null if data is None else data for data in map(item, rows)]
        return [how.text(name, row) for row in rows]

    return column


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _iso_time(timestamp_ms: int) -> bytes:
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return b"%d" % timestamp_ms  # beyond the year 9999, or before the year 1
    return (
        b"-" if timestamp_ms < 0 else when.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
    )


def _headers(row: Record[Any, Any], to_terminal: bool) -> bytes:
    pairs = [
        b"%b=%b" % (name.encode("utf-8", "surrogateescape"), b"NULL" if data is None else data)
        for name, data in row.header_pairs
    ]
    return for_terminal(b",".join(pairs)) if to_terminal else b",".join(pairs)
