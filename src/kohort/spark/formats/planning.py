"""Plans typed columns on the driver: which type a schema gives, and how executors decode what a query asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from kohort.settings import SettingError
from kohort.spark.formats.arrow_types import NoArrowType, arrow_type
from kohort.spark.formats.ddl import SchemaTextError, nullable, read_schema
from kohort.spark.formats.decoding import ColumnDecoding, RecordDecoding, missing_package
from kohort.spark.formats.format_options import CORRUPT, ColumnFormat, ParseMode, RecordFormats
from kohort.spark.formats.json_schema_types import is_json_schema, json_schema_type

CORRUPT_TYPE = StructType(
    [
        StructField("reason", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """What a schema says: the type of the whole column, and what executors need of it."""

    kind: DataType | None
    """None: any type, whatever the query asks for."""
    schema: str = ""
    descriptors: bytes = b""
    schema_id: int | None = None


def typed_columns(formats: RecordFormats, topics: Sequence[str]) -> dict[str, DataType]:
    """The types of the columns that are not binary, and of `_corrupt` if bad records go there.

    `topics` are those that are subscribed to by name: the subject of a registry may depend on them.
    """
    found: dict[str, DataType] = {}
    for column in formats.typed:
        kind = planned_column(formats, column, topics).kind
        if kind is None:
            raise SettingError(
                f"{column.option('Format')}={column.format} needs to know the fields: give "
                f"{column.option('Schema')} (id bigint, name string), or schema.registry.url, or .schema(…) with "
                f"{column.column} struct<…>"
            )
        found[column.column] = kind
    if formats.mode is ParseMode.PERMISSIVE and formats.typed:
        found[CORRUPT] = CORRUPT_TYPE
    return found


def plan_decoding(formats: RecordFormats, asked: StructType, topics: Sequence[str]) -> RecordDecoding | None:
    """How executors decode the typed columns among those that are asked for; None: there are none.

    A query may ask for some of the fields only (`.schema("value struct<id:bigint>")`); the others are not decoded then.
    """
    columns = {}
    for column in formats.typed:
        if column.column not in asked.names and CORRUPT not in asked.names:
            continue
        planned = planned_column(formats, column, topics)
        kind = asked[column.column].dataType if column.column in asked.names else planned.kind
        if kind is None:
            raise SettingError(f"{CORRUPT} needs to know the fields: give {column.option('Schema')}")
        if nullable(kind) != kind:
            raise SettingError(
                f"the column '{column.column}' has fields that are NOT NULL: leave these words out"
            )
        if planned.kind is not None:
            check_part(kind, planned.kind, column.column)
        try:
            target = arrow_type(kind)
        except NoArrowType as error:
            raise SettingError(f"the column '{column.column}': {error}") from None
        columns[column.column] = ColumnDecoding(
            column.format,
            target,
            planned.schema,
            planned.descriptors,
            formats.registry if column.format != "string" else None,
            planned.schema_id,
            formats.emit_default_values,
        )
    return RecordDecoding(columns, formats.mode) if columns else None


def planned_column(formats: RecordFormats, column: ColumnFormat, topics: Sequence[str]) -> PlannedColumn:
    """What the schema of a column says, from the options or from the registry."""
    if column.format == "string":
        return PlannedColumn(StringType())
    schema = schema_of(formats, column, topics)
    try:
        return _PLANS[column.format](column, schema)
    except ImportError as error:
        raise missing_package(column.format, error) from error


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """A schema as the options or the registry have it."""

    text: str | None
    references: dict[str, str] = field(default_factory=dict)
    id: int | None = None
    subject: str | None = None


KINDS = {"json": "JSON", "avro": "AVRO", "protobuf": "PROTOBUF"}


def schema_of(formats: RecordFormats, column: ColumnFormat, topics: Sequence[str]) -> SchemaSource:
    """The schema that the options give, else the one that the registry has: by its id, or the latest of a subject."""
    if column.schema is not None or formats.registry is None:
        return SchemaSource(column.schema)
    from kohort.serde.registry import SchemaRegistry

    registry = SchemaRegistry.shared(formats.registry)
    if column.schema_id is not None:
        found = registry.schema(column.schema_id)
    else:
        found = registry.latest(subject_of(column, topics))
    if found.kind != KINDS[column.format]:
        what = f"schema id {found.id}" if found.subject is None else f"the subject {found.subject}"
        raise SettingError(
            f"{what} in the registry is {found.kind}, not {KINDS[column.format]}: set {column.option('Format')}"
        )
    others = {name: each.text for name, each in registry.references_of(found).items()}
    return SchemaSource(found.text, others, found.id, found.subject)


def subject_of(column: ColumnFormat, topics: Sequence[str]) -> str:
    """The subject whose latest schema is the reader's; SettingError if the options do not say which that is."""
    from kohort.serde.subjects import subject_name_strategy, topic_name_strategy

    if column.subject is not None:
        return column.subject
    if subject_name_strategy(column.strategy) is not topic_name_strategy:
        raise SettingError(
            f"with {column.column}.subject.name.strategy={column.strategy} the subject depends on the record: "
            f"name it with {column.option('Subject')}"
        )
    if len(topics) != 1:
        raise SettingError(
            f"several topics may have several schemas: name the one to read them by with {column.option('Subject')} or "
            f"{column.option('Schema')}"
        )
    return topic_name_strategy(topics[0], column.column == "key", None)


