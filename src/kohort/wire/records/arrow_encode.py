"""Turns an Arrow batch into record batches for the producer, without an object per record if Numba is there.

    outgoing = outgoing_records(batch, timestamp=now_ms)
    for partition, rows in outgoing.by_partition(partitions).items():
        for some in rows.cut(max_bytes):
            some.encode(compression, level, producer_id, producer_epoch, base_sequence)

Columns are found by name: `value` (binary or string), and if they are there `key`, `timestamp` (a timestamp, or
milliseconds; null: the one that is passed) and `headers` (a list of structs of key and value).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kohort.wire.records.batch import HEADER_SIZE
from kohort.wire.records.columns import Headers, encode_batch_columns, loops_for
from kohort.wire.records.compression import Buffer, Compression

if TYPE_CHECKING:
    from kohort.wire.records.kernels_encode import OutgoingColumns

_RECORD_OVERHEAD = 36  # no record takes more besides key, value and headers


class OutgoingLists:
    """Records to be sent, as lists."""

    __slots__ = ("keys", "values", "timestamps", "headers")

    def __init__(
        self,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        timestamps: list[int] | int,
        headers: list[Headers] | None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """The most bytes that they take as one uncompressed batch."""
        return HEADER_SIZE + sum(self._sizes())

    def key_list(self) -> list[bytes | None]:
        """The key of each record, for a partitioner."""
        return self.keys or [None] * len(self)

    def key_hashes(self, murmur2: Callable[[bytes], int]) -> list[int]:
        """The hash of each key (-1: null), for the partitioner; by `murmur2` where no kernel does it."""
        return [-1 if key is None else murmur2(key) for key in self.key_list()]

    def _sizes(self) -> list[int]:
        sizes = [_RECORD_OVERHEAD + len(value or b"") for value in self.values]
        if self.keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, self.keys, strict=True)]
        if self.headers is not None:
            more = map(_size_of_headers, self.headers)
            sizes = [size + others for size, others in zip(sizes, more, strict=True)]
        return sizes

    def take(self, rows: Sequence[int]) -> OutgoingLists:
        """The records of the given rows, in that order."""
        return OutgoingLists(
            None if self.keys is None else [self.keys[row] for row in rows],
            [self.values[row] for row in rows],
            self.timestamps if isinstance(self.timestamps, int) else [self.timestamps[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
        )

    def by_partition(self, partitions: Sequence[int]) -> dict[int, OutgoingLists]:
        """The records of each partition, in their order; `partitions` names the one of each record."""
        rows: dict[int, list[int]] = {}
        for row, partition in enumerate(partitions):
            rows.setdefault(int(partition), []).append(row)
        return {partition: self.take(chosen) for partition, chosen in sorted(rows.items())}

    def cut(self, max_bytes: int) -> list[OutgoingLists]:
        """As few pieces as hold no more than `max_bytes` each; a larger record gets a piece of its own."""
        ends = _cuts(self._sizes(), max_bytes - HEADER_SIZE)
        return [self.take(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]

    def encode(
        self,
        compression: int = Compression.NONE,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        transactional: bool = False,
    ) -> Buffer:
        """One batch of all of them, as Produce takes it."""
        return encode_batch_columns(
            self.keys, self.values, self.timestamps, self.headers, compression=compression, level=level,
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence,
            transactional=transactional,
        )  # fmt: skip


def _cuts(sizes: Sequence[int], max_bytes: int) -> list[int]:
    """The rows to cut at, so that no piece is larger than `max_bytes` unless it has only one record."""
    ends: list[int] = []
    left = 0
    for row, size in enumerate(sizes):
        if row and size > left:
            ends.append(row)
        if not row or size > left:
            left = max_bytes
        left -= size
    return [*ends, len(sizes)] if sizes else []


def _size_of_headers(headers: Headers) -> int:
    return sum(10 + 4 * len(name) + len(content or b"") for name, content in headers)


def outgoing_records(batch: Any, *, timestamp: int) -> OutgoingLists | OutgoingColumns:
    """The records of a pyarrow RecordBatch or Table; records without a timestamp get `timestamp`.

    Raises TypeError or ValueError, which say what is wrong with its columns.
    """
    if isinstance(batch, pa.Table):
        combined = batch.combine_chunks().to_batches()
        batch = combined[0] if combined else pa.RecordBatch.from_pylist([], schema=batch.schema)
    if "value" not in batch.schema.names:
        raise ValueError(
            f"records need a column 'value'; there are {', '.join(batch.schema.names) or 'none'}"
        )
    values, keys = _binary(batch, "value"), _binary(batch, "key")
    timestamps, headers = _timestamps(batch, timestamp), _headers(batch)
    loops = loops_for(batch.nbytes)
    if loops.COMPILED:
        from kohort.wire.records.columns_python import encode_headers
        from kohort.wire.records.kernels_encode import outgoing

        encoded = None if headers is None else [encode_headers(each) for each in headers]
        return outgoing(keys, values, timestamp if timestamps is None else timestamps, encoded)
    return OutgoingLists(
        None if keys is None else keys.to_pylist(),
        values.to_pylist(),
        timestamp if timestamps is None else timestamps.to_pylist(),
        headers,
    )


def _binary(batch: Any, name: str) -> Any:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_null(kind) and name == "key":
        return None
    if not (
        pa.types.is_null(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_string_view(kind)
    ):
        raise TypeError(f"the column {name!r} must be binary or string, but it is {kind}")
    return column.cast(pa.binary())


def _timestamps(batch: Any, default: int) -> Any:
    """An array of milliseconds without nulls; None if all records get the default."""
    if "timestamp" not in batch.schema.names or batch.column("timestamp").null_count == len(batch):
        return None
    column = batch.column("timestamp")
    if pa.types.is_timestamp(column.type):
        # Kafka's time has milliseconds; the rest is cut off.
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise TypeError(
            f"the column 'timestamp' must be a timestamp or milliseconds, but it is {column.type}"
        )
    import pyarrow.compute as pc  # a caller that sends no timestamps does not load it

    column = column.cast(pa.int64())
    least = pc.min(column).as_py()
    if least < 0:
        raise ValueError(
            f"the column 'timestamp' holds {least}: times are milliseconds since 1970, not negative"
        )
    return column.fill_null(default) if column.null_count else column


def _header(name: Any, content: Any) -> tuple[str, bytes | None]:
    """A header that a batch can hold. Raises TypeError if it cannot."""
    if isinstance(content, str):
        content = content.encode()
    if not isinstance(name, str) or not isinstance(content, (bytes, type(None))):
        raise TypeError
    return name, content


def _headers(batch: Any) -> list[Headers] | None:
    if "headers" not in batch.schema.names:
        return None
    made: list[Headers] = []
    for each in batch.column("headers").to_pylist():
        try:
            made.append(tuple(_header(header["key"], header["value"]) for header in each or ()))
        except (TypeError, KeyError):
            kind = batch.schema.field("headers").type
            raise TypeError(
                f"the column 'headers' must be a list of structs of key and value, but it is {kind}"
            ) from None
    return made if any(made) else None
