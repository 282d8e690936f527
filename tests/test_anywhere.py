"""`make test-anywhere` tells what it could not run, and by which condition a test fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import anywhere
from tests.anywhere import Condition, Outcome, Place


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(anywhere, "KEPT", tmp_path / "kept")


def place_with(folder: Path, source: str) -> Place:
    """A few tests beside a link to the package that runs them."""
    tests = folder / "there" / "tests"
    tests.mkdir(parents=True)
    (tests / "__init__.py").touch()
    (tests / "twice.py").write_text(Path(anywhere.__file__).with_name("twice.py").read_text("utf-8"))
    (tests / "test_it.py").write_text(source)
    (tests.parent / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    quick = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p xdist",
    }  # most plugins take long to load
    return Place(tests.parent, Path(sys.executable), environ=quick)


def test_a_python_that_cannot_be_had_is_named_and_is_a_failure_unless_it_may_be_missing() -> None:
    with pytest.raises(
        anywhere.CannotRun, match="neither on PATH nor among pyenv's, and uv could not"
    ) as why:
        anywhere.find_python("3.99")
    total = Outcome(passed=5)
    total.add(anywhere._not_run("Python 3.99", why.value, must=False))
    assert total.is_good
    assert str(total).startswith("5 passed, 0 failed, 0 retried; not run: Python 3.99 (neither on PATH")
    total.add(anywhere._not_run("Python 3.99", why.value, must=True))
    assert not total.is_good


def test_the_condition_that_a_test_fails_under_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "import os\ndef test_good(): pass\ndef test_bad(): assert 'GUILTY' not in os.environ\n"
    conditions = [Condition("innocent", environ={"HOME": None}), Condition("guilty", environ={"GUILTY": "1"})]
    outcome = anywhere.run_tests(place_with(tmp_path, source), ("tests/test_it.py",), conditions)
    assert (outcome.passed, outcome.failed, outcome.retried) == (1, 1, 1)
    said = capsys.readouterr().out
    assert said.startswith("innocent, guilty: 1 passed, 1 failed, 1 retried, ")
    assert said.splitlines()[-3:] == [
        "  what failed, with none of these conditions: passes",
        "  what failed, with only innocent: passes",
        "  what failed, with only guilty: fails",
    ]


def test_what_the_shell_does_first_reaches_the_tests(tmp_path: Path) -> None:
    source = (
        "import os, resource, signal\n"
        "def test_it():\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, 256)\n"
        "    assert os.umask(0o077) == 0o077\n"
        "    assert 'HOME' not in os.environ and os.environ['http_proxy']\n"
    )
    conditions = [
        anywhere.BACKGROUND,
        anywhere.FEW,
        anywhere.PRIVATE,
        anywhere.HOMELESS,
        anywhere.PROXY,
        anywhere.PLAIN_C,
        anywhere.LATIN_1,
    ]
    outcome = anywhere.run_tests(place_with(tmp_path, source), ("tests/test_it.py",), conditions)
    assert (str(outcome), outcome.is_good) == ("1 passed, 0 failed, 0 retried", True)


def test_a_run_that_does_not_come_to_its_end_is_broken(tmp_path: Path) -> None:
    outcome = anywhere.run_tests(place_with(tmp_path, "1 +"), ("tests/test_it.py",), [anywhere.PLAIN_C])
    assert (str(outcome), outcome.is_good) == ("0 passed, 0 failed, 0 retried; broken: LANG=C", False)


def test_the_files_it_names_are_there() -> None:
    named = {
        *anywhere.IN_PLACE,
        *anywhere.IN_A_COPY,
        *anywhere.SPARK_IN_A_COPY,
        *anywhere.ON_A_PYTHON,
    }
    assert [name for name in named if not (anywhere.ROOT / name.split("::")[0]).exists()] == []
