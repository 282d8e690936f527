"""Reads schemas as Spark's users write them: DDL (`id bigint, tags array<string>`) or the JSON of a StructType.

Spark's own parser is in the JVM, which the processes that plan and run a Python data source cannot reach.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_WORDS: dict[str, type[DataType]] = {
    "boolean": BooleanType, "tinyint": ByteType, "byte": ByteType, "smallint": ShortType, "short": ShortType,
    "int": IntegerType, "integer": IntegerType, "bigint": LongType, "long": LongType, "float": FloatType,
    "real": FloatType, "double": DoubleType, "string": StringType, "binary": BinaryType, "date": DateType,
    "timestamp": TimestampType, "timestamp_ltz": TimestampType, "timestamp_ntz": TimestampNTZType,
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(?P<name>`(?:[^`]|``)+`|\w+)|(?P<sign>[<>:,()])|(?P<text>'[^']*'|\"[^\"]*\"))")
LARGEST_PRECISION = 38


class SchemaTextError(ValueError):
    """A schema that cannot be read; the text says where."""


def read_schema(text: str) -> DataType:
    """The type that a text describes, with every field nullable; SchemaTextError says what is wrong with it.

    A text of columns (`id bigint, name string`) is a struct, as for from_json.
    """
    if text.lstrip().startswith(("{", '"')):
        return nullable(_from_json(text))
    try:
        return nullable(_Parser(text).whole_type())
    except SchemaTextError:
        return nullable(_Parser(text).columns())


def nullable(kind: DataType) -> DataType:
    """The same type with everything in it nullable."""
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, nullable(each.dataType)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType))
    return kind


def _from_json(text: str) -> DataType:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SchemaTextError(f"it looks like JSON and is none: {error}") from None
    from pyspark.sql.types import _parse_datatype_json_value

    try:
        return _parse_datatype_json_value(found)
    except Exception as error:
        raise SchemaTextError(f"it is not the JSON of a Spark type: {error}") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise SchemaTextError(f"'{text[at:].strip()[:20]}' cannot be read")
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def whole_type(self) -> DataType:
        kind = self._type()
        if self._at < len(self._tokens):
            raise SchemaTextError(f"'{self._tokens[self._at]}' after the type is too much")
        return kind

    def columns(self) -> StructType:
        fields = self._fields(None)
        if self._at < len(self._tokens):
            raise SchemaTextError(f"'{self._tokens[self._at]}' was not expected")
        return StructType(fields)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise SchemaTextError("it ends too early")
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        found = self._peek()
        if found != sign:
            raise SchemaTextError(
                f"'{sign}' is missing before '{found}'" if found else f"'{sign}' is missing at the end"
            )
        self._at += 1

    def _fields(self, end: str | None) -> list[StructField]:
        fields: list[StructField] = []
        while True:
            name = self._take()
            if not re.match(r"[\w`]", name):
                raise SchemaTextError(f"'{name}' is no name of a field")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._at += 1
            kind = self._type()
            self._skip_words()
            if name in (each.name for each in fields):
                raise SchemaTextError(f"the field '{name}' is there twice")
            fields.append(StructField(name, kind))
            if self._peek() != ",":
                break
            self._at += 1
        if end is not None:
            self._expect(end)
        return fields

    def _skip_words(self) -> None:
        """NOT NULL and COMMENT, which say nothing here: every field is nullable."""
        if self._peek().lower() == "not":
            self._at += 1
            if self._take().lower() != "null":
                raise SchemaTextError("NOT is followed by NULL")
        if self._peek().lower() == "comment":
            self._at += 1
            if self._take()[0] not in "'\"":
                raise SchemaTextError("COMMENT is followed by a text in quotes")

    def _type(self) -> DataType:
        word = self._take().lower()
        if word in _WORDS:
            return _WORDS[word]()
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return ArrayType(element)
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return MapType(key, value)
        if word == "struct":
            self._expect("<")
            return StructType(self._fields(">"))
        known: Sequence[str] = (*_WORDS, "decimal(p,s)", "array<…>", "map<…>", "struct<…>")
        raise SchemaTextError(f"'{word}' is no type; types are {', '.join(known)}")

    def _decimal(self) -> DecimalType:
        if self._peek() != "(":
            return DecimalType()
        self._at += 1
        precision, scale = self._number(), 0
        if self._peek() == ",":
            self._at += 1
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= LARGEST_PRECISION or not 0 <= scale <= precision:
            raise SchemaTextError(
                f"decimal({precision},{scale}): the precision is 1 to 38, the scale not above it"
            )
        return DecimalType(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise SchemaTextError(f"'{token}' is no number")
        return int(token)
