"""SIGKILL at random moments under transactions: readers at read_committed see all or nothing, and once."""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from kohort.client.io.blocking_connection import BlockingConnection
from tests.broker.peer import PATIENCE_S, batch_of, create_topic, fetch, produce
from tests.broker.transactional import committed, offsets_of, until_stable
from tests.chaos.copier import Copier, PairWriter
from tests.clients.process import BrokerProcess

SEED = int(os.environ.get("KOHORT_CHAOS_SEED", "20261117"))
LONGEST_LIFE_S = 0.5
RECORDS = 15


@pytest.mark.timeout(600)
def test_transactions_survive_kills(broker: BrokerProcess) -> None:
    kill_during_transactions(broker, cycles=4, seed=SEED)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_transactions_survive_many_kills(broker: BrokerProcess) -> None:
    cycles = int(os.environ.get("KOHORT_CHAOS_CYCLES", "200"))
    kill_during_transactions(broker, cycles=cycles, seed=SEED + 1)


def kill_during_transactions(broker: BrokerProcess, cycles: int, seed: int) -> None:
    print(f"\nseed {seed}, {cycles} cycles (KOHORT_CHAOS_SEED to choose another)")
    chance = random.Random(seed)
    count = RECORDS * cycles
    with BlockingConnection(broker.bootstrap_servers) as client:
        for topic in ("source", "target", "pairs"):
            assert create_topic(client, topic, partitions=2).error_code == 0
        for partition in (0, 1):
            for start in range(0, count, 3):
                values = [b"%d-%d" % (partition, n) for n in range(start, start + 3)]
                assert produce(client, "source", batch_of(*values), partition).error_code == 0
    copier = Copier(broker.bootstrap_servers, "source", "target")
    writer = PairWriter(broker.bootstrap_servers, "pairs")
    for worker in (copier, writer):
        worker.start()
    for cycle in range(cycles):
        time.sleep(chance.uniform(0.05, LONGEST_LIFE_S))  # how long this life lasts, not a wait for something
        broker.kill()
        promised = len(writer.promised)
        broker.restart()
        print(f"  cycle {cycle + 1}: {promised} pairs")
    deadline = time.monotonic() + PATIENCE_S
    with BlockingConnection(broker.bootstrap_servers) as client:
        while offsets_of(client, "copiers", "source", 0, 1) != [count, count]:
            assert time.monotonic() < deadline, "the copier does not come to the end"
            time.sleep(0.02)
        for worker in (copier, writer):
            worker.finish()
        check(client, writer, count)
    print(f"  {copier.lives} lives of the copier, {writer.lives} of the writer")


def check(client: BlockingConnection, writer: PairWriter, count: int) -> None:
    for partition in (0, 1):
        until_stable(client, "target", partition)
        until_stable(client, "pairs", partition)
        copied = everything(client, "target", partition)
        assert copied == [b"%d-%d" % (partition, n) for n in range(count)]  # each once, and in order
    left, right = (Counter(everything(client, "pairs", partition)) for partition in (0, 1))
    assert left == right  # all of a transaction or nothing
    assert set(left.values()) <= {1}
    seen = {int(value) for value in left if value is not None}
    assert writer.promised <= seen
    assert not writer.dropped & seen
    print(f"  {len(seen)} pairs, {len(writer.promised)} promised, {len(writer.dropped)} dropped")


def everything(client: BlockingConnection, topic: str, partition: int) -> list[bytes | None]:
    """All that a reader at read_committed sees; some megabytes fit one fetch."""
    values = committed(client, topic, partition)
    end = fetch(client, topic, 0, partition).high_watermark
    assert fetch(client, topic, end, partition).error_code == 0
    return values
