"""Spark's types as Arrow's, as Spark expects them of a data source; every field is nullable."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
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

TIMESTAMP = pa.timestamp("us", "UTC")
_PLAIN: dict[type[DataType], Any] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: TIMESTAMP,
    TimestampNTZType: pa.timestamp("us"),
    DayTimeIntervalType: pa.duration("us"),
}


class NoArrowType(ValueError):
    """A type of Spark that records are not decoded to; the text names it."""


def arrow_type(kind: DataType) -> Any:
    """What Spark expects for a column of this type; NoArrowType for types that records are not decoded to."""
    if isinstance(kind, StructType):
        if not kind.fields:
            raise NoArrowType("struct<> has no fields")
        return pa.struct([pa.field(each.name, arrow_type(each.dataType)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, MapType):
        key, value = arrow_type(kind.keyType), arrow_type(kind.valueType)
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    for plain, made in _PLAIN.items():
        if isinstance(kind, plain):
            return made
    raise NoArrowType(f"records are not decoded to the type {kind.simpleString()}")
