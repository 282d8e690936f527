"""The records that a consumer gives out: `Record`, and `Records`, a list of those of one partition.

`Records` is a view over the columns that a fetch was decoded into; it makes the records while it is iterated,
some hundred at a time, by calls that loop in C. A record is a named tuple, because nothing else is made and read as
fast: 3.6 million a second here against 2.6 million objects that cut their bytes when asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, SupportsIndex, overload

from kohort.client.errors import DeserializationFailed
from kohort.client.types import TopicPartition
from kohort.wire.errors import KohortError
from kohort.wire.records.columns import Columns, Headers

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with `default`; every type checker brings it

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    Made = TypeVar("Made")
else:
    from typing import TypeVar

    K, V, Made = TypeVar("K"), TypeVar("V"), TypeVar("Made")

Deserializer = Callable[[str, bytes], Made]
"""A function of topic and bytes that returns an object. Null keys and values are never handed to it."""

_CHUNK = 1024  # records made at a time: few enough to stay in the processor's cache
_SHOWN_BYTES = 48


class _Fields(NamedTuple, Generic[K, V]):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    header_pairs: Headers
    leader_epoch: int | None
    sizes: tuple[int, int] | None
    delivery_count: int | None


class Record(_Fields[K, V]):
    """One record as it was read: `record.topic`, `.partition`, `.offset`, `.timestamp`, `.key`, `.value`, `.headers`.

    `timestamp` is in milliseconds (-1: none); `timestamp_type` 0 if the producer set it, 1 if the broker did.
    `key` and `value` are bytes or None, or what the deserializers made of them: a type checker sees a `Record[K, V]`
    whose key is `K | None`, because any record may lack it. `headers` is a list of name
    and bytes (or None). `leader_epoch` is None if it is not known. `delivery_count` says how often a share group has
    delivered the record, this time included; it is None outside of share groups. Records are equal if all fields are.
    """

    __slots__ = ()

    def __new__(  # noqa: PLR0913 - one for each field
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: K | None = None,
        value: V | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        leader_epoch: int | None = None,
        sizes: tuple[int, int] | None = None,
        delivery_count: int | None = None,
    ) -> Record[K, V]:
        """Makes a record; `sizes` are those of key and value before they were deserialized (-1: null)."""
        return _new_tuple(
            cls,
            (
                topic,
                partition,
                offset,
                timestamp,
                timestamp_type,
                key,
                value,
                tuple(headers),
                leader_epoch,
                sizes,
                delivery_count,
            ),
        )

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """A new list of the headers, in order; a name may come more than once."""
        return list(self.header_pairs)

    @property
    def serialized_key_size(self) -> int:
        """The size of the key as it was sent; -1 if there is none."""
        return self.sizes[0] if self.sizes else _size(self.key)

    @property
    def serialized_value_size(self) -> int:
        """The size of the value as it was sent; -1 if there is none."""
        return self.sizes[1] if self.sizes else _size(self.value)

    def __repr__(self) -> str:
        parts = [
            f"{self.topic}-{self.partition}@{self.offset}",
            f"timestamp={self.timestamp}",
            f"key={_short(self.key)}",
            f"value={_short(self.value)}",
        ]
        if self.header_pairs:
            parts.append(f"headers={self.headers!r}")
        if self.delivery_count is not None:
            parts.append(f"delivery_count={self.delivery_count}")
        return f"Record({', '.join(parts)})"


_new_tuple = tuple.__new__


def _size(data: Any) -> int:
    return -1 if data is None else len(data)


def _short(data: Any) -> str:
    if isinstance(data, bytes) and len(data) > _SHOWN_BYTES:
        return f"{data[:_SHOWN_BYTES]!r}… ({len(data)} bytes)"
    return repr(data)


class Records(Sequence[Record[K, V]], Generic[K, V]):
    """The records of one partition, in order: a list that makes them when they are asked for.

    With deserializers, keys and values are what those return; they are called once per record and iteration. One that
    fails raises DeserializationFailed when its record is reached. `next_offset` is where to read on after all of
    these: at least one more than the last offset, and more where the log holds something that is not for users.
    """

    __slots__ = ("topic", "partition", "columns", "next_offset", "key_deserializer", "value_deserializer")

    delivery_count: int | None = None

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Columns,
        next_offset: int,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.columns = columns
        self.next_offset = next_offset
        self.key_deserializer = key_deserializer
        self.value_deserializer = value_deserializer

    def __len__(self) -> int:
        return len(self.columns.offsets)

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Yields all records, made in C, chunk by chunk."""
        made = chain.from_iterable(map(self._chunk, range(0, len(self), _CHUNK)))
        if self.key_deserializer is None and self.value_deserializer is None:
            return made
        return map(self._deserialized, made)

    @overload
    def __getitem__(self, at: SupportsIndex) -> Record[K, V]: ...
    @overload
    def __getitem__(self, at: slice) -> Records[K, V]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Record[K, V] | Records[K, V]:
        if isinstance(at, slice):
            return self._slice(at)
        row = range(len(self))[at]
        return next(iter(self._slice(slice(row, row + 1))))

    def _slice(self, rows: slice) -> Records[K, V]:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("records are sliced in steps of 1; for others, make a list of them first")
        columns = self.columns.slice(start, stop)
        next_offset = self.next_offset
        if stop < len(self):
            next_offset = int(columns.offsets[-1]) + 1 if len(columns) else int(self.columns.offsets[start])
        return Records(
            self.topic, self.partition, columns, next_offset, self.key_deserializer, self.value_deserializer
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not len(self):
            return f"Records({self.topic}-{self.partition}, none, next_offset={self.next_offset})"
        offsets = self.columns.offsets
        return f"Records({self.topic}-{self.partition}, {len(self)} from {offsets[0]} to {offsets[-1]})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as a list of records: the buffer behind them may be far larger."""
        return list, (list(self),)

    def to_arrow(self, columns: Sequence[str] | None = None, *, binary_view: bool = False) -> Any:
        """Returns a pyarrow.RecordBatch without making a record; `columns` names those that are needed.

        With `binary_view` key and value have that type, without a copy of their bytes; see `Consumer.poll_arrow`.
        """
        from kohort.wire.records.arrow import PartitionColumns, to_arrow

        part = PartitionColumns(self.topic, self.partition, self.columns)
        return to_arrow([part], columns=columns, binary_view=binary_view)

    def _chunk(self, start: int) -> Iterator[Record[Any, Any]]:
        columns = self.columns if len(self) <= _CHUNK else self.columns.slice(start, start + _CHUNK)
        keys, values = columns.cut()
        epochs: Iterable[int | None]
        kinds: Iterable[int]
        if len(columns.runs) == 1:
            _, epoch, kind = columns.runs[0]
            epochs, kinds = repeat(None if epoch < 0 else epoch), repeat(kind)
        else:
            ends = [run[0] for run in columns.runs]
            sizes = [end - first for first, end in zip([0, *ends], ends, strict=False)]
            runs = list(zip(sizes, columns.runs, strict=True))
            epochs = chain.from_iterable(repeat(None if run[1] < 0 else run[1], size) for size, run in runs)
            kinds = chain.from_iterable(repeat(run[2], size) for size, run in runs)
        headers: Iterable[Headers] = repeat(())
        if columns.has_headers:
            headers = columns.header_list()
        fields = zip(
            repeat(self.topic), repeat(self.partition), columns.offsets.tolist(), columns.timestamps.tolist(),
            kinds, keys, values, headers, epochs, repeat(None), repeat(self.delivery_count), strict=False,
        )  # fmt: skip
        return map(_new_tuple, repeat(Record), fields)

    def _deserialized(self, record: Record[Any, Any]) -> Record[Any, Any]:
        sizes = _size(record.key), _size(record.value)
        key = self._object("key", self.key_deserializer, record, record.key)
        value = self._object("value", self.value_deserializer, record, record.value)
        return _new_tuple(Record, (*record[:5], key, value, *record[7:9], sizes, record[10]))

    def _object(
        self, origin: str, made_by: Deserializer[Any] | None, record: Record, data: bytes | None
    ) -> Any:
        if made_by is None or data is None:
            return data
        try:
            return made_by(self.topic, data)
        except Exception as error:
            where = TopicPartition(self.topic, self.partition)
            raise DeserializationFailed(
                f"the {origin} deserializer failed on the record of {where} at offset {record.offset}: {_why(error)}; "
                + self._what_next(error, record.offset),
                where,
                record.offset,
                origin=origin,
                timestamp=record.timestamp,
                timestamp_type=record.timestamp_type,
                key=record.key,
                value=record.value,
                headers=record.headers,
            ) from error

    def _what_next(self, error: Exception, offset: int) -> str:
        if getattr(error, "retriable", False) is True:
            return "poll again to try this record again"
        return f"to go on without this record, seek to offset {offset + 1}"


def _why(error: Exception) -> str:
    """Returns the words of an exception of ours, which say it all; those of others are shown with their type."""
    return str(error) if isinstance(error, KohortError) else repr(error)


class MadeRecords(Records[K, V]):
    """Records that are made already: the deserializers were called when they were polled, and never again."""

    __slots__ = ("_made",)

    def __init__(self, of: Records[Any, Any], made: list[Record[K, V]]) -> None:
        part = of[: len(made)]
        super().__init__(of.topic, of.partition, part.columns, part.next_offset)
        self._made = made

    def __iter__(self) -> Iterator[Record[K, V]]:
        return iter(self._made)

    def _slice(self, rows: slice) -> Records[K, V]:
        start, stop, _ = rows.indices(len(self))
        part = super()._slice(rows)
        made = object.__new__(MadeRecords)
        Records.__init__(made, self.topic, self.partition, part.columns, part.next_offset)
        made._made = self._made[start:stop]
        return made


def make_records(
    records: Records[Any, Any],
    key_deserializer: Deserializer[Any] | None,
    value_deserializer: Deserializer[Any] | None,
) -> tuple[MadeRecords[Any, Any], DeserializationFailed | None]:
    """Makes all records now, up to the first that cannot be deserialized; returns them and the reason why."""
    records.key_deserializer, records.value_deserializer = key_deserializer, value_deserializer
    made: list[Record[Any, Any]] = []
    try:
        made.extend(records)
    except DeserializationFailed as failed:
        return MadeRecords(records, made), failed
    return MadeRecords(records, made), None


def _equal(one: Record[Any, Any], other: object) -> bool:
    return one == other
