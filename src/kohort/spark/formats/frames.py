"""Takes the frames off a column of records of a schema registry: the magic byte and the schema's id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.formats.byte_columns import parts
from kohort.wire.records.columns import loops_for

FRAME_SIZE = 5


@dataclass(slots=True)
class UnframedColumn:
    ids: Any
    """The schema id of each record, as NumPy has it; -1 where there is none."""
    payloads: Any
    """What follows, as an array of the type binary; null where there is no frame."""
    bad: dict[int, str]
    """Row and reason, where a record is not null and has no frame."""


def frame_ids(data: Any) -> tuple[Any, dict[int, str]]:
    """The schema id of each record (-1: none), and of those that should have one and have none the reason."""
    from kohort.serde.errors import DataMismatch
    from kohort.serde.framing import split

    content, ends = parts(data)
    starts, sizes = ends[:-1].astype(np.int64), np.diff(ends)
    ids = np.full(len(data), -1, np.int64)
    framed = sizes >= FRAME_SIZE
    at = starts[framed]
    magic = content[at] == 0
    at = at[magic]
    rows = np.flatnonzero(framed)[magic]
    ids[rows] = sum(content[at + 1 + byte].astype(np.int64) << (8 * (3 - byte)) for byte in range(4))
    bad: dict[int, str] = {}
    for row in np.flatnonzero(ids < 0).tolist():
        value = data[row].as_py()
        if value is not None:
            try:
                split(value)
            except DataMismatch as mismatch:
                bad[row] = str(mismatch)
    return ids, bad


def unframed(data: Any) -> UnframedColumn:
    """The payloads of framed records."""
    ids, bad = frame_ids(data)
    content, ends = parts(data)
    starts = ends[:-1] + FRAME_SIZE
    sizes = np.where(ids >= 0, ends[1:] - starts, -1)  # -1 is null
    pieces = [(content, starts.astype(np.int32), sizes.astype(np.int32))]
    validity, *buffers = loops_for(len(content)).gather(pieces)
    payloads = pa.Array.from_buffers(
        pa.binary(),
        len(data),
        [None if validity is None else pa.py_buffer(validity), *map(pa.py_buffer, buffers)],
    )
    return UnframedColumn(ids, payloads, bad)
