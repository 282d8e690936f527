"""Handles DescribeCluster, DescribeLogDirs, ElectLeaders, and reassignments of partitions, for a single node."""

from __future__ import annotations

import shutil

from kohort.broker.apis.topics import check_replicas
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.log.topic import Topic
from kohort.security.acls import CLUSTER_NAME, AclOperation, AclResource
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kohort.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kohort.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kohort.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kohort.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse

NOT_ASKED = -(2**31)
_BROKERS, _CONTROLLERS = 1, 2  # endpoint types
_PREFERRED, _UNCLEAN = 0, 1  # election types


def describe_cluster(broker: Broker, call: Call) -> DescribeClusterResponse:
    request: DescribeClusterRequest = call.request
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    address = broker.address_for(call)
    return DescribeClusterResponse(
        cluster_id=broker.store.cluster_id,
        controller_id=broker.node_id,
        brokers=[] if address is None else [DescribeClusterBroker(broker.node_id, *address)],
        cluster_authorized_operations=(
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def cluster_operations(broker: Broker, call: Call) -> int:
    """Returns what the caller may do to the cluster, a bit for each operation; none without DESCRIBE."""
    if not broker.may_in_cluster(call, AclOperation.DESCRIBE):
        return 0
    return broker.allowed_operations(call, AclResource.CLUSTER, CLUSTER_NAME)


def describe_log_dirs(broker: Broker, call: Call) -> DescribeLogDirsResponse:
    request: DescribeLogDirsRequest = call.request
    if not broker.may_in_cluster(call, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    store = broker.store
    if request.topics is None:
        topics = [_sizes(topic, range(len(topic.partitions))) for topic in store.topics.values()]
    else:
        wanted: dict[str, set[int]] = {}
        for asked in request.topics:
            wanted.setdefault(asked.topic, set()).update(asked.partitions)
        topics = [
            _sizes(store.topics[name], sorted(partitions))
            for name, partitions in wanted.items()
            if name in store.topics
        ]
    total, usable = -1, -1
    if store.directory is not None:
        disk = shutil.disk_usage(store.directory)
        total, usable = disk.total, disk.free
    result = DescribeLogDirsResult(
        log_dir=str(store.directory.absolute()) if store.directory is not None else "memory",
        topics=[topic for topic in topics if topic.partitions],
        total_bytes=total,
        usable_bytes=usable,
    )
    return DescribeLogDirsResponse(results=[result])


def _sizes(topic: Topic, partitions: range | list[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(partition_index=index, partition_size=topic.partitions[index].size)
            for index in partitions
            if 0 <= index < len(topic.partitions)
        ],
    )


def elect_leaders(broker: Broker, call: Call) -> ElectLeadersResponse:
    """Answers that no election is needed: the only node leads every partition."""
    request: ElectLeadersRequest = call.request
    if not broker.may_in_cluster(call, AclOperation.ALTER):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ElectLeadersResponse(
            error_code=refused,
            replica_election_results=[
                ReplicaElectionResult(
                    topic.topic, [_unelected(index, refused, "") for index in topic.partitions]
                )
                for topic in request.topic_partitions or ()
            ],
        )
    response = ElectLeadersResponse()
    known_type = request.election_type in (_PREFERRED, _UNCLEAN)
    if not known_type:
        response.error_code = ErrorCode.INVALID_REQUEST
    for topic in request.topic_partitions or ():
        results = [
            _election(broker, topic.topic, index)
            if known_type
            else _unelected(
                index, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
            )
            for index in topic.partitions
        ]
        response.replica_election_results.append(ReplicaElectionResult(topic.topic, results))
    return response


def _election(broker: Broker, topic: str, index: int) -> PartitionResult:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic not in broker.store.topics:
        return _unelected(index, unknown, f"No such topic as {topic}")
    if isinstance(broker.partition(topic, index), ErrorCode):
        return _unelected(index, unknown, f"No such partition as {topic}-{index}")
    not_needed = "Leader election not needed for topic partition."
    return _unelected(index, ErrorCode.ELECTION_NOT_NEEDED, not_needed)


def _unelected(index: int, code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def list_partition_reassignments(broker: Broker, call: Call) -> ListPartitionReassignmentsResponse:
    if not broker.may_in_cluster(call, AclOperation.DESCRIBE):
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ListPartitionReassignmentsResponse(error_message=None)


def alter_partition_reassignments(broker: Broker, call: Call) -> AlterPartitionReassignmentsResponse:
    """Answers as a cluster of one node: a partition is already where it may be, and no move can be cancelled."""
    request: AlterPartitionReassignmentsRequest = call.request
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    refused = None
    if not broker.may_in_cluster(call, AclOperation.ALTER):
        refused = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        response.error_code, response.error_message = refused.code, refused.message
    for topic in request.topics:
        results = [_reassigned(broker, topic.name, partition, refused) for partition in topic.partitions]
        response.responses.append(ReassignableTopicResponse(topic.name, results))
    return response


def _reassigned(
    broker: Broker, topic: str, asked: ReassignablePartition, refused: KafkaError | None
) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(asked.partition_index, error_message=None)
    try:
        if refused is not None:
            raise refused
        if topic not in broker.store.topics:
            text = f"Unable to find a topic named {topic}."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if isinstance(broker.partition(topic, asked.partition_index), ErrorCode):
            text = f"Unable to find partition {topic}:{asked.partition_index}."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if asked.replicas is None:
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
            )
        check_replicas(broker, asked.replicas)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
