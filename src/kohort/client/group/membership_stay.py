"""Staying in the group and leaving it: heartbeats, the session, `max.poll.interval.ms`, LeaveGroup."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kohort.client.core.effects import Answer, Failure, Lane, Send
from kohort.client.core.operation import Operation
from kohort.client.group.callbacks import CallbackKind
from kohort.client.group.coordinator import COORDINATOR_GONE
from kohort.client.group.membership_join import fence, left
from kohort.client.group.membership_requests import heartbeat_request, leave_request
from kohort.client.group.membership_state import NO_GENERATION, State
from kohort.client.group.membership_words import code_name, no_answer, refusal, seconds
from kohort.client.types import GroupMetadata
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.leave_group import LeaveGroupRequest

if TYPE_CHECKING:
    from kohort.client.group.membership import Membership

_log = logging.getLogger("kohort.client.membership")


def has_heartbeats(m: Membership) -> bool:
    """From the join's answer on. A parked join keeps the member alive by itself."""
    silent = (State.UNJOINED, State.JOINING, State.LEAVING, State.FENCED)
    about_to_join = m.state is State.PREPARING and m.prepared
    return m.generation_id != NO_GENERATION and m.state not in silent and not about_to_join


def stay(m: Membership, now_ms: int, in_background: bool = False) -> None:
    """What is due of heartbeats. In the background only the group lane is served."""
    if not has_heartbeats(m):
        return
    if m.heartbeats.poll_is_overdue(now_ms):
        _leave_overdue(m, now_ms)
        return
    lane = Lane.GROUP if in_background else Lane.DATA
    node_id = m.coordinator.ensure(now_ms, lane)
    if node_id is None:
        m.look_at_coordinator_error()
        return
    if m.coordinators_seen != m.coordinator.changes:
        m.coordinators_seen = m.coordinator.changes
        m.heartbeats.coordinator_found(now_ms)
    if m.heartbeats.session_is_over(now_ms):
        session = seconds(m.config.session_timeout_ms)
        m.coordinator.forget(f"no heartbeat was answered for {session} (session.timeout.ms)", now_ms)
        m.heartbeats.failed(now_ms)
        m.coordinator.ensure(now_ms, lane)
    elif m.heartbeats.is_due(now_ms):
        m.out.append(
            Send(
                node_id,
                HeartbeatRequest.API_KEY,
                heartbeat_request(m.group_metadata()),
                "membership.heartbeat",
                m.config.request_timeout_ms,
                Lane.GROUP,
                on_answer=partial(heartbeat_answered, m, m.heartbeats.send(now_ms), m.group_metadata()),
            )
        )


def next_deadline_ms(m: Membership, in_background: bool = False) -> int | None:
    if not has_heartbeats(m):
        return None
    if m.coordinator.node_id is not None:
        if m.coordinators_seen != m.coordinator.changes:
            return m.now_ms
        return m.heartbeats.next_deadline_ms(with_poll=in_background or not m.is_polling)
    looked_up = m.coordinator.next_deadline_ms()
    due = [m.heartbeats.poll_deadline_ms] if in_background or not m.is_polling else []
    due += [looked_up] if looked_up is not None else []
    return min(due, default=None)


def heartbeat_answered(
    m: Membership, number: int, sent_as: GroupMetadata, answer: Answer, now_ms: int
) -> None:
    m.time(now_ms)
    clocks = m.heartbeats
    is_last = number == clocks.in_flight
    is_current = sent_as == m.group_metadata()
    if answer.failure is not None:
        if is_last and is_current:
            _not_answered(m, answer.failure, now_ms)
        return
    response: HeartbeatResponse = answer.response
    if not is_current:
        return
    match response.error_code:
        case ErrorCode.NONE:
            m.coordinator.worked()
            clocks.received(now_ms)
        case ErrorCode.REBALANCE_IN_PROGRESS:
            clocks.received(now_ms)
            if m.may_commit and not m.rejoin_needed:  # else a rejoin is under way already
                m.request_rejoin("the group is rebalancing")
        case ErrorCode.UNKNOWN_MEMBER_ID:
            m.reset_generation(
                "the coordinator answered UNKNOWN_MEMBER_ID to a heartbeat",
                hint=": it has removed this member, most likely because no heartbeat reached it for "
                f"{seconds(m.config.session_timeout_ms)} (session.timeout.ms)",
            )
        case ErrorCode.ILLEGAL_GENERATION:
            m.reset_generation(
                "the coordinator answered ILLEGAL_GENERATION to a heartbeat",
                keep_member_id=True,
                hint=": the group has gone on without this member",
            )
        case ErrorCode.FENCED_INSTANCE_ID as code:
            fence(m, refusal(code, "a heartbeat", m.config, ()))
        case code if code in COORDINATOR_GONE:
            m.coordinator.forget(f"{code_name(code)} to a heartbeat", now_ms)
            clocks.failed(now_ms)
        case ErrorCode.GROUP_AUTHORIZATION_FAILED as code:
            m.error = refusal(code, "a heartbeat", m.config, ()) if m.error is None else m.error
            clocks.failed(now_ms)
        case code:
            _log.warning("group %s: a heartbeat was answered with %s", m.config.group_id, code_name(code))
            clocks.failed(now_ms)


