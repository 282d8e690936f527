"""The two ways of looping over records, and records to loop over, for the tests of columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from kohort.wire.records import columns
from kohort.wire.records.batch import BatchRecord, encode_batch
from kohort.wire.records.columns import Columns
from kohort.wire.records.compression import Compression

WAYS = ("numba", "python")
T = 1_700_000_000_000


@contextmanager
def loops_of(way: str) -> Iterator[None]:
    """Inside, columns are decoded and encoded that way."""
    columns.prefer(way)
    columns.compiled()  # decides now
    try:
        yield
    finally:
        columns.prefer("")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with loops_of(request.param):
        yield request.param


def rows(found: Columns) -> list[BatchRecord]:
    """Columns as the records that the oracle gives."""
    keys, values = found.cut()
    assert found.header_list() == [found.headers(row) for row in range(len(found))]
    return [
        BatchRecord(offset, timestamp, key, value, list(found.headers(row)))
        for row, (offset, timestamp, key, value) in enumerate(
            zip(found.offsets.tolist(), found.timestamps.tolist(), keys, values, strict=False)
        )
    ]


def simple(offset: int, count: int = 3, **fields: int | bool) -> bytes:
    """A batch of `count` records from `offset` on, whose values are their offsets."""
    records = [BatchRecord(at, T + at, None, b"%d" % at, []) for at in range(offset, offset + count)]
    return bytes(encode_batch(records, base_offset=offset, **fields))  # type: ignore[arg-type]


BLOBS = st.none() | st.binary(max_size=20) | st.sampled_from([bytes(63), bytes(64), bytes(200), bytes(9000)])
TIMESTAMPS = st.integers(-(2**63), 2**63 - 1) | st.integers(T, T + 1000) | st.just(-1)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3)
CONTENTS = st.tuples(TIMESTAMPS, BLOBS, BLOBS, HEADERS)


@st.composite
def batches(draw: st.DrawFn, base_offset: int, least: int = 1) -> tuple[bytes, int]:
    """A batch with gaps between its records, and the offset after it."""
    offset, records = base_offset, []
    for timestamp, key, value, headers in draw(st.lists(CONTENTS, min_size=least, max_size=5)):
        offset += draw(st.sampled_from([0, 0, 0, 1, 100]))
        records.append(BatchRecord(offset, timestamp, key, value, headers))
        offset += 1
    batch = encode_batch(
        records,
        base_offset=base_offset,
        compression=draw(st.sampled_from([Compression.NONE, Compression.NONE, *Compression])),
        partition_leader_epoch=draw(st.sampled_from([-1, 0, 7])),
    )
    return bytes(batch), offset


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Consecutive batches."""
    offset, found = draw(st.sampled_from([0, 5, 2**40])), []
    for _ in range(draw(st.integers(1, 4))):
        batch, offset = draw(batches(offset))
        found.append(batch)
    return found
