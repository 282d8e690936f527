"""Records as Spark's rows: columns of a fetched partition -> Arrow, in the types that Spark asks for.

Spark compares the schema of what it gets with the one it expects, so types and nullability are exactly its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from kohort.client.types import TopicPartition
from kohort.wire.arrow import PartitionColumns, to_arrow
from kohort.wire.columns import Columns

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
_NAMES = {"timestampType": "timestamp_type"}


def schema_of(names: Sequence[str]) -> pa.Schema:
    """What `to_rows` gives for these columns."""
    return pa.schema([pa.field(name, TYPES[name]) for name in names])


def to_rows(partition: TopicPartition, columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """One batch with the columns of the schema; the others are not touched."""
    part = PartitionColumns(partition.topic, partition.partition, columns)
    names = [_NAMES.get(name, name) for name in schema.names]
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(columns), pa.struct([])))
    batch = to_arrow([part], columns=names, topic_as_string=True)
    arrays = [
        _CHANGED[name](batch.column(at), columns, schema.field(at).type)
        if name in _CHANGED
        else batch.column(at)
        for at, name in enumerate(schema.names)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _timestamps(array: Any, columns: Columns, kind: Any) -> Any:
    """Kafka counts milliseconds, Spark microseconds."""
    times: Any = columns.timestamps
    if isinstance(times, memoryview):
        return array.cast(pa.timestamp("us")).cast(kind)
    return pa.Array.from_buffers(kind, len(times), [None, pa.py_buffer(times * 1000)])


def _headers(array: Any, columns: Columns, kind: Any) -> Any:
    """A record without headers has null, as in Spark's own connector."""
    if not columns.has_headers:
        return pa.nulls(len(array), kind)
    pairs = array.values
    structs = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(kind.value_type))
    has_some = pa.array([count > 0 for count in columns.header_count.tolist()])
    validity = has_some.buffers()[1]
    return pa.Array.from_buffers(kind, len(array), [validity, array.buffers()[1]], children=[structs])


_CHANGED: dict[str, Callable[[Any, Columns, Any], Any]] = {"timestamp": _timestamps, "headers": _headers}
