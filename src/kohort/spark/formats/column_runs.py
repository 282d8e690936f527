"""Makes Arrow columns of what the compiled loops for Avro and Protobuf have left.

A column of a run is a row of `cells` (bytes have two: where they start and their size) and of `valid`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.formats.byte_columns import bitmap
from kohort.wire.records.columns import loops_for

# What a column holds, which says what null is in it.
OF_NUMBERS, OF_BYTES, OF_LISTS = range(3)
_LARGEST_MILLIS = (1 << 63) // 1000


class NotCompiled(Exception):
    """A schema that the compiled loops cannot decode."""


class WrongContent(ValueError):
    """Some record of many has a wrong content, and it is not known which."""


@dataclass(slots=True, eq=False)
class ColumnRun:
    """What a run has left, from which columns are made."""

    data: Any
    cells: Any
    valid: Any
    filled: Any
    counts: Any


Make = Callable[[ColumnRun, int], Any]


@dataclass(slots=True, eq=False)
class Plan:
    """How one column of the result is made, and which columns of the run are null where it is null."""

    make: Make
    columns: list[int]


def validity_of(run: ColumnRun, column: int, count: int) -> Any:
    assert run.filled[column] == count, "every record adds to every column"
    return bitmap(run.valid[column, :count].view(np.bool_))


def numbers_of(column: int, source: str, logical: str, target: Any) -> Make:
    def make(run: ColumnRun, count: int) -> Any:
        numbers = run.cells[column, :count]
        if source == "float":
            numbers = numbers.astype(np.int32).view(np.float32)
        elif source == "double":
            numbers = numbers.view(np.float64)
        valid = validity_of(run, column, count)
        if source == "boolean":
            return pa.Array.from_buffers(target, count, [valid, bits(numbers)])
        if logical.endswith("timestamp-millis") and pa.types.is_timestamp(target):
            if count and max(int(numbers.max()), -int(numbers.min())) > _LARGEST_MILLIS:
                raise WrongContent("a time is too far away for Spark")
            numbers = numbers * 1000
        kind = target.to_pandas_dtype() if not _is_time(target) else f"int{target.bit_width}"
        if source in ("float", "double", "int", "long"):
            numbers = np.ascontiguousarray(numbers.astype(kind, copy=False))
        return pa.Array.from_buffers(target, count, [valid, pa.py_buffer(numbers)])

    return make


def _is_time(target: Any) -> bool:
    return bool(pa.types.is_temporal(target))


def bits(numbers: Any) -> Any:
    """Booleans as Arrow has them."""
    return pa.py_buffer(np.packbits(numbers.astype(np.bool_), bitorder="little"))


def symbols_of(column: int, symbols: tuple[str, ...]) -> Make:
    names = pa.array(symbols, pa.string())

    def make(run: ColumnRun, count: int) -> Any:
        index = pa.Array.from_buffers(
            pa.int64(), count, [validity_of(run, column, count), pa.py_buffer(run.cells[column, :count])]
        )
        return names.take(index)

    return make


def bytes_of(column: int, target: Any) -> Make:
    def make(run: ColumnRun, count: int) -> Any:
        starts, sizes = (run.cells[at, :count].astype(np.int32) for at in (column, column + 1))
        gather = loops_for(len(run.data)).gather
        validity, ends, content = gather([(run.data, starts, sizes)])
        buffers = [
            None if validity is None else pa.py_buffer(validity),
            pa.py_buffer(ends),
            pa.py_buffer(content),
        ]
        array = pa.Array.from_buffers(target, count, buffers)
        if pa.types.is_string(target):
            try:
                array.validate(full=True)
            except pa.ArrowInvalid:
                raise WrongContent("a string is no UTF-8") from None
        return array

    return make


def struct_of(column: int, inner: list[Make], target: Any) -> Make:
    def make(run: ColumnRun, count: int) -> Any:
        children = [each(run, count) for each in inner]
        return pa.Array.from_buffers(target, count, [validity_of(run, column, count)], children=children)

    return make


def lists_of(column: int, inner: list[Make], target: Any) -> Make:
    def make(run: ColumnRun, count: int) -> Any:
        ends = np.zeros(count + 1, np.int32)
        ends[1:] = run.cells[column, :count]
        elements = int(run.counts[column])
        children = [each(run, elements) for each in inner]
        if pa.types.is_map(target) and len(children) == 2:
            entries = pa.struct([target.key_field, target.item_field])
            children = [pa.Array.from_buffers(entries, elements, [None], children=children)]
        return pa.Array.from_buffers(
            target, count, [validity_of(run, column, count), pa.py_buffer(ends)], children=children
        )

    return make
