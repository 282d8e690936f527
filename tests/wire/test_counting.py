"""Records counted by headers: as many as decoding finds."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from kohort.wire.records.batch import (
    RECORD_COUNT_AT,
    BatchRecord,
    ControlKind,
    encode_batch,
    encode_control_batch,
    read_header,
    rebuild,
)
from kohort.wire.records.columns import decode_columns
from kohort.wire.records.compression import Compression
from kohort.wire.records.counting import count_records


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]], int]:
    """Batches as they are in a log: compacted, compressed, transactional, markers, with offsets between them."""
    data, offset, aborted = bytearray(), 0, list[tuple[int, int]]()
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.sampled_from([0, 0, 0, 3]))
        if draw(st.integers(0, 4)) == 0:
            kind = draw(st.sampled_from(ControlKind))
            producer = draw(st.integers(1, 2))
            data += encode_control_batch(
                kind, producer_id=producer, producer_epoch=0, timestamp=1, base_offset=offset
            )
            offset += 1
            continue
        size, transactional = draw(st.integers(1, 5)), draw(st.booleans())
        records = [BatchRecord(offset + n, 1, None, b"v", []) for n in range(size)]
        producer = draw(st.integers(1, 2)) if transactional else -1
        batch = encode_batch(
            records,
            base_offset=offset,
            compression=draw(st.sampled_from([Compression.NONE, Compression.GZIP])),
            producer_id=producer,
            transactional=transactional,
        )
        if draw(st.booleans()):
            kept = [record for record in records if draw(st.booleans())]
            batch = rebuild(read_header(batch), kept)
        if transactional and draw(st.booleans()):
            aborted.append((producer, offset))
        data += batch
        offset += size
    return bytes(data), aborted, offset


@given(logs(), st.integers(0, 30), st.integers(0, 30), st.booleans(), st.integers(0, 80))
def test_as_many_as_decoding_finds(
    log: tuple[bytes, list[tuple[int, int]], int], start: int, size: int, committed: bool, cut: int
) -> None:
    data, aborted, _ = log
    records, end = memoryview(data)[: len(data) - cut], start + size
    skipped = aborted if committed else None
    decoded = decode_columns(records, start, aborted=skipped)
    counted = count_records(records, start, end, aborted=skipped)
    assert counted.error is None
    offsets = decoded.columns.offsets.tolist()
    assert counted.records == bisect_left(offsets, end)
    assert counted.next_offset <= decoded.next_offset
    assert counted.next_offset >= min(end, decoded.next_offset)
    if not counted.has_gaps and counted.bytes_used:
        assert counted.records == min(end, counted.next_offset) - start


def test_gaps_are_noticed() -> None:
    records = [BatchRecord(n, 1, None, b"v", []) for n in range(4)]
    whole = encode_batch(records)
    later = encode_batch([record._replace(offset=record.offset + 6) for record in records], base_offset=6)
    marker = encode_control_batch(
        ControlKind.COMMIT, producer_id=1, producer_epoch=0, timestamp=1, base_offset=4
    )

    def gaps(*batches: bytes | bytearray) -> bool:
        return count_records(memoryview(b"".join(batches)), 0, 100).has_gaps

    assert not gaps(whole)
    assert gaps(rebuild(read_header(whole), records[1:]))
    assert gaps(whole, marker)
    assert gaps(whole, later)
    assert gaps(encode_batch(records, producer_id=1, transactional=True))
    assert not gaps(encode_batch(records, producer_id=1))


def test_damage_ends_the_count() -> None:
    records = [BatchRecord(n, 1, None, b"v", []) for n in range(4)]
    good = encode_batch(records)
    bad = encode_batch([record._replace(offset=record.offset + 4) for record in records], base_offset=4)
    bad[-1] ^= 1
    counted = count_records(memoryview(good + bad), 0, 8)
    assert (counted.records, counted.next_offset, counted.bytes_used) == (4, 4, len(good))
    assert counted.error is not None
    assert "the record batch at offset 4" in counted.error.message
    assert "CRC" in counted.error.message
    assert count_records(memoryview(good + bad), 0, 8, check_crcs=False).records == 8
    bad[RECORD_COUNT_AT] = 0xFF  # a negative number of records
    assert count_records(memoryview(good + bad), 0, 8, check_crcs=False).error is not None
