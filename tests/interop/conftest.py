"""Brokers and programs for the interop tests. What is missing on this machine is an error that says so.

KOHORT_INTEROP_TARGET=kafka runs the same tests against an Apache Kafka, to tell a wrong test from a wrong broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the folder `benchmarks` is no installed package

from benchmarks import outside, targets  # noqa: E402

from tests.interop.apache_kafka import ApacheKafka, start  # noqa: E402
from tests.interop.postgres import Postgres, start_postgres  # noqa: E402

HERE = Path(__file__).parent
StartBroker = Callable[..., targets.Target]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """Starts a broker process with settings, in a new directory or a given one; gone at the session's end."""
    started: list[targets.Target] = []

    def start_one(*settings: str, directory: Path | None = None) -> targets.Target:
        kind = os.environ.get("KOHORT_INTEROP_TARGET", "kohort")
        make = targets.apache_kafka if kind == "kafka" else targets.kohort
        started.append(make(directory or tmp_path_factory.mktemp("broker") / "data", *settings))
        return started[-1]

    yield start_one
    for target in started:
        target.kill()


@pytest.fixture(scope="session")
def broker(start_broker: StartBroker) -> targets.Target:
    return start_broker()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """An Apache Kafka, whatever the target is: for what our client does with one."""
    kafka = start(tmp_path_factory.mktemp("kafka"))
    yield kafka
    kafka.target.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = start_postgres()
    yield server
    server.close()


def run(
    command: list[str],
    *,
    stdin: str | bytes = "",
    timeout_s: float = 60,
    cwd: Path | None = None,
    silent: bool = False,
) -> str:
    """Standard output of a process that ended well in time; else the test fails with all that it said.

    `silent`: it must not write to standard error either.
    """
    raw = stdin.encode() if isinstance(stdin, str) else stdin
    shown = " ".join(command[:1] + command[-8:])
    try:
        done = subprocess.run(
            command, input=raw, capture_output=True, timeout=timeout_s, cwd=cwd, check=False
        )
    except subprocess.TimeoutExpired as late:
        said = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
        pytest.fail(f"{shown}: not done after {timeout_s:.0f} s; it said:\n{said[-3000:]}", pytrace=False)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if done.returncode or (silent and err):
        pytest.fail(f"{shown}: exit code {done.returncode}\n{out[-3000:]}\n{err[-3000:]}", pytrace=False)
    return out


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our Java programs, compiled against Kafka's jars."""
    out = tmp_path_factory.mktemp("classes")
    sources = [str(path) for path in sorted((HERE / "java").glob("*.java"))]
    run([outside.program("javac"), "-nowarn", "-cp", f"{outside.kafka_jars()}/*", "-d", str(out), *sources])
    return out


@pytest.fixture(scope="session")
def java(classes: Path) -> Run:
    """Runs a class of ours or of Kafka's."""

    def call(
        main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 60, silent: bool = False
    ) -> str:
        options = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        command = outside.java(main_class, *arguments, options=options, extra=classes)
        return run(command, stdin=stdin, timeout_s=timeout_s, silent=silent)

    return call


@pytest.fixture(scope="session")
def kafkajs() -> Run:
    """Runs node/client.js with kafkajs from npm."""
    folder = outside.node_modules({"kafkajs": "2.2.4", "kafkajs-snappy": "1.1.0"})

    def call(*arguments: str, timeout_s: float = 60) -> str:
        shutil.copy(HERE / "node" / "client.js", folder)  # require() looks beside the script
        return run([outside.program("node"), "client.js", *arguments], cwd=folder, timeout_s=timeout_s)

    return call
