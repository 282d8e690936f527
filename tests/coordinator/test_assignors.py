"""The assignors of the coordinator: complete, balanced, sticky, and the same for the same group."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.assignors import (
    CONSUMER_ASSIGNORS,
    AssignorMember,
    GroupSpec,
    PartitionsByTopic,
    assign_range,
    assign_simple,
    assign_uniform,
)

Target = dict[str, PartitionsByTopic]
Assign = Callable[[GroupSpec], Target]


def topic(number: int) -> bytes:
    return number.to_bytes(16, "big")


A, B, C = topic(1), topic(2), topic(3)


def group(
    partitions: dict[bytes, int],
    members: dict[str, set[bytes]],
    old: Target | None = None,
    *,
    instances: dict[str, str] | None = None,
    assignable: PartitionsByTopic | None = None,
) -> GroupSpec:
    old, instances = old or {}, instances or {}
    return GroupSpec(
        {
            each: AssignorMember(instances.get(each), None, frozenset(topics), old.get(each, {}))
            for each, topics in members.items()
        },
        partitions,
        len({frozenset(topics) for topics in members.values()}) <= 1,
        assignable,
    )


def sizes(target: Target) -> dict[str, int]:
    return {member_id: sum(map(len, topics.values())) for member_id, topics in target.items()}


def places(target: Target) -> dict[str, set[tuple[bytes, int]]]:
    return {m: {(t, p) for t, indexes in topics.items() for p in indexes} for m, topics in target.items()}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None, share: bool = False) -> GroupSpec:
    """Draws a group at some point of its life: some members are new, some topics grew, some are gone."""
    partitions = draw(st.dictionaries(st.integers(0, 5).map(topic), st.integers(1, 12), max_size=5))
    members = draw(st.lists(st.integers(0, 40).map("m{:02}".format), min_size=1, max_size=9, unique=True))
    all_topics = sorted(partitions)
    subsets = st.sets(st.sampled_from(all_topics)) if all_topics else st.just(set[bytes]())
    same = draw(st.booleans()) if alike is None else alike
    common = draw(subsets)
    wants = {each: common if same else draw(subsets) for each in members}
    old: dict[str, dict[bytes, set[int]]] = {each: {} for each in members}
    for topic_id in [*all_topics, topic(99)]:
        for index in range(partitions.get(topic_id, 2)):
            for owner in draw(st.lists(st.sampled_from(members), max_size=3 if share else 1, unique=True)):
                old[owner].setdefault(topic_id, set()).add(index)
    instances = {each: f"i{each}" for each in members if draw(st.booleans())}
    before = {m: {t: frozenset(indexes) for t, indexes in topics.items()} for m, topics in old.items()}
    assignable = None
    if share:
        assignable = {
            t: frozenset(draw(st.sets(st.integers(0, count - 1)))) for t, count in partitions.items()
        }
    spec = group(partitions, wants, before, instances=instances, assignable=assignable)
    return spec._replace(homogeneous=same)


def with_old(spec: GroupSpec, target: Target) -> GroupSpec:
    members = {each: member._replace(assigned=target[each]) for each, member in spec.members.items()}
    return spec._replace(members=members)


def turned_round(spec: GroupSpec) -> GroupSpec:
    """The same group with its maps in another order."""
    return spec._replace(
        members=dict(reversed(spec.members.items())), partitions=dict(reversed(spec.partitions.items()))
    )


def wanted(spec: GroupSpec) -> set[tuple[bytes, int]]:
    return {(t, p) for t in spec.subscribed_topics() for p in spec.partitions_to_assign(t)}


@pytest.mark.parametrize("assign", CONSUMER_ASSIGNORS.values())
@settings(max_examples=50)
@given(spec=groups())
def test_each_partition_has_one_owner_that_subscribes_to_it(assign: Assign, spec: GroupSpec) -> None:
    target = assign(spec)
    assert target.keys() == spec.members.keys()
    owned = [place for mine in places(target).values() for place in mine]
    assert len(owned) == len(set(owned))
    assert set(owned) == wanted(spec)
    for member_id, topics in target.items():
        assert topics.keys() <= spec.members[member_id].topic_ids
        assert all(topics.values()), "a topic without partitions is not in the assignment"


@pytest.mark.parametrize("assign", [*CONSUMER_ASSIGNORS.values(), assign_simple])
@settings(max_examples=50)
@given(spec=groups())
def test_the_same_group_is_divided_the_same_way_and_then_stays_as_it_is(
    assign: Assign, spec: GroupSpec
) -> None:
    target = assign(spec)
    assert assign(turned_round(spec)) == target
    assert assign(with_old(spec, target)) == target


@settings(max_examples=50)
@given(spec=groups(alike=True))
def test_uniform_differs_by_one_and_moves_only_what_balance_needs(spec: GroupSpec) -> None:
    target = assign_uniform(spec)
    counts = sizes(target).values()
    assert max(counts) - min(counts) <= 1
    # Every member keeps what it had, up to the larger of the two shares that there are.
    share, larger_shares = divmod(len(wanted(spec)), len(spec.members))
    had = {
        m: mine & wanted(spec)
        for m, mine in places({m: dict(s.assigned) for m, s in spec.members.items()}).items()
    }
    kept = {m: len(had[m] & mine) for m, mine in places(target).items()}
    for member_id, mine in had.items():
        assert kept[member_id] >= min(len(mine), share)
    over = sum(len(mine) > share for mine in had.values())
    assert sum(kept[m] > share for m in kept) == min(over, larger_shares)


@settings(max_examples=50)
@given(spec=groups(alike=False))
def test_uniform_leaves_no_move_that_would_help_a_topic(spec: GroupSpec) -> None:
    target = assign_uniform(spec)
    load = sizes(target)
    for topic_id in spec.subscribed_topics():
        subscribers = [m for m, member in spec.members.items() if topic_id in member.topic_ids]
        owners = [m for m in subscribers if topic_id in target[m]]
        least = min(load[m] for m in subscribers)
        assert all(load[m] - least <= 1 for m in owners)


@settings(max_examples=50)
@given(spec=groups(alike=True, share=True))
def test_simple_shares_every_partition_and_gives_every_member_something(spec: GroupSpec) -> None:
    target = assign_simple(spec)
    everything = wanted(spec)
    held = places(target)
    holders = {place: sum(place in mine for mine in held.values()) for place in everything}
    assert set().union(*held.values()) == everything
    if everything:
        sharing = -(-len(spec.members) // len(everything))
        assert all(1 <= count <= sharing for count in holders.values())
        most = -(-sharing * len(everything) // len(spec.members))
        assert all(1 <= len(mine) <= most for mine in held.values())


@settings(max_examples=50)
@given(spec=groups(alike=False, share=True))
def test_simple_divides_each_topic_among_its_subscribers(spec: GroupSpec) -> None:
    target = assign_simple(spec)
    for topic_id in spec.subscribed_topics():
        indexes = set(spec.partitions_to_assign(topic_id))
        mine = {m: target[m].get(topic_id, frozenset()) for m in spec.members}
        assert set().union(*mine.values()) == indexes
        for member_id, held in mine.items():
            subscribed = topic_id in spec.members[member_id].topic_ids
            assert bool(held) == (subscribed and bool(indexes))


@settings(max_examples=50)
@given(spec=groups(share=True))
def test_simple_is_the_same_again_with_what_it_gave(spec: GroupSpec) -> None:
    target = assign_simple(spec)
    assert assign_simple(with_old(turned_round(spec), target)) == target


def test_range_puts_static_members_first_and_the_rest_with_the_first() -> None:
    spec = group({A: 5}, {"a": {A}, "b": {A}, "z": {A}}, instances={"z": "first"})
    assert assign_range(spec) == {"z": {A: {0, 1}}, "a": {A: {2, 3}}, "b": {A: {4}}}


def test_range_divides_equal_topics_alike() -> None:
    target = assign_range(group({A: 4, B: 4}, {"a": {A, B}, "b": {A, B}}))
    assert all(mine[A] == mine[B] for mine in target.values())


def test_uniform_gives_a_new_member_its_share_and_moves_nothing_else() -> None:
    before: Target = {"a": {A: frozenset({0, 1, 2})}, "b": {A: frozenset({3, 4, 5})}}
    target = assign_uniform(group({A: 6}, {each: {A} for each in "abc"}, before))
    assert sizes(target) == {"a": 2, "b": 2, "c": 2}
    assert target["a"][A] < before["a"][A]
    assert target["b"][A] < before["b"][A]


def test_uniform_levels_different_subscriptions() -> None:
    target = assign_uniform(group({A: 6, B: 2}, {"a": {A}, "b": {A, B}, "c": {B}}))
    assert target["c"] == {B: {0, 1}}
    assert sizes(target) == {"a": 3, "b": 3, "c": 2}


def test_simple_gives_only_what_is_initialized() -> None:
    spec = group({A: 3}, {"a": {A}, "b": {A}}, {"a": {A: frozenset({0})}}, assignable={A: frozenset({1})})
    assert assign_simple(spec) == {"a": {A: {1}}, "b": {A: {1}}}


def test_nobody_subscribes_to_anything() -> None:
    for assign in (assign_range, assign_uniform, assign_simple):
        assert assign(group({}, {})) == {}
        assert assign(group({A: 3}, {"a": set()}, {"a": {A: frozenset({0})}})) == {"a": {}}
        assert assign(group({A: 3}, {"a": {B}, "b": {B, C}})) == {"a": {}, "b": {}}


@pytest.mark.parametrize("assign", [assign_range, assign_uniform, assign_simple])
@pytest.mark.parametrize("alike", [True, False])
def test_a_large_group_is_divided_within_the_time_of_a_request(assign: Assign, alike: bool) -> None:
    """500 members and 1,000 partitions: a heartbeat waits for it, and all others behind it."""
    partitions = {topic(n): 50 for n in range(20)}
    wants = {f"m{n:03}": set(partitions) if alike else {topic(n % 20), topic(n % 7)} for n in range(500)}
    spec = group(partitions, wants)
    target = assign(spec)
    again = group(partitions, wants | {"m500": wants["m000"]}, target | {"m500": {}})
    start = time.perf_counter()
    assign(again)
    assert time.perf_counter() - start < 0.5  # measured 1 to 4 ms
