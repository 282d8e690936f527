"""Encodes records straight out of lists of bytes objects, compiled by Numba and without Python's lock.

`kernels_encode` first joins the values and asks each for its size, under the lock, which a producer's thread shares
with the program that sends. Here the compiled loop follows the list's own pointers to the objects, as CPython lays them
out in memory: a batch of 1 MB takes the lock for some microseconds. `CAN_READ_OBJECTS` says whether this Python lays
them out so; where it does not, `kernels_encode` joins.

The lists must not change while they are read: those of a closed batch do not.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kohort.wire.records.kernels import BYTES_OUT, FAILED, INT64, INT64S_IN, kernel
from kohort.wire.records.kernels_encode import put_varint, varint_size

# Of a build with the lock, on 64 bits: reference count, type, size, and then
TYPE_AT, SIZE_AT = 8, 16
BYTES_AT = 32  # behind the hash: the bytes themselves
ITEMS_AT = 24  # of a list: the address of its pointers
POINTER = 8
OTHER = -2
"""Instead of a size: there is something else than bytes and None."""


def _can_read_objects() -> bool:
    """Looks at objects whose contents are known; their sizes tell first whether it is safe to look."""
    if sys.implementation.name != "cpython" or (bytes.__basicsize__, list.__basicsize__) != (33, 40):
        return False
    content = b"known bytes"
    known = [content, None]
    word = ctypes.c_int64.from_address
    items = word(id(known) + ITEMS_AT).value
    return (
        [word(items).value, word(items + POINTER).value] == [id(content), id(None)]
        and word(id(content) + TYPE_AT).value == id(bytes)
        and word(id(content) + SIZE_AT).value == len(content)
        and ctypes.string_at(id(content) + BYTES_AT, len(content)) == content
    )


CAN_READ_OBJECTS = _can_read_objects()


def _word_at(typing_context: Any, address: Any) -> Any:
    """The 64 bits at an address."""
    word: Any = cgutils.intp_t

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], word.as_pointer()))

    return types.int64(types.int64), build


def _copy_from(typing_context: Any, target: Any, target_at: Any, address: Any, size: Any) -> Any:
    """memcpy of `size` bytes from an address into an array; the caller has checked that they fit."""
    raw_memcpy: Any = cgutils.raw_memcpy
    pointer: Any = cgutils.voidptr_t

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target_array = context.make_array(signature.args[0])(context, builder, args[0])
        to = builder.gep(target_array.data, [args[1]])
        source = builder.inttoptr(args[2], pointer)
        raw_memcpy(builder, to, source, args[3], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.int64, types.int64), build


word_at: Any = intrinsic(_word_at)
copy_from: Any = intrinsic(_copy_from)


@kernel(INT64(INT64, INT64, INT64, INT64))
def size_of_all(items: int, count: int, bytes_type: int, none: int) -> int:
    """The bytes of all objects of a list together; OTHER if one is neither bytes nor None."""
    total: Any = np.int64(0)
    for row in range(count):
        item = word_at(items + row * POINTER)
        if item == none:
            continue
        if word_at(item + TYPE_AT) != bytes_type:
            return OTHER
        total += word_at(item + SIZE_AT)
    return total  # type: ignore[no-any-return]


@kernel(INT64(INT64, INT64, INT64, INT64S_IN, INT64, INT64, BYTES_OUT, INT64))
def encode_objects(
    keys: int, values: int, none: int, timestamps: Any, base_timestamp: int, count: int, out: Any, at: int
) -> int:
    """Writes `count` records without headers to `out` from `at` on, as `encode_rows` does; the position after them.

    `keys` and `values` are the addresses of the pointers of lists that `size_of_all` has looked at; without keys, the
    first is 0. Without timestamps, all records have the base timestamp. FAILED if there is not enough room.
    """
    with_times = len(timestamps) > 0
    zero: Any = np.int64(0)
    delta = zero
    for row in range(count):
        key = none if keys == 0 else word_at(keys + row * POINTER)
        value = word_at(values + row * POINTER)
        key_size = zero - 1 if key == none else word_at(key + SIZE_AT)
        value_size = zero - 1 if value == none else word_at(value + SIZE_AT)
        if with_times:
            delta = timestamps[row] - base_timestamp
        size = (
            2 + varint_size(delta) + varint_size(row)
            + varint_size(key_size) + max(key_size, zero)
            + varint_size(value_size) + max(value_size, zero)
        )  # fmt: skip
        if size + 5 > len(out) - at:
            return FAILED
        at = put_varint(out, at, size)
        out[at] = 0
        at = put_varint(out, at + 1, delta)
        at = put_varint(out, at, row)
        at = put_varint(out, at, key_size)
        if key_size > 0:
            copy_from(out, at, key + BYTES_AT, key_size)
            at += key_size
        at = put_varint(out, at, value_size)
        if value_size > 0:
            copy_from(out, at, value + BYTES_AT, value_size)
            at += value_size
        out[at] = 0
        at += 1
    return at


def items_of(objects: list[Any]) -> int:
    """The address of a list's pointers."""
    return ctypes.c_int64.from_address(id(objects) + ITEMS_AT).value
