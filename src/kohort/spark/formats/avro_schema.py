"""Reads Avro schemas into a tree, and says which Spark type each has: the one that Spark's from_avro gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kohort.settings import SettingError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LARGEST_PRECISION = 38
NO_DEFAULT = object()


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AvroType:
    """One type in a schema, with what belongs to its kind."""

    kind: str
    name: str = ""
    logical: str = ""
    fields: tuple[AvroField, ...] = ()
    inner: tuple[AvroType, ...] = ()
    """The items of an array, the values of a map, the branches of a union."""
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    default: Any = None
    """Of an enum: the symbol for those that the reader does not know."""


def read_avro(text: str) -> AvroType:
    """The tree of a schema; SettingError if it is none, or if a type contains itself."""
    return _Reader().read(_parsed(text), "", ())


def with_references(text: str, references: Mapping[str, str]) -> str:
    """A schema with the named types that it refers to written into it, where it uses them first.

    `references` are the texts of other schemas, in an order in which they can be read.
    """
    if not references:
        return text
    named: dict[str, Any] = {}
    for each in references.values():
        _collect(_parsed(each), "", named)
    return json.dumps(_inlined(_parsed(text), "", named, set()))


def _parsed(text: str) -> Any:
    stripped = text.strip()
    if stripped in PRIMITIVES:
        return stripped
    try:
        return json.loads(stripped)
    except ValueError as error:
        raise SettingError(f"the Avro schema is no JSON: {error}") from None


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _space_of(schema: Mapping[str, Any], space: str) -> str:
    name = str(schema.get("name", ""))
    return name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))


def _is_named(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") in ("record", "error", "enum", "fixed")


def _collect(schema: Any, space: str, named: dict[str, Any]) -> None:
    """Notes each named type under its full name."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, space, named)
    elif isinstance(schema, dict):
        if _is_named(schema):
            space = _space_of(schema, space)
            full = _full(str(schema["name"]), space)
            named[full] = {**schema, "name": full}
            named[full].pop("namespace", None)
        for each in schema.get("fields", ()):
            _collect(each["type"], space, named)
        for part in ("items", "values"):
            if part in schema:
                _collect(schema[part], space, named)
        if isinstance(schema.get("type"), dict | list):
            _collect(schema["type"], space, named)


def _inlined(schema: Any, space: str, named: Mapping[str, Any], done: set[str]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, space, named, done) for each in schema]
    if isinstance(schema, str):
        full = schema if schema in named else _full(schema, space)
        if schema in PRIMITIVES or full not in named or full in done:
            return full if full in done else schema
        return _inlined(named[full], "", named, done)
    made = dict(schema)
    if _is_named(schema):
        space = _space_of(schema, space)
        done.add(_full(str(schema["name"]), space))
    if "fields" in made:
        made["fields"] = [
            {**each, "type": _inlined(each["type"], space, named, done)} for each in made["fields"]
        ]
    for part in ("items", "values"):
        if part in made:
            made[part] = _inlined(made[part], space, named, done)
    if isinstance(made.get("type"), dict | list):
        made["type"] = _inlined(made["type"], space, named, done)
    return made


