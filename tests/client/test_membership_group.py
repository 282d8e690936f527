"""Several memberships and a real coordinator: whatever happens, nobody owns what another one owns, and all settle."""

from __future__ import annotations

import itertools

import pytest

from kohort.client.types import TopicPartition
from tests.client.group_world import NEW_PROTOCOL, Member, World

TOPICS = {"orders": 7, "payments": 3}
ALL = {TopicPartition(topic, p) for topic, count in TOPICS.items() for p in range(count)}
ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky"]


def settle(world: World) -> None:
    """A calm phase: at its end everybody is stable in one generation and every partition has one owner."""
    world.loss = 0.0
    for member in world.members:
        member.works = False
    world.run(120_000)
    assert all(m.membership.is_stable for m in world.members), [m.membership for m in world.members]
    assert len({m.membership.generation_id for m in world.members}) <= 1
    for member in world.members:
        assert member.owned == set(member.subscription.partitions)
    owned = [partition for member in world.members for partition in member.owned]
    if world.members:
        assert sorted(owned) == sorted(p for p in ALL if p.topic in TOPICS)


@pytest.mark.parametrize("assignors", [*ASSIGNORS, NEW_PROTOCOL])
def test_members_come_one_by_one_and_go(assignors: str) -> None:
    world = World(1, TOPICS)
    for _ in range(4):
        Member(world, assignors, ["orders", "payments"])
        world.run(20_000)
    settle(world)
    sizes = sorted(len(member.owned) for member in world.members)
    assert sizes[0] >= 1
    world.members[0].close()
    settle(world)
    assert len(world.members) == 3


def test_cooperative_members_keep_what_stays() -> None:
    world = World(2, TOPICS)
    first = Member(world, "cooperative-sticky", ["orders", "payments"])
    settle(world)
    assert first.told == ["assigned"]
    Member(world, "cooperative-sticky", ["orders", "payments"])
    settle(world)
    assert first.told == ["assigned", "revoked", "assigned", "assigned"]
    assert len(first.owned) == 5


def test_eager_members_give_back_everything() -> None:
    world = World(3, TOPICS)
    first = Member(world, "range", ["orders", "payments"])
    settle(world)
    Member(world, "range", ["orders", "payments"])
    settle(world)
    assert first.told == ["assigned", "revoked", "assigned"]


@pytest.mark.parametrize("assignors", ["range", NEW_PROTOCOL])
def test_a_member_that_does_not_poll_is_out_and_comes_back(assignors: str) -> None:
    world = World(4, TOPICS)
    slow, other = (Member(world, assignors, ["orders", "payments"]) for _ in range(2))
    settle(world)
    slow.works = True
    world.run(11_000)
    world.run(5_000)
    assert set(other.owned) == ALL
    assert "poll was not called for" in (slow.membership.left_because or "")
    settle(world)
    assert "lost" in slow.told
    assert slow.owned | other.owned == ALL
    assert slow.owned


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = World(5, TOPICS)
    other = Member(world, "range", ["orders", "payments"])
    static = Member(world, "range", ["orders", "payments"], group_instance_id="i1")
    settle(world)
    before, generation = set(static.owned), other.membership.generation_id
    static.close()
    world.run(5_000)
    again = Member(world, "range", ["orders", "payments"], group_instance_id="i1")
    settle(world)
    assert (again.owned, other.membership.generation_id) == (before, generation)


def test_more_partitions_are_found_by_the_leader() -> None:
    world = World(6, dict(TOPICS))
    member = Member(world, "range", ["orders"], metadata_max_age_ms=10_000)
    world.run(30_000)
    assert len(member.owned) == 7
    world.topics["orders"] = 9
    world.run(30_000)
    assert len(member.owned) == 9


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_the_group_settles(seed: int) -> None:
    world = World(seed, TOPICS)
    whatever_happens(world, [world.random.choice(ASSIGNORS)])


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_a_group_of_the_consumer_protocol_settles(seed: int) -> None:
    whatever_happens(World(seed, TOPICS), [NEW_PROTOCOL])


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_while_the_protocols_change_the_group_settles(seed: int) -> None:
    """Members of both protocols come and go: the group is converted there and back."""
    whatever_happens(World(seed, TOPICS), ["range", NEW_PROTOCOL])


def whatever_happens(world: World, protocols: list[str]) -> None:
    chance = world.random
    static = itertools.count()
    for _ in range(30):
        world.loss = chance.choice((0.0, 0.0, 0.1, 0.5))
        match chance.randrange(6):
            case 0 | 1 if len(world.members) < 5:
                name = f"i{next(static)}" if chance.random() < 0.2 else None
                Member(world, chance.choice(protocols), ["orders", "payments"], group_instance_id=name)
            case 2 if world.members:
                chance.choice(world.members).close()
            case 3 if world.members:
                member = chance.choice(world.members)
                member.works = not member.works
            case 4 if world.members:
                chance.choice(world.members).membership.request_rejoin("somebody says so")
            case _:
                pass
        world.run(chance.choice((10, 100, 1_000, 15_000)))
    settle(world)
