"""Handles CreateTopics, DeleteTopics and CreatePartitions, and creates topics that a client asked metadata of.

All changes of one request are planned first, made durable with one write, then applied.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeAlias

from kohort.broker import names
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.names import Collisions
from kohort.coordinator.history import HISTORY_TOPIC
from kohort.log.config import TopicConfig
from kohort.log.datadir import new_uuid
from kohort.log.registry import PartitionsAdded, TopicCreated, TopicDeleted
from kohort.log.topic import Topic
from kohort.security.acls import AclOperation, AclResource
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kohort.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.wire.struct import ZERO_UUID

_Described: TypeAlias = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]

MOST_PARTITIONS_AT_ONCE = 10_000
_TOO_MANY = "Excessively large number of partitions per request."
_DUPLICATE = "Duplicate topic name."
_UNKNOWN_NAME = "This server does not host this topic-partition."
_NOT_ALLOWED = "Authorization failed."
_NOT_ALLOWED_TOPIC = "Topic authorization failed."
_UNKNOWN_ID = "This server does not host this topic ID."
_THROTTLED = "The throttling quota has been exceeded."


# --- CreateTopics ----------------------------------------------------------------------------------------------


async def create_topics(broker: Broker, call: Call) -> CreateTopicsResponse:
    request: CreateTopicsRequest = call.request
    denied = {
        topic.name
        for topic in request.topics
        if topic.name != names.METADATA_TOPIC and not may_create(broker, call, topic.name)
    }
    async with broker.changes:
        planned = _plan_topics(broker, request, denied, _Payment(broker, call, strict_since=6))
        entries = [plan for plan in planned.values() if isinstance(plan, TopicCreated)]
        failed = None if request.validate_only else await broker.commit(entries)
        if not request.validate_only and any(entry.name == names.OFFSETS_TOPIC for entry in entries):
            broker.groups.begin_load()
    described: _Described | None = {} if call.version >= 5 else None
    return CreateTopicsResponse(
        topics=[
            _created(broker, call, plan, described)
            if isinstance(plan, TopicCreated) and failed is None
            else _not_created(name, failed if isinstance(plan, TopicCreated) else plan)
            for name, plan in planned.items()
        ]
    )


def may_create(broker: Broker, call: Call, topic: str) -> bool:
    """Tells whether the caller may create a topic: any in the cluster, or this one."""
    return broker.may_in_cluster(call, AclOperation.CREATE, audits_denial=False) or broker.may(
        call, AclOperation.CREATE, AclResource.TOPIC, topic
    )


class _Payment:
    """What a request pays with for partitions that it makes or deletes, where a quota limits that."""

    __slots__ = ("_broker", "_quota")

    def __init__(self, broker: Broker, call: Call, *, strict_since: int) -> None:
        self._broker, self._quota = broker, call.mutation_quota(strict=call.version >= strict_since)

    def take(self, partitions: int) -> None:
        """Pays; KafkaError if the client has to wait before."""
        if self._quota is not None and not self._quota.take(partitions, self._broker.clock.steady_ms()):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _THROTTLED)


def _plan_topics(
    broker: Broker, request: CreateTopicsRequest, denied: Collection[str], payment: _Payment
) -> dict[str, TopicCreated | KafkaError]:
    times = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if times[topic.name] == 1 and topic.name not in denied]
    excessive = sum(_how_many(broker, topic) for topic in once) > MOST_PARTITIONS_AT_ONCE
    collisions = Collisions(broker.store.topics)
    planned: dict[str, TopicCreated | KafkaError] = {}
    for topic in request.topics:
        try:
            if excessive:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, _DUPLICATE)
            if topic.name in denied:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOT_ALLOWED)
            plan = _plan_topic(broker, topic, collisions)
            payment.take(plan.partitions)
            planned[topic.name] = plan
        except KafkaError as error:
            planned[topic.name] = error
    return planned


def _how_many(broker: Broker, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return broker.config.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _plan_topic(broker: Broker, topic: CreatableTopic, collisions: Collisions) -> TopicCreated:
    """Returns the entry that creates a topic; KafkaError says why it cannot be created."""
    if topic.name in (names.METADATA_TOPIC, HISTORY_TOPIC):
        text = f"Creation of internal topic {topic.name} is prohibited."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    _check_name(broker, topic.name, collisions)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        text = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    overrides = {config.name: config.value for config in topic.configs if config.value is not None}
    try:
        TopicConfig.parse(overrides, broker.config.topic_defaults)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    _check_layout(broker, topic)
    return TopicCreated(topic.name, new_uuid(), _how_many(broker, topic), overrides)


def _check_name(broker: Broker, name: str, collisions: Collisions) -> None:
    if name in broker.store.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    wrong = names.what_is_wrong(name)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    other = collisions.with_existing(name)
    if other is not None:
        text = f"Topic '{name}' collides with existing topic: {other}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def _check_layout(broker: Broker, topic: CreatableTopic) -> None:
    """Checks the numbers of partitions and replicas, or the replicas that the client assigned."""
    if topic.assignments:
        _check_assignments(broker, topic)
    elif topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    elif topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    elif topic.replication_factor > 1:
        factor = topic.replication_factor
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            "cannot be reached because only 1 broker(s) are registered.",
        )


def _check_assignments(broker: Broker, topic: CreatableTopic) -> None:
    for name, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != -1:
            text = f"A manual partition assignment was specified, but {name} was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    seen: set[int] = set()
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in seen:
            text = f"Found multiple manual partition assignments for partition {index}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        seen.add(index)
        check_replicas(broker, assignment.broker_ids)
    if seen != set(range(len(seen))):
        text = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def check_replicas(broker: Broker, replicas: list[int]) -> None:
    """Raises if a partition cannot have these replicas: this node alone can have it."""
    text = None
    if not replicas:
        text = "an empty replica list"
    for node in sorted(replicas, reverse=True):  # Kafka names the lowest
        if node != broker.node_id:
            text = f"broker {node}, but no such broker is registered"
    if text is None and len(replicas) > 1:
        text = f"the broker {broker.node_id} more than once"
    if text is not None:
        text = f"The manual partition assignment includes {text}."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _created(
    broker: Broker, call: Call, plan: TopicCreated, described: _Described | None
) -> CreatableTopicResult:
    result = CreatableTopicResult(name=plan.name, topic_id=plan.topic_id, error_message=None, configs=[])
    if described is not None and not broker.may(
        call, AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, plan.name, audits_denial=False
    ):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif described is not None:
        result.num_partitions, result.replication_factor = plan.partitions, 1
        key = tuple(plan.overrides.items())  # a thousand topics of one request mostly have the same settings
        if key not in described:
            described[key] = [
                CreatableTopicConfigs(row.name, row.value, row.read_only, row.source, row.sensitive)
                for row in broker.config.describe_topic(plan.overrides)
            ]
        result.configs = described[key]
    return result


def _not_created(name: str, error: KafkaError | None) -> CreatableTopicResult:
    assert error is not None
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=[])


# --- topics that are created because a client asked for them ------------------------------------------------------


async def create_missing(broker: Broker, call: Call, wanted: Sequence[str]) -> dict[str, ErrorCode]:
    """Creates those of these topics that do not exist; returns the errors of those that could not be, by name.

    Where a quota does not let the client create one, it is told that there is none: it asks again.
    """
    failed: dict[str, ErrorCode] = {}
    entries: list[TopicCreated] = []
    room = MOST_PARTITIONS_AT_ONCE
    if names.OFFSETS_TOPIC in wanted:
        await broker.groups.ensure_topic()
    async with broker.changes:
        collisions = Collisions(broker.store.topics)
        quota = call.mutation_quota(strict=True, throttles=False)
        for name in wanted:
            if name in broker.store.topics:
                continue
            try:
                _check_name(broker, name, collisions)
                room -= broker.config.num_partitions
                if room < 0 or name in names.INTERNAL or name == names.METADATA_TOPIC:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                now_ms = broker.clock.steady_ms()
                if quota is not None and not quota.take(broker.config.num_partitions, now_ms):
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                entries.append(TopicCreated(name, new_uuid(), broker.config.num_partitions))
            except KafkaError as error:
                failed[name] = error.code
        problem = await broker.commit(entries)
    if problem is not None:
        failed.update({entry.name: problem.code for entry in entries})
    return failed


# --- DeleteTopics ----------------------------------------------------------------------------------------------


async def delete_topics(broker: Broker, call: Call) -> DeleteTopicsResponse:
    request: DeleteTopicsRequest = call.request
    asked = request.topics if call.version >= 6 else [DeleteTopicState(name) for name in request.topic_names]
    if not broker.config.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if call.version >= 3 else ErrorCode.INVALID_REQUEST
        refused = [DeletableTopicResult(topic.name, topic.topic_id, code) for topic in asked]
        return DeleteTopicsResponse(responses=refused)
    async with broker.changes:
        results = _plan_deletion(broker, call, asked)
        _pay_for_deletion(broker, results, _Payment(broker, call, strict_since=5))
        doomed = [result for result in results if result.error_code == ErrorCode.NONE]
        failed = await broker.commit([TopicDeleted(result.topic_id) for result in doomed])
    if failed is not None:
        for result in doomed:
            result.error_code, result.error_message = failed.code, failed.message
    if broker.authorizer is not None:
        # Nobody shall learn from the order which of the topics that it may not see exist; Kafka shuffles too.
        random.shuffle(results)
    return DeleteTopicsResponse(responses=results)


def _plan_deletion(
    broker: Broker, call: Call, asked: Sequence[DeleteTopicState]
) -> list[DeletableTopicResult]:
    """Returns one result per topic; those without an error are to be deleted."""
    any_topic = broker.may_in_cluster(call, AclOperation.DELETE, audits_denial=False)
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    taken: set[bytes] = set()
    results = []
    for name, topic_id in sorted(times, key=lambda key: key[0] is not None):  # ids first, as Kafka does
        result = DeletableTopicResult(name, topic_id, ErrorCode.NONE, None)
        results.append(result)
        wrong = _wrong_reference(name, topic_id, times[name, topic_id])
        if wrong is not None:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, wrong
            continue
        topic = broker.store.topics_by_id.get(topic_id) if name is None else broker.store.topics.get(name)
        if not any_topic and not _may_delete(broker, call, name, topic, result):
            result.error_code, result.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOT_ALLOWED_TOPIC
            continue
        if topic is None and name is None:
            result.error_code, result.error_message = ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID
        elif topic is None:
            result.error_code, result.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_NAME
        else:
            result.name, result.topic_id = topic.name, topic.topic_id
            if (lives := names.LIVES_IN.get(topic.name)) is not None:
                result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
                result.error_message = f"Cannot delete internal topic {topic.name}: the {lives} live in it."
            elif topic.topic_id in taken:
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = "The provided topic name maps to an ID that was already supplied."
            taken.add(topic.topic_id)
    return results


def _pay_for_deletion(broker: Broker, results: list[DeletableTopicResult], payment: _Payment) -> None:
    for result in results:
        if result.error_code == ErrorCode.NONE:
            try:
                payment.take(len(broker.store.topics_by_id[result.topic_id].partitions))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message


def _may_delete(
    broker: Broker, call: Call, name: str | None, topic: Topic | None, result: DeletableTopicResult
) -> bool:
    """Tells whether a topic is not refused. Without DESCRIBE nobody learns what a name or an id stands for."""
    if name is not None:
        if not broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, name):
            return False
        return topic is None or broker.may(call, AclOperation.DELETE, AclResource.TOPIC, name)
    if topic is None or broker.may(call, AclOperation.DELETE, AclResource.TOPIC, topic.name):
        return True
    if broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, topic.name, audits_denial=False):
        result.name = topic.name
    return False


def _wrong_reference(name: str | None, topic_id: bytes, times: int) -> str | None:
    if name is None and topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if times > 1:
        return _DUPLICATE if name is not None else "Duplicate topic id."
    return None


# --- CreatePartitions --------------------------------------------------------------------------------------------


async def create_partitions(broker: Broker, call: Call) -> CreatePartitionsResponse:
    request: CreatePartitionsRequest = call.request
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    entries: dict[str, PartitionsAdded] = {}
    room = MOST_PARTITIONS_AT_ONCE
    payment = _Payment(broker, call, strict_since=3)
    async with broker.changes:
        for topic in request.topics:
            result = results[topic.name] = CreatePartitionsTopicResult(topic.name)
            try:
                if times[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, _DUPLICATE)
                if not broker.may(call, AclOperation.ALTER, AclResource.TOPIC, topic.name):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOT_ALLOWED_TOPIC)
                added = _check_growth(broker, topic, room)
                payment.take(added)
                room -= added
                entries[topic.name] = PartitionsAdded(broker.store.topics[topic.name].topic_id, topic.count)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message or None
        failed = None if request.validate_only else await broker.commit(list(entries.values()))
    if failed is not None:
        for name in entries:
            results[name].error_code, results[name].error_message = failed.code, failed.message
    return CreatePartitionsResponse(results=list(results.values()))


def _check_growth(broker: Broker, topic: CreatePartitionsTopic, room: int) -> int:
    """Returns how many partitions are added; KafkaError says why none can be."""
    found = broker.store.topics.get(topic.name)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_NAME)
    now = len(found.partitions)
    if topic.count == now:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if topic.count < now:
        text = f"The topic {topic.name} currently has {now} partition(s); {topic.count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    if (lives := names.LIVES_IN.get(topic.name)) is not None:
        text = f"{lives.capitalize()} would not be found any more: the number of partitions of {topic.name} is fixed."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    added = topic.count - now
    if topic.assignments is not None:
        if len(topic.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), "
                f"but only {len(topic.assignments)} assignment(s) were specified.",
            )
        for assignment in topic.assignments:
            check_replicas(broker, assignment.broker_ids)
    if added > room:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    return added
