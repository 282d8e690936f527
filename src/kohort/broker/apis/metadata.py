"""Handles Metadata and DescribeTopicPartitions: this node leads every partition."""

from __future__ import annotations

from kohort.broker import names
from kohort.broker.apis import topics
from kohort.broker.apis.cluster import NOT_ASKED, cluster_operations
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.log.topic import Topic
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_topic_partitions import (
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.struct import ZERO_UUID

_NO_LEADER = -1
_IDS_SINCE = 12  # the field is in 10 and 11 too, and must be empty there


async def metadata(broker: Broker, call: Call) -> MetadataResponse:
    request: MetadataRequest = call.request
    if request.topics is None or (call.version == 0 and not request.topics):
        found = [
            _topic(broker, topic)
            for name, topic in broker.store.topics.items()
            if name not in names.HIDDEN and _may_describe(broker, call, name, audits_denial=False)
        ]
    elif not _is_allowed(call.version, request.topics):
        return _invalid(request.topics)
    elif any(topic.topic_id != ZERO_UUID for topic in request.topics):
        found = _by_id(broker, call, request.topics)
    else:
        found = await _by_name(broker, call, request)
    if request.include_topic_authorized_operations:
        for topic in found:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = broker.allowed_operations(
                    call, AclResource.TOPIC, topic.name
                )
    address = broker.address_for(call)
    if address is None:
        _leave_out_leaders(found, call.version)
    return MetadataResponse(
        brokers=[] if address is None else [MetadataResponseBroker(broker.node_id, *address)],
        cluster_id=broker.store.cluster_id,
        controller_id=broker.node_id,
        topics=found,
        cluster_authorized_operations=(
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _leave_out_leaders(topics: list[MetadataResponseTopic], version: int) -> None:
    """Answers a client of a listener that is not advertised: the node has no address for it, so it leads nothing."""
    code = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    for topic in topics:
        for partition in topic.partitions:
            partition.error_code, partition.leader_id = code, _NO_LEADER
            partition.offline_replicas = partition.replica_nodes
            if version == 0:
                partition.replica_nodes = partition.isr_nodes = []


def _may_describe(broker: Broker, call: Call, topic: str, *, audits_denial: bool = True) -> bool:
    return broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic, audits_denial=audits_denial)


def _is_allowed(version: int, asked: list[MetadataRequestTopic]) -> bool:
    """Tells whether each topic has a name or an id, and ids only where the version allows them."""
    if version < _IDS_SINCE:
        return all(topic.name is not None and topic.topic_id == ZERO_UUID for topic in asked)
    return all(topic.name is not None or topic.topic_id != ZERO_UUID for topic in asked)


def _invalid(asked: list[MetadataRequestTopic]) -> MetadataResponse:
    code = ErrorCode.INVALID_REQUEST
    refused = [MetadataResponseTopic(code, topic.name or "", topic.topic_id) for topic in asked]
    return MetadataResponse(topics=refused, error_code=code)


def _by_id(broker: Broker, call: Call, asked: list[MetadataRequestTopic]) -> list[MetadataResponseTopic]:
    """Finds topics by id. If there is one id, names without an id are ignored, as in Kafka."""
    found = []
    for topic_id in dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID):
        topic = broker.store.topics_by_id.get(topic_id)
        if topic is None:
            found.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        elif not _may_describe(broker, call, topic.name):
            found.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id))
        else:
            found.append(_topic(broker, topic))
    return found


async def _by_name(broker: Broker, call: Call, request: MetadataRequest) -> list[MetadataResponseTopic]:
    """Finds topics by name, and creates missing ones if that is allowed.

    A topic that is created now is still answered as unknown, as by Kafka; the client finds it when it asks again.
    Clients rely on that: kafka-go takes a topic for deleted if the next answer names no partitions of it.
    """
    wanted = list(dict.fromkeys(topic.name for topic in request.topics or () if topic.name is not None))
    denied = {name for name in wanted if not _may_describe(broker, call, name)}
    missing = {name for name in wanted if name not in broker.store.topics and name not in denied}
    failed: dict[str, ErrorCode] = {}
    if missing and request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        creatable = [name for name in wanted if name in missing and topics.may_create(broker, call, name)]
        failed = dict.fromkeys(missing.difference(creatable), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        failed |= await topics.create_missing(broker, call, creatable)
    found = []
    for name in wanted:
        if name in denied:
            found.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        topic = None if name in missing else broker.store.topics.get(name)
        if topic is not None:
            found.append(_topic(broker, topic))
        else:
            code = failed.get(name, _why_unknown(name))
            found.append(MetadataResponseTopic(code, name, is_internal=name in names.INTERNAL))
    return found


def _why_unknown(name: str) -> ErrorCode:
    if names.what_is_wrong(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    node_id = broker.node_id
    nodes = [node_id]  # one list for all: it is only read
    partitions = [
        MetadataResponsePartition(
            partition_index=partition.index,
            leader_id=node_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=nodes,
            isr_nodes=nodes,
        )
        for partition in topic.partitions
    ]
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in names.INTERNAL,
        partitions=partitions,
    )


# --- DescribeTopicPartitions -----------------------------------------------------------------------------------


def describe_topic_partitions(broker: Broker, call: Call) -> DescribeTopicPartitionsResponse:
    """Describes topics in the order of their names; `next_cursor` says where the next page begins."""
    request: DescribeTopicPartitionsRequest = call.request
    cursor = request.cursor
    first_topic, first_partition = (cursor.topic_name, cursor.partition_index) if cursor else ("", 0)
    everything = not request.topics
    asked = (
        set(broker.store.topics) - names.HIDDEN if everything else {topic.name for topic in request.topics}
    )
    if first_partition < 0 or (cursor and not everything and first_topic not in asked):
        code = ErrorCode.INVALID_REQUEST
        refused = [DescribeTopicPartitionsResponseTopic(code, topic.name) for topic in request.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    limit = broker.config.max_request_partition_size_limit
    room = max(1, min(limit, request.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    wanted = sorted(name for name in asked if name >= first_topic)
    denied = {name for name in wanted if not _may_describe(broker, call, name, audits_denial=not everything)}
    for name in (name for name in wanted if name not in denied):
        if room == 0:
            response.next_cursor = CursorResponse(name, 0)
            break
        operations = broker.allowed_operations(call, AclResource.TOPIC, name)
        topic = broker.store.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name, operations))
            continue
        start = first_partition if name == first_topic else 0
        stop = min(start + room, len(topic.partitions))
        page = _page(broker, topic, start, stop)
        if broker.address_for(call) is None:
            for partition in page.partitions:
                partition.leader_id, partition.offline_replicas = _NO_LEADER, partition.replica_nodes
        page.topic_authorized_operations = operations
        response.topics.append(page)
        room -= len(page.partitions)
        if stop < len(topic.partitions):
            response.next_cursor = CursorResponse(name, stop)
            break
    if not everything:  # those that are refused come last, and on every page, as in Kafka
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics += [DescribeTopicPartitionsResponseTopic(code, name) for name in sorted(denied)]
    return response


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=_why_unknown(name),
        name=name,
        is_internal=name in names.INTERNAL,
        topic_authorized_operations=operations,
    )


def _page(broker: Broker, topic: Topic, start: int, stop: int) -> DescribeTopicPartitionsResponseTopic:
    nodes = [broker.node_id]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in names.INTERNAL,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.index,
                leader_id=broker.node_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for partition in topic.partitions[start:stop]
        ],
    )
