"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: to a classic group, or of a classic member in a consumer group.

In a consumer group a classic member is never parked. JoinGroup does what a heartbeat of KIP-848 does, with the owned
partitions of the subscription; the generation is the member's epoch. SyncGroup gives it its partitions. Heartbeat
tells it to join again when there is something to be given up or to be had.
"""

from __future__ import annotations

from kohort.coordinator.classic import heartbeat as classic_heartbeat
from kohort.coordinator.classic import join as classic_join
from kohort.coordinator.classic import sync as classic_sync
from kohort.coordinator.consumer import conversion
from kohort.coordinator.consumer.draft import Cause, Draft, end_unused_regex
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.heartbeat import bump_if_needed, move_towards_target, replace_static
from kohort.coordinator.consumer.removal import remove_members
from kohort.coordinator.consumer.state import UNRELEASED, UNREVOKED, ConsumerMember
from kohort.coordinator.consumer.target import compute_target_if_due
from kohort.coordinator.effects import (
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    LeaveResult,
    SyncResponse,
)
from kohort.coordinator.events import Heartbeat, JoinGroup, LeaveGroup, Leaver, SyncGroup, TimerKind
from kohort.coordinator.modern.state import SubscriptionChange
from kohort.coordinator.step_context import StepContext
from kohort.coordinator.topic_catalog import TopicCatalog
from kohort.wire.consumer_protocol import PROTOCOL_TYPE, BadConsumerProtocol, decode_subscription
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

NONE = ErrorCode.NONE


# ---- JoinGroup


def join_group(step: StepContext, request: JoinGroup) -> None:
    group = step.shard.consumer_groups.get(request.group_id or "")
    if group is None:
        classic_join.join_group(step, request)
        return
    error = classic_join.malformed(step, request)
    if error:
        step.refuse(request, error)
    elif group.members:
        _join(step, group, request)
    elif request.member_id:
        step.refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        classic_join.join_new(step, conversion.empty_to_classic(step, group), request)


def _join(step: StepContext, group: ConsumerGroup, request: JoinGroup) -> None:
    member_id = request.member_id or request.fresh_uuid
    error = _cannot_join(step, group, request)
    if error:
        step.refuse(request, error)
        return
    if not request.member_id and request.group_instance_id is None and request.requires_member_id:
        step.reply(request.request, JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return
    try:
        subscription = decode_subscription(request.protocols[0][1])
    except BadConsumerProtocol:
        step.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    _join_as(step, group, request, member_id, subscription)


def _cannot_join(step: StepContext, group: ConsumerGroup, request: JoinGroup) -> ErrorCode:
    if not step.settings.may_migrate:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_full = len(group.members) >= step.settings.group_consumer_max_size
    if is_full and request.member_id not in group.members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    names = frozenset(name for name, _ in request.protocols)
    if request.protocol_type != PROTOCOL_TYPE or not group.supports_classic(names):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id and request.group_instance_id is not None:
        return _check_instance(group, request.member_id, request.group_instance_id)
    return NONE


def _check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> ErrorCode:
    holder_id = group.static_members.get(instance_id)
    if holder_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return NONE if holder_id == member_id else ErrorCode.FENCED_INSTANCE_ID


def _join_as(
    step: StepContext,
    group: ConsumerGroup,
    request: JoinGroup,
    member_id: str,
    subscription: ConsumerProtocolSubscription,
) -> None:
    draft = Draft(step, group)
    holder = group.members.get(group.static_members.get(request.group_instance_id or "", ""))
    is_last = holder is not None and not holder.is_classic
    if holder is not None and not request.member_id:
        member = replace_static(draft, holder, member_id)
    else:
        member = group.members.get(member_id) or ConsumerMember(member_id)
    subscription_changed = _update(draft, request, member, subscription)
    owned = _owned(subscription, step.shard.topics)
    if is_last and conversion.is_to_be_downgraded(step, group, ()):
        _downgrade(draft, request, member_id, owned, subscription_changed=subscription_changed)
        return
    compute_target_if_due(draft)
    now = move_towards_target(draft, member_id, owned, subscription_changed=subscription_changed)
    if now is None:
        draft.abandon()
        step.refuse(request, ErrorCode.FENCED_MEMBER_EPOCH)
        return
    group.join_deadlines.pop(member_id, None)
    group.renew(step, member_id, request.session_timeout_ms)
    delay_ms = max(request.rebalance_timeout_ms, 0)
    group.sync_deadlines[member_id] = group.set_timer(step, TimerKind.SYNC, member_id, delay_ms)
    draft.write()
    group.answer(step, request, _joined(now, request))


def _update(
    draft: Draft, request: JoinGroup, member: ConsumerMember, subscription: ConsumerProtocolSubscription
) -> bool:
    """Writes a member that is new or has changed; whether it subscribes to other topics than before."""
    is_new = member.member_id not in draft.group.members
    updated = member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=conversion.classic_metadata(request.session_timeout_ms, request.protocols),
    )
    if is_new or updated != member:
        draft.add(SubscriptionChange(member.member_id, updated.subscription_value()))
    end_unused_regex(draft, member.topic_regex)
    changed = updated.topic_names != member.topic_names or updated.topic_regex != member.topic_regex
    what = "joined" if is_new else "changed its subscription"
    cause = Cause(member.member_id, f"{member.member_id} {what}") if changed else None
    bump_if_needed(draft, cause)
    return changed


def _owned(subscription: ConsumerProtocolSubscription, topics: TopicCatalog) -> dict[bytes, tuple[int, ...]]:
    found = ((topics.topic(each.topic), each.partitions) for each in subscription.owned_partitions)
    return {topic.topic_id: tuple(partitions) for topic, partitions in found if topic is not None}


def _joined(member: ConsumerMember, request: JoinGroup) -> JoinResponse:
    return JoinResponse(NONE, member.member_id, member.epoch, PROTOCOL_TYPE, request.protocols[0][0])


def _downgrade(
    draft: Draft,
    request: JoinGroup,
    member_id: str,
    owned: dict[bytes, tuple[int, ...]],
    *,
    subscription_changed: bool,
) -> None:
    """A classic member takes the place of the last member of KIP-848: the group becomes a classic one."""
    group, step = draft.group, draft.step
    is_due = group.assignment_epoch < group.group_epoch
    now: ConsumerMember | None = group.members[member_id]
    if not is_due:
        now = move_towards_target(draft, member_id, owned, subscription_changed=subscription_changed)
    before = step.shard.next_token
    cause = (
        Cause(member_id, f"{member_id} joined with the classic protocol, as the last one") if is_due else None
    )
    conversion.downgrade(step, group, (), cause, draft.changes)
    step.reply_when_written(request, _joined(now or group.members[member_id], request), before=before)


# ---- SyncGroup and Heartbeat


def sync_group(step: StepContext, request: SyncGroup) -> None:
    group = step.shard.consumer_groups.get(request.group_id or "")
    if group is None:
        classic_sync.sync_group(step, request)
        return
    error = _check(group, request)
    if error:
        step.refuse(request, error)
        return
    member = group.members[request.member_id]
    assert member.classic is not None
    protocol_name = member.classic.supported_protocols[0].name
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        protocol_name,
    ):
        step.refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    if group.assignment_epoch > member.epoch and member.state is not UNREVOKED:
        _ask_to_join(step, group, member)
        step.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)
        return
    group.sync_deadlines.pop(member.member_id, None)
    group.renew(step, member.member_id, member.classic.session_timeout_ms)
    version = conversion.assignment_version(member.classic)
    assignment = conversion.encoded_assignment(member.assigned, step.shard.topics, version)
    response = SyncResponse(NONE, assignment, request.protocol_type, request.protocol_name)
    group.answer(step, request, response)


def _check(group: ConsumerGroup, request: SyncGroup | Heartbeat) -> ErrorCode:
    if request.group_instance_id is not None:
        error = _check_instance(group, request.member_id, request.group_instance_id)
        if error:
            return error
    member = group.members.get(request.member_id)
    if member is None or not member.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return NONE if request.generation_id == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _ask_to_join(step: StepContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Gives a member its rebalance timeout to join again; the first time it is asked counts."""
    if member.member_id not in group.join_deadlines:
        delay_ms = max(member.rebalance_timeout_ms, 0)
        deadline_ms = group.set_timer(step, TimerKind.JOIN, member.member_id, delay_ms)
        group.join_deadlines[member.member_id] = deadline_ms


