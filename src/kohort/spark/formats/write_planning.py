"""Plans on the driver how the sink encodes rows: with which schema, and under which id it is in the registry."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
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
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kohort.settings import SettingError
from kohort.spark.formats.decoding import missing_package
from kohort.spark.formats.encoding import ColumnEncoding
from kohort.spark.formats.format_options import ColumnFormat, RecordFormats
from kohort.spark.formats.planning import KINDS, SchemaSource, check_part, schema_of

NOT_IN_VALUE = ("topic", "key", "headers", "partition")
"""Columns that say where and how a record is written; the others make the value, if there is no column `value`."""


def plan_encoding(formats: RecordFormats, rows: StructType, topic: str | None) -> tuple[ColumnEncoding, ...]:
    """How keys and values are encoded; SettingError if rows of this type do not fit the schema."""
    made = []
    for column in formats.typed:
        fields: tuple[str, ...] = ()
        if column.column in rows.names:
            kind = rows[column.column].dataType
        elif column.column == "key":
            raise SettingError(f"keyFormat={column.format} needs a column 'key'")
        elif column.format == "string":
            raise SettingError("Required attribute 'value' not found")
        else:
            fields = tuple(name for name in rows.names if name not in NOT_IN_VALUE)
            if not fields:
                raise SettingError("there is no column 'value', and no others that could make it")
            kind = StructType([rows[name] for name in fields])
        try:
            made.append(_encoding(formats, column, kind, fields, topic))
        except ImportError as error:
            raise missing_package(column.format, error) from error
    return tuple(made)


def _encoding(
    formats: RecordFormats, column: ColumnFormat, kind: DataType, fields: tuple[str, ...], topic: str | None
) -> ColumnEncoding:
    if column.format == "string":
        if not isinstance(kind, AtomicType) or isinstance(kind, BinaryType):
            raise SettingError(
                f"the column '{column.column}' is {kind.simpleString()}, which is no text: choose another format"
            )
        return ColumnEncoding(column.column, "string")
    schema = _schema(formats, column, kind, topic)
    is_given = column.schema is not None or schema.id is not None
    text, descriptors, name, path = schema.text or "", b"", None, None
    if column.format == "avro":
        from kohort.spark.formats.avro_schema import read_avro, spark_type, with_references

        text = with_references(text, schema.references)
        avro = read_avro(text)
        text, name = json.dumps(json.loads(text) if text.strip()[:1] in '{["' else text), avro.name or None
        if is_given:
            _check(kind, spark_type(avro), column.column)
    elif column.format == "protobuf":
        from kohort.serde.protobuf import indexes_of
        from kohort.spark.formats.protobuf_schema import find_message
        from kohort.spark.formats.protobuf_types import message_type

        found = find_message(text, schema.references, column.message_name, column.option("MessageName"))
        descriptors, name, path = found.descriptors, found.descriptor.full_name, indexes_of(found.descriptor)
        _check(kind, message_type(found.descriptor), column.column)
    else:
        name = _title(text)
    frame = b""
    if formats.registry is not None:
        number = (
            schema.id
            if schema.id is not None
            else _registered(formats, column, schema.text or "", name, topic)
        )
        frame = _frame(number, path)
    kept = {"avro": text, "protobuf": name or "", "json": ""}[column.format]
    return ColumnEncoding(column.column, column.format, fields, kept, descriptors, frame)


def _frame(number: int, path: tuple[int, ...] | None) -> bytes:
    from kohort.serde.framing import frame, frame_message

    return frame(number) if path is None else frame_message(number, path)


def _schema(formats: RecordFormats, column: ColumnFormat, kind: DataType, topic: str | None) -> SchemaSource:
    """The schema to write with: of the options, of the registry if they say so, else one made of the rows' type."""
    from_registry = formats.writing.get("use.latest.version", False) or column.schema_id is not None
    if column.schema is not None:
        if from_registry:
            raise SettingError(
                f"use.latest.version, {column.option('SchemaId')} and {column.option('Schema')} exclude each other"
            )
        return SchemaSource(column.schema)
    if from_registry:
        if formats.registry is None:
            raise SettingError("use.latest.version needs schema.registry.url")
        return schema_of(formats, column, () if topic is None else (topic,))
    if column.format == "protobuf":
        raise SettingError(
            f"{column.option('Format')}=protobuf needs {column.option('Schema')}, or use.latest.version with a registry"
        )
    return SchemaSource(json.dumps(avro_schema(kind) if column.format == "avro" else json_schema(kind)))


