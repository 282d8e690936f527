"""DescribeCluster, DescribeLogDirs, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

import pytest

from kohort.broker.apis.cluster import NOT_ASKED
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kohort.wire.messages.describe_cluster import DescribeClusterRequest
from kohort.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kohort.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kohort.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.handlers import Node


@pytest.fixture
def node():
    with Node() as started:
        yield started


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_node(node, version):
    answer = node.call(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, node.store.cluster_id, 1)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.is_fenced) == (1, "kohort.test", 9092, False)
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = node.call(DescribeClusterRequest(True), version)
    assert asked.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_there_are_no_controllers_to_ask_for(node, endpoint_type, code):
    answer = node.call(DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (answer.error_code, answer.brokers) == (code, [])
    assert answer.error_message


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_tell_the_size_of_each_partition(tmp_path, version):
    with Node(tmp_path) as node:
        node.create("t", 2)
        node.append("t", 1, 2, 3, index=1)
        (result,) = node.call(DescribeLogDirsRequest(None), version).results
        assert (result.error_code, result.log_dir) == (0, str(tmp_path))
        (topic,) = result.topics
        sizes = {part.partition_index: part.partition_size for part in topic.partitions}
        assert topic.name == "t"
        assert sizes == {0: 0, 1: node.store.topics["t"].partitions[1].size}
        assert sizes[1] > 61
        assert all((part.offset_lag, part.is_future_key) == (0, False) for part in topic.partitions)
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes


def test_log_dirs_of_some_partitions(node):
    node.create("a", 3)
    node.create("b")
    asked = [DescribableLogDirTopic("a", [2, 0, 9]), DescribableLogDirTopic("absent", [0])]
    (result,) = node.call(DescribeLogDirsRequest(asked)).results
    assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in result.topics] == [
        ("a", [0, 2])
    ]
    (nothing,) = node.call(DescribeLogDirsRequest([])).results
    assert nothing.topics == []


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(node, version):
    node.create("t", 1)
    request = ElectLeadersRequest(0, [TopicPartitions("t", [0, 5]), TopicPartitions("absent", [0])])
    answer = node.call(request, version)
    found = {
        (topic.topic, part.partition_id): (ErrorCode(part.error_code), part.error_message)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == 0
    assert found == {
        ("t", 0): (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        ("t", 5): (unknown, "No such partition as t-5"),
        ("absent", 0): (unknown, "No such topic as absent"),
    }


def test_an_election_of_all_leaders_elects_none(node):
    node.create("t")
    answer = node.call(ElectLeadersRequest(1, None))
    assert (answer.error_code, answer.replica_election_results) == (0, [])


def test_an_unknown_kind_of_election(node):
    node.create("t")
    answer = node.call(ElectLeadersRequest(2, [TopicPartitions("t", [0])]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    (result,) = answer.replica_election_results[0].partition_result
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown election type 2")


@pytest.mark.parametrize("topics", [None, [], [ListPartitionReassignmentsTopics("t", [0])]])
def test_nothing_is_being_reassigned(node, topics):
    node.create("t")
    answer = node.call(ListPartitionReassignmentsRequest(1000, topics))
    assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code", "message"),
    [
        ("t", 0, [1], ErrorCode.NONE, None),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        (
            "t",
            0,
            [7, 1, 5],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 5, but no such broker is registered.",
        ),
        (
            "t",
            0,
            [1, 1],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            "t",
            0,
            [],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        ("t", 3, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:3."),
        ("absent", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named absent."),
    ],
)
def test_a_partition_can_only_be_moved_to_where_it_is(node, version, topic, index, replicas, code, message):
    node.create("t")
    asked = [ReassignableTopic(topic, [ReassignablePartition(index, replicas)])]
    answer = node.call(AlterPartitionReassignmentsRequest(1000, topics=asked), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    (of_topic,) = answer.responses
    (result,) = of_topic.partitions
    assert of_topic.name == topic
    assert (result.partition_index, result.error_code, result.error_message) == (index, code, message)
