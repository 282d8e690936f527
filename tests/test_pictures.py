"""The pictures of the benchmarks: in every row to the right is better."""

from __future__ import annotations

from benchmarks.report import FIGURES, GROUP_FIGURES, written


def test_more_is_better_in_every_row_that_is_drawn() -> None:
    drawn = [line for line in written(FIGURES + GROUP_FIGURES) if line.ratio]
    assert len(drawn) > 20
    for line in drawn:
        (kohort,), (kafka,) = line.kohort, line.kafka
        is_better = kohort > kafka if line.figure.at_least else kohort < kafka
        assert line.times_better is not None
        assert (line.times_better > 1) == is_better, line.figure.label
        if line.goal_times_better is not None:
            assert (line.times_better >= line.goal_times_better) == line.met, line.figure.label
