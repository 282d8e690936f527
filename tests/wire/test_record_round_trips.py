"""Record batches: what is built is read again, with another codec too, and with records taken out."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kohort.wire.records.batch import (
    HEADER_SIZE,
    BatchRecord,
    ControlKind,
    assign,
    check_batch,
    crc_is_good,
    encode_batch,
    encode_control_batch,
    encode_pairs_batch,
    iter_records,
    read_header,
    rebuild,
    recompress,
    stamp_append_time,
)
from kohort.wire.records.compression import Compression

T = 1_700_000_000_000
SMALL = [
    BatchRecord(0, T, b"k", b"v", []),
    BatchRecord(1, T + 5, None, None, [("h", None), ("i", b"x")]),
    BatchRecord(2, T - 5, b"", b"", []),
]

int64 = st.integers(-(2**63), 2**63 - 1)
contents = st.none() | st.binary(max_size=80) | st.integers(0, 20_000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=80), contents), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, list[BatchRecord]]:
    base_offset = draw(st.integers(0, 2**62))
    deltas = draw(
        st.lists(st.integers(0, 200) | st.integers(0, 2**31 - 1), min_size=1, max_size=8, unique=True)
    )
    around = draw(int64 | st.just(T))
    times = st.integers(-20_000, 20_000).map(lambda n: max(-(2**63), min(around + n, 2**63 - 1))) | int64
    bodies = [(draw(times), draw(contents), draw(contents), draw(headers)) for _ in deltas]
    return base_offset, [
        BatchRecord(base_offset + d, *body) for d, body in zip(sorted(deltas), bodies, strict=True)
    ]


@given(batch=batches(), codec=st.sampled_from(Compression))
def test_whatever_is_encoded_is_read_again(batch: tuple[int, list[BatchRecord]], codec: Compression) -> None:
    base_offset, records = batch
    encoded = encode_batch(records, base_offset=base_offset, compression=codec)
    header = read_header(encoded)
    assert crc_is_good(encoded, 0, len(encoded))
    assert (header.base_offset, header.last_offset) == (base_offset, records[-1].offset)
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert list(iter_records(encoded)) == records


@given(batch=batches(), source=st.sampled_from(Compression), target=st.sampled_from(Compression))
def test_recompressing_changes_the_codec_and_nothing_else(
    batch: tuple[int, list[BatchRecord]], source: Compression, target: Compression
) -> None:
    encoded = encode_batch(
        batch[1], base_offset=batch[0], compression=source, transactional=True, producer_id=5,
        producer_epoch=6, base_sequence=7, partition_leader_epoch=8,
    )  # fmt: skip
    stamp_append_time(encoded, 0, 12_345)
    again = recompress(encoded, target)
    before, after = read_header(encoded), read_header(again)
    assert after.compression == target
    same = {
        "batch_length": after.batch_length,
        "crc": after.crc,
        "attributes": before.attributes - source + target,
    }
    assert after == before._replace(**same)
    assert crc_is_good(again, 0, len(again))
    assert list(iter_records(again)) == list(iter_records(encoded))


def test_control_batches_are_not_compressed() -> None:
    marker = encode_control_batch(ControlKind.ABORT, producer_id=1, producer_epoch=0, timestamp=T)
    assert recompress(marker, Compression.ZSTD) == marker


def test_header_names_that_are_no_utf8_survive() -> None:
    batch = encode_batch([BatchRecord(0, T, None, b"", [("ab", b"x")])])
    batch[batch.index(b"ab")] = 0xFF
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    assert encode_batch(list(iter_records(batch))) == batch


# --- what compaction leaves -------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Compression)
def test_a_rebuilt_batch_keeps_its_place_when_records_go(codec: Compression) -> None:
    batch = encode_batch(SMALL, compression=codec, producer_id=7, producer_epoch=1, base_sequence=10)
    assign(batch, 0, 100, 4)
    before = read_header(batch)
    kept = list(iter_records(batch))[1:2]
    left = rebuild(before, kept)
    after = read_header(left)
    assert list(iter_records(left)) == kept
    assert after == before._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        base_timestamp=T + 5,
        max_timestamp=T + 5,
        record_count=1,
    )
    assert crc_is_good(left, 0, len(left))


def test_a_delete_horizon_is_stored_and_kept() -> None:
    batch = encode_batch(SMALL)
    assert read_header(batch).delete_horizon_ms is None
    first = rebuild(read_header(batch), SMALL, delete_horizon_ms=T + 99)
    second = rebuild(read_header(first), SMALL[1:])
    assert read_header(first).delete_horizon_ms == read_header(second).delete_horizon_ms == T + 99
    assert (list(iter_records(first)), list(iter_records(second))) == (SMALL, SMALL[1:])


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_may_be_left_without_records(codec: Compression) -> None:
    before = read_header(
        encode_batch(SMALL, compression=codec, producer_id=7, producer_epoch=1, base_sequence=0)
    )
    left = rebuild(before, [])
    after = read_header(left)
    assert len(left) == HEADER_SIZE
    assert (after.last_offset, after.last_sequence, after.max_timestamp) == (2, 2, T + 5)
    assert list(iter_records(left)) == []


@given(
    st.lists(
        st.tuples(st.binary(max_size=2000), st.none() | st.binary(max_size=2000)), min_size=1, max_size=40
    ),
    st.integers(0, 2**41),
)
def test_a_batch_of_pairs_is_what_encode_batch_makes_of_the_same_records(pairs, timestamp):
    batch, header = encode_pairs_batch(pairs, timestamp)
    records = [BatchRecord(i, timestamp, key, value, []) for i, (key, value) in enumerate(pairs)]
    assert batch == encode_batch(records)
    assert check_batch(batch)._replace(crc=0) == header


def test_more_pairs_than_short_varints():
    pairs = [(b"k%d" % i, None if i % 3 else b"v" * i) for i in range(1500)]
    batch, _ = encode_pairs_batch(pairs, 5)
    assert [(r.key, r.value) for r in iter_records(batch)] == pairs
