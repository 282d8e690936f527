"""The rules of compaction, against plain files in memory and a naive model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.log.maintenance.cleaner import (
    CleanedSegments,
    CleaningJob,
    Covered,
    SourceSegment,
    Spoiled,
    clean,
    cleaned_name,
    grouped,
    log_name,
    step_from_json,
    step_to_json,
)
from kohort.log.storage.memory import MemoryDirectory
from kohort.log.storage.transactions import AbortedTxn, TransactionIndex
from kohort.wire.records.batch import (
    BatchHeader,
    ControlKind,
    crc_is_good,
    encode_batch,
    encode_control_batch,
    iter_batches,
    iter_records,
)
from kohort.wire.records.compression import Compression
from kohort.wire.records.payload import BatchRecord

Row = tuple[bytes | None, bytes | None]  # key, value


def batch_at(offset: int, rows: Sequence[Row], *, time: int = 1000, **fields: int) -> bytearray:
    records = [BatchRecord(offset + n, time + n, key, value, []) for n, (key, value) in enumerate(rows)]
    return encode_batch(records, base_offset=offset, **fields)  # type: ignore[arg-type]


class Log:
    """Segments of batches in a directory in memory."""

    def __init__(self) -> None:
        self.directory = MemoryDirectory()
        self.sources: list[SourceSegment] = []
        self.end = 0

    def segment(self, *batches: Sequence[Row] | bytearray, **fields: int) -> None:
        base, data = self.end, bytearray()
        for rows in batches:
            batch = rows if isinstance(rows, bytearray) else batch_at(self.end, rows, **fields)
            ((_, header),) = iter_batches(batch)
            data += batch
            self.end = header.last_offset + 1
        file = self.directory.open(log_name(base), private=True)
        file.append(data)
        self.sources.append(SourceSegment(base, len(data)))

    def job(self, **changes: object) -> CleaningJob:
        job = CleaningJob(self.sources, 0, self.end, 5000, 100, 10**6, 4096, 250_000, {})
        return replace(job, **changes)  # type: ignore[arg-type]

    def clean(self, **changes: object) -> list[CleanedSegments | Covered | Spoiled]:
        return [step for step in clean(self.directory, self.job(**changes)) if step is not None]

    def swap(self, steps: list[CleanedSegments | Covered | Spoiled]) -> None:
        """Replace the old files by the cleaned ones, as the partition does."""
        gone: set[int] = set()
        cleaned: list[SourceSegment] = []
        for group in steps:
            if isinstance(group, CleanedSegments):
                for base in group.sources:
                    self.directory.delete(log_name(base))
                self.directory.rename(cleaned_name(group.sources[0]), log_name(group.sources[0]))
                gone |= set(group.sources)
                cleaned.append(SourceSegment(group.sources[0], group.size))
        rest = [source for source in self.sources if source.base_offset not in gone]
        self.sources = sorted([*cleaned, *rest], key=lambda source: source.base_offset)

    def bytes(self) -> bytes:
        return b"".join(self.directory.read(log_name(source.base_offset)) or b"" for source in self.sources)

    def headers(self) -> list[BatchHeader]:
        return [header for _, header in iter_batches(self.bytes())]

    def records(self) -> list[BatchRecord]:
        data = memoryview(self.bytes())
        return [r for at, header in iter_batches(data) for r in iter_records(data[at : at + header.size])]

    def rows(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    log = Log()
    log.segment([(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")])
    log.segment([(b"c", b"1"), (b"a", b"3")])
    log.swap(log.clean())
    assert log.rows() == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert [source.base_offset for source in log.sources] == [0], "small segments become one"


def test_a_batch_that_loses_nothing_is_copied_byte_by_byte() -> None:
    log = Log()
    log.segment([(b"a", b"1" * 100), (b"b", b"1" * 100)], compression=Compression.GZIP)
    before = log.bytes()
    log.swap(log.clean())
    assert log.bytes() == before


def test_a_batch_that_loses_records_keeps_codec_offsets_and_producer() -> None:
    log = Log()
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
    log.segment([(b"a", b"1"), (b"b", b"1")], compression=Compression.LZ4, **producer)
    log.segment([(b"b", b"2")])
    log.swap(log.clean())
    header = log.headers()[0]
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 1, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert header.compression == Compression.LZ4


def test_a_tombstone_gets_a_horizon_first_and_goes_when_it_has_passed() -> None:
    log = Log()
    log.segment([(b"a", b"1"), (b"a", None), (b"b", b"1")])
    log.swap(log.clean(now_ms=5000, delete_retention_ms=100))
    assert log.rows() == [(1, b"a", None), (2, b"b", b"1")]
    assert log.headers()[0].delete_horizon_ms == 5100
    assert [record.timestamp for record in log.records()] == [1001, 1002], "the times of records stay"
    log.swap(log.clean(now_ms=5099, first_dirty_offset=log.end))
    assert log.rows() == [(1, b"a", None), (2, b"b", b"1")]
    assert log.headers()[0].delete_horizon_ms == 5100
    log.swap(log.clean(now_ms=5100, first_dirty_offset=log.end))
    assert log.rows() == [(2, b"b", b"1")]


def test_a_record_without_a_key_goes() -> None:
    log = Log()
    log.segment([(None, b"1"), (b"a", b"1")])
    log.swap(log.clean())
    assert log.rows() == [(1, b"a", b"1")]


def test_the_last_sequence_of_a_producer_outlives_its_records() -> None:
    log = Log()
    log.segment([(b"a", b"1")], [(b"a", b"2")], producer_id=7, producer_epoch=1, base_sequence=3)
    log.segment([(b"a", b"3")], [(b"b", b"1")])
    log.swap(log.clean(producers={7: 1}))
    first, *rest = log.headers()
    assert (first.base_offset, first.record_count, first.producer_id, first.base_sequence) == (1, 0, 7, 3)
    assert first.max_timestamp == 1000
    assert len(rest) == 2
    log.swap(log.clean(producers={}))
    assert [header.base_offset for header in log.headers()] == [2, 3], "an expired producer needs it no more"


def marker(kind: ControlKind, offset: int, producer_id: int = 7, epoch: int = 1) -> bytearray:
    return encode_control_batch(
        kind, producer_id=producer_id, producer_epoch=epoch, timestamp=9, base_offset=offset
    )


def test_control_batches_that_are_not_about_transactions_stay() -> None:
    log = Log()
    log.segment([(b"a", b"1")])
    voters = BatchRecord(1, 0, b"\0\0\0\6", b"", [])
    log.segment(encode_batch([voters], base_offset=1, control=True))
    log.segment([(b"a", b"2")])
    log.swap(log.clean())
    log.swap(log.clean(now_ms=10**6))
    assert [(header.base_offset, header.is_control) for header in log.headers()] == [(1, True), (2, False)]


def test_aborted_records_go_and_hide_no_keys() -> None:
    log, producer = Log(), {"producer_id": 7, "producer_epoch": 1}
    log.segment([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    aborted: list[Row] = [(b"a", b"2"), (b"b", b"2"), (b"c", None)]
    log.segment(batch_at(3, aborted, transactional=True, **producer))
    log.segment(marker(ControlKind.ABORT, 6))
    log.segment(batch_at(7, [(b"b", b"3")], transactional=True, **producer))
    log.segment(marker(ControlKind.COMMIT, 8))
    log.segment([(b"z", b"1")])
    ended = AbortedTxn(7, 3, 6, 7)
    assert log.clean(aborted=[ended])[-1] == Covered(10)
    (name,) = (name for name in log.directory.names() if ".txnindex" in name)
    assert TransactionIndex.decode(log.directory.read(name) or b"").entries == [ended]
    log.swap(log.clean(aborted=[ended]))
    rows = [(0, b"a", b"1"), (2, b"c", b"1"), (7, b"b", b"3"), (9, b"z", b"1")]
    assert [row for row in log.rows() if row[0] not in (6, 8)] == rows
    assert [header.base_offset for header in log.headers() if header.is_control] == [6, 8]


def test_a_marker_goes_some_time_after_its_batches_and_the_index_with_it() -> None:
    log, producer = Log(), {"producer_id": 7, "producer_epoch": 1}
    ended = AbortedTxn(7, 0, 1, 2)
    log.segment(batch_at(0, [(b"a", b"1")], transactional=True, **producer), marker(ControlKind.ABORT, 1))
    log.segment(batch_at(2, [(b"b", b"1")], transactional=True, **producer), marker(ControlKind.COMMIT, 3))
    log.segment([(b"b", b"2")], [(b"c", b"1")])
    times = {"delete_retention_ms": 100, "aborted": [ended]}
    log.swap(log.clean(now_ms=1000, **times))
    assert [header.base_offset for header in log.headers()] == [1, 3, 4, 5]
    assert [header.delete_horizon_ms for header in log.headers()[:2]] == [None, None]
    log.directory.delete(next(name for name in log.directory.names() if ".txnindex" in name))
    log.swap(log.clean(now_ms=2000, **times))
    assert [header.delete_horizon_ms for header in log.headers()[:2]] == [2100, 2100]
    assert not [name for name in log.directory.names() if ".txnindex" in name], "nobody needs it any more"
    log.swap(log.clean(now_ms=2099, **times))
    assert [header.base_offset for header in log.headers()] == [1, 3, 4, 5]
    log.swap(log.clean(now_ms=2100, **times))
    assert [header.base_offset for header in log.headers()] == [4, 5]


def test_a_marker_that_alone_tells_a_producers_epoch_stays_empty() -> None:
    log = Log()
    log.segment(marker(ControlKind.ABORT, 0, epoch=3), marker(ControlKind.ABORT, 1, producer_id=8))
    log.segment([(b"a", b"1")])
    for now_ms in (1000, 2000, 3000):
        log.swap(log.clean(now_ms=now_ms, marked_producers={7: 3, 8: 2}))
    assert [(header.base_offset, header.record_count) for header in log.headers()] == [(0, 0), (2, 1)]


def test_the_last_batch_of_a_producer_stays_empty_if_its_transaction_was_aborted() -> None:
    log, producer = Log(), {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5}
    log.segment(batch_at(0, [(b"a", b"1")], transactional=True, **producer), marker(ControlKind.ABORT, 1))
    log.segment([(b"a", b"2")])
    for now_ms in (1000, 2000, 3000):
        log.swap(log.clean(now_ms=now_ms, producers={7: 0}, aborted=[AbortedTxn(7, 0, 1, 2)]))
    assert [(header.base_offset, header.record_count) for header in log.headers()] == [(0, 0), (1, 1), (2, 1)]
    assert log.headers()[0].base_sequence == 5


def test_the_end_of_each_cleaned_segment_is_remembered_even_if_all_its_records_go() -> None:
    log = Log()
    log.segment([(b"a", b"1")], [(b"a", b"2")])
    log.segment([(b"a", b"3")])
    log.swap(log.clean(segment_size=1))
    assert [source.base_offset for source in log.sources] == [0, 2]
    assert [(header.base_offset, header.record_count) for header in log.headers()] == [(1, 0), (2, 1)]


def test_segments_are_grouped_by_their_size_and_offset_span() -> None:
    sources = [
        SourceSegment(0, 40),
        SourceSegment(10, 40),
        SourceSegment(20, 40),
        SourceSegment(30, 100),
        SourceSegment(40, 5),
    ]
    bases = [[s.base_offset for s in group] for group in grouped(sources, 100, 50, 50)]
    assert bases == [[0, 10], [20], [30], [40]]
    bases = [[s.base_offset for s in group] for group in grouped(sources, 100, 20, 50)]
    assert bases == [[0, 10]], "what the pass does not cover is left alone"
    far = [SourceSegment(0, 1), SourceSegment(2**31 - 5, 1), SourceSegment(2**31 + 5, 1)]
    bases = [[s.base_offset for s in group] for group in grouped(far, 100, 2**31 + 9, 2**31 + 9)]
    assert bases == [[0], [2**31 - 5, 2**31 + 5]]


def test_a_full_map_ends_the_pass_and_the_next_one_goes_on() -> None:
    log = Log()
    for n in range(6):
        log.segment([(b"k%d" % (n % 4), b"%d" % n), (b"k%d" % ((n + 1) % 4), b"%d" % n)])
    dirty, passes = 0, 0
    while dirty < log.end:
        steps = log.clean(first_dirty_offset=dirty, max_keys=3)
        log.swap(steps)
        assert isinstance(steps[-1], Covered)
        assert steps[-1].first_dirty_offset > dirty
        dirty, passes = steps[-1].first_dirty_offset, passes + 1
    assert passes > 1
    assert {key: value for _, key, value in log.rows()} == {
        b"k0": b"4",
        b"k1": b"5",
        b"k2": b"5",
        b"k3": b"3",
    }


def test_one_batch_with_more_keys_than_the_map_may_hold_is_still_covered() -> None:
    log = Log()
    log.segment([(b"%d" % n, b"x") for n in range(10)])
    assert log.clean(max_keys=1)[-1] == Covered(10)


def test_a_bad_batch_spoils_the_pass_and_nothing_is_dropped() -> None:
    log = Log()
    log.segment([(b"a", b"1")], [(b"a", b"2")])
    data = bytearray(log.bytes())
    data[-1] ^= 1
    file = log.directory.open(log_name(0), private=True)
    file.truncate(0)
    file.append(data)
    assert log.clean() == [Spoiled(1, "the CRC of the batch does not match its bytes")]
    assert log.directory.names() == [log_name(0)]
    assert log.bytes() == data


def test_a_segment_that_ends_inside_a_batch_spoils_the_pass() -> None:
    log = Log()
    log.segment([(b"a", b"1")], [(b"a", b"2")])
    whole = log.sources[0].size
    for size in range(1, whole):
        log.sources = [SourceSegment(0, size)]
        steps = log.clean()
        assert isinstance(steps[-1], Covered if size == whole // 2 else Spoiled), size


def test_steps_survive_the_pipe() -> None:
    for step in (CleanedSegments([0, 5], 7, 1), Covered(9), Spoiled(3, "why")):
        assert step_from_json(step_to_json(step)) == step
    job = Log().job(sources=[SourceSegment(1, 2)], producers={7: 8})
    assert CleaningJob.from_json(job.to_json()) == job


rows = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"a long key that is hashed", b"another long key, hashed"]),
    st.none() | st.binary(max_size=3),
)
segments = st.lists(
    st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=3), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(segments, st.integers(1, 6), st.sampled_from([1, 300, 10**6]), st.data())
def test_whatever_is_written_the_last_values_survive(
    written: list[list[list[Row]]], max_keys: int, segment_size: int, data: st.DataObject
) -> None:
    log = Log()
    for batches in written:
        codec = data.draw(st.sampled_from([Compression.NONE, Compression.ZSTD]))
        log.segment(*batches, compression=codec)
    before = log.rows()
    last = {key: (offset, value) for offset, key, value in before}
    dirty, now_ms = 0, 5000
    for _ in range(100):
        steps = log.clean(
            first_dirty_offset=dirty, max_keys=max_keys, segment_size=segment_size, now_ms=now_ms
        )
        log.swap(steps)
        end = steps[-1]
        assert isinstance(end, Covered)
        dirty = end.first_dirty_offset
        after = log.rows()
        assert set(after) <= set(before), "nothing is invented or moved"
        assert after == sorted(after)
        assert {k: (o, v) for o, k, v in after} == last, "tombstones are still held"
        assert log.headers()[-1].last_offset == log.end - 1
        if dirty == log.end:
            break
    assert dirty == log.end
    assert after == sorted((offset, key, value) for key, (offset, value) in last.items())
    log.swap(log.clean(first_dirty_offset=dirty, now_ms=now_ms + 1000))
    values = {key: (offset, value) for key, (offset, value) in last.items() if value is not None}
    assert {k: (o, v) for o, k, v in log.rows()} == values


def test_cleaned_batches_have_the_right_length_and_crc() -> None:
    log = Log()
    log.segment([(b"a", b"1"), (b"b", None), (b"a", b"2")], [(b"b", b"1")], compression=Compression.SNAPPY)
    before = log.bytes()
    log.swap(log.clean())
    data = log.bytes()
    assert data != before
    batches = list(iter_batches(data))
    assert sum(header.size for _, header in batches) == len(data)
    assert all(crc_is_good(data, at, header.size) for at, header in batches)
