"""Handles DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets.

The group coordinator knows which partitions of a group have state, the share coordinator knows the state: a request
goes to the one, then to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.broker.apis.group_admin import Gather
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.coordinator.effects import DeleteResponse, SharePartitionsResponse
from kohort.coordinator.events import (
    AlterSharePartitions,
    DeleteGroup,
    FinishShareDeletion,
    ListSharePartitions,
)
from kohort.security.acls import AclOperation, AclResource
from kohort.share.state import NO_OFFSET
from kohort.share.state_events import StateAnswer
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import alter_share_group_offsets as alter
from kohort.wire.messages import delete_share_group_offsets as delete
from kohort.wire.messages import describe_share_group_offsets as describe
from kohort.wire.struct import ZERO_UUID

if TYPE_CHECKING:
    from kohort.broker.share.states import Place

_E = ErrorCode
_READ, _DESCRIBE, _DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
_GROUP, _TOPIC = AclResource.GROUP, AclResource.TOPIC


# --- describe --------------------------------------------------------------------------------------


def describe_share_group_offsets(broker: Broker, call: Call) -> None:
    request: describe.DescribeShareGroupOffsetsRequest = call.request

    def finish(groups: list[describe.DescribeShareGroupOffsetsResponseGroup]) -> object:
        return describe.DescribeShareGroupOffsetsResponse(groups=groups)

    gather = Gather(call, len(request.groups), finish)  # type: ignore[arg-type]
    for index, group in enumerate(request.groups):
        _describe_group(broker, call, group, gather.slot(index))


def _describe_group(
    broker: Broker,
    call: Call,
    asked: describe.DescribeShareGroupOffsetsRequestGroup,
    done: Callable[[describe.DescribeShareGroupOffsetsResponseGroup], None],
) -> None:
    group_id = asked.group_id
    answer = describe.DescribeShareGroupOffsetsResponseGroup(group_id)
    if not broker.may(call, _DESCRIBE, _GROUP, group_id):
        answer.error_code = _E.GROUP_AUTHORIZATION_FAILED
        done(answer)
        return
    topics = asked.topics

    def known(reply: SharePartitionsResponse) -> None:
        if reply.error:
            answer.error_code = reply.error
            answer.error_message = f"Group {group_id} not found."
            done(answer)
            return
        places = _all_places(broker, call, reply) if topics is None else _named(broker, call, topics, answer)
        broker.share_states.summarize_all(group_id, places, summarized)

    def summarized(states: dict[Place, StateAnswer]) -> None:
        _add_summaries(broker, states, answer)
        done(answer)

    broker.groups.submit(ListSharePartitions(known, group_id))


def _all_places(broker: Broker, call: Call, reply: SharePartitionsResponse) -> list[Place]:
    found = []
    for topic_id, partitions in sorted(reply.partitions.items()):
        topic = broker.store.topics_by_id.get(topic_id)
        if topic is not None and broker.may(call, _DESCRIBE, _TOPIC, topic.name, audits_denial=False):
            found += [(topic_id, index) for index in sorted(partitions)]
    return found


def _named(
    broker: Broker,
    call: Call,
    topics: list[describe.DescribeShareGroupOffsetsRequestTopic],
    answer: describe.DescribeShareGroupOffsetsResponseGroup,
) -> list[Place]:
    """Returns the partitions that were asked for; those that may not be described are answered here."""
    found: list[Place] = []
    for asked in topics:
        topic = broker.store.topics.get(asked.topic_name)
        error = _E.NONE
        if not broker.may(call, _DESCRIBE, _TOPIC, asked.topic_name):
            error = _E.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            error = _E.UNKNOWN_TOPIC_OR_PARTITION
        if error or topic is None:
            partitions = [
                describe.DescribeShareGroupOffsetsResponsePartition(index, NO_OFFSET, 0, -1, error)
                for index in asked.partitions
            ]
            answer.topics.append(
                describe.DescribeShareGroupOffsetsResponseTopic(asked.topic_name, ZERO_UUID, partitions)
            )
        else:
            found += [(topic.topic_id, index) for index in asked.partitions]
    return found


def _add_summaries(
    broker: Broker,
    states: dict[Place, StateAnswer],
    answer: describe.DescribeShareGroupOffsetsResponseGroup,
) -> None:
    topics: dict[bytes, describe.DescribeShareGroupOffsetsResponseTopic] = {}
    for (topic_id, index), found in sorted(states.items(), key=lambda each: each[0]):
        topic = broker.store.topics_by_id.get(topic_id)
        if topic is None:
            continue
        if topic_id not in topics:
            topics[topic_id] = describe.DescribeShareGroupOffsetsResponseTopic(topic.name, topic_id)
            answer.topics.append(topics[topic_id])
        data = describe.DescribeShareGroupOffsetsResponsePartition(index, NO_OFFSET, 0, -1, found.error)
        if found.state is not None:
            data.start_offset = found.state.start_offset
            data.leader_epoch = found.state.leader_epoch
            data.lag = _lag(broker, topic_id, index, found)
        topics[topic_id].partitions.append(data)


def _lag(broker: Broker, topic_id: bytes, index: int, found: StateAnswer) -> int:
    """Returns how many records are not done yet; -1 if the group has not begun to read the partition."""
    partition = broker.partition_by_id(topic_id, index)
    state = found.state
    if isinstance(partition, ErrorCode) or state is None or state.start_offset == NO_OFFSET:
        return -1
    # The log may begin after the start, if records were deleted since the state was written.
    lag = partition.high_watermark - state.start_offset - max(state.delivery_complete_count, 0)
    return max(min(lag, partition.high_watermark - partition.log_start_offset), 0)


# --- alter -----------------------------------------------------------------------------------------


def alter_share_group_offsets(broker: Broker, call: Call) -> alter.AlterShareGroupOffsetsResponse | None:
    request: alter.AlterShareGroupOffsetsRequest = call.request
    group_id = request.group_id
    if not broker.may(call, _READ, _GROUP, group_id):
        return alter.AlterShareGroupOffsetsResponse(error_code=_E.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return alter.AlterShareGroupOffsetsResponse(error_code=_E.INVALID_GROUP_ID)
    answer = alter.AlterShareGroupOffsetsResponse()
    offsets: dict[Place, int] = {}
    results: dict[Place, alter.AlterShareGroupOffsetsResponsePartition] = {}
    for topic in request.topics:
        _check_topic(broker, call, topic, answer, offsets, results)

    def begun(reply: SharePartitionsResponse) -> None:
        if reply.error:
            call.reply(alter.AlterShareGroupOffsetsResponse(error_code=reply.error))
        else:
            broker.share_states.initialize_all(group_id, reply.group_epoch, offsets, altered)

    def altered(errors: dict[Place, ErrorCode]) -> None:
        broker.groups.tell_initialized(group_id, errors)
        for place, error in errors.items():
            results[place].error_code = error
        call.reply(answer)

    call.park()
    partitions: dict[bytes, set[int]] = {}
    for topic_id, index in offsets:
        partitions.setdefault(topic_id, set()).add(index)
    named = {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
    broker.groups.submit(AlterSharePartitions(begun, group_id, named))
    return None


def _check_topic(
    broker: Broker,
    call: Call,
    asked: alter.AlterShareGroupOffsetsRequestTopic,
    answer: alter.AlterShareGroupOffsetsResponse,
    offsets: dict[Place, int],
    results: dict[Place, alter.AlterShareGroupOffsetsResponsePartition],
) -> None:
    topic = broker.store.topics.get(asked.topic_name)
    is_allowed = broker.may(call, _READ, _TOPIC, asked.topic_name)
    told = alter.AlterShareGroupOffsetsResponseTopic(
        asked.topic_name, ZERO_UUID if topic is None else topic.topic_id
    )
    answer.responses.append(told)
    for each in asked.partitions:
        result = alter.AlterShareGroupOffsetsResponsePartition(each.partition_index)
        told.partitions.append(result)
        if not is_allowed:
            result.error_code = _E.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= each.partition_index < len(topic.partitions):
            result.error_code = _E.UNKNOWN_TOPIC_OR_PARTITION
        else:
            place = (topic.topic_id, each.partition_index)
            offsets[place], results[place] = each.start_offset, result


# --- delete ----------------------------------------------------------------------------------------


def delete_share_group_offsets(broker: Broker, call: Call) -> delete.DeleteShareGroupOffsetsResponse | None:
    request: delete.DeleteShareGroupOffsetsRequest = call.request
    group_id = request.group_id
    if not broker.may(call, _DELETE, _GROUP, group_id):
        return delete.DeleteShareGroupOffsetsResponse(error_code=_E.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return delete.DeleteShareGroupOffsetsResponse(error_code=_E.INVALID_GROUP_ID)
    answer = delete.DeleteShareGroupOffsetsResponse()
    results: dict[bytes, delete.DeleteShareGroupOffsetsResponseTopic] = {}
    for asked in request.topics:
        topic = broker.store.topics.get(asked.topic_name)
        result = delete.DeleteShareGroupOffsetsResponseTopic(asked.topic_name)
        answer.responses.append(result)
        if not broker.may(call, _READ, _TOPIC, asked.topic_name):
            result.error_code = _E.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            result.error_code = _E.UNKNOWN_TOPIC_OR_PARTITION
        else:
            result.topic_id = topic.topic_id
            results[topic.topic_id] = result

    def begun(reply: SharePartitionsResponse) -> None:
        if reply.error:
            call.reply(delete.DeleteShareGroupOffsetsResponse(error_code=reply.error))
            return
        for topic_id in results.keys() - reply.partitions.keys():
            results[topic_id].error_code = _E.UNKNOWN_TOPIC_OR_PARTITION
            results[topic_id].error_message = "There is no offset information to delete."
        places = [(topic_id, index) for topic_id, indexes in reply.partitions.items() for index in indexes]
        broker.share_states.delete_all(group_id, places, deleted)

    def deleted(errors: dict[Place, ErrorCode]) -> None:
        for (topic_id, _), error in errors.items():
            results[topic_id].error_code = results[topic_id].error_code or error
        gone = frozenset(topic_id for topic_id, _ in errors if not results[topic_id].error_code)
        if gone:
            broker.groups.tell_share_state(FinishShareDeletion(group_id, gone))
        call.reply(answer)

    call.park()
    named = {topic_id: frozenset[int]() for topic_id in results}
    broker.groups.submit(AlterSharePartitions(begun, group_id, named, is_deletion=True))
    return None


def delete_share_group(broker: Broker, group_id: str, done: Callable[[DeleteResponse], None]) -> None:
    """Deletes a share group without members: the state of its partitions first, then the group."""

    def known(reply: SharePartitionsResponse) -> None:
        if reply.error or reply.has_members:
            done(DeleteResponse(reply.error or _E.NON_EMPTY_GROUP, group_id))
            return
        places = [(topic_id, index) for topic_id, indexes in reply.partitions.items() for index in indexes]
        broker.share_states.delete_all(group_id, places, deleted)

    def deleted(errors: dict[Place, ErrorCode]) -> None:
        wrong = [e for e in errors.values() if e not in (_E.NONE, _E.UNKNOWN_TOPIC_OR_PARTITION)]
        if wrong:
            done(DeleteResponse(wrong[0], group_id))
        else:
            broker.groups.submit(DeleteGroup(done, group_id))

    broker.groups.submit(ListSharePartitions(known, group_id))
