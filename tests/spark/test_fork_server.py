"""Processes that are forked for Spark are those that it would have started; idle workers end without a word."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kohort.spark.worker_python import SWITCH
from tests.clients.process import eventually

SHOW = """
import json, os, sys
main = sys.modules["__main__"]
print(json.dumps({
    "arguments": sys.argv, "path": sys.path, "folder": os.getcwd(), "stdin": sys.stdin.read(), "name": __name__,
    "module": main.__spec__.name, "hash": hash("a text"), "variables": dict(os.environ), "flags": list(sys.flags),
    "is forked": "pyspark.daemon" in sys.modules, "collects": __import__("gc").isenabled(),
    "signals": [str(__import__("signal").getsignal(number)) for number in (1, 15, 17)],
}))
print("a word", file=sys.stderr)
sys.exit(3)
"""

WAIT = """
import os, signal, sys, time
def end(number, frame):
    print("told", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""

STARTER = """
import os, sys
from kohort.spark import worker_python
worker_python.use_python()
print(os.environ["PYSPARK_PYTHON"], *[server.pid for server in worker_python._servers], flush=True)
sys.stdin.read()
"""


class Starter:
    """A process that has called `use_python`, as one with a session has."""

    def __init__(self, folder: Path, **variables: str) -> None:
        (folder / "show_process.py").write_text(SHOW)
        (folder / "wait_for_signal.py").write_text(WAIT)
        places = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))
        }
        self.environ |= {"PYTHONPATH": os.pathsep.join(places), **variables}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environ,
        )
        assert self.process.stdout is not None
        self.python, *servers = self.process.stdout.readline().split()
        self.servers = [int(pid) for pid in servers]

    def show(self, **variables: str) -> dict[str, Any]:
        """What a process says of itself that Spark would start."""
        done = subprocess.run(
            [self.python, "-m", "show_process", "one", "two words"],
            env={**self.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", **variables},
            cwd=self.folder,
            input="some input",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stderr == "a word\n"
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)
        shutil.rmtree(Path(self.python).parent, ignore_errors=True)  # what was killed has not cleaned up


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    made = Starter(tmp_path_factory.mktemp("fork"))
    yield made
    made.close()


def test_a_forked_process_is_the_one_that_would_have_been_started(starter: Starter, tmp_path: Path) -> None:
    folder = tmp_path / "without"
    folder.mkdir()
    without = Starter(folder, **{SWITCH: "0"})
    try:
        assert not without.servers
        expected = without.show(PYTHONPATH=starter.environ["PYTHONPATH"])
    finally:
        without.close()
    found = starter.show()
    assert found.pop("is forked") is True
    assert expected.pop("is forked") is False
    for said in (found, expected):
        for name in (SWITCH, "_", "PWD", "OLDPWD", "SHLVL", "PYTEST_CURRENT_TEST"):
            said["variables"].pop(name, None)
        said["path"] = [place for place in said["path"] if place not in (str(folder), str(starter.folder))]
        said.pop("folder")
        said["arguments"] = said["arguments"][1:]
    assert found == expected


@pytest.mark.parametrize(
    "variables",
    [
        {"PYSPARK_EXECUTOR_MEMORY_MB": "1024"},
        {"PYTHONHASHSEED": "7"},
        {"OMP_NUM_THREADS": "4"},
        {"PYTHONOPTIMIZE": "2"},
        {"LD_LIBRARY_PATH": "/nowhere"},
        {"PYTHONPATH": "/nowhere"},
    ],
)
def test_a_process_that_would_be_another_is_started(starter: Starter, variables: dict[str, str]) -> None:
    if "PYTHONPATH" in variables:
        variables = {"PYTHONPATH": f"/nowhere:{starter.environ['PYTHONPATH']}"}
    found = starter.show(**variables)
    assert found["is forked"] is False
    assert found["variables"].items() >= variables.items()


def test_sigterm_reaches_the_forked_process_and_its_end_ends_the_client(starter: Starter) -> None:
    client = subprocess.Popen(
        [starter.python, "-m", "wait_for_signal"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**starter.environ, "PYTHONHASHSEED": "0"},
    )
    assert client.stdout is not None
    worker = psutil.Process(int(client.stdout.readline()))
    assert worker.ppid() == starter.servers[0] != client.pid
    client.send_signal(signal.SIGTERM)
    assert client.communicate(timeout=60)[0] == "told\n"
    assert client.returncode == 0
    eventually(lambda: not worker.is_running(), "the process ends", 60)


def test_the_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    made = Starter(tmp_path)
    (pid,) = made.servers
    server = psutil.Process(pid)
    made.process.kill()
    made.process.wait(60)
    eventually(lambda: not server.is_running(), "the server ends", 60)
    made.close()


def test_without_its_server_a_client_starts_what_spark_wanted(tmp_path: Path) -> None:
    made = Starter(tmp_path)
    try:
        os.kill(made.servers[0], signal.SIGKILL)
        assert made.show()["is forked"] is False
    finally:
        made.close()


# --- the daemon -----------------------------------------------------------------------------------------


def ends_of_idle_worker(daemon: str, folder: Path) -> str:
    """What stands on stderr when Spark closes the socket of a worker that has nothing to do."""
    variables = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder)}
    variables |= {"SPARK_REUSE_WORKER": "1", "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", daemon, "pyspark.sql.worker.lookup_data_sources"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **variables},
    ) as process:
        assert process.stdout is not None
        (length,) = struct.unpack("!i", process.stdout.read(4))
        address = process.stdout.read(length).decode()
        with socket.socket(socket.AF_UNIX) as worker:
            worker.connect(address)
            (pid,) = struct.unpack("!i", worker.recv(4, socket.MSG_WAITALL))
            running = psutil.Process(pid)
        eventually(lambda: not running.is_running(), "the worker ends", 60)
        return process.communicate(timeout=60)[1].decode()


def test_an_idle_worker_ends_without_a_traceback_as_it_would_with_sparks_daemon() -> None:
    with tempfile.TemporaryDirectory(
        prefix="k"
    ) as name:  # a folder of pytest's is too long for a socket's address
        folder = Path(name)
        assert "BrokenPipeError" in ends_of_idle_worker("pyspark.daemon", folder)
        assert ends_of_idle_worker("kohort.spark.executor.worker_daemon", folder) == ""


def test_sparks_daemon_is_replaced_for_planning_and_for_tasks(starter: Starter) -> None:
    text = Path(starter.python).read_text()
    assert (
        textwrap.dedent("""\
        if [ "$1 $2" = "-m pyspark.daemon" ]; then
          shift 2
          set -- -m kohort.spark.executor.worker_daemon "$@"
        fi
        """)
        in text
    )
