"""ShareGroupHeartbeat: a member joins, stays, changes what it subscribes to, or leaves.

A member never has to give up anything: it jumps to the target, which other members may share. Only partitions that
have state in the share coordinator are assigned; a heartbeat that finds others asks for their state, and a later one
assigns them.
"""

from __future__ import annotations

from kohort.coordinator.assignors import assign_simple
from kohort.coordinator.assignors.spec import AssignorMember, GroupSpec
from kohort.coordinator.classic.rebalance import Cause
from kohort.coordinator.effects import ShareHeartbeatResponse
from kohort.coordinator.events import ShareGroupHeartbeat, ShareStateInitialized
from kohort.coordinator.modern.state import AssignmentChange, SubscriptionChange
from kohort.coordinator.modern.target import NOTHING, target_changes, target_is_due
from kohort.coordinator.modern.topics import topic_ids
from kohort.coordinator.share.draft import ShareDraft, end_share_member, partitions_of
from kohort.coordinator.share.group import ShareGroup
from kohort.coordinator.share.state import (
    LEAVING,
    NamedTopicPartitions,
    ShareGroupMember,
    StatePartitionsChange,
    StateTopics,
)
from kohort.coordinator.step_context import StepContext
from kohort.wire.errors import ErrorCode

RETRY_MS = 30_000
"""After this time the state of a partition is asked for again."""
_SOON_MS = 200
"""The heartbeat interval while the state of partitions is being made: the assignment follows at once."""


def share_heartbeat(step: StepContext, request: ShareGroupHeartbeat) -> None:
    refused = _leave(step, request) if request.member_epoch == LEAVING else _beat(step, request)
    if refused is not None:
        step.reply(request.request, refused)


def _refusal(error: ErrorCode, message: str) -> ShareHeartbeatResponse:
    return ShareHeartbeatResponse(error, message)


# ---- staying


def _beat(step: StepContext, request: ShareGroupHeartbeat) -> ShareHeartbeatResponse | None:
    shard, group_id = step.shard, request.group_id or ""
    group = shard.share_groups.get(group_id)
    if group is None:
        if shard.group_with_offsets(group_id) is not None:
            return _refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if request.member_epoch != 0:
            return _refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        group = ShareGroup(group_id)
    refused = _refused(step, group, request)
    if refused is not None:
        return refused
    shard.share_groups[group_id] = group
    draft = ShareDraft(step, group)
    member = group.members.get(request.member_id) or ShareGroupMember(request.member_id)
    subscribes_anew = _update(draft, request, member)
    _compute_target_if_due(draft)
    now = _move_to_target(draft, request.member_id, subscribes_anew)
    _ask_for_state(draft)
    config = shard.config_of(group_id)
    group.renew(step, request.member_id, config.share_session_timeout_ms)
    draft.write()
    assignment = None
    if request.member_epoch == 0 or request.topic_names is not None or now.assigned != member.assigned:
        assignment = tuple((t, tuple(sorted(partitions))) for t, partitions in sorted(now.assigned.items()))
    interval_ms = config.share_heartbeat_interval_ms
    if group.state_partitions.initializing or group.has_unassigned():
        interval_ms = min(interval_ms, _SOON_MS)
    response = ShareHeartbeatResponse(
        ErrorCode.NONE, None, request.member_id, now.epoch, interval_ms, assignment
    )
    group.answer(step, request, response)
    return None


def _refused(
    step: StepContext, group: ShareGroup, request: ShareGroupHeartbeat
) -> ShareHeartbeatResponse | None:
    member_id, epoch = request.member_id, request.member_epoch
    most = step.settings.group_share_max_size
    member = group.members.get(member_id)
    if member is None:
        if len(group.members) >= most:
            message = f"The share group has reached its maximum capacity of {most} members."
            return _refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        if epoch == 0:
            return None
        message = f"Member {member_id} is not a member of group {group.group_id}."
        return _refusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
    if epoch in (0, member.epoch) or (epoch < member.epoch and epoch == member.previous_epoch):
        return None  # with the previous epoch the answer with the newest one was lost
    message = (
        f"The share group member has a {'greater' if epoch > member.epoch else 'smaller'} member epoch ({epoch}) than "
        f"the one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin."
    )
    return _refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _update(draft: ShareDraft, request: ShareGroupHeartbeat, member: ShareGroupMember) -> bool:
    """Writes a member that has changed, and begins the next epoch if others must know; whether it subscribes anew."""
    group = draft.group
    is_new = member.member_id not in group.members
    updated = member._replace(
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        topic_names=request.topic_names if request.topic_names is not None else member.topic_names,
        client_id=request.client_id,
        client_host=request.client_host,
    )
    if is_new or updated != member:
        draft.add(SubscriptionChange(member.member_id, updated.subscription_value()))
    name = member.member_id
    cause = None
    if updated.topic_names != member.topic_names:
        cause = Cause(name, f"{name} joined" if is_new else f"{name} changed its subscription")
    elif group.assignment_epoch >= group.group_epoch and group.has_unassigned():
        cause = Cause("", "partitions can be assigned that had no state before")
    elif group.refresh_due and draft.topics_hash() != group.metadata_hash:
        cause = Cause("", "the topics that the group subscribes to have changed")
    group.refresh_due = False
    if cause is not None:
        draft.bump(cause)
    return updated.topic_names != member.topic_names


