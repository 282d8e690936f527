"""`Record` and `Records`: what users get from poll."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kohort.client.errors import DeserializationFailed
from kohort.client.records import Record, Records
from kohort.wire.records import batch as wire
from kohort.wire.records.columns import decode_columns, no_columns
from tests.wire.ways import T, simple, way

__all__ = ["way"]
pytestmark = pytest.mark.usefixtures("way")

ALL_KINDS = [
    wire.BatchRecord(10, T, b"k", b"v", []),
    wire.BatchRecord(11, T + 1, None, b"", [("a", b"1"), ("a", None)]),
    wire.BatchRecord(13, T + 2, b"", None, []),
]


def records_of(data: bytes | bytearray, **deserializers: Any) -> Records:
    decoded = decode_columns(memoryview(data), 0)
    return Records("orders", 3, decoded.columns, decoded.next_offset, **deserializers)


def all_kinds(**deserializers: Any) -> Records:
    batch = wire.encode_batch(ALL_KINDS, base_offset=10)
    wire.assign(batch, 0, 10, 5)
    return records_of(batch, **deserializers)


def test_records_have_all_that_was_sent() -> None:
    records = list(all_kinds())
    assert [(record.topic, record.partition, record.leader_epoch) for record in records] == [
        ("orders", 3, 5)
    ] * 3
    assert [record.offset for record in records] == [10, 11, 13]
    assert [record.timestamp for record in records] == [T, T + 1, T + 2]
    assert [record.timestamp_type for record in records] == [0, 0, 0]
    assert [record.key for record in records] == [b"k", None, b""]
    assert [record.value for record in records] == [b"v", b"", None]
    assert [record.headers for record in records] == [[], [("a", b"1"), ("a", None)], []]
    assert [record.serialized_key_size for record in records] == [1, -1, 0]
    assert [record.serialized_value_size for record in records] == [1, 0, -1]
    assert all(type(record.key) in (bytes, type(None)) for record in records)


def test_a_record_cannot_be_changed_and_equals_another_of_the_same_fields() -> None:
    record = all_kinds()[1]
    with pytest.raises(AttributeError):
        record.value = b"other"  # type: ignore[misc]
    record.headers.append(("b", b""))
    assert record.headers == [("a", b"1"), ("a", None)]
    same = Record("orders", 3, 11, T + 1, 0, None, b"", [("a", b"1"), ("a", None)], 5)
    assert record == same
    assert hash(record) == hash(same)
    assert record != Record("orders", 3, 11, T + 1, 0, None, b"x", [("a", b"1"), ("a", None)], 5)
    assert Record("t", 0, 1).timestamp == -1


def test_a_record_tells_what_it_is() -> None:
    assert repr(all_kinds()[0]) == f"Record(orders-3@10, timestamp={T}, key=b'k', value=b'v')"
    assert "headers=[('a', b'1'), ('a', None)]" in repr(all_kinds()[1])
    assert "(5000 bytes)" in repr(Record("t", 0, 1, value=bytes(5000)))
    assert len(repr(Record("t", 0, 1, value=bytes(5000)))) < 300


def test_records_pickle_as_records_of_their_own() -> None:
    records = all_kinds()
    assert pickle.loads(pickle.dumps(records[1])) == records[1]
    assert type(pickle.loads(pickle.dumps(records[1]))) is Record
    assert pickle.loads(pickle.dumps(records)) == list(records)
    large = records_of(simple(0, 20_000))
    assert len(pickle.dumps(large[5])) < 500
    objects = all_kinds(value_deserializer=lambda topic, data: {"data": data})
    assert pickle.loads(pickle.dumps(objects[0])).serialized_value_size == 1


def test_records_are_a_sequence() -> None:
    records = records_of(simple(0, 5000))
    assert len(records) == 5000
    assert [record.offset for record in records] == list(range(5000))
    assert [record.value for record in records] == [b"%d" % at for at in range(5000)]
    assert (records[0].offset, records[-1].offset, records[4999].value) == (0, 4999, b"4999")
    assert records[7] in records
    assert list(reversed(records[:3])) == [records[2], records[1], records[0]]
    for wrong in (5000, -5001):
        with pytest.raises(IndexError):
            records[wrong]


def test_slices_are_records_that_know_where_to_go_on() -> None:
    records = records_of(simple(0, 10) + simple(20, 10))
    assert records.next_offset == 30
    assert (list(records[5:15]), records[5:15].next_offset) == (list(records)[5:15], 25)
    assert (records[:10].next_offset, records[10:].next_offset, records[10:10].next_offset) == (10, 30, 20)
    assert records[:].next_offset == 30
    assert (len(records[99:]), records[99:].next_offset) == (0, 30)
    with pytest.raises(ValueError, match="make a list"):
        records[::2]


def test_records_of_batches_of_different_leaders_and_kinds_of_time() -> None:
    data = bytearray()
    for offset, epoch in ((0, -1), (3, 4), (6, 4), (9, 5)):
        batch = bytearray(simple(offset))
        wire.assign(batch, 0, offset, epoch)
        if offset == 6:
            wire.stamp_append_time(batch, 0, T + 99)
        data += batch
    records = records_of(data)
    assert [record.leader_epoch for record in records] == [None] * 3 + [4] * 6 + [5] * 3
    assert [record.timestamp_type for record in records] == [0] * 6 + [1] * 3 + [0] * 3
    assert [record.timestamp for record in records[6:9]] == [T + 99] * 3
    assert [(record.leader_epoch, record.timestamp_type) for record in records[2:7]] == [
        (None, 0), (4, 0), (4, 0), (4, 0), (4, 1),
    ]  # fmt: skip


def test_records_outlive_the_buffer_that_they_were_read_from() -> None:
    buffer = bytearray(simple(0, 3))
    made = list(records_of(buffer))
    buffer[:] = bytes(len(buffer))
    assert [record.value for record in made] == [b"0", b"1", b"2"]


def test_deserializers_make_objects_of_what_is_not_null() -> None:
    seen: list[tuple[str, bytes]] = []

    def deserialize(topic: str, data: bytes) -> str:
        seen.append((topic, data))
        return data.decode().upper()

    records = list(all_kinds(key_deserializer=deserialize, value_deserializer=deserialize))
    assert [record.key for record in records] == ["K", None, ""]
    assert [record.value for record in records] == ["V", "", None]
    assert [record.serialized_value_size for record in records] == [1, 0, -1]
    assert [record.headers for record in records][1] == [("a", b"1"), ("a", None)]
    assert seen == [("orders", b"k"), ("orders", b"v"), ("orders", b""), ("orders", b"")]


def test_a_deserializer_that_fails_is_an_error_that_names_the_record() -> None:
    def deserialize(topic: str, data: bytes) -> int:
        return int(data)

    records = records_of(
        wire.encode_batch([wire.BatchRecord(0, T, None, b"1", []), wire.BatchRecord(1, T, None, b"x", [])]),
        value_deserializer=deserialize,
    )
    made = iter(records)
    assert next(made).value == 1
    with pytest.raises(
        DeserializationFailed, match=r"value deserializer .* orders-3 at offset 1: .* seek to offset 2"
    ) as caught:
        next(made)
    assert (caught.value.partition, caught.value.offset) == (("orders", 3), 1)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("origin", ["key", "value"])
def test_a_deserializer_that_fails_leaves_the_record_as_it_was_read(origin: str) -> None:
    def deserialize(topic: str, data: bytes) -> str:
        if data == b"bad":
            raise LookupError(topic)
        return data.decode()

    key, value = (b"bad", b"v") if origin == "key" else (b"k", b"bad")
    batch = wire.encode_batch([wire.BatchRecord(7, T, key, value, [("h", b"1"), ("h", None)])])
    records = records_of(batch, key_deserializer=deserialize, value_deserializer=deserialize)
    with pytest.raises(DeserializationFailed, match=f"the {origin} deserializer failed") as caught:
        list(records)
    failed = caught.value
    assert (failed.origin, failed.key, failed.value) == (origin, key, value)
    assert failed.headers == [("h", b"1"), ("h", None)]
    assert (failed.topic, failed.partition, failed.offset) == (
        "orders",
        ("orders", 3),
        records.columns.offsets[0],
    )
    assert (failed.timestamp, failed.timestamp_type) == (T, 0)


def test_equality_with_lists_and_what_records_tell_of_themselves() -> None:
    records = records_of(simple(0, 3))
    assert records == list(records)
    assert records != list(records)[:2]
    assert repr(records) == "Records(orders-3, 3 from 0 to 2)"
    assert repr(Records("t", 0, no_columns(), 7)) == "Records(t-0, none, next_offset=7)"
    assert list(Records("t", 0, no_columns(), 7)) == []


def test_records_as_arrow() -> None:
    batch = all_kinds().to_arrow(("topic", "partition", "value"))
    assert batch.to_pylist() == [{"topic": "orders", "partition": 3, "value": v} for v in (b"v", b"", None)]
