"""What administrators ask of share groups: describe them, alter and delete their offsets, delete them; and timers."""

from __future__ import annotations

from kohort.coordinator.effects import (
    DeleteResponse,
    DescribedShareMember,
    DescribeShareResponse,
    SharePartitionsResponse,
)
from kohort.coordinator.events import (
    AlterSharePartitions,
    DeleteGroup,
    DescribeShareGroup,
    FinishShareDeletion,
    ListSharePartitions,
    ShareStateInitialized,
    TimerFired,
    TimerKind,
    TopicsChanged,
)
from kohort.coordinator.share.draft import (
    ShareDraft,
    ShareWrite,
    end_of_share_group,
    partitions_of,
    resume_sessions,
)
from kohort.coordinator.share.group import ShareGroup
from kohort.coordinator.share.heartbeat import remove_share_member, state_initialized
from kohort.coordinator.share.records import records_of
from kohort.coordinator.share.state import NamedTopicPartitions, StatePartitionsChange
from kohort.coordinator.step_context import StepContext
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE


def describe_share_group(step: StepContext, request: DescribeShareGroup) -> None:
    """Shows what is durable, as the log says it."""
    group_id = request.group_id or ""
    state = step.shard.durable.share_groups.get(group_id)
    if state is None:
        known = step.shard.durable.knows(group_id)
        message = f"Group {group_id} is not a share group." if known else f"Group {group_id} not found."
        step.reply(request.request, DescribeShareResponse(ErrorCode.GROUP_ID_NOT_FOUND, group_id, message))
        return
    topics = step.shard.topics
    members = []
    for member in state.members.values():
        found = ((t, topics.topic_by_id(t), partitions) for t, partitions in sorted(member.assigned.items()))
        members.append(
            DescribedShareMember(
                member.member_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                tuple(sorted(member.topic_names)),
                tuple((t, topic.name, tuple(sorted(ps))) for t, topic, ps in found if topic is not None),
            )
        )
    response = DescribeShareResponse(
        NONE, group_id, None, state.state_name(), state.group_epoch, state.assignment_epoch, tuple(members)
    )
    step.reply(request.request, response)


def list_share_partitions(step: StepContext, request: ListSharePartitions) -> None:
    """Tells which partitions of a group have state."""
    group = step.shard.share_groups.get(request.group_id or "")
    if group is None:
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    known = group.state_partitions
    partitions = partitions_of(known.initialized)
    response = SharePartitionsResponse(NONE, group.group_epoch, partitions, bool(group.members))
    group.answer(step, request, response)


def alter_share_partitions(step: StepContext, request: AlterSharePartitions) -> None:
    """Begins to alter or to delete the state of partitions of a group without members.

    The caller asks the share coordinator when this is answered, and tells the outcome: `ShareStateInitialized` for what
    was altered, `FinishShareDeletion` for what was deleted.
    """
    group_id = request.group_id or ""
    group = step.shard.share_groups.get(group_id)
    if group is None:
        if request.is_deletion or step.shard.group_with_offsets(group_id) is not None:
            step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        group = step.shard.share_groups[group_id] = ShareGroup(group_id)
    if group.members:
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
        return
    draft = ShareDraft(step, group)
    known = group.state_partitions
    if request.is_deletion:
        topic_ids = frozenset(request.partitions)
        found = {t: ps for t, ps in partitions_of(known.initialized).items() if t in topic_ids}
        for topic_id in topic_ids & known.deleting.keys():  # it was tried before, and failed
            topic = step.shard.topics.topic_by_id(topic_id)
            if topic is not None:
                found[topic_id] = frozenset(range(topic.partitions))
        if found:
            draft.add(StatePartitionsChange(known.deletes(topic_ids)))
    else:
        found = dict(request.partitions)
        names = {t: topic.name for t in found if (topic := step.shard.topics.topic_by_id(t)) is not None}
        topics = {t: NamedTopicPartitions(names[t], ps) for t, ps in found.items() if t in names}
        draft.add(StatePartitionsChange(known.begun(topics)))
    draft.write()
    group.answer(step, request, SharePartitionsResponse(NONE, group.group_epoch, found))


def state_changed(step: StepContext, event: ShareStateInitialized | FinishShareDeletion) -> None:
    """Hears what has become of the state of partitions."""
    if isinstance(event, ShareStateInitialized):
        state_initialized(step, event)
    else:
        finish_share_deletion(step, event)


def finish_share_deletion(step: StepContext, event: FinishShareDeletion) -> None:
    group = step.shard.share_groups.get(event.group_id)
    if group is not None:
        draft = ShareDraft(step, group)
        draft.add(StatePartitionsChange(group.state_partitions.deleted(event.topic_ids)))
        draft.write()


def delete_share_group(step: StepContext, group: ShareGroup, request: DeleteGroup) -> None:
    """Ends a group without members; its state has been deleted by the caller."""
    if group.members:
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
        return
    changes = tuple(end_of_share_group(group))
    del step.shard.share_groups[group.group_id]
    response = DeleteResponse(NONE, group.group_id)
    write = ShareWrite(records_of(group.group_id, changes), [(request, response)], group, changes)
    write.begin(step)
    step.shard.histories.pop(group.group_id, None)


# ---- without a request


def share_timer_fired(step: StepContext, group: ShareGroup, event: TimerFired) -> None:
    if event.kind is TimerKind.SESSION and event.member_id in group.members:
        session = group.session_is_over(step, event.member_id, event.deadline_ms)
        if session is not None:
            silent_ms = step.now_ms - session.heard_ms
            why = f"session expired after {silent_ms} ms without a heartbeat"
            remove_share_member(step, group, event.member_id, why)


def share_topics_changed(step: StepContext, event: TopicsChanged) -> None:
    for group in step.shard.share_groups.values():
        if any(name in group.subscribers for name in event.topics):
            group.refresh_due = True


def share_groups_loaded(step: StepContext) -> dict[str, ShareGroup]:
    """Makes the live groups of what was loaded, and begins the sessions of their members."""
    groups = {}
    for group_id, state in step.shard.durable.share_groups.items():
        group = groups[group_id] = ShareGroup(group_id)
        group.take_over(state)
        resume_sessions(step, group)
        if group.members:
            step.history(group).loaded(
                {m.member_id: repr(sorted(m.assigned.items())).encode() for m in group.members.values()}
            )
    return groups
