"""Turns the columns of a fetched partition into Arrow batches, in the types that Spark asks for.

Spark compares the schema of what it gets with the one it expects, so types and nullability are exactly its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kohort.client.types import TopicPartition
from kohort.wire.records.arrow import PartitionColumns, to_arrow
from kohort.wire.records.buffer_pool import BufferPool
from kohort.wire.records.columns import Column, Columns, loops_for

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}
LARGEST_PIECE = 4 << 20
"""So many bytes, unpacked, are made into one Arrow batch; one record batch more at most. An answer without compression
is one piece. With pieces of 8 MB, larger than the buffers they are gathered in, most of that memory was new each time
(lz4: up to 13,000 page faults a query). With smaller ones, each switch between Python and the JVM costs 0.2 ms more."""
_BUFFER = LARGEST_PIECE + (1 << 20)
_buffers = BufferPool(8 * _BUFFER)
"""Where keys and values are gathered. Two batches are alive at a time: the one that Spark writes and the one before."""


def schema_of(names: Sequence[str], types: Mapping[str, Any] = TYPES) -> pa.Schema:
    """What `Rows` gives for these columns."""
    return pa.schema([pa.field(name, types[name]) for name in names])


class Rows:
    """Makes batches of one partition's records; columns that are not named are not touched.

    A column that is the same in all rows is made once, for the largest batch so far, and is shared by the batches.
    """

    def __init__(
        self, partition: TopicPartition, names: Sequence[str], types: Mapping[str, Any] = TYPES
    ) -> None:
        self.partition, self.schema = partition, schema_of(names, types)
        self._makers = [MAKERS[name] for name in names if name in MAKERS]
        self._repeated: dict[tuple[Any, str | int], Any] = {}

    def batch(self, columns: Columns) -> pa.RecordBatch:
        if not self._makers:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(columns), pa.struct([])))
        arrays = [make(self, columns) for make in self._makers]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def same(self, value: str | int, kind: Any, rows: int) -> Any:
        """One value in so many rows."""
        made = self._repeated.get((kind, value))
        if made is None or len(made) < rows:
            made = self._repeated[kind, value] = pa.repeat(pa.scalar(value, kind), rows)
        return made.slice(0, rows)


def _keys(rows: Rows, columns: Columns) -> Any:
    if not columns.has_keys:
        return pa.nulls(len(columns), TYPES["key"])
    return _gathered(columns, columns.key_start, columns.key_size, TYPES["key"])


def _values(rows: Rows, columns: Columns) -> Any:
    return _gathered(columns, columns.value_start, columns.value_size, TYPES["value"])


def _gathered(columns: Columns, starts: Column, sizes: Column, kind: Any) -> Any:
    gather = loops_for(len(columns.data)).gather
    validity, *buffers = gather([(columns.data, starts, sizes)], _buffer)
    return pa.Array.from_buffers(
        kind,
        len(columns),
        [None if validity is None else pa.py_buffer(validity), *map(pa.py_buffer, buffers)],
    )


def _buffer(size: int) -> memoryview:
    """All buffers are of one size, larger than a piece, so that each fits every batch."""
    return _buffers.take(max(size, _BUFFER))[:size]


def _topics(rows: Rows, columns: Columns) -> Any:
    return rows.same(rows.partition.topic, TYPES["topic"], len(columns))


def _partitions(rows: Rows, columns: Columns) -> Any:
    return rows.same(rows.partition.partition, TYPES["partition"], len(columns))


def _offsets(rows: Rows, columns: Columns) -> Any:
    return _numbers(columns.offsets, TYPES["offset"])


def _numbers(numbers: Any, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _timestamps(rows: Rows, columns: Columns) -> Any:
    """Kafka counts milliseconds, Spark microseconds."""
    times: Any = columns.timestamps
    if isinstance(times, memoryview):
        return _numbers(times, pa.timestamp("ms", "UTC")).cast(TYPES["timestamp"])
    return _numbers(times * 1000, TYPES["timestamp"])


def _timestamp_types(rows: Rows, columns: Columns) -> Any:
    kind, before, parts = TYPES["timestampType"], 0, []
    for end, _, timestamp_type in columns.runs:
        parts.append(rows.same(timestamp_type, kind, end - before))
        before = end
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _headers(rows: Rows, columns: Columns) -> Any:
    """A record without headers has null, as in Spark's own connector."""
    kind = TYPES["headers"]
    if not columns.has_headers:
        return pa.nulls(len(columns), kind)
    array = to_arrow([PartitionColumns("", 0, columns)], columns=["headers"]).column(0)
    pairs = array.values
    structs = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(kind.value_type))
    has_some = pa.array([count > 0 for count in columns.header_count.tolist()])
    validity = has_some.buffers()[1]
    return pa.Array.from_buffers(kind, len(columns), [validity, array.buffers()[1]], children=[structs])


MAKERS: dict[str, Callable[[Rows, Columns], Any]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
