"""Columns as Arrow batches, and Arrow batches as record batches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.client.produce.partitioners import murmur2
from kohort.wire.records.arrow import SCHEMA, PartitionColumns, to_arrow, to_arrow_batches
from kohort.wire.records.arrow_encode import outgoing_records
from kohort.wire.records.batch import BatchRecord, check_batch, encode_batch, iter_records, stamp_append_time
from kohort.wire.records.columns import decode_columns, no_columns
from tests.wire.ways import BLOBS, WAYS, T, logs, loops_of, simple, way

__all__ = ["way"]
usual = pytest.mark.usefixtures("way")


def part_of(data: bytes, topic: str = "t", partition: int = 0, start_offset: int = 0) -> PartitionColumns:
    return PartitionColumns(topic, partition, decode_columns(memoryview(data), start_offset).columns)


def row_of(record: BatchRecord, topic: str = "t", partition: int = 0) -> dict[str, Any]:
    """A row of the Arrow batch as Python shows it, but with the timestamp as a number."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": 0,
        "headers": [{"key": name, "value": content} for name, content in record.headers],
    }


def shown(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    at = batch.schema.get_field_index("timestamp")
    rows: list[dict[str, Any]] = batch.set_column(
        at, "timestamp", batch.column(at).cast(pa.int64())
    ).to_pylist()
    return rows


# --- to Arrow -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@given(log=logs())
@settings(max_examples=60, deadline=None)
def test_the_rows_are_the_records(way: str, log: list[bytes]) -> None:
    with loops_of(way):
        batch = to_arrow([part_of(b"".join(log))])
    assert batch.schema == SCHEMA
    assert shown(batch) == [row_of(record) for data in log for record in iter_records(data)]


@pytest.mark.parametrize("way", WAYS)
@given(log=logs())
@settings(max_examples=60, deadline=None)
def test_views_of_the_fetched_bytes_are_the_same_rows(way: str, log: list[bytes]) -> None:
    with loops_of(way):
        parts = [part_of(b"".join(log[:2])), part_of(b"".join(log[2:]), partition=1)]
        viewed, copied = to_arrow(parts, binary_view=True), to_arrow(parts)
    assert [field.type for field in viewed.schema][:2] == [pa.binary_view(), pa.binary_view()]
    assert shown(viewed) == shown(copied)
    assert viewed.column("value").cast(pa.binary()).equals(copied.column("value"))


@usual
@pytest.mark.parametrize("size", [0, 1, 4, 11, 12, 13, 100])
def test_views_of_every_size_at_the_edge_of_what_they_hold_themselves(size: int) -> None:
    values = [bytes(range(100, 100 + size)), None, bytes(range(255, 255 - size, -1))]
    data = bytes(encode_batch([BatchRecord(at, T, value, value, []) for at, value in enumerate(values)]))
    batch = to_arrow([part_of(data)], columns=("key", "value"), binary_view=True)
    batch.validate(full=True)
    assert batch.column("value").to_pylist() == batch.column("key").to_pylist() == values


@usual
def test_columns_of_several_partitions_become_one_batch() -> None:
    keyed = bytes(
        encode_batch([BatchRecord(0, T, b"k", None, [("h", b"x")]), BatchRecord(1, T, None, b"v", [])])
    )
    parts = [
        part_of(simple(0), "a", 3, start_offset=1),
        PartitionColumns("none", 0, no_columns()),
        part_of(keyed, "b", 1),
        part_of(simple(5), "a", 4),
    ]
    batch = to_arrow(parts)
    assert batch.column("topic").to_pylist() == ["a"] * 2 + ["b"] * 2 + ["a"] * 3
    assert batch.column("partition").to_pylist() == [3, 3, 1, 1, 4, 4, 4]
    assert batch.column("offset").to_pylist() == [1, 2, 0, 1, 5, 6, 7]
    assert batch.column("key").to_pylist() == [None, None, b"k", None, None, None, None]
    assert batch.column("value").to_pylist() == [b"1", b"2", None, b"v", b"5", b"6", b"7"]
    assert [len(headers) for headers in batch.column("headers").to_pylist()] == [0, 0, 1, 0, 0, 0, 0]
    batch.validate(full=True)


@usual
def test_only_the_columns_that_are_asked_for_are_built() -> None:
    batch = to_arrow([part_of(simple(0))], columns=("offset", "value"))
    assert batch.schema.names == ["offset", "value"]
    assert batch.to_pylist() == [{"offset": at, "value": b"%d" % at} for at in range(3)]
    with pytest.raises(ValueError, match="no column 'valeu'; they have key, value"):
        to_arrow([part_of(simple(0))], columns=("valeu",))


@usual
def test_topics_come_as_strings_if_asked() -> None:
    batch = to_arrow([part_of(simple(0))], columns=("topic",), topic_as_string=True)
    assert batch.schema.field("topic").type == pa.string()
    assert batch.column("topic").to_pylist() == ["t"] * 3


@usual
def test_timestamp_types_are_those_of_the_batches() -> None:
    stamped = bytearray(simple(3))
    stamp_append_time(stamped, 0, T)
    batch = to_arrow([part_of(simple(0) + bytes(stamped))])
    assert batch.column("timestamp_type").to_pylist() == [0, 0, 0, 1, 1, 1]


@usual
def test_slices_and_no_records_at_all() -> None:
    columns = part_of(simple(0, 30)).columns
    assert to_arrow([PartitionColumns("t", 0, columns.slice(9, 12))]).column("value").to_pylist() == [
        b"9",
        b"10",
        b"11",
    ]
    for parts in (
        [],
        [PartitionColumns("t", 0, no_columns())],
        [PartitionColumns("t", 0, columns.slice(5, 5))],
    ):
        empty = to_arrow(parts)
        empty.validate(full=True)
        assert (len(empty), empty.schema) == (0, SCHEMA)


@usual
def test_names_of_headers_that_are_no_utf8_can_be_read_all_the_same() -> None:
    data = bytes(encode_batch([BatchRecord(0, T, None, b"v", [("\udcff", b"x"), ("ü", b"y")])]))
    batch = to_arrow([part_of(data)])
    batch.validate(full=True)
    assert [header["key"] for header in batch.column("headers").to_pylist()[0]] == ["\ufffd", "ü"]


@usual
def test_what_is_too_large_for_one_batch_becomes_several() -> None:
    parts = [part_of(simple(at, 10), partition=at) for at in (0, 10, 20)]
    batches = to_arrow_batches(parts, max_bytes=170)
    assert [batch.num_rows for batch in batches] == [20, 10]
    assert pa.Table.from_batches(batches).column("value").to_pylist() == [b"%d" % at for at in range(30)]


# --- from Arrow -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@given(
    rows=st.lists(st.tuples(BLOBS, BLOBS, st.none() | st.integers(0, T)), min_size=1, max_size=40),
    skip=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_the_records_are_the_rows(
    way: str, rows: list[tuple[bytes | None, bytes | None, int | None]], skip: int
) -> None:
    keys, values, timestamps = zip(*rows, strict=True)
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(timestamps, pa.timestamp("ms")),
        }
    ).slice(min(skip, len(rows) - 1))
    with loops_of(way):
        outgoing = outgoing_records(batch, timestamp=T)
        encoded = outgoing.encode(0, None, 5, 1, 7)
    header = check_batch(encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    assert len(encoded) <= outgoing.size
    expected = [
        BatchRecord(offset, T if timestamp is None else timestamp, key, value, [])
        for offset, (key, value, timestamp) in enumerate(rows[min(skip, len(rows) - 1) :])
    ]
    assert list(iter_records(encoded)) == expected
    assert header.max_timestamp == max(record.timestamp for record in expected)


@usual
@pytest.mark.parametrize("codec", range(5))
def test_headers_and_one_timestamp_for_all(codec: int) -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], None] * 10
    batch = pa.record_batch({"value": ["x", "y", "z"] * 10, "headers": headers})
    records = list(iter_records(outgoing_records(batch, timestamp=T).encode(codec)))
    assert [record.value for record in records] == [b"x", b"y", b"z"] * 10
    assert [record.headers for record in records] == [[("a", b"1"), ("b", None)], [], []] * 10
    assert {record.timestamp for record in records} == {T}
    assert {record.key for record in records} == {None}


