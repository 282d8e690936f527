"""The tests of the source, the sink and pipelines once more, on each PySpark that is supported but not pinned."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.spark_environments import PYSPARKS, ROOT, environ_of, python_with

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1500)]

PARTS = (
    "tests/spark/test_batch.py",
    "tests/spark/test_streams.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_exactly_once.py",
    "tests/spark/test_shared.py",
    "tests/spark/test_pipeline.py",
    "tests/spark/test_clusters.py",
    "tests/spark/test_stream_driver.py",
    "tests/spark/test_remembering_stream.py",
)
BEFORE_42 = "tests/spark/before_42.py"
"""What is different there, with a Spark of these versions."""
CANNOT_BEFORE_42 = {
    "tests/spark/test_streams.py::test_available_now_with_a_limit_and_again": "one micro-batch only",
    "tests/spark/test_streams.py::test_a_running_query_is_a_member_whose_lag_shows": "no lag in the progress",
}
HANGS_S = 900
_ENDED = re.compile(r"^(\S+::\S.*) (PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b")


@pytest.mark.parametrize("minor", sorted(set(PYSPARKS) - {"4.2"}))
def test_on_pyspark(minor: str, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nPySpark {PYSPARKS[minor]}: environment …", file=sys.__stdout__, flush=True)
        python = python_with(minor)
        parts = list(PARTS)
        if minor in ("4.0", "4.1"):
            parts += [BEFORE_42, *(f"--deselect={test}" for test in CANNOT_BEFORE_42)]
        ended, said = run_tests(python, parts, f"PySpark {PYSPARKS[minor]}")
    assert set(ended) == {"PASSED"}, said[-6000:]


def run_tests(python: Path, arguments: list[str], name: str) -> tuple[Counter[str], str]:
    """Runs pytest with another Python, shows how far it is, and returns how its tests ended, and all that it said."""
    command = [
        str(python),
        "-m",
        "pytest",
        "-v",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "-m",
        "not chaos",
        *arguments,
    ]
    ended: Counter[str] = Counter()
    began_s = shown_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kohort-") as folder:
        process = subprocess.Popen(
            [*command, f"--basetemp={folder}/t"], env=environ_of(python), cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        assert process.stdout is not None
        hangs = threading.Timer(HANGS_S, process.kill)
        hangs.start()
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                found = _ENDED.match(line)
                if found is not None:
                    ended[found[2]] += 1
                    if time.monotonic() - shown_s > 15 or found[2] != "PASSED":
                        shown_s = time.monotonic()
                        print(f"{name}: {_counts(ended)}; {found[1]}", file=sys.__stdout__, flush=True)
            code = process.wait(60)
        finally:
            hangs.cancel()
            process.kill()
            process.wait(60)
    print(f"{name}: {_counts(ended)} in {time.monotonic() - began_s:.0f} s", file=sys.__stdout__, flush=True)
    assert code == 0 or ended["FAILED"] or ended["ERROR"], "".join(lines)[-6000:]
    return ended, "".join(lines)


def _counts(ended: Counter[str]) -> str:
    return ", ".join(f"{count} {how.lower()}" for how, count in sorted(ended.items()))


def test_pyspark_3_5_gets_a_message_with_its_version(tmp_path: Path) -> None:
    """The real one, not a stand-in: `import pyspark.sql.datasource` fails there."""
    from tests.interop.spark_environments import pyspark_alone

    (tmp_path / "orders.sql").write_text("SELECT 1")
    path = pyspark_alone("3.5.9")
    programs = {
        "from kohort.spark import KohortDataSource": "UnsupportedPySpark: PySpark 3.5.9 is installed",
        "import pyspark_kohort": "UnsupportedPySpark: PySpark 3.5.9 is installed",
    }
    environment = {**environ_of(Path(sys.executable)), "PYTHONPATH": f"{path}:{ROOT / 'src'}"}
    for program, words in programs.items():
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 1
        assert words in ran.stderr.splitlines()[-1]
    command = [sys.executable, "-m", "kohort.cli.main", "pipeline", "run", str(tmp_path / "orders.sql")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert ran.stderr.startswith("kohort: PySpark 3.5.9 is installed")
    assert "Traceback" not in ran.stderr
