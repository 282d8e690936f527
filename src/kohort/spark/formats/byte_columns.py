"""Shows a column of bytes to NumPy: the bytes, and where each value ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def parts(data: Any) -> tuple[Any, Any]:
    """The bytes of an array of the type binary, and the ends of its values, which begin with the start of the first."""
    _, ends, content = data.buffers()
    numbers = np.frombuffer(ends, np.int32)[data.offset : data.offset + len(data) + 1]
    if content is None:
        content = pa.py_buffer(b"")
    return read_only(np.frombuffer(content, np.uint8)), read_only(numbers)


def read_only(column: Any) -> Any:
    """The same memory as a view that cannot be written, which is what the compiled loops take."""
    view = column.view()
    view.flags.writeable = False
    return view


def bitmap(valid: Any) -> Any:
    """A validity buffer of an array of booleans; None if all are true."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def placed(array: Any, rows: Any, count: int) -> Any:
    """The values of `array` at these rows of a column of `count` rows, which is null elsewhere."""
    if len(array) == count:
        return array
    index = np.full(count, -1, np.int64)
    index[rows] = np.arange(len(array))
    return array.take(pa.array(index, mask=index < 0))