@usual
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "c"]),
        pa.array([b"a", None, b"c"], pa.large_binary()),
        pa.array([b"a", None, b"c"], pa.binary(1)),
        pa.array(["a", None, "c"]).dictionary_encode(),
        pa.array(["a", None, "c"], pa.string_view()),
    ],
)
def test_values_of_every_type_of_bytes(values: Any) -> None:
    outgoing = outgoing_records(pa.record_batch({"value": values}), timestamp=T)
    assert [record.value for record in iter_records(outgoing.encode())] == [b"a", None, b"c"]


@usual
def test_timestamps_of_other_units_and_plain_milliseconds() -> None:
    for column in (
        pa.array([T * 1000 + 999], pa.timestamp("us", tz="UTC")),
        pa.array([T], pa.int64()),
        pa.array([T // 1000], pa.timestamp("s")),
    ):
        outgoing = outgoing_records(pa.record_batch({"value": ["v"], "timestamp": column}), timestamp=1)
        assert [record.timestamp for record in iter_records(outgoing.encode())] == [T]


@usual
def test_records_are_divided_by_partition_and_cut_by_size() -> None:
    keys = [b"key %d" % number if number % 7 else None for number in range(100)]
    table = pa.table({"key": keys, "value": [b"v" * number for number in range(100)]})
    outgoing = outgoing_records(table, timestamp=T)
    assert outgoing.key_list() == keys
    assert list(outgoing.key_hashes(murmur2)) == [-1 if key is None else murmur2(key) for key in keys]
    parts = outgoing.by_partition([number % 3 for number in range(100)])
    assert sorted(parts) == [0, 1, 2]
    assert [record.key for record in iter_records(parts[1].encode())] == keys[1::3]
    pieces: list[Any] = list(outgoing.cut(1000))
    found = [list(iter_records(piece.encode())) for piece in pieces]
    assert [record.key for records in found for record in records] == keys
    assert all(piece.size <= 1000 for piece in pieces)
    assert all(one.size + other.size > 1000 for one, other in pairwise(pieces))
    assert [len(piece) for piece in outgoing.cut(1)] == [1] * 100


@usual
def test_a_table_without_rows_has_no_pieces() -> None:
    outgoing = outgoing_records(pa.table({"value": pa.array([], pa.binary())}), timestamp=T)
    assert (len(outgoing), outgoing.cut(1000), outgoing.by_partition([])) == (0, [], {})


@usual
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": ["k"]}, "need a column 'value'; there are key"),
        ({"value": [1]}, "'value' must be binary or string, but it is int64"),
        ({"value": ["v"], "key": [1.5]}, "'key' must be binary or string, but it is double"),
        ({"value": ["v"], "timestamp": ["now"]}, "'timestamp' must be a timestamp or milliseconds"),
        ({"value": ["v"], "headers": [["h"]]}, "'headers' must be a list of structs"),
    ],
)
def test_columns_that_cannot_be_sent_are_explained(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        outgoing_records(pa.record_batch(columns), timestamp=T)
