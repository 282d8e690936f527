"""JoinGroup and SyncGroup: what is sent, and what each answer means."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kohort.client.core.arguments import raised_by
from kohort.client.core.effects import Answer, Failure, Lane, Send
from kohort.client.core.operation import Operation
from kohort.client.group import membership_prepare
from kohort.client.group.assignors import Assignor, RebalanceProtocol
from kohort.client.group.callbacks import CallbackKind, names
from kohort.client.group.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    BadConsumerProtocol,
    decode_assignment,
)
from kohort.client.group.coordinator import COORDINATOR_GONE
from kohort.client.group.leadership import Election, divide, elected, encoded, unsubscribed_topics
from kohort.client.group.membership_requests import join_request, leave_request, protocols, sync_request
from kohort.client.group.membership_state import NO_GENERATION, State
from kohort.client.group.membership_words import code_name, no_answer, refusal
from kohort.client.offsets.subscription import Mode
from kohort.client.types import TopicPartition
from kohort.settings import INT_MAX
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from kohort.client.group.membership import Membership

_log = logging.getLogger("kohort.client.membership")

JOIN_MARGIN_MS = 5_000
"""The coordinator answers a join after the rebalance timeout at the latest; so much longer the answer may travel."""


def send_join(m: Membership, now_ms: int) -> None:
    node_id = m.coordinator.node_id
    assert node_id is not None
    config, topics = m.config, m.subscription.topics
    try:
        offered = protocols(
            m.assignors, topics, m.subscription.partitions, m.generation_id, config.client_rack or None
        )
    except BaseException as error:  # the user's assignor, or a name that fits no request
        m.fail(raised_by("subscription_user_data of an assignor", error), now_ms)
        return
    m.attempt += 1
    m.joined_topics = topics
    m.is_leader, m.assigned_from, m.election = False, None, None
    m.coordinators_seen = m.coordinator.changes
    _log.info(
        "group %s: joins as %s, wants %s%s",
        config.group_id,
        m.member_id or "a new member",
        ", ".join(sorted(topics)) or "nothing",
        f", because {m.rejoin_reason}" if m.rejoin_reason else "",
    )
    waits_ms = min(config.max_poll_interval_ms + JOIN_MARGIN_MS, INT_MAX)
    m.become(State.JOINING)
    m.out.append(
        Send(
            node_id,
            JoinGroupRequest.API_KEY,
            join_request(config, m.member_id, offered, m.rejoin_reason),
            "membership.join",
            max(waits_ms, config.request_timeout_ms),
            Lane.GROUP,
            on_answer=partial(joined, m, m.attempt, m.member_id),
        )
    )


def joined(m: Membership, attempt: int, member_id: str, answer: Answer, now_ms: int) -> None:
    m.time(now_ms)
    if attempt != m.attempt:
        _leave_unused(m, answer, member_id)
        return
    if answer.failure is not None:
        _not_answered(m, answer.failure, "JoinGroup", now_ms)
        return
    response: JoinGroupResponse = answer.response
    match response.error_code:
        case ErrorCode.NONE:
            _in_generation(m, response, now_ms)
        case ErrorCode.MEMBER_ID_REQUIRED:
            m.member_id = response.member_id
            m.again(f"the coordinator gave this member its id, {m.member_id}", now_ms, at_once=True)
        case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION as code:
            _reset(m, code, "JoinGroup", now_ms)
        case code:
            _refused(m, code, "JoinGroup", now_ms)


def _in_generation(m: Membership, response: JoinGroupResponse, now_ms: int) -> None:
    if response.protocol_type not in (None, PROTOCOL_TYPE):
        _refused(m, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup", now_ms)
        return
    m.generation_id, m.member_id = response.generation_id, response.member_id
    m.protocol_name = response.protocol_name
    m.heartbeats.joined(now_ms)
    m.is_leader = response.leader == response.member_id
    _log.info(
        "group %s: joined generation %s as %s, %s by %s",
        m.config.group_id,
        m.generation_id,
        m.member_id,
        f"leader of {len(response.members)} members" if m.is_leader else "not the leader",
        m.protocol_name,
    )
    assignor = next((a for a in m.assignors if a.name == m.protocol_name), None)
    if assignor is None:
        m.fail(
            KohortError(
                f"the coordinator of group {m.config.group_id} chose the assignor {m.protocol_name!r}, which this "
                f"consumer did not offer ({', '.join(a.name for a in m.assignors)})"
            ),
            now_ms,
        )
    elif m.is_leader:
        _lead(m, assignor, response, now_ms)
    else:
        m.subscription.group_topics = m.subscription.topics
        m.want_topics(now_ms)
        _send_sync(m, [], now_ms)


# --- the leader ----------------------------------------------------------------------------------------


def _lead(m: Membership, assignor: Assignor, response: JoinGroupResponse, now_ms: int) -> None:
    try:
        m.election = elected(assignor, response.members, response.skip_assignment)
    except KohortError as error:
        m.fail(error, now_ms)
        return
    m.become(State.ASSIGNING)
    _watch(m, m.election, now_ms)
    assign(m, now_ms)


def _watch(m: Membership, election: Election, now_ms: int) -> None:
    """From now on this member keeps an eye on the topics of all members."""
    m.subscription.group_topics = election.topics
    m.want_topics(now_ms)
    election.known_version = m.metadata.cluster.version
    if m.subscription.mode is Mode.PATTERN and _unknown(m, election):
        m.metadata.request_update("other members want topics that are not known here")


def _unknown(m: Membership, election: Election) -> frozenset[str]:
    cluster = m.metadata.cluster
    return election.topics - cluster.topics.keys() - cluster.errors.keys()


def assign(m: Membership, now_ms: int) -> None:
    """As soon as metadata knows all topics of the group (or that there is no such topic)."""
    election = m.election
    assert election is not None
    while _unknown(m, election):
        cluster = m.metadata.cluster
        if m.subscription.mode is not Mode.PATTERN or cluster.version <= election.known_version:
            return
        break
    if election.skip_assignment:
        _log.info(
            "group %s: a static member came back as leader; the assignment stays, metadata is watched",
            m.config.group_id,
        )
        _watched_sync(m, {}, now_ms)
        return
    if election.assignments is None:
        try:
            given = divide(election, m.metadata.cluster, m.protocol)
        except (
            BaseException
        ) as error:  # the user's assignor; SystemExit must not end a thread that others need
            m.fail(raised_by(f"assignor {election.assignor.name}", error), now_ms)
            return
        for member_id in election.members.keys() - given.keys():
            _log.warning("assignor %s forgot member %s: it gets nothing", election.assignor.name, member_id)
            given[member_id] = Assignment()
        election.assignments = given
        if others := unsubscribed_topics(election, given):
            _log.info("also watches %s: assigned, though nobody subscribes", ", ".join(sorted(others)))
            election.topics |= others
            _watch(m, election, now_ms)
            assign(m, now_ms)
            return
    _watched_sync(m, election.assignments, now_ms)


def _watched_sync(m: Membership, given: dict[str, Assignment], now_ms: int) -> None:
    m.assigned_from = m.watch()
    for member_id, assignment in sorted(given.items()):
        _log.info("group %s: %s gets %s", m.config.group_id, member_id, names(assignment.partitions))
    _send_sync(m, encoded(given), now_ms)


# --- sync ----------------------------------------------------------------------------------------------


def _send_sync(m: Membership, given: list[tuple[str, bytes]], now_ms: int) -> None:
    m.election = None
    m.become(State.SYNCING)
    node_id = m.coordinator.node_id
    if node_id is None:
        m.again("the coordinator is unknown", now_ms, at_once=True)
        return
    m.out.append(
        Send(
            node_id,
            SyncGroupRequest.API_KEY,
            sync_request(m.group_metadata(), m.protocol_name, given),
            "membership.sync",
            m.config.request_timeout_ms,
            Lane.GROUP,
            on_answer=partial(synced, m, m.attempt),
        )
    )


def synced(m: Membership, attempt: int, answer: Answer, now_ms: int) -> None:
    m.time(now_ms)
    if attempt != m.attempt:
        return
    if answer.failure is not None:
        _not_answered(m, answer.failure, "SyncGroup", now_ms)
        return
    response: SyncGroupResponse = answer.response
    match response.error_code:
        case ErrorCode.NONE:
            same_type = response.protocol_type in (None, PROTOCOL_TYPE)
            if not same_type or response.protocol_name not in (None, m.protocol_name):
                _refused(m, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup", now_ms)
            else:
                _take_assignment(m, bytes(response.assignment), now_ms)
        case ErrorCode.REBALANCE_IN_PROGRESS:
            m.rejoin_reason = "the group began another rebalance"
            m.again("the group began another rebalance", now_ms, at_once=True)
        case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION as code:
            _reset(m, code, "SyncGroup", now_ms)
        case code:
            _refused(m, code, "SyncGroup", now_ms)


def _take_assignment(m: Membership, data: bytes, now_ms: int) -> None:
    try:
        assignment = decode_assignment(data)
    except BadConsumerProtocol as error:
        m.fail(
            KohortError(
                f"the assignment that the leader of group {m.config.group_id} sent cannot be read: {error}; did its "
                "assignor leave this member out?"
            ),
            now_ms,
        )
        return
    m.settled()
    assigned = tuple(sorted(set(assignment.partitions)))
    unwanted = [p for p in assigned if not _is_wanted(m, p)]
    if unwanted:
        m.become(State.STABLE)
        _log.info("group %s: was given %s, which is not wanted any more", m.config.group_id, names(unwanted))
        m.request_rejoin("received assignment does not match the current subscription")
        return
    _call_back(m, assignment, assigned)


def _is_wanted(m: Membership, partition: TopicPartition) -> bool:
    if m.subscription.pattern is not None:
        return m.subscription.pattern.fullmatch(partition.topic) is not None
    return partition.topic in m.subscription.topics


def _call_back(m: Membership, assignment: Assignment, assigned: tuple[TopicPartition, ...]) -> None:
    owned = frozenset(m.subscription.partitions)
    added, moved = frozenset(assigned) - owned, owned - frozenset(assigned)
    _log.info(
        "group %s: owns %s in generation %s%s",
        m.config.group_id,
        names(assigned),
        m.generation_id,
        f" (new: {names(added)})" if owned else "",
    )
    if moved:
        m.give_up(CallbackKind.REVOKED, moved)

    # As of now: while the callbacks run the coordinator may drop this member.
    assignor, generation_id = next(a for a in m.assignors if a.name == m.protocol_name), m.generation_id

    def before() -> None:
        _follow_the_leader(m, assigned)
        m.subscription.assign_from_group(assigned)
        assignor.on_assignment(assignment, generation_id)

    m.callbacks.add(CallbackKind.ASSIGNED, added, before=before, after=m.subscription.assigned_callback_ran)
    m.call_back(lambda now_ms: _called_back(m, now_ms))
    if moved and m.protocol is RebalanceProtocol.COOPERATIVE:
        m.request_rejoin(f"need to revoke partitions and re-join: {names(moved)}")


def _follow_the_leader(m: Membership, assigned: tuple[TopicPartition, ...]) -> None:
    """With a pattern the leader may know topics that this member has not seen yet."""
    assert m.joined_topics is not None
    new = frozenset(p.topic for p in assigned) - m.joined_topics
    if new and m.subscription.mode is Mode.PATTERN:
        m.subscription.topics |= new
        m.joined_topics |= new
        m.metadata.request_update("the leader assigned topics that are new here")


def _called_back(m: Membership, now_ms: int) -> None:
    if m.generation_id != NO_GENERATION:  # else dropped by the coordinator while the callbacks ran
        m.become(State.STABLE)
    if m.rejoin_needed and m.subscription.is_group:
        membership_prepare.prepare(m, now_ms)


# --- what went wrong -----------------------------------------------------------------------------------


def _not_answered(m: Membership, failure: Failure, request: str, now_ms: int) -> None:
    if not failure.is_retriable:
        m.fail(no_answer(failure, request, m.config), now_ms)
        return
    why = f"{request} {failure.kind.value}" + (f": {failure.message}" if failure.message else "")
    m.coordinator.forget(why, now_ms)
    m.again(why, now_ms)


def _reset(m: Membership, code: int, request: str, now_ms: int) -> None:
    """The id stays valid where only the generation is an old one."""
    m.reset_generation(
        f"the coordinator answered {code_name(code)} to {request}",
        keep_member_id=code == ErrorCode.ILLEGAL_GENERATION,
    )
    membership_prepare.go_on(m, now_ms)


def _refused(m: Membership, code: int, request: str, now_ms: int) -> None:
    name = code_name(code)
    if code in COORDINATOR_GONE:
        m.coordinator.forget(f"{name} to {request}", now_ms)
        m.again(f"{name} to {request}", now_ms)
    elif code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
        m.again(f"{name} to {request}", now_ms)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        fence(m, refusal(code, request, m.config, ()))
    else:
        m.fail(refusal(code, request, m.config, [a.name for a in m.assignors]), now_ms)


def fence(m: Membership, error: KohortError) -> None:
    """Another consumer has this one's place. What was owned is lost; every poll fails from now on."""
    m.end_generation("another consumer joined with the same group.instance.id")
    m.error = m.fenced = error
    _log.error("group %s: %s", m.config.group_id, error)
    if m.state is not State.CALLING_BACK:
        _lose_and_end(m)
    elif not m.leaving:
        m.after_callbacks = lambda now_ms: _lose_and_end(m)


