"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import pytest

from kohort.wire.errors import ErrorCode
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.handlers import Node

NOTHING = (ErrorCode.NONE, -1, -1, -1)


@pytest.fixture
def node():
    with Node() as started:
        yield started


def asking(timestamp: int, topic: str = "t", index: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(index, epoch, timestamp)])]
    )


def offset_of(node, timestamp: int, version: int = 11, **more) -> tuple[ErrorCode, int, int, int]:
    """Error, timestamp, offset, leader epoch."""
    (topic,) = node.call(asking(timestamp, **more), version).topics
    (found,) = topic.partitions
    return ErrorCode(found.error_code), found.timestamp, found.offset, found.leader_epoch


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_and_latest_are_the_ends_of_the_log(node, version):
    node.create("t")
    node.append("t", 10, 20, 30)
    epoch = 0 if version >= 4 else -1
    assert offset_of(node, -2, version) == (ErrorCode.NONE, -1, 0, epoch)
    assert offset_of(node, -1, version) == (ErrorCode.NONE, -1, 3, epoch)


def test_an_empty_partition_begins_and_ends_at_0(node):
    node.create("t")
    assert offset_of(node, -2) == (ErrorCode.NONE, -1, 0, 0)
    assert offset_of(node, -1) == (ErrorCode.NONE, -1, 0, 0)
    assert offset_of(node, -3) == NOTHING
    assert offset_of(node, 5) == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [(0, (10, 0)), (10, (10, 0)), (11, (20, 1)), (25, (30, 2)), (31, (50, 3)), (41, (50, 3)), (51, None)],
)
def test_by_time_the_first_record_at_or_after_it_is_found(node, timestamp, found):
    node.create("t")
    node.append("t", 10, 20, 30)
    node.append("t", 50, 40)
    expected = (ErrorCode.NONE, *found, 0) if found else NOTHING
    assert offset_of(node, timestamp) == expected


def test_the_largest_timestamp(node):
    node.create("t")
    node.append("t", 10, 90, 30)
    node.append("t", 50)
    assert offset_of(node, -3) == (ErrorCode.NONE, 90, 1, 0)


def test_a_broker_without_tiers_has_all_records_here(node):
    node.create("t")
    node.append("t", 10)
    assert offset_of(node, -4) == (ErrorCode.NONE, -1, 0, 0)
    assert offset_of(node, -5) == NOTHING
    assert offset_of(node, -6) == NOTHING


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_need_their_version(node, timestamp, since):
    node.create("t")
    assert offset_of(node, timestamp, since - 1)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert offset_of(node, timestamp, since)[0] == ErrorCode.NONE


def test_a_timestamp_with_a_meaning_that_is_not_known(node):
    node.create("t")
    assert offset_of(node, -7)[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("topic", "index"), [("absent", 0), ("t", 1), ("t", -1)])
def test_offsets_of_a_partition_that_is_not_there(node, topic, index):
    node.create("t")
    assert offset_of(node, -1, topic=topic, index=index) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


def test_a_partition_twice_in_one_request(node):
    node.create("t", 2)
    rows = [ListOffsetsPartition(0, -1, -1), ListOffsetsPartition(0, -1, -2), ListOffsetsPartition(1, -1, -1)]
    (topic,) = node.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", rows)])).topics
    found = [(part.partition_index, part.error_code) for part in topic.partitions]
    assert found == [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NONE)]


@pytest.fixture
def crashed(tmp_path):
    """A node that wrote two records under leader epoch 0, crashed, and wrote one under epoch 1."""
    first = Node(tmp_path / "node")
    first.create("t")
    first.append("t", 10, 20)
    with Node(first.crash()) as node:
        node.append("t", 30)
        yield node


def test_a_client_that_knows_another_leader_epoch_is_fenced(crashed):
    assert crashed.store.topics["t"].partitions[0].leader_epoch == 1
    assert offset_of(crashed, -1, epoch=0)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert offset_of(crashed, -1, epoch=1)[0] == ErrorCode.NONE
    assert offset_of(crashed, -1, epoch=2)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_offset_comes_with_the_epoch_of_its_record(crashed):
    assert offset_of(crashed, -2) == (ErrorCode.NONE, -1, 0, 0)
    assert offset_of(crashed, 20) == (ErrorCode.NONE, 20, 1, 0)
    assert offset_of(crashed, 30) == (ErrorCode.NONE, 30, 2, 1)
    assert offset_of(crashed, -1) == (ErrorCode.NONE, -1, 3, 1)


