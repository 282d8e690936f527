"""Fetched bytes as columns: what is returned, what is left out, where the position is afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kohort.wire.errors import ErrorCode
from kohort.wire.records.batch import (
    BatchRecord,
    ControlKind,
    assign,
    encode_batch,
    encode_control_batch,
    read_header,
    rebuild,
    stamp_append_time,
)
from kohort.wire.records.columns import Columns, compiled, decode_columns, no_columns, prefer
from kohort.wire.records.compression import Compression
from tests.wire.ways import T, rows, simple, way

__all__ = ["way"]
pytestmark = pytest.mark.usefixtures("way")

CODECS = list(Compression)


def values(columns: Columns) -> list[int]:
    return [int(record.value or b"-1") for record in rows(columns)]


def marker(kind: ControlKind, producer_id: int, offset: int) -> bytes:
    return bytes(
        encode_control_batch(kind, producer_id=producer_id, producer_epoch=0, timestamp=T, base_offset=offset)
    )


def by_producer(producer_id: int, offset: int, count: int = 1) -> bytes:
    return simple(
        offset, count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


@pytest.mark.parametrize("codec", CODECS)
def test_records_before_the_start_offset_are_left_out(codec: Compression) -> None:
    data = simple(0, compression=codec) + simple(3, compression=codec)
    decoded = decode_columns(memoryview(data), 4)
    assert decoded.columns.offsets.tolist() == [4, 5]
    assert (decoded.next_offset, decoded.bytes_used, decoded.error) == (6, len(data), None)


def test_compressed_and_uncompressed_batches_come_in_their_order() -> None:
    codecs = [Compression.NONE, Compression.LZ4, Compression.NONE, Compression.NONE, Compression.ZSTD]
    data = b"".join(simple(3 * at, compression=codec) for at, codec in enumerate(codecs))
    assert values(decode_columns(memoryview(data), 1).columns) == list(range(1, 15))


def test_a_batch_that_is_not_all_there_ends_the_columns_without_an_error() -> None:
    data = simple(0) + simple(3)
    for size in range(len(simple(0)), len(data)):
        decoded = decode_columns(memoryview(data)[:size], 0)
        assert (len(decoded.columns), decoded.next_offset, decoded.error) == (3, 3, None)
        assert decoded.bytes_used == len(simple(0))
    assert decode_columns(b"", 7).next_offset == 7


def test_a_crc_that_does_not_match_ends_the_columns_and_names_the_offset() -> None:
    bad = bytearray(simple(3))
    bad[-1] ^= 1
    data = simple(0) + bytes(bad) + simple(6)
    decoded = decode_columns(memoryview(data), 0)
    assert (len(decoded.columns), decoded.next_offset, decoded.bytes_used) == (3, 3, len(simple(0)))
    assert decoded.error is not None
    assert decoded.error.code is ErrorCode.CORRUPT_MESSAGE
    assert "batch at offset 3" in str(decoded.error)
    again = decode_columns(memoryview(data)[decoded.bytes_used :], decoded.next_offset)
    assert (len(again.columns), again.next_offset) == (0, 3)
    assert again.error is not None


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_damaged_records_end_the_columns_before_their_batch(codec: Compression) -> None:
    bad = bytearray(simple(3))
    bad[61] += 2  # the first record says that it is longer
    batches = [simple(0, compression=codec), bytes(bad), simple(6)]
    decoded = decode_columns(memoryview(b"".join(batches)), 1, check_crcs=False)
    assert (decoded.columns.offsets.tolist(), decoded.next_offset) == ([1, 2], 3)
    assert decoded.bytes_used == len(batches[0])
    assert decoded.error is not None
    assert decoded.error.code is ErrorCode.INVALID_RECORD
    assert "batch at offset 3" in str(decoded.error)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_message_format_is_an_error(magic: int) -> None:
    bad = bytearray(simple(3))
    bad[16] = magic
    decoded = decode_columns(memoryview(simple(0) + bytes(bad)), 0)
    assert (len(decoded.columns), decoded.next_offset) == (3, 3)
    assert decoded.error is not None


def test_a_damaged_compressed_stream_is_an_error() -> None:
    bad = bytearray(simple(3, 50, compression=Compression.ZSTD))
    bad[70:80] = bytes(10)
    decoded = decode_columns(memoryview(simple(0) + bytes(bad)), 0, check_crcs=False)
    assert (len(decoded.columns), decoded.next_offset) == (3, 3)
    assert decoded.error is not None


def test_a_batch_that_ends_before_it_starts_is_an_error_and_no_endless_loop() -> None:
    bad = bytearray(simple(3))
    bad[23:27] = (-4).to_bytes(4, "big", signed=True)
    decoded = decode_columns(memoryview(bad), 3, check_crcs=False)
    assert decoded.error is not None
    assert decoded.next_offset == 3


def test_append_time_is_the_time_of_all_records_of_its_batch() -> None:
    stamped = bytearray(simple(3))
    stamp_append_time(stamped, 0, T + 77)
    columns = decode_columns(memoryview(simple(0) + bytes(stamped)), 0).columns
    assert columns.timestamps.tolist() == [T, T + 1, T + 2, T + 77, T + 77, T + 77]
    assert [kind for _, _, kind in columns.runs] == [0, 1]
    assert columns.run_of(2)[2] == 0
    assert columns.run_of(3)[2] == 1


def test_runs_tell_leader_epochs_and_are_cut_with_slices() -> None:
    batches = []
    for offset, epoch in ((0, 1), (3, 1), (6, 2)):
        batch = bytearray(simple(offset))
        assign(batch, 0, offset, epoch)
        batches.append(bytes(batch))
    columns = decode_columns(memoryview(b"".join(batches)), 0).columns
    assert columns.runs == [(6, 1, 0), (9, 2, 0)]
    assert columns.slice(4, 8).runs == [(2, 1, 0), (4, 2, 0)]
    assert columns.slice(4, 8).offsets.tolist() == [4, 5, 6, 7]
    assert columns.slice(7, 9).runs == [(2, 2, 0)]
    assert columns.slice(0, 6).runs == [(6, 1, 0)]
    assert columns.slice(4, 4).runs == []
    assert len(columns.slice(8, 3)) == 0
    assert values(columns.slice(2, 7)) == [2, 3, 4, 5, 6]


def test_headers_of_each_record() -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("ü", None), ("a", b"")]
    records = [BatchRecord(at, T, b"k", b"v", headers[:at]) for at in range(4)]
    columns = decode_columns(memoryview(encode_batch(records)), 0).columns
    assert [list(columns.headers(row)) for row in range(4)] == [headers[:at] for at in range(4)]
    assert list(columns.slice(3, 4).headers(0)) == headers


def test_the_position_moves_past_records_that_compaction_took() -> None:
    whole = simple(0, 10)
    header = read_header(whole)
    left = rebuild(header, [BatchRecord(4, T, b"k", b"4", [])])
    empty = rebuild(header._replace(base_offset=10), [])
    decoded = decode_columns(memoryview(bytes(left) + bytes(empty)), 2)
    assert (decoded.columns.offsets.tolist(), decoded.next_offset) == ([4], 20)


def test_control_batches_are_never_returned_and_the_position_moves_past_them() -> None:
    data = simple(0) + marker(ControlKind.COMMIT, 7, 3) + simple(4) + marker(ControlKind.ABORT, 7, 7)
    choices: tuple[list[tuple[int, int]] | None, ...] = (None, [])
    for aborted in choices:
        decoded = decode_columns(memoryview(data), 0, aborted=aborted)
        assert values(decoded.columns) == [0, 1, 2, 4, 5, 6]
        assert decoded.next_offset == 8


def test_read_committed_leaves_out_aborted_transactions_until_their_marker() -> None:
    data = b"".join(
        [
            by_producer(1, 0),
            by_producer(2, 1),
            simple(2, 1),
            marker(ControlKind.ABORT, 1, 3),
            by_producer(1, 4),
            by_producer(2, 5),
            marker(ControlKind.COMMIT, 2, 6),
            marker(ControlKind.COMMIT, 1, 7),
        ]
    )
    assert values(decode_columns(memoryview(data), 0).columns) == [0, 1, 2, 4, 5]
    decoded = decode_columns(memoryview(data), 0, aborted=[(1, 0)])
    assert (values(decoded.columns), decoded.next_offset, decoded.aborted) == ([1, 2, 4, 5], 8, [])


def test_a_transaction_that_begins_later_is_not_left_out_before() -> None:
    data = by_producer(1, 0) + marker(ControlKind.COMMIT, 1, 1) + by_producer(1, 2) + by_producer(1, 3)
    decoded = decode_columns(memoryview(data), 0, aborted=[(1, 2)])
    assert (values(decoded.columns), decoded.next_offset) == ([0], 4)
    assert decoded.aborted == [(1, 2)]


def test_a_batch_without_a_transaction_of_an_aborted_producer_is_returned() -> None:
    data = simple(0, producer_id=1, producer_epoch=0, base_sequence=0)
    assert len(decode_columns(memoryview(data), 0, aborted=[(1, 0)]).columns) == 3


@pytest.mark.parametrize("codec", CODECS)
def test_it_stops_after_max_bytes_and_goes_on_where_it_was(codec: Compression) -> None:
    aborts = by_producer(1, 0) + marker(ControlKind.ABORT, 1, 1) + by_producer(1, 2)
    data = memoryview(aborts + b"".join(simple(at, compression=codec) for at in range(3, 30, 3)))
    offset, found, calls = 0, list[int](), 0
    aborted: list[tuple[int, int]] | None = [(1, 0)]
    while len(data):
        decoded = decode_columns(data, offset, aborted=aborted, max_bytes=1)
        found += values(decoded.columns)
        data, offset, aborted = data[decoded.bytes_used :], decoded.next_offset, decoded.aborted
        calls += 1
    assert (found, calls) == (list(range(2, 30)), 10)


def test_a_batch_of_zeros_cannot_fill_the_memory() -> None:
    batch = encode_batch([BatchRecord(0, T, None, bytes(140 << 20), [])], compression=Compression.ZSTD)
    decoded = decode_columns(memoryview(batch), 0)
    assert decoded.error is not None
    assert decoded.error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_no_columns_are_empty_in_every_respect() -> None:
    assert len(no_columns()) == len(no_columns().slice(0, 5)) == 0
    assert repr(no_columns()) == "Columns(no records)"


def test_the_way_can_be_chosen(way: str) -> None:
    assert compiled() == (way == "numba")
    with pytest.raises(ValueError, match="KOHORT_KERNEL is 'fortran'"):
        prefer("fortran")


def test_importing_columns_and_records_loads_neither_numba_nor_numpy_nor_pyarrow() -> None:
    code = (
        "import sys, kohort.wire.records.columns, kohort.client.records\n"
        "from kohort.wire.records.batch import BatchRecord, encode_batch\n"
        "batch = encode_batch([BatchRecord(0, 0, None, b'v', [])])\n"
        "assert len(kohort.wire.records.columns.decode_columns(batch, 0).columns) == 1\n"
        "print([name for name in ('numba', 'numpy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("[]\n", "")


WITHOUT_THEM = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba", "numpy", "pyarrow"):
            raise ModuleNotFoundError(f"no {name}", name=name)

sys.meta_path.insert(0, Blocker())
from kohort.client.records import Records
from kohort.wire.records.columns import compiled, decode_columns, encode_batch_columns, prefer
values = [b"%d" % number for number in range(100_000)]
batch = encode_batch_columns(None, values, 0, compression=4)
assert not compiled()
for _ in range(2):
    decoded = decode_columns(batch, 5)
    assert [record.value for record in Records("t", 0, decoded.columns, 0)] == values[5:]
prefer("numba")
try:
    compiled()
except ModuleNotFoundError as error:
    print("said", error.name)
"""


def test_all_works_without_numba_numpy_and_pyarrow() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_THEM], capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("said numba\n", "")
