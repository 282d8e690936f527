"""A broker as a user runs it: `kohort serve` in a process of its own, which a test may kill and start again."""

from __future__ import annotations

import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

KOHORT = Path(sys.executable).parent / "kohort"
START_TIMEOUT_S = 90.0  # these only end a test that hangs: a machine may be busy
STOP_TIMEOUT_S = 180.0  # thousands of partitions are written out


class BrokerProcess:
    """Started when made; `with` ends it. The log of all its lives is kept in `log_file`.

    with BrokerProcess(directory, "durability=os") as broker:
        broker.kill(); broker.restart()      # same directory, same port, same settings
    """

    def __init__(self, directory: Path, *settings: str, port: int = 0) -> None:
        self.directory = directory / "data"
        self.log_file = directory / "broker.log"
        self.starts = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port
        directory.mkdir(parents=True, exist_ok=True)
        self._reservation = _reserve(port) if port else None
        try:
            self.restart()
        except BaseException:
            self._give_back_port()
            raise

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        self._give_back_port()

    def _give_back_port(self) -> None:
        if self._reservation is not None:
            self._reservation.close()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def restart(self) -> None:
        """Starts it, on the port it had; returns when it says that it is ready."""
        assert self._process is None, "the broker runs already"
        command = [str(KOHORT), "serve", str(self.directory), "--listen", f"127.0.0.1:{self._port}"]
        for setting in self._settings:
            command += ["--set", setting]
        with self.log_file.open("ab") as log:
            log.write(f"--- start {self.starts}: {' '.join(command[1:])}\n".encode())
            log.flush()
            # Unbuffered: of two lines that come at once, the second must not wait where `select` does not see it.
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, bufsize=0)
        self.starts += 1
        try:
            self._port = self._read_port(time.monotonic() + START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def _read_port(self, deadline: float) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while ready.select(max(0.0, deadline - time.monotonic())):
                line = self._process.stdout.readline().decode()
                found = re.search(r"bootstrap\.servers=127\.0\.0\.1:(\d+)", line)
                if found:
                    return int(found[1])
                if not line:
                    code = self._process.wait(STOP_TIMEOUT_S)
                    raise AssertionError(
                        f"the broker ended with code {code} instead of starting:\n{self.log()}"
                    )
        raise AssertionError(f"the broker was not ready after {START_TIMEOUT_S:.0f} s:\n{self.log()}")

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM, as an operator stops it; returns its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        try:
            process.send_signal(how)
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
            raise AssertionError(
                f"the broker did not end within {STOP_TIMEOUT_S:.0f} s of {how.name}"
            ) from None
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def log(self, last: int = 6000) -> str:
        return self.log_file.read_bytes()[-last:].decode(errors="replace")


def fixed_port() -> int:
    """A free port below the ephemeral ones.

    A client that reconnects to an ephemeral port while nobody listens there may be given that very port and talk to
    itself; a broker that is killed and started again needs one that this cannot happen to.
    """
    chance = random.SystemRandom()  # not what a test may have seeded, in several processes alike
    for _ in range(200):
        port = chance.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port between 15000 and 32000")


def _reserve(port: int) -> socket.socket:
    """Bound and never open: while the broker is down the port is given to nobody else, and it may still have it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", port))
    return reserved


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Waits until the condition is true and returns its value; else fails with `what` was waited for."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"after {timeout_s:.0f} s still not: {what}")
        time.sleep(0.03)


@pytest.hookimpl(wrapper=True)
def show_broker_log(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """For a conftest, as `pytest_runtest_makereport`: a failed test shows the log of the broker that it used."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, BrokerProcess):
                report.sections.append(("log of the broker", value.log()))
    return report