# --- OffsetForLeaderEpoch --------------------------------------------------------------------------------------


def end_of(
    node, epoch: int, current: int = -1, topic: str = "t", version: int = 4
) -> tuple[ErrorCode, int, int]:
    asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, current, epoch)])
    (found,) = node.call(OffsetForLeaderEpochRequest(-2, [asked]), version).topics[0].partitions
    return ErrorCode(found.error_code), found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_a_leader_epoch_ended(crashed, version):
    assert end_of(crashed, 0, version=version) == (ErrorCode.NONE, 0, 2)
    assert end_of(crashed, 1, version=version) == (ErrorCode.NONE, 1, 3)
    assert end_of(crashed, 9, version=version) == (ErrorCode.NONE, -1, -1)


def test_the_end_of_an_epoch_is_told_to_those_who_know_the_leader(crashed):
    assert end_of(crashed, 0, current=1) == (ErrorCode.NONE, 0, 2)
    assert end_of(crashed, 0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of(crashed, 0, current=2) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of(crashed, 0, topic="absent") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_an_epoch_that_wrote_nothing_ends_where_the_log_ends(tmp_path):
    """Else a consumer that asked for the end and got it would believe after the next crash that records are lost."""
    node = Node(tmp_path / "node")
    node.create("t")
    node.append("t", 10, 20, 30)
    node = Node(node.crash())
    assert offset_of(node, -1) == (ErrorCode.NONE, -1, 3, 1)
    assert end_of(node, 1) == (ErrorCode.NONE, 1, 3)
    with Node(node.crash()) as again:
        assert end_of(again, 1, current=2) == (ErrorCode.NONE, 1, 3)
        assert end_of(again, 3, current=2) == (ErrorCode.NONE, -1, -1)


def test_a_log_without_records_ends_in_the_present_epoch(node):
    node.create("t")
    assert end_of(node, 0) == (ErrorCode.NONE, 0, 0)


# --- DeleteRecords ---------------------------------------------------------------------------------------------


def delete(node, offset: int, topic: str = "t", index: int = 0, version: int = 2) -> tuple[ErrorCode, int]:
    asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])
    (found,) = node.call(DeleteRecordsRequest([asked], 1000), version).topics[0].partitions
    assert found.partition_index == index
    return ErrorCode(found.error_code), found.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_the_log_begins_where_the_client_says(node, version):
    node.create("t")
    node.append("t", 10, 20, 30)
    assert delete(node, 2, version=version) == (ErrorCode.NONE, 2)
    assert offset_of(node, -2)[2] == 2
    assert delete(node, 1, version=version) == (ErrorCode.NONE, 2), "it never goes back"


def test_minus_one_deletes_all_that_is_there(node):
    node.create("t")
    node.append("t", 10, 20, 30)
    assert delete(node, -1) == (ErrorCode.NONE, 3)
    assert node.append("t", 40) == 3


@pytest.mark.parametrize("offset", [2, 2**62, -2])
def test_beyond_the_end_nothing_is_deleted(node, offset):
    node.create("t")
    node.append("t", 10)
    assert delete(node, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert offset_of(node, -2)[2] == 0


def test_a_compacted_topic_keeps_its_records(node):
    node.create("t", cleanup_policy="compact")
    node.create("both", cleanup_policy="compact,delete")
    node.append("t", 10)
    node.append("both", 10)
    assert delete(node, 1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(node, 1, topic="both") == (ErrorCode.NONE, 1)


def test_records_of_what_is_not_there_or_internal(node):
    node.create("t")
    node.create("__consumer_offsets")
    assert delete(node, 0, topic="absent") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(node, 0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(node, 0, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_deleted_records_stay_deleted_after_a_crash(tmp_path):
    node = Node(tmp_path / "node")
    node.create("t")
    node.append("t", 10, 20, 30)
    assert delete(node, 2) == (ErrorCode.NONE, 2)
    with Node(node.crash()) as again:
        assert offset_of(again, -2)[2] == 2
