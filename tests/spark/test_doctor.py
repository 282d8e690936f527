"""`kohort doctor spark`: what it checks, what it says to do, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.cli.doctor.findings import NOTE, RIGHT, WRONG, Finding, report


def run_doctor(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return subprocess.run(
        [sys.executable, "-m", "kohort.cli.main", "doctor", *words],
        env={**given, **variables},
        capture_output=True,
        text=True,
        timeout=450,
        check=False,
    )


def test_each_finding_is_a_line_and_what_to_do_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding("a", RIGHT, "is there"),
        Finding("b", NOTE, "is slow"),
        Finding("c", WRONG, "no", "get it"),
    ]
    assert report(findings, as_json=False) == 1
    assert capsys.readouterr().out == "✓ a: is there\n! b: is slow\n✗ c: no\n    get it\nwrong: c\n"
    assert report(findings[:2], as_json=False) == 0
    assert capsys.readouterr().out.endswith("everything is right\n")


def test_the_same_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert report([Finding("c", WRONG, "no", "get it")], as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {
        "right": False,
        "findings": [{"name": "c", "verdict": "wrong", "text": "no", "to_do": "get it"}],
    }


def test_a_python_of_workers_that_cannot_be_used_is_wrong() -> None:
    done = run_doctor("spark", PYSPARK_PYTHON="/bin/false")
    assert done.returncode == 1
    assert (
        "✗ Python of the workers: /bin/false does not run: it ended with 1\n    unset PYSPARK_PYTHON"
        in done.stdout
    )
    assert "session: Spark" not in done.stdout
    assert done.stdout.endswith("wrong: Python of the workers\n")


def test_without_what_it_needs_no_session_is_tried(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('not for this machine')")
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.1'")
    places = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = run_doctor("spark", PYTHONPATH=os.pathsep.join(places))
    assert done.returncode == 1
    assert "✗ PySpark: PySpark 3.5.1 is installed" in done.stdout, done.stderr
    assert (
        '✗ pyarrow: cannot be imported: not for this machine\n    pip install "kohort[spark]"' in done.stdout
    )
    assert "✗ session: not tried" in done.stdout


@pytest.mark.jvm
def test_where_everything_is_right_a_session_reads_from_a_broker() -> None:
    done = run_doctor("spark", "--json", PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    found = {each["name"]: each for each in said["findings"]}
    assert said["right"]
    assert "10 of 10 records" in found["second read"]["text"]
    assert sys.executable in found["Python of the workers"]["text"]
