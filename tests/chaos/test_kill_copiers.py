"""Consume-transform-produce with each client, through SIGKILL of the broker and of the copiers at random moments."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

import pytest

from kohort import Consumer
from kohort.client.io.blocking_connection import BlockingConnection
from tests.broker.peer import batch_of, create_topic, produce
from tests.chaos.copying import PROGRAMS, SOURCE, receipts_of, target_of
from tests.clients.process import BrokerProcess, eventually

SEED = int(os.environ.get("KOHORT_CHAOS_SEED", "20261118"))
PARTITIONS = (0, 1)
RECORDS = 60
"""How many are added to each partition in a cycle: some transactions of each copier."""
PATIENCE_S = 120.0  # a client's own pauses and timeouts, on a busy machine


@pytest.mark.timeout(600)
def test_copies_are_exact_while_broker_and_copiers_are_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    copy_through_kills(broker, tmp_path, ("confluent", "aiokafka", "ours"), cycles=3, seed=SEED)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_copies_are_exact_through_many_kills(broker: BrokerProcess, tmp_path: Path) -> None:
    cycles = int(os.environ.get("KOHORT_CHAOS_CYCLES", "25"))
    copy_through_kills(broker, tmp_path, tuple(PROGRAMS), cycles, SEED + 1)


class KillableBroker(Protocol):
    """A broker that a test kills and starts again at the same address."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self) -> None: ...

    def restart(self) -> None: ...


def copy_through_kills(
    broker: KillableBroker, directory: Path, clients: Sequence[str], cycles: int, seed: int
) -> None:
    print(f"\nseed {seed}, {cycles} cycles (KOHORT_CHAOS_SEED to choose another)")
    chance = random.Random(seed)
    expected: list[list[bytes]] = [[] for _ in PARTITIONS]
    with BlockingConnection(broker.bootstrap_servers) as client:
        assert create_topic(client, SOURCE, partitions=len(PARTITIONS)).error_code == 0
        for name in clients:
            assert create_topic(client, target_of(name), partitions=len(PARTITIONS)).error_code == 0
            assert create_topic(client, receipts_of(name)).error_code == 0
    with Copiers(broker.bootstrap_servers, clients, directory) as copiers:
        for cycle in range(cycles):
            add_records(broker, expected)
            copiers.wait_until_all_copy()
            time.sleep(chance.uniform(0.0, 0.3))  # how long this life lasts, not a wait for something
            victim = chance.choice(clients) if chance.random() < 0.6 else None
            killed = [] if victim is None else [victim]
            if victim is not None:
                copiers.kill(victim)
            if victim is None or chance.random() < 0.5:
                broker.kill()
                broker.restart()
                killed.append("the broker")
            print(f"  cycle {cycle + 1}: {copiers.counts()}, killed {' and '.join(killed)}")
        for name in clients:
            copiers.wait_for(name, sum(map(len, expected)))
        copiers.check(expected)
        print(f"  starts {copiers.starts}")


def add_records(broker: KillableBroker, expected: list[list[bytes]]) -> None:
    with BlockingConnection(broker.bootstrap_servers) as client:
        for partition in PARTITIONS:
            start = len(expected[partition])
            values = [b"%d-%d" % (partition, number) for number in range(start, start + RECORDS)]
            for first in range(0, RECORDS, 10):
                batch = batch_of(*values[first : first + 10])
                # Apache Kafka needs a moment until a new or restarted partition has its leader.
                eventually(
                    lambda batch=batch, partition=partition: (
                        not produce(client, SOURCE, batch, partition).error_code
                    ),
                    f"{SOURCE}-{partition} takes records",
                )
            expected[partition] += values


class Copiers:
    """The programs, each started again when it has ended, and a reader at read_committed of all that they write."""

    def __init__(self, address: str, clients: Sequence[str], directory: Path) -> None:
        self._address, self._clients, self._directory = address, clients, directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts = dict.fromkeys(clients, 0)
        self._seen: dict[tuple[str, int], list[bytes]] = {}
        self._reader: Consumer = Consumer(
            bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        for name in clients:
            self._seen[receipts_of(name), 0] = []
            for partition in PARTITIONS:
                self._seen[target_of(name), partition] = []
        self._reader.assign(*self._seen)

    def __enter__(self) -> Copiers:
        self._start_those_that_ended()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name in self._clients:
            self.kill(name)
            if error is not None:
                print(f"--- {name}\n{self._log_of(name).read_text()[-2000:]}")
        self._reader.close()

    def _log_of(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _start_those_that_ended(self) -> None:
        for name in self._clients:
            process = self._processes.get(name)
            if process is None or process.poll() is not None:
                command = [sys.executable, "-m", "tests.chaos.copying", name, self._address]
                root = Path(__file__).parents[2]
                with self._log_of(name).open("ab") as log:
                    self._processes[name] = subprocess.Popen(command, stderr=log, cwd=root)
                self.starts[name] += 1

    def kill(self, name: str) -> None:
        """SIGKILL: its transaction stays open until the next one of that name comes."""
        self._processes[name].kill()
        self._processes[name].wait()

    def _read(self) -> None:
        self._start_those_that_ended()
        for (topic, partition), records in self._reader.poll(0.05).items():
            self._seen[topic, partition] += [record.value or b"" for record in records]

    def count(self, name: str) -> int:
        """How many records of a copier a reader has been given so far."""
        self._read()
        return sum(len(self._seen[target_of(name), partition]) for partition in PARTITIONS)

    def counts(self) -> dict[str, int]:
        return {name: self.count(name) for name in self._clients}

    def wait_until_all_copy(self) -> None:
        for name, before in self.counts().items():
            self.wait_for(name, before + 1)

    def wait_for(self, name: str, count: int) -> None:
        eventually(lambda: self.count(name) >= count, f"{name} has copied {count} records", PATIENCE_S)

    def check(self, expected: list[list[bytes]]) -> None:
        self._read()  # what comes after the last record is a copy too many
        for name in self._clients:
            for partition in PARTITIONS:
                assert self._seen[target_of(name), partition] == expected[partition], name
            receipts = b" ".join(self._seen[receipts_of(name), 0]).split()
            assert sorted(receipts) == sorted(value for part in expected for value in part), name
