"""The consumer's membership in a group of the consumer protocol (KIP-848), where the coordinator assigns. Sans-IO.

    UNSUBSCRIBED ── poll ──► JOINING ──► RECONCILING ──► ACKNOWLEDGING ──► STABLE
                               ▲            ▲                                │ another assignment
                               │            └────────────────────────────────┘
            FENCED, STALE ─────┘ after `lost`           PREPARE_LEAVING ──► LEAVING ──► UNSUBSCRIBED (or STALE)

There is one request, the heartbeat: it joins (epoch 0), says what the member owns, and leaves (epoch -1, of a static
member -2). The answer brings the epoch and, when it has changed, the assignment: topic ids and partitions that this
member may have now. To take it over is a reconciliation: commit what is processed, tell the user what goes and then
what comes, and acknowledge. Partitions that stay are read all the time.

A reconciliation begins in `poll` only, where the user is done with what poll returned before. Heartbeats go on in the
background. All that decides what comes next is one value, `status` (consumer_member_state.py), and `become` is the
only place that replaces it. consumer_heartbeat.py builds the requests, refusals.py the errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.effects import Answer, Failure, Lane, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.errors import FencedInstanceId
from kohort.client.group.assignors import RebalanceProtocol
from kohort.client.group.callbacks import Callback, CallbackKind, Callbacks, names
from kohort.client.group.consumer_heartbeat import (
    after_join,
    fields_of,
    heartbeat,
    last_heartbeat,
    new_target,
)
from kohort.client.group.consumer_member_state import (
    AT_ONCE,
    CONSUMER_TRANSITIONS,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    MEMBERS,
    SILENT,
    STATIC_LEAVE_EPOCH,
    ConsumerMembershipState,
    ConsumerMembershipStatus,
    EpochEnd,
    NumberedAssignment,
    Reconciliation,
    ReconciliationStep,
)
from kohort.client.group.coordinator import COORDINATOR_GONE, GroupCoordinator
from kohort.client.group.group_metrics import GroupMetrics
from kohort.client.group.heartbeats import EpochHeartbeats
from kohort.client.group.refusals import code_name, heartbeat_not_sent, heartbeat_refusal, seconds
from kohort.client.offsets.subscription import Mode, SubscriptionState
from kohort.client.types import GroupMetadata, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.struct import Message

_log = logging.getLogger("kohort.client.membership")

_S = ConsumerMembershipState


class ConsumerMembership:
    """The part that makes a consumer a member of a group of the consumer protocol; see the module's docstring."""

    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.COOPERATIVE
    """Callbacks tell the difference only."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        coordinator: GroupCoordinator,
        subscription: SubscriptionState,
        metadata: Metadata,
        member_id: str,
        commit_first: Callable[[int], bool],
        jitter: Jitter,
    ) -> None:
        assert config.group_id is not None
        self.status = ConsumerMembershipStatus(member_id)
        self.subscription = subscription
        self._out, self._config, self._coordinator, self._metadata = out, config, coordinator, metadata
        self._commit_first = commit_first
        self._clocks = EpochHeartbeats(
            max_poll_interval_ms=config.max_poll_interval_ms,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter),
        )
        self.metrics = GroupMetrics(config.metric_window())
        self._callbacks = Callbacks()
        self._now_ms = 0
        self._seen_error: Exception | None = None  # the coordinator's, when it was last looked at

    def become(self, status: ConsumerMembershipStatus) -> None:
        """Replaces the status. The only place that does; it checks the transition against the table."""
        before, after = self.status.state, status.state
        if after is not before:
            assert after in CONSUMER_TRANSITIONS[before], f"{before} to {after}"
            _log.debug("group %s: %s -> %s", self._config.group_id, before.name, after.name)
        self.status = status

    # --- what others ask -------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerMembershipState:
        return self.status.state

    @property
    def member_id(self) -> str:
        return self.status.member_id

    @property
    def generation_id(self) -> int:
        """The member epoch; -1 outside of the group."""
        return self.status.epoch if self.status.is_member else -1

    @property
    def callback(self) -> Callback | None:
        """What the front has to run in the user's thread; it calls `called_back` afterwards."""
        return self._callbacks.current

    @property
    def is_stable(self) -> bool:
        """Whether this member has its assignment, and none is being taken over."""
        return self.status.state is _S.STABLE

    @property
    def wants_poll(self) -> bool:
        """Whether a join waits for `poll` to begin it. A poll that is waiting should begin anew."""
        return (
            self.status.state in (_S.UNSUBSCRIBED, _S.STALE) and self.status.error is None and self._may_join
        )

    @property
    def rebalance_due(self) -> bool:
        """Never: whatever is due is done within poll, and other members wait for nothing else."""
        return False

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of this member."""
        return self.status.is_member and self.status.state not in SILENT

    @property
    def may_commit_itself(self) -> bool:
        """Whether the commit that is due by the interval may be made: not beside that of a reconciliation."""
        return self.may_commit and self.status.reconciliation is None

    @property
    def rebalance_in_progress(self) -> bool:
        """Never: commits are taken at any time."""
        return False

    @property
    def is_fenced(self) -> bool:
        """Whether another consumer has taken this one's place, for good."""
        return isinstance(self.status.fatal, FencedInstanceId)

    @property
    def left_because(self) -> str | None:
        """Why this consumer is not in the group, to follow "the group moved on because"."""
        ended = self.status.ended
        if ended is None or ended.overdue_since_ms is None:
            return None if ended is None else ended.reason
        return self._overdue(ended.overdue_since_ms)

    def group_metadata(self) -> GroupMetadata:
        config, status = self._config, self.status
        member_id = status.member_id if status.is_member else ""
        return GroupMetadata(config.group_id or "", self.generation_id, member_id, config.group_instance_id)

    def continues(self, earlier: GroupMetadata) -> bool:
        """Whether that identity has become the present one without a join in between: epochs move on by themselves."""
        status = self.status
        return (
            status.is_member
            and earlier.member_id == status.member_id
            and status.joined_epoch <= earlier.generation_id <= status.epoch
        )

    def fetches_as(self) -> GroupMetadata | None:
        """The identity that OffsetFetch carries, so that nobody is told offsets of partitions that it lost."""
        return self.group_metadata() if self.may_commit else None

    @property
    def has_error(self) -> bool:
        return self.status.error is not None and self.callback is None

    def take_error(self) -> Exception | None:
        """What poll raises, once all callbacks have run. A member that is refused for good fails in every poll."""
        error = self.status.error
        if error is None or self.callback is not None:
            return None
        self.become(replace(self.status, error=None))
        return error

    def __repr__(self) -> str:
        status = self.status
        said = [status.state.name, f"member {status.member_id}"]
        if self._config.group_instance_id is not None:
            said.append(f"instance {self._config.group_instance_id}")
        said.append(f"epoch {status.epoch}")
        said.append(f"owns {names(self.subscription.partitions)}")
        if status.reconciliation is not None:
            step = status.reconciliation.step.value
            said.append(f"takes over {names(status.reconciliation.partitions)} ({step})")
        if self.callback is not None:
            said.append(f"callback to run: {self.callback}")
        if status.error is not None:
            said.append(f"error: {status.error}")
        return f"<membership of {self._config.group_id}: {'; '.join(said)}; {self._coordinator!r}>"

    # --- commands --------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> None:
        """The user is in poll, until `poll_ended`. A join or a reconciliation begins here."""
        self._time(now_ms)
        self._clocks.poll_began(now_ms)
        status = self.status
        if status.state is _S.FATAL:
            self.become(replace(status, error=status.error or status.fatal))
        elif status.state in (_S.UNSUBSCRIBED, _S.STALE) and self._may_join:
            self._join(now_ms)
        elif status.callback_failed:
            self.become(replace(status, callback_failed=False))
        self._go_on(now_ms)

    def poll_ended(self, now_ms: int) -> None:
        """The user works with what poll returned: `max.poll.interval.ms` counts from now."""
        self._time(now_ms)
        self._clocks.poll_ended(now_ms)

    def request_rejoin(self, reason: str) -> None:
        """Says that there is nothing to ask for: the coordinator assigns anew whenever something changes."""
        _log.warning(
            "group %s: a rebalance cannot be asked for with group.protocol=consumer: the coordinator begins one "
            "whenever members, subscriptions or topics change (%s)",
            self._config.group_id,
            reason,
        )

    def reset_generation(self, reason: str, lost: bool = True, *, keep_member_id: bool = False) -> None:
        """Asks the coordinator at once whether this is still its member: only a heartbeat's answer can end that."""
        _log.info("group %s: %s; a heartbeat asks what is true", self._config.group_id, reason)
        self._clocks.hurry(self._now_ms)

    def removal(self, reason: str) -> Message | None:
        """The request that takes this member out of its group for good, also a static one; None outside of it."""
        if not self.status.is_member:
            return None
        return last_heartbeat(self.status, self._config, LEAVE_EPOCH)

    def called_back(self, error: BaseException | None, now_ms: int) -> None:
        """The user's function for `callback` has run (or there is none)."""
        self._time(now_ms)
        callback = self.callback
        if callback is None:  # the user closed the consumer inside of its callback
            return
        self._clocks.poll_began(now_ms)  # callbacks run within poll, which goes on now
        self._callbacks.done(error)
        self._raise_from_poll(self._callbacks.take_error())
        if error is None or self.status.state is not _S.RECONCILING:
            self._told(callback)
        match self.status.state:
            case _S.RECONCILING:
                self._reconciled_step(error, now_ms)
            case _S.PREPARE_LEAVING:
                self._go(now_ms)
            case _:
                self._lose()

    def _told(self, callback: Callback) -> None:
        """The user knows: what came is read from now on, what went is gone."""
        if callback.kind is CallbackKind.ASSIGNED:
            self.subscription.assigned_callback_ran()
        else:
            gone = frozenset(callback.partitions)
            self.subscription.assign_from_group([p for p in self.subscription.partitions if p not in gone])

    def leave(self, reason: str, now_ms: int) -> Operation[None]:
        """Gives the partitions back, then leaves. Done when the coordinator answered; the caller bounds the wait.

        Callbacks that have not run are not run any more: what they would have told is told by the last one.
        """
        self._time(now_ms)
        operation: Operation[None] = Operation()
        self.become(replace(self.status, error=None))
        if self.status.state is _S.UNSUBSCRIBED:
            operation.finish(None)
            return operation
        is_lost = not self.may_commit
        if is_lost and self.status.state is not _S.JOINING:
            self.become(replace(self.status, epoch=JOIN_EPOCH, told=None))
        self._callbacks.drop()
        owned = self.subscription.drop_unannounced()
        self.become(
            replace(
                self.status,
                state=_S.PREPARE_LEAVING,
                reconciliation=None,
                leaving=operation,
                leave_reason=reason,
            )
        )
        if owned:
            self._call_back(CallbackKind.LOST if is_lost else CallbackKind.REVOKED, owned)
        else:
            self._go(now_ms)
        return operation

    # --- the part --------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._time(now_ms)
        if self._clocks.in_poll and self.callback is None:  # a callback's time is the user's
            self._clocks.polled(now_ms)
        self._go_on(now_ms)
        self._stay(now_ms, Lane.DATA)

    def tick_background(self, now_ms: int) -> None:
        """While the user works: heartbeats, and leaving when poll is overdue. No reconciliation begins here."""
        self._time(now_ms)
        self._clocks.user_works()
        self._stay(now_ms, Lane.GROUP)

    def next_deadline_ms(self) -> int | None:
        return self._deadline_ms(not self._clocks.in_poll or self.callback is not None)

    def next_background_deadline_ms(self) -> int | None:
        """When `tick_background` must be called; None while there is nothing to keep alive."""
        return self._deadline_ms(True)

    def _deadline_ms(self, with_poll: bool) -> int | None:
        if self._is_silent:
            return None
        dues = [self._clocks.poll_deadline_ms] if with_poll and self.status.state in MEMBERS else []
        if self._coordinator.node_id is None:
            due = self._coordinator.next_deadline_ms()
        elif self._waits_for_metadata:
            due = None
        else:
            due = self._clocks.due_ms(at_once=self._has_something_to_tell)
        if due is not None:
            dues.append(due)
        return min(dues, default=None)

    # --- joining ---------------------------------------------------------------------------------

    @property
    def _may_join(self) -> bool:
        return self.subscription.is_group and self.callback is None

    def _join(self, now_ms: int) -> None:
        """The next heartbeat joins."""
        version = None
        if self.subscription.mode is Mode.PATTERN and self._metadata.is_due:
            version = self._metadata.cluster.version
        why = self.left_because
        ended = None if why is None else EpochEnd(why)
        self.become(replace(after_join(self.status), metadata_after=version, ended=ended))
        self._clocks.restart(now_ms)
        self.metrics.asked(now_ms)

    @property
    def _waits_for_metadata(self) -> bool:
        """Whether a join by pattern waits to know which topics there are."""
        after = self.status.metadata_after
        return after is not None and self._metadata.cluster.version <= after

    # --- heartbeats ------------------------------------------------------------------------------

    @property
    def _is_silent(self) -> bool:
        """Whether no heartbeat is sent: not in the group, or dropped by it while leaving."""
        state = self.status.state
        return state in SILENT or (state is _S.PREPARE_LEAVING and not self.status.is_member)

    @property
    def _has_something_to_tell(self) -> bool:
        """Whether the heartbeat does not wait for the interval."""
        status = self.status
        if status.state in AT_ONCE:
            return True
        told = status.told
        return (
            told is not None
            and status.state in MEMBERS
            and told.regex is None
            and told.topics != self.subscription.topics
        )

    def _stay(self, now_ms: int, lane: Lane) -> None:
        """Sends the heartbeat that is due. In the background only the group lane is served."""
        status, clocks = self.status, self._clocks
        if self._is_silent:
            return
        if clocks.poll_is_overdue(now_ms) and status.state in MEMBERS:
            self._leave_overdue()
            return
        node_id = self._coordinator.ensure(now_ms, lane)
        if node_id is None:
            self._look_at_coordinator_error()
            return
        due_ms = clocks.due_ms(at_once=self._has_something_to_tell)
        if due_ms is not None and now_ms >= due_ms and not self._waits_for_metadata:
            self._send_heartbeat(node_id, now_ms)

    def _send_heartbeat(self, node_id: int, now_ms: int) -> None:
        status = self.status
        told = fields_of(status, self._config, self.subscription)
        if status.state is _S.JOINING:
            _log.info(
                "group %s: joins as %s, wants %s",
                self._config.group_id,
                status.member_id,
                told.regex or ", ".join(sorted(told.topics)) or "nothing",
            )
        number = self._clocks.send(now_ms)
        self.metrics.heartbeat_sent(now_ms)
        self._out.append(
            Send(
                node_id,
                ConsumerGroupHeartbeatRequest.API_KEY,
                heartbeat(status, self._config, told),
                "membership.heartbeat",
                self._config.request_timeout_ms,
                Lane.GROUP,
                on_answer=partial(self._answered, number, status.attempt),
            )
        )
        state, joins = status.state, status.joins_sent + (status.state is _S.JOINING)
        if state is _S.ACKNOWLEDGING:
            state = _S.STABLE if status.is_reconciled else _S.RECONCILING
        self.become(replace(status, state=state, told=told, metadata_after=None, joins_sent=joins))

    def _answered(self, number: int, attempt: int, answer: Answer, now_ms: int) -> None:
        self._time(now_ms)
        if attempt != self.status.attempt or number != self._clocks.in_flight:
            return  # of an earlier membership, or of one that has ended
        if answer.failure is not None:
            self._not_answered(answer.failure, now_ms)
            return
        self.metrics.heartbeat_answered(now_ms)
        response: ConsumerGroupHeartbeatResponse = answer.response
        if response.error_code == ErrorCode.NONE:
            self._coordinator.worked()
            self._clocks.received(response.heartbeat_interval_ms, now_ms)
            self._accepted(response)
            self._go_on(now_ms)
        else:
            self.become(replace(self.status, told=None))
            self._refused(response.error_code, response.error_message or "", now_ms)

    def _accepted(self, response: ConsumerGroupHeartbeatResponse) -> None:
        status = self.status
        if response.member_epoch != status.epoch:
            joined = response.member_epoch if status.epoch == JOIN_EPOCH else status.joined_epoch
            self.become(
                replace(
                    status,
                    epoch=response.member_epoch,
                    joined_epoch=joined,
                    ended=None,
                    released=False,
                )
            )
            _log.info(
                "group %s: member %s has epoch %d",
                self._config.group_id,
                status.member_id,
                response.member_epoch,
            )
        if response.assignment is not None and self.status.state in MEMBERS:
            self._aim_at(response.assignment.topic_partitions)

    def _not_answered(self, failure: Failure, now_ms: int) -> None:
        """The coordinator may or may not have got the heartbeat: the next one says everything."""
        self.become(replace(self.status, told=None, released=False))
        self._clocks.failed(now_ms)
        if failure.is_retriable:
            why = f"a heartbeat was not answered ({failure.kind.value}: {failure.message})"
            self._coordinator.forget(why, now_ms)
        else:
            self._fail(heartbeat_not_sent(failure, self._config))

    def _refused(self, code: int, said: str, now_ms: int) -> None:
        name, clocks, status = code_name(code), self._clocks, self.status
        match code:
            case code if code in COORDINATOR_GONE:
                self._coordinator.forget(f"{name} to a heartbeat", now_ms)
                clocks.restart(now_ms)
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                clocks.failed(now_ms)
            case ErrorCode.UNRELEASED_INSTANCE_ID if status.joins_sent > 1 and not status.released:
                self._release_instance(now_ms)
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                clocks.failed(now_ms)
                self._raise_from_poll(heartbeat_refusal(code, said, self._config, self.subscription))
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH:
                clocks.restart(now_ms)
                self._fence(name, said)
            case ErrorCode.GROUP_ID_NOT_FOUND if status.is_member:
                # Its classic members are left, and the group is theirs; or all were gone. A join tells whether it may.
                clocks.restart(now_ms)
                self._fence(name, said)
            case _:
                clocks.failed(now_ms)
                self._fail(heartbeat_refusal(code, said, self._config, self.subscription))

    def _release_instance(self, now_ms: int) -> None:
        """Says that the holder of the group.instance.id is away, if that is this very consumer; then it joins again.

        The coordinator lets nobody join under a name that is held, not even who holds it: a static member whose join
        was taken and not answered, or whose epoch has got out of step, would be locked out by itself.
        """
        _log.info(
            "group %s: the place of %s may be this consumer's own: gives it free and joins again",
            self._config.group_id,
            self._config.group_instance_id,
        )
        number = self._clocks.send(now_ms)
        self._send_last(STATIC_LEAVE_EPOCH, partial(self._released, number, self.status.attempt))

    def _released(self, number: int, attempt: int, answer: Answer, now_ms: int) -> None:
        """The name is free, or it is not this consumer's: the next join tells."""
        self._time(now_ms)
        if attempt != self.status.attempt or number != self._clocks.in_flight:
            return
        if answer.failure is not None:
            self._not_answered(answer.failure, now_ms)
        else:
            self.become(replace(self.status, released=True))
            self._clocks.restart(now_ms)

    def _look_at_coordinator_error(self) -> None:
        """A look-up that cannot succeed is an error of poll, once for each look-up."""
        error = self._coordinator.error
        if error is not None and error is not self._seen_error:
            self._raise_from_poll(error)
        self._seen_error = error

    # --- a new assignment ------------------------------------------------------------------------

    def _aim_at(self, assigned: list[TopicPartitions]) -> None:
        """The coordinator has named an assignment. It is taken over in poll."""
        status = self.status
        target = new_target(status.target, assigned)
        if target != status.target:
            self.become(replace(status, target=target, metadata_before=self._metadata.cluster.version))
        if self.subscription.mode is Mode.BROKER_PATTERN:
            ids = frozenset(topic_id for topic_id, _ in target.partitions)
            self._metadata.want(frozenset(), ids=ids, now_ms=self._now_ms)
        if not self.status.is_reconciled:
            if status.state not in (_S.RECONCILING, _S.ACKNOWLEDGING):
                self.metrics.asked(self._now_ms)
            self.become(replace(self.status, state=_S.RECONCILING))
        elif status.state is _S.JOINING or (status.state is _S.RECONCILING and not status.reconciliation):
            self.become(replace(self.status, state=_S.STABLE))

    def _go_on(self, now_ms: int) -> None:
        """Takes a reconciliation as far as it goes without waiting. It begins while the user is in poll."""
        status = self.status
        if status.state is not _S.RECONCILING or self.callback is not None or status.callback_failed:
            return
        if status.reconciliation is None and self._clocks.in_poll:
            self._reconcile()
        reconciliation = self.status.reconciliation
        if reconciliation is None or reconciliation.step is not ReconciliationStep.COMMIT:
            return
        if self._commit_first(now_ms):
            self._revoke(reconciliation)

    def _reconcile(self) -> None:
        """Begins to take over what is known by name of the target; for the rest the metadata is asked again."""
        status = self.status
        assert status.target is not None
        known: dict[tuple[bytes, int], TopicPartition] = {}
        for topic_id, number in status.target.partitions:
            name = self._metadata.topic_name(topic_id)
            if name is not None:
                known[topic_id, number] = TopicPartition(name, number)
        if len(known) < len(status.target.partitions):
            self._metadata.request_update("a topic was assigned whose name is not known yet")
            if self._metadata.cluster.version <= status.metadata_before:
                return  # most likely the names come with the next answer
        assignment = NumberedAssignment(status.target.number, frozenset(known))
        if assignment == status.owned:
            return  # the names of the others are to come
        if status.owned is not None and assignment.partitions == status.owned.partitions:
            self.become(replace(status, owned=assignment, state=_S.ACKNOWLEDGING))
            return
        partitions = frozenset(known.values())
        going = self._announced() - partitions
        self.subscription.revoke(going)
        self.become(replace(status, reconciliation=Reconciliation(assignment, partitions)))

    def _announced(self) -> frozenset[TopicPartition]:
        """The partitions that the user was told of."""
        return frozenset(p for p, state in self.subscription.partitions.items() if not state.assigning)

    def _step(self, reconciliation: Reconciliation, step: ReconciliationStep) -> None:
        self.become(replace(self.status, reconciliation=replace(reconciliation, step=step)))

    def _revoke(self, reconciliation: Reconciliation) -> None:
        going = self._announced() - reconciliation.partitions
        if going:
            self._step(reconciliation, ReconciliationStep.REVOKE)
            self._call_back(CallbackKind.REVOKED, going)
        else:
            self._assign(reconciliation)

    def _assign(self, reconciliation: Reconciliation) -> None:
        """Tells the user what comes, also if it is nothing: the rebalance is over."""
        coming = reconciliation.partitions - self._announced()
        self._step(reconciliation, ReconciliationStep.ASSIGN)
        _log.info(
            "group %s: owns %s in epoch %d%s",
            self._config.group_id,
            names(reconciliation.partitions),
            self.status.epoch,
            f" (new: {names(coming)})" if coming != reconciliation.partitions else "",
        )
        self.subscription.assign_from_group(sorted(reconciliation.partitions))
        self._callbacks.add(CallbackKind.ASSIGNED, coming)
        self._callbacks.begin()

    def _reconciled_step(self, error: BaseException | None, now_ms: int) -> None:
        """A callback of the reconciliation has run."""
        reconciliation = self.status.reconciliation
        assert reconciliation is not None
        if error is not None:
            _log.warning(
                "group %s: a rebalance callback raised: the assignment is not acknowledged; the next poll tries again",
                self._config.group_id,
            )
            self.become(replace(self.status, reconciliation=None, callback_failed=True))
        elif reconciliation.step is ReconciliationStep.REVOKE:
            self._assign(reconciliation)
        else:
            self.metrics.rebalanced(now_ms)
            self.become(
                replace(
                    self.status,
                    state=_S.ACKNOWLEDGING,
                    owned=reconciliation.assignment,
                    reconciliation=None,
                )
            )

    # --- how membership ends ---------------------------------------------------------------------

    def _fence(self, name: str, said: str) -> None:
        """The coordinator has dropped this member: what it owned is lost, and it joins again at once."""
        why = f"the coordinator answered {name} to a heartbeat" + (f" ({said})" if said else "")
        _log.info(
            "group %s: member %s with epoch %d is not in the group any more: %s",
            self._config.group_id,
            self.status.member_id,
            self.status.epoch,
            why,
        )
        ended = EpochEnd(
            f"{why}: it has removed this member, most likely because it heard nothing of it for long"
        )
        self.become(replace(self.status, epoch=JOIN_EPOCH, ended=ended, reconciliation=None, told=None))
        if self.status.state is _S.PREPARE_LEAVING:
            return  # nothing is left to leave; the callback runs
        self.metrics.failed(self._now_ms)
        self.become(replace(self.status, state=_S.FENCED, attempt=self.status.attempt + 1))
        self._lose()

    def _fail(self, error: Exception) -> None:
        """The coordinator refuses this member: what it owned is lost, every poll fails from now on."""
        if self.status.state is _S.PREPARE_LEAVING:
            _log.info("group %s: does not leave in order: %s", self._config.group_id, error)
            self.become(replace(self.status, epoch=JOIN_EPOCH, told=None))
            return
        _log.error("group %s: %s", self._config.group_id, error)
        self.metrics.failed(self._now_ms)
        self.become(
            replace(
                self.status,
                state=_S.FATAL,
                epoch=JOIN_EPOCH,
                attempt=self.status.attempt + 1,
                reconciliation=None,
                ended=EpochEnd(str(error)),
                error=self.status.error or error,
                fatal=error,
            )
        )
        self._lose()

    def _leave_overdue(self) -> None:
        """The user's code takes too long between two polls: others get the partitions. The user is told by `lost`."""
        polled_ms = self._clocks.polled_ms
        _log.warning(
            "group %s: %s: leaves the group. Raise max.poll.interval.ms, or lower max.poll.records so that less work "
            "is between two polls",
            self._config.group_id,
            self._overdue(polled_ms),
        )
        self.become(replace(self.status, state=_S.PREPARE_LEAVING, reconciliation=None))
        self._say_goodbye(Operation())
        ended = EpochEnd("", overdue_since_ms=polled_ms)
        self.become(replace(self.status, state=_S.STALE, ended=ended))
        self._lose()

    def _overdue(self, polled_ms: int) -> str:
        return (
            f"poll was not called for {seconds(self._now_ms - polled_ms)} "
            f"(max.poll.interval.ms is {seconds(self._config.max_poll_interval_ms)})"
        )

    def _lose(self) -> None:
        """Tells the user that everything is lost; the state says what follows. A callback under way comes first."""
        if self.callback is not None:
            return
        owned = self.subscription.drop_unannounced()
        if owned:
            self._call_back(CallbackKind.LOST, owned)
            return
        self.become(replace(self.status, owned=None, target=None))
        state = self.status.state
        if state is _S.FENCED or (state is _S.STALE and self._clocks.in_poll):
            self._join(self._now_ms)

    def _go(self, now_ms: int) -> None:
        """The callbacks before leaving have run."""
        operation = self.status.leaving
        assert operation is not None
        self.metrics.left()
        if self.status.is_member or (self.status.attempt and self.status.told is not None):
            _log.info(
                "group %s: member %s leaves: %s",
                self._config.group_id,
                self.status.member_id,
                self.status.leave_reason,
            )
            self._say_goodbye(operation)
        else:
            operation.finish(None)
        ended = EpochEnd(self.status.leave_reason)
        self.become(
            replace(
                self.status,
                state=_S.UNSUBSCRIBED,
                leaving=None,
                fatal=None,
                target=None,
                owned=None,
                ended=ended,
            )
        )

    def _say_goodbye(self, operation: Operation[None]) -> None:
        """Sends the last heartbeat, if there is somebody to send it to; its answer only ends the operation."""
        status = self.status
        self.become(
            replace(status, state=_S.LEAVING, epoch=JOIN_EPOCH, attempt=status.attempt + 1, told=None)
        )
        self._clocks.restart(self._now_ms)
        is_static = self._config.group_instance_id is not None
        epoch = STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH
        if not self._send_last(epoch, partial(self._left, operation)):
            operation.finish(None)

    def _send_last(self, epoch: int, on_answer: Callable[[Answer, int], None]) -> bool:
        """Returns False if there is nobody to send it to."""
        node_id = self._coordinator.node_id
        if node_id is None:
            return False
        request = last_heartbeat(self.status, self._config, epoch)
        self._out.append(
            Send(
                node_id,
                ConsumerGroupHeartbeatRequest.API_KEY,
                lambda version: request,
                "membership.leave",
                self._config.request_timeout_ms,
                Lane.GROUP,
                on_answer=on_answer,
            )
        )
        return True

    def _left(self, operation: Operation[None], answer: Answer, now_ms: int) -> None:
        """Whatever the answer: the session ends by itself if the coordinator did not hear of it."""
        self._time(now_ms)
        if answer.failure is not None:
            _log.info("group %s: leaving: no answer (%s)", self._config.group_id, answer.failure.kind.value)
        elif code := answer.response.error_code:
            _log.info("group %s: leaving: %s", self._config.group_id, code_name(code))
        operation.finish(None)

    # --- callbacks -------------------------------------------------------------------------------

    def _call_back(self, kind: CallbackKind, partitions: frozenset[TopicPartition]) -> None:
        """Has the front tell the user what goes. Nothing of it is fetched from now on; it is gone afterwards."""
        self.subscription.revoke(partitions)
        _log.info("group %s: %s: %s", self._config.group_id, kind.value, names(partitions))
        self._callbacks.add(kind, partitions)
        self._callbacks.begin()

    def _raise_from_poll(self, error: Exception | None) -> None:
        """The next poll raises this, unless it has something else to raise already."""
        if error is not None and self.status.error is None:
            self.become(replace(self.status, error=error))

    def _time(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)
