"""Handles ConsumerGroupHeartbeat and ConsumerGroupDescribe, the APIs of KIP-848."""

from __future__ import annotations

from functools import lru_cache

from kohort.broker.apis.cluster import NOT_ASKED
from kohort.broker.apis.group_admin import Gather
from kohort.broker.apis.group_membership import CallReply, fresh_uuid, may_read_group
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.coordinator.effects import ConsumerHeartbeatResponse, DescribeConsumerResponse, DescribedConsumer
from kohort.coordinator.events import ConsumerGroupHeartbeat, DescribeConsumerGroup
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import consumer_group_describe as describe
from kohort.wire.messages import consumer_group_heartbeat as beat

_JOINS, _LEAVES, _IS_AWAY = 0, -1, -2
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
Named = tuple[tuple[bytes, str, tuple[int, ...]], ...]


def consumer_group_heartbeat(broker: Broker, call: Call) -> beat.ConsumerGroupHeartbeatResponse | None:
    request: beat.ConsumerGroupHeartbeatRequest = call.request
    if not may_read_group(broker, call, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.member_epoch > 0 and _says_nothing_new(request):
        client = (call.client_id or "", f"/{call.connection.address}")
        interval_ms = broker.groups.consumer_heartbeat(
            request.group_id, request.member_id, request.member_epoch, request.instance_id, client
        )
        if interval_ms is not None:
            call.reply_encoded(_encoded(call.version, request.member_id, request.member_epoch, interval_ms))
            return None
    names = request.subscribed_topic_names
    if names and not all(_may_describe(broker, call, name) for name in set(names)):
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    wrong = _what_is_wrong(request, call.version)
    if wrong is not None:
        return _refused(ErrorCode.INVALID_REQUEST, wrong)
    assignors = broker.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = f"Supported assignors: {', '.join(assignors)}."
        message = f"ServerAssignor {request.server_assignor} is not supported. {supported}"
        return _refused(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    call.park()
    broker.groups.submit(_event(broker, call, request))
    return None


def _says_nothing_new(request: beat.ConsumerGroupHeartbeatRequest) -> bool:
    return (
        request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
        and request.rack_id is None
    )


@lru_cache(maxsize=4096)
def _encoded(version: int, member_id: str, member_epoch: int, interval_ms: int) -> bytes:
    """Encodes the answer to a heartbeat that changed nothing; a member gets the same one again and again."""
    layout = codec(beat.ConsumerGroupHeartbeatResponse.API_KEY, version)
    answer = beat.ConsumerGroupHeartbeatResponse(
        0, ErrorCode.NONE, None, member_id, member_epoch, interval_ms
    )
    return b"".join(layout.encode_response(answer))


def _event(broker: Broker, call: Call, request: beat.ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerGroupHeartbeat(
        CallReply(call, _beaten),
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else frozenset(names),
        request.subscribed_topic_regex if call.version >= 1 else None,
        request.server_assignor,
        None if owned is None else {each.topic_id: each.partitions for each in owned},
        call.client_id or "",
        f"/{call.connection.address}",
        "" if request.member_id else fresh_uuid(),
        None if broker.guard is None else lambda name: _may_describe(broker, call, name, audits_denial=False),
    )


def _may_describe(broker: Broker, call: Call, topic: str, *, audits_denial: bool = True) -> bool:
    return broker.guard is None or broker.may(
        call, AclOperation.DESCRIBE, AclResource.TOPIC, topic, audits_denial=audits_denial
    )


def _what_is_wrong(request: beat.ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """Returns what is wrong with the form of a request; the words are Kafka's."""
    epoch = request.member_epoch
    for value, is_needed, what in (
        (request.member_id, version >= 1 or epoch > _JOINS or epoch == _LEAVES, "MemberId"),
        (request.group_id, True, "GroupId"),
        (request.instance_id, True, "InstanceId"),
        (request.rack_id, True, "RackId"),
    ):
        if is_needed and value is not None and not value.strip():
            return f"{what} can't be empty."
    if epoch == _JOINS:
        return _what_is_wrong_with_a_join(request)
    if epoch == _IS_AWAY and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < _IS_AWAY else None


def _what_is_wrong_with_a_join(request: beat.ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _refused(error: ErrorCode, message: str | None = None) -> beat.ConsumerGroupHeartbeatResponse:
    return beat.ConsumerGroupHeartbeatResponse(0, error, message)


def _beaten(response: ConsumerHeartbeatResponse) -> beat.ConsumerGroupHeartbeatResponse:
    assignment = None
    if response.assignment is not None:
        owned = [
            beat.TopicPartitions(topic_id, list(partitions)) for topic_id, partitions in response.assignment
        ]
        assignment = beat.Assignment(owned)
    return beat.ConsumerGroupHeartbeatResponse(
        0,
        response.error,
        response.message,
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
        assignment,
    )


# --- describe -----------------------------------------------------------------------------------------------------


def consumer_group_describe(broker: Broker, call: Call) -> None:
    request: describe.ConsumerGroupDescribeRequest = call.request

    def finish(replies: list[DescribeConsumerResponse]) -> describe.ConsumerGroupDescribeResponse:
        return describe.ConsumerGroupDescribeResponse(
            0, [_described(broker, call, reply, request.include_authorized_operations) for reply in replies]
        )

    gather = Gather(call, len(request.group_ids), finish)
    for index, group_id in enumerate(request.group_ids):
        if not broker.may(call, AclOperation.DESCRIBE, AclResource.GROUP, group_id):
            gather.slot(index)(DescribeConsumerResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id))
        elif not group_id:
            gather.slot(index)(DescribeConsumerResponse(ErrorCode.INVALID_GROUP_ID, group_id))
        else:
            broker.groups.submit(DescribeConsumerGroup(gather.slot(index), group_id))


def _described(
    broker: Broker, call: Call, reply: DescribeConsumerResponse, with_operations: bool
) -> describe.DescribedGroup:
    if not reply.error and not _may_see(broker, call, reply):
        message = "The group has described topic(s) that the client is not authorized to describe."
        return describe.DescribedGroup(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, message, reply.group_id, authorized_operations=NOT_ASKED
        )
    operations = NOT_ASKED
    if with_operations and not reply.error:
        operations = broker.allowed_operations(call, AclResource.GROUP, reply.group_id)
    return describe.DescribedGroup(
        reply.error,
        reply.message,
        reply.group_id,
        reply.state,
        reply.group_epoch,
        reply.assignment_epoch,
        reply.assignor,
        [_member(member) for member in reply.members],
        operations,
    )


def _may_see(broker: Broker, call: Call, reply: DescribeConsumerResponse) -> bool:
    """Whether the caller may know of all topics that the members own or are to own."""
    if broker.guard is None:
        return True
    names = {name for m in reply.members for owned in (m.assignment, m.target) for _, name, _ in owned}
    return all(_may_describe(broker, call, name) for name in names)


def _member(member: DescribedConsumer) -> describe.Member:
    return describe.Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.topic_names),
        member.topic_regex,
        _assignment(member.assignment),
        _assignment(member.target),
        CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(partitions: Named) -> describe.Assignment:
    return describe.Assignment([describe.TopicPartitions(t, name, list(ps)) for t, name, ps in partitions])
