"""Encodes rows as records, in the tasks of the sink: JSON by orjson, Avro by fastavro, Protobuf by protobuf."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.formats.decoding import missing_package

Encode = Callable[[Any], bytes]


class RowMisfit(ValueError):
    """A row that cannot be encoded; the text says why, `row` which one of the batch."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True, slots=True)
class ColumnEncoding:
    """How the keys or the values are encoded; made by the driver, pickled for executors."""

    column: str
    format: str
    fields: tuple[str, ...] = ()
    """The columns that make the struct, if there is no column of that name."""
    schema: str = ""
    """Avro: the schema as JSON. Protobuf: the name of the message."""
    descriptors: bytes = b""
    frame: bytes = b""
    """What stands before each record: magic byte and schema id."""


def encoded(batch: Any, encodings: Iterable[ColumnEncoding], names: tuple[str, ...]) -> Any:
    """The columns that are written, with keys and values as bytes or strings; RowMisfit names the row that is wrong."""
    made = {each.column: _column(batch, each) for each in encodings}
    arrays = [made[name] if name in made else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _column(batch: Any, encoding: ColumnEncoding) -> Any:
    if encoding.fields:
        columns = [batch.column(name) for name in encoding.fields]
        rows = pa.StructArray.from_arrays(columns, names=list(encoding.fields))
    else:
        rows = batch.column(encoding.column)
    if encoding.format == "string":
        return (
            rows
            if pa.types.is_string(rows.type) or pa.types.is_large_string(rows.type)
            else pc.cast(rows, pa.string())
        )
    try:
        encode = _encoder(encoding, rows.type)
    except ImportError as error:
        raise missing_package(encoding.format, error) from error
    values: list[Any] = rows.to_pylist()
    frame = encoding.frame
    for row, value in enumerate(values):
        if value is not None:
            try:
                values[row] = frame + encode(value)
            except Exception as error:
                # The packages raise whatever they run into: TypeError, ValueError, OverflowError, KeyError.
                words = str(error) or type(error).__name__
                raise RowMisfit(
                    f"the {encoding.column} cannot be written as {encoding.format}: {words}", row
                ) from error
    return pa.array(values, pa.binary())


@lru_cache(maxsize=64)
def _encoder(encoding: ColumnEncoding, kind: Any) -> Encode:
    return {"json": _json, "avro": _avro, "protobuf": _protobuf}[encoding.format](encoding, kind)


# --- JSON -----------------------------------------------------------------------------------------------------


def _json(encoding: ColumnEncoding, kind: Any) -> Encode:
    import orjson

    convert = _json_value(kind, orjson.Fragment)
    dumps, utc = orjson.dumps, orjson.OPT_UTC_Z
    return lambda row: dumps(convert(row), option=utc)


def _json_value(kind: Any, fragment: Callable[[bytes], Any]) -> Callable[[Any], Any]:
    """A function from what pyarrow gives to what orjson writes; as in Spark's to_json, null fields are left out."""
    if pa.types.is_struct(kind):
        fields = [(each.name, _json_value(each.type, fragment)) for each in kind]
        return lambda row: {name: inner(row[name]) for name, inner in fields if row[name] is not None}
    if pa.types.is_map(kind):
        value = _json_value(kind.item_type, fragment)
        return lambda pairs: {str(key): None if part is None else value(part) for key, part in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _json_value(kind.value_type, fragment)
        return lambda parts: [None if part is None else element(part) for part in parts]
    if pa.types.is_decimal(kind):
        return lambda number: fragment(format(number, "f").encode())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda data: base64.b64encode(data).decode()
    return lambda value: value


# --- Avro -----------------------------------------------------------------------------------------------------


def _avro(encoding: ColumnEncoding, kind: Any) -> Encode:
    import fastavro

    schema = fastavro.parse_schema(json.loads(encoding.schema))
    convert = _plain_value(kind)

    def encode(row: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, convert(row))
        return out.getvalue()

    return encode


def _plain_value(kind: Any) -> Callable[[Any], Any]:
    """A function from what pyarrow gives to plain objects: maps as dicts, times with a zone in UTC."""
    if pa.types.is_struct(kind):
        fields = [(each.name, _plain_value(each.type)) for each in kind]
        return lambda row: {name: None if row[name] is None else inner(row[name]) for name, inner in fields}
    if pa.types.is_map(kind):
        value = _plain_value(kind.item_type)
        return lambda pairs: {key: None if part is None else value(part) for key, part in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _plain_value(kind.value_type)
        return lambda parts: [None if part is None else element(part) for part in parts]
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return lambda time: time.astimezone(datetime.UTC)
    return lambda value: value


# --- Protobuf -------------------------------------------------------------------------------------------------


def _protobuf(encoding: ColumnEncoding, kind: Any) -> Encode:
    from kohort.spark.formats.protobuf_decoder import message_class

    made, convert = message_class(encoding.descriptors, encoding.schema), _plain_value(kind)

    def encode(row: Any) -> bytes:
        message = made()
        _fill(message, convert(row))
        data: bytes = message.SerializeToString()
        return data

    return encode


def _fill(message: Any, row: Any) -> None:
    """Sets the fields of a message; null leaves a field as it is."""
    known = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if value is None:
            continue
        try:
            _set(message, known[name], value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"field {name}: {error}") from None


def _set(message: Any, field: Any, value: Any) -> None:
    from kohort.spark.formats.protobuf_types import is_map, is_repeated

    there = getattr(message, field.name)
    if is_map(field):
        inner = field.message_type.fields_by_name["value"]
        for key, part in value.items():
            if inner.message_type is not None:
                _fill_message(there[key], inner, part)
            else:
                there[key] = _scalar(inner, part)
    elif is_repeated(field):
        for part in value:
            if field.message_type is not None:
                _fill_message(there.add(), field, part)
            else:
                there.append(_scalar(field, part))
    elif field.message_type is not None:
        there.SetInParent()
        _fill_message(there, field, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _fill_message(message: Any, field: Any, value: Any) -> None:
    from kohort.spark.formats.protobuf_types import DURATION, TIMESTAMP

    if value is None:
        raise ValueError("a list or map of messages cannot have null")
    if field.message_type.full_name == TIMESTAMP:
        message.FromDatetime(value)
    elif field.message_type.full_name == DURATION:
        message.FromTimedelta(value)
    else:
        _fill(message, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_ENUM and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise ValueError(f"the enum {field.enum_type.name} has no value {value}")
        return known.number
    if field.cpp_type == field.CPPTYPE_UINT32 and value < 0:
        return value + (1 << 32)  # as from_protobuf has it
    if field.cpp_type == field.CPPTYPE_UINT64 and value < 0:
        return value + (1 << 64)
    if isinstance(value, decimal.Decimal):
        raise ValueError("Protobuf has no decimals: cast it to a string or a double")
    return value
