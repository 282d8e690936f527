"""Turns columns of records into Arrow batches.

pyarrow is loaded with this module, so a caller imports it only when it is needed.

    key: binary   value: binary   topic: dictionary<int32, string>   partition: int32   offset: int64
    timestamp: timestamp[ms]   timestamp_type: int32   headers: list<struct<key: string, value: binary>>

Only key, value and the values of headers can be null: a record without a timestamp has -1.
With `binary_view`, key and value are of that type: 16 bytes for each, which say where in the fetched bytes it lies.
Nothing is copied, and the batch keeps all of those bytes as long as it lives.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from kohort.wire.records.columns import Column, Columns, Pieces, loops_for

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms"), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("headers", pa.list_(HEADER), nullable=False),
    ]
)
_VIEW = pa.binary_view()
_NO_HEADERS = pa.array([], HEADER)
LARGEST_COLUMN = (1 << 31) - 1
"""Bytes that a column of type binary can hold."""


class PartitionColumns(NamedTuple):
    """Columns, and the partition that they were read from."""

    topic: str
    partition: int
    columns: Columns


# --- to Arrow -------------------------------------------------------------------------------------


def to_arrow(
    parts: Sequence[PartitionColumns],
    *,
    columns: Sequence[str] | None = None,
    topic_as_string: bool = False,
    binary_view: bool = False,
) -> pa.RecordBatch:
    """All parts, in their order, as one batch with the columns that are asked for.

    Raises OverflowError if keys or values are more than 2 GiB: `to_arrow_batches` divides them.
    """
    schema = arrow_schema(columns, topic_as_string=topic_as_string, binary_view=binary_view)
    return batch_of(parts, schema, {})


def batch_of(parts: Sequence[PartitionColumns], schema: pa.Schema, made: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of the columns that are `made` already and the others of the schema."""
    arrays = [
        made[field.name] if field.name in made else _BUILDERS[field.name](parts, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_arrow_batches(
    parts: Sequence[PartitionColumns],
    *,
    columns: Sequence[str] | None = None,
    topic_as_string: bool = False,
    max_bytes: int = LARGEST_COLUMN,
) -> list[pa.RecordBatch]:
    """The same as several batches, if one cannot hold the bytes of all parts."""
    groups: list[list[PartitionColumns]] = []
    left = 0
    for part in parts:
        size = extent(part.columns)
        if not groups or size > left:
            groups.append([])
            left = max_bytes
        groups[-1].append(part)
        left -= size
    return [to_arrow(group, columns=columns, topic_as_string=topic_as_string) for group in groups]


def arrow_schema(
    columns: Sequence[str] | None = None, *, topic_as_string: bool = False, binary_view: bool = False
) -> pa.Schema:
    """The schema of the columns that are asked for, in that order."""
    schema = SCHEMA
    if topic_as_string:
        schema = schema.set(schema.get_field_index("topic"), pa.field("topic", pa.string(), nullable=False))
    if binary_view:
        schema = schema.set(0, pa.field("key", pa.binary_view())).set(1, pa.field("value", pa.binary_view()))
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown:
        raise ValueError(f"records have no column {unknown[0]!r}; they have {', '.join(SCHEMA.names)}")
    return pa.schema([schema.field(name) for name in columns])


def extent(columns: Columns) -> int:
    """An upper bound of the bytes of keys and values, or of headers."""
    if not len(columns):
        return 0
    end = len(columns.data) if columns.has_headers else int(columns.headers_start[-1])
    return end - int(columns.key_start[0])


def _rows(parts: Sequence[PartitionColumns]) -> int:
    return sum(len(part.columns) for part in parts)


def _keys(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    if not any(part.columns.has_keys for part in parts):
        return pa.nulls(_rows(parts), kind)
    return _binary(
        [(part.columns.data, part.columns.key_start, part.columns.key_size) for part in parts], kind
    )


def _values(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    return _binary(
        [(part.columns.data, part.columns.value_start, part.columns.value_size) for part in parts], kind
    )


def _binary(pieces: Sequence[Pieces], kind: Any) -> Any:
    pieces = [piece for piece in pieces if len(piece[1])]
    if not pieces:
        return pa.array([], kind)
    rows = sum(len(piece[1]) for piece in pieces)
    loops = loops_for(sum(len(piece[0]) for piece in pieces))
    if kind == _VIEW:
        validity, views = loops.views(pieces)
        buffers = [views, *(data for data, _, _ in pieces)]
    else:
        # Arrow's allocator keeps memory for the next batch; the system's allocator takes it back page by page.
        validity, *buffers = loops.gather(pieces, pa.allocate_buffer)
    return bytes_array(kind, rows, validity, *buffers)


def bytes_array(kind: Any, rows: int, validity: Any, *buffers: Any) -> Any:
    return pa.Array.from_buffers(
        kind, rows, [None if validity is None else pa.py_buffer(validity), *map(pa.py_buffer, buffers)]
    )


def _numbers(columns: Iterable[Column], rows: int, kind: Any) -> Any:
    buffers: list[Any] = list(columns)
    buffer = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)])


def _repeated(numbers: Iterable[tuple[int, int]], rows: int, kind: Any) -> Any:
    """Repeats each number as often as its run is long."""
    buffer = b"".join((array("i", [number]) * times).tobytes() for number, times in numbers)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)])


