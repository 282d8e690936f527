"""Decodes Avro: by a compiled program for each writer's schema, or by fastavro where there is none."""

from __future__ import annotations

import datetime
import io
import json
import uuid
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from kohort.settings import SettingError
from kohort.spark.formats.avro_program import AvroProgram, Incompatible
from kohort.spark.formats.avro_schema import AvroType, members, read_avro, widened, with_references
from kohort.spark.formats.byte_columns import placed
from kohort.spark.formats.column_runs import NotCompiled, WrongContent
from kohort.spark.formats.decoding import ColumnDecoding, DecodedColumn, Misfit, UndecidedRecord
from kohort.spark.formats.frames import FRAME_SIZE, frame_ids
from kohort.wire.records.columns import compiled

Rows = tuple[Any, dict[int, str]]
"""The values at some rows, and which of these are bad."""


class AvroDecoder:
    """Decodes the payloads of one column, which may have been written with several schemas."""

    def __init__(self, decoding: ColumnDecoding) -> None:
        self._target = decoding.target
        self._reader_text = decoding.schema
        self._reader = read_avro(decoding.schema)
        self._registry = decoding.registry
        self._by_id: dict[int, Callable[[Any, Any, int], Rows]] = {}
        if decoding.schema_id is not None:
            self._by_id[decoding.schema_id] = self._made(decoding.schema)
        self._plain = self._made(decoding.schema) if decoding.registry is None else None

    def decode(self, data: Any) -> DecodedColumn:
        if self._plain is not None:
            there = np.flatnonzero(data.is_valid().to_numpy(zero_copy_only=False))
            return _column(len(data), [(there, self._plain(data, there, 0))], {}, self._target)
        ids, bad = frame_ids(data)
        done = []
        for number in np.unique(ids).tolist():
            if number < 0:
                continue
            rows = np.flatnonzero(ids == number)
            try:
                decode = self._for_id(number, int(rows[0]))
            except Incompatible as error:
                bad |= dict.fromkeys(rows.tolist(), str(error))
                continue
            done.append((rows, decode(data, rows, FRAME_SIZE)))
        return _column(len(data), done, bad, self._target)

    def _for_id(self, number: int, row: int) -> Callable[[Any, Any, int], Rows]:
        """How records of a schema are decoded; Incompatible if there is no such schema, or it does not fit."""
        found = self._by_id.get(number)
        if found is None:
            from kohort.serde.errors import RegistryError, SchemaNotFound
            from kohort.serde.registry import SchemaRegistry

            assert self._registry is not None
            registry = SchemaRegistry.shared(self._registry)
            try:
                schema = registry.schema(number)
                others = {name: each.text for name, each in registry.references_of(schema).items()}
            except SchemaNotFound as error:
                raise Incompatible(str(error)) from None
            except RegistryError as error:
                raise UndecidedRecord(str(error), row) from error
            if schema.kind != "AVRO":
                raise Incompatible(f"schema id {number} is {schema.kind}, not AVRO")
            try:
                found = self._made(with_references(schema.text, others))
            except (Incompatible, SettingError) as error:
                raise Incompatible(f"schema id {number}: {error}") from None
            self._by_id[number] = found
        return found

    def _made(self, writer_text: str) -> Callable[[Any, Any, int], Rows]:
        if compiled():
            try:
                return _Halving(AvroProgram(read_avro(writer_text), self._reader, self._target))
            except NotCompiled:
                pass
        return FastavroDecoder(writer_text, self._reader_text, self._target).decode


def _column(count: int, done: list[tuple[Any, Rows]], bad: dict[int, str], target: Any) -> DecodedColumn:
    """Puts together what was decoded by schemas."""
    for rows, (_, wrong) in done:
        bad |= {int(rows[at]): why for at, why in wrong.items()}
    if not done:
        return DecodedColumn(pa.nulls(count, target), bad)
    if len(done) == 1:
        return DecodedColumn(placed(done[0][1][0], done[0][0], count), bad)
    together = pa.concat_arrays([array for _, (array, _) in done])
    return DecodedColumn(placed_all(together, [rows for rows, _ in done], count), bad)


