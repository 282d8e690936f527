"""Brokers as real processes: Apache Kafka and Kohort behind one handle, with their CPU and memory."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import outside

_TICKS = os.sysconf("SC_CLK_TCK")
_READY = re.compile(rb"127\.0\.0\.1:([1-9][0-9]*)")


class DidNotStart(Exception):
    """A broker ended or stayed silent; the text has its last words."""


@dataclass(slots=True)
class Target:
    """A running broker: where it listens, and the process that it is."""

    name: str
    address: str
    process: subprocess.Popen[bytes]
    data: Path  # the directory that holds the partitions
    log: Path
    started: float  # time.monotonic() just before the process was started

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_s(self) -> float:
        return sum(cpu_of(pid) for pid in family(self.pid))

    def rss_mb(self) -> float:
        return sum(rss_of(pid) for pid in family(self.pid))

    def kill(self) -> None:
        """SIGKILL, as a crash does it."""
        self.process.kill()
        self.process.wait(20)

    def stop(self, timeout_s: float = 30) -> None:
        """SIGTERM, as an operator does it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])


def family(pid: int) -> list[int]:
    """A process and its children, theirs too."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
    return found


def cpu_of(pid: int) -> float:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) / _TICKS


def rss_of(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def free_port() -> int:
    """A free port below the ephemeral ones.

    A client that connects again and again to an ephemeral port where nobody listens may be given that very port and
    talk to itself: a broker that was killed could not start there again.
    """
    chance = random.SystemRandom()
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port := chance.randrange(15_000, 32_000)))
            return port


def kohort(
    directory: Path,
    *settings: str,
    name: str = "kohort",
    options: tuple[str, ...] = (),
    timeout_s: float = 30,
) -> Target:
    """`kohort serve` on a free port, ready when it says so; settings as `name=value`."""
    program = Path(sys.executable).with_name("kohort")
    if not program.exists():
        raise outside.Missing(f"{program} is missing; `make setup` installs it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    log = directory.with_suffix(".log")
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [str(program), "serve", str(directory), "--listen", "127.0.0.1:0", *options, *sets]
    started = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    target = Target(name, "", process, directory, log, started)
    while not (found := _READY.search(log.read_bytes())):
        _still_starting(target, timeout_s)
        time.sleep(0.002)
    target.address = f"127.0.0.1:{int(found[1])}"
    return target


def apache_kafka(directory: Path, *settings: str, name: str = "kafka", timeout_s: float = 60) -> Target:
    """Controller and broker in one process, formatted on first use, up when its port takes connections."""
    file = directory / "server.properties"
    if not file.exists():
        _format(directory, file, settings)
    port = re.findall(r"^listeners=PLAINTEXT://127.0.0.1:(\d+)", file.read_text(), re.M)[0]
    log = directory / "log"
    command = outside.java("kafka.Kafka", str(file), options=("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC"))
    started = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    target = Target(name, f"127.0.0.1:{port}", process, directory / "data", log, started)
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port)), 1).close()
            return target
        except OSError:
            _still_starting(target, timeout_s)
            time.sleep(0.002)


def _still_starting(target: Target, timeout_s: float) -> None:
    if target.process.poll() is not None:
        raise DidNotStart(f"{target.name} ended with {target.process.returncode}:\n{target.last_words()}")
    if time.monotonic() - target.started > timeout_s:
        target.kill()
        raise DidNotStart(f"{target.name} was not ready after {timeout_s:.0f} s:\n{target.last_words()}")


def _format(directory: Path, file: Path, settings: tuple[str, ...]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    broker, controller = free_port(), free_port()
    single = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{broker}",
        "controller.listener.names=CONTROLLER",
        "inter.broker.listener.name=PLAINTEXT",
        f"log.dirs={directory / 'data'}",
        *(f"{topic}.replication.factor=1" for topic in single),
        *(f"{topic}.min.isr=1" for topic in single[1:]),
        "group.initial.rebalance.delay.ms=0",
        *settings,
    ]
    file.write_text("\n".join(lines) + "\n")
    cluster_id = "kohort-benchmarks-aaaa"  # 22 characters of base64, as a uuid is written
    command = outside.java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise DidNotStart(f"Apache Kafka's StorageTool: {(done.stderr or done.stdout).strip()[-400:]}")


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A directory for the data of one run, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="kohort-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
