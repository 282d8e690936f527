"""ConsumerGroupHeartbeat: a member joins, stays, says what it owns, changes what it subscribes to, or leaves.

A heartbeat has three parts: the member is made or changed, and the group's epoch rises if that matters to others; the
target is computed if the group has changed since; the member is moved towards the target (reconcile.py). All records
go out together, and the answer when they are durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kohort.coordinator.consumer import conversion, regexes
from kohort.coordinator.consumer.draft import (
    Cause,
    Draft,
    end_member,
    end_unused_regex,
    session_timeout_ms,
    watch_revocation,
)
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconcile import SaidOwned, Towards, reconcile
from kohort.coordinator.consumer.removal import remove_members
from kohort.coordinator.consumer.state import AWAY, LEAVING, NOTHING_OWNED, STABLE, ConsumerMember, Owned
from kohort.coordinator.consumer.target import compute_target_if_due
from kohort.coordinator.effects import ConsumerHeartbeatResponse
from kohort.coordinator.events import ConsumerGroupHeartbeat
from kohort.coordinator.modern.state import AssignmentChange, Change, SubscriptionChange, TargetChange
from kohort.coordinator.modern.target import NOTHING
from kohort.coordinator.modern.topics import topic_ids
from kohort.coordinator.step_context import StepContext
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE
_MUST_REJOIN = "The member must abandon all its partitions and rejoin."


class Refusal(NamedTuple):
    error: ErrorCode
    message: str


def in_time(
    group: ConsumerGroup,
    member_id: str,
    member_epoch: int,
    instance_id: str | None,
    client: tuple[str, str],
    session_timeout_ms: int,
    regex_refresh_interval_ms: int,
    now_ms: int,
) -> bool:
    """Takes a heartbeat that only moves a deadline; False, and nothing changes, if there is more to it.

    The heartbeat has no other fields than these. Nearly all heartbeats of a quiet group are so: this is the short way
    of `Shard.consumer_heartbeat_in_time`. The member has its target, nothing is on its way to the log, and there is
    nothing that the next heartbeat has to look at.
    """
    member = group.members.get(member_id)
    if (
        member is None
        or not 0 < member_epoch == member.epoch == group.assignment_epoch >= group.group_epoch
        or member.state is not STABLE
        or member.instance_id != instance_id
        or (member.client_id, member.client_host) != client
        or member.classic is not None
        or group.refresh_due
        or group.in_flight
        or (group.regex_subscribers and regexes.is_due(group, regex_refresh_interval_ms, now_ms))
    ):
        return False
    session = group.sessions.get(member_id)
    return session is not None and session.moved(now_ms, session_timeout_ms)


def consumer_heartbeat(step: StepContext, request: ConsumerGroupHeartbeat) -> None:
    if request.member_epoch in (LEAVING, AWAY):
        refused = _leave(step, request)
    else:
        refused = _beat(step, request)
    if refused is not None:
        step.reply(request.request, ConsumerHeartbeatResponse(refused.error, refused.message))


# ---- staying


def _beat(step: StepContext, request: ConsumerGroupHeartbeat) -> Refusal | None:
    found = _find_group(step, request)
    if isinstance(found, Refusal):
        return found
    group, first = found
    member_id = request.member_id or request.fresh_uuid
    refused = _refused(step, group, request, member_id)
    if refused is not None:
        return refused
    if first or group.group_id not in step.shard.consumer_groups:
        conversion.install(step, group)
    draft = Draft(step, group, first)
    member = _take_member(draft, request, member_id)
    updated = _updated(member, request)
    changed = _update(draft, request, member, updated)
    compute_target_if_due(draft)
    reconciled = move_towards_target(draft, member_id, request.owned, subscription_changed=changed)
    if reconciled is None:
        draft.abandon()
        message = "The consumer group member is in a unknown state."
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"{message} {_MUST_REJOIN}")
    group.renew(step, member_id, session_timeout_ms(step, group, reconciled))
    draft.write()
    group.answer(step, request, _answer(step, request, member, reconciled))
    return None


def _find_group(
    step: StepContext, request: ConsumerGroupHeartbeat
) -> tuple[ConsumerGroup, list[Change]] | Refusal:
    """Returns the group, and the changes that make it one of KIP-848 if it is not; nothing is changed yet."""
    assert request.group_id is not None
    group = step.shard.consumer_groups.get(request.group_id)
    if group is not None:
        return group, []
    if request.member_epoch != 0:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
    classic = step.shard.groups.get(request.group_id)
    if classic is None:
        return ConsumerGroup(request.group_id), []
    why_not = conversion.why_not_upgraded(step, classic)
    if why_not is not None:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why_not)
    return conversion.upgraded(step, classic)


def _refused(
    step: StepContext, group: ConsumerGroup, request: ConsumerGroupHeartbeat, member_id: str
) -> Refusal | None:
    most = step.settings.group_consumer_max_size
    if len(group.members) >= most and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {most} members."
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    if request.instance_id is None:
        refused = _check_dynamic(group, request, member_id)
    else:
        refused = _check_static(group, request, member_id, request.instance_id)
    if refused is None:
        why_invalid = regexes.why_invalid(group, request.topic_regex)
        if why_invalid is not None:
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, why_invalid)
    return refused


def _check_dynamic(group: ConsumerGroup, request: ConsumerGroupHeartbeat, member_id: str) -> Refusal | None:
    member = group.members.get(member_id)
    if member is not None:
        return _check_epoch(member, request)
    if request.member_epoch == 0:
        return None
    return _unknown(group, member_id)


def _check_static(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat, member_id: str, instance_id: str
) -> Refusal | None:
    holder_id = group.static_members.get(instance_id)
    if request.member_epoch == 0:
        holder = group.members.get(holder_id or "")
        if holder is None or holder.is_classic or holder.epoch == AWAY:
            return None
        message = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {holder_id} member."
        )
        return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, message)
    refused = _check_instance(group, member_id, instance_id)
    return refused or _check_epoch(group.members[member_id], request)


def _check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> Refusal | None:
    holder_id = group.static_members.get(instance_id)
    if holder_id is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder_id != member_id:
        message = (
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder_id}."
        )
        return Refusal(ErrorCode.FENCED_INSTANCE_ID, message)
    return None


def _unknown(group: ConsumerGroup, member_id: str) -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
    )


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> Refusal | None:
    """Refuses another epoch than the member's, unless the answer with the newest one was lost."""
    epoch = request.member_epoch
    if epoch in (0, member.epoch):
        return None
    smaller = epoch < member.epoch
    if smaller and epoch == member.previous_epoch and _is_part_of(request.owned, member.assigned):
        return None
    message = (
        f"The consumer group member has a {'smaller' if smaller else 'greater'} member epoch ({epoch}) than the one "
        f"known by the group coordinator ({member.epoch}). {_MUST_REJOIN}"
    )
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _is_part_of(owned: SaidOwned, assigned: Owned) -> bool:
    none: Mapping[int, int] = {}
    return owned is not None and all(
        partition in assigned.get(topic_id, none)
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def _take_member(draft: Draft, request: ConsumerGroupHeartbeat, member_id: str) -> ConsumerMember:
    """Returns the member as it is; a static member that is back, or is replaced, gets the place of the old one."""
    group = draft.group
    if request.instance_id is not None and request.member_epoch == 0:
        holder_id = group.static_members.get(request.instance_id)
        if holder_id is not None:
            return replace_static(draft, group.members[holder_id], member_id)
    return group.members.get(member_id) or ConsumerMember(member_id)


def replace_static(draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """Gives the place of a static member to another member id, with its partitions and at epoch 0."""
    target = draft.group.targets.get(old.member_id, NOTHING)
    end_member(draft, old)
    new = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
    draft.add(SubscriptionChange(member_id, new.subscription_value()))
    draft.add(TargetChange(member_id, target))
    draft.add(AssignmentChange(member_id, new.assignment_value()))
    return new


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=timeout_ms if timeout_ms != -1 else member.rebalance_timeout_ms,
        server_assignor=(
            request.server_assignor if request.server_assignor is not None else member.server_assignor
        ),
        topic_names=request.topic_names if request.topic_names is not None else member.topic_names,
        topic_regex=request.topic_regex if request.topic_regex is not None else member.topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _update(
    draft: Draft, request: ConsumerGroupHeartbeat, member: ConsumerMember, updated: ConsumerMember
) -> bool:
    """Writes a member that has changed, and begins the next epoch if others must know; whether it subscribes anew."""
    group = draft.group
    is_new = member.member_id not in group.members
    if is_new or updated != member:
        draft.add(SubscriptionChange(member.member_id, updated.subscription_value()))
    names_changed = updated.topic_names != member.topic_names
    regex_changed = updated.topic_regex != member.topic_regex
    was_resolved = updated.topic_regex in group.regexes or not updated.topic_regex
    cause = (
        _why(request, member, is_new=is_new) if names_changed or (regex_changed and was_resolved) else None
    )
    if regex_changed:
        end_unused_regex(draft, member.topic_regex)
        group.refresh_due = True  # the group may have lost topics, though the new expression matches none
    resolved = regexes.resolve(draft, request)
    if resolved is not None and cause is None:
        cause = _why(request, member, is_new=is_new) if is_new or regex_changed else resolved
    bump_if_needed(draft, cause)
    return names_changed or regex_changed


def bump_if_needed(draft: Draft, cause: Cause | None) -> None:
    """Begins the next epoch for a cause, or because the topics of the group have changed."""
    group = draft.group
    if cause is None and group.refresh_due and draft.topics_hash() != group.metadata_hash:
        cause = Cause("", "the topics that the group subscribes to have changed")
    group.refresh_due = False
    if cause is not None:
        draft.bump(cause)


def _why(request: ConsumerGroupHeartbeat, member: ConsumerMember, *, is_new: bool) -> Cause:
    name = member.member_id
    if is_new:
        return Cause(name, f"{name} joined")
    if request.instance_id is not None and request.member_epoch == 0:
        return Cause(
            name, f"the static member {request.instance_id} came back as {name} with another subscription"
        )
    return Cause(name, f"{name} changed its subscription")


def move_towards_target(
    draft: Draft, member_id: str, owned: SaidOwned, *, subscription_changed: bool
) -> ConsumerMember | None:
    """Reconciles a member and writes what it owns then; None if it must be fenced."""
    group, step = draft.group, draft.step
    member = group.members[member_id]
    if not subscription_changed and member.is_reconciled_to(group.assignment_epoch):
        return member
    towards = Towards(
        group.assignment_epoch,
        group.targets.get(member_id, NOTHING),
        topic_ids(group.topics_of(member), step.shard.topics),
        owned,
        lambda topic_id, partition: group.is_free(topic_id, partition, member_id),
        subscription_changed,
    )
    moved = reconcile(member, towards)
    if moved is not None and moved != member:
        draft.add(AssignmentChange(member_id, moved.assignment_value()))
        watch_revocation(step, group, moved)
    return moved


def _answer(
    step: StepContext, request: ConsumerGroupHeartbeat, before: ConsumerMember, now: ConsumerMember
) -> ConsumerHeartbeatResponse:
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.topic_names is not None or request.topic_regex is not None)
        and request.owned is not None
    )
    assignment = None
    if request.member_epoch == 0 or is_full or now.assigned != before.assigned:
        assignment = tuple((t, tuple(sorted(partitions))) for t, partitions in sorted(now.assigned.items()))
    interval_ms = step.shard.config_of(request.group_id or "").consumer_heartbeat_interval_ms
    return ConsumerHeartbeatResponse(NONE, None, now.member_id, now.epoch, interval_ms, assignment)


