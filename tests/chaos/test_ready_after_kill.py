"""SIGKILL with a gigabyte of data: how soon the broker takes records again, and that all of it is still there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records.batch import crc_is_good, iter_batches
from tests.broker.peer import batch_of, create_topic, fetch, produce
from tests.clients.process import BrokerProcess

SETTINGS = ("durability=os",)  # to write it fast; a SIGKILL does not take what the system has
TOPIC = "large"
PARTITIONS = 8
BATCH_BYTES = 128 * 1024
TOTAL_BYTES = 1 << 30
PIPELINED = 4
PATIENCE_S = 240.0  # a gigabyte may have to wait for a slow disk


@pytest.fixture
def broker(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    yield broker
    broker.kill()
    shutil.rmtree(broker.directory)


@pytest.mark.timeout(900)
def test_ready_again_with_a_gigabyte(broker: BrokerProcess) -> None:
    batch = batch_of(bytes(BATCH_BYTES - 100))
    rounds = TOTAL_BYTES // (PARTITIONS * len(batch)) + 1
    began = time.perf_counter()
    write(broker, batch, rounds)
    wrote_s = time.perf_counter() - began
    broker.kill()
    began = time.perf_counter()
    broker.restart()
    ready_s = time.perf_counter() - began
    with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        first = produce(client, TOPIC, batch_of(b"first"))
        first_s = time.perf_counter() - began
        assert (first.error_code, first.base_offset) == (0, rounds)
        for partition in range(1, PARTITIONS):
            assert produce(client, TOPIC, batch_of(b"first"), partition).base_offset == rounds
        for partition in range(PARTITIONS):
            assert count_batches(client, partition) == rounds + 1
    size = rounds * PARTITIONS * len(batch) / 1e9
    print(f"\n{size:.2f} GB in {PARTITIONS} partitions, written in {wrote_s:.1f} s; after SIGKILL")
    print(f"ready after {ready_s * 1000:.0f} ms, first produce answered after {first_s * 1000:.0f} ms")


def write(broker: BrokerProcess, batch: bytes, rounds: int) -> None:
    """The batch to every partition, again and again; everything is acknowledged when this returns."""
    with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        assert create_topic(client, TOPIC, PARTITIONS).error_code == 0
        data = [PartitionProduceData(partition, batch) for partition in range(PARTITIONS)]
        request = ProduceRequest(
            None, -1, int(PATIENCE_S * 1000), [TopicProduceData(TOPIC, partition_data=data)]
        )
        for sent in range(rounds + PIPELINED):
            if sent < rounds:
                client.send(request, version=9)
            if sent >= PIPELINED:
                for outcome in client.receive().responses[0].partition_responses:
                    assert (outcome.error_code, outcome.base_offset) == (0, sent - PIPELINED)


def count_batches(client: BlockingConnection, partition: int) -> int:
    """Reads a partition from its beginning: one record a batch, no gap, every CRC good."""
    offset = 0
    while True:
        data = fetch(client, TOPIC, offset, partition, partition_max_bytes=16 << 20)
        assert data.error_code == 0
        view = memoryview(data.records or b"")
        for position, header in iter_batches(view):
            assert header.base_offset == offset
            assert crc_is_good(view, position, header.size)
            offset += 1
        if offset == data.high_watermark:
            return offset
