"""Templates of encodings that differ from one another only in the values of some int64 fields.

A template separates the bytes that stay the same from the fields that change. It is found by comparing two encodings,
one with 0 in each of these fields and one with -1. So nothing here knows a format, and the encoder of that format stays
its only description.
"""

from __future__ import annotations

from struct import Struct

_ONES = b"\xff" * 8


def int64_fields(zeros: bytes | bytearray, ones: bytes | bytearray) -> Struct:
    """The template as a `Struct` of constant bytes and fields in alternation: bytes, int64, bytes, int64, …, bytes.

    `zeros` and `ones` are the same encoding with 0 and with -1 in the fields that change.
    """
    assert len(zeros) == len(ones)
    differ = (int.from_bytes(zeros, "big") ^ int.from_bytes(ones, "big")).to_bytes(len(zeros), "big")
    layout, after = [">"], 0
    while (at := differ.find(_ONES, after)) >= 0:
        layout.append(f"{at - after}sq")
        after = at + 8
    layout.append(f"{len(zeros) - after}s")
    assert 8 * (len(layout) - 2) == len(zeros) - differ.count(0), "something else than int64 fields differs"
    return Struct("".join(layout))
