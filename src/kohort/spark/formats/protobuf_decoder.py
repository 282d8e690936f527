"""Decodes Protobuf: by a compiled loop, and what is strange to it by the protobuf package, field by field.

Values are those of Spark's from_protobuf: a field that is not set is null, unless `emit.default.values` says that a
field without presence has its default then; enums are names; unsigned numbers wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kohort.spark.formats.byte_columns import parts, placed
from kohort.spark.formats.column_runs import NotCompiled, WrongContent
from kohort.spark.formats.decoding import ColumnDecoding, DecodedColumn, UndecidedRecord
from kohort.spark.formats.frames import FRAME_SIZE, frame_ids
from kohort.spark.formats.protobuf_program import ProtobufProgram
from kohort.spark.formats.protobuf_types import DURATION, TIMESTAMP, is_map, is_repeated
from kohort.wire.records.columns import compiled

Take = Callable[[Sequence[Any]], Any]
"""Makes a column of messages, or of the values of one field."""
_MICROS = 1_000_000
_FEW = 64
_LONGEST_FRAME = 512


def message_class(descriptors: bytes, name: str) -> Any:
    """The class of a message, from a FileDescriptorSet that has all that it needs."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


class ProtobufDecoder:
    """Decodes the messages of one column to the fields that Spark asks for."""

    def __init__(self, decoding: ColumnDecoding, *, fast: bool = True) -> None:
        self._class = message_class(decoding.descriptors, decoding.schema)
        self._registry = decoding.registry
        descriptor = self._class.DESCRIPTOR
        self._take = _message(descriptor, decoding.target, decoding.emit_default_values)
        self._program: ProtobufProgram | None = None
        if fast and compiled():
            try:
                self._program = ProtobufProgram(descriptor, decoding.target, decoding.emit_default_values)
            except NotCompiled:
                pass
        self._none = self._class()
        self._known: dict[tuple[int, tuple[int, ...]], str] = {}
        """Of each schema id and path of a message within it: why the messages cannot be read; empty if they can."""

    def decode(self, data: Any) -> DecodedColumn:
        starts, bad = self._starts(data)
        _, ends = parts(data)
        rows = np.flatnonzero(starts >= 0)
        array, wrong = self._decode(data, rows, starts[rows], ends[1:][rows].astype(np.int64))
        bad |= {int(rows[at]): why for at, why in wrong.items()}
        return DecodedColumn(placed(array, rows, len(data)), bad)

    def _starts(self, data: Any) -> tuple[Any, dict[int, str]]:
        """Where the message of each record begins, -1: there is none; and which records are bad by their frames."""
        content, ends = parts(data)
        starts = np.where(data.is_valid().to_numpy(zero_copy_only=False), ends[:-1], -1).astype(np.int64)
        bad: dict[int, str] = {}
        if self._registry is None:
            return starts, bad
        ids, bad = frame_ids(data)
        starts[ids < 0] = -1
        # The usual message, the first of its file, has one byte 0 after the frame: these are looked at all at once.
        first = np.flatnonzero((ids >= 0) & (np.diff(ends) > FRAME_SIZE))
        first = first[content[starts[first] + FRAME_SIZE] == 0]
        for number in np.unique(ids[first]).tolist():
            rows = first[ids[first] == number]
            why = self._misfit_of(number, (0,), int(rows[0]))
            starts[rows] = -1 if why else starts[rows] + FRAME_SIZE + 1
            bad |= dict.fromkeys(rows.tolist(), why) if why else {}
        for row in np.setdiff1d(np.flatnonzero(ids >= 0), first).tolist():
            begin = int(starts[row])
            try:
                starts[row] += self._payload(
                    bytes(content[begin : min(begin + _LONGEST_FRAME, int(ends[row + 1]))]), row
                )
            except ValueError as error:
                starts[row], bad[row] = -1, str(error)
        return starts, bad

    def _decode(self, data: Any, rows: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        """The messages at these rows, from `starts` to `ends`; and which of them are bad, counted among these rows."""
        content, _ = parts(data)
        if self._program is None:
            return self._one_by_one(content, starts, ends)
        try:
            array, strange = self._program.decode(content, starts, ends)
        except WrongContent:
            if len(rows) < _FEW:
                return self._one_by_one(content, starts, ends)
            middle = len(rows) // 2
            first, bad = self._decode(data, rows[:middle], starts[:middle], ends[:middle])
            second, more = self._decode(data, rows[middle:], starts[middle:], ends[middle:])
            return pa.concat_arrays([first, second]), bad | {at + middle: why for at, why in more.items()}
        if not strange.any():
            return array, {}
        places = np.flatnonzero(strange)
        others, wrong = self._one_by_one(content, starts[places], ends[places])
        index = np.arange(len(rows))
        index[places] = np.arange(len(places)) + len(rows)
        array = pa.concat_arrays([array, others]).take(pa.array(index))
        return array, {int(places[at]): why for at, why in wrong.items()}

    def _one_by_one(self, content: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        """By the protobuf package, which is right where the compiled loop is in doubt."""
        parse, none = self._class.FromString, self._none
        messages, bad = [], {}
        for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            try:
                messages.append(parse(bytes(content[start:end])))
            except (DecodeError, ValueError) as error:
                messages.append(none)
                bad[at] = f"it is no message {self._class.DESCRIPTOR.full_name}: {error}"
        array = self._take(messages)
        if bad:
            there = np.ones(len(messages), np.bool_)
            there[list(bad)] = False
            array = with_nulls(array, there)
        return array, bad

    def _payload(self, value: bytes, row: int) -> int:
        """Where the message begins after its frame, of which `value` has all."""
        from kohort.serde.errors import DataMismatch
        from kohort.serde.framing import split_message

        try:
            number, path, at = split_message(value)
        except DataMismatch as mismatch:
            raise ValueError(str(mismatch)) from None
        why = self._misfit_of(number, path, row)
        if why:
            raise ValueError(why)
        return at

    def _misfit_of(self, number: int, path: tuple[int, ...], row: int) -> str:
        why = self._known.get((number, path))
        if why is None:
            why = self._known[number, path] = self._misfit(number, path, row)
        return why

    def _misfit(self, number: int, path: tuple[int, ...], row: int) -> str:
        """Why messages at a path of a schema are not the ones that are asked for."""
        from kohort.serde.errors import DataMismatch, RegistryError, SchemaNotFound, WrongSchema
        from kohort.serde.protobuf import descriptor_of, message_at
        from kohort.serde.registry import SchemaRegistry

        assert self._registry is not None
        registry = SchemaRegistry.shared(self._registry)
        try:
            schema = registry.schema(number)
            if schema.kind != "PROTOBUF":
                return f"schema id {number} is {schema.kind}, not PROTOBUF"
            name = message_at(descriptor_of(schema, registry.references_of(schema)), path, number).full_name
        except (SchemaNotFound, DataMismatch, WrongSchema) as error:
            return str(error)
        except RegistryError as error:
            raise UndecidedRecord(str(error), row) from error
        wanted = self._class.DESCRIPTOR.full_name
        return (
            ""
            if name == wanted
            else f"the record holds the message {name} (schema id {number}), not {wanted}"
        )


def with_nulls(array: Any, there: Any) -> Any:
    """The array with null where `there` is false."""
    return array.take(pa.array(np.arange(len(array)), mask=~there))


# --- columns ------------------------------------------------------------------------------------------------


def _message(message: Any, target: Any, defaults: bool) -> Take:
    if message.full_name == TIMESTAMP or message.full_name == DURATION:
        return lambda messages: pa.array(
            [each.seconds * _MICROS + each.nanos // 1000 for each in messages], pa.int64()
        ).view(target)
    takes = [_field(message.fields_by_name[each.name], each.type, defaults) for each in target]

    def take(messages: Sequence[Any]) -> Any:
        children = [each(messages) for each in takes]
        return pa.Array.from_buffers(target, len(messages), [None], children=children)

    return take


def _field(field: Any, target: Any, defaults: bool) -> Take:
    get, name = attrgetter(field.name), field.name
    if is_map(field):
        return _map(field, target, defaults)
    values = _values(field, target.value_type if is_repeated(field) else target, defaults)
    if is_repeated(field):

        def take_repeated(messages: Sequence[Any]) -> Any:
            lists = list(map(get, messages))
            return _lists(target, lists, [values(list(chain.from_iterable(lists)))])

        return take_repeated
    if field.has_presence and not field.has_default_value:

        def take_present(messages: Sequence[Any]) -> Any:
            array = values(list(map(get, messages)))
            there = np.fromiter((each.HasField(name) for each in messages), np.bool_, len(messages))
            return array if there.all() else with_nulls(array, there)

        return take_present
    if defaults or field.has_presence:
        return lambda messages: values(list(map(get, messages)))

    is_set = _float_is_set if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT) else bool

    def take_set(messages: Sequence[Any]) -> Any:
        found = list(map(get, messages))
        array = values(found)
        if all(found):
            return array
        return with_nulls(array, np.fromiter(map(is_set, found), np.bool_, len(found)))

    return take_set


def _float_is_set(value: float) -> bool:
    """Whether a number without presence is set: the zero below zero is."""
    return value != 0.0 or math.copysign(1.0, value) < 0.0


def _lists(target: Any, lists: Sequence[Any], children: list[Any]) -> Any:
    ends = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=ends[1:])
    return pa.Array.from_buffers(target, len(lists), [None, pa.py_buffer(ends)], children=children)


def _map(field: Any, target: Any, defaults: bool) -> Take:
    get, entry = attrgetter(field.name), field.message_type
    keys = _values(entry.fields_by_name["key"], target.key_type, defaults)
    values = _values(entry.fields_by_name["value"], target.item_type, defaults)
    kind = pa.struct([target.key_field, target.item_field])

    def take(messages: Sequence[Any]) -> Any:
        maps = list(map(get, messages))
        pairs = list(chain.from_iterable(each.items() for each in maps))
        children = [keys([key for key, _ in pairs]), values([value for _, value in pairs])]
        return _lists(target, maps, [pa.Array.from_buffers(kind, len(pairs), [None], children=children)])

    return take


def _values(field: Any, target: Any, defaults: bool) -> Take:
    """A column of values of a field, which are not null."""
    if field.message_type is not None:
        return _message(field.message_type, target, defaults)
    if field.cpp_type == field.CPPTYPE_ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        unknown = f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_"
        return lambda found: pa.array([names.get(n) or f"{unknown}{n}" for n in found], target)
    if field.cpp_type == field.CPPTYPE_UINT32:
        return lambda found: pa.array(np.array(found, np.uint32).view(np.int32))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return lambda found: pa.array(np.array(found, np.uint64).view(np.int64))
    return lambda found: pa.array(found, target)
