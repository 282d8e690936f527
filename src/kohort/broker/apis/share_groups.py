"""Handles ShareGroupHeartbeat and ShareGroupDescribe, the membership of KIP-932."""

from __future__ import annotations

from kohort.broker.apis.cluster import NOT_ASKED
from kohort.broker.apis.group_admin import Gather
from kohort.broker.apis.group_membership import CallReply, may_read_group
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.coordinator.effects import DescribedShareMember, DescribeShareResponse, ShareHeartbeatResponse
from kohort.coordinator.events import DescribeShareGroup, ShareGroupHeartbeat
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import share_group_describe as describe
from kohort.wire.messages import share_group_heartbeat as beat

_JOINS, _LEAVES = 0, -1
ASSIGNOR = "simple"


def share_group_heartbeat(broker: Broker, call: Call) -> beat.ShareGroupHeartbeatResponse | None:
    request: beat.ShareGroupHeartbeatRequest = call.request
    if not may_read_group(broker, call, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names
    if names and not all(
        broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, name) for name in set(names)
    ):
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    wrong = _what_is_wrong(request)
    if wrong is not None:
        return _refused(ErrorCode.INVALID_REQUEST, wrong)
    call.park()
    broker.groups.submit(
        ShareGroupHeartbeat(
            CallReply(call, _beaten),
            request.group_id,
            request.member_id,
            request.member_epoch,
            request.rack_id,
            None if names is None else frozenset(names),
            call.client_id or "",
            f"/{call.connection.address}",
        )
    )
    return None


def _what_is_wrong(request: beat.ShareGroupHeartbeatRequest) -> str | None:
    """Returns what is wrong with the form of a request; the words are Kafka's."""
    for value, what in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            return f"{what} can't be empty."
    if request.member_epoch == _JOINS and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if request.member_epoch < _LEAVES else None


def _refused(error: ErrorCode, message: str | None = None) -> beat.ShareGroupHeartbeatResponse:
    return beat.ShareGroupHeartbeatResponse(error_code=error, error_message=message)


def _beaten(reply: ShareHeartbeatResponse) -> beat.ShareGroupHeartbeatResponse:
    answer = beat.ShareGroupHeartbeatResponse(
        0, reply.error, reply.message, reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms
    )
    if reply.assignment is not None:
        topics = [beat.TopicPartitions(topic_id, list(indexes)) for topic_id, indexes in reply.assignment]
        answer.assignment = beat.Assignment(topics)
    return answer


def share_group_describe(broker: Broker, call: Call) -> None:
    request: describe.ShareGroupDescribeRequest = call.request

    def described(reply: DescribeShareResponse) -> describe.DescribedGroup:
        operations = NOT_ASKED
        if request.include_authorized_operations and not reply.error:
            operations = broker.allowed_operations(call, AclResource.GROUP, reply.group_id)
        return _described(broker, call, reply, operations)

    def finish(replies: list[DescribeShareResponse]) -> describe.ShareGroupDescribeResponse:
        return describe.ShareGroupDescribeResponse(groups=[described(reply) for reply in replies])

    gather = Gather(call, len(request.group_ids), finish)
    for index, group_id in enumerate(request.group_ids):
        if not broker.may(call, AclOperation.DESCRIBE, AclResource.GROUP, group_id):
            gather.slot(index)(DescribeShareResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id))
        else:
            broker.groups.submit(DescribeShareGroup(gather.slot(index), group_id))


def _described(
    broker: Broker, call: Call, reply: DescribeShareResponse, operations: int
) -> describe.DescribedGroup:
    if reply.error:
        return describe.DescribedGroup(reply.error, reply.message, reply.group_id)
    names = {name for member in reply.members for name in member.topic_names}
    names |= {name for member in reply.members for _, name, _ in member.assignment}
    if not all(broker.may(call, AclOperation.DESCRIBE, AclResource.TOPIC, name) for name in names):
        message = "The group has described topic(s) that the client is not authorized to describe."
        return describe.DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message, reply.group_id)
    return describe.DescribedGroup(
        0,
        None,
        reply.group_id,
        reply.state,
        reply.group_epoch,
        reply.assignment_epoch,
        ASSIGNOR,
        [_member(member) for member in reply.members],
        operations,
    )


def _member(member: DescribedShareMember) -> describe.Member:
    topics = [
        describe.TopicPartitions(topic_id, name, list(partitions))
        for topic_id, name, partitions in member.assignment
    ]
    return describe.Member(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.topic_names),
        describe.Assignment(topics),
    )
