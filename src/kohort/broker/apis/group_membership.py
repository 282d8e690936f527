"""Handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup: from messages to the coordinator and back."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.coordinator.effects import (
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    SyncResponse,
)
from kohort.coordinator.events import Heartbeat, JoinGroup, LeaveGroup, Leaver, SyncGroup
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import heartbeat as beat
from kohort.wire.messages import join_group as join
from kohort.wire.messages import leave_group as leave
from kohort.wire.messages import sync_group as sync
from kohort.wire.struct import Message

_NO_GENERATION = -1
# Requests ask by these; a look-up in an Enum is slow.
_READ = AclOperation.READ
_GROUP = AclResource.GROUP
_PROTOCOL = attrgetter("name", "metadata")
_ASSIGNMENT = attrgetter("member_id", "assignment")


class CallReply:
    """Answers a call with the coordinator's response, converted; the token that travels with an event."""

    __slots__ = ("call", "convert")

    def __init__(self, call: Call, convert: Callable[[Any], Message]) -> None:
        self.call, self.convert = call, convert

    def __call__(self, response: Any) -> None:
        self.call.reply(self.convert(response))


def fresh_uuid() -> str:
    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))


def may_read_group(broker: Broker, call: Call, group_id: str) -> bool:
    return (
        broker.guard is None
        or (_READ, _GROUP, group_id) in call.connection.granted  # heartbeats ask it again and again
        or broker.may(call, _READ, _GROUP, group_id)
    )


def join_group(broker: Broker, call: Call) -> join.JoinGroupResponse | None:
    request: join.JoinGroupRequest = call.request
    if not may_read_group(broker, call, request.group_id):
        return join.JoinGroupResponse(
            0,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            _NO_GENERATION,
            None if call.version >= 7 else "",
            None if call.version >= 7 else "",
            "",
            False,
            "",
        )
    version = call.version
    call.park()
    broker.groups.submit(
        JoinGroup(
            CallReply(call, _joined),
            request.group_id,
            request.member_id,
            request.protocol_type,
            tuple(map(_PROTOCOL, request.protocols)),
            request.session_timeout_ms,
            request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
            "" if request.member_id else fresh_uuid(),  # only a join without an id needs one
            request.group_instance_id,
            call.client_id or "",
            f"/{call.connection.address}",
            requires_member_id=version >= 4,
            can_skip_assignment=version >= 9,
            reason=request.reason,
        )
    )
    return None


def _joined(response: JoinResponse) -> join.JoinGroupResponse:
    return join.JoinGroupResponse(
        0,
        response.error,
        response.generation_id,
        response.protocol_type,
        response.protocol_name,
        response.leader,
        response.skip_assignment,
        response.member_id,
        [join.JoinGroupResponseMember(*member) for member in response.members] if response.members else [],
    )


def sync_group(broker: Broker, call: Call) -> sync.SyncGroupResponse | None:
    request: sync.SyncGroupRequest = call.request
    if call.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return sync.SyncGroupResponse(0, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not may_read_group(broker, call, request.group_id):
        return sync.SyncGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    call.park()
    broker.groups.submit(
        SyncGroup(
            CallReply(call, _synced),
            request.group_id,
            request.member_id,
            request.generation_id,
            tuple(map(_ASSIGNMENT, request.assignments)),
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
        )
    )
    return None


def _synced(response: SyncResponse) -> sync.SyncGroupResponse:
    return sync.SyncGroupResponse(
        0, response.error, response.protocol_type, response.protocol_name, response.assignment
    )


def heartbeat(broker: Broker, call: Call) -> beat.HeartbeatResponse | None:
    request: beat.HeartbeatRequest = call.request
    if not may_read_group(broker, call, request.group_id):
        return beat.HeartbeatResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = broker.groups
    if request.group_instance_id is None:
        error = groups.heartbeat(request.group_id, request.member_id, request.generation_id)
        if error is not None:
            call.reply_encoded(_encoded(call.version, error))
            return None
    groups.submit(
        Heartbeat(
            CallReply(call, _beaten),
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
        )
    )
    return None


def _beaten(response: HeartbeatResponse) -> beat.HeartbeatResponse:
    return beat.HeartbeatResponse(0, response.error)


@cache
def _encoded(version: int, error: ErrorCode) -> bytes:
    """Encodes an answer to a heartbeat; there are so few that each is encoded once."""
    layout = codec(beat.HeartbeatResponse.API_KEY, version)
    return b"".join(layout.encode_response(beat.HeartbeatResponse(0, error)))


def leave_group(broker: Broker, call: Call) -> leave.LeaveGroupResponse | None:
    request: leave.LeaveGroupRequest = call.request
    if not may_read_group(broker, call, request.group_id):
        return leave.LeaveGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if call.version >= 3:
        leavers = tuple(Leaver(m.member_id, m.group_instance_id, m.reason) for m in request.members)
    else:
        leavers = (Leaver(request.member_id),)
    call.park()
    answer = CallReply(call, _left if call.version >= 3 else _left_alone)
    broker.groups.submit(LeaveGroup(answer, request.group_id, leavers))
    return None


def _left(response: LeaveResponse) -> leave.LeaveGroupResponse:
    members = [leave.MemberResponse(*member) for member in response.members]
    return leave.LeaveGroupResponse(0, response.error, members)


def _left_alone(response: LeaveResponse) -> leave.LeaveGroupResponse:
    """Returns the error of the one member, which is the answer before v3."""
    only = response.members[0].error if response.members else ErrorCode.NONE
    return leave.LeaveGroupResponse(0, response.error or only)
