"""The topics that hold the groups: what clients may not do to them, over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.broker.peer import batch_of, create_topic, produce

OFFSETS, HISTORY = "__consumer_offsets", "__kohort_group_history"
BOTH = pytest.mark.parametrize("topic", [OFFSETS, HISTORY])


@pytest.fixture(scope="module")
def broker():
    with running() as started:
        with BlockingConnection(started.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest("g"), version=2)
            create_topic(client, "orders")
        yield started


@pytest.fixture
def client(broker):
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


def id_of(client: BlockingConnection, topic: str) -> bytes:
    asked = MetadataRequest([MetadataRequestTopic(name=topic)])
    topic_id: bytes = client.call(asked, version=12).topics[0].topic_id
    return topic_id


def commit(client: BlockingConnection, offset: int) -> ErrorCode:
    topic = OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, offset)])
    answer = client.call(OffsetCommitRequest("g", topics=[topic]), version=8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(client: BlockingConnection) -> int:
    asked = OffsetFetchRequest("g", [OffsetFetchRequestTopic("orders", [0])])
    offset: int = client.call(asked, version=5).topics[0].partitions[0].committed_offset
    return offset


@BOTH
@pytest.mark.parametrize("version", [1, 5, 6])
def test_they_cannot_be_deleted_by_name(client, topic, version):
    request = DeleteTopicsRequest(topic_names=[topic], topics=[DeleteTopicState(topic)])
    (answer,) = client.call(request, version=version).responses
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    if version >= 5:
        assert answer.error_message == f"Cannot delete internal topic {topic}: the groups live in it."
    assert id_of(client, topic) != bytes(16)


@BOTH
def test_nor_by_id_and_other_topics_of_the_request_are_deleted_all_the_same(client, topic):
    create_topic(client, "other")
    states = [DeleteTopicState(None, id_of(client, topic)), DeleteTopicState("other")]
    answers = client.call(DeleteTopicsRequest(topics=states), version=6).responses
    assert {answer.name: ErrorCode(answer.error_code) for answer in answers} == {
        topic: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "other": ErrorCode.NONE,
    }


@BOTH
def test_they_keep_the_number_of_their_partitions(client, topic):
    request = CreatePartitionsRequest([CreatePartitionsTopic(topic, 100, None)])
    assert client.call(request).results[0].error_code == ErrorCode.INVALID_PARTITIONS


@BOTH
def test_nobody_writes_to_them_or_deletes_their_records(client, topic):
    assert produce(client, topic, batch_of(b"x")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    part = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 0)])
    (answer,) = client.call(DeleteRecordsRequest([part])).topics
    assert answer.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_history_is_made_by_the_broker_alone():
    with running() as fresh, BlockingConnection(fresh.bootstrap_servers) as client:
        refused = create_topic(client, HISTORY)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "internal topic" in refused.error_message
        assert create_topic(client, OFFSETS, partitions=3).error_code == 0
        client.call(FindCoordinatorRequest("g"), version=2)
        asked = MetadataRequest([MetadataRequestTopic(name=HISTORY)])
        assert len(client.call(asked, version=12).topics[0].partitions) == 3, "as many as there are shards"


def test_groups_survive_who_wants_to_delete_everything(tmp_path: Path):
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        create_topic(client, "orders")
        assert commit(client, 7) == ErrorCode.NONE
        client.call(DeleteTopicsRequest(topics=[DeleteTopicState(OFFSETS), DeleteTopicState(HISTORY)]))
        assert commit(client, 8) == ErrorCode.NONE
        assert committed(client) == 8
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        assert committed(client) == 8
