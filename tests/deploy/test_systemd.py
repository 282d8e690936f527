"""`kohort serve` under a service manager: what it says to NOTIFY_SOCKET, and the unit that is shipped."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_serve import KOHORT, READY

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "kohort.service"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose name is short enough for a socket, whatever TMPDIR is."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="k") as name:
        yield Path(name)


def service_manager(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.settimeout(90)
    sock.bind("\0" + address[1:] if address.startswith("@") else address)
    return sock


def said(manager: socket.socket) -> dict[str, str]:
    lines = manager.recv(4096).decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def started(data: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [KOHORT, "serve", str(data), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def ready_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    found = READY.match(process.stdout.readline())
    assert found
    return found[1]


def test_it_says_that_it_is_ready_alive_and_about_to_stop(tmp_path: Path, short_path: Path) -> None:
    address = str(short_path / "notify")
    with service_manager(address) as manager:
        process = started(tmp_path / "data", NOTIFY_SOCKET=address, WATCHDOG_USEC="200000")
        try:
            bootstrap = ready_line(process)
            assert said(manager) == {"READY": "1", "STATUS": f"serves {bootstrap}"}
            assert said(manager) == {"WATCHDOG": "1"}
            assert said(manager) == {"WATCHDOG": "1"}
            process.send_signal(signal.SIGTERM)
            while (last := said(manager)) == {"WATCHDOG": "1"}:
                pass
            assert last == {"STOPPING": "1", "STATUS": "asked to stop"}
            assert process.wait(90) == 0
        finally:
            process.kill()
            process.communicate(timeout=90)


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_a_socket_may_be_abstract_and_the_watchdog_may_be_anothers(tmp_path: Path) -> None:
    address = f"@kohort-test-{os.getpid()}"
    with service_manager(address) as manager:
        process = started(tmp_path, NOTIFY_SOCKET=address, WATCHDOG_USEC="1000", WATCHDOG_PID="1")
        try:
            assert said(manager)["READY"] == "1"
            process.send_signal(signal.SIGTERM)
            assert "STOPPING" in said(manager)  # no watchdog came between
            assert process.wait(90) == 0
        finally:
            process.kill()
            process.communicate(timeout=90)


def test_a_manager_that_is_gone_is_a_warning(tmp_path: Path, short_path: Path) -> None:
    process = started(tmp_path, NOTIFY_SOCKET=str(short_path / "gone"))
    try:
        ready_line(process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "systemd could not be told" in errors


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("this machine has no systemd-analyze")
    unit = tmp_path / "kohort.service"
    unit.write_text(UNIT.read_text("utf-8").replace("/opt/kohort/bin/kohort", "/bin/true"), "utf-8")
    verified = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_command_of_the_unit_is_one_that_kohort_knows(tmp_path: Path) -> None:
    (command,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text("utf-8"), re.M)
    settings = tmp_path / "server.properties"
    settings.write_text("listeners=PLAINTEXT://127.0.0.1:0\n", "utf-8")
    words = {
        "/opt/kohort/bin/kohort": KOHORT,
        "/var/lib/kohort": str(tmp_path / "data"),
        "/etc/kohort/server.properties": str(settings),
        "9464": "0",
    }
    process = subprocess.Popen(
        [words.get(word, word) for word in shlex.split(command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ready_line(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    finally:
        process.kill()
        process.communicate(timeout=90)
