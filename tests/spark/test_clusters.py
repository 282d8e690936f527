"""The source on clusters of Spark's own, whose executors are processes of their own: all on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin
from kohort.spark.java import use_java
from kohort.spark.worker_python import as_command
from tests.clients.process import BrokerProcess, eventually, fixed_port
from tests.spark.reading import fill

COUNT = 3000


def environment() -> dict[str, str]:
    """What a Spark that was installed by pip needs to start executors."""
    import pyspark

    home = str(Path(pyspark.__file__).parent)
    given = {**os.environ, "SPARK_HOME": home, "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
    given["PYSPARK_PYTHON"] = as_command(sys.executable, given)
    given["PYTHONPATH"] = str(Path(__file__).parents[2])
    use_java(given)
    return given


def run_job(master: str, broker: BrokerProcess, topic: str, copy: str, group: str, folder: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "tests.spark.cluster_job",
        master,
        broker.bootstrap_servers,
        topic,
        copy,
        group,
    ]
    done = subprocess.run(
        [*command, str(folder)], env=environment(), capture_output=True, text=True, timeout=450, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def topic(new_topic: Any, broker: BrokerProcess) -> str:
    name: str = new_topic(partitions=2)
    for partition in (0, 1):
        fill(broker.bootstrap_servers, name, range(COUNT // 2), partition)
    return name


def check(said: str, admin: Admin, group: str, folder: Path) -> None:
    assert f"batch {COUNT} 8" in said
    assert (folder / "tried-again").exists(), "no task was tried again"
    assert f"copy {COUNT}" in said, "a task that was tried again left a gap"
    assert f"stream {COUNT}" in said
    assert {at.offset for at in admin.group_offsets(group).values()} == {COUNT // 2}
    eventually(lambda: admin.describe_groups(group)[group].state == "Empty", "the group is left in order", 60)


@pytest.mark.jvm
def test_local_cluster(
    broker: BrokerProcess, admin: Admin, topic: str, new_topic: Any, new_name: Any, tmp_path: Path
) -> None:
    group = new_name("group")
    said = run_job("local-cluster[2,1,1024]", broker, topic, new_topic(partitions=2), group, tmp_path)
    check(said, admin, group, tmp_path)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and two workers, as daemons of Spark run."""
    given = {**environment(), "SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_DAEMON_MEMORY": "256m"}
    spark_class = str(Path(given["SPARK_HOME"]) / "bin" / "spark-class")
    port = fixed_port()
    address = f"spark://127.0.0.1:{port}"
    loopback = ["--host", "127.0.0.1"]
    master = ["org.apache.spark.deploy.master.Master", *loopback, "--port", str(port), "--webui-port", "0"]
    worker = [
        "org.apache.spark.deploy.worker.Worker",
        *loopback,
        "--cores",
        "1",
        "--memory",
        "1g",
        "--webui-port",
        "0",
    ]
    logs = [tmp_path / f"{name}.log" for name in ("master", "worker-1", "worker-2")]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command, log in zip((master, [*worker, address], [*worker, address]), logs, strict=True):
            with log.open("ab") as out:
                daemons.append(
                    subprocess.Popen([spark_class, *command], env=given, stdout=out, stderr=subprocess.STDOUT)
                )

        def are_registered() -> bool:
            for daemon, log in zip(daemons, logs, strict=True):
                assert daemon.poll() is None, log.read_text(errors="replace")[-4000:]
            registered = "Successfully registered with master"
            return all(registered in log.read_text(errors="replace") for log in logs[1:])

        eventually(are_registered, "both workers are there", 180)
        yield address
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(60)


@pytest.mark.interop  # the same job as above, and three JVMs more
@pytest.mark.jvm
def test_a_standalone_master_with_two_workers(
    broker: BrokerProcess,
    admin: Admin,
    standalone: str,
    topic: str,
    new_topic: Any,
    new_name: Any,
    tmp_path: Path,
) -> None:
    group = new_name("group")
    said = run_job(standalone, broker, topic, new_topic(partitions=2), group, tmp_path)
    check(said, admin, group, tmp_path)