def _not_answered(m: Membership, failure: Failure, now_ms: int) -> None:
    m.heartbeats.failed(now_ms)
    if failure.is_retriable:
        m.coordinator.forget(
            f"a heartbeat was not answered ({failure.kind.value}: {failure.message})", now_ms
        )
    elif m.error is None:
        m.error = no_answer(failure, "a heartbeat", m.config)


# --- leaving -------------------------------------------------------------------------------------------


def _leave_overdue(m: Membership, now_ms: int) -> None:
    """The user's code takes too long between two polls: others get the partitions. The user is told by `lost`."""
    limit = seconds(m.config.max_poll_interval_ms)
    waited = seconds(now_ms - m.heartbeats.polled_ms)
    _log.warning(
        "group %s: poll was not called for %s (max.poll.interval.ms is %s): leaves the group. Raise "
        "max.poll.interval.ms, or lower max.poll.records so that less work is between two polls",
        m.config.group_id,
        waited,
        limit,
    )
    _send_leave(m, f"consumer poll timeout has expired: no poll for {waited}", Operation())
    overdue_since_ms = m.heartbeats.polled_ms
    m.end_generation(f"poll was not called for {waited} (max.poll.interval.ms is {limit})")
    m.overdue_since_ms = overdue_since_ms


def leave(m: Membership, reason: str, now_ms: int) -> Operation[None]:
    """Callbacks that have not run are not run any more: what they would have told is told by the last one."""
    operation: Operation[None] = Operation()
    m.error = None  # of a join that nobody waits for any more; what the callbacks raise now counts
    if m.state is State.FENCED:
        operation.finish(None)
        return operation
    is_lost = m.generation_id == NO_GENERATION or m.rebalance_in_progress
    m.callbacks.drop()
    m.after_callbacks = None
    owned = {p: state for p, state in m.subscription.partitions.items() if not state.assigning}
    m.subscription.partitions = owned
    if not owned:
        _go(m, reason, operation, now_ms)
        return operation
    m.give_up(CallbackKind.LOST if is_lost else CallbackKind.REVOKED, frozenset(owned))
    was_joining = m.state in (State.JOINING, State.SYNCING)
    m.attempt += 1  # nobody waits for the answer to a join any more
    m.leaving = True
    m.call_back(lambda then_ms: _go(m, reason, operation, then_ms, was_joining))
    return operation


def _go(
    m: Membership, reason: str, operation: Operation[None], now_ms: int, was_joining: bool = False
) -> None:
    was_joining = was_joining or m.state in (State.JOINING, State.SYNCING)
    sent = _send_leave(m, reason, operation, was_joining)
    m.end_generation(reason)
    m.rejoin_reason, m.joined_topics, m.leaving = "", None, False
    m.failures = m.retry_at_ms = 0
    m.become(State.LEAVING if sent else State.UNJOINED)
    if not sent:
        operation.finish(None)


def _send_leave(m: Membership, reason: str, operation: Operation[None], was_joining: bool = False) -> bool:
    """Static members stay: they come back under the same name within the session."""
    node_id = m.coordinator.node_id
    if m.config.group_instance_id is not None and m.member_id:
        _log.info(
            "group %s: the static member %s stays in the group: it may come back within session.timeout.ms (%s)",
            m.config.group_id,
            m.config.group_instance_id,
            seconds(m.config.session_timeout_ms),
        )
        return False
    if not m.member_id or node_id is None:
        return False
    if m.state is State.UNJOINED and not was_joining:
        return False
    _log.info("group %s: member %s leaves: %s", m.config.group_id, m.member_id, reason)
    m.out.append(
        Send(
            node_id,
            LeaveGroupRequest.API_KEY,
            leave_request(m.config.group_id or "", m.member_id, reason),
            "membership.leave",
            m.config.request_timeout_ms,
            # The answer to a join that is under way may be minutes away, and answers come in order.
            Lane.DATA if was_joining else Lane.GROUP,
            on_answer=partial(left, m, operation),
        )
    )
    return True
