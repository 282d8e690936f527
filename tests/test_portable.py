"""Systems other than Linux: `KOHORT_PORTABLE=1` takes no call that only Linux has; on Windows the client imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kohort import Consumer, Producer

TIMEOUT_S = 300

# What Python on Windows does not have, of what is near to anything here. The standard library is loaded before: only
# what we do ourselves is looked at.
AS_ON_WINDOWS = """
import asyncio, concurrent.futures, ctypes, http.server, multiprocessing, os, select, selectors, shutil, signal
import socket, ssl, subprocess, sys, tempfile, threading, uuid
import click, cramjam, crc32c

for name in ("fcntl", "resource", "uvloop", "termios", "pwd", "grp", "_posixsubprocess"):
    sys.modules[name] = None
HIDDEN = {
    select: "epoll poll EPOLLIN EPOLLOUT POLLIN POLLOUT",
    signal: "SIGHUP SIGKILL SIGUSR1 pthread_sigmask",
    socket: "AF_UNIX TCP_CONGESTION",
    os: "eventfd eventfd_read eventfd_write EFD_NONBLOCK EFD_CLOEXEC fdatasync sendfile pread pwrite preadv writev "
    "O_DSYNC O_DIRECT O_CLOEXEC nice geteuid getuid fork killpg register_at_fork",
}
for owner, names in HIDDEN.items():
    for name in names.split():
        delattr(owner, name)
sys.platform = "win32"
"""

IMPORT = """
import kohort, kohort.testing
kohort.Consumer, kohort.AsyncConsumer, kohort.Producer, kohort.AsyncProducer, kohort.Admin, kohort.AsyncAdmin
kohort.testing.Kafka, kohort.testing.Fault
import kohort.testing.plugin
"""

START = """
from kohort.broker import running
try:
    running().start()
except kohort.KohortError as error:
    print(error)
try:
    kohort.testing.Kafka().__enter__()
except kohort.KohortError as error:
    print(error)
"""

SERVE = """
from kohort.cli.main import main
sys.exit(main(["serve", "--listen", "127.0.0.1:0", "--set", "durability=memory"]))
"""

PORTABLE_BROKER = """
import os, socket, sys
for name in ("eventfd", "fdatasync", "sendfile", "preadv", "O_DSYNC", "O_DIRECT"):
    delattr(os, name)
sys.modules["uvloop"] = None
del socket.TCP_CONGESTION

from kohort.broker import running

with running(sys.argv[1], num_partitions=3) as broker:
    assert type(broker._loop).__module__.startswith("asyncio"), type(broker._loop)
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
    writer = broker.server.broker.store._syncer.journal._writer
    assert writer._kernel is None and writer._thread is not None, "a thread writes small appends"
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KOHORT_PORTABLE": "1"}
    command = [sys.executable, "-c", script, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environ)


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def run(script: str) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    with start(script) as process, ended(process):
        out, err = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, out, err


def test_on_windows_client_and_kit_import_and_a_broker_says_what_is_missing() -> None:
    code, out, err = run(AS_ON_WINDOWS + IMPORT + START)
    assert code == 0, err
    told = out.splitlines()
    assert len(told) == 2
    for line in told:
        assert "a Kohort broker runs on Linux and macOS" in line
        assert "(win32) lacks fcntl, resource, os.pread, os.pwrite, os.writev" in line
        assert "connect to it" in line


def test_on_windows_kohort_serve_ends_with_that_sentence() -> None:
    code, _, err = run(AS_ON_WINDOWS + SERVE)
    assert code != 0
    assert "Traceback" not in err
    assert err.count("\n") == 1
    assert "a Kohort broker runs on Linux and macOS" in err


def test_a_broker_without_anything_of_linux_keeps_records_and_groups(tmp_path: Path) -> None:
    """On asyncio's own loop; small records go through the journal, large ones are sent from their file."""
    values = [b"small", b"x" * 900_000]
    broker = start(PORTABLE_BROKER, str(tmp_path))
    with broker, ended(broker):
        assert broker.stdout is not None
        servers = broker.stdout.readline().strip()
        assert servers, broker.communicate()
        with Producer(bootstrap_servers=servers, acks="all") as producer:
            for value in values:
                for partition in range(3):
                    producer.send("t", value, partition=partition)
            producer.flush()
        with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            found = list[bytes | None]()
            while len(found) < 6:
                found += [record.value for records in consumer.poll(60).values() for record in records]
            consumer.commit()
        assert sorted(found, key=len) == sorted(values * 3)
        said = broker.communicate(timeout=TIMEOUT_S)
        assert (broker.returncode, said) == (0, ("", ""))
