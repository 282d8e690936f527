"""Groups of KIP-848 in the simulator; and bugs planted in the core, one by one, that it must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort.coordinator import shard
from kohort.coordinator.consumer import (
    commits,
    draft,
    group,
    heartbeat,
    reconcile,
    regexes,
    removal,
    target,
    timers,
)
from kohort.coordinator.consumer.state import ConsumerMember
from kohort.coordinator.modern import target as modern_target
from kohort.coordinator.modern.group import ModernGroup, ModernWrite
from kohort.coordinator.modern.state import Change, SubscriptionChange, TargetChange, TargetEpochChange
from kohort.sim import Broken, FaultRates, run_consumer_groups

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}
SEEDS = range(1, 41)


def mutation(plant: Mutation) -> Mutation:
    MUTATIONS[plant.__name__] = plant
    return plant


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


@pytest.mark.parametrize("seed", range(1, 7))
def test_every_invariant_holds(seed: int) -> None:
    report = run_consumer_groups(seed)
    assert report.epochs > 10
    assert report.commits > 50


def test_without_faults_nobody_is_fenced() -> None:
    report = run_consumer_groups(3, faults=FaultRates.none())
    assert report.fenced == 0
    assert report.commits > 50


def test_one_seed_is_one_run() -> None:
    assert run_consumer_groups(5, minutes=0.5) == run_consumer_groups(5, minutes=0.5)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_very_many_epochs_under_all_faults_keep_the_invariants() -> None:
    done, seed = 0, 100_000
    while done < 100_000:
        report = run_consumer_groups(seed, members=(3, 6, 12)[seed % 3], minutes=10)
        done, seed = done + report.epochs, seed + 1
        print(f"{done} epochs; {report}", flush=True)


@mutation
def a_failed_write_takes_back_the_ones_before_it(patch: pytest.MonkeyPatch) -> None:
    def doom_all(self: ModernWrite, step: Any) -> None:
        for write, _ in step.shard.writes.values():
            if isinstance(write, ModernWrite) and write.group.group_id == self.group.group_id:
                write.is_doomed = True

    patch.setattr(ModernWrite, "_doom_later_ones", doom_all)


@mutation
def a_failed_write_is_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(draft, "revert_group", nothing)


@mutation
def every_partition_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group.ConsumerGroup, "is_free", lambda *_: True)


@mutation
def nobody_waits_until_partitions_are_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconcile, "_may_own", lambda owned, partitions: False)


@mutation
def any_epoch_is_taken_for_the_member_s(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heartbeat, "_check_epoch", nothing)


@mutation
def a_commit_may_be_of_any_older_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits, "_was_assigned_by", lambda *_: True)


@mutation
def sessions_do_not_expire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModernGroup, "session_is_over", nothing)


@mutation
def a_load_sets_no_timers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(timers, "resume_timers", nothing)


@mutation
def topics_that_change_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shard, "consumer_timers", timers, raising=False)
    patch.setattr(timers, "topics_changed", nothing)
    patch.setattr(draft.Draft, "topics_hash", lambda self: 7)


@mutation
def expressions_are_matched_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(regexes, "refresh_is_due", lambda *_: False)


@mutation
def a_member_that_left_bumps_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removal.Draft, "bump", nothing)


@mutation
def the_epoch_of_the_target_is_not_written(patch: pytest.MonkeyPatch) -> None:
    _leave_out(patch, lambda change: isinstance(change, TargetEpochChange))


@mutation
def the_end_of_a_member_is_not_written(patch: pytest.MonkeyPatch) -> None:
    _leave_out(patch, lambda change: isinstance(change, SubscriptionChange) and change.value is None)


@mutation
def the_end_of_a_target_is_not_written(patch: pytest.MonkeyPatch) -> None:
    _leave_out(patch, lambda change: isinstance(change, TargetChange) and change.partitions is None)


def _leave_out(patch: pytest.MonkeyPatch, is_left_out: Callable[[Change], bool]) -> None:
    records_of = draft.records_of
    patch.setattr(
        draft,
        "records_of",
        lambda group_id, changes: records_of(group_id, [c for c in changes if not is_left_out(c)]),
    )


@mutation
def a_target_moves_everything_each_time(patch: pytest.MonkeyPatch) -> None:
    """Not wrong for anyone, but never balanced: the first member gets all."""

    def all_to_one(spec: Any) -> dict[str, dict[bytes, frozenset[int]]]:
        first = min(spec.members)
        given = {t: frozenset(range(spec.partitions[t])) for t in spec.members[first].topic_ids}
        return {member_id: given if member_id == first else {} for member_id in spec.members}

    patch.setattr(target, "CONSUMER_ASSIGNORS", {"uniform": all_to_one, "range": all_to_one})


@mutation
def the_target_is_not_computed_again_after_a_minute(patch: pytest.MonkeyPatch) -> None:
    is_due = modern_target.target_is_due
    patch.setattr(
        target,
        "target_is_due",
        lambda state, interval_ms, now_ms: now_ms < 1_060_000 and is_due(state, interval_ms, now_ms),
    )


@mutation
def a_static_member_comes_back_without_its_partitions(patch: pytest.MonkeyPatch) -> None:
    put = group.ConsumerGroup._take

    def forget_away(self: group.ConsumerGroup, member: ConsumerMember) -> None:
        if member.epoch != -2:
            put(self, member)

    patch.setattr(group.ConsumerGroup, "_take", forget_away)


@mutation
def a_heartbeat_in_time_does_not_look_at_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def careless(known: Any, member_id: str, *_: Any) -> bool:
        return member_id in known.members

    patch.setattr(heartbeat, "in_time", careless)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in SEEDS:
        try:
            run_consumer_groups(seed)
        except (Broken, AssertionError, KeyError, AttributeError):
            return
    raise AssertionError(f"{name} was not found by {len(SEEDS)} seeds")