def _lose_and_end(m: Membership) -> None:
    if m.subscription.partitions:
        m.give_up(CallbackKind.LOST, frozenset(m.subscription.partitions))
        m.call_back(lambda now_ms: m.become(State.FENCED))
    else:
        m.become(State.FENCED)


def _leave_unused(m: Membership, answer: Answer, asked_as: str) -> None:
    """A join without an id that nobody waits for any more made a member all the same: the group must not wait."""
    response: JoinGroupResponse | None = answer.response
    node_id = m.coordinator.node_id
    if response is None or asked_as or m.config.group_instance_id is not None or node_id is None:
        return
    if response.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
        return
    if response.member_id and response.member_id != m.member_id:
        m.out.append(
            Send(
                node_id,
                LeaveGroupRequest.API_KEY,
                leave_request(m.config.group_id or "", response.member_id, "the join was abandoned"),
                "membership.leave",
                m.config.request_timeout_ms,
                Lane.GROUP,
                on_answer=partial(left, m, Operation[None]()),
            )
        )


def left(m: Membership, operation: Operation[None], answer: Answer, now_ms: int) -> None:
    """Whatever the answer: the session ends by itself if the coordinator did not hear of it."""
    m.time(now_ms)
    response: LeaveGroupResponse | None = answer.response
    if answer.failure is not None:
        said = f"no answer ({answer.failure.kind.value})"
    else:
        assert response is not None
        codes = [response.error_code, *(member.error_code for member in response.members)]
        said = next((code_name(code) for code in codes if code), "")
    if said:
        _log.info("group %s: LeaveGroup: %s", m.config.group_id, said)
    if m.state is State.LEAVING:
        m.become(State.UNJOINED)
    operation.finish(None)
