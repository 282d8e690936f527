"""Columns that become one Arrow batch part by part: the same batch as of all parts at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.wire.records.arrow import SCHEMA, PartitionColumns, to_arrow
from kohort.wire.records.arrow_rows import ArrowRows
from kohort.wire.records.batch import BatchRecord, encode_batch
from kohort.wire.records.columns import decode_columns, no_columns
from tests.wire.ways import WAYS, T, logs, loops_of, simple, way

__all__ = ["way"]
usual = pytest.mark.usefixtures("way")


def parts_of(logs: Sequence[bytes]) -> list[PartitionColumns]:
    return [
        PartitionColumns("t", number % 3, decode_columns(memoryview(log), 0).columns)
        for number, log in enumerate(logs)
    ]


def added(rows: ArrowRows, parts: Sequence[PartitionColumns]) -> ArrowRows:
    for part in parts:
        rows.add(*part)
    return rows


@pytest.mark.parametrize("way", WAYS)
@given(
    log=logs(),
    columns=st.none() | st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True),
    binary_view=st.booleans(),
    early=st.booleans(),
    expected=st.sampled_from([0, 50, 1 << 20]),
)
@settings(max_examples=150, deadline=None)
def test_part_by_part_it_is_the_same_batch(
    way: str, log: list[bytes], columns: list[str] | None, binary_view: bool, early: bool, expected: int
) -> None:
    with loops_of(way):
        parts = parts_of(log)
        at_once = to_arrow(parts, columns=columns, binary_view=binary_view)
        rows = added(ArrowRows(columns, binary_view=binary_view, early=early, expected=expected), parts)
        batch = rows.finish()
    if batch is None:
        assert at_once.num_rows == 0
        return
    batch.validate(full=True)
    assert batch.schema == at_once.schema
    assert batch.equals(at_once)
    assert rows.count == batch.num_rows


@usual
def test_keys_that_begin_in_the_middle_and_end_before_the_end() -> None:
    keyed = bytes(encode_batch([BatchRecord(0, T, b"k", None, []), BatchRecord(1, T, None, b"v", [])]))
    batch = added(ArrowRows(("key", "value")), parts_of([simple(0, 2), keyed, simple(2, 1)])).finish()
    assert batch is not None
    batch.validate(full=True)
    assert batch.column("key").to_pylist() == [None, None, b"k", None, None]
    assert batch.column("value").to_pylist() == [b"0", b"1", None, b"v", b"2"]


def test_what_is_copied_lets_go_of_the_decoded_bytes() -> None:
    with loops_of("numba"):
        memory = bytearray(simple(0, 100))
        rows = ArrowRows(None)
        rows.add("t", 0, decode_columns(memory, 0).columns)
        memory += b"x"  # a BufferError while anybody looks into it
        batch = rows.finish()
    assert batch is not None
    assert batch.column("value").to_pylist() == [b"%d" % at for at in range(100)]


def test_headers_are_read_from_the_decoded_bytes_at_the_end() -> None:
    with loops_of("numba"):
        memory = bytearray(encode_batch([BatchRecord(0, T, b"k", b"v", [("h", b"x")])]))
        rows = ArrowRows(None)
        rows.add("t", 0, decode_columns(memory, 0).columns)
        batch = rows.finish()
    assert batch is not None
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]]


def test_a_batch_keeps_its_bytes_while_later_ones_are_made() -> None:
    with loops_of("numba"):
        parts = parts_of([simple(0, 20_000), simple(20_000, 20_000)])
        first = added(ArrowRows(("value",), expected=100_000), parts[:1]).finish()
        second = added(ArrowRows(("value",), expected=100_000), parts[1:]).finish()
    assert first is not None
    assert second is not None
    assert first.column(0).to_pylist() == [b"%d" % at for at in range(20_000)]
    assert second.column(0).to_pylist() == [b"%d" % at for at in range(20_000, 40_000)]


@usual
def test_no_rows_are_no_batch() -> None:
    assert added(ArrowRows(None), [PartitionColumns("t", 0, no_columns())]).finish() is None


def test_a_column_that_records_do_not_have() -> None:
    with pytest.raises(ValueError, match="no column 'colour'"):
        ArrowRows(("value", "colour"))
