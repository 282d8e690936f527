"""Heartbeat and LeaveGroup."""

from __future__ import annotations

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.rebalance import Cause, begin, complete_if_all_joined, drop_member
from kohort.coordinator.classic.state import ANSWERS, CAN_REBALANCE, DEAD, State
from kohort.coordinator.effects import HeartbeatResponse, LeaveResponse, Left
from kohort.coordinator.events import Heartbeat, LeaveGroup, Leaver
from kohort.coordinator.turn import Turn
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE


def in_time(group: Group, member_id: str, generation_id: int, now_ms: int) -> ErrorCode | None:
    """The answer to a heartbeat as nearly all are: it moves a deadline and needs no other timer; else None.

    Consumers send these all day long, so they are spared an event and its effects (see `Runtime.heartbeat`).
    """
    member = group.members.get(member_id)
    if member is None or generation_id != group.generation_id or group.state is DEAD:
        return None
    if not member.session.moved(now_ms, member.session_timeout_ms):
        return None
    return ANSWERS[group.state].heartbeat


def heartbeat(turn: Turn, request: Heartbeat) -> None:
    group = turn.shard.groups.get(request.group_id or "")
    if group is None:
        turn.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    if request.group_instance_id is None:
        answer = in_time(group, request.member_id, request.generation_id, turn.now_ms)
        if answer is not None:
            turn.reply(request.request, HeartbeatResponse(answer))
            return
    in_full(turn, group, request)


def in_full(turn: Turn, group: Group, request: Heartbeat) -> None:
    if group.state is not DEAD:
        error = group.check_member(request.member_id, request.group_instance_id)
        if not error and request.generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        if error:
            turn.refuse(request, error)
            return
        turn.renew(group, group.members[request.member_id])
    turn.reply(request.request, HeartbeatResponse(ANSWERS[group.state].heartbeat))


def leave_group(turn: Turn, request: LeaveGroup) -> None:
    group = turn.shard.groups.get(request.group_id or "")
    if group is None:
        unknown = tuple(
            Left(m.member_id, m.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for m in request.members
        )
        turn.reply(request.request, LeaveResponse(NONE, unknown))
        return
    if group.state is State.DEAD:
        turn.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    before = turn.shard.next_token
    gone: list[tuple[str, str]] = []
    answers = tuple(
        Left(leaver.member_id, leaver.group_instance_id, _leave(turn, group, leaver, gone))
        for leaver in request.members
    )
    if gone and group.state in CAN_REBALANCE and group.state is not State.EMPTY:
        begin(turn, group, Cause(gone[0][0], "; ".join(f"{who} {why}" for who, why in gone)))
    else:
        complete_if_all_joined(turn, group)
    turn.reply_when_written(request, LeaveResponse(NONE, answers), before=before)


def _leave(turn: Turn, group: Group, leaver: Leaver, gone: list[tuple[str, str]]) -> ErrorCode:
    member_id = leaver.member_id
    if not member_id:
        # An administrator names the instance alone.
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
    drop_member(turn, group, group.members[member_id], why)
    gone.append((member_id, why))
    return NONE
