"""What reading leaves behind in the processes that Spark uses again for other tasks."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kohort.spark.executor.worker_process import is_kept_by_daemon, keep_what_is_loaded
from kohort.spark.worker_python import use_python

IN_A_CHILD_OF_THE_DAEMON = """
import gc, sys
import pyspark.daemon
from kohort.spark.source import KohortDataSource

KohortDataSource({})
kept = gc.get_freeze_count()
assert kept > 10_000, f"objects of modules: {kept}"
assert gc.collect() >= 0
KohortDataSource({})
assert gc.get_freeze_count() == kept, "nothing was loaded since"
import colorsys
KohortDataSource({})
assert gc.get_freeze_count() > kept
"""


def test_what_a_worker_of_spark_has_loaded_is_not_looked_through_after_every_task() -> None:
    subprocess.run([sys.executable, "-c", IN_A_CHILD_OF_THE_DAEMON], check=True, timeout=120)


def test_other_processes_are_left_alone() -> None:
    assert not is_kept_by_daemon()
    before = gc.get_freeze_count()  # Python 3.12 begins with some
    keep_what_is_loaded()
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize("name", ["folder", "a folder"])
def test_workers_import_what_is_installed_and_not_sparks_archives(tmp_path: Path, name: str) -> None:
    given: dict[str, str] = {}
    folder = tmp_path / name
    folder.mkdir()
    use_python(given, folder)
    # As Spark asks for it: in a line for a shell, without quotes.
    found = subprocess.run(
        ["sh", "-c", f"command -v {given['PYSPARK_PYTHON']}"],
        env=given,
        capture_output=True,
        text=True,
        check=True,
    )
    python = found.stdout.strip()
    assert Path(python).parent == folder
    assert (
        given["PYSPARK_DRIVER_PYTHON"] == given["PYSPARK_PYTHON"]
    )  # the first is that of a stream's own process
    home = Path(pyspark.__file__).parent
    archives = [home / "python" / "lib" / "pyspark.zip", *home.glob("python/lib/py4j-*-src.zip")]
    archives += home.glob("jars/spark-core_*.jar")
    assert len(archives) == 3
    places = [*archives, tmp_path / "a * b"]
    said = subprocess.run(
        [python, "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "c d"],
        env={"PYTHONPATH": ":".join(map(str, places))}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert said.stdout == f"{tmp_path / 'a * b'} ['c d']\n"
    use_python(given := {"PYSPARK_PYTHON": "mine"})
    assert given["PYSPARK_PYTHON"] == "mine"
