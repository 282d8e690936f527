"""docs/spark-clusters.md: `spark-submit` with a packed environment, whose executors have no other Kohort."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import targets

from kohort import Admin
from kohort.spark.java import use_java
from tests.interop.spark_environments import ROOT, environ_of, python_with
from tests.spark.reading import fill

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]
COUNT = 400
PAGE = (ROOT / "docs" / "spark-clusters.md").read_text("utf-8")
HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_as_it_stands(start_broker: Callable[..., targets.Target], tmp_path: Path) -> None:
    """Its commands and its job, but for numba, which is large and not necessary, and for YARN."""
    spark = python_with("4.2").parent
    bootstrap = start_broker("group.initial.rebalance.delay.ms=0").address
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("orders", 2)
    for partition in (0, 1):
        fill(bootstrap, "orders", range(COUNT), partition)

    (packing,) = [each for each in blocks("console") if "venv-pack" in each]
    (job,) = [each for each in blocks("python") if "availableNow" in each]
    (tmp_path / "job.py").write_text(job.replace("127.0.0.1:9092", bootstrap))
    (make_wheel,) = [each.strip().removeprefix("$ ") for each in blocks("console") if "pip wheel" in each]
    words = shlex.split(make_wheel)[1:-1]
    run(
        [sys.executable, *words[:-1], str(tmp_path / "dist"), "--no-build-isolation", str(ROOT)],
        tmp_path,
        {},
        180,
    )
    (wheel,) = (tmp_path / "dist").glob("kohort-*.whl")

    commands = [line.removeprefix("$ ") for line in packing.splitlines()]
    assert [command.split()[0] for command in commands] == [
        "python", "env/bin/pip", "env/bin/venv-pack", "export", "spark-submit",
    ]  # fmt: skip
    # `uv` instead of pip: it has most of this in its cache.
    make, install, pack, export, submit = commands
    wanted = [word for word in install.split()[2:] if word != "numba"]
    wanted[wanted.index("kohort")] = str(wheel)
    install = shlex.join(
        [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", "env", *wanted, "setuptools<81"]
    )
    given = {**environ_of(spark / "python"), "PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1"}
    given |= {"SPARK_HOME": home_of(spark), "SPARK_SCALA_VERSION": "2.13"}
    use_java(given)
    run(["bash", "-ec", f"{make}\n{install}"], tmp_path, given, 420)
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    noted = tmp_path / "starts"  # each interpreter of this environment, or of its copies, notes where it is
    (packages / "starts.pth").write_text(
        f"import sys; open({str(noted)!r}, 'a').write(sys.prefix + chr(10))\n"
    )
    run(["bash", "-ec", pack], tmp_path, given, 420)
    more = [word for name, value in HERE.items() for word in ("--conf", f"{name}={value}")]
    master = "--master local-cluster[2,1,1024] " + shlex.join(more)
    assert "--master yarn" in submit
    # The driver has PySpark from its Spark; the environment that is packed does not.
    told = "\n".join([export, submit.replace("--master yarn", master)])
    said = run(["bash", "-ec", told], tmp_path, given, 420)
    assert f"records: {2 * COUNT}" in said
    assert f"in files: {2 * COUNT}" in said
    prefixes = set(noted.read_text().splitlines())
    assert [prefix for prefix in prefixes if prefix.endswith("/environment")], prefixes


def home_of(spark: Path) -> str:
    found = subprocess.run(
        [spark / "python", "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return found.stdout.strip()


def run(command: list[str], folder: Path, given: dict[str, str], timeout_s: float) -> str:
    done = subprocess.run(
        command, cwd=folder, env=given or None, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout
