"""Leaves out the fetched records whose offset or timestamp is not wanted, before their keys and values are copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.restriction import NumberSet, Restriction
from kohort.wire.records.columns import Column, Columns

FEW_INTERVALS = 8
"""Up to so many are compared with whole columns at once."""


def chosen(
    records: Iterator[Columns],
    wanted: Restriction,
    batch_of: Callable[[Columns], Any],
    *,
    decoded: bool = False,
) -> Iterator[Any]:
    """The batches that `batch_of` makes of the wanted records; those between others are left out after it.

    If it decodes them, they are left out before it: a record that is not wanted may be one that cannot be decoded.
    """
    for columns in records:
        mask = _mask(columns, wanted)
        if mask is None:
            yield batch_of(columns)
            continue
        rows = pc.indices_nonzero(mask)
        if not len(rows):
            continue
        if decoded:
            for first, after in _runs(rows.to_pylist()):
                yield batch_of(columns.slice(first, after))
            continue
        first, after = rows[0].as_py(), rows[-1].as_py() + 1
        batch = batch_of(columns.slice(first, after))
        yield batch if after - first == len(rows) else batch.filter(mask.slice(first, after - first))


def _runs(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Rows that follow one another, as ranges."""
    first = rows[0]
    for row, following in pairwise([*rows, -1]):
        if following != row + 1:
            yield first, row + 1
            first = following


def _mask(columns: Columns, wanted: Restriction) -> Any:
    """Which rows are wanted; None if all of them are."""
    masks = [
        _within(numbers, allowed)
        for numbers, allowed in ((columns.offsets, wanted.offsets), (columns.timestamps, wanted.times))
        if not allowed.is_everything
    ]
    mask = masks[0] if len(masks) == 1 else pc.and_(*masks) if masks else None
    return None if mask is None or mask.true_count == len(mask) else mask


def _within(numbers: Column, allowed: NumberSet) -> Any:
    if len(allowed.intervals) > FEW_INTERVALS:
        return pa.array([number in allowed for number in numbers.tolist()], pa.bool_())
    column: Any = numbers
    array = pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(column)])
    mask = pa.repeat(pa.scalar(False), len(numbers))
    for first, last in allowed.intervals:
        at_least, at_most = pc.greater_equal(array, first), pc.less_equal(array, last)
        mask = pc.or_(mask, pc.and_(at_least, at_most))
    return mask
