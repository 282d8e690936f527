"""Turns what a test writes down into record batches, and the records of a partition into what it compares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kohort.broker.groups.history import batches_of
from kohort.client.produce.partitioners import murmur2
from kohort.wire.records import payload
from kohort.wire.records.batch import encode_batch, iter_batches, iter_records

if TYPE_CHECKING:
    from kohort.log.partition import Partition

Data: TypeAlias = bytes | str | None
Headers: TypeAlias = Iterable[tuple[str, Data]] | Mapping[str, Data]
Value: TypeAlias = Data | tuple[Data, Data] | Mapping[str, object]
"""A value; or a key and a value; or {"value": …, "key": …, "headers": …, "partition": …, "timestamp": …}."""

_FIELDS = ("value", "key", "headers", "partition", "timestamp")


class StoredRecord(NamedTuple):
    """A record in a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record to write; without a partition its key chooses one, or the partitions take turns."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None


def new_record(given: object) -> NewRecord:
    """Returns a record from any form that a test may write down; TypeError says which forms there are."""
    if isinstance(given, tuple) and len(given) == 2:
        return NewRecord(_data(given[0]), _data(given[1]), [], None, None)
    if isinstance(given, Mapping):
        unknown = sorted(set(given) - set(_FIELDS))
        if unknown:
            raise TypeError(f"a record has no {unknown[0]!r}, only {', '.join(_FIELDS)}")
        partition, timestamp = given.get("partition"), given.get("timestamp")
        if not isinstance(partition, int | None) or not isinstance(timestamp, int | None):
            raise TypeError("partition and timestamp of a record are numbers (the timestamp in ms)")
        headers = _headers(given.get("headers") or ())
        return NewRecord(_data(given.get("key")), _data(given.get("value")), headers, partition, timestamp)
    return NewRecord(None, _data(given), [], None, None)


def _data(given: object) -> bytes | None:
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes | bytearray | memoryview):
        return None if given is None else bytes(given)
    raise TypeError(
        f"{given!r} is not a record: give bytes or str, (key, value), or a dict with {', '.join(_FIELDS)}"
    )


def _headers(given: object) -> list[tuple[str, bytes | None]]:
    pairs = given.items() if isinstance(given, Mapping) else given
    assert isinstance(pairs, Iterable)
    return [(str(name), _data(value)) for name, value in pairs]


def by_partition(records: list[NewRecord], partitions: int) -> dict[int, list[int]]:
    """Returns for each partition the positions of its records in the list.

    A record goes to the partition that it names, or to that of its key as in Java's producer; others take turns.
    """
    found: dict[int, list[int]] = {}
    keyless = 0
    for position, record in enumerate(records):
        if record.partition is not None:
            partition = record.partition
        elif record.key is not None:
            partition = (murmur2(record.key) & 0x7FFF_FFFF) % partitions
        else:
            partition, keyless = keyless % partitions, keyless + 1
        found.setdefault(partition, []).append(position)
    return found


def batch_of(records: list[NewRecord], now_ms: int) -> memoryview:
    """Returns one batch; records without a timestamp get `now_ms`."""
    return memoryview(
        encode_batch(
            [
                payload.BatchRecord(
                    number, now_ms if r.timestamp is None else r.timestamp, r.key, r.value, r.headers
                )
                for number, r in enumerate(records)
            ]
        )
    )


def records_in(partition: Partition) -> Iterator[StoredRecord]:
    """Yields the records that a consumer could read from a partition now."""
    for data in batches_of(partition):
        for position, header in iter_batches(data):
            if header.is_control:
                continue
            for record in iter_records(data[position : position + header.size]):
                if partition.log_start_offset <= record.offset < partition.high_watermark:
                    yield StoredRecord(partition.topic, partition.index, *record)
