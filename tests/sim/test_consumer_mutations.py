"""The simulator can fail: bugs planted in the client and the broker are each found, with the seed in the message."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from kohort.broker.groups.commit_frames import FrameLayout
from kohort.client.consume import calls as consumer_calls
from kohort.client.consume.consumer_core import ConsumerCore
from kohort.client.consume.fetch_buffer import FetchBuffer
from kohort.client.core.effects import Answer
from kohort.client.core.steps import Until
from kohort.client.group.callbacks import CallbackKind, Callbacks
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.heartbeats import Heartbeats
from kohort.client.group.membership import Membership
from kohort.client.offsets.commits import Commits
from kohort.client.offsets.positions import Positions
from kohort.client.offsets.subscription import PartitionState, SubscriptionState
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.sim import Broken, run_consumers
from kohort.sim.faults import FaultRates

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    MUTATIONS[plant.__name__] = plant
    return plant


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


# --- commits


@mutation
def nothing_is_committed_before_a_rejoin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Commits, "before_join", lambda self, now_ms: True)


@mutation
def a_refused_commit_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    def done(self: Commits, answer: Answer, commit: Any, *others: Any) -> None:
        commit.operation.finish(commit.offsets)

    patch.setattr(Commits, "_refused", done)


@mutation
def a_commit_without_an_answer_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    def done(self: Commits, commit: Any, error: Any, now_ms: int) -> None:
        commit.operation.finish(commit.offsets)

    patch.setattr(Commits, "_again", done)


@mutation
def commits_are_one_too_far(patch: pytest.MonkeyPatch) -> None:
    consumed = SubscriptionState.consumed

    def further(self: SubscriptionState) -> dict[TopicPartition, OffsetAndMetadata]:
        return {p: at._replace(offset=at.offset + 1) for p, at in consumed(self).items()}

    patch.setattr(SubscriptionState, "consumed", further)


@mutation
def what_is_fetched_is_committed(patch: pytest.MonkeyPatch) -> None:
    consumed = SubscriptionState.consumed

    def fetched(self: SubscriptionState) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            p: at._replace(offset=max(at.offset, self.partitions[p].high_watermark))
            for p, at in consumed(self).items()
        }

    patch.setattr(SubscriptionState, "consumed", fetched)


@mutation
def nothing_is_committed_on_close(patch: pytest.MonkeyPatch) -> None:
    def skipped(self: Commits, now_ms: int, deadline_ms: int) -> Any:
        return self._add({}, deadline_ms, nothing, retry=True)

    patch.setattr(Commits, "commit_on_close", skipped)


# --- positions and fetches


@mutation
def positions_survive_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    def keep(self: SubscriptionState, partitions: Iterable[TopicPartition]) -> bool:
        memory = KEPT.setdefault(id(self), {})
        memory.update(self.partitions)
        before = self.partitions
        self.partitions = {
            p: memory.get(p) or PartitionState() for p in map(TopicPartition._make, partitions)
        }
        for state in self.partitions.values():
            state.revoking = False
        return self.partitions.keys() != before.keys()

    KEPT: dict[int, dict[TopicPartition, PartitionState]] = {}
    patch.setattr(SubscriptionState, "_replace", keep)


@mutation
def committed_offsets_are_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    begin = Positions._begin
    patch.setattr(Positions, "_begin", lambda self, found, asked: begin(self, dict.fromkeys(found), asked))


@mutation
def buffered_records_survive_a_revoke(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FetchBuffer, "drop_late", lambda self, subscription: [])


@mutation
def partitions_are_read_while_they_are_revoked(patch: pytest.MonkeyPatch) -> None:
    def fetchable(self: PartitionState) -> bool:
        return self.position is not None and self.reset is None and not self.validating

    patch.setattr(PartitionState, "is_fetchable", property(fetchable))


# --- callbacks


@mutation
def assigned_comes_before_revoked(patch: pytest.MonkeyPatch) -> None:
    add = Callbacks.add

    def reversed_order(self: Callbacks, kind: CallbackKind, *args: Any, **kwargs: Any) -> None:
        add(self, kind, *args, **kwargs)
        if kind is CallbackKind.ASSIGNED:
            self._steps.rotate(1)

    patch.setattr(Callbacks, "add", reversed_order)


@mutation
def lost_is_told_as_revoked(patch: pytest.MonkeyPatch) -> None:
    give_up = Membership._give_up
    patch.setattr(
        Membership, "_give_up", lambda self, kind, which: give_up(self, CallbackKind.REVOKED, which)
    )


@mutation
def eager_members_keep_their_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_tell_before_join", nothing)


@mutation
def what_a_callback_raises_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Callbacks, "take_error", nothing)


@mutation
def nobody_is_told_of_what_moved(patch: pytest.MonkeyPatch) -> None:
    add = Callbacks.add

    def silent(self: Callbacks, kind: CallbackKind, partitions: Any, **kwargs: Any) -> None:
        add(self, kind, () if kind is CallbackKind.REVOKED else partitions, **kwargs)

    patch.setattr(Callbacks, "add", silent)


# --- membership


@mutation
def heartbeats_stop_while_the_user_works(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerCore, "tick_background", nothing)


@mutation
def who_never_polls_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Heartbeats, "poll_is_overdue", lambda self, now_ms: False)


@mutation
def cooperative_members_forget_to_join_again(patch: pytest.MonkeyPatch) -> None:
    request = Membership.request_rejoin

    def forgetful(self: Membership, reason: str) -> None:
        if not reason.startswith("need to revoke"):
            request(self, reason)

    patch.setattr(Membership, "request_rejoin", forgetful)


@mutation
def partitions_move_without_being_revoked_first(patch: pytest.MonkeyPatch) -> None:
    """The cooperative assignor gives a partition to its new owner at once."""
    from kohort.client.group.assignors import cooperative, sticky

    patch.setattr(cooperative.CooperativeStickyAssignor, "assign", sticky.StickyAssignor.assign)


@mutation
def the_leader_does_not_watch_partition_counts(patch: pytest.MonkeyPatch) -> None:
    watched = Membership._watched_sync

    def blind(self: Membership, *args: Any) -> None:
        watched(self, *args)
        assert self.status.generation is not None
        generation = replace(self.status.generation, assigned_from=None)
        self.become(replace(self.status, generation=generation))

    patch.setattr(Membership, "_watched_sync", blind)


@mutation
def a_late_answer_to_a_join_is_believed(patch: pytest.MonkeyPatch) -> None:
    joined = Membership._joined

    def believe(self: Membership, attempt: int, asked_as: str, answer: Answer, now_ms: int) -> None:
        joined(self, self.status.attempt, asked_as, answer, now_ms)

    patch.setattr(Membership, "_joined", believe)


@mutation
def a_dropped_member_does_not_notice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "reset_generation", nothing)


@mutation
def a_coordinator_that_moved_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCoordinator, "forget", nothing)


@mutation
def a_closed_consumer_does_not_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_send_leave", lambda *args: False)


@mutation
def another_subscription_is_not_told_to_the_group(patch: pytest.MonkeyPatch) -> None:
    request = Membership.request_rejoin

    def deaf(self: Membership, reason: str) -> None:
        if reason != "subscription has changed":
            request(self, reason)

    patch.setattr(Membership, "request_rejoin", deaf)


@mutation
def nothing_is_read_while_records_are_buffered(patch: pytest.MonkeyPatch) -> None:
    """Leaders whose metadata lay in an unread socket were thrown out, and so were members on a loop."""
    patch.setattr(consumer_calls, "LOOK", Until(lambda: True, 0))


@mutation
def an_auto_commit_that_is_late_makes_poll_spin(patch: pytest.MonkeyPatch) -> None:
    """Found by the simulator when it was new."""
    patch.setattr(Commits, "next_poll_ms", lambda self: self._auto_at_ms)


# --- the broker's short ways, which these consumers take too


@mutation
def the_offsets_of_a_recognized_commit_are_in_another_order(patch: pytest.MonkeyPatch) -> None:
    offsets_in = FrameLayout.offsets_in

    def reversed_order(self: FrameLayout, body: bytes) -> tuple[int, ...] | None:
        offsets = offsets_in(self, body)
        return None if offsets is None else offsets[::-1]

    patch.setattr(FrameLayout, "offsets_in", reversed_order)


TRIED_FIRST = {
    "cooperative_members_forget_to_join_again": 29,
    "partitions_are_read_while_they_are_revoked": 14,
    "a_dropped_member_does_not_notice": 4,
}
"""Seeds that find what most others do not: the others are tried too when a change of the code has moved them."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    found = ""
    for seed in (TRIED_FIRST.get(name, 0), *range(40)):
        try:
            run_consumers(seed, members=4, minutes=1, faults=FaultRates(churn=0.1, stuck=0.15))
        except Broken as broken:
            found = str(broken)
            break
    assert found, f"{name} was not found"
    assert f"--seed {seed} " in found
