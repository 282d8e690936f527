"""The rules of health, one by one, and that they hold for any points."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.insight.health import PATIENCE_MS, Health, OffsetPoint, group_health, partition_health

STEP_MS = 5_000


def points(*pairs: tuple[int | None, int | None]) -> list[OffsetPoint]:
    """One point every five seconds."""
    return [OffsetPoint(n * STEP_MS, committed, end) for n, (committed, end) in enumerate(pairs)]


def health(*pairs: tuple[int | None, int | None], is_owned: bool = True) -> Health:
    history = points(*pairs)
    return partition_health(history, history[-1].at_ms if history else 0, is_owned=is_owned)


def test_nothing_is_known_without_a_commit_or_without_a_log() -> None:
    assert health() is Health.NOTFOUND
    assert health((None, 100)) is Health.NOTFOUND
    assert health((5, None)) is Health.NOTFOUND


def test_who_has_read_all_is_ok_whatever_was_before() -> None:
    assert health((50, 100), (20, 100), (100, 100)) is Health.OK
    assert health(*[(100, 100)] * 1000, is_owned=False) is Health.OK


def test_a_lag_that_shrinks_is_ok() -> None:
    assert health(*[(10 * n, 1000 + n) for n in range(50)]) is Health.OK


def test_a_lag_that_grows_with_every_commit_is_a_warning() -> None:
    growing = [(10 * n, 1000 + 20 * n) for n in range(10)]
    assert health(*growing) is Health.WARN
    assert health(*growing[:4]) is Health.OK  # that may be chance
    assert health(*growing, (190, 1190)) is Health.OK  # it has shrunk once


def test_a_lag_that_stays_as_it_is_is_ok() -> None:
    """Burrow would warn. A consumer that always has the same records in hand keeps up."""
    assert health(*[(10 * n, 10 * n + 7) for n in range(20)]) is Health.OK


def test_a_lag_that_grows_after_it_was_zero_is_ok_until_that_is_long_ago() -> None:
    caught_up = [(10, 10)]
    growing = [(10 + 10 * n, 10 + 20 * n) for n in range(1, 8)]
    assert health(*caught_up, *growing) is Health.OK
    more = [(80 + 10 * n, 150 + 20 * n) for n in range(1, 10)]
    assert health(*caught_up, *growing, *more) is Health.WARN


def test_an_offset_that_does_not_move_is_a_stall_or_a_stop() -> None:
    still = [(50, 1000 + n) for n in range(PATIENCE_MS // STEP_MS + 2)]
    assert health(*still, is_owned=True) is Health.STALL
    assert health(*still, is_owned=False) is Health.STOP
    assert health(*still[:5], is_owned=False) is Health.OK  # too early to say


def test_who_commits_seldom_is_given_the_time_that_the_last_commits_took() -> None:
    slow = [(10 * (n // 40), 5000) for n in range(200)]  # a commit in 200 s
    waiting = [(40, 5000)] * 100
    assert health(*slow, *waiting) is Health.OK
    assert health(*slow, *waiting, *[(40, 5000)] * 200) is Health.STALL


def test_who_was_at_the_end_a_moment_ago_has_not_stopped() -> None:
    idle = [(100, 100)] * 50
    assert health(*idle, (100, 150), is_owned=False) is Health.OK
    assert health(*idle, *[(100, 150)] * 5, is_owned=False) is Health.OK
    assert health(*idle, *[(100, 150)] * 20, is_owned=False) is Health.STOP


def test_who_went_back_is_rewound_until_it_is_where_it_was() -> None:
    assert health((100, 500), (110, 500), (0, 500)) is Health.REWIND
    assert health((100, 500), (110, 500), (0, 500), (60, 500)) is Health.REWIND
    assert health((100, 500), (110, 500), (0, 500), (110, 500)) is Health.OK


def test_a_rewind_is_forgotten_after_ten_commits() -> None:
    before = [(1000, 5000), (0, 5000)]
    after = [(n, 5000) for n in range(1, 11)]
    assert health(*before, *after[:5]) is Health.REWIND
    assert health(*before, *after) is Health.OK


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    H = Health
    assert group_health([]) is H.NOTFOUND
    assert group_health([H.NOTFOUND]) is H.NOTFOUND
    assert group_health([H.OK, H.NOTFOUND]) is H.OK
    assert group_health([H.OK, H.WARN]) is H.WARN
    assert group_health([H.STOP, H.STOP, H.NOTFOUND]) is H.STOP
    assert group_health([H.STOP, H.OK]) is H.ERR
    assert group_health([H.STOP, H.STALL]) is H.ERR
    assert group_health([H.REWIND]) is H.REWIND


OFFSETS = st.one_of(st.none(), st.integers(0, 1000))


@given(st.lists(st.tuples(OFFSETS, OFFSETS), max_size=40), st.booleans())
def test_any_points_have_a_health(pairs: list[tuple[int | None, int | None]], is_owned: bool) -> None:
    found = health(*pairs, is_owned=is_owned)
    last = points(*pairs)[-1] if pairs else None
    assert (found is Health.NOTFOUND) == (last is None or last.lag is None)
    if last is not None and last.lag == 0:
        assert found is Health.OK
    assert found is not (Health.STOP if is_owned else Health.STALL)


@given(st.lists(st.integers(0, 50), min_size=2, max_size=60))
def test_who_reads_faster_than_is_written_is_never_bad(read: list[int]) -> None:
    total = sum(read)
    done = 0
    pairs = []
    for count in read:
        done += count + 1
        pairs.append((done, total + 10_000))
    assert health(*pairs) is Health.OK
