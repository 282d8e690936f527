"""AlterPartitionReassignments, AlterReplicaLogDirs, DescribeQuorum, UpdateFeatures: what one node of KRaft answers."""

from __future__ import annotations

import pytest

from kohort.broker.apis.versions import FINALIZED
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import alter_partition_reassignments as reassign
from kohort.wire.messages import alter_replica_log_dirs as log_dirs
from kohort.wire.messages import describe_quorum as quorum
from kohort.wire.messages import update_features as features
from tests.broker.handlers import Node


@pytest.fixture
def node():
    with Node() as started:
        started.create("t", partitions=2)
        yield started


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code", "text"),
    [
        ("t", 0, [1], ErrorCode.NONE, None),  # it is there already
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        ("t", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
        (
            "t",
            0,
            [1, 2],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 2, but no such broker is registered.",
        ),
        ("t", 0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once."),
        ("t", 2, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:2."),
        ("u", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named u."),
    ],
)
def test_partitions_stay_where_they_are(node, version, topic, index, replicas, code, text):
    part = reassign.ReassignablePartition(index, replicas)
    request = reassign.AlterPartitionReassignmentsRequest(topics=[reassign.ReassignableTopic(topic, [part])])
    answer = node.call(request, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    (result,) = answer.responses[0].partitions
    assert (result.partition_index, result.error_code) == (index, code)
    assert result.error_message is None if text is None else result.error_message.endswith(text)


@pytest.mark.parametrize("version", [1, 2])
def test_there_is_one_data_directory(tmp_path, version):
    with Node(tmp_path) as node:
        node.create("t")
        here = str(tmp_path.absolute())

        def moved(path: str, topic: str, index: int) -> int:
            wanted = log_dirs.AlterReplicaLogDir(path, [log_dirs.AlterReplicaLogDirTopic(topic, [index])])
            (result,) = node.call(log_dirs.AlterReplicaLogDirsRequest([wanted]), version).results
            (part,) = result.partitions
            assert (result.topic_name, part.partition_index) == (topic, index)
            return part.error_code

        assert moved(here, "t", 0) == ErrorCode.NONE
        assert moved("/elsewhere", "t", 0) == ErrorCode.LOG_DIR_NOT_FOUND
        assert moved(here, "t", 1) == ErrorCode.REPLICA_NOT_AVAILABLE
        assert moved(here, "u", 0) == ErrorCode.REPLICA_NOT_AVAILABLE


def asked_quorum(topic: str = "__cluster_metadata", index: int = 0) -> quorum.DescribeQuorumRequest:
    return quorum.DescribeQuorumRequest([quorum.TopicData(topic, [quorum.PartitionData(index)])])


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_this_node(node, version):
    answer = node.call(asked_quorum(), version)
    (part,) = answer.topics[0].partitions
    assert (answer.error_code, part.error_code, part.leader_id, part.observers) == (0, 0, 1, [])
    (voter,) = part.current_voters
    assert voter.replica_id == 1
    assert voter.log_end_offset == part.high_watermark
    if version >= 1:
        assert voter.last_caught_up_timestamp > 0
    if version >= 2:
        assert [(n.node_id, [(at.host, at.port) for at in n.listeners]) for n in answer.nodes] == [
            (1, [("kohort.test", 9092)])
        ]
    node.create("another")
    (later,) = node.call(asked_quorum(), version).topics[0].partitions
    assert later.high_watermark > part.high_watermark


@pytest.mark.parametrize(("topic", "index"), [("t", 0), ("__cluster_metadata", 1)])
def test_other_topics_have_no_quorum(node, topic, index):
    (part,) = node.call(asked_quorum(topic, index)).topics[0].partitions
    assert (part.partition_index, part.error_code) == (index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def updated(node, feature: str, level: int, kind: int = 1, version: int = 2) -> tuple[int, str | None]:
    update = features.FeatureUpdateKey(feature, level, upgrade_type=kind, allow_downgrade=kind > 1)
    answer = node.call(features.UpdateFeaturesRequest(feature_updates=[update]), version)
    if not answer.error_code and version < 2:
        assert [(each.feature, each.error_code) for each in answer.results] == [(feature, 0)]
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("feature", FINALIZED)
def test_a_feature_that_has_the_level_already(node, feature, version):
    assert updated(node, feature, FINALIZED[feature], version=version) == (0, None)


@pytest.mark.parametrize(
    ("feature", "level", "kind", "text"),
    [
        ("group.version", 2, 1, "Local controller 1 only supports versions 0-1"),
        ("metadata.version", 28, 1, "Local controller 1 does not support this feature."),
        ("group.version", -1, 1, "A feature version cannot be less than 0."),
        ("group.version", 0, 1, "without setting the upgrade type to either safe or unsafe downgrade."),
        (
            "group.version",
            0,
            2,
            "This broker cannot change the level of a feature: it is part of its version.",
        ),
        ("group.version", 0, 9, "The controller does not support the given upgrade type."),
    ],
)
def test_levels_that_cannot_be(node, feature, level, kind, text):
    code, said = updated(node, feature, level, kind)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert said.startswith("The update failed for all features since the following feature had an error: ")
    assert said.endswith(text)
