"""docs/scheduling.md: each recipe runs a pipeline once, with the scheduler that it is for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
import pytest
from benchmarks import outside, targets

from kohort import Producer
from kohort.spark.pipelines.state import PipelineState
from tests.clients.process import KOHORT
from tests.test_readme import blocks

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scheduling.md").read_text("utf-8")
DAGSTER, AIRFLOW = "dagster==1.13.28", "apache-airflow==3.3.2"
ROWS = 20


def environment(requirement: str) -> Path:
    """The programs of an environment with this package, made once and kept in the cache."""
    folder = outside.cache() / f"venv-{requirement}"
    if not (folder / "ready").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
        command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=700, check=False)
        if done.returncode:
            raise outside.Missing(f"pip could not get {requirement}: {done.stderr[-400:]}")
        (folder / "ready").touch()
    return folder / "bin"


class Place:
    """A folder with a pipeline, its state and a topic with records; recipes are told of them instead of /srv."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.out = folder, folder / "out"
        self.state = PipelineState(folder / "state", "orders")
        (folder / "orders.sql").write_text(
            f"-- topics: orders\n-- bootstrap: {bootstrap}\n-- option startingOffsets: earliest\n"
            f"-- sink: parquet {self.out}\nSELECT CAST(value AS STRING) AS text FROM stream"
        )
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(ROWS):
                producer.send("orders", value=str(number))

    def here(self, recipe: str) -> str:
        return (
            recipe.replace("/opt/kohort/bin/kohort", str(KOHORT))
            .replace("/srv/pipelines/orders.sql", str(self.folder / "orders.sql"))
            .replace("/srv/kohort/state", str(self.folder / "state"))
            .replace("/srv/kohort", str(self.folder))
        )

    def rows(self) -> int:
        return (
            int(pyarrow.dataset.dataset(str(self.out), format="parquet").count_rows())
            if self.out.is_dir()
            else 0
        )


@pytest.fixture
def place(tmp_path: Path, start_broker: Callable[..., targets.Target]) -> Place:
    return Place(tmp_path, start_broker().address)


def run(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=folder,
        env={**os.environ, **environ},
    )


def test_the_line_of_cron(place: Place) -> None:
    (line,) = [each for each in blocks(PAGE, "cron")[0].splitlines() if each.startswith("*/15")]
    command = ["sh", "-c", place.here(line.split(maxsplit=5)[5])]
    done = run(command, place.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert place.rows() == ROWS
    place.state.acquire()
    try:
        done = run(command, place.folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")  # it runs already: no mail
        assert "orders runs already" in (place.folder / "orders.log").read_text()
    finally:
        place.state.release()
    (place.folder / "orders.sql").write_text("SELECT 1")
    assert "the query reads nothing" in run(command, place.folder).stdout  # this is what cron mails


def test_the_units_of_systemd(place: Place) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        raise outside.Missing("systemd-analyze is missing; install it (Debian: apt-get install systemd)")
    units = blocks(PAGE, "ini")
    assert len(units) == 3
    for number, unit in enumerate(units):
        name = Path(unit.splitlines()[0].removeprefix("# ")).name
        folder = place.folder / str(number)
        folder.mkdir()
        (folder / name).write_text(place.here(unit).replace("User=kohort", "User=root"))
        if name.endswith(".timer"):
            shutil.copy(place.folder / "0" / "kohort-orders.service", folder)
        done = run([verify, "verify", str(folder / name)], folder)
        assert (done.returncode, done.stderr) == (0, "")
    (line,) = [each for each in units[0].splitlines() if each.startswith("ExecStart=")]
    done = run(place.here(line.removeprefix("ExecStart=")).split(), place.folder)
    assert done.returncode == 0, done.stderr
    assert place.rows() == ROWS


def test_the_asset_of_dagster(place: Place) -> None:
    programs = environment(DAGSTER)
    (recipe,) = [each for each in blocks(PAGE, "python") if "dagster" in each]
    (place.folder / "definitions.py").write_text(place.here(recipe))
    home = place.folder / "dagster"
    home.mkdir()
    command = [
        str(programs / "dagster"),
        "asset",
        "materialize",
        "--select",
        "orders",
        "-f",
        "definitions.py",
    ]
    done = run(command, place.folder, DAGSTER_HOME=str(home))
    assert done.returncode == 0, done.stderr[-3000:]
    assert place.rows() == ROWS
    look = (
        "import dagster as dg, json; from definitions import defs, orders\n"
        "instance = dg.DagsterInstance.get()\n"
        "found = instance.get_latest_materialization_event(dg.AssetKey('orders')).asset_materialization.metadata\n"
        "print(json.dumps({name: value.value for name, value in found.items()}), defs.schedules[0].name)"
    )
    shown = run([str(programs / "python"), "-c", look], place.folder, DAGSTER_HOME=str(home))
    assert shown.stdout.split("}")[1].strip() == "orders_schedule", shown.stderr[-2000:]
    assert json.loads(shown.stdout.split("}")[0] + "}") == {"rows": ROWS, "lag": 0}


def test_the_dag_of_airflow(place: Place) -> None:
    programs = environment(AIRFLOW)
    (recipe,) = [each for each in blocks(PAGE, "python") if "airflow" in each]
    home = place.folder / "airflow"
    (home / "dags").mkdir(parents=True)
    (home / "dags" / "orders.py").write_text(place.here(recipe))
    environ = {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "NO_COLOR": "1"}
    done = run([str(programs / "airflow"), "db", "migrate"], place.folder, **environ)
    assert done.returncode == 0, done.stderr[-2000:]
    command = [str(programs / "airflow"), "dags", "test", "orders"]
    done = run(command, place.folder, **environ)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"DagRun Finished.*state=success", done.stdout + done.stderr)
    assert place.rows() == ROWS
    place.state.acquire()
    try:
        done = run(command, place.folder, **environ)
    finally:
        place.state.release()
    assert "returned exit code 75. Skipping" in done.stdout + done.stderr
