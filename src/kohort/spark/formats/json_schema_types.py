"""Says which Spark type a JSON Schema has, as a schema registry holds it for JSON records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from kohort.settings import SettingError

_SIMPLE: dict[str, DataType] = {
    "integer": LongType(), "number": DoubleType(), "string": StringType(), "boolean": BooleanType(),
    "null": StringType(),
}  # fmt: skip


def is_json_schema(text: str) -> bool:
    """Whether a text is a JSON Schema rather than the JSON of a Spark type, which are both objects."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    if not isinstance(found, dict):
        return False
    return (
        "$schema" in found
        or "properties" in found
        or found.get("type") in ("object", *_SIMPLE)
        or "$ref" in found
    )


def json_schema_type(text: str, references: Mapping[str, str] | None = None) -> DataType:
    """The type of a JSON Schema; SettingError names what has none. `references` are other schemas by their `$ref`."""
    try:
        root = json.loads(text)
    except ValueError as error:
        raise SettingError(f"the JSON Schema is no JSON: {error}") from None
    others = {name: json.loads(each) for name, each in (references or {}).items()}
    return _Types(root, others).type_of(root, root, "the schema", ())


class _Types:
    def __init__(self, root: Any, others: Mapping[str, Any]) -> None:
        self._root, self._others = root, others

    def type_of(self, schema: Any, document: Any, where: str, inside: tuple[str, ...]) -> DataType:
        if not isinstance(schema, dict):
            return StringType()  # true: anything, as text
        if "$ref" in schema:
            name = str(schema["$ref"])
            if name in inside:
                raise SettingError(
                    f"{where} refers to itself ({name}); Spark has no recursive types: leave that field out"
                )
            target, document = self._resolve(name, document, where)
            return self.type_of(target, document, where, (*inside, name))
        for word in ("oneOf", "anyOf", "allOf"):
            if word in schema:
                branches = [
                    each
                    for each in schema[word]
                    if not (isinstance(each, dict) and each.get("type") == "null")
                ]
                if len(branches) == 1:
                    return self.type_of(branches[0], document, where, inside)
                raise SettingError(
                    f"{where} has {word} of several types, for which Spark has no type: give valueSchema"
                )
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kinds = [each for each in kind if each != "null"]
            if len(kinds) != 1:
                return StringType()
            kind = kinds[0]
        if kind == "object":
            return self._object(schema, document, where, inside)
        if kind == "array":
            return ArrayType(self.type_of(schema.get("items", True), document, f"{where}[]", inside))
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind is None:
            return StringType()
        raise SettingError(f"{where} has the type {kind}, which JSON Schema does not have")

    def _object(self, schema: Any, document: Any, where: str, inside: tuple[str, ...]) -> DataType:
        properties = schema.get("properties") or {}
        if properties:
            fields = [
                StructField(name, self.type_of(each, document, f"{where}.{name}", inside))
                for name, each in properties.items()
            ]
            return StructType(fields)
        more = schema.get("additionalProperties", True)
        return MapType(StringType(), self.type_of(more, document, f"{where}.*", inside))

    def _resolve(self, name: str, document: Any, where: str) -> tuple[Any, Any]:
        """What a `$ref` stands for, and the document that its own references are in."""
        file, _, path = name.partition("#")
        if file:
            if file not in self._others:
                raise SettingError(f"{where} refers to {name}, which is not among the schema's references")
            document = self._others[file]
        found = document
        for part in path.strip("/").split("/") if path.strip("/") else ():
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                raise SettingError(f"{where} refers to {name}, which is not there")
            found = found[part]
        return found, document
