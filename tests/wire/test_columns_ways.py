"""Numba, plain Python and the oracle (`iter_records`) read and write the same, of good and of damaged bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.wire.errors import BadBatch
from kohort.wire.records.batch import (
    HEADER_SIZE,
    BatchRecord,
    ControlKind,
    crc_is_good,
    encode_batch,
    encode_control_batch,
    iter_batches,
    iter_records,
)
from kohort.wire.records.columns import Decoded, decode_columns, encode_batch_columns, encode_columns
from kohort.wire.records.payload import encode_records, wrap64
from tests.wire.ways import CONTENTS, WAYS, T, logs, loops_of, rows, simple


def read_both_ways(data: bytes, start_offset: int, **options: Any) -> Decoded:
    found = []
    for way in WAYS:
        with loops_of(way):
            found.append(decode_columns(memoryview(data), start_offset, **options))
    one, other = found
    assert rows(one.columns) == rows(other.columns)
    assert one.columns.runs == other.columns.runs
    assert (one.next_offset, one.bytes_used, str(one.error)) == (
        other.next_offset,
        other.bytes_used,
        str(other.error),
    )
    for name in ("has_keys", "has_null_values", "has_headers"):
        assert getattr(one.columns, name) == getattr(other.columns, name)
    return one


@given(log=logs(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_all_ways_read_what_the_oracle_reads(log: list[bytes], data: st.DataObject) -> None:
    expected = [record for batch in log for record in iter_records(batch)]
    start_offset = data.draw(st.sampled_from([0, *(record.offset for record in expected)]))
    cut = data.draw(st.integers(0, len(log[-1]) - 1))  # of the last batch
    decoded = read_both_ways(b"".join(log), start_offset)
    assert decoded.error is None
    assert rows(decoded.columns) == [record for record in expected if record.offset >= start_offset]
    assert decoded.next_offset == max(start_offset, expected[-1].offset + 1)
    shorter = read_both_ways(b"".join(log[:-1]) + log[-1][:cut], 0)
    assert shorter.error is None
    assert rows(shorter.columns) == [record for batch in log[:-1] for record in iter_records(batch)]
    assert shorter.bytes_used == sum(map(len, log[:-1]))


def by_the_oracle(
    data: bytes, start_offset: int = -(2**63), *, check_crcs: bool = False
) -> tuple[list[BatchRecord], bool]:
    """The records of the batches before the first damaged one, and whether there is one."""
    found: list[BatchRecord] = []
    try:
        for pos, header in iter_batches(data):
            if not 0 <= header.base_offset <= 1 << 62 or header.last_offset_delta < 0:
                return found, True
            if check_crcs and not crc_is_good(data, pos, header.size):
                return found, True
            if not header.is_control and header.last_offset >= start_offset:
                records = list(iter_records(data[pos : pos + header.size]))
                # The oracle lets times beyond 64 bits stand where their difference is short.
                found += [record._replace(timestamp=wrap64(record.timestamp)) for record in records]
    except BadBatch:
        return found, True
    return found, False


@given(log=logs(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_are_read_alike_by_all_and_never_beyond_the_end(
    log: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(log))
    for _ in range(data.draw(st.integers(1, 4))):
        # Near the start of the records, where the lengths are, as often as anywhere.
        near = st.integers(HEADER_SIZE - 10, min(len(whole) - 1, HEADER_SIZE + 20))
        at = data.draw(near | st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    decoded = read_both_ways(bytes(whole), -(2**63), check_crcs=False)
    expected, damaged = by_the_oracle(bytes(whole))
    assert rows(decoded.columns) == expected
    assert (decoded.error is not None) == damaged


@given(log=logs(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_all_parts_together_are_the_whole(log: list[bytes], data: st.DataObject) -> None:
    whole, damage = bytearray(b"".join(log)), data.draw(st.integers(0, 2))
    for _ in range(damage):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    view, start_offset = memoryview(bytes(whole)), data.draw(st.integers(0, 10))
    with loops_of("python"):
        at_once = decode_columns(view, start_offset, check_crcs=False)
        part = decode_columns(view, start_offset, check_crcs=False, first_part=data.draw(st.integers(1, 4)))
        found = rows(part.columns)
        while part.more is not None:
            assert part.next_offset == (found[-1].offset + 1 if found else start_offset)
            part = part.more()
            found += rows(part.columns)
    assert found[: len(at_once.columns)] == rows(at_once.columns)
    assert str(part.error) == str(at_once.error)
    if at_once.error is None:
        assert len(found) == len(at_once.columns)
        assert (part.next_offset, part.bytes_used) == (at_once.next_offset, at_once.bytes_used)


@given(payload=st.binary(max_size=60), count=st.integers(-1, 6))
@settings(max_examples=300, deadline=None)
def test_any_bytes_as_records_are_read_alike(payload: bytes, count: int) -> None:
    batch = bytearray(encode_batch([BatchRecord(0, 0, None, None, [])])[:HEADER_SIZE]) + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    decoded = read_both_ways(bytes(batch), -(2**63), check_crcs=False)
    assert (rows(decoded.columns), decoded.error is not None) == by_the_oracle(bytes(batch))


@pytest.mark.parametrize("way", WAYS)
@given(contents=st.lists(CONTENTS, min_size=1, max_size=40), without_headers=st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_is_encoded_from_columns_is_what_the_oracle_encodes(
    way: str,
    contents: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    without_headers: bool,
) -> None:
    contents = contents * (1 if len(contents) < 10 else 3)  # enough for the kernel to be used
    if without_headers:
        contents = [(timestamp, key, value, []) for timestamp, key, value, _ in contents]
    timestamps, keys, values, headers = map(list, zip(*contents, strict=True))
    records = [BatchRecord(offset, *content) for offset, content in enumerate(contents)]
    with loops_of(way):
        assert encode_columns(keys, values, timestamps, headers) == encode_records(records, 0, timestamps[0])
        batch = encode_batch_columns(
            keys, values, timestamps, headers, producer_id=5, producer_epoch=1, base_sequence=9
        )
    assert batch == encode_batch(records, producer_id=5, producer_epoch=1, base_sequence=9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, 30, 3000])
@pytest.mark.parametrize("codec", range(5))
def test_one_timestamp_for_all_no_keys_no_headers(way: str, count: int, codec: int) -> None:
    values = [b"value %d" % number for number in range(count)]
    with loops_of(way):
        batch = encode_batch_columns(None, values, 1_700_000_000_000, compression=codec, transactional=True)
    records = [BatchRecord(offset, 1_700_000_000_000, None, value, []) for offset, value in enumerate(values)]
    assert batch == encode_batch(records, compression=codec, transactional=True)


class Bytes(bytes):
    """No bytes object as the compiled loop knows it."""


@pytest.mark.parametrize("in_lists", [True, False], ids=["lists", "tuples"])
@pytest.mark.parametrize("odd", [b"b", bytearray(b"b"), memoryview(b"b"), Bytes(b"b"), None])
@pytest.mark.parametrize("readable", [True, False], ids=["read from objects", "joined"])
def test_objects_of_every_kind_are_encoded_alike(
    odd: Any, in_lists: bool, readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kohort.wire.records import kernels_objects

    assert kernels_objects.CAN_READ_OBJECTS  # else the way of most records would not be tested
    monkeypatch.setattr(kernels_objects, "CAN_READ_OBJECTS", readable)
    values = [*(b"value %d" % n * n for n in range(40)), odd, b""]
    keys = [odd, None, b"", *(b"key %d" % n for n in range(39))]
    records = [
        BatchRecord(
            at, T + at, None if key is None else bytes(key), None if value is None else bytes(value), []
        )
        for at, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    kind: Any = list if in_lists else tuple
    with loops_of("numba"):
        made = encode_batch_columns(kind(keys), kind(values), [record.timestamp for record in records])
    assert made == encode_batch(records)


SMALL_BATCHES = [simple(2 * at, 2, transactional=at % 11 == 5) for at in range(40)]


@given(
    damage=st.lists(
        st.tuples(st.integers(0, sum(map(len, SMALL_BATCHES)) - 1), st.integers(0, 255)), max_size=2
    ),
    start_offset=st.integers(0, 90),
    check_crcs=st.booleans(),
    max_bytes=st.none() | st.integers(1, 4000),
)
@settings(max_examples=200, deadline=None)
def test_many_small_batches_are_checked_and_read_alike(
    damage: list[tuple[int, int]], start_offset: int, check_crcs: bool, max_bytes: int | None
) -> None:
    whole = bytearray(b"".join(SMALL_BATCHES))
    for at, byte in damage:
        whole[at] = byte
    decoded = read_both_ways(
        bytes(whole), start_offset, check_crcs=check_crcs, aborted=[(-1, 0)], max_bytes=max_bytes
    )
    expected, damaged = by_the_oracle(bytes(whole), start_offset, check_crcs=check_crcs)
    if max_bytes is None:
        assert rows(decoded.columns) == [record for record in expected if record.offset >= start_offset]
        assert (decoded.error is not None) == damaged
    else:
        found = rows(decoded.columns)
        assert found == [record for record in expected if record.offset >= start_offset][: len(found)]
        assert len(SMALL_BATCHES[0]) * (len(found) // 2 - 1) < max_bytes  # not one batch too many


def test_the_scan_of_small_batches_stops_at_all_that_is_not_plain() -> None:
    marker = bytes(
        encode_control_batch(ControlKind.ABORT, producer_id=1, producer_epoch=0, timestamp=0, base_offset=80)
    )
    of_producer = simple(81, 1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    data = b"".join(
        [*SMALL_BATCHES, marker, of_producer, simple(82, compression=4), simple(85), simple(88)[:70]]
    )
    every = [*range(80), *range(81, 88)]
    assert [int(record.value or b"") for record in rows(read_both_ways(data, 0).columns)] == every
    decoded = read_both_ways(data, 0, aborted=[(1, 81)])
    assert [int(record.value or b"") for record in rows(decoded.columns)] == [*range(80), *range(82, 88)]
    assert (decoded.next_offset, decoded.bytes_used, decoded.error) == (88, len(data) - 70, None)