def heartbeat(step: StepContext, request: Heartbeat) -> None:
    group = step.shard.consumer_groups.get(request.group_id or "")
    if group is None:
        classic_heartbeat.heartbeat(step, request)
        return
    error = _check(group, request)
    if error:
        step.refuse(request, error)
        return
    member = group.members[request.member_id]
    assert member.classic is not None
    group.renew(step, member.member_id, member.classic.session_timeout_ms)
    if (
        member.epoch < group.assignment_epoch
        or member.state is UNREVOKED
        or (member.state is UNRELEASED and not group.waits_for_others(member))
    ):
        _ask_to_join(step, group, member)
        error = ErrorCode.REBALANCE_IN_PROGRESS
    group.answer(step, request, HeartbeatResponse(error))


# ---- LeaveGroup


def leave_group(step: StepContext, request: LeaveGroup) -> None:
    group = step.shard.consumer_groups.get(request.group_id or "")
    if group is None:
        classic_heartbeat.leave_group(step, request)
        return
    gone: dict[str, str] = {}
    results = tuple(
        LeaveResult(leaver.member_id, leaver.group_instance_id, _leaves(group, leaver, gone))
        for leaver in request.members
    )
    response = LeaveResponse(NONE, results)
    if not gone:
        group.answer(step, request, response)
        return
    before = step.shard.next_token
    remove_members(step, group, gone)
    step.reply_when_written(request, response, before=before)


def _leaves(group: ConsumerGroup, leaver: Leaver, gone: dict[str, str]) -> ErrorCode:
    member_id = leaver.member_id
    if leaver.group_instance_id is not None:
        holder_id = group.static_members.get(leaver.group_instance_id)
        if holder_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id and holder_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        member_id = holder_id  # an administrator names only the instance
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    gone[member_id] = f"left: {leaver.reason}" if leaver.reason else "left"
    return NONE
