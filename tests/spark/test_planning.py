"""Ranges, tasks, limits and losses: the numbers that Spark's Kafka connector gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.spark.driver.planning import (
    Delay,
    batch_ranges,
    check_named,
    divide,
    limit,
    split,
    step_ranges,
)
from kohort.spark.offsets import Offsets
from kohort.spark.ranges import OffsetRange


def p(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def ranges(*sizes: int, start: int = 0) -> list[OffsetRange]:
    return [OffsetRange(p(n), start, start + size) for n, size in enumerate(sizes)]


def counts(tasks: list[OffsetRange]) -> list[int]:
    """Tasks per partition."""
    return [
        sum(task.partition.partition == n for task in tasks)
        for n in sorted({t.partition.partition for t in tasks})
    ]


# --- splitting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "least", "tasks"),
    [
        ((10, 1, 1), 5, [3, 1, 1]),
        ((5, 3, 2), 4, [2, 1, 1]),
        ((100, 100, 100), 4, [1, 1, 1]),
        ((3,), 50, [3]),
        ((1000,), 3, [3]),
        ((10, 10), 2, [1, 1]),
    ],
)
def test_min_partitions_in_two_passes(sizes: tuple[int, ...], least: int, tasks: list[int]) -> None:
    assert counts(split(ranges(*sizes), least)) == tasks


@pytest.mark.parametrize(
    ("size", "parts", "cuts"),
    [(1000, 3, [333, 666, 1000]), (10, 3, [3, 6, 10]), (7, 5, [1, 2, 3, 5, 7])],
)
def test_the_larger_pieces_come_last(size: int, parts: int, cuts: list[int]) -> None:
    assert [piece.end for piece in divide(OffsetRange(p(0), 0, size), parts)] == cuts


def test_max_records_makes_equal_pieces() -> None:
    assert [piece.size for piece in split(ranges(1000), max_records=400)] == [333, 333, 334]


def test_max_records_comes_first_and_then_min_partitions() -> None:
    tasks = split(ranges(1000), 10, 400)
    assert len(tasks) == 9
    assert {task.size for task in tasks} == {111, 112}


def test_without_options_a_range_is_a_task_and_empty_ones_are_left_out() -> None:
    assert split(ranges(5, 0, 7)) == [ranges(5)[0], OffsetRange(p(2), 0, 7)]


SIZES = st.lists(st.integers(0, 5000), min_size=1, max_size=8)


@given(SIZES, st.none() | st.integers(1, 60), st.none() | st.integers(1, 3000), st.integers(0, 1000))
def test_every_offset_is_in_exactly_one_task(
    sizes: list[int], least: int | None, most: int | None, start: int
) -> None:
    whole = ranges(*sizes, start=start)
    tasks = split(whole, least, most)
    assert all(task.size for task in tasks)
    for each in whole:
        at = each.start
        for task in tasks:
            if task.partition == each.partition:
                assert task.start == at
                at = task.end
        assert at == each.end
    if most is not None:
        assert all(task.size <= most for task in tasks)


# --- how far a batch goes -----------------------------------------------------------------------------


def test_the_limit_is_shared_by_what_is_left() -> None:
    end = {p(0): 900, p(1): 95, p(2): 5}
    assert limit(dict.fromkeys(end, 0), end, 100) == {p(0): 90, p(1): 9, p(2): 1}


ENDS = st.dictionaries(st.builds(p, st.integers(0, 9)), st.integers(0, 10**6), min_size=1)


@given(ENDS, ENDS, st.integers(1, 10**6))
def test_a_limit_never_goes_further_and_never_stands_still(start: Offsets, end: Offsets, most: int) -> None:
    limited = limit(start, end, most)
    assert limited.keys() == end.keys()
    waiting = {q: at - start.get(q, 0) for q, at in end.items()}
    taken = {q: at - start.get(q, 0) for q, at in limited.items()}
    for q in end:
        if waiting[q] > 0:
            assert 1 <= taken[q] <= waiting[q]
        else:
            assert limited[q] == end[q]
    positive = [taken[q] for q in end if waiting[q] > 0]
    assert sum(positive) <= most + len(positive)
    if sum(w for w in waiting.values() if w > 0) <= most:
        assert limited == end


def test_too_little_waits_until_there_is_enough() -> None:
    delay = Delay(100, 10_000)
    assert not delay.holds({p(0): 0}, {p(0): 1}, 5)  # the first batch after a start does not wait
    assert delay.holds({p(0): 1}, {p(0): 50}, 1_000)
    assert not delay.holds({p(0): 1}, {p(0): 101}, 1_001)


def test_but_not_longer_than_max_trigger_delay_after_the_last_batch() -> None:
    delay = Delay(100, 10_000)
    assert not delay.holds({p(0): 0}, {p(0): 1}, 5)
    assert delay.holds({p(0): 1}, {p(0): 2}, 10_004)
    assert not delay.holds({p(0): 1}, {p(0): 2}, 10_005)
    assert delay.holds({p(0): 2}, {p(0): 3}, 10_006)


# --- batches ------------------------------------------------------------------------------------------


def test_a_batch_has_a_range_per_partition_also_empty_ones() -> None:
    assert batch_ranges({p(1): 0, p(0): 3}, {p(1): 2, p(0): 3}) == [
        OffsetRange(p(0), 3, 3),
        OffsetRange(p(1), 0, 2),
    ]


def test_a_batch_cannot_start_behind_its_end() -> None:
    text = "The resolved start offset 99 is greater than the resolved end offset 10 for topic t partition 0."
    with pytest.raises(ValueError, match=text):
        batch_ranges({p(0): 99}, {p(0): 10})


def test_offsets_name_all_partitions_and_no_other() -> None:
    check_named("start", [p(0)], [p(0)])
    with pytest.raises(
        ValueError, match=r"Partitions specified for Kafka start offsets don't match what are assigned"
    ) as e:
        check_named("start", [p(0)], [p(1), p(0)])
    assert str(e.value).endswith(
        "Use -1 for latest, -2 for earliest. Specified: Set(t-0) Assigned: Set(t-0, t-1)"
    )


# --- streams ------------------------------------------------------------------------------------------


def test_a_new_partition_is_read_from_its_first_record() -> None:
    step = step_ranges({p(0): 5}, {p(0): 6, p(1): 3}, {p(1): 0})
    assert (step.ranges, step.losses) == ([OffsetRange(p(0), 5, 6), OffsetRange(p(1), 0, 3)], [])


def test_a_new_partition_that_does_not_begin_at_0_has_lost_something() -> None:
    step = step_ranges({}, {p(1): 9}, {p(1): 4})
    assert step.ranges == [OffsetRange(p(1), 4, 9)]
    assert step.losses == ["Added partition t-1 starts from 4 instead of 0. Some data may have been missed."]


def test_an_end_before_the_start_reads_nothing_and_says_so() -> None:
    step = step_ranges({p(0): 50}, {p(0): 10}, {})
    assert step.ranges == []
    assert step.losses[0].startswith(
        "Partition t-0 offset was changed from 50 to 10. This could be either 1) a user error"
    )


def test_a_topic_made_anew_is_read_from_the_beginning() -> None:
    step = step_ranges({p(0): 50}, {p(0): 10}, {}, {"t"})
    assert step.ranges == [OffsetRange(p(0), 0, 10)]
    assert step.losses


def test_a_partition_that_is_gone_is_a_loss() -> None:
    assert step_ranges({p(0): 1, p(1): 1}, {p(0): 1}, {}).losses == [
        "Set(t-1) are gone. Some data may have been missed."
    ]


def test_a_partition_that_came_into_being_in_between_is_none() -> None:
    assert step_ranges({p(0): 1, p(1): 1}, {p(0): 1}, {}, existing=[p(0), p(1)]).losses == []


@given(ENDS, ENDS)
def test_what_is_read_lies_between_both_offsets(start: Offsets, end: Offsets) -> None:
    for each in step_ranges(start, end, {}).ranges:
        assert start.get(each.partition, 0) <= each.start < each.end == end[each.partition]
