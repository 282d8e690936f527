"""The consumer's membership in its group: joins, sends heartbeats, tells the user what moves, leaves. Sans-IO.

    UNJOINED ── poll ──► PREPARING ──► JOINING ──► (ASSIGNING: the leader waits for metadata) ──► SYNCING
                          ▲    │ ▲                                                                  │
        retry, rejoin ────┘    ▼ │                                                                  ▼
                        CALLING_BACK (revoked, lost)                        CALLING_BACK (revoked, assigned) ──► STABLE

A join begins in `poll` only: before it, what poll returned earlier is committed, so the user must be done with it. Once
begun it goes on with `tick` and with the answers.

All that decides what comes next is one value, `status` (member_state.py), and `become` is the only place that replaces
it. Beside it `callbacks` is the queue of what the user is told, `heartbeats` the clocks, and leadership.py holds what
the leader works out, as functions. member_requests.py builds the requests, refusals.py the errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from kohort.client.config import ConsumerConfig
from kohort.client.core.arguments import raised_by
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.effects import Answer, Failure, Lane, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.group.assignors import Assignor, RebalanceProtocol, common_protocol
from kohort.client.group.callbacks import Callback, CallbackKind, Callbacks, names
from kohort.client.group.consumer_protocol import Assignment, decode_assignment
from kohort.client.group.coordinator import COORDINATOR_GONE, GroupCoordinator
from kohort.client.group.group_metrics import GroupMetrics
from kohort.client.group.heartbeats import Heartbeats
from kohort.client.group.leadership import (
    Election,
    Snapshot,
    difference,
    divide,
    elected,
    encoded,
    snapshot,
    unsubscribed_topics,
)
from kohort.client.group.member_requests import (
    heartbeat_request,
    join_request,
    leave_request,
    protocols,
    sync_request,
)
from kohort.client.group.member_state import (
    TRANSITIONS,
    UNDER_WAY,
    AfterCallbacks,
    GenerationEnd,
    JoinedGeneration,
    MemberState,
    MemberStatus,
    PendingLeave,
)
from kohort.client.group.refusals import code_name, no_answer, refusal, seconds
from kohort.client.offsets.subscription import Mode, SubscriptionState
from kohort.client.types import GroupMetadata, TopicPartition
from kohort.settings import INT_MAX
from kohort.wire.consumer_protocol import PROTOCOL_TYPE, BadConsumerProtocol
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.wire.struct import Message

_log = logging.getLogger("kohort.client.membership")

JOIN_MARGIN_MS = 5_000
"""The coordinator answers a join after the rebalance timeout at the latest; the answer may travel this much longer."""


class Membership:
    """The part that makes a consumer a member of a classic group; see the module's docstring."""

    broker_matches: ClassVar[bool] = False
    """Members tell each other names of topics; patterns are matched here."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        coordinator: GroupCoordinator,
        subscription: SubscriptionState,
        metadata: Metadata,
        assignors: Sequence[Assignor],
        before_join: Callable[[int], bool],
        jitter: Jitter,
    ) -> None:
        """Raises SettingError if the assignors have no rebalance protocol in common."""
        assert config.group_id is not None
        self.status = MemberStatus()
        self.subscription = subscription
        self.assignors = tuple(assignors)
        self.protocol = common_protocol(self.assignors)
        self._out, self._config, self._coordinator, self._metadata = out, config, coordinator, metadata
        self._before_join = before_join
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._heartbeats = Heartbeats(
            interval_ms=config.heartbeat_interval_ms,
            session_timeout_ms=config.session_timeout_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            backoff=self._backoff,
        )
        self.metrics = GroupMetrics(config.metric_window())
        self._callbacks = Callbacks()
        self._now_ms = 0
        self._compared_version = -1  # the cluster's, when the leader last compared it with its assignment
        self._seen_error: Exception | None = None  # the coordinator's, when it was last looked at

    def become(self, status: MemberStatus) -> None:
        """Replaces the status. The only place that does; it checks the transition against the table."""
        before, after = self.status.state, status.state
        if after is not before:
            assert after in TRANSITIONS[before], f"{before} to {after}"
            _log.debug("group %s: %s -> %s", self._config.group_id, before.name, after.name)
        self.status = status

    # --- what others ask -------------------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        return self.status.state

    @property
    def member_id(self) -> str:
        return self.status.member_id

    @property
    def generation_id(self) -> int:
        return self.status.generation_id

    @property
    def callback(self) -> Callback | None:
        """What the front has to run in the user's thread; it calls `called_back` afterwards."""
        return self._callbacks.current

    @property
    def is_stable(self) -> bool:
        """Whether this member has its assignment, and nothing speaks for a rejoin."""
        status = self.status
        return status.state is MemberState.STABLE and status.rejoin_reason is None

    @property
    def wants_poll(self) -> bool:
        """Whether a join is needed and waits for `poll` to begin it. A poll that is waiting should begin anew."""
        status = self.status
        return (
            status.rejoin_reason is not None
            and status.state in (MemberState.UNJOINED, MemberState.STABLE, MemberState.LEAVING)
            and status.error is None
            and self.subscription.is_group
        )

    @property
    def is_polling(self) -> bool:
        """Whether the consumer's own code is in charge: a callback's time is the user's."""
        return self._heartbeats.in_poll and self.status.state is not MemberState.CALLING_BACK

    @property
    def rebalance_due(self) -> bool:
        return not self.is_stable

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of this generation: also while the callbacks before a join run."""
        status = self.status
        if status.generation is None:
            return False
        return status.state in (MemberState.STABLE, MemberState.CALLING_BACK) or (
            status.state is MemberState.PREPARING and not status.prepared
        )

    @property
    def may_commit_itself(self) -> bool:
        """Whether the commit that is due by the interval may be made; before a rejoin another one is."""
        return self.is_stable

    @property
    def rebalance_in_progress(self) -> bool:
        """Whether this is between a join and its assignment. Commits wait for that to end."""
        status = self.status
        return status.state in (MemberState.JOINING, MemberState.ASSIGNING, MemberState.SYNCING) or (
            status.prepared and status.state in (MemberState.PREPARING, MemberState.UNJOINED)
        )

    @property
    def is_fenced(self) -> bool:
        """Whether another consumer has taken this one's place, for good."""
        return self.status.fenced is not None

    @property
    def left_because(self) -> str | None:
        """Why this consumer is not in the generation it was in, to follow "the group moved on because"."""
        return self.why_left(self._now_ms)

    def why_left(self, now_ms: int) -> str | None:
        """The same as of a moment that the caller knows better."""
        ended = self.status.ended
        if ended is None or ended.overdue_since_ms is None:
            return None if ended is None else ended.reason
        return (
            f"poll was not called for {seconds(now_ms - ended.overdue_since_ms)} "
            f"(max.poll.interval.ms is {seconds(self._config.max_poll_interval_ms)})"
        )

    def group_metadata(self) -> GroupMetadata:
        status, config = self.status, self._config
        return GroupMetadata(
            config.group_id or "", status.generation_id, status.member_id, config.group_instance_id
        )

    def continues(self, earlier: GroupMetadata) -> bool:
        """Whether that identity is still the present one."""
        return earlier == self.group_metadata()

    def fetches_as(self) -> GroupMetadata | None:
        """The identity that OffsetFetch carries: none, classic groups tell everybody."""
        return None

    @property
    def has_error(self) -> bool:
        return self.status.error is not None and self.callback is None

    def take_error(self) -> Exception | None:
        """What poll raises, once all callbacks have run. A fenced member fails in every poll."""
        error = self.status.error
        if error is None or self.callback is not None:
            return None
        self.become(replace(self.status, error=None))
        return error

    def __repr__(self) -> str:
        status, generation = self.status, self.status.generation
        said = [status.state.name, f"member {status.member_id or 'without id'}"]
        if self._config.group_instance_id is not None:
            said.append(f"instance {self._config.group_instance_id}")
        said.append(f"generation {status.generation_id}")
        if generation is not None and generation.protocol_name:
            role = "leader" if generation.is_leader else "follower"
            said.append(f"{role} by {generation.protocol_name}")
        said.append(f"{self.protocol.name.lower()}, owns {names(self.subscription.partitions)}")
        if status.rejoin_reason is not None:
            said.append(f"rejoin needed: {status.rejoin_reason or 'not joined yet'}")
        if self.callback is not None:
            said.append(f"callback to run: {self.callback}")
        if status.retry_at_ms > self._now_ms:
            said.append(f"retry in {status.retry_at_ms - self._now_ms} ms")
        if status.error is not None:
            said.append(f"error: {status.error}")
        return f"<membership of {self._config.group_id}: {'; '.join(said)}; {self._coordinator!r}>"

    # --- commands --------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> None:
        """The user is in poll, until `poll_ended`. A join begins here; see `wants_poll`."""
        self._time(now_ms)
        self._heartbeats.poll_began(now_ms)
        ended = self.status.ended
        if ended is not None and ended.overdue_since_ms is not None:
            reason = self.why_left(now_ms) or ended.reason
            self.become(replace(self.status, ended=replace(ended, reason=reason, overdue_since_ms=None)))
        self._look_for_reasons()
        if self.status.state is MemberState.FENCED:
            self.become(replace(self.status, error=self.status.fenced))
        elif self.wants_poll:
            self._prepare(now_ms)

    def poll_ended(self, now_ms: int) -> None:
        """The user works with what poll returned: `max.poll.interval.ms` counts from now."""
        self._time(now_ms)
        self._heartbeats.poll_ended(now_ms)

    def request_rejoin(self, reason: str) -> None:
        """The next poll joins again. The reason goes to the log and to the broker. Nothing if a join is under way."""
        status = self.status
        if status.rejoin_needed and status.state not in (MemberState.UNJOINED, MemberState.STABLE):
            return
        _log.info("group %s: rejoins at the next poll: %s", self._config.group_id, reason)
        self.become(replace(status, rejoin_reason=reason))

    def reset_generation(
        self, reason: str, lost: bool = True, *, keep_member_id: bool = False, hint: str = ""
    ) -> None:
        """Ends the current generation for this consumer. `lost`: others may have its partitions already."""
        _log.info(
            "group %s: member %s is not in generation %s any more: %s",
            self._config.group_id,
            self.status.member_id or "(without id)",
            self.status.generation_id,
            reason + hint,
        )
        self._end_generation(reason, lost, keep_member_id, hint)

    def removal(self, reason: str) -> Message | None:
        """The request that takes this member out of its group for good, also a static one; None outside of it."""
        me = self.group_metadata()
        if not me.member_id:
            return None
        member = MemberIdentity(me.member_id, me.group_instance_id, reason)
        return LeaveGroupRequest(me.group_id, me.member_id, members=[member])

    def called_back(self, error: BaseException | None, now_ms: int) -> None:
        """The user's function for `callback` has run (or there is none)."""
        self._time(now_ms)
        if self.callback is None:  # the user closed the consumer inside of its callback
            return
        if not self._callbacks.done(error):
            return
        self._raise_from_poll(self._callbacks.take_error())
        follows = self.status.after_callbacks
        self.become(replace(self.status, after_callbacks=None))
        match follows:
            case AfterCallbacks.JOIN:
                self._told_before_join(now_ms)
            case AfterCallbacks.SETTLE:
                self._assigned(now_ms)
            case AfterCallbacks.LOSE:
                self._lose_and_stay_fenced()
            case AfterCallbacks.FENCE:
                self.become(replace(self.status, state=MemberState.FENCED))
            case PendingLeave(reason, operation, was_joining):
                self._go(reason, operation, was_joining)
            case None:
                raise AssertionError("callbacks have run that nothing follows")

    def leave(self, reason: str, now_ms: int) -> Operation[None]:
        """Gives the partitions back, then leaves. Done when the coordinator answered; the caller bounds the wait.

        Callbacks that have not run are not run any more: what they would have told is told by the last one.
        """
        self._time(now_ms)
        operation: Operation[None] = Operation()
        # An error of a join that nobody waits for any more; what the callbacks raise now counts.
        self.become(replace(self.status, error=None))
        if self.status.state is MemberState.FENCED:
            operation.finish(None)
            return operation
        is_lost = self.status.generation is None or self.rebalance_in_progress
        was_joining = self.status.state in (MemberState.JOINING, MemberState.SYNCING)
        self._callbacks.drop()
        owned = self.subscription.drop_unannounced()
        if not owned:
            self._go(reason, operation, was_joining)
            return operation
        self._give_up(CallbackKind.LOST if is_lost else CallbackKind.REVOKED, owned)
        self.become(
            replace(self.status, attempt=self.status.attempt + 1)
        )  # no join's answer is awaited any more
        self._call_back(PendingLeave(reason, operation, was_joining))
        return operation

    # --- the part --------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._time(now_ms)
        if self.is_polling:
            self._heartbeats.polled(now_ms)
        self._stay(now_ms)
        self._look_for_reasons()
        self._go_on(now_ms)

    def tick_background(self, now_ms: int) -> None:
        """While the user works: heartbeats, and leaving when poll is overdue. No join begins here."""
        self._time(now_ms)
        self._heartbeats.user_works()
        self._stay(now_ms, in_background=True)
        if self.status.state is MemberState.ASSIGNING:
            self._assign(now_ms)

    def next_deadline_ms(self) -> int | None:
        due, status = self._heartbeat_deadline_ms(), self.status
        if (
            status.state is MemberState.PREPARING
            and status.prepared
            and self._coordinator.node_id is not None
        ):
            return status.retry_at_ms if due is None else min(due, status.retry_at_ms)
        return due

    def next_background_deadline_ms(self) -> int | None:
        """When `tick_background` must be called; None while there is nothing to keep alive."""
        return self._heartbeat_deadline_ms(in_background=True)

    def want_topics(self, now_ms: int) -> None:
        """Tells the metadata which topics matter: this consumer's own, and as the leader those of all members."""
        if self.subscription.mode is Mode.PATTERN:
            self._metadata.want(None, now_ms=now_ms)
        else:
            topics = self.subscription.topics | self.subscription.group_topics
            allow = self._config.allow_auto_create_topics
            self._metadata.want(topics, allow_auto_create=allow, now_ms=now_ms)

    # --- what comes before a join: coordinator, pattern, commit, callbacks, backoff --------------

    def _prepare(self, now_ms: int) -> None:
        """Begins a join. The user is in poll: what earlier polls returned counts as processed."""
        self.become(replace(self.status, state=MemberState.PREPARING))
        if self.subscription.mode is Mode.PATTERN and not self.status.prepared:
            # Fewer rebalances when a topic is created: all members look before they join.
            if self.status.joined_topics is not None:
                self._metadata.request_update("a pattern is matched again before the join")
            version = self._metadata.cluster.version if self._metadata.is_due else None
            self.become(replace(self.status, metadata_after=version))
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """Takes a join as far as it goes without waiting."""
        if self.status.state is MemberState.ASSIGNING:
            self._assign(now_ms)
        if self.status.state is not MemberState.PREPARING:
            return
        if self._coordinator.ensure(now_ms) is None:
            self._look_at_coordinator_error()
            return
        if not self.status.prepared and not self._prepares(now_ms):
            return
        if now_ms >= self.status.retry_at_ms:
            self._send_join(now_ms)

    def _prepares(self, now_ms: int) -> bool:
        """Pattern, commit, callbacks. Returns False while one of them is to be waited for."""
        if self.status.metadata_after is not None:
            if self._metadata.cluster.version <= self.status.metadata_after:
                return False
            self.become(replace(self.status, metadata_after=None))
        if self.status.generation is not None:
            if self.protocol is RebalanceProtocol.EAGER:
                self.subscription.revoke(self.subscription.partitions)
            if not self._before_join(now_ms):
                return False
        self._tell_before_join()
        if self.callback is not None:
            self._call_back(AfterCallbacks.JOIN)
            return False
        self.become(replace(self.status, prepared=True))
        return True

    def _tell_before_join(self) -> None:
        owned = frozenset(self.subscription.partitions)
        if self.status.generation is None:
            if owned:
                is_lost = self.status.ended is None or self.status.ended.lost
                self._give_up(CallbackKind.LOST if is_lost else CallbackKind.REVOKED, owned)
        elif self.protocol is RebalanceProtocol.EAGER:
            self._give_up(CallbackKind.REVOKED, owned)
        else:
            gone = frozenset(p for p in owned if p.topic not in self.subscription.topics)
            if gone:
                self._give_up(CallbackKind.REVOKED, gone)

    def _told_before_join(self, now_ms: int) -> None:
        # While the callback ran the coordinator may have dropped this member: then the rest is lost as well.
        prepared = self.status.generation is not None or not self.subscription.partitions
        self.become(replace(self.status, state=MemberState.PREPARING, prepared=prepared))
        self._go_on(now_ms)

    # --- JoinGroup -------------------------------------------------------------------------------

    def _send_join(self, now_ms: int) -> None:
        node_id, config, topics = self._coordinator.node_id, self._config, self.subscription.topics
        assert node_id is not None
        status = self.status
        try:
            rack = config.client_rack or None
            owned = self.subscription.partitions
            offered = protocols(self.assignors, topics, owned, status.generation_id, rack)
        except BaseException as error:  # the user's assignor, or a name that fits no request
            self._fail(raised_by("subscription_user_data of an assignor", error), now_ms)
            return
        self._heartbeats.joins(self._coordinator.changes)
        self.metrics.asked(now_ms)
        reason = status.rejoin_reason or ""
        _log.info(
            "group %s: joins as %s, wants %s%s",
            config.group_id,
            status.member_id or "a new member",
            ", ".join(sorted(topics)) or "nothing",
            f", because {reason}" if reason else "",
        )
        led = status.generation
        attempt = status.attempt + 1
        self.become(
            replace(
                status,
                state=MemberState.JOINING,
                attempt=attempt,
                joined_topics=topics,
                generation=None if led is None else replace(led, is_leader=False, assigned_from=None),
                election=None,
            )
        )
        waits_ms = min(config.max_poll_interval_ms + JOIN_MARGIN_MS, INT_MAX)
        self._out.append(
            Send(
                node_id,
                JoinGroupRequest.API_KEY,
                join_request(config, status.member_id, offered, reason),
                "membership.join",
                max(waits_ms, config.request_timeout_ms),
                Lane.GROUP,
                on_answer=partial(self._joined, attempt, status.member_id),
            )
        )

    def _joined(self, attempt: int, asked_as: str, answer: Answer, now_ms: int) -> None:
        self._time(now_ms)
        if attempt != self.status.attempt:
            self._leave_unused(answer, asked_as)
            return
        if answer.failure is not None:
            self._not_answered(answer.failure, "JoinGroup", now_ms)
            return
        response: JoinGroupResponse = answer.response
        match response.error_code:
            case ErrorCode.NONE:
                self.metrics.joined(now_ms)
                self._in_generation(response, now_ms)
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.become(replace(self.status, member_id=response.member_id))
                why = f"the coordinator gave this member its id, {response.member_id}"
                self._again(why, now_ms, at_once=True, failed=False)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION as code:
                self._reset(code, "JoinGroup", now_ms)
            case code:
                self._refused(code, "JoinGroup", now_ms)

    def _in_generation(self, response: JoinGroupResponse, now_ms: int) -> None:
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            self._refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup", now_ms)
            return
        is_leader, name = response.leader == response.member_id, response.protocol_name
        generation = JoinedGeneration(response.generation_id, name, is_leader)
        self.become(replace(self.status, member_id=response.member_id, generation=generation))
        self._heartbeats.joined(now_ms)
        _log.info(
            "group %s: joined generation %s as %s, %s by %s",
            self._config.group_id,
            response.generation_id,
            response.member_id,
            f"leader of {len(response.members)} members" if is_leader else "not the leader",
            name,
        )
        assignor = next((a for a in self.assignors if a.name == name), None)
        if assignor is None:
            self._fail(
                KohortError(
                    f"the coordinator of group {self._config.group_id} chose the assignor {name!r}, which this "
                    f"consumer did not offer ({', '.join(a.name for a in self.assignors)})"
                ),
                now_ms,
            )
        elif is_leader:
            self._lead(assignor, response, now_ms)
        else:
            self.subscription.watch(self.subscription.topics)
            self.want_topics(now_ms)
            self._send_sync([], now_ms)

    def _leave_unused(self, answer: Answer, asked_as: str) -> None:
        """A join without an id that nobody waits for any more made a member all the same: the group must not wait."""
        response: JoinGroupResponse | None = answer.response
        node_id = self._coordinator.node_id
        if response is None or asked_as or self._config.group_instance_id is not None or node_id is None:
            return
        if response.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            return
        if response.member_id and response.member_id != self.status.member_id:
            self._send_leave_of(
                response.member_id, "the join was abandoned", Operation(), node_id, Lane.GROUP
            )

    # --- the leader ------------------------------------------------------------------------------

    def _lead(self, assignor: Assignor, response: JoinGroupResponse, now_ms: int) -> None:
        try:
            election = elected(assignor, response.members, response.skip_assignment)
        except KohortError as error:
            self._fail(error, now_ms)
            return
        self.become(replace(self.status, state=MemberState.ASSIGNING))
        self._watch(election, now_ms)
        self._assign(now_ms)

    def _watch(self, election: Election, now_ms: int) -> None:
        """From now on this member keeps an eye on the topics of all members."""
        self.subscription.watch(election.topics)
        self.want_topics(now_ms)
        election = replace(election, known_version=self._metadata.cluster.version)
        self.become(replace(self.status, election=election))
        if self.subscription.mode is Mode.PATTERN and self._unknown_topics(election):
            self._metadata.request_update("other members want topics that are not known here")

    def _unknown_topics(self, election: Election) -> frozenset[str]:
        cluster = self._metadata.cluster
        return election.topics - cluster.topics.keys() - cluster.errors.keys()

    def _assign(self, now_ms: int) -> None:
        """Assigns as soon as metadata knows all topics of the group, or knows that there is no such topic."""
        election = self.status.election
        assert election is not None
        if self._unknown_topics(election):
            version = self._metadata.cluster.version
            if self.subscription.mode is not Mode.PATTERN or version <= election.known_version:
                return
        if election.skip_assignment:
            _log.info(
                "group %s: a static member came back as leader; the assignment stays, metadata is watched",
                self._config.group_id,
            )
            self._watched_sync({}, now_ms)
            return
        if election.assignments is not None:
            self._watched_sync(election.assignments, now_ms)
            return
        try:
            given = divide(election, self._metadata.cluster, self.protocol)
        except BaseException as error:
            # The user's assignor raised it; SystemExit must not end a thread that others need.
            self._fail(raised_by(f"assignor {election.assignor.name}", error), now_ms)
            return
        for member_id in election.members.keys() - given.keys():
            _log.warning("assignor %s forgot member %s: it gets nothing", election.assignor.name, member_id)
            given[member_id] = Assignment()
        if others := unsubscribed_topics(election, given):
            _log.info("also watches %s: assigned, though nobody subscribes", ", ".join(sorted(others)))
            topics = election.topics | others
            self._watch(replace(election, assignments=given, topics=topics), now_ms)
            self._assign(now_ms)
        else:
            self._watched_sync(given, now_ms)

    def _watched_sync(self, given: dict[str, Assignment], now_ms: int) -> None:
        generation = self.status.generation
        assert generation is not None
        generation = replace(generation, assigned_from=self._snapshot())
        self.become(replace(self.status, generation=generation))
        for member_id, assignment in sorted(given.items()):
            _log.info("group %s: %s gets %s", self._config.group_id, member_id, names(assignment.partitions))
        self._send_sync(encoded(given), now_ms)

    def _snapshot(self) -> Snapshot:
        """What an assignment of this moment is made from."""
        topics = self.subscription.topics | self.subscription.group_topics
        return snapshot(self._metadata.cluster, topics, bool(self._config.client_rack))

    # --- SyncGroup -------------------------------------------------------------------------------

    def _send_sync(self, given: list[tuple[str, bytes]], now_ms: int) -> None:
        self.become(replace(self.status, state=MemberState.SYNCING, election=None))
        node_id = self._coordinator.node_id
        if node_id is None:
            self._again("the coordinator is unknown", now_ms, at_once=True)
            return
        self.metrics.asked(now_ms)
        self._out.append(
            Send(
                node_id,
                SyncGroupRequest.API_KEY,
                sync_request(self.group_metadata(), self.status.protocol_name, given),
                "membership.sync",
                self._config.request_timeout_ms,
                Lane.GROUP,
                on_answer=partial(self._synced, self.status.attempt),
            )
        )

    def _synced(self, attempt: int, answer: Answer, now_ms: int) -> None:
        self._time(now_ms)
        if attempt != self.status.attempt:
            return
        if answer.failure is not None:
            self._not_answered(answer.failure, "SyncGroup", now_ms)
            return
        response: SyncGroupResponse = answer.response
        match response.error_code:
            case ErrorCode.NONE:
                same_type = response.protocol_type in (None, PROTOCOL_TYPE)
                if not same_type or response.protocol_name not in (None, self.status.protocol_name):
                    self._refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup", now_ms)
                else:
                    self._take_assignment(bytes(response.assignment), now_ms)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                why = "the group began another rebalance"
                self.become(replace(self.status, rejoin_reason=why))
                self._again(why, now_ms, at_once=True)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION as code:
                self._reset(code, "SyncGroup", now_ms)
            case code:
                self._refused(code, "SyncGroup", now_ms)

    def _take_assignment(self, data: bytes, now_ms: int) -> None:
        try:
            assignment = decode_assignment(data)
        except BadConsumerProtocol as error:
            self._fail(
                KohortError(
                    f"the assignment that the leader of group {self._config.group_id} sent cannot be read: {error}; "
                    "did its assignor leave this member out?"
                ),
                now_ms,
            )
            return
        self.metrics.synced(now_ms)
        # Nothing speaks for a rejoin until something happens.
        self.become(
            replace(self.status, rejoin_reason=None, prepared=False, failures=0, retry_at_ms=0, ended=None)
        )
        self._coordinator.worked()
        assigned = tuple(sorted(set(assignment.partitions)))
        unwanted = [p for p in assigned if not self._is_wanted(p)]
        if unwanted:
            self.become(replace(self.status, state=MemberState.STABLE))
            _log.info(
                "group %s: was given %s, which is not wanted any more", self._config.group_id, names(unwanted)
            )
            self.request_rejoin("received assignment does not match the current subscription")
            return
        self._tell_assignment(assignment, assigned)

    def _is_wanted(self, partition: TopicPartition) -> bool:
        if self.subscription.pattern is not None:
            return self.subscription.pattern.fullmatch(partition.topic) is not None
        return partition.topic in self.subscription.topics

    def _tell_assignment(self, assignment: Assignment, assigned: tuple[TopicPartition, ...]) -> None:
        owned = frozenset(self.subscription.partitions)
        added, moved = frozenset(assigned) - owned, owned - frozenset(assigned)
        # As of now: while the callbacks run the coordinator may drop this member.
        generation_id, name = self.status.generation_id, self.status.protocol_name
        assignor = next(a for a in self.assignors if a.name == name)
        _log.info(
            "group %s: owns %s in generation %s%s",
            self._config.group_id,
            names(assigned),
            generation_id,
            f" (new: {names(added)})" if owned else "",
        )
        if moved:
            self._give_up(CallbackKind.REVOKED, moved)

        def before() -> None:
            self._follow_the_leader(assigned)
            self.subscription.assign_from_group(assigned)
            assignor.on_assignment(assignment, generation_id)

        after = self.subscription.assigned_callback_ran
        self._callbacks.add(CallbackKind.ASSIGNED, added, before=before, after=after)
        self._call_back(AfterCallbacks.SETTLE)
        if moved and self.protocol is RebalanceProtocol.COOPERATIVE:
            self.request_rejoin(f"need to revoke partitions and re-join: {names(moved)}")

    def _follow_the_leader(self, assigned: tuple[TopicPartition, ...]) -> None:
        """With a pattern the leader may know topics that this member has not seen yet."""
        joined_topics = self.status.joined_topics
        assert joined_topics is not None
        new = frozenset(p.topic for p in assigned) - joined_topics
        if new and self.subscription.mode is Mode.PATTERN:
            self.subscription.add_matched(new)
            self.become(replace(self.status, joined_topics=joined_topics | new))
            self._metadata.request_update("the leader assigned topics that are new here")

    def _assigned(self, now_ms: int) -> None:
        """All callbacks of the assignment have run."""
        if self.status.generation is not None:  # else dropped by the coordinator while the callbacks ran
            self.become(replace(self.status, state=MemberState.STABLE))
        if self.status.rejoin_needed and self.subscription.is_group:
            self._prepare(now_ms)

    # --- joins that go wrong ---------------------------------------------------------------------

    def _not_answered(self, failure: Failure, request: str, now_ms: int) -> None:
        if not failure.is_retriable:
            self._fail(no_answer(failure, request, self._config), now_ms)
            return
        why = f"{request} {failure.kind.value}" + (f": {failure.message}" if failure.message else "")
        self._coordinator.forget(why, now_ms)
        self._again(why, now_ms)

    def _reset(self, code: int, request: str, now_ms: int) -> None:
        """The id stays valid where only the generation is an old one."""
        self.metrics.failed(now_ms)
        self.reset_generation(
            f"the coordinator answered {code_name(code)} to {request}",
            keep_member_id=code == ErrorCode.ILLEGAL_GENERATION,
        )
        self._go_on(now_ms)

    def _refused(self, code: int, request: str, now_ms: int) -> None:
        name = code_name(code)
        if code in COORDINATOR_GONE:
            self._coordinator.forget(f"{name} to {request}", now_ms)
            self._again(f"{name} to {request}", now_ms)
        elif code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
            self._again(f"{name} to {request}", now_ms)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fence(refusal(code, request, self._config, ()))
        else:
            self._fail(refusal(code, request, self._config, [a.name for a in self.assignors]), now_ms)

    def _again(self, why: str, now_ms: int, *, at_once: bool = False, failed: bool = True) -> None:
        """The join failed and is tried again, with the identity that is left."""
        if failed:
            self.metrics.failed(now_ms)
        failures = 0 if at_once else self.status.failures + 1
        retry_at_ms = now_ms if at_once else now_ms + self._backoff.after(failures)
        _log.info(
            "group %s: joins again%s: %s",
            self._config.group_id,
            "" if at_once else f" in {retry_at_ms - now_ms} ms",
            why,
        )
        self.become(
            replace(
                self.status,
                state=MemberState.PREPARING,
                attempt=self.status.attempt + 1,
                rejoin_reason=self.status.rejoin_reason or "",
                failures=failures,
                retry_at_ms=retry_at_ms,
                election=None,
            )
        )
        self._go_on(now_ms)

    def _fail(self, error: Exception, now_ms: int) -> None:
        """The caller of poll is told; a later poll tries again."""
        _log.error("group %s: %s", self._config.group_id, error)
        self.metrics.failed(now_ms)
        status = self.status
        failures = status.failures + 1
        is_calling_back = status.state is MemberState.CALLING_BACK
        self.become(
            replace(
                status,
                state=status.state if is_calling_back else MemberState.UNJOINED,
                attempt=status.attempt + 1,
                rejoin_reason=status.rejoin_reason or "",
                failures=failures,
                retry_at_ms=now_ms + self._backoff.after(failures),
                election=None,
            )
        )
        self._raise_from_poll(error)

    def _raise_from_poll(self, error: Exception | None) -> None:
        """The next poll raises this, unless it has something else to raise already."""
        if error is not None and self.status.error is None:
            self.become(replace(self.status, error=error))

    def _look_at_coordinator_error(self) -> None:
        """A look-up that cannot succeed is an error of poll, once for each look-up."""
        error = self._coordinator.error
        if error is not None and error is not self._seen_error and self.status.error is None:
            if self.status.state is MemberState.PREPARING:
                self.become(replace(self.status, state=MemberState.UNJOINED))
            self._raise_from_poll(error)
        self._seen_error = error

    # --- staying in the group: heartbeats, the session, max.poll.interval.ms ---------------------

    @property
    def _has_heartbeats(self) -> bool:
        """From the join's answer on. A parked join keeps the member alive by itself."""
        status = self.status
        if status.generation is None or (status.state is MemberState.PREPARING and status.prepared):
            return False
        return status.state not in (
            MemberState.UNJOINED,
            MemberState.JOINING,
            MemberState.LEAVING,
            MemberState.FENCED,
        )

    def _stay(self, now_ms: int, in_background: bool = False) -> None:
        """What is due of heartbeats. In the background only the group lane is served."""
        if not self._has_heartbeats:
            return
        clocks, coordinator = self._heartbeats, self._coordinator
        if clocks.poll_is_overdue(now_ms):
            self._leave_overdue(now_ms)
            return
        lane = Lane.GROUP if in_background else Lane.DATA
        node_id = coordinator.ensure(now_ms, lane)
        if node_id is None:
            self._look_at_coordinator_error()
            return
        if clocks.is_for_another(coordinator.changes):
            clocks.coordinator_found(coordinator.changes, now_ms)
        if clocks.session_is_over(now_ms):
            session = seconds(self._config.session_timeout_ms)
            coordinator.forget(f"no heartbeat was answered for {session} (session.timeout.ms)", now_ms)
            clocks.failed(now_ms)
            coordinator.ensure(now_ms, lane)
        elif clocks.is_due(now_ms):
            sent_as = self.group_metadata()
            self.metrics.heartbeat_sent(now_ms)
            self._out.append(
                Send(
                    node_id,
                    HeartbeatRequest.API_KEY,
                    heartbeat_request(sent_as),
                    "membership.heartbeat",
                    self._config.request_timeout_ms,
                    Lane.GROUP,
                    on_answer=partial(self._heartbeat_answered, clocks.send(now_ms), sent_as),
                )
            )

    def _heartbeat_deadline_ms(self, in_background: bool = False) -> int | None:
        if not self._has_heartbeats:
            return None
        with_poll = in_background or not self.is_polling
        if self._coordinator.node_id is not None:
            if self._heartbeats.is_for_another(self._coordinator.changes):
                return self._now_ms
            return self._heartbeats.next_deadline_ms(with_poll)
        looked_up = self._coordinator.next_deadline_ms()
        due = [self._heartbeats.poll_deadline_ms] if with_poll else []
        due += [looked_up] if looked_up is not None else []
        return min(due, default=None)

    def _heartbeat_answered(self, number: int, sent_as: GroupMetadata, answer: Answer, now_ms: int) -> None:
        self._time(now_ms)
        clocks = self._heartbeats
        if sent_as != self.group_metadata():
            return  # of an earlier generation
        if answer.failure is not None:
            if number == clocks.in_flight:
                self._heartbeat_not_answered(answer.failure, now_ms)
            return
        self.metrics.heartbeat_answered(now_ms)
        response: HeartbeatResponse = answer.response
        match response.error_code:
            case ErrorCode.NONE:
                self._coordinator.worked()
                clocks.received(now_ms)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                clocks.received(now_ms)
                if self.may_commit and not self.status.rejoin_needed:  # else a rejoin is under way already
                    self.request_rejoin("the group is rebalancing")
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.reset_generation(
                    "the coordinator answered UNKNOWN_MEMBER_ID to a heartbeat",
                    hint=": it has removed this member, most likely because no heartbeat reached it for "
                    f"{seconds(self._config.session_timeout_ms)} (session.timeout.ms)",
                )
            case ErrorCode.ILLEGAL_GENERATION:
                self.reset_generation(
                    "the coordinator answered ILLEGAL_GENERATION to a heartbeat",
                    keep_member_id=True,
                    hint=": the group has gone on without this member",
                )
            case ErrorCode.FENCED_INSTANCE_ID as code:
                self._fence(refusal(code, "a heartbeat", self._config, ()))
            case code if code in COORDINATOR_GONE:
                self._coordinator.forget(f"{code_name(code)} to a heartbeat", now_ms)
                clocks.failed(now_ms)
            case ErrorCode.GROUP_AUTHORIZATION_FAILED as code:
                self._raise_from_poll(refusal(code, "a heartbeat", self._config, ()))
                clocks.failed(now_ms)
            case code:
                _log.warning(
                    "group %s: a heartbeat was answered with %s", self._config.group_id, code_name(code)
                )
                clocks.failed(now_ms)

    def _heartbeat_not_answered(self, failure: Failure, now_ms: int) -> None:
        self._heartbeats.failed(now_ms)
        if failure.is_retriable:
            why = f"a heartbeat was not answered ({failure.kind.value}: {failure.message})"
            self._coordinator.forget(why, now_ms)
        else:
            self._raise_from_poll(no_answer(failure, "a heartbeat", self._config))

    def _look_for_reasons(self) -> None:
        """What speaks for a rejoin by itself: another subscription, or other partitions under a leader."""
        status = self.status
        if status.state is not MemberState.STABLE or status.rejoin_reason is not None:
            return
        assigned_from = None if status.generation is None else status.generation.assigned_from
        if status.joined_topics is not None and status.joined_topics != self.subscription.topics:
            self.request_rejoin("subscription has changed")
        elif assigned_from is not None and self._compared_version != self._metadata.cluster.version:
            self._compared_version = self._metadata.cluster.version
            now = self._snapshot()
            if now != assigned_from:
                self.request_rejoin(f"cached metadata has changed: {difference(assigned_from, now)}")

    # --- how membership ends ---------------------------------------------------------------------

    def _end_generation(
        self, reason: str, lost: bool = True, keep_member_id: bool = False, hint: str = ""
    ) -> None:
        """Ends the current generation for this consumer, without a line in the log. The hint is for users only."""
        status = self.status
        state = status.state
        if state in UNDER_WAY:
            state = MemberState.PREPARING
        elif state is MemberState.STABLE:
            state = MemberState.UNJOINED
        overdue_since_ms = None if status.ended is None else status.ended.overdue_since_ms
        self.become(
            replace(
                status,
                state=state,
                attempt=status.attempt + 1,
                member_id=status.member_id if keep_member_id else "",
                generation=None,
                ended=GenerationEnd(reason + hint, lost, overdue_since_ms),
                rejoin_reason=reason,
                prepared=False,
                election=None,
            )
        )

    def _leave_overdue(self, now_ms: int) -> None:
        """The user's code takes too long between two polls: others get the partitions. The user is told by `lost`."""
        limit = seconds(self._config.max_poll_interval_ms)
        polled_ms = self._heartbeats.polled_ms
        waited = seconds(now_ms - polled_ms)
        _log.warning(
            "group %s: poll was not called for %s (max.poll.interval.ms is %s): leaves the group. Raise "
            "max.poll.interval.ms, or lower max.poll.records so that less work is between two polls",
            self._config.group_id,
            waited,
            limit,
        )
        self._send_leave(f"consumer poll timeout has expired: no poll for {waited}", Operation())
        reason = f"poll was not called for {waited} (max.poll.interval.ms is {limit})"
        self._end_generation(reason)
        self.become(replace(self.status, ended=GenerationEnd(reason, overdue_since_ms=polled_ms)))

    def _fence(self, error: KohortError) -> None:
        """Another consumer has this one's place. What was owned is lost; every poll fails from now on."""
        self._end_generation("another consumer joined with the same group.instance.id")
        self.become(replace(self.status, error=error, fenced=error))
        _log.error("group %s: %s", self._config.group_id, error)
        if self.status.state is not MemberState.CALLING_BACK:
            self._lose_and_stay_fenced()
        elif not isinstance(self.status.after_callbacks, PendingLeave):
            self.become(replace(self.status, after_callbacks=AfterCallbacks.LOSE))

    def _lose_and_stay_fenced(self) -> None:
        if self.subscription.partitions:
            self._give_up(CallbackKind.LOST, frozenset(self.subscription.partitions))
            self._call_back(AfterCallbacks.FENCE)
        else:
            self.become(replace(self.status, state=MemberState.FENCED))

    def _go(self, reason: str, operation: Operation[None], was_joining: bool) -> None:
        """The callbacks before leaving have run."""
        sent = self._send_leave(reason, operation, was_joining)
        self.metrics.left()
        self._end_generation(reason)
        self.become(
            replace(
                self.status,
                state=MemberState.LEAVING if sent else MemberState.UNJOINED,
                rejoin_reason="",
                joined_topics=None,
                after_callbacks=None,
                failures=0,
                retry_at_ms=0,
            )
        )
        if not sent:
            operation.finish(None)

    def _send_leave(self, reason: str, operation: Operation[None], was_joining: bool = False) -> bool:
        """Whether a LeaveGroup goes out. Static members stay: they come back under the same name in the session."""
        status, config = self.status, self._config
        if config.group_instance_id is not None and status.member_id:
            _log.info(
                "group %s: the static member %s stays in the group: it may come back within session.timeout.ms (%s)",
                config.group_id,
                config.group_instance_id,
                seconds(config.session_timeout_ms),
            )
            return False
        node_id = self._coordinator.node_id
        if not status.member_id or node_id is None:
            return False
        if status.state is MemberState.UNJOINED and not was_joining:
            return False
        _log.info("group %s: member %s leaves: %s", config.group_id, status.member_id, reason)
        # The answer to a join that is under way may be minutes away, and answers come in order.
        lane = Lane.DATA if was_joining else Lane.GROUP
        self._send_leave_of(status.member_id, reason, operation, node_id, lane)
        return True

    def _send_leave_of(
        self, member_id: str, reason: str, operation: Operation[None], node_id: int, lane: Lane
    ) -> None:
        self._out.append(
            Send(
                node_id,
                LeaveGroupRequest.API_KEY,
                leave_request(self._config.group_id or "", member_id, reason),
                "membership.leave",
                self._config.request_timeout_ms,
                lane,
                on_answer=partial(self._left, operation),
            )
        )

    def _left(self, operation: Operation[None], answer: Answer, now_ms: int) -> None:
        """Whatever the answer: the session ends by itself if the coordinator did not hear of it."""
        self._time(now_ms)
        if answer.failure is not None:
            said = f"no answer ({answer.failure.kind.value})"
        else:
            response: LeaveGroupResponse = answer.response
            codes = [response.error_code, *(member.error_code for member in response.members)]
            said = next((code_name(code) for code in codes if code), "")
        if said:
            _log.info("group %s: LeaveGroup: %s", self._config.group_id, said)
        if self.status.state is MemberState.LEAVING:
            self.become(replace(self.status, state=MemberState.UNJOINED))
        operation.finish(None)

    # --- callbacks -------------------------------------------------------------------------------

    def _give_up(self, kind: CallbackKind, partitions: frozenset[TopicPartition]) -> None:
        """Nothing of these is fetched from now on; they are gone after the callback."""

        def after() -> None:
            kept = [p for p in self.subscription.partitions if p not in partitions]
            self.subscription.assign_from_group(kept)

        self.subscription.revoke(partitions)
        _log.info("group %s: %s: %s", self._config.group_id, kind.value, names(partitions))
        self._callbacks.add(kind, partitions, after=after)

    def _call_back(self, then: AfterCallbacks | PendingLeave) -> None:
        """The front runs what is in the queue; `called_back` goes on with what follows."""
        self.become(replace(self.status, state=MemberState.CALLING_BACK, after_callbacks=then))
        self._callbacks.begin()

    def _time(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)
