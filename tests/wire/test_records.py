"""Record batches: what is accepted from a client, and what is refused with which code."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_AT,
    BatchHeader,
    BatchRecord,
    ControlKind,
    assign,
    check_batch,
    check_keys,
    control_kind,
    coordinator_epoch,
    crc_is_good,
    encode_batch,
    encode_control_batch,
    header_fields,
    iter_batches,
    iter_records,
    position_of,
    read_header,
    recompress,
    stamp_append_time,
)
from kohort.wire.records.compression import Compression, compress

T = 1_700_000_000_000
SMALL = [
    BatchRecord(0, T, b"k", b"v", []),
    BatchRecord(1, T + 5, None, None, [("h", None), ("i", b"x")]),
    BatchRecord(2, T - 5, b"", b"", []),
]
# Where each field stands, and how it is packed.
FIELDS = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def small_batch(**fields: int) -> bytearray:
    """A good batch with some fields of its header changed, and a CRC that is right all the same."""
    batch = encode_batch(SMALL, producer_id=7, producer_epoch=1, base_sequence=10)
    for name, value in fields.items():
        position, form = FIELDS[name]
        struct.pack_into(form, batch, position, value)
    return with_good_crc(batch)


def with_good_crc(batch: bytes) -> bytearray:
    batch = bytearray(batch)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def with_payload(payload: bytes, count: int = 1, codec: int = Compression.NONE) -> bytearray:
    batch = encode_batch([BatchRecord(n, T, None, b"", []) for n in range(count)])[:HEADER_SIZE] + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    return with_good_crc(batch)


def code_of(refused: Callable[[], object]) -> ErrorCode:
    with pytest.raises(BadBatch) as caught:
        refused()
    return caught.value.code


# --- what a client may append -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda batch: memoryview(bytes(batch))])
def test_a_good_batch_is_accepted_and_its_header_returned(kind: type) -> None:
    batch = small_batch()
    header = check_batch(kind(batch))
    assert header == read_header(batch)
    assert (header.size, header.record_count, header.last_offset) == (len(batch), 3, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 10)
    assert (header.base_timestamp, header.max_timestamp) == (T, T + 5)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 1}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1, "record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x30}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.INVALID_RECORD),
        ({"attributes": 7}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"producer_epoch": -1}, ErrorCode.INVALID_RECORD),
        ({"base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"base_offset": -1}, ErrorCode.INVALID_RECORD),
        ({"magic": 0}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ({"magic": 1}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 13}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 48}, ErrorCode.INVALID_RECORD),
        ({"batch_length": 2**31 - 1}, ErrorCode.INVALID_RECORD),
    ],
    ids=str,
)
def test_a_batch_that_no_client_may_send_is_refused(fields: dict[str, int], code: ErrorCode) -> None:
    assert code_of(lambda: check_batch(small_batch(**fields))) is code


@pytest.mark.parametrize("fields", [{"producer_epoch": -1}, {"base_sequence": -1}])
def test_without_a_producer_id_epoch_and_sequence_do_not_matter(fields: dict[str, int]) -> None:
    check_batch(small_batch(producer_id=-1, **fields))


def test_exactly_one_batch_is_accepted() -> None:
    batch = small_batch()
    assert code_of(lambda: check_batch(batch + batch)) is ErrorCode.INVALID_RECORD
    assert code_of(lambda: check_batch(batch + b"\0")) is ErrorCode.INVALID_RECORD
    assert code_of(lambda: check_batch(b"")) is ErrorCode.INVALID_RECORD


def test_a_complete_batch_too_small_for_its_header_is_corrupt() -> None:
    batch = small_batch(batch_length=60 - 12)[:60]
    assert code_of(lambda: check_batch(batch)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("value", [b"", b"x" * 100], ids=["shorter than a v2 header", "longer"])
def test_messages_of_the_old_formats_are_refused_as_such(magic: int, value: bytes) -> None:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", T) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">qiI", 0, 4 + len(body), 0) + body
    assert code_of(lambda: check_batch(message)) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("codec", Compression)
def test_every_changed_byte_is_refused_unless_we_overwrite_it_anyway(codec: Compression) -> None:
    good = encode_batch(SMALL, compression=codec, producer_id=7, producer_epoch=1, base_sequence=10)
    leader_epoch = range(12, 16)
    for position in range(len(good)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(good)
            changed[position] ^= flip
            if position in leader_epoch:
                check_batch(changed)
                assign(changed, 0, 0, -1)
                assert changed == good
            else:
                code_of(lambda batch=changed: check_batch(batch))


def test_a_changed_byte_that_only_the_crc_can_see_is_corrupt() -> None:
    for position in [*range(17, 21), *range(21, len(small_batch()))]:
        changed = small_batch()
        changed[position] ^= 0x40
        assert code_of(lambda batch=changed: check_batch(batch)) is ErrorCode.CORRUPT_MESSAGE
        assert not crc_is_good(changed, 0, len(changed))


def test_a_batch_cut_at_any_byte_is_refused() -> None:
    batch = small_batch()
    for end in range(len(batch)):
        assert code_of(lambda cut=batch[:end]: check_batch(cut)) is ErrorCode.INVALID_RECORD
        with pytest.raises(BadBatch):
            list(iter_records(batch[:end]))
        assert not crc_is_good(batch[:end], 0, len(batch))
        assert list(iter_batches(batch[:end])) == []


@pytest.mark.parametrize("codec", Compression)
def test_records_without_a_key_are_found_by_index(codec: Compression) -> None:
    assert check_keys(encode_batch(SMALL, compression=codec)) == [1]
    assert check_keys(encode_batch([SMALL[0]], compression=codec)) == []


# --- headers and patches ----------------------------------------------------------------------------


def test_read_header_does_not_ask_for_the_rest_of_the_batch() -> None:
    batch = small_batch()
    assert read_header(b"..." + batch[:HEADER_SIZE], 3) == read_header(batch)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"magic": 1}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 48}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": -5}, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=str,
)
def test_an_impossible_header_is_not_read(fields: dict[str, int], code: ErrorCode) -> None:
    assert code_of(lambda: read_header(small_batch(**fields))) is code


def test_sequence_numbers_start_again_at_zero_after_the_largest() -> None:
    assert read_header(small_batch()).last_sequence == 12
    assert read_header(small_batch(base_sequence=2**31 - 2)).last_sequence == 0
    assert read_header(small_batch(base_sequence=-1)).last_sequence == -1


def test_batches_are_found_one_after_another_and_a_partial_one_is_left_out() -> None:
    first, second = small_batch(), small_batch(producer_id=8)
    assign(second, 0, 3, 0)
    found = list(iter_batches(first + second + first[:-1]))
    assert [(position, header.base_offset) for position, header in found] == [(0, 0), (len(first), 3)]


def test_assign_changes_offset_and_leader_epoch_and_nothing_else() -> None:
    batch = small_batch()
    log = bytearray(b"before") + batch + b"after"
    assign(memoryview(log), 6, 1_000_000_000_000, 9)
    header = read_header(log, 6)
    assert header == read_header(batch)._replace(base_offset=1_000_000_000_000, partition_leader_epoch=9)
    assert log[:6] + log[6 + len(batch) :] == b"beforeafter"
    assert crc_is_good(log, 6, len(batch))
    records = list(iter_records(log[6 : 6 + len(batch)]))
    assert [record.offset - 1_000_000_000_000 for record in records] == [0, 1, 2]


@pytest.mark.parametrize("codec", Compression)
def test_append_time_is_the_time_of_every_record(codec: Compression) -> None:
    batch = encode_batch(SMALL, compression=codec)
    log = bytearray(b"before") + batch + b"after"
    stamp_append_time(memoryview(log), 6, T + 1_000)
    stamped = log[6 : 6 + len(batch)]
    header = read_header(stamped)
    assert (header.uses_append_time, header.compression, header.max_timestamp) == (True, codec, T + 1_000)
    assert crc_is_good(stamped, 0, len(stamped))
    assert list(iter_records(stamped)) == [record._replace(timestamp=T + 1_000) for record in SMALL]
    assert log[:6] + log[6 + len(batch) :] == b"beforeafter"


# --- damage inside ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes.fromhex("0e"),
        bytes.fromhex("0c 00 00 00 01 01"),  # the count of headers is missing
        bytes.fromhex("0c 00 00 00 01 01 00 00"),  # a byte too many
        bytes.fromhex("0e 00 00 00 01 01 00"),  # the record says 7 bytes and has 6
        bytes.fromhex("01 00 00 00 01 01 00"),  # the record says -1 byte
        bytes.fromhex("0c 00 00 00 01 fe ff ff ff 0f"),  # a value of 2^31 - 1 bytes
        bytes.fromhex("0c 00 00 00 fe ff ff ff 0f 01 00"),  # a key of as many
        bytes.fromhex("14 00 00 00 01 01 fe ff ff ff 0f"),  # as many headers
        bytes.fromhex("0c 00 00 00 01 01 01"),  # -1 headers
        bytes.fromhex("10 00 00 00 01 01 02 01 01"),  # a header without a name
        bytes.fromhex("1a 00 00 00 01 01 02 02 61 08 62"),  # a last header value longer than the batch
        bytes.fromhex("14 00 00 00 01 01 80 80 80 80 80"),  # a number without an end
        bytes.fromhex("0e 00 00 00 01 01 02 01"),  # another one
        bytes.fromhex("81 01 00 00 00 01 74") + bytes(59),  # the record says -65 bytes
        bytes.fromhex("14 00 00 ff ff ff ff 7f 01 01 00"),  # an offset of more than 32 bits
        bytes.fromhex("16 00 00 80 80 80 80 80 00 01 01 00"),  # an offset of more than 5 bytes
        bytes.fromhex("20 00 ff ff ff ff ff ff ff ff ff 02 00 01 01 00"),  # a timestamp of more than 64 bits
    ],
    ids=bytes.hex,
)
def test_damaged_records_are_refused_before_one_is_returned(payload: bytes) -> None:
    for codec in Compression:
        batch = with_payload(compress(codec, payload), codec=codec)
        read: list[BatchRecord] = []
        assert (
            code_of(lambda batch=batch, read=read: read.extend(iter_records(batch)))
            is ErrorCode.INVALID_RECORD
        )
        if payload != bytes.fromhex("0c 00 00 00 01 01 00 00"):
            assert read == []


def test_the_smallest_record_is_read() -> None:
    (record,) = iter_records(with_payload(bytes.fromhex("0c 00 00 00 01 01 00")))
    assert record == BatchRecord(0, T, None, None, [])


@given(payload=st.binary(max_size=60), count=st.integers(0, 5), codec=st.sampled_from(Compression))
def test_noise_is_refused_or_read_but_never_breaks(payload: bytes, count: int, codec: Compression) -> None:
    batch = with_payload(compress(codec, payload), 1, codec)
    struct.pack_into(">i", batch, 57, count)
    try:
        assert len(list(iter_records(batch))) == count
    except BadBatch:
        pass


@given(
    position=st.integers(HEADER_SIZE, 10_000), byte=st.integers(0, 255), codec=st.sampled_from(Compression)
)
def test_a_changed_byte_among_the_records_never_breaks_the_reader(
    position: int, byte: int, codec: Compression
) -> None:
    batch = encode_batch(SMALL * 3, compression=codec)
    batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = byte
    try:
        assert len(list(iter_records(batch))) == 9
    except BadBatch:
        pass


def test_a_batch_that_grows_beyond_the_cap_is_refused() -> None:
    batch = encode_batch([BatchRecord(0, T, None, bytes(100_000), [])], compression=Compression.ZSTD)
    for read in (iter_records, check_keys):
        assert code_of(lambda read=read: read(batch, max_size=99_999)) is ErrorCode.MESSAGE_TOO_LARGE
    assert (
        code_of(lambda: recompress(batch, Compression.NONE, max_size=99_999)) is ErrorCode.MESSAGE_TOO_LARGE
    )


def test_a_negative_count_is_damage() -> None:
    batch = with_payload(b"")
    struct.pack_into(">i", batch, 57, -1)
    assert code_of(lambda: iter_records(batch)) is ErrorCode.INVALID_RECORD


# --- control batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ControlKind)
def test_a_marker_says_how_the_transaction_ended(kind: ControlKind) -> None:
    batch = encode_control_batch(
        kind,
        producer_id=7,
        producer_epoch=2,
        timestamp=T,
        coordinator_epoch=5,
        base_offset=30,
        partition_leader_epoch=1,
    )
    header: BatchHeader = read_header(batch)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    (marker,) = iter_records(batch)
    assert (marker.offset, marker.timestamp) == (30, T)
    assert (control_kind(marker.key), coordinator_epoch(marker.value)) == (kind, 5)


def test_kinds_that_are_not_about_transactions_are_told_apart_from_damage() -> None:
    assert control_kind(struct.pack(">hh", 0, 2)) is None
    assert control_kind(struct.pack(">hh", 1, 0) + b"a later version") is ControlKind.ABORT
    for key in (None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)):
        assert code_of(lambda key=key: control_kind(key)) is ErrorCode.INVALID_RECORD
    assert code_of(lambda: coordinator_epoch(b"\0\0")) is ErrorCode.INVALID_RECORD


def test_the_header_is_laid_out_as_kafka_says() -> None:
    """The positions of DefaultRecordBatch, in bytes."""
    positions = [0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57]
    assert [position_of(name) for name in BatchHeader._fields] == positions
    assert HEADER_SIZE == 61
    some = header_fields("batch_length", "magic", "max_timestamp")
    batch = HEADER.pack(*range(13))
    assert (some.size, some.unpack_from(batch, LENGTH_AT)) == (35, (1, 3, 8))
