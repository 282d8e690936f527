"""SyncGroup: the leader's assignment is written before any member is told."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.classic.group import Group, Member
from kohort.coordinator.classic.rebalance import Cause, begin, give_up_assignment
from kohort.coordinator.classic.state import ANSWERS, DEAD, EMPTY, GroupState, SyncAnswer
from kohort.coordinator.effects import SyncResponse
from kohort.coordinator.events import SyncGroup
from kohort.coordinator.records import group_record
from kohort.coordinator.replay import Durable
from kohort.coordinator.step_context import StepContext, Write
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.group_metadata_value import GroupMetadataValue

NONE = ErrorCode.NONE


def sync_group(step: StepContext, request: SyncGroup) -> None:
    group = step.shard.groups.get(request.group_id or "")
    if group is None or group.state is EMPTY:
        step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    error = _check(group, request)
    if error:
        step.refuse(request, error)
        return
    match ANSWERS[group.state].sync:
        case SyncAnswer.PARK:
            _park(step, group, request)
        case SyncAnswer.GIVE:
            member = group.members[request.member_id]
            _has_synced(step, group, member)
            step.reply(request.request, _assignment(group, member))
        case error_code:
            step.refuse(request, error_code)


def _check(group: Group, request: SyncGroup) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return NONE


def _differs(theirs: str | None, ours: str | None) -> bool:
    return theirs is not None and ours is not None and theirs != ours


def _park(step: StepContext, group: Group, request: SyncGroup) -> None:
    member = group.members[request.member_id]
    if member.awaiting_sync is not None:
        step.answer_sync(member, SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = request.request
    _has_synced(step, group, member)
    # A leader that asks again while its assignment is on its way must not write another one:
    # the log would then hold an assignment that no member was told.
    if request.member_id == group.leader_id and not group.assignment_in_flight:
        group.assignment_in_flight = True
        given = dict(request.assignments)
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        written = group.as_record(assignments)
        record = group_record(group.group_id, written)
        step.append(AssignmentWrite((record,), [], group, written, member.member_id, assignments))


def _has_synced(step: StepContext, group: Group, member: Member) -> None:
    if member.member_id in group.pending_syncs:
        group.pending_syncs.discard(member.member_id)
        step.history(group).synced(member.member_id)
        if not group.pending_syncs:
            group.sync_deadline_ms = None


def _assignment(group: Group, member: Member) -> SyncResponse:
    return SyncResponse(NONE, member.assignment, group.protocol_type, group.protocol_name)


@dataclass(slots=True)
class AssignmentWrite(Write):
    """The assignment of the leader; it is ignored if the group moved on while it was written."""

    group: Group
    written: GroupMetadataValue
    leader_id: str
    assignments: dict[str, bytes]

    def replay(self, durable: Durable, base_offset: int, producer_id: int) -> None:
        # To decode what was just encoded took a third of the sync of 500 members. Only a timeout of -1 is not read back
        # as it was written.
        if any(member.rebalance_timeout_ms == -1 for member in self.written.members):
            Write.replay(self, durable, base_offset, producer_id)
        else:
            durable.apply_group(self.group.group_id, self.written)

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        group = self.group
        if (
            group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation_id != self.written.generation
        ):
            return
        group.assignment_in_flight = False
        if error:
            give_up_assignment(step, group, error)
            begin(step, group, Cause(self.leader_id, f"the assignment could not be written: {error.name}"))
            return
        for member in group.members.values():
            member.assignment = self.assignments.get(member.member_id, b"")
            if member.awaiting_sync is not None:
                step.answer_sync(member, _assignment(group, member))
                step.renew(group, member)
        group.move_to(GroupState.STABLE, step.now_ms)
        step.history(group).stable(step.now_ms, assignments_by_name(group))
        step.tell(group)


def assignments_by_name(group: Group) -> dict[str, bytes]:
    """Returns the assignments by instance id, else by member id: a static member under another id did not move."""
    return {m.group_instance_id or m.member_id: m.assignment for m in group.members.values()}
