"""`kohort demo`, as `make run` runs it: it ends by itself, and what it shows is checked by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.cli.demo.command import writable
from kohort.cli.demo.report import Sample, print_report, worked_on
from kohort.cli.demo.sums import Sums

pytestmark = pytest.mark.timeout(660)  # for what hangs: Spark on a busy machine needs its time


def demo(out: Path, *, without: tuple[str, ...] = (), seconds: float = 14) -> str:
    """What it prints; it must end well. `without`: packages that are not installed, as far as it can see."""
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
        "from kohort.cli.main import main\n"
        f"sys.exit(main(['demo', '--seconds', '{seconds}', '--out', {str(out)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},  # what is drawn is compared
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.jvm
def test_all_of_it(tmp_path: Path) -> None:
    said = demo(tmp_path / "out")
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "out" / "revenue").glob("batch=*/*.parquet"))
    found = re.search(r"ok: ([\d,]+) of \1 orders were worked on by the group", said)
    assert found, said[-3000:]
    assert int(found[1].replace(",", "")) > 10_000
    summed = re.search(r"ok: ([\d,]+) orders are in Spark's sums", said)
    assert summed, said[-3000:]
    assert int(summed[1].replace(",", "")) > 0
    assert re.search(r"spark@\S+ joined", said)
    assert re.search(r"anna-[0-9a-f]{8}… joined", said)
    # Which of them it is depends on the machine: who is stuck on a slow one may miss its session first.
    gone = "poll timeout has expired|session expired after|did not rejoin in time"
    for name in ("bert", "cleo"):
        assert re.search(rf"{name}-[0-9a-f]{{8}}….*({gone})", said), said[-3000:]
    assert "left: the consumer was closed" in said


def test_without_spark_and_without_matplotlib_the_rest_is_shown(tmp_path: Path) -> None:
    said = demo(tmp_path / "out", without=("pyspark", "matplotlib"), seconds=6)
    assert 'Spark is not installed: pip install "kohort[spark]"' in said
    assert "matplotlib is not installed" in said
    assert "were worked on by the group" in said
    assert "all is well" in said
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_cannot_be_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    other = writable(tmp_path / "file" / "out")
    other.rmdir()
    assert str(other) in capsys.readouterr().out
    assert writable(tmp_path / "out") == tmp_path / "out"


def member(*worked: tuple[int, int, int]) -> Any:
    records = sum(after - first for _, first, after in worked)
    return SimpleNamespace(worked=list(worked), records=records, began_s=0.0, ended_s=1.0, killed=False)


def test_what_was_worked_on_twice_is_counted_once() -> None:
    assert worked_on([member((0, 0, 10), (1, 0, 5)), member((0, 8, 20))]) == (25, 27)
    assert worked_on([member((0, 5, 10)), member((0, 0, 3))]) == (8, 8)


ORDERS = {(0, offset): ("bread", 99) for offset in range(10)}


@pytest.mark.parametrize(
    ("worked", "summed", "good"),
    [
        ((0, 0, 6), Sums(0, 0, 6, 10, {"bread": 4}, {"bread": 396}), True),
        ((0, 0, 8), Sums(0, 0, 6, 10, {"bread": 4}, {"bread": 396}), True),
        ((0, 0, 5), Sums(0, 0, 6, 10, {"bread": 4}, {"bread": 396}), False),
        ((0, 0, 6), Sums(0, 0, 6, 10, {"bread": 5}, {"bread": 396}), False),
        ((0, 0, 6), Sums(0, 0, 6, 10, {"bread": 4}, {"bread": 395}), False),
        ((0, 0, 6), Sums(0, 0, 6, 10, {"bread": 4, "eggs": 1}, {"bread": 396, "eggs": 5}), False),
    ],
)
def test_an_order_too_few_or_too_many_is_noticed(
    worked: tuple[int, int, int], summed: Sums, good: bool
) -> None:
    samples = [Sample(1.0, 10, 6, 0, "Stable", 2, 4, 1, 5.0)]
    workers = {"anna": member(worked), "spark": member((summed.partition, summed.first, summed.after))}
    assert print_report(samples, workers, 10, [], [summed], ORDERS) is good


def test_a_pipeline_that_summed_up_nothing_is_noticed() -> None:
    samples = [Sample(1.0, 10, 10, 0, "Stable", 2, 0, None, 0.0)]
    assert not print_report(samples, {"anna": member((0, 0, 10))}, 10, [], [], ORDERS)
