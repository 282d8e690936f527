"""The fetcher against a real broker, without a front: whatever the version, each record comes once and in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.broker import running
from kohort.client.config import CONSUMER, read_config
from kohort.client.consume.fetcher import Fetcher
from kohort.client.core.effects import Answer, Send
from kohort.client.core.metadata import Metadata
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.client.offsets.subscription import Position, SubscriptionState
from kohort.client.types import TopicPartition
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.client.fetching import batch

PARTITIONS = [TopicPartition("orders", index) for index in range(3)]
BATCHES, RECORDS = 40, 5


@pytest.fixture(scope="module")
def connection() -> Iterator[BlockingConnection]:
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as connected:
        connected.call(CreateTopicsRequest([CreatableTopic("orders", 3, 1)], 30_000), 6)
        for partition in PARTITIONS:
            for _ in range(BATCHES):
                written = PartitionProduceData(partition.partition, batch(0, RECORDS, size=200))
                connected.call(
                    ProduceRequest(None, -1, 10_000, [TopicProduceData("orders", partition_data=[written])]),
                    9,
                )
        yield connected


class Driven:
    """The parts of a consumer that read, and a connection that carries what they say, in virtual time."""

    def __init__(self, connection: BlockingConnection, version: int, **settings: object) -> None:
        self.connection, self.version, self.now_ms = connection, version, 1_000_000
        config, _ = read_config(CONSUMER, {"bootstrap.servers": "a:1", "fetch.max.wait.ms": 0}, settings)
        self.out: list[Send] = []
        self.subscription = SubscriptionState(config.reset())
        self.metadata = Metadata(self.out, config, lambda: 0.5)
        self.fetcher = Fetcher(self.out, config, self.subscription, self.metadata, lambda: 0.5)
        self.metadata.want(frozenset({"orders"}), now_ms=self.now_ms)
        self.metadata.tick(self.now_ms)
        self.carry()
        self.subscription.assign(PARTITIONS)
        for partition in PARTITIONS:
            self.subscription.state(partition).seek(Position(0))
        self.full_fetches = 0

    def carry(self) -> None:
        while self.out:
            send = self.out.pop(0)
            if send.purpose == "metadata.update":
                send.on_answer(Answer(send, 12, self.connection.call(send.make(12), 12)), self.now_ms)
                continue
            request = send.make(self.version)
            self.full_fetches += getattr(request, "session_epoch", 0) == 0
            response = self.connection.call(request, self.version)
            send.on_answer(Answer(send, self.version, response), self.now_ms)

    def read(self, max_records: int) -> dict[TopicPartition, list[int]]:
        seen: dict[TopicPartition, list[int]] = {partition: [] for partition in PARTITIONS}
        for _ in range(2000):
            self.now_ms += 1
            self.fetcher.tick(self.now_ms)
            self.carry()
            for partition, records in self.fetcher.take(max_records, self.now_ms).items():
                seen[partition] += [record.offset for record in records]
            if sum(map(len, seen.values())) >= len(PARTITIONS) * BATCHES * RECORDS:
                break
        assert self.fetcher.take_error() is None
        return seen


@pytest.mark.parametrize("version", range(4, 19))
def test_every_record_comes_once_and_in_order(connection: BlockingConnection, version: int) -> None:
    driven = Driven(connection, version, max_partition_fetch_bytes=3000, fetch_max_bytes=5000)
    everything = list(range(BATCHES * RECORDS))
    assert driven.read(max_records=7) == dict.fromkeys(PARTITIONS, everything)
    for partition in PARTITIONS:
        state = driven.subscription.state(partition)
        assert state.position is not None
        assert state.position.offset == state.high_watermark == BATCHES * RECORDS
    assert driven.full_fetches == 1 or version < 7
    driven.fetcher.close_sessions(driven.now_ms)
    driven.carry()
