"""Finds out, compiled by Numba, which values are one JSON object each, so that many can be parsed at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from kohort.wire.records.kernels import BYTES_IN, BYTES_OUT, INT32S_IN, INT64, kernel

OBJECT, EMPTY, OTHER = 0, 1, 2
_QUOTE, _BACKSLASH, _BLANK = ord('"'), ord("\\"), ord(" ")
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = ord("{"), ord("}"), ord("["), ord("]")


@kernel(INT64(BYTES_IN, INT32S_IN, BYTES_OUT))
def scan_objects(data: Any, ends: Any, found: Any) -> int:
    """Says of each value whether it is one object from its first brace to its last byte, blanks aside.

    Brackets and strings alone are looked at. If what a parser reads one after the other has as many opening as closing
    brackets, and no earlier than at its end, then the parser ends each object where its value ends, or fails.
    Returns how many are not OBJECT.
    """
    others = 0
    for row in range(len(ends) - 1):
        at, end = ends[row], ends[row + 1]
        while at < end and (data[at] == _BLANK or 9 <= data[at] <= 13):
            at += 1
        if at == end:
            found[row] = EMPTY
            others += 1
            continue
        depth = np.int64(0)
        kind = OTHER
        if data[at] == _OPEN:
            while at < end:
                byte = data[at]
                at += 1
                if byte == _QUOTE:
                    while at < end and data[at] != _QUOTE:
                        at += 2 if data[at] == _BACKSLASH else 1
                    at += 1
                elif byte == _OPEN or byte == _OPEN_LIST:
                    depth += 1
                elif byte == _CLOSE or byte == _CLOSE_LIST:
                    depth -= 1
                    if depth == 0:
                        break
            while at < end and (data[at] == _BLANK or 9 <= data[at] <= 13):
                at += 1
            if depth == 0 and at == end:
                kind = OBJECT
        found[row] = kind
        others += kind != OBJECT
    return others
