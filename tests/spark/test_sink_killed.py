"""`exactlyOnce` while drivers, workers and brokers are killed: every row is in the topic once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort import Admin
from tests.clients.process import BrokerProcess, eventually
from tests.spark.reading import fill
from tests.spark.test_exactly_once import PARTITIONS, PATIENCE_S, TOPIC, Life, in_checkpoint, workers
from tests.spark.test_sink_exactly_once import committed

TARGET = "copies"
ROWS = 600
"""How many are added to each partition in a cycle: more than one batch."""
SEED = int(os.environ.get("KOHORT_CHAOS_SEED", "20261118"))
CYCLES = int(os.environ.get("KOHORT_SPARK_CYCLES", "6"))


@pytest.fixture
def own_broker(tmp_path: Path, fresh_port: Callable[[], int]) -> Iterator[BrokerProcess]:
    settings = ("durability=disk", "group.initial.rebalance.delay.ms=0")
    with BrokerProcess(tmp_path / "broker", *settings, port=fresh_port()) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
            admin.create_topic(TARGET, 2)
        yield broker


@pytest.mark.chaos
@pytest.mark.jvm
@pytest.mark.timeout(0)
def test_every_row_is_in_the_topic_once(own_broker: BrokerProcess, tmp_path: Path) -> None:
    print(f"\nseed {SEED}, {CYCLES} cycles (KOHORT_CHAOS_SEED, KOHORT_SPARK_CYCLES)")
    chance, job = random.Random(SEED), Job(own_broker, tmp_path)
    try:
        for cycle in range(CYCLES):
            job.add_rows()
            job.wait_for(chance.uniform(0.1, 0.9))
            kind = ("driver", "worker", "broker")[cycle % 3]
            getattr(job, f"kill_{kind}")()
            print(f"  cycle {cycle + 1}: killed the {kind} after {job.done()} of {job.added} rows")
        job.wait_for(1.0)
        found = committed(own_broker, TARGET)
    finally:
        job.end()
    expected = [
        b"%d-%d" % (partition, number)
        for partition in range(PARTITIONS)
        for number in range(job.added // PARTITIONS)
    ]
    assert found == sorted(expected)
    print(f"  {len(found)} rows, {job.lives} lives of the driver")


class Job:
    """A Spark job that copies a topic, begun again whenever it has ended."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self._broker, self._folder = broker, folder
        self.added = self.lives = 0
        self._life = self._begin()

    def _begin(self) -> Life:
        self.lives += 1
        return Life(self._broker.bootstrap_servers, self._folder, TARGET)

    def add_rows(self) -> None:
        start = self.added // PARTITIONS
        for partition in range(PARTITIONS):
            fill(self._broker.bootstrap_servers, TOPIC, range(start, start + ROWS), partition)
        self.added += PARTITIONS * ROWS

    def done(self) -> int:
        return sum(in_checkpoint(self._folder).values())

    def wait_for(self, share: float) -> None:
        """Waits until the checkpoint has this share of the rows that were added last."""
        wanted = self.added - int((1 - share) * PARTITIONS * ROWS)

        def is_there() -> bool:
            if self._life.process.poll() is not None:
                self._life = self._begin()  # a broker was away for longer than the query waits
            return self.done() >= wanted

        eventually(is_there, f"{wanted} rows are done", PATIENCE_S)

    def kill_driver(self) -> None:
        self._life.kill()
        self._life = self._begin()

    def kill_worker(self) -> None:
        for pid in eventually(lambda: workers(self._life.process.pid), "there are workers", PATIENCE_S):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_broker(self) -> None:
        self._broker.kill()
        self._broker.restart()

    def end(self) -> None:
        if self._life.process.poll() is None:
            self._life.kill()