def _needed(column: ColumnFormat, schema: SchemaSource) -> str:
    if schema.text is None:
        raise SettingError(
            f"{column.option('Format')}={column.format} needs a schema: give {column.option('Schema')} or "
            "schema.registry.url"
        )
    return schema.text


def _json(column: ColumnFormat, schema: SchemaSource) -> PlannedColumn:
    if schema.text is None:
        return PlannedColumn(None)
    try:
        if schema.id is not None or is_json_schema(schema.text):
            return PlannedColumn(json_schema_type(schema.text, schema.references))
        return PlannedColumn(read_schema(schema.text))
    except SchemaTextError as error:
        raise SettingError(f"{column.option('Schema')}: {error}") from None


def _avro(column: ColumnFormat, schema: SchemaSource) -> PlannedColumn:
    from kohort.spark.formats.avro_schema import read_avro, spark_type, with_references

    text = with_references(_needed(column, schema), schema.references)
    return PlannedColumn(spark_type(read_avro(text)), text, schema_id=schema.id)


def _protobuf(column: ColumnFormat, schema: SchemaSource) -> PlannedColumn:
    from kohort.spark.formats.protobuf_schema import find_message
    from kohort.spark.formats.protobuf_types import message_type

    found = find_message(
        _needed(column, schema), schema.references, column.message_name, column.option("MessageName")
    )
    kind = message_type(found.descriptor)
    return PlannedColumn(kind, found.descriptor.full_name, found.descriptors, schema.id)


_PLANS: dict[str, Callable[[ColumnFormat, SchemaSource], PlannedColumn]] = {
    "json": _json,
    "avro": _avro,
    "protobuf": _protobuf,
}


def check_part(asked: DataType, whole: DataType, where: str) -> None:
    """SettingError unless `asked` is `whole`, or that with fewer fields, in any order."""
    if isinstance(asked, StructType) and isinstance(whole, StructType):
        for each in asked.fields:
            if each.name not in whole.names:
                raise SettingError(f"{where} has no field '{each.name}'; it has {', '.join(whole.names)}")
            check_part(each.dataType, whole[each.name].dataType, f"{where}.{each.name}")
    elif isinstance(asked, ArrayType) and isinstance(whole, ArrayType):
        check_part(asked.elementType, whole.elementType, f"{where}.element")
    elif isinstance(asked, MapType) and isinstance(whole, MapType):
        check_part(asked.keyType, whole.keyType, f"{where}.key")
        check_part(asked.valueType, whole.valueType, f"{where}.value")
    elif asked.simpleString() != whole.simpleString():
        raise SettingError(
            f"{where} is {whole.simpleString()}, not {asked.simpleString()}: read it as it is and cast it"
        )
