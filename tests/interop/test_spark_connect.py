"""The source and the sink through Spark Connect: a server with Kohort, a client that speaks gRPC to it."""

from __future__ import annotations

import re
import subprocess
import textwrap
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
    """A Spark Connect server of this environment, started as the page says, on loopback; yields its address."""
    port = fixed_port()
    given = {**environ_of(python), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(folder)}
    use_java(given)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    commands = [
        line.strip().removeprefix("$ ") for line in block("SparkConnectServer", "console").splitlines()
    ]
    commands[-1] = f"exec {commands[-1]}"  # so that the process to end is the server
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            ["bash", "-ec", "\n".join(commands)], env=given, cwd=folder, stdout=out, stderr=subprocess.STDOUT
        )
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


def block(word: str, language: str = "python") -> str:
    """The block of the page that has this word in it."""
    page = (ROOT / "docs" / "spark-versions.md").read_text("utf-8")
    blocks = [textwrap.dedent(each) for each in re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)]
    (found,) = [each for each in blocks if word in each]
    return found


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
            example = (
                block(".remote(").replace("sc://127.0.0.1:15002", remote).replace("127.0.0.1:9092", bootstrap)
            )
            shown = subprocess.run(
                [python, "-c", example], env=environ_of(python), capture_output=True, text=True, timeout=240
            )
            log = (tmp_path / "server.log").read_text(errors="replace")
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}\n{log[-3000:]}"
        assert shown.stdout == f"{2 * COUNT}\n", shown.stderr[-3000:]
        said = done.stdout.splitlines()
        has_lag = minor not in ("4.0", "4.1")
        assert said[:2] == [f"batch {2 * COUNT} {COUNT}", f"stream {2 * COUNT}"]
        assert said[2] == "lag [0, 0]" if has_lag else f"PySpark {PYSPARKS[minor]} does not report" in said[2]
        registered = "found before" if minor == "4.0" else "registered"
        assert said[3:] == [f"copy {2 * COUNT}", "refused True", f"{registered} {2 * COUNT}"]
        eventually(
            lambda: admin.describe_groups("etl")["etl"].state == "Empty", "the group is left in order", 60
        )
        if has_lag:
            assert {at.offset for at in admin.group_offsets("etl").values()} == {COUNT}
