"""Rows: what a task hands to Spark is what the general way from records to Arrow gives, in Spark's types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.spark.executor.rows import TYPES, Rows, schema_of
from kohort.wire.records import columns
from kohort.wire.records.arrow import PartitionColumns, to_arrow
from kohort.wire.records.columns import Columns, decode_columns, encode_batch_columns

HERE = TopicPartition("örders", 3)
blob = st.none() | st.binary(max_size=20)
record = st.tuples(
    blob, blob, st.integers(0, 1 << 42), st.lists(st.tuples(st.text(max_size=4), blob), max_size=2)
)


def decoded(batches: list[list[Any]], way: str) -> Columns:
    columns.prefer(way)
    made = bytearray()
    offset = 0
    for number, rows in enumerate(batches):
        keys, values, times, headers = zip(*rows, strict=True)
        batch = bytearray(encode_batch_columns(keys, values, times, headers))
        batch[:8] = offset.to_bytes(8, "big")
        if number % 3 == 2:
            batch[22] |= 0x08  # the broker's time: of one record of the batch, for all
        made += batch
        offset += len(rows)
    return decode_columns(bytes(made), 0, check_crcs=False).columns


def expected(read: Columns) -> list[dict[str, Any]]:
    """By the way that consumers use, with headers as Spark has them."""
    table = pa.Table.from_batches([to_arrow([PartitionColumns(*HERE, read)], topic_as_string=True)])
    table = table.rename_columns(
        ["timestampType" if name == "timestamp_type" else name for name in table.column_names]
    )
    at = table.column_names.index("timestamp")
    times = table.column(at).cast(pa.timestamp("us")).cast(TYPES["timestamp"])
    rows: list[dict[str, Any]] = table.set_column(at, "timestamp", times).to_pylist()
    return [{**row, "headers": row["headers"] or None} for row in rows]


@pytest.fixture(autouse=True)
def _usual_way() -> Any:
    yield
    columns.prefer("")


@pytest.mark.parametrize("way", ["python", "numba"])
@settings(deadline=None)
@given(
    answers=st.lists(st.lists(st.lists(record, min_size=1, max_size=4), min_size=1, max_size=4), max_size=3)
)
def test_rows_are_those_of_the_general_way(way: str, answers: list[list[list[Any]]]) -> None:
    rows = Rows(HERE, tuple(TYPES))
    read = [decoded(batches, way) for batches in answers]
    made = [rows.batch(each) for each in read]  # all of them alive at once
    for batch, each in zip(made, read, strict=True):
        batch.validate(full=True)
        assert batch.schema.equals(schema_of(tuple(TYPES)))
        assert batch.to_pylist() == expected(each)


def test_only_the_named_columns_in_their_order() -> None:
    read = decoded([[(b"k", b"v", 5, [])] * 3], "")
    batch = Rows(HERE, ("offset", "value")).batch(read)
    assert batch.to_pydict() == {"offset": [0, 1, 2], "value": [b"v"] * 3}
    assert Rows(HERE, ()).batch(read).num_rows == 3


def test_memory_of_batches_that_are_gone_is_used_again_and_no_other() -> None:
    rows = Rows(HERE, ("value",))

    def batch_of(letter: bytes) -> pa.RecordBatch:
        return rows.batch(decoded([[(None, letter * 1000, 5, [])] * 10], "numba"))

    kept = batch_of(b"a")
    places = set()
    for _ in range(30):
        gone = batch_of(b"b")
        places.add(gone.column(0).buffers()[2].address)
        del gone
    assert len(places) < 10
    assert kept.column(0).buffers()[2].address not in places
    assert kept.column(0).to_pylist() == [b"a" * 1000] * 10
