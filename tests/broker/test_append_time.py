"""message.timestamp.type=LogAppendTime on the topics that the broker itself writes."""

from __future__ import annotations

import pytest

from kohort.broker import running
from kohort.broker.clock import Clock
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.sync_group import SyncGroupRequest
from kohort.wire.records.batch import BatchHeader, crc_is_good, iter_batches
from tests.broker.peer import create_topic, fetch
from tests.clients.process import eventually

OFFSETS, HISTORY = "__consumer_offsets", "__kohort_group_history"
TOPIC, SET = 2, 0


def set_append_time(client: BlockingConnection, topic: str) -> None:
    config = AlterableConfig("message.timestamp.type", SET, "LogAppendTime")
    answer = client.call(IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, topic, [config])]))
    assert answer.responses[0].error_code == 0


def commit(client: BlockingConnection, offset: int) -> None:
    topic = OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, offset)])
    answer = client.call(OffsetCommitRequest("g", topics=[topic]), version=8)
    assert answer.topics[0].partitions[0].error_code == 0


def rebalance(client: BlockingConnection) -> None:
    protocols = [JoinGroupRequestProtocol("range", b"x")]
    joined = client.call(
        JoinGroupRequest("h", 60_000, 60_000, protocol_type="consumer", protocols=protocols), version=3
    )
    synced = client.call(SyncGroupRequest("h", joined.generation_id, joined.member_id), version=3)
    assert (joined.error_code, synced.error_code) == (0, 0)


def batches(client: BlockingConnection, topic: str) -> list[BatchHeader]:
    data = memoryview(fetch(client, topic).records or b"")
    found = list(iter_batches(data))
    assert all(crc_is_good(data, at, header.size) for at, header in found)
    return [header for _, header in found]


@pytest.mark.parametrize("durability", ["memory", "disk"])
@pytest.mark.parametrize("where", ["the topic", "the broker"])
def test_every_batch_of_the_broker_carries_the_time_of_its_append(tmp_path, durability, where):
    """A commit that is recognized, one that is not, the members of a group, its history."""
    clock = Clock()
    settings = {"offsets.topic.num.partitions": "1"}
    if where == "the broker":
        settings["log.message.timestamp.type"] = "LogAppendTime"
    directory = tmp_path if durability == "disk" else None
    broker = running(directory, settings=settings, durability=durability, clock=clock)
    with broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        create_topic(client, "orders")
        if where == "the topic":
            set_append_time(client, OFFSETS)
            set_append_time(client, HISTORY)
        for offset in range(5):
            commit(client, offset)
        rebalance(client)
        eventually(lambda: batches(client, HISTORY), "the history is written")
        for topic in (OFFSETS, HISTORY):
            found = batches(client, topic)
            assert all(header.uses_append_time for header in found), topic
            assert sorted(header.max_timestamp for header in found) == [h.max_timestamp for h in found]
        assert len(batches(client, OFFSETS)) >= 6
        before = clock.now_ms()
        clock.shift_ms += 1_000_000
        commit(client, 9)
        last = batches(client, OFFSETS)[-1]
        assert last.max_timestamp >= before + 1_000_000


def test_without_it_batches_carry_the_time_they_were_made():
    with (
        running(offsets_topic_num_partitions=1) as broker,
        BlockingConnection(broker.bootstrap_servers) as client,
    ):
        client.call(FindCoordinatorRequest("g"), version=2)
        create_topic(client, "orders")
        for offset in range(3):
            commit(client, offset)
        assert not any(header.uses_append_time for header in batches(client, OFFSETS))
