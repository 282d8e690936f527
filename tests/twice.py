"""Runs pytest, runs the tests that failed once more, and says in the last line how many those were.

python -m tests.twice -n 2 tests/broker     # every argument is pytest's

A test that needed its second try shows in the last line (`6533 passed, 0 failed, 2 retried`): it is a bug report, see
CONTRIBUTING.md. Only tests get a second try. If a file could not be collected, or not everything was run that was
collected (workers crashed too often, somebody pressed Ctrl-C), the run has failed as a whole.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

_WHERE = "KOHORT_TALLY_FILE"


@dataclass(slots=True)
class Tally:
    """How the tests of one run ended, by their ids."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    collected: int = 0
    uncollected: list[str] = field(default_factory=list)
    """Files that could not be read as tests."""
    exit_code: int = -1

    @property
    def is_whole(self) -> bool:
        ran = len(self.passed) + len(self.failed) + len(self.skipped)
        return self.exit_code in (0, 1) and not self.uncollected and 0 < self.collected == ran


class Recorder:
    """Collects the results of all workers, and writes the tally at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = {}
        self._tally = Tally()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._outcomes.get(report.nodeid)
        if report.failed or before == "failed":
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self._outcomes[report.nodeid] = "skipped"
        elif before is None:
            self._outcomes[report.nodeid] = "passed"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self._tally.uncollected:
            self._tally.uncollected.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        tally = self._tally
        for outcome, tests in (
            ("passed", tally.passed),
            ("failed", tally.failed),
            ("skipped", tally.skipped),
        ):
            tests += [test for test, how in self._outcomes.items() if how == outcome]
        tally.collected, tally.exit_code = session.testscollected, int(exitstatus)
        self._path.write_text(json.dumps(asdict(tally)), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the recorder (`-p tests.twice`), in the process that collects the results of xdist's workers."""
    if _WHERE in os.environ and not hasattr(config, "workerinput"):
        # pytest runs of a test's own have nothing to write here.
        config.pluginmanager.register(Recorder(Path(os.environ.pop(_WHERE))))


def environment() -> dict[str, str]:
    """What the tests are run with: Python may keep the bytecode of what it has compiled.

    Hundreds of programs that tests start import Kohort, and each would compile it anew.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(arguments: list[str], more: list[str]) -> Tally:
    with tempfile.TemporaryDirectory(prefix="kohort-tally-") as folder:
        path = Path(folder, "tally.json")
        command = [sys.executable, "-m", "pytest", "-p", "tests.twice", *more, *arguments]
        code = subprocess.run(command, env=environment() | {_WHERE: str(path)}, check=False).returncode
        if not path.exists():  # not even begun, or killed
            return Tally(exit_code=code or -1)
        written: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return Tally(**written)


def main(arguments: list[str]) -> int:
    first = run(arguments, ["--cache-clear"])
    passed, failed, retried = len(first.passed), len(first.failed), 0
    is_whole = first.is_whole
    if first.failed and is_whole:
        retried = len(first.failed)
        print("What failed, once more:", *first.failed, sep="\n  ", flush=True)
        second = run(arguments, ["--last-failed", "--last-failed-no-failures", "none"])
        is_whole = second.is_whole and second.collected == retried
        passed += len(second.passed)
        failed = retried - len(second.passed) - len(second.skipped)
    if not is_whole:
        where = f" (not collected: {', '.join(first.uncollected)})" if first.uncollected else ""
        print(f"Not everything that should run has run{where}: see above.")
    skipped = f", {len(first.skipped)} skipped" if first.skipped else ""
    print(f"{passed} passed, {failed} failed{skipped}, {retried} retried", flush=True)
    return 0 if is_whole and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