def placed_all(array: Any, rows: list[Any], count: int) -> Any:
    """Values one after the other, at these rows of a column."""
    index = np.full(count, -1, np.int64)
    index[np.concatenate(rows)] = np.arange(len(array))
    return array.take(pa.array(index, mask=index < 0))


class _Halving:
    """Runs a program; where the content of some record is wrong, on halves, until it is known which."""

    def __init__(self, program: AvroProgram) -> None:
        self._program = program

    def __call__(self, data: Any, rows: Any, skip: int) -> Rows:
        try:
            return self._program.decode(data, rows, skip)
        except WrongContent as wrong:
            if len(rows) == 1:
                nothing, _ = self._program.decode(data, rows[:0], skip)
                return pa.nulls(1, nothing.type), {0: str(wrong)}
        middle = len(rows) // 2
        first, bad = self(data, rows[:middle], skip)
        second, more = self(data, rows[middle:], skip)
        return pa.concat_arrays([first, second]), bad | {at + middle: why for at, why in more.items()}


# --- fastavro -------------------------------------------------------------------------------------------------

_KEPT = (
    "decimal",
    "date",
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
)


class FastavroDecoder:
    """Decodes one record after the other with fastavro; tests hold the programs against it."""

    def __init__(self, writer: str, reader: str, target: Any) -> None:
        self._target = target
        self._writer = fastavro.parse_schema(_spark_logical(_json(writer)))
        self._reader = fastavro.parse_schema(_spark_logical(_json(reader)))
        self._convert = _converter(read_avro(reader), target)

    def decode(self, data: Any, rows: Any, skip: int) -> Rows:
        """Does what AvroProgram.decode does."""
        values: list[Any] = []
        bad: dict[int, str] = {}
        for at, row in enumerate(rows.tolist()):
            try:
                values.append(self.one(data[row].as_py()[skip:]))
            except Misfit as misfit:
                values.append(None)
                bad[at] = str(misfit)
        return pa.array(values, self._target), bad

    def one(self, payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(stream, self._writer, self._reader)
            if stream.tell() != len(payload):
                left = len(payload) - stream.tell()
                raise Misfit(f"{left} bytes are left after the record, so it was written with another schema")
            return self._convert(found)
        except Misfit:
            raise
        except Exception as error:
            # fastavro raises whatever its loops run into: EOFError, IndexError, UnicodeDecodeError, OverflowError.
            raise Misfit(f"{type(error).__name__}: {error}") from None


def _json(text: str) -> Any:
    stripped = text.strip()
    return json.loads(stripped) if stripped[:1] in '{["' else stripped


def _spark_logical(schema: Any) -> Any:
    """A schema without the logical types that Spark does not have, whose values it has as they are written."""
    if isinstance(schema, list):
        return [_spark_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: part for name, part in schema.items() if name != "logicalType" or part in _KEPT}
    for part in ("type", "items", "values"):
        if part in made:
            made[part] = _spark_logical(made[part])
    if "fields" in made:
        made["fields"] = [{**each, "type": _spark_logical(each["type"])} for each in made["fields"]]
    return made


def _converter(kind: AvroType, target: Any) -> Callable[[Any], Any]:
    """A function from what fastavro gives to what pyarrow takes, with the fields of the target alone."""
    if kind.kind == "union":
        branches = members(kind)
        if len(branches) == 1 or widened(branches):
            return _optional(_converter(branches[-1], target))
        raise Incompatible(
            "a union of several types has changed between the schemas, which cannot be decoded"
        )
    if kind.kind == "record":
        inner = {each.name: each.type for each in kind.fields}
        fields = [(each.name, _converter(inner[each.name], each.type)) for each in target]
        return lambda value: {name: convert(value[name]) for name, convert in fields}
    if kind.kind == "array":
        element = _converter(kind.inner[0], target.value_type)
        return lambda value: [element(each) for each in value]
    if kind.kind == "map":
        part = _converter(kind.inner[0], target.item_type)
        return lambda value: [(name, part(each)) for name, each in value.items()]
    return _as_it_is


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _as_it_is(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    return value
