"""Strings: keys or values that are UTF-8."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kohort.spark.formats.decoding import DecodedColumn


class StringDecoder:
    """Shows bytes as text, without a copy; what is no UTF-8 is bad."""

    def decode(self, data: Any) -> DecodedColumn:
        array = as_strings(data)
        if array is not None:
            return DecodedColumn(array)
        values, bad = data.to_pylist(), {}
        for row, value in enumerate(values):
            if value is not None:
                try:
                    values[row] = value.decode()
                except UnicodeDecodeError as error:
                    values[row], bad[row] = None, f"it is no UTF-8 at byte {error.start}"
        return DecodedColumn(pa.array(values, pa.string()), bad)


def as_strings(data: Any) -> Any:
    """The same bytes as an array of strings; None if some are no UTF-8."""
    array = data.view(pa.string())
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return array
