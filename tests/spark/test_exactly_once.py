"""Drivers that are killed, workers that are killed, brokers that restart: every record is in the files exactly once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from kohort import Admin
from kohort.spark.offsets import Offsets, from_json
from tests.clients.process import BrokerProcess, eventually
from tests.spark.reading import fill

TOPIC, GROUP, PARTITIONS = "orders", "orders-etl", 3
PATIENCE_S = 240  # for a JVM to start and read, on a machine that may be busy


class Life:
    """One life of the job. `kill` ends everything that belongs to it, as if the machine had lost its power."""

    def __init__(self, bootstrap: str, folder: Path, *target: str) -> None:
        """`target` is a topic to write to; without one the job writes files."""
        command = [sys.executable, "-m", "tests.spark.driver", bootstrap, TOPIC, GROUP, str(folder), *target]
        # What it cannot clean up any more is not left in the machine's own folders.
        places = {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}
        with (folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **places}
            )

    def kill(self) -> None:
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)


def descendants(pid: int) -> list[int]:
    """A process and all that it has started, children last."""
    found, parents = [pid], {pid}
    table = {
        int(path.name): parent_of(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()
    }
    while parents:
        parents = {child for child, parent in table.items() if parent in parents}
        found += sorted(parents)
    return found


def workers(pid: int) -> list[int]:
    """The Python processes that run tasks of a job: children of the daemon for tasks; there are other daemons too."""
    daemons = set()
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
            name = Path(f"/proc/{each}/comm").read_text().strip()
            # The fork server names its children. There is none where the path of the test is too long for its socket.
            if name == "worker" or words[-2:-1] == [b"pyspark.worker"]:
                daemons.add(each)
    return [each for each in daemons if parent_of(each) in daemons]


def parent_of(pid: int) -> int:
    """0 if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture
def life(tmp_path: Path, own_broker: BrokerProcess) -> Iterator[Callable[[], Life]]:
    lives: list[Life] = []

    def begin() -> Life:
        lives.append(Life(own_broker.bootstrap_servers, tmp_path))
        return lives[-1]

    yield begin
    for each in lives:
        if each.process.poll() is None:
            each.kill()


@pytest.fixture
def own_broker(tmp_path: Path, fresh_port: Callable[[], int]) -> Iterator[BrokerProcess]:
    settings = ("durability=disk", "group.initial.rebalance.delay.ms=0")
    with BrokerProcess(tmp_path / "broker", *settings, port=fresh_port()) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        yield broker


def in_checkpoint(folder: Path) -> Offsets:
    """What the checkpoint has as done."""
    done = [int(path.name) for path in (folder / "checkpoint/commits").glob("*") if path.name.isdigit()]
    if not done:
        return {}
    return from_json((folder / f"checkpoint/offsets/{max(done)}").read_text().splitlines()[2])


def read_sink(folder: Path) -> dict[str, list[Any]]:
    """What Spark's file sink counts as written: the files in its log, and no others that lie around."""
    added: dict[str, None] = {}
    for log in (folder / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                assert entry["action"] == "add"
                added[unquote(entry["path"]).removeprefix("file://")] = None
    tables = [pq.read_table(path) for path in added]
    return {
        name: [x for table in tables for x in table.column(name).to_pylist()]
        for name in ("partition", "offset", "value")
    }


@pytest.mark.jvm
def test_every_record_exactly_once(
    own_broker: BrokerProcess, life: Callable[[], Life], tmp_path: Path
) -> None:
    bootstrap = own_broker.bootstrap_servers
    written = 0

    def write(count: int) -> None:
        nonlocal written
        for partition in range(PARTITIONS):
            fill(bootstrap, TOPIC, range(written, written + count), partition)
        written += count

    def alive(who: Life, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            if who.process.poll() is not None:
                pytest.fail(f"the job has ended: {(tmp_path / 'driver.log').read_text()[-4000:]}")
            return condition()

        eventually(look, what, PATIENCE_S)

    def progress(most: int) -> Callable[[], bool]:
        return lambda: sum(in_checkpoint(tmp_path).values()) >= min(most, PARTITIONS * written)

    def never_ahead() -> None:
        with Admin(bootstrap_servers=bootstrap) as admin:
            committed = {partition: at.offset for partition, at in admin.group_offsets(GROUP).items()}
        done = in_checkpoint(tmp_path)
        assert all(at <= done.get(partition, 0) for partition, at in committed.items()), (committed, done)

    write(1000)
    first = life()
    alive(first, progress(1000), "the first life reads some")
    first.kill()
    never_ahead()
    write(1000)
    second = life()  # at once, though the first is still a member by the broker's books
    alive(second, progress(3500), "the second life goes on")
    own_broker.kill()
    own_broker.restart()
    write(500)
    alive(second, progress(5000), "the restarted broker is read on")
    for pid in eventually(lambda: workers(second.process.pid), "there are workers", PATIENCE_S):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    write(500)
    alive(second, progress(9000), "a killed worker's task is done again")
    never_ahead()
    second.kill()

    rows = read_sink(tmp_path / "out")
    assert sorted(zip(rows["partition"], rows["offset"], strict=True)) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(written)
    ]
    assert rows["value"] == [str(offset) for offset in rows["offset"]]
