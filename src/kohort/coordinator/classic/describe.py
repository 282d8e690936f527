"""DescribeGroups and ListGroups: they do not show a group that is not yet in the log."""

from __future__ import annotations

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.effects import DescribedMember, DescribeResponse, ListedGroup, ListResponse
from kohort.coordinator.events import DescribeGroup, ListGroups
from kohort.coordinator.step_context import StepContext
from kohort.wire.consumer_protocol import PROTOCOL_TYPE
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"


def shown_state(group: Group) -> GroupState:
    """Returns the state that users see: a group whose tombstone is on its way to the log is still Empty."""
    return GroupState.EMPTY if group.state is GroupState.DEAD else group.state


def describe_group(step: StepContext, request: DescribeGroup) -> None:
    assert request.group_id is not None
    group = step.shard.groups.get(request.group_id)
    if group is None or not step.shard.durable.knows(request.group_id):
        error = ErrorCode.GROUP_ID_NOT_FOUND if request.unknown_is_error else NONE
        step.reply(request.request, DescribeResponse(error, request.group_id, GroupState.DEAD.value))
        return
    stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.metadata(group.protocol_name) if stable else b"",
            m.assignment,
        )
        for m in group.members.values()
    )
    response = DescribeResponse(
        NONE,
        group.group_id,
        shown_state(group).value,
        group.protocol_type or "",
        (group.protocol_name or "") if stable else "",
        members,
    )
    step.reply(request.request, response)


def list_groups(step: StepContext, request: ListGroups) -> None:
    states = {s.strip().lower() for s in request.states}
    types = {t.strip().lower() for t in request.types}
    found = []
    if not types or CLASSIC in types:
        for group in step.shard.groups.values():
            state = shown_state(group).value
            if (not states or state.lower() in states) and step.shard.durable.knows(group.group_id):
                found.append(ListedGroup(group.group_id, group.protocol_type or "", state))
    if not types or CONSUMER in types:
        for group_id, consumer_group in step.shard.durable.consumer_groups.items():
            state = consumer_group.state_name()
            if (not states or state.lower() in states) and group_id not in step.shard.groups:
                found.append(ListedGroup(group_id, PROTOCOL_TYPE, state, CONSUMER))
    if not types or SHARE in types:
        for group_id, share_group in step.shard.durable.share_groups.items():
            state = share_group.state_name()
            if not states or state.lower() in states:
                found.append(ListedGroup(group_id, SHARE, state, SHARE))
    step.reply(request.request, ListResponse(NONE, tuple(found)))
