"""Handles InitProducerId and DescribeProducers."""

from __future__ import annotations

import asyncio

from kohort.broker import names
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.log.partition import Partition
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


async def init_producer_id(broker: Broker, call: Call) -> InitProducerIdResponse:
    """Gives an idempotent producer a new id, whatever id it had before, as Kafka does.

    One with a transactional id is told what the transaction coordinator says.
    """
    request: InitProducerIdRequest = call.request
    refused = _refusal(broker, call, request.transactional_id)
    if refused:
        return _refused(refused)
    if request.transactional_id == "" or (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _init_transactional(broker, call, request.transactional_id)
    try:
        producer_id = await broker.off_loop(broker.store.allocate_producer_id)
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _init_transactional(broker: Broker, call: Call, transactional_id: str) -> InitProducerIdResponse:
    from kohort.transactions.effects import ProducerIdAnswer  # only transactional producers wait for it
    from kohort.transactions.events import InitProducerId

    request: InitProducerIdRequest = call.request
    answered: asyncio.Future[ProducerIdAnswer] = asyncio.get_running_loop().create_future()
    broker.transactions.submit(
        InitProducerId(
            answered.set_result,
            transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
        )
    )
    answer = await answered
    if answer.error:
        fenced = answer.error is ErrorCode.PRODUCER_FENCED and call.version < 4
        return _refused(ErrorCode.INVALID_PRODUCER_EPOCH if fenced else answer.error)
    return InitProducerIdResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


def _refusal(broker: Broker, call: Call, transactional_id: str | None) -> ErrorCode:
    """Returns why the caller gets no id; NONE if it gets one."""
    if transactional_id is not None:
        may = broker.may(call, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        return ErrorCode.NONE if may else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if broker.may_on_some(call, AclOperation.WRITE, AclResource.TOPIC) or broker.may_in_cluster(
        call, AclOperation.IDEMPOTENT_WRITE
    ):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)


def describe_producers(broker: Broker, call: Call) -> DescribeProducersResponse:
    request: DescribeProducersRequest = call.request
    return DescribeProducersResponse(
        topics=[_describe_topic(broker, call, topic) for topic in request.topics]
    )


def _describe_topic(broker: Broker, call: Call, topic: TopicRequest) -> TopicResponse:
    wrong = names.what_is_wrong(topic.name)
    if wrong is None and not broker.may(call, AclOperation.READ, AclResource.TOPIC, topic.name):
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return TopicResponse(
            topic.name, [PartitionResponse(each, refused) for each in topic.partition_indexes]
        )
    partitions = []
    for index in topic.partition_indexes:
        found = ErrorCode.INVALID_TOPIC_EXCEPTION if wrong else broker.partition(topic.name, index)
        if isinstance(found, ErrorCode):
            partitions.append(PartitionResponse(partition_index=index, error_code=found, error_message=wrong))
        else:
            partitions.append(PartitionResponse(partition_index=index, active_producers=_active(found)))
    return TopicResponse(name=topic.name, partitions=partitions)


def _active(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.current_txn_first_offset,
        )
        for entry in partition.producers.entries()
    ]
