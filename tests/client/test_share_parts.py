"""Acknowledgements as requests say them, and what an answer is taken apart into: random ones against plain ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.client.share.acknowledgements import GAP, Acknowledgements, AcknowledgeType, TopicIdPartition
from kohort.client.share.acquired import AcquiredFetch
from tests.client.share_transcript import batch

PLACE = TopicIdPartition(b"0" * 16, "orders", 0)
TYPES = st.sampled_from([*map(int, AcknowledgeType), GAP])


@given(st.lists(st.tuples(TYPES, st.integers(1, 14), st.integers(0, 2)), max_size=12))
def test_ranges_say_each_offset_once_with_its_type(runs: list[tuple[int, int, int]]) -> None:
    """Runs of one type, some of them next to each other, some with a hole before them."""
    said, expected, at = Acknowledgements(), dict[int, int](), 0
    for kind, size, hole in runs:
        at += hole
        if kind == GAP:
            said.gaps.append((at, at + size - 1))
        else:
            said.types.update(dict.fromkeys(range(at, at + size), kind))
        expected.update(dict.fromkeys(range(at, at + size), kind))
        at += size
    assert len(said) == len(expected)
    found: dict[int, int] = {}
    last = -1
    for first, end, types in said.ranges():
        assert last < first <= end, "they are in order and do not overlap"
        last = end
        assert len(types) in (1, end - first + 1)
        each = types * (end - first + 1) if len(types) == 1 else types
        found.update(zip(range(first, end + 1), each, strict=True))
    assert found == expected
    assert len(said.ranges()) <= len(runs)


def test_a_long_run_is_one_range_and_short_ones_are_said_together() -> None:
    said = Acknowledgements(dict.fromkeys(range(20), 1) | {20: 2, 21: 3, 22: 2})
    assert [tuple(each) for each in said.ranges()] == [(0, 19, [1]), (20, 22, [2, 3, 2])]


@st.composite
def fetches(draw: st.DrawFn) -> tuple[bytes, dict[int, str], list[tuple[int, int, int]]]:
    """Batches of a log, some compacted, some damaged; what each offset is; and the ranges that were acquired."""
    log, kinds, at = b"", dict[int, str](), 0
    for size in draw(st.lists(st.integers(1, 6), min_size=1, max_size=6)):
        offsets = list(range(at, at + size))
        # The first and the last stay: they say where the batch begins and ends.
        without = tuple(offset for offset in offsets[1:-1] if draw(st.booleans()))
        made = bytearray(batch(at, at + size - 1, without=without))
        damaged = draw(st.integers(0, 5)) == 0
        if damaged:
            made[-1] ^= 0xFF
        log += bytes(made)
        for offset in offsets:
            kinds[offset] = "damaged" if damaged else "gap" if offset in without else "record"
        at += size
    cuts = sorted(draw(st.sets(st.integers(0, at), max_size=6)))
    ranges = [
        (first, last - 1, draw(st.integers(1, 5)))
        for first, last in zip(cuts[::2], cuts[1::2], strict=False)
        if first < last
    ]
    return log, kinds, ranges


@given(fetches())
def test_an_answer_is_taken_apart_into_records_gaps_and_damage(
    given_fetch: tuple[bytes, dict[int, str], list[tuple[int, int, int]]],
) -> None:
    log, kinds, ranges = given_fetch
    fetch = AcquiredFetch(1, PLACE, 30_000, memoryview(log), ranges)
    found: dict[int, str] = {}
    counts: dict[int, int | None] = {}
    while True:
        fetch.decode()
        others = fetch.take_others()
        found.update({offset: "gap" for first, last in others.gaps for offset in range(first, last + 1)})
        if (failed := fetch.take_failure()) is not None:
            assert failed.kind is AcknowledgeType.REJECT
            found.update(dict.fromkeys(failed.offsets, "damaged"))
            continue
        records = fetch.take()
        for record in records:
            assert record.offset not in found, "each offset once"
            found[record.offset], counts[record.offset] = "record", record.delivery_count
            assert record.value == str(record.offset).encode()
        if fetch.is_used_up:
            break
    acquired = {offset: count for first, last, count in ranges for offset in range(first, last + 1)}
    assert found == {offset: kinds[offset] for offset in acquired}
    assert counts == {offset: count for offset, count in acquired.items() if kinds[offset] == "record"}


def test_ranges_that_make_no_sense_are_not_used() -> None:
    nonsense = [(0, 1 << 60, 1), (5, 3, 1), (1, 2, 1), (2, 2, 3)]
    fetch = AcquiredFetch(1, PLACE, None, memoryview(batch(0, 3)), nonsense)
    fetch.decode()
    assert [record.offset for record in fetch.take()] == [1, 2]
    assert fetch.is_used_up
    assert not fetch.take_others()
