"""The course of a rebalance: it begins, members join or are given up, and the next generation starts."""

from __future__ import annotations

from kohort.coordinator.classic.group import Group, Member
from kohort.coordinator.classic.state import CAN_REBALANCE, EMPTY, PREPARING, GroupState
from kohort.coordinator.effects import JoinResponse, SyncResponse
from kohort.coordinator.frozen import frozen
from kohort.coordinator.records import group_record
from kohort.coordinator.step_context import StepContext, Write
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE
SHORTEST_WAIT_MS = 100


@frozen
class Cause:
    """The member that made the group rebalance, and the reason in words."""

    member_id: str
    reason: str


def begin_or_complete(step: StepContext, group: Group, cause: Cause) -> None:
    """Starts a rebalance after a change; if one is running, completes it when all have joined."""
    if group.state in CAN_REBALANCE:
        begin(step, group, cause)
    else:
        complete_if_all_joined(step, group)


def begin(step: StepContext, group: Group, cause: Cause) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        give_up_assignment(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    group.sync_deadline_ms = None
    from_empty = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, step.now_ms)
    if step.history(group).interrupted():
        step.tell(group)
    step.history(group).began(step.now_ms, group.generation_id, cause.member_id, cause.reason)
    step.tell(group)
    if from_empty:
        _begin_initial_delay(step, group)
    elif group.all_joined():
        complete_join(step, group)
    else:
        step.set_join_timer(group, group.rebalance_timeout_ms)


def _begin_initial_delay(step: StepContext, group: Group) -> None:
    """Waits for more members, and longer while they come: the first members of a group seldom come alone."""
    group.delay_ms = step.settings.group_initial_rebalance_delay_ms
    group.delay_left_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
    group.member_added = False
    if group.delay_ms == 0:
        complete_join(step, group)
    else:
        step.set_join_timer(group, group.delay_ms)


def complete_if_all_joined(step: StepContext, group: Group) -> None:
    """Completes a running join unless a member is missing or the initial delay still runs."""
    if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined():
        complete_join(step, group)


def join_timer_fired(step: StepContext, group: Group, deadline_ms: int) -> None:
    if group.join_deadline_ms != deadline_ms or group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.previous_state is GroupState.EMPTY and group.member_added and group.delay_left_ms:
        group.member_added = False
        delay_ms = min(step.settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
        group.delay_left_ms = max(group.delay_left_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        step.set_join_timer(group, delay_ms)
    else:
        complete_join(step, group)


def complete_join(step: StepContext, group: Group) -> None:
    """Drops the members that did not rejoin (static ones stay), elects a leader, starts the next generation."""
    group.join_deadline_ms = None
    history = step.history(group)
    for member in [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]:
        group.remove(member.member_id)
        history.gone(member.member_id, "did not rejoin in time")
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none of them has joined: wait until they do or their sessions end.
        # A client may send a timeout of 0, which must not spin.
        step.set_join_timer(group, max(group.rebalance_timeout_ms, SHORTEST_WAIT_MS))
        return
    group.next_generation(step.now_ms)
    names = (m.group_instance_id or m.member_id for m in group.members.values())
    history.join_completed(step.now_ms, group.generation_id, names)
    step.tell(group)
    if group.state is GroupState.EMPTY:
        step.append(Write((group_record(group.group_id, group.as_record({})),), []))
        return
    for member in group.members.values():
        step.answer_join(group, member, current_generation(group, member))
        step.renew(group, member)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    step.set_sync_timer(group)


def current_generation(group: Group, member: Member) -> JoinResponse:
    """Makes the answer that tells a member of the generation; only the leader sees the other members."""
    return JoinResponse(
        NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        members=group.joined_members() if member.member_id == group.leader_id else (),
    )


def give_up_assignment(step: StepContext, group: Group, error: ErrorCode) -> None:
    """Tells the members that wait for an assignment why the generation will not become Stable."""
    group.assignment_in_flight = False
    for member in group.members.values():
        member.assignment = b""
        if step.answer_sync(member, SyncResponse(error)):
            step.renew(group, member)


def sync_timer_fired(step: StepContext, group: Group, deadline_ms: int) -> None:
    """Removes the members that have not synced one rebalance timeout after the join, from a Stable group too."""
    if group.sync_deadline_ms != deadline_ms:
        return
    group.sync_deadline_ms = None
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
        return
    late = sorted(group.pending_syncs)
    for member_id in late:
        member = group.members[member_id]
        step.answer_join(group, member, JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        step.answer_sync(member, SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        step.history(group).gone(member_id, "did not sync in time")
    begin(step, group, Cause(late[0], f"{', '.join(late)} did not sync in time"))


def session_timer_fired(step: StepContext, group: Group, member_id: str, deadline_ms: int) -> None:
    member = group.members.get(member_id)
    session = member.session if member else group.pending_joins.get(member_id)
    if session is None or session.timer_ms != deadline_ms:
        return
    session.timer_ms = None
    if session.deadline_ms > step.now_ms:
        step.set_session_timer(group, member_id, session)
    elif member is None:
        group.remove(member_id)
        complete_if_members_joined(step, group)
    elif not member.needs_no_heartbeat():
        _expire(step, group, member)


def asked_for(step: StepContext, group: Group, reason: str) -> None:
    if group.members and group.state in CAN_REBALANCE:
        begin(step, group, Cause("", reason))


def end_session(step: StepContext, group: Group, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        _expire(step, group, member)


def _expire(step: StepContext, group: Group, member: Member) -> None:
    silent_ms = step.now_ms - member.session.heard_ms
    if member.awaiting_join is not None:
        why = f"its JoinGroup was parked for {silent_ms} ms"
    else:
        why = f"session expired after {silent_ms} ms without a heartbeat"
    drop_member(step, group, member, why)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_members_joined(step, group)
    elif group.state in CAN_REBALANCE:
        begin(step, group, Cause(member.member_id, f"{member.member_id}: {why}"))


def complete_if_members_joined(step: StepContext, group: Group) -> None:
    """Completes a join after a member was given up; as in Kafka, this ends even the initial delay."""
    if group.state is GroupState.PREPARING_REBALANCE and group.all_joined():
        complete_join(step, group)


def drop_member(step: StepContext, group: Group, member: Member, why: str) -> None:
    """Removes a member and answers its parked join or sync; it may come back as a new member."""
    step.answer_join(group, member, JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    step.answer_sync(member, SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    step.history(group).gone(member.member_id, why)