# ---- leaving


def _leave(step: StepContext, request: ConsumerGroupHeartbeat) -> Refusal | None:
    group = step.shard.consumer_groups.get(request.group_id or "")
    if group is None:
        known = (request.group_id or "") in step.shard.groups
        why = f"Group {request.group_id} {'is not a consumer group' if known else 'not found'}."
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
    member_id = request.member_id
    if request.instance_id is not None:
        refused = _check_instance(group, member_id, request.instance_id)
    else:
        refused = None if member_id in group.members else _unknown(group, member_id)
    if refused is not None:
        return refused
    response = ConsumerHeartbeatResponse(NONE, None, member_id, request.member_epoch)
    if request.member_epoch == AWAY:
        _go_away(step, group, group.members[member_id])
        group.answer(step, request, response)
    else:
        before = step.shard.next_token
        remove_members(step, group, {member_id: "left"})
        step.reply_when_written(request, response, before=before)
    return None


def _go_away(step: StepContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Notes that a static member is away for a while: it keeps its place, and its session runs on."""
    assigned = {t: dict.fromkeys(partitions, 0) for t, partitions in member.assigned.items()}
    away = member._replace(epoch=AWAY, assigned=assigned, pending=NOTHING_OWNED)
    draft = Draft(step, group)
    draft.add(AssignmentChange(member.member_id, away.assignment_value()))
    draft.write()
