"""`kohort console`, and the console of `kohort serve`: real processes, from the first connection to the end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from kohort import Admin
from kohort.testing import Kafka
from tests.client.secured import login, secured_broker
from tests.clients.process import eventually

KOHORT = str(Path(sys.executable).parent / "kohort")
CONSOLE = re.compile(r"console: (http://\S+/) \(token (\S+)\)")


class Program:
    """A `kohort` process; ends with the test."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [KOHORT, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def console(self) -> tuple[str, str]:
        """Address and token of the console, from the next line."""
        line = self.line()
        found = CONSOLE.match(line)
        assert found, (line, self.process.poll())
        return found[1], found[2]

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=90)


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ask(address: str, path: str) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=60) as client:
        return client.get(f"{address}{path}")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_the_first_connection_starts_the_console_and_it_ends_with_a_killed_broker(tmp_path):
    with Program("serve", tmp_path, "--listen", "127.0.0.1:0") as broker:
        assert broker.line().startswith("Kohort is ready")
        address, _ = broker.console()
        assert children_of(broker.process.pid) == []
        assert ask(address, "api/cluster").json()["reachable"] is True
        (first,) = children_of(broker.process.pid)
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: not is_alive(first), "the console is dead")
        assert ask(address, "healthz").status_code == 200  # the next connection starts it again
        (second,) = children_of(broker.process.pid)
        assert second != first
        broker.process.kill()
        assert eventually(lambda: not is_alive(second), "the console has ended with its broker")


def test_a_stopped_broker_stops_its_console(tmp_path):
    with Program("serve", tmp_path, "--listen", "127.0.0.1:0") as broker:
        broker.line()
        address, _ = broker.console()
        assert ask(address, "healthz").status_code == 200
        broker.process.terminate()
        assert broker.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            ask(address, "healthz")


def test_a_broker_without_a_console_says_nothing_of_it(tmp_path):
    with Program("serve", tmp_path, "--listen", "127.0.0.1:0", "--no-console") as broker:
        broker.line()
        broker.process.terminate()
        out, _ = broker.process.communicate(timeout=60)
        assert "console" not in out


@pytest.mark.parametrize(
    "command", [("serve", "--listen", "127.0.0.1:0", "--console"), ("console", "--listen")]
)
def test_a_busy_port_or_a_wrong_address_is_refused(tmp_path, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for where, words in ((f"127.0.0.1:{port}", "in use"), ("localhost:http", "HOST:PORT")):
            name, *options = command
            directory = [tmp_path] if name == "serve" else []
            refused = subprocess.run(
                [KOHORT, name, *directory, *options, where],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert refused.returncode == 1, refused
            assert words in refused.stderr


def test_a_console_for_a_cluster_that_is_there_before_it():
    with Kafka() as kafka:
        kafka.create_topic("orders", 1)
        with Program("console", "--bootstrap", kafka.bootstrap_servers, "--listen", "127.0.0.1:0") as console:
            address, _ = console.console()
            assert ask(address, "api/topics").json()["total"] == 1
            assert ask(address, "api/pipelines").json()["available"] is True
            assert ask(address, "").headers["content-type"].startswith("text/html")
            console.process.terminate()
            console.process.wait(60)


def test_a_console_logs_in_by_the_settings_that_it_is_given(tmp_path):
    """The console of a broker whose listeners all ask for a login is a command of its own."""
    with secured_broker() as broker:
        settings = {name: str(value).replace("\\", "\\\\") for name, value in login(broker).items()}
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with Admin(login(broker)) as admin:
            admin.create_topic("orders", 1)
        with Program("console", "--config", file, "--listen", "127.0.0.1:0") as console:
            address, _ = console.console()
            assert ask(address, "api/topics").json()["total"] == 1
            console.process.terminate()
            console.process.wait(60)
    asks = (
        "--set",
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "--set",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
    )
    with Program("serve", tmp_path / "data", *asks, "--console", "0") as refused:
        _, said = refused.process.communicate(timeout=60)
        assert refused.process.returncode == 1
        assert "kohort console --config FILE" in said
