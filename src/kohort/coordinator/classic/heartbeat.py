"""Heartbeat and LeaveGroup: a member says that it is there, or that it goes."""

from __future__ import annotations

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.rebalance import Cause, begin, complete_if_all_joined, drop_member
from kohort.coordinator.classic.state import ANSWERS, CAN_REBALANCE, DEAD, GroupState
from kohort.coordinator.effects import HeartbeatResponse, LeaveResponse, LeaveResult
from kohort.coordinator.events import Heartbeat, LeaveGroup, Leaver
from kohort.coordinator.step_context import StepContext
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE


def in_time(group: Group, member_id: str, generation_id: int, now_ms: int) -> ErrorCode | None:
    """Answers a heartbeat of a dynamic member if it only moves a deadline; None, and nothing changes, if it does not.

    Nearly all heartbeats are so. This is the short way of `Shard.heartbeat_in_time`, and the event tries it first.
    """
    member = group.members.get(member_id)
    if member is None or generation_id != group.generation_id or group.state is DEAD:
        return None
    if not member.session.moved(now_ms, member.session_timeout_ms):
        return None
    return ANSWERS[group.state].heartbeat


def heartbeat(step: StepContext, request: Heartbeat) -> None:
    group = step.shard.groups.get(request.group_id or "")
    if group is None:
        step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    if request.group_instance_id is None:
        answer = in_time(group, request.member_id, request.generation_id, step.now_ms)
        if answer is not None:
            step.reply(request.request, HeartbeatResponse(answer))
            return
    in_full(step, group, request)


def in_full(step: StepContext, group: Group, request: Heartbeat) -> None:
    """Answers any heartbeat."""
    if group.state is not DEAD:
        error = group.check_member(request.member_id, request.group_instance_id)
        if not error and request.generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        if error:
            step.refuse(request, error)
            return
        step.renew(group, group.members[request.member_id])
    step.reply(request.request, HeartbeatResponse(ANSWERS[group.state].heartbeat))


def leave_group(step: StepContext, request: LeaveGroup) -> None:
    group = step.shard.groups.get(request.group_id or "")
    if group is None:
        unknown = tuple(
            LeaveResult(m.member_id, m.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for m in request.members
        )
        step.reply(request.request, LeaveResponse(NONE, unknown))
        return
    if group.state is GroupState.DEAD:
        step.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    before = step.shard.next_token
    gone: list[tuple[str, str]] = []
    answers = tuple(
        LeaveResult(leaver.member_id, leaver.group_instance_id, _leave(step, group, leaver, gone))
        for leaver in request.members
    )
    if gone and group.state in CAN_REBALANCE and group.state is not GroupState.EMPTY:
        begin(step, group, Cause(gone[0][0], "; ".join(f"{who} {why}" for who, why in gone)))
    else:
        complete_if_all_joined(step, group)
    step.reply_when_written(request, LeaveResponse(NONE, answers), before=before)


def _leave(step: StepContext, group: Group, leaver: Leaver, gone: list[tuple[str, str]]) -> ErrorCode:
    member_id = leaver.member_id
    if not member_id:
        # An administrator names only the instance.
        member_id = group.static_members.get(leaver.group_instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_joins:
        group.remove(member_id)
        return NONE
    else:
        error = group.check_member(member_id, leaver.group_instance_id)
        if error:
            return error
    why = f"left: {leaver.reason}" if leaver.reason else "left"
    drop_member(step, group, group.members[member_id], why)
    gone.append((member_id, why))
    return NONE
