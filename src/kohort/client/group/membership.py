"""A consumer's membership in its group: one state that can be printed, and what may follow it.

    UNJOINED ── poll ──► PREPARING ──► JOINING ──► (ASSIGNING: the leader waits for metadata) ──► SYNCING
                          ▲    │ ▲                                                                  │
        retry, rejoin ────┘    ▼ │                                                                  ▼
                        CALLING_BACK (revoked, lost)                        CALLING_BACK (revoked, assigned) ──► STABLE

A join begins in `poll` only: before it, what poll returned earlier is committed, so the user must be done with it. Once
begun it goes on with `tick` and with the answers. The other files of this part:

    membership_prepare.py   what comes before a join                 membership_stay.py  heartbeats, leaving
    membership_join.py   JoinGroup, SyncGroup and their answers      membership_state.py the states, as a table
    leadership.py        what the leader does                        callbacks.py        what the user is told
    membership_requests.py  the bytes     membership_words.py  the words     heartbeats.py  the clocks
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.effects import Outbox
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.group import membership_join, membership_prepare, membership_stay
from kohort.client.group.assignors import Assignor, common_protocol
from kohort.client.group.callbacks import Callback, CallbackKind, Callbacks, names
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.heartbeats import Heartbeats
from kohort.client.group.leadership import Election, Snapshot, difference, snapshot
from kohort.client.group.membership_state import NO_GENERATION, TRANSITIONS, UNDER_WAY, State
from kohort.client.group.membership_words import seconds
from kohort.client.offsets.subscription import Mode, SubscriptionState
from kohort.client.types import GroupMetadata, TopicPartition

__all__ = ["Callback", "CallbackKind", "Membership", "State", "TRANSITIONS"]

_log = logging.getLogger("kohort.client.membership")


class Membership:
    """A part. See the module's docstring; attributes are shared by its files."""

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
        """SettingError if the assignors have no rebalance protocol in common."""
        assert config.group_id is not None
        self.out, self.config, self.coordinator = out, config, coordinator
        self.subscription, self.metadata, self.assignors = subscription, metadata, tuple(assignors)
        self.before_join = before_join
        self.protocol = common_protocol(self.assignors)
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self.heartbeats = Heartbeats(
            config.heartbeat_interval_ms,
            config.session_timeout_ms,
            config.max_poll_interval_ms,
            self.backoff,
        )
        self.state = State.UNJOINED
        self.attempt = 0
        """Counts joins and what makes them void. A JoinGroup or SyncGroup of an earlier attempt is answered late."""
        self.generation_id, self.member_id = NO_GENERATION, ""
        self.protocol_name: str | None = None
        self.rejoin_needed, self.rejoin_reason = True, ""
        self.prepared = False
        """Whether commit and callbacks before the next join are done."""
        self.joined_topics: frozenset[str] | None = None
        self.is_leader = False
        self.election: Election | None = None
        self.assigned_from: Snapshot | None = None
        self.failures, self.retry_at_ms = 0, 0
        self.error: Exception | None = None
        self.fenced: Exception | None = None
        self.callbacks = Callbacks()
        self.leaving = False
        """The callbacks that run now are those before leaving."""
        self.after_callbacks: Callable[[int], None] | None = None
        self.coordinators_seen = 0
        self.in_poll = False
        self.now_ms = 0
        self.lost = True
        self.fresh_after: int | None = None
        self._seen_version = -1
        self._seen_error: Exception | None = None
        self._left: str | None = None
        self.overdue_since_ms: int | None = None
        """The last poll, if the member left because no other one came."""

    # --- what others ask -------------------------------------------------------------------------

    @property
    def callback(self) -> Callback | None:
        """What the front has to run in the user's thread; it calls `called_back` afterwards."""
        return self.callbacks.current

    @property
    def is_stable(self) -> bool:
        """A member that has its assignment, and nothing speaks for a rejoin."""
        return self.state is State.STABLE and not self.rejoin_needed

    @property
    def wants_poll(self) -> bool:
        """Whether a join is needed and waits for `poll` to begin it. A poll that is waiting should begin anew."""
        begins = self.state in (State.UNJOINED, State.STABLE, State.LEAVING)
        return begins and self.rejoin_needed and self.error is None and self.subscription.is_group

    @property
    def is_polling(self) -> bool:
        """Whether the consumer's own code is in charge: a callback's time is the user's."""
        return self.in_poll and self.state is not State.CALLING_BACK

    @property
    def rebalance_due(self) -> bool:
        return not self.is_stable

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of this generation: also while the callbacks before a join run."""
        if self.generation_id == NO_GENERATION:
            return False
        return self.state in (State.STABLE, State.CALLING_BACK) or (
            self.state is State.PREPARING and not self.prepared
        )

    @property
    def rebalance_in_progress(self) -> bool:
        """Between a join and its assignment. Commits wait for it to end."""
        return self.state in (State.JOINING, State.ASSIGNING, State.SYNCING) or (
            self.prepared and self.state in (State.PREPARING, State.UNJOINED)
        )

    @property
    def is_fenced(self) -> bool:
        """Another consumer has this one's place, for good."""
        return self.fenced is not None

    @property
    def left_because(self) -> str | None:
        """Why this consumer is no member of the generation it was in, to follow "the group moved on because"."""
        return self.why_left(self.now_ms)

    def why_left(self, now_ms: int) -> str | None:
        if self.overdue_since_ms is None:
            return self._left
        return (
            f"poll was not called for {seconds(now_ms - self.overdue_since_ms)} "
            f"(max.poll.interval.ms is {seconds(self.config.max_poll_interval_ms)})"
        )

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata(
            self.config.group_id or "", self.generation_id, self.member_id, self.config.group_instance_id
        )

    @property
    def has_error(self) -> bool:
        return self.error is not None and self.callback is None

    def take_error(self) -> Exception | None:
        """To be raised from poll, once all callbacks have run. A fenced member fails in every poll."""
        if self.callback is not None:
            return None
        error, self.error = self.error, None
        return error

    def __repr__(self) -> str:
        said = [self.state.name, f"member {self.member_id or 'without id'}"]
        if self.config.group_instance_id is not None:
            said.append(f"instance {self.config.group_instance_id}")
        said.append(f"generation {self.generation_id}")
        if self.protocol_name:
            said.append(f"{'leader' if self.is_leader else 'follower'} by {self.protocol_name}")
        said.append(f"{self.protocol.name.lower()}, owns {names(self.subscription.partitions)}")
        if self.rejoin_needed:
            said.append(f"rejoin needed: {self.rejoin_reason or 'not joined yet'}")
        if self.callback is not None:
            said.append(f"callback to run: {self.callback}")
        if self.retry_at_ms > self.now_ms:
            said.append(f"retry in {self.retry_at_ms - self.now_ms} ms")
        if self.error is not None:
            said.append(f"error: {self.error}")
        return f"<membership of {self.config.group_id}: {'; '.join(said)}; {self.coordinator!r}>"

    # --- commands --------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> None:
        """The user is in poll, until `poll_ended`. A join begins here; see `wants_poll`."""
        self.time(now_ms)
        self.in_poll = True
        self.heartbeats.polled(now_ms)
        if self.overdue_since_ms is not None:
            self._left, self.overdue_since_ms = self.why_left(now_ms), None
        self._look_for_reasons()
        if self.state is State.FENCED:
            self.error = self.fenced
        elif self.wants_poll:
            membership_prepare.prepare(self, now_ms)

    def poll_ended(self, now_ms: int) -> None:
        """The user works with what poll returned: `max.poll.interval.ms` counts from now."""
        self.time(now_ms)
        self.in_poll = False
        self.heartbeats.polled(now_ms)

    def request_rejoin(self, reason: str) -> None:
        """The next poll joins again. The reason goes to the log and to the broker. Nothing if a join is under way."""
        if self.rejoin_needed and self.state not in (State.UNJOINED, State.STABLE):
            return
        _log.info("group %s: rejoins at the next poll: %s", self.config.group_id, reason)
        self.rejoin_needed, self.rejoin_reason = True, reason

    def reset_generation(
        self, reason: str, lost: bool = True, *, keep_member_id: bool = False, hint: str = ""
    ) -> None:
        """This consumer is no member of its generation any more. `lost`: others may have its partitions already."""
        _log.info(
            "group %s: member %s is not in generation %s any more: %s",
            self.config.group_id,
            self.member_id or "(without id)",
            self.generation_id,
            reason + hint,
        )
        self.end_generation(reason, keep_member_id)
        self.lost, self._left = lost, reason + hint

    def end_generation(self, reason: str, keep_member_id: bool = False) -> None:
        """The same for the files of this part, where the log knows already."""
        self.attempt += 1
        self.generation_id, self.protocol_name = NO_GENERATION, None
        if not keep_member_id:
            self.member_id = ""
        self.lost, self._left = True, reason
        self.rejoin_needed, self.rejoin_reason = True, reason
        self.prepared, self.election = False, None
        if self.state in UNDER_WAY:
            self.become(State.PREPARING)
        elif self.state is State.STABLE:
            self.become(State.UNJOINED)

    def called_back(self, error: BaseException | None, now_ms: int) -> None:
        """The user's function for `callback` has run (or there is none)."""
        self.time(now_ms)
        if self.callback is None:  # the user closed the consumer inside of its callback
            return
        if self.callbacks.done(error):
            raised = self.callbacks.take_error()
            self.error = raised if self.error is None else self.error
            then, self.after_callbacks = self.after_callbacks, None
            assert then is not None
            then(now_ms)

    def leave(self, reason: str, now_ms: int) -> Operation[None]:
        """Gives the partitions back, then leaves. Done when the coordinator answered; the caller bounds the wait."""
        self.time(now_ms)
        return membership_stay.leave(self, reason, now_ms)

    # --- the part --------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self.time(now_ms)
        if self.is_polling:
            self.heartbeats.polled(now_ms)
        membership_stay.stay(self, now_ms)
        self._look_for_reasons()
        membership_prepare.go_on(self, now_ms)

    def tick_background(self, now_ms: int) -> None:
        """While the user works: heartbeats, and leaving when poll is overdue. No join begins here."""
        self.time(now_ms)
        self.in_poll = False
        membership_stay.stay(self, now_ms, in_background=True)
        if self.state is State.ASSIGNING:
            membership_join.assign(self, now_ms)

    def next_deadline_ms(self) -> int | None:
        due = membership_stay.next_deadline_ms(self)
        if self.state is State.PREPARING and self.prepared and self.coordinator.node_id is not None:
            return self.retry_at_ms if due is None else min(due, self.retry_at_ms)
        return due

    def next_background_deadline_ms(self) -> int | None:
        """When `tick_background` must be called; None while there is nothing to keep alive."""
        return membership_stay.next_deadline_ms(self, in_background=True)

    # --- shared by the files of this part --------------------------------------------------------

    def become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state] or state is self.state, f"{self.state} to {state}"
        if state is not self.state:
            _log.debug("group %s: %s -> %s", self.config.group_id, self.state.name, state.name)
        self.state = state

    def give_up(self, kind: CallbackKind, partitions: frozenset[TopicPartition]) -> None:
        """Nothing of these is fetched from now on; they are gone after the callback."""

        def after() -> None:
            kept = [p for p in self.subscription.partitions if p not in partitions]
            self.subscription.assign_from_group(kept)

        for partition in partitions:
            self.subscription.partitions[partition].revoking = True
        _log.info("group %s: %s: %s", self.config.group_id, kind.value, names(partitions))
        self.callbacks.add(kind, partitions, after=after)

    def call_back(self, then: Callable[[int], None]) -> None:
        """Runs what is in `callbacks`, then goes on."""
        self.after_callbacks = then
        self.become(State.CALLING_BACK)
        self.callbacks.begin()

    def again(self, why: str, now_ms: int, *, at_once: bool = False) -> None:
        """The join failed and is tried again, with the identity that is left."""
        self.attempt += 1
        self.failures = 0 if at_once else self.failures + 1
        self.retry_at_ms = now_ms if at_once else now_ms + self.backoff.after(self.failures)
        self.rejoin_needed, self.election = True, None
        _log.info(
            "group %s: joins again%s: %s",
            self.config.group_id,
            "" if at_once else f" in {self.retry_at_ms - now_ms} ms",
            why,
        )
        self.become(State.PREPARING)
        membership_prepare.go_on(self, now_ms)

    def fail(self, error: Exception, now_ms: int) -> None:
        """The caller of poll is told; a later poll tries again."""
        _log.error("group %s: %s", self.config.group_id, error)
        self.attempt += 1
        self.error = error if self.error is None else self.error
        self.failures += 1
        self.retry_at_ms = now_ms + self.backoff.after(self.failures)
        self.rejoin_needed, self.election = True, None
        if self.state is not State.CALLING_BACK:
            self.become(State.UNJOINED)

    def want_topics(self, now_ms: int) -> None:
        if self.subscription.mode is Mode.PATTERN:
            self.metadata.want(None, now_ms=now_ms)
        else:
            topics = self.subscription.topics | self.subscription.group_topics
            allow = self.config.allow_auto_create_topics
            self.metadata.want(topics, allow_auto_create=allow, now_ms=now_ms)

    def watch(self) -> Snapshot:
        """What an assignment of this moment is made from."""
        topics = self.subscription.topics | self.subscription.group_topics
        return snapshot(self.metadata.cluster, topics, bool(self.config.client_rack))

    def look_at_coordinator_error(self) -> None:
        """A look-up that cannot succeed is an error of poll, once for each look-up."""
        error = self.coordinator.error
        if error is not None and error is not self._seen_error and self.error is None:
            self.error = error
            if self.state is State.PREPARING:
                self.become(State.UNJOINED)
        self._seen_error = error

    def settled(self) -> None:
        """A new assignment is known: nothing speaks for a rejoin until something happens."""
        self.rejoin_needed, self.rejoin_reason = False, ""
        self.prepared, self.failures, self.retry_at_ms = False, 0, 0
        self.lost, self._left, self.overdue_since_ms = True, None, None
        self.coordinator.worked()

    def _look_for_reasons(self) -> None:
        """What speaks for a rejoin by itself: another subscription, or other partitions under a leader."""
        if self.state is not State.STABLE or self.rejoin_needed:
            return
        if self.joined_topics is not None and self.joined_topics != self.subscription.topics:
            self.request_rejoin("subscription has changed")
        elif self.assigned_from is not None and self._seen_version != self.metadata.cluster.version:
            self._seen_version = self.metadata.cluster.version
            now = self.watch()
            if now != self.assigned_from:
                self.request_rejoin(f"cached metadata has changed: {difference(self.assigned_from, now)}")

    def time(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)
