"""`make soak` ends in time, goes on after a failure and says how to repeat it."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from tests.soak import ROOT, Step, property_tests, round_of, soak


def test_a_failure_is_told_with_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds, now = itertools.count(), [0.0]

    def steps(seed: int) -> list[Step]:
        fails = [sys.executable, "-c", "print('found something'); raise SystemExit(1)"]
        hangs = [sys.executable, "-c", "import threading; threading.Event().wait()"]
        number = next(rounds)
        now[0] = (0, 59.9, 60)[number]  # a tenth of a second is left for the second round
        first = [Step("first", fails, {"SEED": str(seed)}), Step("second", [sys.executable, "-c", ""])]
        return (first, [Step("third", hangs)], [])[number]

    failed = soak(1, steps, tmp_path, clock=lambda: now[0])
    output = capsys.readouterr().out
    assert [step.name for step in failed] == ["first"]
    assert "found something" in output
    assert f"run it again: SEED={failed[0].environment['SEED']} " in output
    assert "second … passed" in output
    assert "third … ended after" in output
    assert [path.name for path in tmp_path.iterdir()] == [f"{failed[0].environment['SEED']}-first.log"]


def test_the_seed_is_in_every_command_of_a_round() -> None:
    for step in round_of(20_261_116):
        assert "20261116" in step.as_typed(), step.name


def test_property_tests_are_found() -> None:
    found = property_tests()
    assert "tests/wire/test_frame.py" in found
    assert all((ROOT / path).exists() for path in found)
