"""Says which Spark type a Protobuf message has: the one that Spark's from_protobuf gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.settings import SettingError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


def message_type(message: Descriptor, inside: tuple[str, ...] = ()) -> DataType:
    """The type of a message; SettingError if it contains itself or has no fields."""
    name = message.full_name
    if name == TIMESTAMP:
        return TimestampType()
    if name == DURATION:
        return DayTimeIntervalType()
    if name in inside:
        raise SettingError(
            f"the Protobuf message {name} contains itself; Spark has no recursive types: leave that field out"
        )
    if not message.fields:
        raise SettingError(f"the Protobuf message {name} has no fields, which Spark cannot have as a column")
    return StructType([StructField(each.name, field_type(each, (*inside, name))) for each in message.fields])


def field_type(field: FieldDescriptor, inside: tuple[str, ...] = ()) -> DataType:
    """The type of a field, repeated or not."""
    if is_map(field):
        entry: Any = field.message_type
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return MapType(_one(key, inside), _one(value, inside))
    return ArrayType(_one(field, inside)) if is_repeated(field) else _one(field, inside)


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether a field is a list or a map; `is_repeated` is new in protobuf 6.30, and `label` goes away."""
    known = getattr(field, "is_repeated", None)
    legacy: Any = field
    return bool(legacy.label == legacy.LABEL_REPEATED if known is None else known)


def is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def _one(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        return message_type(field.message_type, inside)
    if field.type == field.TYPE_BYTES:
        return BinaryType()
    return {
        field.CPPTYPE_INT32: IntegerType(), field.CPPTYPE_UINT32: IntegerType(), field.CPPTYPE_INT64: LongType(),
        field.CPPTYPE_UINT64: LongType(), field.CPPTYPE_DOUBLE: DoubleType(), field.CPPTYPE_FLOAT: FloatType(),
        field.CPPTYPE_BOOL: BooleanType(), field.CPPTYPE_ENUM: StringType(), field.CPPTYPE_STRING: StringType(),
    }[field.cpp_type]  # fmt: skip
