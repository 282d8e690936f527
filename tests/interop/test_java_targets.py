"""The coordinator's assignors against Kafka's own classes: what each makes of the same groups."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from kohort.coordinator.assignors import (
    AssignorMember,
    GroupSpec,
    assign_range,
    assign_simple,
    assign_uniform,
)

from .conftest import Run

pytestmark = pytest.mark.interop
SEED = 17
EACH = 400
ASSIGN = {"range": assign_range, "uniform": assign_uniform, "simple": assign_simple}
Division = dict[str, set[tuple[int, int]]]


class Group(NamedTuple):
    assignor: str
    spec: GroupSpec

    def ours(self) -> Division:
        return {m: in_numbers(topics) for m, topics in ASSIGN[self.assignor](self.spec).items()}

    def old(self) -> Division:
        return {m: in_numbers(member.assigned) for m, member in self.spec.members.items()}

    def lines(self) -> list[str]:
        lines = []
        for topic, count in self.spec.partitions.items():
            may = self.spec.assignable
            word = "" if may is None else " " + (",".join(map(str, sorted(may[topic]))) or "-")
            lines.append(f"topic {number(topic)} {count}{word}")
        for member_id, member in sorted(self.spec.members.items()):
            topics = ",".join(str(number(topic)) for topic in member.topic_ids) or "-"
            old = ",".join(f"{t}:{p}" for t, p in sorted(in_numbers(member.assigned))) or "-"
            lines.append(f"member {member_id} {member.instance_id or '-'} {topics} {old}")
        return [*lines, f"assign {self.assignor} {'alike' if self.spec.homogeneous else 'mixed'}"]


def number(topic: bytes) -> int:
    return int.from_bytes(topic, "big")


def in_numbers(topics: object) -> set[tuple[int, int]]:
    assert isinstance(topics, dict)
    return {(number(topic), index) for topic, indexes in topics.items() for index in indexes}


def random_group(assignor: str, seed: int, *, alike: bool) -> Group:
    chance = random.Random(f"{SEED} {assignor} {seed} {alike}")
    topics = [each.to_bytes(16, "big") for each in chance.sample(range(1, 100), chance.randint(1, 6))]
    most = chance.choice((1, 3, 10, 40))
    partitions = {topic: chance.randint(1, most) for topic in topics}
    common = frozenset(chance.sample(topics, chance.randint(1, len(topics))))
    ids = [f"m{each:03}" for each in chance.sample(range(1000), chance.choice((1, 2, 3, 5, 8, 13, 40)))]
    wants = {
        each: common if alike else frozenset(chance.sample(topics, chance.randint(1, len(topics))))
        for each in ids
    }
    old: dict[str, dict[bytes, set[int]]] = {each: {} for each in ids}
    share = assignor == "simple"
    veterans = chance.sample(ids, chance.randint(1, len(ids)))
    for topic, count in partitions.items():
        for index in range(count):
            for owner in chance.sample(veterans, min(len(veterans), chance.randint(0, 3 if share else 1))):
                # Kafka's simple assignor leaves topics that nobody subscribes to where they were.
                if topic in wants[owner] or not share:
                    old[owner].setdefault(topic, set()).add(index)
    members = {
        each: AssignorMember(
            f"i{chance.getrandbits(20)}" if chance.random() < 0.3 else None,
            None,
            wants[each],
            {topic: frozenset(indexes) for topic, indexes in old[each].items()},
        )
        for each in ids
    }
    assignable = {topic: frozenset(range(count)) for topic, count in partitions.items()} if share else None
    return Group(assignor, GroupSpec(members, partitions, alike, assignable))


def theirs(java: Run, groups: list[Group]) -> list[Division]:
    lines = [line for each in groups for line in each.lines()]
    said = java("TargetOracle", stdin="\n".join(lines) + "\n", timeout_s=120).splitlines()
    answers = [line[2:] for line in said if line.startswith("= ")]
    assert len(answers) == len(lines), said[-5:]
    found = []
    for line, answer in zip(lines, answers, strict=True):
        assert not answer.startswith("error"), answer
        if line.startswith("assign"):
            words = answer.split(" ")
            found.append({m: places_in(p) for m, p in zip(words[::2], words[1::2], strict=True)})
    return found


def places_in(word: str) -> set[tuple[int, int]]:
    pairs = [one.split(":") for one in word.split(",")] if word != "-" else []
    return {(int(topic), int(index)) for topic, index in pairs}


def groups_of(assignor: str, *, alike: bool) -> list[Group]:
    return [random_group(assignor, each, alike=alike) for each in range(EACH)]


@pytest.mark.parametrize(("assignor", "alike"), [("range", True), ("range", False), ("uniform", False)])
def test_kafka_divides_the_same_way(assignor: str, alike: bool, java: Run) -> None:
    """These do not depend on the order of Java's hash maps."""
    groups = groups_of(assignor, alike=alike)
    for seed, (group, kafkas) in enumerate(zip(groups, theirs(java, groups), strict=True)):
        assert group.ours() == kafkas, f"group {seed}: {group.lines()}"


def kept(group: Group, division: Division) -> int:
    return sum(len(old & division[member_id]) for member_id, old in group.old().items())


def test_uniform_balances_and_keeps_as_much_as_kafka(java: Run) -> None:
    groups = groups_of("uniform", alike=True)
    for seed, (group, kafkas) in enumerate(zip(groups, theirs(java, groups), strict=True)):
        ours = group.ours()
        assert sorted(map(len, ours.values())) == sorted(map(len, kafkas.values())), f"group {seed}"
        assert set().union(*ours.values()) == set().union(*kafkas.values())
        assert kept(group, ours) == kept(group, kafkas), f"group {seed}: {group.lines()}"


@pytest.mark.parametrize("alike", [True, False])
def test_simple_balances_and_keeps_as_much_as_kafka(alike: bool, java: Run) -> None:
    groups = groups_of("simple", alike=alike)
    ours_kept = kafkas_kept = 0
    for seed, (group, kafkas) in enumerate(zip(groups, theirs(java, groups), strict=True)):
        ours = group.ours()
        assert set().union(*kafkas.values()) <= set().union(*ours.values()), f"group {seed}: {group.lines()}"
        assert min(map(len, ours.values())) >= min(map(len, kafkas.values())), f"group {seed}"
        if sum(map(len, ours.values())) == sum(
            map(len, kafkas.values())
        ):  # else Kafka left some short of holders
            assert max(map(len, ours.values())) <= max(map(len, kafkas.values())), f"group {seed}"
        ours_kept += kept(group, ours)
        kafkas_kept += kept(group, kafkas)
    assert ours_kept >= kafkas_kept
