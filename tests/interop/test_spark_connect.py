"""The source and the sink through Spark Connect: a server with Kohort, a client that speaks gRPC to it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks import targets

from kohort import Admin
from kohort.spark.java import use_java
from tests.clients.process import eventually, fixed_port
from tests.interop.spark_environments import PYSPARKS, ROOT, environ_of, python_with
from tests.spark.reading import fill

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
COUNT = 500


@contextmanager
def connect_server(python: Path, folder: Path) -> Iterator[str]:
    """A Spark Connect server of this environment, on loopback; yields its address."""
    port = fixed_port()
    home = python.parent.parent / "lib" / f"python{_version(python)}" / "site-packages" / "pyspark"
    given = {**environ_of(python), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    given["PYSPARK_PYTHON"] = given["PYSPARK_DRIVER_PYTHON"] = str(python)
    use_java(given)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    # What sbin/start-connect-server.sh runs, which is not in the package on PyPI.
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=given, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    try:

        def is_up() -> bool:
            text = log.read_text(errors="replace")
            assert server.poll() is None, text[-4000:]
            return "Spark Connect server started" in text

        eventually(is_up, "the server is up", 180)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(60)


def _version(python: Path) -> str:
    return subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2], end='')"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("minor", sorted(PYSPARKS))
def test_batch_stream_and_sink(
    minor: str, start_broker: Callable[..., targets.Target], tmp_path: Path
) -> None:
    python = python_with(minor)
    bootstrap = start_broker("group.initial.rebalance.delay.ms=0").address
    with Admin(bootstrap_servers=bootstrap) as admin:
        for name in ("orders", "copy"):
            admin.create_topic(name, 2)
        for partition in (0, 1):
            fill(bootstrap, "orders", range(COUNT), partition)
        with connect_server(python, tmp_path) as remote:
            job = [
                python,
                "-m",
                "tests.interop.connect_job",
                remote,
                bootstrap,
                "orders",
                "copy",
                "etl",
                str(tmp_path),
            ]
            done = subprocess.run(
                job, env=environ_of(python), cwd=ROOT, capture_output=True, text=True, timeout=480
            )
            log = (tmp_path / "server.log").read_text(errors="replace")
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}\n{log[-3000:]}"
        said = done.stdout.splitlines()
        has_lag = minor not in ("4.0", "4.1")
        assert said[:2] == [f"batch {2 * COUNT} {COUNT}", f"stream {2 * COUNT}"]
        assert said[2] == "lag [0, 0]" if has_lag else f"PySpark {PYSPARKS[minor]} does not report" in said[2]
        assert said[3:] == [f"copy {2 * COUNT}", "refused True"]
        eventually(
            lambda: admin.describe_groups("etl")["etl"].state == "Empty", "the group is left in order", 60
        )
        if has_lag:
            assert {at.offset for at in admin.group_offsets("etl").values()} == {COUNT}
