"""Makes the tables that the compiled loop decodes Protobuf by, from a message and the type that Spark expects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.formats import protobuf_kernel as loop
from kohort.spark.formats.byte_columns import read_only
from kohort.spark.formats.column_runs import (
    OF_BYTES,
    OF_LISTS,
    OF_NUMBERS,
    ColumnRun,
    Make,
    NotCompiled,
    WrongContent,
    bytes_of,
    lists_of,
    numbers_of,
    struct_of,
    validity_of,
)
from kohort.spark.formats.protobuf_types import DURATION, TIMESTAMP, is_map, is_repeated

_MICROS = 1_000_000
_MOST_SECONDS = (1 << 63) // _MICROS


class ProtobufProgram:
    """Decodes messages of one type to the fields that Spark asks for."""

    def __init__(self, message: Any, target: Any, emit_defaults: bool) -> None:
        made = _Tables(emit_defaults)
        _, self._make, _ = made.message(message, target)
        self._tables = np.array(made.tables, np.int64)
        self._fields = np.array(made.fields, np.int64).reshape(-1, loop.WIDTH)
        self._columns, self._siblings, self._kinds, self._initial = (
            read_only(np.array(each, np.int64))
            for each in (made.columns, made.siblings, made.kinds, made.initial)
        )
        self._has_lists = made.has_lists

    def decode(self, content: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
        """The messages in these places, and which of them are strange, as NumPy has it: they are not decoded."""
        count = len(starts)
        most = count + (len(content) if self._has_lists else 0) + 1
        capacity = min(most, 2 * count + 64) if self._has_lists else most
        while True:
            run, found = self._run(content, starts, ends, capacity)
            if run is not None:
                return self._make(run, count), found == loop.STRANGE
            assert capacity < most, "an element takes a byte at least"
            capacity = min(most, 4 * capacity)

    def _run(self, content: Any, starts: Any, ends: Any, capacity: int) -> tuple[ColumnRun | None, Any]:
        columns = len(self._kinds)
        cells, valid = np.empty((columns, capacity), np.int64), np.empty((columns, capacity), np.uint8)
        filled, counts = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
        found = np.empty(len(starts), np.int64)
        done = loop.run(
            self._tables, self._fields, self._columns, self._siblings, self._kinds, self._initial, content,
            read_only(starts), read_only(ends), cells, valid, filled, counts, found,
        )  # fmt: skip
        return (None if done == loop.FULL else ColumnRun(content, cells, valid, filled, counts)), found


class _Tables:
    def __init__(self, emit_defaults: bool) -> None:
        self._emit = emit_defaults
        self.tables: list[list[int]] = []
        self.fields: list[list[int]] = []
        self.columns: list[int] = []
        self.siblings: list[int] = []
        self.kinds: list[int] = []
        self.initial: list[int] = []
        self.has_lists = False

    def _column(self, kind: int, initial: int) -> int:
        self.kinds.append(kind)
        self.initial.append(initial)
        if kind == OF_BYTES:
            self.kinds.append(OF_NUMBERS)  # its sizes
            self.initial.append(0)
            return len(self.kinds) - 2
        return len(self.kinds) - 1

    def message(
        self, message: Any, target: Any, *, of_map: bool = False, always: bool = True
    ) -> tuple[int, Make, list[int]]:
        """A table for a message: its number, how its column is made, and the columns that begin with it."""
        table = len(self.tables)
        self.tables.append([0, 0, 0, 0])
        struct = self._column(OF_NUMBERS, int(always))
        known = message.full_name in (TIMESTAMP, DURATION)
        wanted = (
            {"seconds": pa.int64(), "nanos": pa.int32()}
            if known
            else {each.name: each.type for each in target}
        )
        rows: list[list[int]] = []
        own, makes = [struct], {}
        sets: dict[str, int] = {}
        for field in message.fields:
            if field.name in wanted:
                row, makes[field.name], columns = self._field(
                    field, wanted[field.name], zeros=known or of_map
                )
                sets[field.name] = row[loop.COLUMN]
                own += columns
            elif field.containing_oneof is None:
                continue
            else:
                row = [field.number, _coding(field), -1, -1, 0, 0, 0, 0]  # it may unset another one
            rows.append(row)
        self._add_siblings(message, rows, sets)
        self.tables[table] = [
            len(self.fields),
            len(self.fields) + len(rows),
            len(self.columns),
            len(self.columns) + len(own),
        ]
        self.fields += rows
        self.columns += own
        ordered = [makes[name] for name in wanted]
        if known:
            return table, _time(struct, ordered, target), own
        return table, struct_of(struct, ordered, target), own

    def _add_siblings(self, message: Any, rows: list[list[int]], sets: dict[str, int]) -> None:
        by_number = {field.number: field for field in message.fields}
        for row in rows:
            field = by_number[row[loop.NUMBER]]
            oneof = field.containing_oneof
            row[loop.SIBLINGS] = row[loop.SIBLINGS_END] = len(self.siblings)
            if oneof is not None:
                self.siblings += [
                    sets[each.name] for each in oneof.fields if each.name in sets and each.name != field.name
                ]
                row[loop.SIBLINGS_END] = len(self.siblings)

    def _field(self, field: Any, target: Any, *, zeros: bool) -> tuple[list[int], Make, list[int]]:
        """The row of a field, how its column is made, and the columns that begin a row with its message."""
        if field.has_default_value or (field.enum_type is not None and field.enum_type.is_closed):
            raise NotCompiled
        row = [field.number, _coding(field), -1, -1, 0, 0, 0, 0]
        if is_repeated(field):
            return self._repeated(field, row, target)
        if field.message_type is not None:
            # The value of a map is a message, also where an entry has none.
            table, make, columns = self.message(field.message_type, target, always=zeros)
            row[loop.COLUMN], row[loop.TABLE] = columns[0], table
            return row, make, columns
        unset = not field.has_presence and not self._emit and not zeros
        column = self._column(_kind(field), int(zeros or (self._emit and not field.has_presence)))
        row[loop.COLUMN], row[loop.ZERO_IS_UNSET] = column, int(unset)
        return row, _values(field, column, target), [column]

    def _repeated(self, field: Any, row: list[int], target: Any) -> tuple[list[int], Make, list[int]]:
        self.has_lists = True
        row[loop.LIST] = self._column(OF_LISTS, 1)
        if field.message_type is None:
            row[loop.COLUMN] = self._column(_kind(field), 1)
            inner = [_values(field, row[loop.COLUMN], target.value_type)]
        else:
            kind = pa.struct([target.key_field, target.item_field]) if is_map(field) else target.value_type
            row[loop.TABLE], make, _ = self.message(field.message_type, kind, of_map=is_map(field))
            inner = [make]
        return row, lists_of(row[loop.LIST], inner, target), [row[loop.LIST]]


def _kind(field: Any) -> int:
    return OF_BYTES if field.cpp_type == field.CPPTYPE_STRING else OF_NUMBERS


def _coding(field: Any) -> int:
    coding = {
        field.TYPE_INT32: loop.INT32, field.TYPE_UINT32: loop.INT32, field.TYPE_ENUM: loop.INT32,
        field.TYPE_INT64: loop.INT64_BITS, field.TYPE_UINT64: loop.INT64_BITS, field.TYPE_SINT32: loop.ZIGZAG32,
        field.TYPE_SINT64: loop.ZIGZAG64, field.TYPE_BOOL: loop.BOOL, field.TYPE_FIXED32: loop.FIXED32,
        field.TYPE_SFIXED32: loop.FIXED32, field.TYPE_FLOAT: loop.FIXED32, field.TYPE_FIXED64: loop.FIXED64,
        field.TYPE_SFIXED64: loop.FIXED64, field.TYPE_DOUBLE: loop.FIXED64, field.TYPE_STRING: loop.LENGTH,
        field.TYPE_BYTES: loop.LENGTH, field.TYPE_MESSAGE: loop.MESSAGE,
    }.get(field.type)  # fmt: skip
    if coding is None:  # a group
        raise NotCompiled
    return coding


def _values(field: Any, column: int, target: Any) -> Make:
    if field.cpp_type == field.CPPTYPE_STRING:
        return bytes_of(column, target)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return _names(field.enum_type, column, target)
    source = {field.CPPTYPE_BOOL: "boolean", field.CPPTYPE_FLOAT: "float", field.CPPTYPE_DOUBLE: "double"}
    return numbers_of(column, source.get(field.cpp_type, "long"), "", target)


def _names(enum: Any, column: int, target: Any) -> Make:
    known = {number: each.name for number, each in enum.values_by_number.items()}

    def make(run: ColumnRun, count: int) -> Any:
        numbers, places = np.unique(run.cells[column, :count], return_inverse=True)
        names = [
            known.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}" for number in numbers.tolist()
        ]
        valid = validity_of(run, column, count)
        index = pa.Array.from_buffers(pa.int64(), count, [valid, pa.py_buffer(places.astype(np.int64))])
        return pa.array(names, target).take(index)

    return make


def _time(struct: int, parts: list[Make], target: Any) -> Make:
    """Seconds and nanoseconds as microseconds; the fields of both messages stand in this order."""

    def make(run: ColumnRun, count: int) -> Any:
        seconds, nanos = (np.asarray(part(run, count).fill_null(0)) for part in parts)
        if count and max(int(seconds.max()), -int(seconds.min())) >= _MOST_SECONDS:
            raise WrongContent("a time is too far away for Spark")
        micros = seconds * _MICROS + nanos // 1000
        return pa.Array.from_buffers(target, count, [validity_of(run, struct, count), pa.py_buffer(micros)])

    return make
