"""Share groups in the simulator; and bugs planted in the cores, one by one, that it must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kohort.share import partition, state, state_shard
from kohort.share.partition import AcknowledgedRange, AcquiredRange, ShareLimits, SharePartition, StateBatch
from kohort.share.record_state import ARCHIVED, AVAILABLE, DONE
from kohort.sim import Broken
from kohort.sim.share import run_share

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}
SEEDS = range(1, 13)


def mutation(plant: Mutation) -> Mutation:
    MUTATIONS[plant.__name__] = plant
    return plant


@pytest.mark.parametrize("seed", range(4))
def test_every_invariant_holds(seed: int) -> None:
    report = run_share(seed, steps=500)
    assert report.deliveries > 100
    assert report.accepted > 20


def test_one_seed_is_one_run() -> None:
    assert run_share(5, steps=200) == run_share(5, steps=200)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_very_many_runs_keep_the_invariants() -> None:
    for seed in range(100_000, 103_000):
        run_share(seed, steps=1000)


@mutation
def locks_never_expire(plant: pytest.MonkeyPatch) -> None:
    def expire(self: SharePartition, *_: Any) -> None:
        self._deadline_ms = None

    plant.setattr(SharePartition, "expire", expire)


@mutation
def a_failed_write_is_not_rolled_back(plant: pytest.MonkeyPatch) -> None:
    def roll_back(self: SharePartition, span: Any, *_: Any) -> None:
        span.free()

    plant.setattr(SharePartition, "_roll_back", roll_back)


@mutation
def the_start_moves_before_the_write_is_done(plant: pytest.MonkeyPatch) -> None:
    def advance(self: SharePartition) -> bool:
        done = 0
        while done < len(self._spans) and self._spans[done].state in DONE:
            self.start_offset = self._spans[done].last + 1
            done += 1
        del self._spans[:done], self._firsts[:done]
        return done > 0

    plant.setattr(SharePartition, "_advance", advance)


@mutation
def there_is_no_limit_of_deliveries(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(partition, "_after", lambda span, wanted, why, limits: (wanted, why))


@mutation
def deliveries_are_not_counted(plant: pytest.MonkeyPatch) -> None:
    take = partition._Taking.take

    def take_without_count(self: Any, span: Any) -> None:
        take(self, span)
        span.count = 1
        last = self.acquired[-1]
        self.acquired[-1] = AcquiredRange(last.first, last.last, 1)

    plant.setattr(partition._Taking, "take", take_without_count)


@mutation
def acknowledgements_are_not_atomic(plant: pytest.MonkeyPatch) -> None:
    whole = SharePartition.acknowledge

    def one_by_one(
        self: SharePartition,
        member_id: str,
        acks: Iterable[AcknowledgedRange],
        limits: ShareLimits,
        now_ms: int,
    ) -> Any:
        answer: Any = None
        for ack in acks:
            answer = whole(self, member_id, [ack], limits, now_ms)
            if isinstance(answer, partition.ErrorCode) and answer:
                return answer
        return answer

    plant.setattr(SharePartition, "acknowledge", one_by_one)


@mutation
def anybody_may_acknowledge(plant: pytest.MonkeyPatch) -> None:
    decide = SharePartition._decide

    def as_the_owner(self: SharePartition, member_id: str, ack: AcknowledgedRange, *rest: Any) -> Any:
        holders = [s.member_id for s in self._spans if s.first <= ack.first <= s.last and s.member_id]
        return decide(self, (holders or [member_id])[0], ack, *rest)

    plant.setattr(SharePartition, "_decide", as_the_owner)


@mutation
def a_late_acknowledgement_is_taken(plant: pytest.MonkeyPatch) -> None:
    decide = SharePartition._decide

    def early(self: SharePartition, member_id: str, ack: AcknowledgedRange, *rest: Any) -> Any:
        for span in self._spans:
            if span.first <= ack.first <= span.last and span.state is AVAILABLE and span.write is None:
                span.state, span.member_id, span.deadline_ms = partition.ACQUIRED, member_id, 10**9
        return decide(self, member_id, ack, *rest)

    plant.setattr(SharePartition, "_decide", early)


@mutation
def aborted_records_are_delivered(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(SharePartition, "_archive_aborted", lambda self, acquired, aborted: acquired)


@mutation
def renewing_counts_as_a_delivery(plant: pytest.MonkeyPatch) -> None:
    def renew(self: SharePartition, offsets: Any, deadline_ms: int) -> None:
        for span in self._cut(*offsets):
            span.deadline_ms = deadline_ms
            span.count += 1

    plant.setattr(SharePartition, "_renew", renew)


@mutation
def available_records_are_forgotten(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(SharePartition, "next_fetch_offset", lambda self: self.end_offset + 1)


@mutation
def unknown_records_are_archived_on_load(plant: pytest.MonkeyPatch) -> None:
    def append_unknown(self: SharePartition, last: int) -> None:
        if self.end_offset < last:
            self._append(partition._Span(self.end_offset + 1, last, ARCHIVED, 0, None))

    plant.setattr(SharePartition, "_append_unknown", append_unknown)


@mutation
def locks_are_not_limited(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(SharePartition, "can_acquire", lambda self, limits: True)
    plant.setattr(SharePartition, "_room", lambda self, offset, last, most, limits: (most, last))


@mutation
def old_epochs_may_write(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(state_shard, "_is_below", lambda told, known: False)


@mutation
def the_lower_delivery_count_wins(plant: pytest.MonkeyPatch) -> None:
    merge = state.merge

    def lower(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
        turned = [b._replace(delivery_count=-b.delivery_count, state=-b.state) for b in batches]
        merged = merge(turned, start_offset)
        return tuple(b._replace(delivery_count=-b.delivery_count, state=-b.state) for b in merged)

    plant.setattr(state, "merge", lower)


@mutation
def a_snapshot_forgets_the_states(plant: pytest.MonkeyPatch) -> None:
    def empty(key: Any, found: Any) -> Any:
        return state.snapshot_record(key, None if found is None else state.replace(found, batches=()))

    plant.setattr(state_shard, "snapshot_record", empty)


@mutation
def the_log_is_pruned_too_far(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(state_shard.DurableStates, "needed_from", property(lambda self: self.end_offset))


@mutation
def it_is_answered_before_it_is_durable(plant: pytest.MonkeyPatch) -> None:
    append = state_shard.ShareStateShard._append

    def at_once(self: Any, records: Any, request: object, answer: Any) -> None:
        append(self, records, None, None)
        if answer is not None:
            self._reply(request, answer)

    plant.setattr(state_shard.ShareStateShard, "_append", at_once)


@mutation
def a_session_that_closes_keeps_its_records_pending(plant: pytest.MonkeyPatch) -> None:
    written = SharePartition.written

    def only_acknowledgements(self: SharePartition, write: Any, *rest: Any) -> bool:
        return not any(b.state == 0 for b in write.batches) and written(self, write, *rest)

    plant.setattr(SharePartition, "written", only_acknowledgements)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in SEEDS:
        try:
            run_share(seed, steps=400)
        except Broken:
            return
    pytest.fail(f"{name} was not found by {len(SEEDS)} seeds")
