"""What every assignor promises, whatever the group: Hypothesis looks for one where it does not hold."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.group.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    TopicPartitions,
)
from kohort.client.types import TopicPartition
from tests.client.assignor_groups import TOPICS, Group, Owned, groups

ALL = (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
STICKY = (StickyAssignor, CooperativeStickyAssignor)
each = pytest.mark.parametrize("assignor", ALL, ids=lambda one: one.name)
each_sticky = pytest.mark.parametrize("assignor", STICKY, ids=lambda one: one.name)


def sizes(division: dict[str, Assignment]) -> list[int]:
    return [len(assignment.partitions) for assignment in division.values()]


def owners(division: dict[str, Assignment]) -> dict[TopicPartition, str]:
    return {tp: member_id for member_id, assignment in division.items() for tp in assignment.partitions}


def joining_again(group: Group, assignor: type[Assignor], division: dict[str, Assignment]) -> Group:
    """The group in its next rebalance: members tell what they have."""
    if assignor is StickyAssignor:
        return group.remembering(StickyAssignor, division)
    return group.owning({member_id: set(one.partitions) for member_id, one in division.items()})


@each
@given(group=groups())
def test_every_partition_goes_to_exactly_one_subscriber(assignor: type[Assignor], group: Group) -> None:
    division = assignor().assign(*group)
    assert division.keys() == group.members.keys()
    given_ = Counter(tp for assignment in division.values() for tp in assignment.partitions)
    assert given_ == Counter(group.partitions)
    for member_id, assignment in division.items():
        assert {tp.topic for tp in assignment.partitions} <= set(group.members[member_id].topics)


@each
@given(group=groups(), chance=st.randoms(use_true_random=False))
def test_the_order_of_members_and_topics_makes_no_difference(
    assignor: type[Assignor], group: Group, chance: random.Random
) -> None:
    first = assignor().assign(*group)
    members, counts = (
        list(joining_again(group, assignor, first).members.items()),
        list(group.cluster.counts.items()),
    )
    del members[:1]  # so that something is to be divided
    second = assignor().assign(group.cluster, dict(members))
    chance.shuffle(members)
    chance.shuffle(counts)
    assert assignor().assign(TopicPartitions(dict(counts), group.cluster.racks), dict(members)) == second


@each
@given(group=groups(alike=True))
def test_equal_subscriptions_get_equal_shares(assignor: type[Assignor], group: Group) -> None:
    division = assignor().assign(*group)
    if assignor is not RangeAssignor:
        assert max(sizes(division)) - min(sizes(division)) <= 1
    for topic in TOPICS if assignor is RangeAssignor else ():
        of_topic = [sum(tp.topic == topic for tp in one.partitions) for one in division.values()]
        assert max(of_topic) - min(of_topic) <= 1


@given(group=groups(alike=True))
def test_range_keeps_co_partitioned_topics_together(group: Group) -> None:
    cluster = TopicPartitions(dict.fromkeys(group.cluster.counts, 5), group.cluster.racks)
    owner = owners(RangeAssignor().assign(cluster, group.members))
    for tp, member_id in owner.items():
        assert all(owner.get(TopicPartition(topic, tp.partition), member_id) == member_id for topic in TOPICS)


@each_sticky
@given(group=groups(racks=False))
def test_no_single_move_would_make_it_more_even(assignor: type[Assignor], group: Group) -> None:
    division = assignor().assign(*group)
    for tp, owner in owners(division).items():
        for member_id, subscription in group.members.items():
            if tp.topic in subscription.topics:
                assert len(division[owner].partitions) <= len(division[member_id].partitions) + 1


@each_sticky
@given(group=groups(racks=False))
def test_nothing_moves_without_need(assignor: type[Assignor], group: Group) -> None:
    division = assignor().assign(*group)
    assert assignor().assign(*joining_again(group, assignor, division)) == division


@each_sticky
@given(group=groups(alike=True, racks=False), data=st.data())
def test_those_who_stay_keep_all_they_have(
    assignor: type[Assignor], group: Group, data: st.DataObject
) -> None:
    before = assignor().assign(*group)
    rest = joining_again(group, assignor, before)
    for member_id in data.draw(
        st.sets(st.sampled_from(sorted(group.members)), max_size=len(group.members) - 1)
    ):
        del rest.members[member_id]
    after = assignor().assign(*rest)
    for member_id, assignment in after.items():
        assert set(assignment.partitions) >= set(before[member_id].partitions)


@each_sticky
@given(group=groups(alike=True, racks=False), newcomers=st.integers(1, 4))
def test_only_newcomers_get_anything_new_and_no_more_than_their_share(
    assignor: type[Assignor], group: Group, newcomers: int
) -> None:
    before = assignor().assign(*group)
    more = joining_again(group, assignor, before)
    subscription = next(iter(group.members.values()))
    more.members.update({f"newcomer-{number}": subscription for number in range(newcomers)})
    after = assignor().assign(*more)
    share = len(group.partitions) // len(more.members)
    for member_id, assignment in before.items():
        kept = set(after[member_id].partitions)
        assert kept <= set(assignment.partitions)
        assert len(kept) >= min(share, len(assignment.partitions))


@st.composite
def living_groups(draw: st.DrawFn) -> tuple[Group, Owned]:
    """A group in which members own partitions in whatever way, each at most one member's."""
    group = draw(groups())
    owned: Owned = {member_id: set() for member_id in group.members}
    for topic, count in group.cluster.counts.items():
        for partition in range(count):
            owner = draw(st.sampled_from((None, *group.members)))
            if owner is not None:
                owned[owner].add(TopicPartition(topic, partition))
    return group, owned


@given(living=living_groups())
def test_cooperative_never_gives_what_another_member_still_owns(living: tuple[Group, Owned]) -> None:
    group, owned = living
    division = CooperativeStickyAssignor().assign(*group.owning(owned))
    for member_id, assignment in division.items():
        others = {tp for other, mine in owned.items() if other != member_id for tp in mine}
        assert not others.intersection(assignment.partitions)


@given(living=living_groups())
def test_cooperative_rounds_end_with_every_partition_given(living: tuple[Group, Owned]) -> None:
    group, owned = living
    for generation_id in range(3, 7):
        division = CooperativeStickyAssignor().assign(*group.owning(owned, generation_id))
        now = {member_id: set(assignment.partitions) for member_id, assignment in division.items()}
        revoked = any(owned[member_id] - now[member_id] for member_id in now)
        owned = now
        if not revoked:
            break
    assert Counter(tp for mine in owned.values() for tp in mine) == Counter(group.partitions)
    assert not revoked
