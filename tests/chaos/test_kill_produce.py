"""SIGKILL at random moments under producers with acks=all: what was acknowledged is there, once, where it was said."""

from __future__ import annotations

import os
import random
import time

import pytest

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.peer import create_topic
from tests.chaos.producers import ConfluentProducer, Ledger, RawProducer, TopicMaker, Worker
from tests.clients.process import BrokerProcess

SEED = int(os.environ.get("KOHORT_CHAOS_SEED", "20261115"))
LONGEST_LIFE_S = 0.6


@pytest.mark.timeout(900)
def test_acknowledged_records_survive_25_kills(broker: BrokerProcess) -> None:
    kill_while_producing(broker, cycles=25, seed=SEED)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_acknowledged_records_survive_many_kills(broker: BrokerProcess) -> None:
    kill_while_producing(broker, cycles=int(os.environ.get("KOHORT_CHAOS_CYCLES", "200")), seed=SEED + 1)


def kill_while_producing(broker: BrokerProcess, cycles: int, seed: int) -> None:
    print(f"\nseed {seed}, {cycles} cycles (KOHORT_CHAOS_SEED to choose another)")
    chance = random.Random(seed)
    raw = [Ledger("raw", 0), Ledger("raw", 1)]
    confluent = [Ledger("confluent", 0), Ledger("confluent", 1)]
    with BlockingConnection(broker.bootstrap_servers) as admin:
        for topic in ("raw", "confluent"):
            # Short segments: the crash also meets rolls and sealed segments.
            assert create_topic(admin, topic, partitions=2, segment_ms=400).error_code == 0
    address = broker.bootstrap_servers
    raw_producers = [RawProducer(address, ledger) for ledger in raw]
    confluent_producer, topic_maker = ConfluentProducer(address, confluent), TopicMaker(address)
    workers: list[Worker] = [*raw_producers, confluent_producer, topic_maker]
    for worker in workers:
        worker.start()
    for cycle in range(cycles):
        time.sleep(chance.uniform(0.0, LONGEST_LIFE_S))  # how long this life lasts, not a wait for something
        broker.kill()
        made, promised = list(topic_maker.made), [dict(ledger.acknowledged) for ledger in raw + confluent]
        began = time.perf_counter()
        broker.restart()
        took_ms = (time.perf_counter() - began) * 1000
        check_promises(broker, raw + confluent, promised, made)
        print(f"  cycle {cycle + 1}: {sum(map(len, promised)):,} acknowledged, up again in {took_ms:.0f} ms")
        assert not any(worker.failure for worker in workers), [worker.failure for worker in workers]
    for worker in workers:
        worker.finish()
    promised = [ledger.acknowledged for ledger in raw + confluent]
    check_promises(broker, raw + confluent, promised, topic_maker.made)
    for ledger in raw + confluent:
        ledger.check_once()
    assert not confluent_producer.refused, confluent_producer.refused[:3]
    assert all(promised), "a producer got nothing through: this run shows nothing"
    repeated = sum(producer.repeated for producer in raw_producers)
    topics = len(topic_maker.made)
    print(f"  {sum(map(len, promised)):,} records once each, {repeated} batches sent again, {topics} topics")


def check_promises(
    broker: BrokerProcess, ledgers: list[Ledger], promised: list[dict[int, bytes]], made: list[str]
) -> None:
    with BlockingConnection(broker.bootstrap_servers) as reader:
        for ledger, acknowledged in zip(ledgers, promised, strict=True):
            ledger.read(reader)
            ledger.check(acknowledged)
        there = {topic.name for topic in reader.call(MetadataRequest(topics=None), version=9).topics}
    assert not set(made) - there, "a topic whose creation was acknowledged is gone"
