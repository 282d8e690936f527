"""Plans typed columns on the driver: which type a schema gives, and how executors decode what a query asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
from kohort.spark.formats.decoding import ColumnDecoding, RecordDecoding
from kohort.spark.formats.format_options import CORRUPT, ColumnFormat, Mode, RecordFormats

CORRUPT_TYPE = StructType(
    [StructField("reason", StringType()), StructField("key", BinaryType()), StructField("value", BinaryType())]
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
    if formats.mode is Mode.PERMISSIVE and formats.typed:
        found[CORRUPT] = CORRUPT_TYPE
    return found


def plan_decoding(formats: RecordFormats, asked: StructType, topics: Sequence[str]) -> RecordDecoding | None:
    """How executors decode the typed columns among those that are asked for; None: there are none.

    A query may ask for some of the fields only (`.schema("value struct<id:bigint>")`); the others are not decoded then.
    """
    columns = {}
    for column in formats.typed:
        if column.column not in asked.names:
            continue
        kind = asked[column.column].dataType
        planned = planned_column(formats, column, topics)
        if nullable(kind) != kind:
            raise SettingError(f"the column '{column.column}' has fields that are NOT NULL: leave these words out")
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
    if column.format == "json":
        return _json(column)
    raise AssertionError(column.format)


def _json(column: ColumnFormat) -> PlannedColumn:
    if column.schema is None:
        return PlannedColumn(None)
    try:
        return PlannedColumn(read_schema(column.schema))
    except SchemaTextError as error:
        raise SettingError(f"{column.option('Schema')}: {error}") from None


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