def _topics(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    known = {topic: number for number, topic in enumerate(dict.fromkeys(part.topic for part in parts))}
    numbers = ((known[part.topic], len(part.columns)) for part in parts)
    indices = _repeated(numbers, _rows(parts), pa.int32())
    made = pa.DictionaryArray.from_arrays(indices, pa.array(list(known), pa.string()))
    return made.dictionary_decode() if kind == pa.string() else made


def _partitions(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    return _repeated(((part.partition, len(part.columns)) for part in parts), _rows(parts), kind)


def _offsets(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    return _numbers((part.columns.offsets for part in parts), _rows(parts), kind)


def _timestamps(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    return _numbers((part.columns.timestamps for part in parts), _rows(parts), kind)


def _timestamp_types(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    numbers: list[tuple[int, int]] = []
    for part in parts:
        before = 0
        for end, _, timestamp_type in part.columns.runs:
            numbers.append((timestamp_type, end - before))
            before = end
    return _repeated(numbers, _rows(parts), kind)


def _headers(parts: Sequence[PartitionColumns], kind: Any) -> Any:
    if not any(part.columns.has_headers for part in parts):
        ends = bytes(4 * (_rows(parts) + 1))
        return pa.Array.from_buffers(kind, _rows(parts), [None, pa.py_buffer(ends)], children=[_NO_HEADERS])
    counts: list[Iterable[int]] = []
    names: list[Pieces] = []
    values: list[Pieces] = []
    for part in parts:
        if not part.columns.has_headers:
            counts.append(repeat(0, len(part.columns)))
            continue
        counts.append(part.columns.header_count.tolist())
        name, value = loops_for(len(part.columns.data)).header_pieces(part.columns)
        names.append(name)
        values.append(value)
    all_ends = array("i", accumulate(chain.from_iterable(counts), initial=0))
    structs = pa.StructArray.from_arrays(
        [_names(_binary(names, pa.binary())), _binary(values, pa.binary())], fields=list(HEADER)
    )
    return pa.Array.from_buffers(kind, _rows(parts), [None, pa.py_buffer(all_ends)], children=[structs])


def _names(names: Any) -> Any:
    """Header names as strings. Kafka does not check them, so bytes that are not UTF-8 become replacement characters."""
    try:
        text = names.view(pa.string())
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    return text


_BUILDERS: dict[str, Callable[[Sequence[PartitionColumns], Any], Any]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestamp_type": _timestamp_types,
    "headers": _headers,
}
