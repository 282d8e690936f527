"""A PySpark that the source is not made for is named with its version; the extra asks for those that are tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from kohort.spark.versions import NEWEST, OLDEST, caution, objection
from tests.interop.spark_environments import AS_HERE

ROOT = Path(__file__).parents[2]

DATA_SOURCE = """
class DataSource:
    def __init__(self, options):
        self.options = options
"""


def run_with(
    tmp_path: Path, version: str, *arguments: str, has_sources: bool
) -> subprocess.CompletedProcess[str]:
    """A program, with a PySpark of this version in the place of the real one."""
    fake = tmp_path / "pyspark"
    (fake / "sql").mkdir(parents=True)
    (fake / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (fake / "sql" / "__init__.py").write_text("")
    if has_sources:
        (fake / "sql" / "datasource.py").write_text(DATA_SOURCE)
    paths = [str(tmp_path), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=tmp_path,
    )


@pytest.mark.parametrize("version", ["3.5.1", "3.4.0", "5.0.0", "unknown"])
@pytest.mark.parametrize("statement", ["from kohort.spark import KohortDataSource", "import pyspark_kohort"])
def test_another_pyspark_is_named(tmp_path: Path, version: str, statement: str) -> None:
    ran = run_with(tmp_path, version, "-c", statement, has_sources=False)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("kohort.spark.versions.UnsupportedPySpark: ")
    assert f"PySpark {version} is installed" in last
    assert "tested with PySpark 4.0 to 4.3" in last
    assert 'pip install "kohort[spark]"' in last


def test_other_sources_of_that_pyspark_go_on_and_ours_says_why_not(tmp_path: Path) -> None:
    program = """
from pyspark_kohort import DefaultSource
from pyspark.sql.datasource import DataSource
assert issubclass(DefaultSource, DataSource) and DefaultSource.name() == "kohort"
try:
    DefaultSource({})
except ImportError as error:
    print(error)
"""
    ran = run_with(tmp_path, "5.0.0", "-c", program, has_sources=True)
    assert ran.returncode == 0, ran.stderr
    assert "PySpark 5.0.0 is installed" in ran.stdout


def test_a_pipeline_says_so_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "orders.sql").write_text("SELECT 1")
    ran = run_with(
        tmp_path, "3.5.1", "-m", "kohort.cli.main", "pipeline", "run", "orders.sql", has_sources=False
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("kohort: PySpark 3.5.1 is installed")
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.7", "4.3.0", "4.2.0.dev1", pyspark.__version__])
def test_the_tested_ones_will_do(version: str) -> None:
    assert objection(version) is None
    assert caution(version) is None


@pytest.mark.parametrize("version", ["4.4.0", "4.10.1"])
def test_a_later_one_of_the_same_major_is_used_and_named(version: str) -> None:
    assert objection(version) is None
    assert (
        caution(version)
        == f"PySpark {version} is newer than what Kohort was tested with (4.0 to 4.3); it should work"
    )


def test_the_extra_asks_for_what_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (asked,) = [each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark")]
    (major, oldest), (_, newest) = OLDEST, NEWEST
    assert asked == f"pyspark>={major}.{oldest},<{major}.{newest + 1}"
    locked = re.search(
        r"^pyspark==(\S+)", (ROOT / "requirements" / "dev.lock").read_text("utf-8"), re.MULTILINE
    )
    assert locked is not None
    assert OLDEST <= tuple(map(int, locked[1].split(".")[:2])) <= NEWEST


def test_the_page_has_a_column_for_each_version_that_is_supported() -> None:
    page = (ROOT / "docs" / "spark-versions.md").read_text("utf-8")
    header, _, releases, *_ = [line for line in page.splitlines() if line.startswith("|")]
    minors = [f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    assert [cell.strip() for cell in header.strip("|").split("|")[1:]] == minors
    tested = [cell.strip() for cell in releases.strip("|").split("|")[1:]]
    assert all(release.startswith(f"{minor}.") for release, minor in zip(tested, minors, strict=True))
    wanted = (ROOT / "tests" / "interop" / "spark_environments.py").read_text("utf-8")
    assert all(re.findall(r"\d+\.\d+\.\d+", cell)[-1] in wanted for cell in tested)


def test_the_environments_of_other_pysparks_have_all_that_kohort_needs() -> None:
    """`make interop` makes them without asking for what Kohort depends on: one package changes at a time."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    names = {Requirement(each).name for each in needed}
    assert names - set(AS_HERE) == {"pyspark"}