def _compute_target_if_due(draft: ShareDraft) -> None:
    group, step = draft.group, draft.step
    interval_ms = step.shard.config_of(group.group_id).share_assignment_interval_ms
    if target_is_due(group, interval_ms, step.now_ms):
        computed = assign_simple(_spec_of(step, group))
        for change in target_changes(group, group.members, computed, step.now_ms):
            draft.add(change)


def _spec_of(step: StepContext, group: ShareGroup) -> GroupSpec:
    topics = step.shard.topics
    members = {
        member_id: AssignorMember(
            None,
            member.rack_id,
            topic_ids(member.topic_names, topics),
            group.targets.get(member_id, NOTHING),
        )
        for member_id, member in group.members.items()
    }
    found = (
        (topic_id, topics.topic_by_id(topic_id))
        for member in members.values()
        for topic_id in member.topic_ids
    )
    partitions = {topic_id: topic.partitions for topic_id, topic in found if topic is not None}
    assignable = partitions_of(group.state_partitions.initialized)
    return GroupSpec(members, partitions, group.is_homogeneous(), assignable)


def _move_to_target(draft: ShareDraft, member_id: str, subscribes_anew: bool) -> ShareGroupMember:
    """Gives a member its target, without topics that it does not subscribe to any more."""
    group = draft.group
    member = group.members[member_id]
    if member.epoch == group.assignment_epoch and not subscribes_anew:
        return member
    wanted = topic_ids(member.topic_names, draft.step.shard.topics)
    is_behind = member.epoch != group.assignment_epoch
    source = group.targets.get(member_id, NOTHING) if is_behind else member.assigned
    moved = member._replace(assigned={t: ps for t, ps in source.items() if t in wanted and ps})
    if is_behind:
        moved = moved._replace(epoch=group.assignment_epoch, previous_epoch=member.epoch)
    if moved != member:
        draft.add(AssignmentChange(member_id, moved.assignment_value()))
    return moved


# ---- the state of partitions


def _ask_for_state(draft: ShareDraft) -> None:
    """Asks for the state of subscribed partitions that have none, and forgets topics that are gone."""
    group, step = draft.group, draft.step
    known = group.state_partitions
    gone = frozenset(
        topic_id
        for topic_id in (*known.initializing, *known.initialized, *known.deleting)
        if step.shard.topics.topic_by_id(topic_id) is None
    )
    if gone:
        draft.add(StatePartitionsChange(known.forgotten(gone)))
    missing = _without_state(step, group)
    if missing:
        draft.initialize(missing)


def _without_state(step: StepContext, group: ShareGroup) -> StateTopics:
    none: frozenset[int] = frozenset()
    known = group.state_partitions
    missing: dict[bytes, NamedTopicPartitions] = {}
    for name in sorted(group.subscribers):
        topic = step.shard.topics.topic(name)
        if topic is None:
            continue
        topic_id = topic.topic_id
        has_state = known.initialized[topic_id].partitions if topic_id in known.initialized else none
        since_ms = group.initializing_since.get(topic_id)
        if topic_id in known.initializing and since_ms is not None and step.now_ms - since_ms < RETRY_MS:
            has_state = has_state | known.initializing[topic_id].partitions
        left = frozenset(range(topic.partitions)) - has_state
        if left:
            missing[topic_id] = NamedTopicPartitions(name, left)
    return missing


def state_initialized(step: StepContext, event: ShareStateInitialized) -> None:
    """Hears from the share coordinator that the state of partitions was made, or why not."""
    group = step.shard.share_groups.get(event.group_id)
    if group is None:
        return
    known = group.state_partitions
    names = {t: topic.name for t, topic in known.initializing.items()}
    topics = {
        topic_id: NamedTopicPartitions(names[topic_id], partitions)
        for topic_id, partitions in event.partitions.items()
        if topic_id in names
    }
    for topic_id in topics:
        group.initializing_since.pop(topic_id, None)
    draft = ShareDraft(step, group)
    draft.add(StatePartitionsChange(known.failed(topics) if event.error else known.succeeded(topics)))
    draft.write()


# ---- leaving


def _leave(step: StepContext, request: ShareGroupHeartbeat) -> ShareHeartbeatResponse | None:
    group_id, member_id = request.group_id or "", request.member_id
    group = step.shard.share_groups.get(group_id)
    if group is None:
        return _refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if member_id not in group.members:
        message = f"Member {member_id} is not a member of group {group_id}."
        return _refusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
    remove_share_member(step, group, member_id, "left")
    group.answer(step, request, ShareHeartbeatResponse(ErrorCode.NONE, None, member_id, LEAVING))
    return None


def remove_share_member(step: StepContext, group: ShareGroup, member_id: str, why: str) -> None:
    step.history(group).gone(member_id, why)
    draft = ShareDraft(step, group)
    end_share_member(draft, group.members[member_id])
    reason = f"{member_id} left" if why == "left" else f"{member_id}: {why}"
    draft.bump(Cause(member_id, reason))
    draft.write()
