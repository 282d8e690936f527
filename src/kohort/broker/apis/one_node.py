"""Handles AlterPartitionReassignments, AlterReplicaLogDirs, DescribeQuorum and UpdateFeatures as a single node does.

There is one broker, one data directory, one voter, and the levels of features are those of this version. What asks for
that is done already; anything else is refused with the error and in the words of Kafka's controller.
"""

from __future__ import annotations

from kohort.broker.apis.topics import check_replicas
from kohort.broker.apis.versions import FINALIZED
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.security.acls import AclOperation
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages import alter_partition_reassignments as reassign
from kohort.wire.messages import alter_replica_log_dirs as log_dirs
from kohort.wire.messages import describe_quorum as quorum
from kohort.wire.messages import update_features as features

METADATA_TOPIC = "__cluster_metadata"
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3  # types of updates
_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_REFUSED_TEXT = "Cluster authorization failed."


# --- AlterPartitionReassignments ---------------------------------------------------------------------------------


def alter_partition_reassignments(broker: Broker, call: Call) -> reassign.AlterPartitionReassignmentsResponse:
    request: reassign.AlterPartitionReassignmentsRequest = call.request
    answer = reassign.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    may = broker.may_in_cluster(call, AclOperation.ALTER)
    if not may:
        answer.error_code, answer.error_message = _REFUSED, _REFUSED_TEXT
    for topic in request.topics:
        result = reassign.ReassignableTopicResponse(topic.name)
        for part in topic.partitions:
            code, text = ErrorCode.NONE, None
            try:
                if not may:
                    raise KafkaError(_REFUSED, _REFUSED_TEXT)
                _check_reassignment(broker, topic.name, part.partition_index, part.replicas)
            except KafkaError as error:
                code, text = error.code, error.message
            result.partitions.append(reassign.ReassignablePartitionResponse(part.partition_index, code, text))
        answer.responses.append(result)
    return answer


def _check_reassignment(broker: Broker, name: str, index: int, replicas: list[int] | None) -> None:
    """Raises KafkaError unless the partition is to stay where it is."""
    topic = broker.store.topics.get(name)
    if topic is None:
        text = f"Unable to find a topic named {name}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if not 0 <= index < len(topic.partitions):
        text = f"Unable to find partition {name}:{index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if replicas is None:  # this cancels a move
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    check_replicas(broker, replicas)


# --- AlterReplicaLogDirs -----------------------------------------------------------------------------------------


def alter_replica_log_dirs(broker: Broker, call: Call) -> log_dirs.AlterReplicaLogDirsResponse:
    """Answers that a partition is in the data directory already; there is no other one to move it to."""
    request: log_dirs.AlterReplicaLogDirsRequest = call.request
    may = broker.may_in_cluster(call, AclOperation.ALTER)
    results: dict[str, log_dirs.AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            result = results.setdefault(topic.name, log_dirs.AlterReplicaLogDirTopicResult(topic.name))
            for index in topic.partitions:
                error = _move_error(broker, directory.path, topic.name, index) if may else _REFUSED
                result.partitions.append(log_dirs.AlterReplicaLogDirPartitionResult(index, error))
    return log_dirs.AlterReplicaLogDirsResponse(results=list(results.values()))


def _move_error(broker: Broker, path: str, topic: str, index: int) -> ErrorCode:
    here = broker.store.directory
    if path != ("memory" if here is None else str(here.absolute())):
        return ErrorCode.LOG_DIR_NOT_FOUND
    found = broker.partition(topic, index)
    return ErrorCode.REPLICA_NOT_AVAILABLE if isinstance(found, ErrorCode) else ErrorCode.NONE


# --- DescribeQuorum ----------------------------------------------------------------------------------------------


def describe_quorum(broker: Broker, call: Call) -> quorum.DescribeQuorumResponse:
    """Describes the quorum of one: this node. Its metadata log is the registry, and offsets count its entries."""
    request: quorum.DescribeQuorumRequest = call.request
    if not broker.may_in_cluster(call, AclOperation.DESCRIBE):
        return quorum.DescribeQuorumResponse(_REFUSED, _REFUSED_TEXT)
    asked = [
        (topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics
    ]
    answer = quorum.DescribeQuorumResponse(error_message=None)
    if asked != [(METADATA_TOPIC, [0])]:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = "This server does not host this topic-partition."
        answer.topics = [
            quorum.ResponseTopicData(
                name, [quorum.ResponsePartitionData(index, unknown, text) for index in indexes]
            )
            for name, indexes in asked
        ]
        return answer
    end, now_ms = broker.store.registry_changes, broker.now_ms()
    voter = quorum.ReplicaState(
        broker.node_id, log_end_offset=end, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )
    answer.topics = [
        quorum.ResponseTopicData(
            METADATA_TOPIC,
            [
                quorum.ResponsePartitionData(
                    0, ErrorCode.NONE, None, broker.node_id, broker.store.leader_epoch, end, [voter]
                )
            ],
        )
    ]
    address = broker.address_for(call)
    listeners = [] if address is None else [quorum.Listener("CONTROLLER", *address)]
    answer.nodes = [quorum.Node(broker.node_id, listeners)]
    return answer


# --- UpdateFeatures ----------------------------------------------------------------------------------------------


def update_features(broker: Broker, call: Call) -> features.UpdateFeaturesResponse:
    """Checks updates of features as Kafka's controller does; the levels cannot be changed on this broker."""
    request: features.UpdateFeaturesRequest = call.request
    if not broker.may_in_cluster(call, AclOperation.ALTER):
        return features.UpdateFeaturesResponse(0, _REFUSED, _REFUSED_TEXT)
    for update in request.feature_updates:
        kind = (
            update.upgrade_type if call.version else (_SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE)
        )
        wrong = _wrong_update(broker, update.feature, update.max_version_level, kind)
        if wrong is not None:
            text = (
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.max_version_level} for feature {update.feature}. {wrong}"
            )
            return features.UpdateFeaturesResponse(0, ErrorCode.INVALID_UPDATE_VERSION, text)
    answer = features.UpdateFeaturesResponse(error_message=None)
    if call.version < 2:
        answer.results = [
            features.UpdatableFeatureResult(update.feature, ErrorCode.NONE, None)
            for update in request.feature_updates
        ]
    return answer


def _wrong_update(broker: Broker, feature: str, level: int, kind: int) -> str | None:
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    now = FINALIZED.get(feature, 0)
    if level > now:  # the level in force is the highest that there is
        where = f"Local controller {broker.node_id}"
        return f"{where} only supports versions 0-{now}" if now else f"{where} does not support this feature."
    if level < now and kind == _UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level < now:
        return "This broker cannot change the level of a feature: it is part of its version."
    return None
