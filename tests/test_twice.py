"""`make test` tries once more what failed, and its last line says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

GOOD = "def test_good(): pass\n"
ONCE = """
from pathlib import Path
def test_once():
    mark = Path(__file__).with_name("mark")
    was_there = mark.exists()
    mark.touch()
    assert was_there
"""
BAD_TEARDOWN = """
import pytest
@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")
def test_teardown(broken): pass
"""
CRASHES_ONCE = """
import os
from pathlib import Path
def test_crash():
    mark = Path(__file__).with_name("crashed")
    if not mark.exists():
        mark.touch()
        os._exit(3)
"""


def make_tests(folder: Path, **files: str) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, source in files.items():
        (folder / f"test_{name}.py").write_text(source)


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the last line."""
    # The package `tests` is found by way of the folder that this starts in.
    command = [sys.executable, "-m", "tests.twice", "-p", "xdist", "--rootdir", str(folder)]
    done = subprocess.run(
        [*command, *arguments, str(folder)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # most take long to load
    )
    return done.returncode, (done.stdout.strip().splitlines() or [done.stderr])[-1]


def test_nothing_failed(tmp_path: Path) -> None:
    make_tests(tmp_path, a=GOOD, b=GOOD)
    assert run(tmp_path) == (0, "2 passed, 0 failed, 0 retried")


@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "worksteal"]], ids=["alone", "workers"])
def test_what_fails_once_passes_and_is_counted(tmp_path: Path, workers: list[str]) -> None:
    make_tests(tmp_path, a=GOOD, b=ONCE)
    assert run(tmp_path, *workers) == (0, "2 passed, 0 failed, 1 retried")


def test_what_fails_twice_has_failed_also_at_its_end(tmp_path: Path) -> None:
    make_tests(tmp_path, a=GOOD, b="def test_bad(): assert False", c=BAD_TEARDOWN, d=ONCE)
    assert run(tmp_path) == (1, "2 passed, 2 failed, 3 retried")


def test_a_worker_that_crashes_fails_its_test(tmp_path: Path) -> None:
    make_tests(tmp_path, a=GOOD, b=CRASHES_ONCE, c=GOOD)
    assert run(tmp_path, "-n", "2") == (0, "3 passed, 0 failed, 1 retried")


def test_workers_that_crash_too_often_are_no_success(tmp_path: Path) -> None:
    make_tests(tmp_path, a=GOOD, b=CRASHES_ONCE, c=GOOD)
    code, last = run(tmp_path, "-n", "1", "--max-worker-restart", "0")
    assert code == 1, last


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "workers"])
def test_a_file_that_cannot_be_collected_is_not_tried_again(tmp_path: Path, workers: list[str]) -> None:
    """The second try would leave out all tests of that file, and might pass."""
    make_tests(tmp_path, a=GOOD, b=ONCE.replace("def test_once():", "if True:"))
    code, last = run(tmp_path, *workers)
    assert code == 1
    assert last.endswith("0 retried")


def test_nothing_to_run_is_no_success(tmp_path: Path) -> None:
    make_tests(tmp_path)
    assert run(tmp_path) == (1, "0 passed, 0 failed, 0 retried")


def test_skipped_ones_are_told(tmp_path: Path) -> None:
    make_tests(tmp_path, a=GOOD, b="import pytest\ndef test_it(): pytest.skip('not here')\n")
    assert run(tmp_path) == (0, "1 passed, 0 failed, 1 skipped, 0 retried")
