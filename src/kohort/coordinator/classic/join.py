"""JoinGroup: the guards, then new members, members that come back, and static members that are replaced."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.classic.group import Group, Member, Protocols
from kohort.coordinator.classic.rebalance import (
    Cause,
    begin,
    begin_or_complete,
    complete_if_all_joined,
    current_generation,
)
from kohort.coordinator.classic.state import DEAD, PREPARING, GroupState
from kohort.coordinator.effects import JoinResponse, SyncResponse
from kohort.coordinator.events import JoinGroup
from kohort.coordinator.member_session import MemberSession
from kohort.coordinator.records import fits, group_record
from kohort.coordinator.step_context import StepContext, Write
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.group_metadata_value import GroupMetadataValue


def join_group(step: StepContext, request: JoinGroup) -> None:
    assert request.group_id is not None
    error = malformed(step, request)
    if error:
        step.refuse(request, error)
        return
    group = step.shard.groups.get(request.group_id)
    if group is not None:
        _join(step, group, request)
    elif request.member_id:
        step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        group = Group(request.group_id, state_timestamp_ms=step.now_ms)
        step.shard.groups[request.group_id] = group
        join_new(step, group, request)


def malformed(step: StepContext, request: JoinGroup) -> ErrorCode:
    """Returns what is wrong with a request, whatever the group is."""
    settings = step.settings
    if not (
        settings.group_min_session_timeout_ms
        <= request.session_timeout_ms
        <= settings.group_max_session_timeout_ms
    ):
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE if _fits_a_record(request) else ErrorCode.INVALID_REQUEST


def join_new(step: StepContext, group: Group, request: JoinGroup) -> None:
    """Joins a group that is not yet in the log; it is written even if the join has no other record."""
    before = step.shard.next_token
    _join(step, group, request)
    if step.shard.next_token == before:
        step.append(NewGroupWrite.of(group))


def _join(step: StepContext, group: Group, request: JoinGroup) -> None:
    if not _has_room(step, group, request.member_id):
        _turn_away(step, group, request)
    elif group.state is DEAD:
        step.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not group.supports(request.protocol_type, request.protocols):
        step.refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif not request.member_id:
        _join_without_id(step, group, request)
    else:
        _join_with_id(step, group, request)


def _fits_a_record(request: JoinGroup) -> bool:
    """Whether the names are short enough for a record; else the group could never become Stable."""
    texts = [request.protocol_type, request.client_id, request.client_host, request.group_instance_id or ""]
    texts += [name for name, _ in request.protocols]
    return fits("".join(texts)) or all(map(fits, texts))


def _has_room(step: StepContext, group: Group, member_id: str) -> bool:
    size = step.settings.group_max_size
    member = group.members.get(member_id)
    if group.state is PREPARING:
        # This counts the members that wait, not all members: if the limit was lowered, the last ones to rejoin are
        # turned away, and those that already wait are safe.
        return (member is not None and member.awaiting_join is not None) or group.awaiting_joins < size
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return member is not None or len(group.members) < size
    return True


def _turn_away(step: StepContext, group: Group, request: JoinGroup) -> None:
    if group.remove(request.member_id) is not None:
        step.history(group).gone(request.member_id, "the group is full")
    step.reply(request.request, JoinResponse(ErrorCode.GROUP_MAX_SIZE_REACHED))
    complete_if_all_joined(step, group)


def _distinct(protocols: Protocols) -> Protocols:
    return tuple(dict(reversed(protocols)).items())[::-1] if len(protocols) > 1 else protocols


def _because(request: JoinGroup, what: str) -> Cause:
    return Cause(request.member_id, f"{what} (it says: {request.reason})" if request.reason else what)


# ---- without an id


def _join_without_id(step: StepContext, group: Group, request: JoinGroup) -> None:
    prefix = request.client_id if request.group_instance_id is None else request.group_instance_id
    member_id = f"{prefix}-{request.fresh_uuid}"
    if not fits(member_id):
        step.refuse(request, ErrorCode.INVALID_REQUEST)
    elif request.group_instance_id is not None:
        old_id = group.static_members.get(request.group_instance_id)
        if old_id is None:
            _add(step, group, request, member_id)
        else:
            _replace(step, group, request, group.members[old_id], member_id)
    elif request.requires_member_id:
        session = group.pending_joins[member_id] = MemberSession()
        step.renew_session(group, member_id, session, request.session_timeout_ms)
        step.reply(request.request, JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(step, group, request, member_id)


def _add(step: StepContext, group: Group, request: JoinGroup, member_id: str) -> None:
    pending = group.pending_joins.get(member_id)
    member = Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        _distinct(request.protocols),
        is_new=True,
        awaiting_join=request.request,
        session=pending or MemberSession(),
    )
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.member_added = True
    group.add(member, request.protocol_type)
    step.history(group).joined(member_id)
    # It has no id or no generation yet, so it cannot send heartbeats. Still it must expire: a client that gave up and
    # came again would leave a dead member behind for ever.
    step.renew(group, member, step.settings.new_member_join_timeout_ms)
    cause = _because(request, f"{member_id} joined")
    begin_or_complete(step, group, Cause(member_id, cause.reason))


# ---- with an id


def _join_with_id(step: StepContext, group: Group, request: JoinGroup) -> None:
    member_id = request.member_id
    if member_id in group.pending_joins:
        if request.group_instance_id is not None:
            # Only dynamic members get pending ids; Kafka gives up on this with an internal error.
            step.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            _add(step, group, request, member_id)
        return
    error = group.check_member(member_id, request.group_instance_id)
    if error:
        step.refuse(request, error)
        return
    member = group.members[member_id]
    if group.state is PREPARING:
        _update(step, group, member, request)
        complete_if_all_joined(step, group)
        return
    changed = member.protocols != _distinct(request.protocols)
    match group.state:
        case GroupState.COMPLETING_REBALANCE if not changed:
            # It did not get the answer the first time.
            step.reply(request.request, current_generation(group, member))
        case GroupState.STABLE if member_id == group.leader_id:
            # The leader may see changes that no member's metadata shows, such as new partitions.
            _rejoin(step, group, member, request, f"the leader {member_id} rejoined")
        case GroupState.STABLE if not changed:
            step.reply(request.request, current_generation(group, member))
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            _rejoin(step, group, member, request, f"{member_id} changed its metadata")
        case _:
            step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)


def _rejoin(step: StepContext, group: Group, member: Member, request: JoinGroup, what: str) -> None:
    _update(step, group, member, request)
    begin_or_complete(step, group, _because(request, what))


def _update(step: StepContext, group: Group, member: Member, request: JoinGroup) -> None:
    group.update(
        member, _distinct(request.protocols), request.rebalance_timeout_ms, request.session_timeout_ms
    )
    step.park_join(group, member, request.request)
    step.history(group).joined(member.member_id)


# ---- a static member under a new id


def _replace(step: StepContext, group: Group, request: JoinGroup, member: Member, new_id: str) -> None:
    old_id, old_leader = member.member_id, group.leader_id
    undo = ReplacementWrite(
        (),
        [],
        group,
        member,
        request,
        old_id,
        new_id,
        old_leader,
        (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms),
        [],
    )
    step.answer_join(group, member, JoinResponse(ErrorCode.FENCED_INSTANCE_ID, old_id))
    step.answer_sync(member, SyncResponse(ErrorCode.FENCED_INSTANCE_ID))
    group.rename(member, new_id)
    step.renew(group, member)
    _update(step, group, member, request)
    cause = Cause(new_id, f"the static member {request.group_instance_id} came back as {new_id}")
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        undo.records = (group_record(group.group_id, group.as_record(assignments)),)
        step.append(undo)
    elif group.state is GroupState.STABLE:
        begin(step, group, Cause(new_id, f"{cause.reason} and changed the selected protocol"))
    elif group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may already have been told the old id and would assign to that.
        begin(step, group, cause)
    else:
        complete_if_all_joined(step, group)


@dataclass(slots=True)
class ReplacementWrite(Write):
    """The new id of a static member, without a rebalance; if it cannot be written the old id comes back."""

    group: Group
    member: Member
    request: JoinGroup
    old_id: str
    new_id: str
    old_leader: str | None
    before: tuple[Protocols, int, int]
    earlier: list[ReplacementWrite]
    """Failed replacements whose change is in these records too: they settle with this one."""

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        if error:
            for later, _ in step.shard.writes.values():
                if isinstance(later, ReplacementWrite) and later.group is self.group:
                    later.earlier.append(self)
                    return
        for replacement in (self, *reversed(self.earlier)):
            replacement.settle_alone(step, error)

    def settle_alone(self, step: StepContext, error: ErrorCode) -> None:
        group, member = self.group, self.member
        if group.state is not GroupState.STABLE or group.members.get(self.new_id) is not member:
            # The group moved on: the member waits with all the others, or has been answered.
            return
        if error:
            group.update(member, *self.before)
            step.answer_join(group, member, self._answer(group, error, ""))
            group.rename(member, self.old_id)
        else:
            step.answer_join(group, member, self._answer(group, error, self.new_id))
        step.renew(group, member)

    def _answer(self, group: Group, error: ErrorCode, member_id: str) -> JoinResponse:
        """Makes the answer; before v9 a leader cannot be told to skip the assignment, so its old id is the leader."""
        aware = self.request.can_skip_assignment and not error
        skip = aware and group.leader_id == self.new_id
        return JoinResponse(
            error,
            member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            (group.leader_id if aware else self.old_leader) or "",
            skip,
            group.joined_members() if skip else (),
        )


@dataclass(slots=True)
class NewGroupWrite(Write):
    """The record of a new group; if it cannot be written, the group goes and its members must join again."""

    group: Group

    @classmethod
    def of(cls, group: Group) -> NewGroupWrite:
        empty = GroupMetadataValue("", 0, None, None, group.state_timestamp_ms, ())
        return cls((group_record(group.group_id, empty),), [], group)

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        group = self.group
        # A group that has begun a generation is written with that.
        is_new = group.generation_id == 0 and group.state in (
            GroupState.EMPTY,
            GroupState.PREPARING_REBALANCE,
        )
        if error and is_new and step.shard.groups.get(group.group_id) is group:
            step.shard.dissolve(step, group, error)