class _Reader:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._space: dict[str, str] = {}

    def read(self, schema: Any, space: str, open_names: tuple[str, ...]) -> AvroType:
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return AvroType(schema)
            full = schema if schema in self._named else _full(schema, space)
            if full in open_names:
                raise SettingError(
                    f"the Avro type {full} contains itself; Spark has no recursive types: leave that field out"
                )
            if full not in self._named:
                raise SettingError(f"the Avro schema has no type {schema}")
            return self.read(self._named[full], self._space[full], open_names)
        if isinstance(schema, list):
            return AvroType("union", inner=tuple(self.read(each, space, open_names) for each in schema))
        if not isinstance(schema, dict) or "type" not in schema:
            raise SettingError(f"{json.dumps(schema)[:60]} is no Avro type")
        kind = schema["type"]
        if not isinstance(kind, str) or kind not in (
            *PRIMITIVES,
            "record",
            "error",
            "enum",
            "fixed",
            "array",
            "map",
        ):
            return self.read(kind, space, open_names)
        if _is_named(schema):
            return self._read_named(schema, space, open_names)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in schema:
                raise SettingError(f"an Avro {kind} needs '{part}'")
            return AvroType(kind, inner=(self.read(schema[part], space, open_names),))
        return AvroType(kind, logical=str(schema.get("logicalType", "")), **_decimal(schema))

    def _read_named(self, schema: Any, space: str, open_names: tuple[str, ...]) -> AvroType:
        if "name" not in schema:
            raise SettingError(f"an Avro {schema['type']} needs a name")
        space = _space_of(schema, space)
        full = _full(str(schema["name"]), space)
        self._named[full], self._space[full] = schema, space
        if schema["type"] == "enum":
            return AvroType(
                "enum", full, symbols=tuple(schema.get("symbols", ())), default=schema.get("default")
            )
        if schema["type"] == "fixed":
            size, logical = int(schema.get("size", 0)), str(schema.get("logicalType", ""))
            return AvroType("fixed", full, logical, size=size, **_decimal(schema))
        inside = (*open_names, full)
        fields = tuple(
            AvroField(
                str(each["name"]),
                self.read(each["type"], space, inside),
                each.get("default", NO_DEFAULT),
                tuple(each.get("aliases", ())),
            )
            for each in schema.get("fields", ())
        )
        return AvroType("record", full, fields=fields)


def _decimal(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("logicalType") != "decimal":
        return {}
    precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
    if not 1 <= precision <= LARGEST_PRECISION or not 0 <= scale <= precision:
        raise SettingError(
            f"an Avro decimal({precision},{scale}) does not fit Spark's, whose precision is 1 to 38"
        )
    return {"precision": precision, "scale": scale}


# --- Spark's types ----------------------------------------------------------------------------------------

_SPARK: dict[str, DataType] = {
    "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(), "double": DoubleType(),
    "string": StringType(), "enum": StringType(), "bytes": BinaryType(), "fixed": BinaryType(),
}  # fmt: skip
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}


def members(kind: AvroType) -> list[AvroType]:
    """The branches of a union that are not null; of another type itself."""
    return [each for each in kind.inner if each.kind != "null"] if kind.kind == "union" else [kind]


def widened(branches: list[AvroType]) -> str:
    """The one type of a union of numbers, as from_avro has it: long for int and long; empty if there is none."""
    kinds = {each.kind for each in branches if not each.logical}
    if len(kinds) == len(branches) == 2:
        return {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}.get(
            frozenset(kinds), ""
        )
    return ""


def spark_type(kind: AvroType) -> DataType:
    """The type that from_avro gives, with everything nullable."""
    if kind.kind == "record":
        if not kind.fields:
            raise SettingError(
                f"the Avro record {kind.name} has no fields, which Spark cannot have as a column"
            )
        return StructType([StructField(each.name, spark_type(each.type)) for each in kind.fields])
    if kind.kind == "array":
        return ArrayType(spark_type(kind.inner[0]))
    if kind.kind == "map":
        return MapType(StringType(), spark_type(kind.inner[0]))
    if kind.kind == "union":
        branches = members(kind)
        if len(branches) == 1:
            return spark_type(branches[0])
        if widened(branches):
            return _SPARK[widened(branches)]
        if branches:
            return StructType(
                [StructField(f"member{at}", spark_type(each)) for at, each in enumerate(branches)]
            )
    if kind.precision:
        return DecimalType(kind.precision, kind.scale)
    found = _LOGICAL.get((kind.kind, kind.logical)) or _SPARK.get(kind.kind)
    if found is None:
        raise SettingError(f"Spark has no type for the Avro type {kind.kind} alone")
    return found
