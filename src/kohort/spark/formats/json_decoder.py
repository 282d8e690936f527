"""Decodes JSON as Spark's from_json does: pyarrow parses many records at once, orjson those with a difficulty.

The fast way gives the same as the other one or nothing: where pyarrow fails, the records are halved until few are left,
and these are decoded one by one, which also finds the ones that are bad. A property test compares the two.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kohort.spark.formats.byte_columns import parts
from kohort.spark.formats.decoding import DecodedColumn, Misfit
from kohort.spark.formats.strings import as_strings
from kohort.wire.records.columns import compiled

FEW = 64
"""So many records are decoded one by one rather than halved again."""

Convert = Callable[[Any], Any]
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = datetime.date(1970, 1, 1)
_DAY = datetime.timedelta(days=1)
_NOT_NUMBERS = {
    "NaN": math.nan, "+INF": math.inf, "INF": math.inf, "+Infinity": math.inf, "Infinity": math.inf,
    "-INF": -math.inf, "-Infinity": -math.inf,
}  # fmt: skip


class JsonDecoder:
    """Decodes JSON to one type, in most cases a struct; fields that the type does not have are left out."""

    def __init__(self, target: Any, *, fast: bool = True) -> None:
        self.target = target
        self._convert = _converter(target)
        self._exact = _has_decimal(target)
        self._plain = _plain(target) if fast and pa.types.is_struct(target) else None

    def decode(self, data: Any) -> DecodedColumn:
        if self._plain is None or len(data) < FEW or not compiled():
            return self._slowly(data)
        from kohort.spark.formats.json_scan import OBJECT, scan_objects

        content, ends = parts(data)
        kinds = np.empty(len(data), np.uint8)
        others = scan_objects(content, ends, kinds)
        if not others:
            return self._halving(data)
        if others > len(data) // 2:
            return self._slowly(data)
        objects, rest = (np.flatnonzero(mask) for mask in (kinds == OBJECT, kinds != OBJECT))
        fast, slow = self._halving(data.take(pa.array(objects))), self._slowly(data.take(pa.array(rest)))
        order = np.empty(len(data), np.int64)
        order[objects], order[rest] = np.arange(len(objects)), np.arange(len(rest)) + len(objects)
        bad = {int(objects[row]): why for row, why in fast.bad.items()}
        bad |= {int(rest[row]): why for row, why in slow.bad.items()}
        return DecodedColumn(pa.concat_arrays([fast.array, slow.array]).take(pa.array(order)), bad)

    # --- many at once ---------------------------------------------------------------------------------

    def _halving(self, data: Any) -> DecodedColumn:
        """Decodes values that are one object each."""
        if len(data) < FEW:
            return self._slowly(data)
        array = self._at_once(data)
        if array is not None:
            return DecodedColumn(array)
        middle = len(data) // 2
        first, second = self._halving(data.slice(0, middle)), self._halving(data.slice(middle))
        bad = first.bad | {row + middle: why for row, why in second.bad.items()}
        return DecodedColumn(pa.concat_arrays([first.array, second.array]), bad)

    def _at_once(self, data: Any) -> Any:
        """All values, or None if pyarrow cannot read one of them as it should be read."""
        assert self._plain is not None
        ends = pa.array([0, len(data)], pa.int32())
        joined = pc.binary_join(pa.ListArray.from_arrays(ends, data), b"\n")
        if as_strings(joined) is None:
            return None
        _, _, content = joined.buffers()
        reading = pj.ReadOptions(use_threads=False, block_size=min(len(content) + 1, (1 << 31) - 1))
        parsing = pj.ParseOptions(explicit_schema=self._plain, unexpected_field_behavior="ignore")
        try:
            table = pj.read_json(pa.BufferReader(content), reading, parsing)
            if table.num_rows != len(data):
                return None
            columns = [_one_chunk(table.column(each.name)) for each in self.target]
            columns = [_typed(column, each.type) for column, each in zip(columns, self.target, strict=True)]
            for column in columns if self._exact else ():
                column.validate(full=True)  # pyarrow's parser lets decimals through that have too many digits
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
            return None
        return pa.StructArray.from_arrays(columns, fields=list(self.target))

    # --- one by one -----------------------------------------------------------------------------------

    def _slowly(self, data: Any) -> DecodedColumn:
        values: list[Any] = data.to_pylist()
        bad: dict[int, str] = {}
        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                values[row] = self.one(value)
            except Misfit as misfit:
                values[row], bad[row] = None, str(misfit)
        return DecodedColumn(pa.array(values, self.target), bad)

    def one(self, value: bytes) -> Any:
        """One value as pyarrow takes it for the target; Misfit says why it is none."""
        if not value.strip():
            return None
        try:
            found = self._parsed(value)
        except (ValueError, RecursionError) as error:
            raise Misfit(f"it is no JSON: {error}") from None
        return None if found is None else self._convert(found)

    def _parsed(self, value: bytes) -> Any:
        if self._exact:
            return json.loads(value.decode(), parse_float=decimal.Decimal)
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            # Python's own parser also knows NaN and Infinity, which Spark takes and Python's programs write.
            return json.loads(value.decode())


def _one_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# --- what pyarrow parses --------------------------------------------------------------------------------


def _plain(target: Any) -> Any:
    """The schema to give to pyarrow for the fields of a struct: times as texts; None if it cannot read such types."""
    fields = [(each.name, _plain_type(each.type)) for each in target]
    return None if any(kind is None for _, kind in fields) else pa.schema(fields)


def _plain_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        inner = _plain(kind)
        return None if inner is None else pa.struct(list(inner))
    if pa.types.is_map(kind) or pa.types.is_binary(kind) or pa.types.is_duration(kind):
        return None
    if pa.types.is_list(kind):
        inner = _plain_type(kind.value_type)
        return None if inner is None or inner != kind.value_type else kind
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    return kind


def _typed(column: Any, kind: Any) -> Any:
    """A column as pyarrow has parsed it, as the target has it."""
    if column.type.equals(kind):
        return column
    if pa.types.is_struct(kind):
        children = [_typed(column.field(at), each.type) for at, each in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    return column.cast(kind)


# --- what a value may be, by type -------------------------------------------------------------------------


def _has_decimal(kind: Any) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimal(kind.field(at).type) for at in range(kind.num_fields))


def _converter(kind: Any) -> Convert:
    """A function that takes what JSON has for a value that is not null, and gives what pyarrow takes; it may misfit."""
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return _floating
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    for test, convert in _SIMPLE:
        if test(kind):
            return convert
    raise Misfit(f"JSON is not decoded to {kind}")


def _struct(kind: Any) -> Convert:
    fields = [(each.name, _converter(each.type)) for each in kind]

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise Misfit(f"{_shown(value)} is no object")
        found = {}
        for name, inner in fields:
            part = value.get(name)
            if part is not None:
                try:
                    found[name] = inner(part)
                except Misfit as misfit:
                    raise Misfit(f"field {name}: {misfit}") from None
        return found

    return convert


def _map(kind: Any) -> Convert:
    inner = _converter(kind.item_type)
    if not pa.types.is_string(kind.key_type):
        raise Misfit(f"the keys of a map in JSON are strings, not {kind.key_type}")

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise Misfit(f"{_shown(value)} is no object")
        return [(_text(name), None if part is None else inner(part)) for name, part in value.items()]

    return convert


def _list(kind: Any) -> Convert:
    inner = _converter(kind.value_type)

    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise Misfit(f"{_shown(value)} is no array")
        return [None if part is None else inner(part) for part in value]

    return convert


def _integer(kind: Any) -> Convert:
    bound = 1 << (kind.bit_width - 1)

    def convert(value: Any) -> Any:
        if type(value) is not int:
            raise Misfit(f"{_shown(value)} is no integer")
        if not -bound <= value < bound:
            raise Misfit(f"{_shown(value)} does not fit into {kind.bit_width} bits")
        return value

    return convert


def _floating(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int or type(value) is decimal.Decimal:
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    if type(value) is str and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    raise Misfit(f"{_shown(value)} is no number")


def _decimal(kind: Any) -> Convert:
    unit, most = decimal.Decimal(1).scaleb(-kind.scale), kind.precision
    context = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)

    def convert(value: Any) -> Any:
        if type(value) is float:  # NaN or Infinity: other numbers are decimal.Decimal here
            raise Misfit(f"{_shown(value)} is no number")
        if type(value) not in (int, str, decimal.Decimal):
            raise Misfit(f"{_shown(value)} is no number")
        try:
            number = decimal.Decimal(value).quantize(unit, context=context)
        except decimal.InvalidOperation:
            raise Misfit(
                f"{_shown(value)} is no number that fits into decimal({most},{kind.scale})"
            ) from None
        if not number.is_finite() or len(number.as_tuple().digits) > most:
            raise Misfit(f"{_shown(value)} does not fit into decimal({most},{kind.scale})")
        return number

    return convert


def _boolean(value: Any) -> Any:
    if type(value) is not bool:
        raise Misfit(f"{_shown(value)} is neither true nor false")
    return value


def _text(value: Any) -> Any:
    """A string; anything else as its JSON, as Spark has it."""
    text = (
        value
        if type(value) is str
        else json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit("a half of a surrogate pair is no character") from None
    return text


def _binary(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise Misfit(f"{_shown(value)} is no text in base64") from None


def _timestamp(value: Any) -> Any:
    """A time as ISO 8601 has it, in UTC if it names no zone; a whole number counts seconds, as Spark has it."""
    try:
        if type(value) is int:
            return _EPOCH + datetime.timedelta(seconds=value)
        found = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError):
        raise Misfit(f"{_shown(value)} is no time like 2024-05-17T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


def _local_timestamp(value: Any) -> Any:
    try:
        found = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Misfit(f"{_shown(value)} is no time like 2024-05-17T12:00:00") from None
    if found.tzinfo is not None:
        raise Misfit(f"{_shown(value)} has a time zone, and timestamp_ntz has none")
    return found


def _date(value: Any) -> Any:
    try:
        if type(value) is int:
            return _EPOCH_DAY + value * _DAY
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError, OverflowError):
        raise Misfit(f"{_shown(value)} is no date like 2024-05-17") from None


_SIMPLE: list[tuple[Callable[[Any], bool], Convert]] = [
    (pa.types.is_boolean, _boolean),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, _timestamp),
    (pa.types.is_timestamp, _local_timestamp),
]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"
