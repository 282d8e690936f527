"""What happens to a consumer group without a request: timers fire, topics change, a partition is loaded."""

from __future__ import annotations

from kohort.coordinator.consumer.draft import Cause, Draft, assignments_by_name, resume_timers
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.removal import remove_members
from kohort.coordinator.events import TimerFired, TimerKind, TopicsChanged
from kohort.coordinator.step_context import StepContext


def timer_fired(step: StepContext, group: ConsumerGroup, event: TimerFired) -> None:
    member_id = event.member_id
    member = group.members.get(member_id)
    why = None
    match event.kind:
        case TimerKind.SESSION:
            session = group.session_is_over(step, member_id, event.deadline_ms)
            if session is not None:
                why = f"session expired after {step.now_ms - session.heard_ms} ms without a heartbeat"
        case TimerKind.REBALANCE:
            deadline_ms, epoch = group.rebalance_deadlines.get(member_id, (None, None))
            if deadline_ms == event.deadline_ms and member is not None and member.epoch == epoch:
                why = f"did not give up its partitions within {member.rebalance_timeout_ms} ms"
        case TimerKind.JOIN if group.join_deadlines.get(member_id) == event.deadline_ms:
            why = "did not join again within its rebalance timeout"
        case TimerKind.SYNC if group.sync_deadlines.get(member_id) == event.deadline_ms:
            why = "did not sync in time"
    if why is not None and member is not None:
        remove_members(step, group, {member_id: why})


def end_session(step: StepContext, group: ConsumerGroup, member_id: str) -> None:
    """Gives up a member before its time, as if its session had expired."""
    session = group.sessions.get(member_id)
    if session is not None and member_id in group.members:
        silent_ms = step.now_ms - session.heard_ms
        why = f"session expired after {silent_ms} ms without a heartbeat"
        remove_members(step, group, {member_id: why})


def asked_to_rebalance(step: StepContext, group: ConsumerGroup, reason: str) -> None:
    """Begins the next epoch of a group with members; the target may turn out to be the same."""
    if group.members:
        draft = Draft(step, group)
        draft.bump(Cause("", reason))
        draft.write()


def topics_changed(step: StepContext, event: TopicsChanged) -> None:
    """Marks the groups that have to look at their topics again; their next heartbeat does."""
    for group in step.shard.consumer_groups.values():
        if any(group.is_subscribed_to(name) for name in event.topics):
            group.refresh_due = True
        if event.created and group.regex_subscribers:
            group.regex_refresh_due = True


def loaded(step: StepContext) -> dict[str, ConsumerGroup]:
    """Makes the live groups of what was loaded, and sets their timers."""
    groups = {}
    durable = step.shard.durable
    for group_id, state in durable.consumer_groups.items():
        if not state.members and group_id in durable.groups:
            continue  # the tombstones of a conversion could not be written, but the classic group was
        group = groups[group_id] = ConsumerGroup(group_id)
        group.take_over(state)
        group.regex_refresh_due = True
        resume_timers(step, group)
        if group.members:
            step.history(group).loaded(assignments_by_name(group))
    return groups
