"""Encodings that differ from one another in nothing but some int64 fields.

What is the same is told apart from what moves by looking at two encodings: one with 0 in each of these fields, one
with -1. So nothing here knows a format, and the encoder of that format stays its only description.
"""

from __future__ import annotations

from struct import Struct

_ONES = b"\xff" * 8


def int64_fields(zeros: bytes | bytearray, ones: bytes | bytearray) -> Struct:
    """Splits such an encoding into what stays and what moves, by turns: bytes, int64, bytes, int64, …, bytes.

    `zeros` and `ones` are the same thing with 0 and with -1 in the fields that move.
    """
    assert len(zeros) == len(ones)
    differ = (int.from_bytes(zeros, "big") ^ int.from_bytes(ones, "big")).to_bytes(len(zeros), "big")
    layout, after = [">"], 0
    while (at := differ.find(_ONES, after)) >= 0:
        layout.append(f"{at - after}sq")
        after = at + 8
    layout.append(f"{len(zeros) - after}s")
    assert 8 * (len(layout) - 2) == len(zeros) - differ.count(0), "more than int64 fields moved"
    return Struct("".join(layout))
