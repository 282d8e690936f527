"""Decodes Protobuf into columns, compiled by Numba: follows tables that describe the messages, over each record.

The tables are data, so nothing is compiled for a new schema. A message begins with a row of initial values in all of
its columns; fields are written into the last row. So a field that comes twice, or a message in two parts, ends as
Protobuf says. Whatever is unusual or wrong about a record is left to the protobuf package, which decides what it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kohort.spark.formats.column_runs import OF_BYTES, OF_LISTS
from kohort.wire.records.kernels import (
    BYTES_IN,
    INT64,
    INT64_TABLE,
    INT64S,
    INT64S_IN,
    kernel,
    part,
)

FLAGS = types.Array(types.uint8, 2, "C")

# How a field is encoded; the first ones are varints.
INT32, INT64_BITS, ZIGZAG32, ZIGZAG64, BOOL, FIXED32, FIXED64, LENGTH, MESSAGE = range(9)
# What a row of `fields` has: its number, how it is encoded, the column (-1: it is read and forgotten), the column of
# the list that it is an element of (-1: it is not repeated), the table of its message, where its siblings of a oneof
# stand in `siblings`, and whether a zero means that it is not set.
NUMBER, CODING, COLUMN, LIST, TABLE, SIBLINGS, SIBLINGS_END, ZERO_IS_UNSET, WIDTH = range(9)
# What a row of `tables` has: its fields in `fields`, and its columns in `columns`.
FIELDS, FIELDS_END, COLUMNS, COLUMNS_END = range(4)
GOOD, STRANGE = 0, 1
FULL = -1
DEEPEST = 100


@part
def uvarint(data: Any, pos: Any, end: Any) -> tuple[Any, Any]:
    """A number of up to 10 bytes and the position after it; -1 instead of that if there is none."""
    if pos < end and data[pos] < 0x80:
        return np.uint64(data[pos]), pos + 1
    number: Any = np.uint64(0)
    shift: Any = np.uint64(0)
    while pos < end and shift < 64:
        piece: Any = np.uint64(data[pos])
        pos += 1
        number |= (piece & np.uint64(0x7F)) << shift
        if piece < 0x80:
            return number, pos
        shift += np.uint64(7)
    return number, -1


@part
def scalar(data: Any, pos: Any, end: Any, coding: Any) -> tuple[Any, Any]:
    """A value as it stands in a cell, and the position after it, or -1."""
    if coding <= BOOL:
        bits, pos = uvarint(data, pos, end)
        if coding == INT32:
            return np.int64(np.int32(np.int64(bits & np.uint64(0xFFFFFFFF)))), pos
        if coding == ZIGZAG32:
            low: Any = bits & np.uint64(0xFFFFFFFF)
            return np.int64(low >> np.uint64(1)) ^ -np.int64(low & np.uint64(1)), pos
        if coding == ZIGZAG64:
            return np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1)), pos
        if coding == BOOL:
            return np.int64(bits != 0), pos
        return np.int64(bits), pos
    size = 4 if coding == FIXED32 else 8
    if size > end - pos:
        return np.int64(0), -1
    number: Any = np.int64(0)
    for at in range(size):
        number |= np.int64(data[pos + at]) << np.int64(8 * at)
    if coding == FIXED32:
        number = np.int64(np.int32(number))
    return number, pos + size


@part
def begin(
    columns: Any,
    first: Any,
    last: Any,
    kinds: Any,
    initial: Any,
    cells: Any,
    valid: Any,
    filled: Any,
    counts: Any,
) -> bool:
    """Begins a row in the columns of a message; False if one is full."""
    for place in range(first, last):
        column = columns[place]
        at = filled[column]
        if at >= cells.shape[1]:
            return False
        cells[column, at] = counts[column] if kinds[column] == OF_LISTS else 0
        if kinds[column] == OF_BYTES:
            cells[column + 1, at] = initial[column] - 1  # no bytes, or null
        valid[column, at] = initial[column]
        filled[column] = at + 1
    return True


@part
def set_alone(siblings: Any, first: Any, last: Any, valid: Any, filled: Any) -> bool:
    """Whether no other field of the same oneof is set."""
    for place in range(first, last):
        other = siblings[place]
        if valid[other, filled[other] - 1]:
            return False
    return True


@part
def element(columns: Any, cells: Any, filled: Any, counts: Any) -> bool:
    """Counts an element of a list; False if there are too many."""
    counts[columns] += 1
    cells[columns, filled[columns] - 1] = counts[columns]
    return bool(counts[columns] <= cells.shape[1])


@part
def put(
    column: Any,
    number: Any,
    size: Any,
    kinds: Any,
    cells: Any,
    valid: Any,
    filled: Any,
    append: bool,
    unset: bool,
) -> bool:
    """Writes a value into the last row of a column, or into a new one; False if it is full."""
    if append:
        if filled[column] >= cells.shape[1]:
            return False
        filled[column] += 1
    at = filled[column] - 1
    cells[column, at] = number
    if kinds[column] == OF_BYTES:
        cells[column + 1, at] = -1 if unset and size == 0 else size
        valid[column, at] = not (unset and size == 0)
    else:
        valid[column, at] = not (unset and number == 0)
    return True


@kernel(
    INT64(
        INT64_TABLE, INT64_TABLE, INT64S_IN, INT64S_IN, INT64S_IN, INT64S_IN, BYTES_IN, INT64S_IN, INT64S_IN,
        INT64_TABLE, FLAGS, INT64S, INT64S, INT64S,
    )
)  # fmt: skip
def run(
    tables: Any, fields: Any, columns: Any, siblings: Any, kinds: Any, initial: Any, data: Any, starts: Any, ends: Any,
    cells: Any, valid: Any, filled: Any, counts: Any, found: Any,
) -> int:  # fmt: skip
    """Decodes the messages from `starts` to `ends`; FULL if a column has too little room.

    `found` says of each whether it is GOOD; a STRANGE one has a row of initial values.
    """
    many = len(filled)
    filled_before, counts_before = np.empty(many, np.int64), np.empty(many, np.int64)
    table_of, end_of, next_of = (
        np.empty(DEEPEST, np.int64),
        np.empty(DEEPEST, np.int64),
        np.empty(DEEPEST, np.int64),
    )
    for record in range(len(starts)):
        pos, end = starts[record], ends[record]
        for column in range(many):
            filled_before[column], counts_before[column] = filled[column], counts[column]
        if not begin(
            columns, tables[0, COLUMNS], tables[0, COLUMNS_END], kinds, initial, cells, valid, filled, counts
        ):
            return FULL
        table, depth, hint = np.int64(0), 0, tables[0, FIELDS]
        room, strange = True, False
        while room and not strange:
            if pos == end:
                if depth == 0:
                    break
                depth -= 1
                table, end, hint = table_of[depth], end_of[depth], next_of[depth]
                continue
            tag, pos = uvarint(data, pos, end)
            number, wire = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
            if pos < 0 or number == 0 or tag > 0xFFFFFFFF:
                strange = True
                break
            # Fields mostly come in order: the one after the last one is looked at first.
            first, last = tables[table, FIELDS], tables[table, FIELDS_END]
            field = np.int64(-1)
            at = hint
            for _ in range(last - first):
                if at >= last:
                    at = first
                if fields[at, NUMBER] == number:
                    field = at
                    hint = at + 1
                    break
                at += 1
            size = np.int64(0)
            if wire == 2:
                length, pos = uvarint(data, pos, end)
                if pos < 0 or length > np.uint64(end - pos):
                    strange = True
                    break
                size = np.int64(length)
            if field >= 0:
                coding = fields[field, CODING]
                expected = 0 if coding <= BOOL else 5 if coding == FIXED32 else 1 if coding == FIXED64 else 2
                column, in_list = fields[field, COLUMN], fields[field, LIST]
                if not (wire == expected or (wire == 2 and in_list >= 0 and expected != 2)):
                    strange = True  # another type than the schema has
                    break
                if not set_alone(
                    siblings, fields[field, SIBLINGS], fields[field, SIBLINGS_END], valid, filled
                ):
                    strange = True
                    break
                if column >= 0 or in_list >= 0:
                    if coding == MESSAGE:
                        inner = fields[field, TABLE]
                        if in_list >= 0:
                            room = element(in_list, cells, filled, counts) and begin(
                                columns, tables[inner, COLUMNS], tables[inner, COLUMNS_END], kinds, initial, cells,
                                valid, filled, counts,
                            )  # fmt: skip
                        else:
                            valid[column, filled[column] - 1] = 1
                        if depth == DEEPEST:
                            strange = True
                            break
                        table_of[depth], end_of[depth], next_of[depth] = table, end, hint
                        depth += 1
                        table, end, hint = inner, pos + size, tables[inner, FIELDS]
                        continue
                    if coding == LENGTH:
                        if in_list >= 0:
                            room = element(in_list, cells, filled, counts)
                        unset = fields[field, ZERO_IS_UNSET] == 1
                        room = room and put(
                            column, pos, size, kinds, cells, valid, filled, in_list >= 0, unset
                        )
                        pos += size
                        continue
                    if in_list < 0:
                        value, pos = scalar(data, pos, end, coding)
                        if pos < 0:
                            strange = True
                            break
                        unset = fields[field, ZERO_IS_UNSET] == 1
                        put(column, value, np.int64(0), kinds, cells, valid, filled, False, unset)
                        continue
                    stop = pos + size if wire == 2 else np.int64(-1)
                    while room and pos != stop:
                        value, pos = scalar(data, pos, stop if wire == 2 else end, coding)
                        if pos < 0:
                            strange = True
                            break
                        room = element(in_list, cells, filled, counts) and put(
                            column, value, np.int64(0), kinds, cells, valid, filled, True, False
                        )
                        if wire != 2:
                            break
                    continue
            if wire == 2:
                pos += size
            elif wire == 0:
                _, pos = uvarint(data, pos, end)
                strange = pos < 0
            elif wire == 1 or wire == 5:
                pos += 8 if wire == 1 else 4
                strange = pos > end
            else:
                strange = True  # groups
        if not room:
            return FULL
        found[record] = STRANGE if strange else GOOD
        if strange:
            for column in range(many):
                filled[column], counts[column] = filled_before[column], counts_before[column]
            begin(
                columns,
                tables[0, COLUMNS],
                tables[0, COLUMNS_END],
                kinds,
                initial,
                cells,
                valid,
                filled,
                counts,
            )
    return 0