def _registered(
    formats: RecordFormats, column: ColumnFormat, text: str, name: str | None, topic: str | None
) -> int:
    """The id of the schema in the registry, where it is registered if that is not forbidden."""
    from kohort.serde.registry import SchemaRegistry
    from kohort.serde.subjects import record_name_strategy, subject_name_strategy

    assert formats.registry is not None
    registry = SchemaRegistry.shared(formats.registry)
    subject = column.subject
    if subject is None:
        strategy = subject_name_strategy(column.strategy)
        if topic is None and strategy is not record_name_strategy:
            raise SettingError(
                f"the topic is in a column, so name the subject with {column.option('Subject')}"
            )
        subject = strategy(topic or "", column.column == "key", name)
    kind: Any = KINDS[column.format]
    normalize = formats.writing.get("normalize.schemas", False)
    if formats.writing.get("auto.register.schemas", True):
        return registry.register(subject, kind, text, normalize=normalize)
    return registry.lookup(subject, kind, text, normalize=normalize).id


def _title(text: str) -> str | None:
    try:
        found = json.loads(text)
    except ValueError:
        raise SettingError(
            "the JSON Schema is no JSON: give valueSchema as a JSON Schema, or leave it out"
        ) from None
    return str(found["title"]) if isinstance(found, dict) and "title" in found else None


def _check(rows: DataType, schema: DataType, where: str) -> None:
    """SettingError if rows have fields that the schema does not have, or of other types."""
    try:
        check_part(rows, schema, where)
    except SettingError as error:
        raise SettingError(f"the rows do not fit the schema: {error}") from None


# --- schemas made of types ------------------------------------------------------------------------------------

_AVRO: dict[type[DataType], Any] = {
    BooleanType: "boolean", ByteType: "int", ShortType: "int", IntegerType: "int", LongType: "long", FloatType: "float",
    DoubleType: "double", StringType: "string", BinaryType: "bytes", DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip
_JSON: dict[type[DataType], Any] = {
    BooleanType: "boolean", ByteType: "integer", ShortType: "integer", IntegerType: "integer", LongType: "integer",
    FloatType: "number", DoubleType: "number", DecimalType: "number", StringType: "string", BinaryType: "string",
    DateType: "string", TimestampType: "string", TimestampNTZType: "string",
}  # fmt: skip


def avro_schema(kind: DataType, name: str = "topLevelRecord", nullable: bool = False) -> Any:
    """The Avro schema of a type, as Spark's to_avro makes it."""
    made: Any
    if isinstance(kind, StructType):
        fields = [
            {"name": each.name, "type": avro_schema(each.dataType, f"{name}.{each.name}", each.nullable)}
            for each in kind.fields
        ]
        made = {"type": "record", "name": name.rpartition(".")[2], "fields": fields}
        if "." in name:
            made["namespace"] = name.rpartition(".")[0]
    elif isinstance(kind, ArrayType):
        made = {"type": "array", "items": avro_schema(kind.elementType, name, kind.containsNull)}
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        made = {"type": "map", "values": avro_schema(kind.valueType, name, kind.valueContainsNull)}
    elif isinstance(kind, DecimalType):
        made = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    else:
        made = next((schema for plain, schema in _AVRO.items() if isinstance(kind, plain)), None)
        if made is None:
            raise SettingError(f"Avro has no type for {kind.simpleString()}: cast it, or leave it out")
    return [made, "null"] if nullable else made


def json_schema(kind: DataType) -> Any:
    """The JSON Schema of what is written for a type."""
    if isinstance(kind, StructType):
        return {
            "type": "object",
            "properties": {each.name: json_schema(each.dataType) for each in kind.fields},
        }
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": json_schema(kind.elementType)}
    if isinstance(kind, MapType):
        return {"type": "object", "additionalProperties": json_schema(kind.valueType)}
    made = next((name for plain, name in _JSON.items() if isinstance(kind, plain)), None)
    if made is None:
        raise SettingError(f"JSON has no type for {kind.simpleString()}: cast it, or leave it out")
    return {"type": made}
