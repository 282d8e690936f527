"""Lag in seconds, from the ends of a log at some moments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.lag_times import EndsOfLog, LagTimes


def log_of(*notes: tuple[int, int]) -> EndsOfLog:
    log = EndsOfLog()
    for second, end in notes:
        log.note(second * 1000, end)
    return log


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (100, 0.0),  # at the end
        (120, 0.0),  # beyond it, after a record was deleted
        (50, 10.0),  # where the log ended at second 10
        (75, 5.0),  # half way between two notes
        (0, 20.0),  # where it ended at the first note
        (-100, 40.0),  # before the first note, as fast as since then
    ],
)
def test_the_time_since_the_log_ended_there(committed: int, expected: float) -> None:
    assert log_of((0, 0), (10, 50), (20, 100)).lag_s(20_000, committed) == expected


def test_while_the_log_stands_still_the_lag_grows_with_the_time() -> None:
    log = log_of((0, 0), (10, 100), *((second, 100) for second in range(20, 100_000, 10)))
    assert log.lag_s(100_000_000, 50) == 99_995.0
    assert log.lag_s(100_000_000, 100) == 0.0


def test_nothing_is_known_before_the_log_has_grown() -> None:
    assert log_of((0, 100)).lag_s(0, 50) is None
    assert log_of((0, 100), (10, 100)).lag_s(10_000, 50) is None
    assert log_of((0, 100)).lag_s(0, 100) == 0.0
    assert EndsOfLog().lag_s(0, 0) is None


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    assert log_of((0, 0), (10, 1000), (20, 5)).lag_s(20_000, 2) is None


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=200), st.integers(0, 100_000))
def test_few_notes_are_kept_and_the_lag_is_never_longer_than_is_known(
    growth: list[int], committed: int
) -> None:
    log, end = EndsOfLog(), 0
    for second, more in enumerate(growth):
        end += more
        log.note(second * 1000, end)
    assert len(log._times) == len(log._ends) <= 32
    assert list(log._ends) == sorted(log._ends)
    found = log.lag_s((len(growth) - 1) * 1000, committed)
    if committed >= growth[0] and found is not None:
        assert 0 <= found <= len(growth) - 1


def test_logs_that_no_group_reads_are_forgotten() -> None:
    times = LagTimes()
    times.note(0, {("a", 0): 10, ("b", 0): 10})
    times.note(1000, {("a", 0): 20})
    assert times.lag_s("a", 0, 1000, 15) == 0.5
    assert times.lag_s("b", 0, 1000, 10) is None
