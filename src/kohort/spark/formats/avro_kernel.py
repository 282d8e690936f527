"""Decodes Avro into columns, compiled by Numba: runs a program, made of a schema, over each record.

The program is data, so nothing is compiled for a new schema. A column is a row of `cells` (for bytes two: start and
size) and of `valid`; `filled` counts what each has. A record that fails is undone and stands as null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from kohort.spark.formats.column_runs import OF_BYTES, OF_LISTS
from kohort.wire.records.kernels import (
    BYTES_IN,
    INT32S_IN,
    INT64,
    INT64_TABLE,
    INT64S,
    INT64S_IN,
    kernel,
    part,
)

FLAGS = types.Array(types.uint8, 2, "C")

# Operations: one row of the program each, with up to three numbers. A column of -1 is read and forgotten.
NUMBER, BOOLEAN, FLOAT, DOUBLE, BYTES, FIXED, ENUM, STRUCT, UNION, JUMP, BEGIN, NEXT, FAIL, END = range(14)
# Why a record is bad, with a number more.
TOO_SHORT, TOO_LONG_NUMBER, NO_BRANCH, NO_SYMBOL, NO_BOOLEAN, BELOW_ZERO, LEFT_OVER, NULL, TOO_MANY = range(
    1, 10
)
FULL = -1
DEEPEST = 64
"""Arrays and maps within each other."""


@part
def varint(data: Any, pos: Any, end: Any) -> tuple[Any, Any]:
    """A zigzag number of up to 10 bytes and the position after it; -TOO_SHORT or -TOO_LONG_NUMBER instead of that."""
    if pos < end and data[pos] < 0x80:
        byte: Any = np.int64(data[pos])
        return (byte >> 1) ^ -(byte & 1), pos + 1
    number: Any = np.uint64(0)
    shift: Any = np.uint64(0)
    while True:
        if pos >= end:
            return 0, -TOO_SHORT
        piece: Any = np.uint64(data[pos])
        pos += 1
        if shift == 63 and piece > 1:
            return 0, -TOO_LONG_NUMBER
        number |= (piece & np.uint64(0x7F)) << shift
        if piece < 0x80:
            return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), pos
        shift += np.uint64(7)


@part
def put_null(column: Any, kinds: Any, cells: Any, valid: Any, filled: Any, counts: Any) -> bool:
    """Adds null to a column; False if it is full."""
    at = filled[column]
    if at >= cells.shape[1]:
        return False
    cells[column, at] = counts[column] if kinds[column] == OF_LISTS else 0
    if kinds[column] == OF_BYTES:
        cells[column + 1, at] = -1
    valid[column, at] = 0
    filled[column] = at + 1
    return True


@kernel(
    INT64(
        INT64_TABLE, INT64S_IN, INT64S_IN, INT64S_IN, BYTES_IN, INT32S_IN, INT64S_IN, INT64S_IN, INT64_TABLE, FLAGS,
        INT64S, INT64S, INT64_TABLE,
    )
)  # fmt: skip
def run(
    program: Any, branches: Any, nulls: Any, kinds: Any, data: Any, ends: Any, rows: Any, settings: Any, cells: Any,
    valid: Any, filled: Any, counts: Any, bad: Any,
) -> int:  # fmt: skip
    """Decodes the values at `rows`; FULL if a column has too little room.

    `branches` has three numbers for each branch of a union: where it goes on, and from where to where `nulls` has the
    columns that are null then. `settings`: how many bytes of each value to skip, how many columns at the end of `nulls`
    are null if a record is bad, and whether a record with too many elements is bad (1) or columns are to be larger (0).
    `bad` gets a reason and a number for each record.
    """
    skip, top, overflow_is_bad = settings[0], settings[1], settings[2] == 1
    columns = len(filled)
    filled_before, counts_before = np.empty(columns, np.int64), np.empty(columns, np.int64)
    left = np.empty(DEEPEST, np.int64)
    for record in range(len(rows)):
        row = rows[record]
        pos, end = np.int64(ends[row]) + skip, np.int64(ends[row + 1])
        for column in range(columns):
            filled_before[column], counts_before[column] = filled[column], counts[column]
        wrong, detail = 0, np.int64(0)
        pc, depth = 0, 0
        while True:
            op, column = program[pc, 0], program[pc, 1]
            if op == END:
                if pos != end:
                    wrong, detail = LEFT_OVER, end - pos
                break
            if op == JUMP:
                pc = column
                continue
            if op == FAIL:
                wrong = NULL
                break
            number: Any = np.int64(0)
            size: Any = np.int64(0)
            if op == NUMBER or op == ENUM:
                number, pos = varint(data, pos, end)
                if pos < 0:
                    wrong = -pos
                    break
                if op == ENUM and (number < 0 or number >= program[pc, 2]):
                    wrong, detail = NO_SYMBOL, number
                    break
                if op == NUMBER and program[pc, 2] == 32 and (number < -2147483648 or number > 2147483647):
                    wrong = TOO_LONG_NUMBER
                    break
            elif op == BYTES:
                size, pos = varint(data, pos, end)
                if pos < 0:
                    wrong = -pos
                    break
                if size < 0:
                    wrong, detail = BELOW_ZERO, size
                    break
                if size > end - pos:
                    wrong = TOO_SHORT
                    break
                number = pos
                pos += size
            elif op == FIXED or op == FLOAT or op == DOUBLE or op == BOOLEAN:
                size = program[pc, 2]
                if size > end - pos:
                    wrong = TOO_SHORT
                    break
                if op == BOOLEAN:
                    number = np.int64(data[pos])
                    if number > 1:
                        wrong, detail = NO_BOOLEAN, number
                        break
                elif op == FIXED:
                    number = pos
                else:
                    for at in range(size):
                        number |= np.int64(data[pos + at]) << np.int64(8 * at)
                pos += size
            elif op == UNION:
                number, pos = varint(data, pos, end)
                if pos < 0:
                    wrong = -pos
                    break
                if number < 0 or number >= program[pc, 1]:
                    wrong, detail = NO_BRANCH, number
                    break
                branch = program[pc, 2] + 3 * number
                room = True
                for at in range(branches[branch + 1], branches[branch + 2]):
                    room = room and put_null(nulls[at], kinds, cells, valid, filled, counts)
                if not room:
                    wrong = TOO_MANY
                    break
                pc = branches[branch]
                continue
            elif op == BEGIN or op == NEXT:
                if op == NEXT:
                    if column >= 0:
                        counts[column] += 1
                        if counts[column] > cells.shape[1]:
                            wrong = TOO_MANY
                            break
                    left[depth - 1] -= 1
                    if left[depth - 1] > 0:
                        pc = program[pc, 2]
                        continue
                    depth -= 1
                number, pos = varint(data, pos, end)
                if pos < 0:
                    wrong = -pos
                    break
                if number < 0:
                    number = -number
                    size, pos = varint(data, pos, end)
                    if pos < 0:
                        wrong = -pos
                        break
                if number < 0 or number > cells.shape[1]:
                    # No array is longer than the columns may be; the smallest number is its own negative.
                    wrong = TOO_MANY
                    break
                if number > 0:
                    if depth == DEEPEST:
                        wrong = TOO_MANY
                        break
                    left[depth] = number
                    depth += 1
                    pc = pc + 1 if op == BEGIN else program[pc, 2]
                    continue
                number = counts[column] if column >= 0 else 0
                if op == BEGIN:
                    pc = program[pc, 2]
            if column >= 0:
                at = filled[column]
                if at >= cells.shape[1]:
                    wrong = TOO_MANY
                    break
                cells[column, at] = number
                if kinds[column] == OF_BYTES:
                    cells[column + 1, at] = size
                valid[column, at] = 1
                filled[column] = at + 1
            pc += 1
        if wrong == TOO_MANY and not overflow_is_bad:
            return FULL
        bad[record, 0], bad[record, 1] = wrong, detail
        if wrong:
            for column in range(columns):
                filled[column], counts[column] = filled_before[column], counts_before[column]
            for at in range(len(nulls) - top, len(nulls)):
                put_null(nulls[at], kinds, cells, valid, filled, counts)
    return 0


@kernel(INT64(BYTES_IN, INT64S_IN, INT64S_IN, types.Array(types.uint8, 2, "C")))
def decimals(data: Any, starts: Any, sizes: Any, out: Any) -> int:
    """Turns big-endian numbers of any size into 16 bytes, little-endian; how many do not fit."""
    too_large = 0
    for row in range(len(starts)):
        start, size = starts[row], sizes[row]
        sign = np.uint8(0xFF) if size > 0 and data[start] >= 0x80 else np.uint8(0)
        for at in range(16):
            out[row, at] = data[start + size - 1 - at] if at < size else sign
        if size > 16:
            fits = (out[row, 15] >= 0x80) == (sign != 0)
            for at in range(size - 16):
                fits = fits and data[start + at] == sign
            too_large += not fits
    return too_large
