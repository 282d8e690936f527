"""The simulator can fail: bugs planted in the core, one by one, are each found, with the seed in the message."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.coordinator import expiry, offsets, shard
from kohort.coordinator.classic import heartbeat, join, rebalance, sync
from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.classic.sync import AssignmentWrite
from kohort.coordinator.commit_layout import CommitLayout, LaidOutRecords
from kohort.coordinator.effects import Append, CommitResponse, JoinResponse, Reply, SyncResponse
from kohort.coordinator.events import LogRecord, OffsetCommit, TimerKind
from kohort.coordinator.history import GroupHistory
from kohort.coordinator.offsets import CommitWrite
from kohort.coordinator.replay import Durable, MergedCommit
from kohort.coordinator.shard import Shard, ShardStatus
from kohort.coordinator.step_context import StepContext
from kohort.sim import Broken, FaultRates, run
from kohort.wire.errors import ErrorCode

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}
SHORT_WAY_MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    MUTATIONS[plant.__name__] = plant
    return plant


def short_way_mutation(plant: Mutation) -> Mutation:
    SHORT_WAY_MUTATIONS[plant.__name__] = plant
    return plant


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


@mutation
def a_leave_does_not_complete_the_join(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heartbeat, "complete_if_all_joined", nothing)


@mutation
def an_expiry_does_not_complete_the_join(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebalance, "complete_if_members_joined", nothing)


@mutation
def a_commit_is_answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    append = StepContext.append

    def hasty(self: StepContext, write: Any, *producer: int) -> None:
        append(self, write, *producer)
        if isinstance(write, CommitWrite):
            for request, response in write.answers:
                self.reply(request.request, response)

    patch.setattr(StepContext, "append", hasty)
    patch.setattr(CommitWrite, "release", CommitWrite.settled)


@mutation
def a_sync_is_answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    append = StepContext.append

    def hasty(self: StepContext, write: Any, *producer: int) -> None:
        append(self, write, *producer)
        if isinstance(write, AssignmentWrite):
            write.settled(self, ErrorCode.NONE)

    patch.setattr(StepContext, "append", hasty)


@mutation
def a_commit_of_an_old_generation_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offsets, "_check_commit", lambda *args, **kwargs: ErrorCode.NONE)


@mutation
def a_sync_of_an_old_generation_is_accepted(patch: pytest.MonkeyPatch) -> None:
    def lenient(group: Group, request: Any) -> ErrorCode:
        return group.check_member(request.member_id, request.group_instance_id)

    patch.setattr(sync, "_check", lenient)


@mutation
def a_pending_id_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "all_joined", lambda self: len(self.members) == self.awaiting_joins)


@mutation
def generations_do_not_grow(patch: pytest.MonkeyPatch) -> None:
    following = Group.next_generation

    def stay(self: Group, now_ms: int) -> None:
        following(self, now_ms)
        self.generation_id -= 1

    patch.setattr(Group, "next_generation", stay)


@mutation
def a_join_is_answered_twice(patch: pytest.MonkeyPatch) -> None:
    answer = StepContext.answer_join

    def twice(self: StepContext, group: Group, member: Any, response: JoinResponse) -> bool:
        if member.awaiting_join is not None:
            self.effects.append(Reply(member.awaiting_join, response))
        return answer(self, group, member, response)

    patch.setattr(StepContext, "answer_join", twice)


@mutation
def a_second_join_displaces_the_first_silently(patch: pytest.MonkeyPatch) -> None:
    def silent(self: StepContext, group: Group, member: Any, request: Any) -> None:
        group.awaiting_joins += member.awaiting_join is None
        member.awaiting_join = request

    patch.setattr(StepContext, "park_join", silent)


@mutation
def a_member_removed_while_it_syncs_is_not_answered(patch: pytest.MonkeyPatch) -> None:
    def forgetful(step: StepContext, group: Group, member: Any, why: str) -> None:
        step.answer_join(group, member, JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        member.awaiting_sync = None
        group.remove(member.member_id)
        step.history(group).gone(member.member_id, why)

    patch.setattr(heartbeat, "drop_member", forgetful)
    patch.setattr(rebalance, "drop_member", forgetful)


@mutation
def resigning_forgets_who_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shard, "answer_parked", nothing)


@mutation
def sessions_never_expire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebalance, "session_timer_fired", nothing)


@mutation
def a_completed_join_does_not_renew_sessions(patch: pytest.MonkeyPatch) -> None:
    renew = StepContext.renew

    def lazy(self: StepContext, group: Group, member: Any, timeout_ms: int | None = None) -> None:
        if group.state is not GroupState.COMPLETING_REBALANCE:
            renew(self, group, member, timeout_ms)

    patch.setattr(StepContext, "renew", lazy)


@mutation
def late_syncs_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebalance, "sync_timer_fired", nothing)


@mutation
def everyone_gets_the_assignment_of_the_leader(patch: pytest.MonkeyPatch) -> None:
    def same(group: Group, member: Any) -> SyncResponse:
        leader = group.members[group.leader_id or ""]
        return SyncResponse(ErrorCode.NONE, leader.assignment)

    patch.setattr(sync, "_assignment", same)


@mutation
def a_failed_commit_stays(patch: pytest.MonkeyPatch) -> None:
    failed = Shard._failed

    def keep(self: Shard, step: StepContext, token: int, error: ErrorCode) -> None:
        for record in self.writes[token][0].records if token in self.writes else ():
            self.durable.apply(LogRecord(0, record.key, record.value))
        failed(self, step, token, error)

    patch.setattr(Shard, "_failed", keep)


@mutation
def tombstones_are_not_replayed(patch: pytest.MonkeyPatch) -> None:
    written = Shard._written

    def without(self: Shard, step: StepContext, token: int, base_offset: int) -> None:
        patch.setattr(Durable, "_forget", nothing)
        written(self, step, token, base_offset)
        patch.setattr(Durable, "_forget", forget)

    forget = Durable._forget
    patch.setattr(Shard, "_written", without)


@mutation
def a_leader_that_asks_again_writes_another_assignment(patch: pytest.MonkeyPatch) -> None:
    park = sync._park

    def again(step: StepContext, group: Group, request: Any) -> None:
        group.assignment_in_flight = False
        park(step, group, request)

    patch.setattr(sync, "_park", again)


@mutation
def an_undone_replacement_stays(patch: pytest.MonkeyPatch) -> None:
    settle = join.ReplacementWrite.settle_alone

    def stay(self: join.ReplacementWrite, step: StepContext, error: ErrorCode) -> None:
        settle(self, step, ErrorCode.NONE)

    patch.setattr(join.ReplacementWrite, "settle_alone", stay)


@mutation
def a_fenced_sync_is_never_answered(patch: pytest.MonkeyPatch) -> None:
    answer = StepContext.answer_sync

    def leaky(self: StepContext, member: Any, response: SyncResponse) -> bool:
        if response.error is ErrorCode.FENCED_INSTANCE_ID:
            member.awaiting_sync = None
        return answer(self, member, response)

    patch.setattr(StepContext, "answer_sync", leaky)


@mutation
def a_deleted_group_forgets_a_commit_on_its_way(patch: pytest.MonkeyPatch) -> None:
    def only_visible(step: StepContext, group: Group) -> dict[Any, None]:
        return dict.fromkeys(step.shard.durable.offsets.get(group.group_id, {}))

    patch.setattr(expiry, "held_offsets", only_visible)


@mutation
def the_history_misses_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupHistory, "stable", nothing)


@mutation
def an_assignment_is_acknowledged_but_not_written(patch: pytest.MonkeyPatch) -> None:
    append = StepContext.append

    def skip(self: StepContext, write: Any, *producer: int) -> None:
        append(self, write, *producer)
        if isinstance(write, AssignmentWrite):
            last = self.effects[-1]
            assert isinstance(last, Append)
            self.effects[-1] = Append(last.token, last.records[:0])

    patch.setattr(StepContext, "append", skip)


@mutation
def a_join_timer_is_ignored(patch: pytest.MonkeyPatch) -> None:
    timer = Shard._timer

    def deaf(self: Shard, step: StepContext, event: Any) -> None:
        if event.kind is not TimerKind.JOIN:
            timer(self, step, event)

    patch.setattr(Shard, "_timer", deaf)


@mutation
def stale_timers_are_believed(patch: pytest.MonkeyPatch) -> None:
    def believe(step: StepContext, group: Group, deadline_ms: int) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            rebalance.complete_join(step, group)
        elif group.members:
            rebalance.begin(step, group, rebalance.Cause("", "stale"))
            group.join_deadline_ms = None

    patch.setattr(rebalance, "join_timer_fired", believe)


# ---- bugs in the short ways alone


@short_way_mutation
def a_heartbeat_in_time_of_an_old_generation_is_good(patch: pytest.MonkeyPatch) -> None:
    in_time = Shard.heartbeat_in_time

    def careless(
        self: Shard, group_id: str, member_id: str, generation_id: int, now_ms: int
    ) -> ErrorCode | None:
        group = self.groups.get(group_id)
        return in_time(self, group_id, member_id, group.generation_id if group else generation_id, now_ms)

    patch.setattr(Shard, "heartbeat_in_time", careless)


@short_way_mutation
def a_heartbeat_in_time_does_not_tell_of_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    in_time = Shard.heartbeat_in_time

    def calm(self: Shard, *args: Any) -> ErrorCode | None:
        return None if in_time(self, *args) is None else ErrorCode.NONE

    patch.setattr(Shard, "heartbeat_in_time", calm)


@short_way_mutation
def a_heartbeat_in_time_of_a_stranger_is_good(patch: pytest.MonkeyPatch) -> None:
    def friendly(self: Shard, group_id: str, *args: Any) -> ErrorCode | None:
        return ErrorCode.NONE if self.status is ShardStatus.ACTIVE and group_id in self.groups else None

    patch.setattr(Shard, "heartbeat_in_time", friendly)


@short_way_mutation
def a_commit_on_a_short_way_is_of_anybody(patch: pytest.MonkeyPatch) -> None:
    def lenient(on: Shard, layout: CommitLayout, *who: Any) -> MergedCommit | None:
        return on.durable.merged_commit(layout)

    patch.setattr(shard, "commit_in_time", lenient)


@short_way_mutation
def a_commit_on_a_short_way_is_of_an_old_generation(patch: pytest.MonkeyPatch) -> None:
    in_time = offsets.commit_in_time

    def lenient(on: Shard, layout: CommitLayout, generation_id: int, *who: Any) -> MergedCommit | None:
        group = on.groups.get(layout.group_id)
        now = group.generation_id if group and generation_id >= 0 else generation_id
        return in_time(on, layout, now, *who)

    patch.setattr(shard, "commit_in_time", lenient)


@short_way_mutation
def a_commit_on_a_short_way_is_visible_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    begin = Shard.begin_commit

    def hasty(self: Shard, request: OffsetCommit, now_ms: int) -> tuple[int, LaidOutRecords] | None:
        begun = begin(self, request, now_ms)
        if begun is not None:
            self.durable.apply_laid_out(begun[1], 0)
        return begun

    patch.setattr(Shard, "begin_commit", hasty)


@short_way_mutation
def a_commit_on_a_short_way_is_answered_but_not_replayed(patch: pytest.MonkeyPatch) -> None:
    settle = Shard.settle_commit

    def forgetful(self: Shard, token: int, base_offset: int) -> Any:
        with pytest.MonkeyPatch.context() as during:
            during.setattr(Durable, "apply_laid_out", nothing)
            return settle(self, token, base_offset)

    patch.setattr(Shard, "settle_commit", forgetful)


@short_way_mutation
def resigning_forgets_a_commit_on_a_short_way(patch: pytest.MonkeyPatch) -> None:
    begin, forget = Shard.begin_commit, Shard._forget
    begun_here: set[tuple[int, int]] = set()

    def noted(self: Shard, request: OffsetCommit, now_ms: int) -> tuple[int, LaidOutRecords] | None:
        begun = begin(self, request, now_ms)
        if begun is not None:
            begun_here.add((id(self), begun[0]))
        return begun

    def forgetful(self: Shard, step: StepContext) -> None:
        self.writes = {t: write for t, write in self.writes.items() if (id(self), t) not in begun_here}
        forget(self, step)

    patch.setattr(Shard, "begin_commit", noted)
    patch.setattr(Shard, "_forget", forgetful)


@short_way_mutation
def a_merged_commit_hides_a_later_one_of_a_single_partition(patch: pytest.MonkeyPatch) -> None:
    def stale(self: Durable, group_id: str) -> Any:
        return self._offsets.setdefault(group_id, {})

    patch.setattr(Durable, "_of_group", stale)


@short_way_mutation
def a_merged_commit_hides_one_in_another_layout(patch: pytest.MonkeyPatch) -> None:
    def first_only(self: Durable, layout: CommitLayout) -> MergedCommit | None:
        found = self._offsets.get(layout.group_id, {}).get(layout.keys[0])
        return found if isinstance(found, MergedCommit) else None

    patch.setattr(Durable, "merged_commit", first_only)


@short_way_mutation
def a_commit_at_once_overtakes_writes_under_way(patch: pytest.MonkeyPatch) -> None:
    at_once = Shard.commit_at_once

    def pushy(self: Shard, *args: Any) -> CommitResponse | None:
        under_way, self.writes = self.writes, {}
        try:
            return at_once(self, *args)
        finally:
            self.writes = under_way

    patch.setattr(Shard, "commit_at_once", pushy)


@short_way_mutation
def a_commit_at_once_is_answered_though_it_could_not_be_written(patch: pytest.MonkeyPatch) -> None:
    at_once = Shard.commit_at_once

    def hopeful(self: Shard, layout: CommitLayout, *args: Any) -> CommitResponse | None:
        return layout.accepted if at_once(self, layout, *args) is not None else None

    patch.setattr(Shard, "commit_at_once", hopeful)


def is_found(faults: FaultRates) -> bool:
    """Whether the simulator finds a planted bug within 40 seeds, and says with which seed."""
    for seed in range(40):
        try:
            run(seed, members=10, minutes=10, faults=faults)
        except Broken as broken:
            return f"--seed {seed} " in str(broken)
    return False


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    assert is_found(FaultRates(stuck=0.2, failed_write=0.05)), f"{name} was not found"


@pytest.mark.parametrize("name", SHORT_WAY_MUTATIONS)
def test_the_simulator_finds_in_a_short_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SHORT_WAY_MUTATIONS[name](monkeypatch)
    assert is_found(FaultRates(slow_disk=0.3, failed_write=0.05, resign=0.05)), f"{name} was not found"
