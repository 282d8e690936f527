"""The checks of `kohort doctor spark`, up to a session that reads through `format("kohort")` from a broker."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kohort.cli.doctor.findings import NOTE, RIGHT, WRONG, Finding, report
from kohort.cli.frame.output import json_option
from kohort.spark.advice import WorkerPython, ask, objections
from kohort.spark.java import NoJava, find_java
from kohort.spark.sessions import LOCAL, prepare
from kohort.spark.versions import UnsupportedPySpark, check_pyspark

RECORDS = 10
_EXTRA = 'pip install "kohort[spark]"'


@click.command(epilog="Example: kohort doctor spark --json")
@json_option
def command(as_json: bool) -> int:
    """Check Python, PySpark, Java, the workers' Python, and a session that reads from a broker of its own."""
    return report(check_spark(), as_json=as_json)


def check_spark() -> Iterator[Finding]:
    """All checks, one after the other; the session is tried only if what it needs is there."""
    needed = [_python(), _pyspark(), _package("pyarrow"), _package("psutil"), _java()]
    yield from needed[:3]
    yield _numba()
    yield from needed[3:]
    yield _unix_sockets()
    if any(finding.verdict == WRONG for finding in needed):
        yield Finding("session", WRONG, "not tried, because of what is wrong above")
        return
    without = dict(os.environ)
    worker = _worker_python()
    yield worker
    yield from _without_session(without)
    if worker.verdict != WRONG:
        yield from _session()


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", RIGHT, f"{version}, {sys.executable}")


def _pyspark() -> Finding:
    try:
        check_pyspark()
    except UnsupportedPySpark as unsupported:
        return Finding("PySpark", WRONG, str(unsupported))
    except ImportError:
        return Finding("PySpark", WRONG, "is not installed", _EXTRA)
    import pyspark

    home = os.environ.get("SPARK_HOME")
    where = str(Path(pyspark.__file__).parent) + (f"; SPARK_HOME is {home}" if home else "")
    return Finding("PySpark", RIGHT, f"{pyspark.__version__}, {where}")


def _package(name: str) -> Finding:
    try:
        found = importlib.import_module(name)
    except ImportError as missing:
        return Finding(name, WRONG, f"cannot be imported: {missing}", _EXTRA)
    return Finding(name, RIGHT, str(getattr(found, "__version__", "installed")))


def _numba() -> Finding:
    if importlib.util.find_spec("numba") is None:
        return Finding(
            "numba", NOTE, "is not installed; records are decoded without compiled kernels", _EXTRA
        )
    return _package("numba")


def _java() -> Finding:
    try:
        java = find_java(os.environ)
    except NoJava as missing:
        return Finding("Java", WRONG, str(missing))
    return Finding("Java", RIGHT, f"{java.version}, {java.home} (from {java.found_in})")


def _unix_sockets() -> Finding:
    if not hasattr(socket, "AF_UNIX"):
        return Finding("Unix sockets", NOTE, "this system has none; tasks start later over TCP")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(os.path.join(folder, "s"))
        except OSError as error:
            return Finding(
                "Unix sockets", NOTE, f"cannot be made in {folder}: {error}", "set TMPDIR to a shorter path"
            )
    return Finding("Unix sockets", RIGHT, "can be made")


def _worker_python() -> Finding:
    """The Python that a session of ours starts, asked in a process of its own."""
    prepare(LOCAL, {}, os.environ)
    command = os.environ["PYSPARK_PYTHON"]
    python = WorkerPython(command, "PYSPARK_PYTHON", shutil.which(command))
    name = "Python of the workers"
    if python.path is None:
        return Finding(
            name, WRONG, f"PYSPARK_PYTHON is {command}, which is not there", "unset PYSPARK_PYTHON"
        )
    said = ask(python.path, os.environ)
    if isinstance(said, str):
        return Finding(name, WRONG, f"{python.path} does not run: {said}", "unset PYSPARK_PYTHON")
    version = ".".join(map(str, said["version"]))
    if said["version"] != list(sys.version_info[:2]):
        return Finding(name, WRONG, f"{said['executable']} is Python {version}", "unset PYSPARK_PYTHON")
    if said["missing"]:
        lacks = " and ".join(said["missing"])
        return Finding(name, WRONG, f"{said['executable']} has no {lacks}", f"install it there: {_EXTRA}")
    return Finding(name, RIGHT, f"{version}, {said['executable']}, which has kohort and pyarrow")


def _without_session(environ: dict[str, str]) -> Iterator[Finding]:
    """What a session gets that is not made with `session()`, in the environment as it was."""
    lines = list(objections(environ))
    for line in lines:
        yield Finding("without kohort.spark.session()", NOTE, line)
    if not lines:
        yield Finding("without kohort.spark.session()", RIGHT, "Spark finds Java and this Python, too")


def _session() -> Iterator[Finding]:
    """A session, and a batch from a broker in this process."""
    import kohort.spark
    from kohort.broker.running import running
    from kohort.spark.pipelines.run import short_reason

    began_s = time.monotonic()
    try:
        spark = kohort.spark.session("kohort doctor", "local[1]", spark_ui_enabled=False)
    except Exception as error:
        yield Finding("session", WRONG, f"Spark does not start: {short_reason(str(error))}")
        return
    try:
        yield Finding("session", RIGHT, f"Spark {spark.version} started in {_seconds(began_s)}")
        with running() as broker:
            for name in ("first read", "second read"):
                began_s = time.monotonic()
                rows = _read(spark, broker.bootstrap_servers, name.replace(" ", "-"))
                verdict = RIGHT if rows == RECORDS else WRONG
                text = (
                    f'{rows} of {RECORDS} records of a topic through format("kohort") in {_seconds(began_s)}'
                )
                yield Finding(name, verdict, text)
    except Exception as error:
        yield Finding("read", WRONG, short_reason(str(error)))
    finally:
        spark.stop()


def _read(spark: Any, bootstrap_servers: str, topic: str) -> int:
    from kohort import Admin, Producer

    with Admin({"bootstrap.servers": bootstrap_servers}) as admin:
        admin.create_topic(topic, 2)
    with Producer({"bootstrap.servers": bootstrap_servers}) as producer:
        for number in range(RECORDS):
            producer.send(topic, value=b"%d" % number)
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", bootstrap_servers)
    return int(reader.option("subscribe", topic).load().count())


def _seconds(began_s: float) -> str:
    return f"{time.monotonic() - began_s:.1f} s"
