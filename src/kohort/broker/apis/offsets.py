"""Handles ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right

from kohort.broker import names
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.log.partition import Partition
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

log = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The special timestamps, and the first version that may ask for each.
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1  # isolation level
_UNKNOWN_EPOCH = -1
_FROM_CONSUMERS = -1  # replica id


def list_offsets(broker: Broker, call: Call) -> ListOffsetsResponse:
    request: ListOffsetsRequest = call.request
    wanted: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    for topic in request.topics:
        by_index = wanted.setdefault(topic.name, {})
        for partition in topic.partitions:
            by_index.setdefault(partition.partition_index, []).append(partition)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    ListOffsetsPartitionResponse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if not may_describe
                    else _list_one(broker, call.version, request, name, asked[0])
                    if len(asked) == 1
                    else ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
                    for index, asked in by_index.items()
                ],
            )
            for name, by_index in wanted.items()
            for may_describe in (broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, name),)
        ]
    )


def _list_one(
    broker: Broker, version: int, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    timestamp = asked.timestamp
    if timestamp < 0 and version < _SINCE_VERSION.get(timestamp, version + 1):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    partition = broker.partition(topic, asked.partition_index)
    if isinstance(partition, ErrorCode):
        answer.error_code = partition
        return answer
    answer.error_code = epoch_error(partition, asked.current_leader_epoch)
    if answer.error_code != ErrorCode.NONE:
        return answer
    if request.replica_id != _FROM_CONSUMERS:
        end = partition.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        end = partition.last_stable_offset
    else:
        end = partition.high_watermark
    try:
        answer.timestamp, answer.offset, answer.leader_epoch = _find(partition, timestamp, end)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _find(partition: Partition, timestamp: int, end: int) -> tuple[int, int, int]:
    """Returns timestamp, offset and leader epoch; all -1 if there is no such record before `end`."""
    if timestamp == LATEST:
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, partition.log_start_offset, _epoch_at(partition, partition.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):  # nothing is tiered here
        return -1, -1, -1
    found = partition.max_timestamp() if timestamp == MAX_TIMESTAMP else partition.find_time(timestamp)
    if found is None or found[1] >= end:
        return -1, -1, -1
    return found[0], found[1], _epoch_at(partition, found[1])


def _epoch_at(partition: Partition, offset: int) -> int:
    """Returns the leader epoch under which the record at this offset was written; -1 if that is not known."""
    epochs = partition.epochs
    if not epochs.epochs and partition.log_end_offset == offset:  # the next record will have it
        return partition.leader_epoch
    at = bisect_right(epochs.starts, offset) - 1
    return epochs.epochs[at] if at >= 0 else _UNKNOWN_EPOCH


def epoch_error(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """Returns the error if a client's leader epoch is older or newer than the partition's; NONE if it is neither."""
    if current_leader_epoch in (_UNKNOWN_EPOCH, partition.leader_epoch):
        return ErrorCode.NONE
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def offset_for_leader_epoch(broker: Broker, call: Call) -> OffsetForLeaderEpochResponse:
    request: OffsetForLeaderEpochRequest = call.request
    is_broker = broker.may_in_cluster(call, AclOperation.CLUSTER_ACTION, audits_denial=False)
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        if is_broker or broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic):
            ends = [_end_of_epoch(broker, topic.topic, partition) for partition in topic.partitions]
        else:
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ends = [EpochEndOffset(error_code=refused, partition=each.partition) for each in topic.partitions]
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
    return response


def _end_of_epoch(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    partition = broker.partition(topic, asked.partition)
    if isinstance(partition, ErrorCode):
        answer.error_code = partition
        return answer
    answer.error_code = epoch_error(partition, asked.current_leader_epoch)
    if answer.error_code == ErrorCode.NONE:
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(asked.leader_epoch)
    return answer


async def delete_records(broker: Broker, call: Call) -> DeleteRecordsResponse:
    request: DeleteRecordsRequest = call.request
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update({partition.partition_index: partition.offset for partition in topic.partitions})
    response = DeleteRecordsResponse()
    for name, offsets in wanted.items():
        results = []
        may_delete = broker.may(call, AclOperation.DELETE, AclResource.TOPIC, name)
        for index, offset in offsets.items():
            low, code = -1, ErrorCode.NONE
            try:
                if not may_delete:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                low = _delete_up_to(broker, name, index, offset)
            except KafkaError as error:
                code = error.code
            except OSError as error:
                log.error("records of %s-%d could not be deleted: %s", name, index, error)
                code = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(DeleteRecordsPartitionResult(index, low, code))
            await asyncio.sleep(0)  # each one waits for the disk, so other requests are served in between
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    return response


def _delete_up_to(broker: Broker, topic: str, index: int, offset: int) -> int:
    """Deletes records durably, and returns where the partition now begins; KafkaError says why not."""
    partition = broker.partition(topic, index)
    if isinstance(partition, ErrorCode):
        raise KafkaError(partition)
    if topic in names.INTERNAL:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    config = broker.store.topics[topic].config
    if config.compact and not config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition.delete_records(offset)
