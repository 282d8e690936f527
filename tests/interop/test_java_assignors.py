"""Our assignors and consumer protocol against Kafka's own: the same division of the same input, the same bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

import pytest

from kohort.client.group.assignors import Assignment, Subscription, TopicPartitions, load_assignors
from kohort.client.group.assignors.claims import Claim
from kohort.client.group.assignors.cooperative import owned_partitions
from kohort.client.group.assignors.sticky import claim_in_user_data, encode_claim
from kohort.client.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.client.types import TopicPartition

from .conftest import Run

pytestmark = pytest.mark.interop
SEED = 5
EACH = 500  # inputs for each assignor
NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
Division = dict[str, list[TopicPartition]]


class Case(NamedTuple):
    assignor: str
    cluster: TopicPartitions
    members: dict[str, Subscription]

    def ours(self) -> Division:
        (assignor,) = load_assignors([self.assignor])
        result = assignor.assign(self.cluster, self.members)
        return {member_id: list(result[member_id].partitions) for member_id in sorted(result)}

    def lines(self) -> list[str]:
        lines = [f"topic {topic} {count}" for topic, count in self.cluster.counts.items()]
        lines += [f"rack {p.topic}:{p.partition} {','.join(r)}" for p, r in self.cluster.racks.items() if r]
        for member_id, subscription in sorted(self.members.items()):
            data = encode_subscription(subscription, 3).hex()
            lines.append(f"member {member_id} {subscription.group_instance_id or '-'} {data}")
        return [*lines, f"assign {self.assignor}"]

    def kafka_keeps_its_promises(self) -> bool:
        """Kafka's sticky assignors, where subscriptions differ, fail or give a partition to a member that does not
        subscribe to it, if that member owned it in an older generation."""
        if "sticky" not in self.assignor or len({s.topics for s in self.members.values()}) == 1:
            return True
        claim_of = claim_in_user_data if self.assignor == "sticky" else owned_partitions
        claims = [(set(s.topics), claim_of(s)) for s in self.members.values()]
        newest = max(claim.generation_id for _, claim in claims)
        return all(
            claim.generation_id == newest
            or topics.issuperset(partition.topic for partition in claim.partitions)
            for topics, claim in claims
        )

    def wrong_in(self, division: Division) -> str:
        """Why a division may not be: a partition twice, with someone who does not want it, or with nobody."""
        given = [partition for partitions in division.values() for partition in partitions]
        wanted = {topic for subscription in self.members.values() for topic in subscription.topics}
        counts = self.cluster.counts
        all_of_them = {TopicPartition(t, p) for t in wanted & counts.keys() for p in range(counts[t])}
        if len(set(given)) != len(given):
            return "given twice"
        if self.assignor != "cooperative-sticky" and set(given) != all_of_them:
            return "not all of them given"
        for member_id, partitions in division.items():
            if not {partition.topic for partition in partitions} <= set(self.members[member_id].topics):
                return f"{member_id} got what it does not subscribe to"
        return "" if set(given) <= all_of_them else "given what does not exist"


def random_case(assignor: str, number: int) -> Case:
    """A group of 1 to 40 members at some point of its life; the same for the same arguments."""
    chance = random.Random(f"{SEED} {assignor} {number}")
    topics = [f"topic-{chance.randrange(1000)}" for _ in range(chance.randint(1, 6))]
    most = chance.choice((1, 3, 10, 40))
    counts = {topic: chance.randint(1, most) for topic in topics}
    if chance.random() < 0.3:
        counts = dict.fromkeys(counts, most)  # co-partitioned
    racks, member_racks = random_racks(chance, counts)
    members: dict[str, Subscription] = {}
    everything = [*counts, "topic-unknown"]
    alike = chance.sample(everything, chance.randint(1, len(everything)))
    all_alike = chance.random() < 0.4
    for _ in range(chance.choice((1, 2, 3, 5, 8, 13, 40))):
        member_id = f"client-{chance.getrandbits(64):016x}"
        wanted = alike if all_alike else chance.sample(everything, chance.randint(1, len(everything)))
        members[member_id] = Subscription(
            tuple(sorted(wanted)),
            rack_id=chance.choice(member_racks),
            group_instance_id=f"i{chance.getrandbits(20)}" if chance.random() < 0.3 else None,
        )
    add_history(chance, assignor, counts, members)
    return Case(assignor, TopicPartitions(counts, racks), members)


def random_racks(
    chance: random.Random, counts: dict[str, int]
) -> tuple[dict[TopicPartition, frozenset[str]], list[str | None]]:
    if chance.random() < 0.5:
        return {}, [None]
    names = ["rack-a", "rack-b", "rack-c", "rack-d"][: chance.randint(1, 4)]
    replicas = chance.randint(1, len(names))
    racks = {
        TopicPartition(topic, partition): frozenset(chance.sample(names, replicas))
        for topic, count in counts.items()
        for partition in range(count)
        if chance.random() < 0.95
    }
    return racks, [*names, "rack-elsewhere"] if chance.random() < 0.3 else [*names, *names, None]


def add_history(
    chance: random.Random, assignor: str, counts: dict[str, int], members: dict[str, Subscription]
) -> None:
    """Members own partitions since a generation: mostly the last one, some since an older one, some in dispute."""
    untidiness = chance.choice((0, 0, 0.1, 0.5))
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    if chance.random() < 0.8:
        lucky = chance.sample(sorted(members), chance.randint(1, len(members)))
        for topic, count in counts.items():
            for partition in range(count):
                wanting = [m for m in lucky if topic in members[m].topics or chance.random() < untidiness]
                claimants = 1 if chance.random() >= untidiness / 3 else 2
                if wanting and chance.random() < 0.9:
                    for member_id in chance.sample(wanting, min(claimants, len(wanting))):
                        owned[member_id].append(TopicPartition(topic, partition))
    for member_id, subscription in members.items():
        mine = tuple(owned[member_id])
        generation_id = 7 if chance.random() >= untidiness / 2 else chance.choice((-1, 5, 6, 6))
        if assignor == "sticky":
            claim = encode_claim(Claim(mine, generation_id))
            claim = claim[:-4] if chance.random() < untidiness / 4 else claim  # version 0 had no generation
            known = generation_id if chance.random() < 0.7 else -1
            members[member_id] = replace(subscription, user_data=claim, generation_id=known)
        elif chance.random() < 0.2:  # in a subscription of version 1
            data = generation_id.to_bytes(4, "big", signed=True)
            members[member_id] = replace(subscription, owned_partitions=mine, user_data=data)
        else:
            members[member_id] = replace(subscription, owned_partitions=mine, generation_id=generation_id)


def partitions_in(word: str) -> list[TopicPartition]:
    pairs = [one.rsplit(":", 1) for one in word.split(",")] if word != "-" else []
    return [TopicPartition(topic, int(number)) for topic, number in pairs]


def asked(java: Run, lines: list[str]) -> list[str]:
    said = java("AssignorOracle", stdin="\n".join(lines) + "\n", timeout_s=120).splitlines()
    answers = [line[2:] for line in said if line.startswith("= ")]
    assert len(answers) == len(lines), said[-5:]
    return answers


def theirs(java: Run, cases: list[Case]) -> list[Division | str]:
    """What Kafka makes of each, or the error with which it failed."""
    answers = iter(asked(java, [line for case in cases for line in case.lines()]))
    found: list[Division | str] = []
    for case in cases:
        *settings, last = [next(answers) for _ in case.lines()]
        assert set(settings) <= {"ok"}
        if last.startswith("error"):
            found.append(last)
        else:
            words = last.split(" ")
            found.append({m: sorted(partitions_in(p)) for m, p in zip(words[::2], words[1::2], strict=True)})
    return found


@pytest.mark.parametrize("name", NAMES)
def test_kafka_divides_the_same_way(name: str, java: Run) -> None:
    cases = [random_case(name, number) for number in range(EACH)]
    compared, wrong = 0, []
    for number, (case, kafkas) in enumerate(zip(cases, theirs(java, cases), strict=True)):
        ours = case.ours()
        if case.wrong_in(ours):
            wrong.append(f"case {number}: {case.wrong_in(ours)}")
        if not case.kafka_keeps_its_promises():
            continue
        compared += 1
        if ours != kafkas:
            wrong.append(f"case {number}: ours {ours}\nKafka's {kafkas}\nof {case.lines()}"[:3000])
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n".join(wrong[:3])
    assert compared == EACH if name in ("range", "roundrobin") else compared > 0.8 * EACH


def random_partitions(chance: random.Random) -> tuple[TopicPartition, ...]:
    names = ["orders", "payments", "événements", "t"]
    return tuple(
        {TopicPartition(chance.choice(names), chance.randrange(1 << 31)) for _ in range(chance.randrange(6))}
    )


def shown(partitions: tuple[TopicPartition, ...]) -> str:
    return ",".join(f"{topic}:{number}" for topic, number in partitions) or "-"


def shown_bytes(data: bytes | None) -> str:
    return "-" if data is None else f"x{data.hex()}"


@pytest.mark.parametrize("version", range(4))
def test_kafka_reads_and_writes_the_same_subscriptions(version: int, java: Run) -> None:
    chance = random.Random(f"{SEED} subscription {version}")
    written = [
        Subscription(
            topics=tuple(chance.sample(["orders", "payments", "événements"], chance.randrange(4))),
            user_data=chance.choice((None, b"", chance.randbytes(9))),
            owned_partitions=random_partitions(chance),
            generation_id=chance.choice((-1, 0, 2**31 - 1)),
            rack_id=chance.choice((None, "rack-a")),
        )
        for _ in range(100)
    ]
    data = [encode_subscription(subscription, version) for subscription in written]
    answers = asked(java, [f"subscription {version} {one.hex()}" for one in data])
    for ours, answer in zip(data, answers, strict=True):
        read = decode_subscription(ours)
        topics, generation_id, rack = ",".join(read.topics) or "-", read.generation_id, read.rack_id or "-"
        fields = (
            f"{topics} {shown_bytes(read.user_data)} {shown(read.owned_partitions)} {generation_id} {rack}"
        )
        assert answer == f"{fields} x{ours.hex()}"


@pytest.mark.parametrize("version", range(4))
def test_kafka_reads_and_writes_the_same_assignments(version: int, java: Run) -> None:
    chance = random.Random(f"{SEED} assignment {version}")
    written = [
        Assignment(random_partitions(chance), chance.choice((None, b"", chance.randbytes(9))))
        for _ in range(100)
    ]
    data = [encode_assignment(assignment, version) for assignment in written]
    answers = asked(java, [f"assignment {version} {one.hex()}" for one in data])
    for ours, answer in zip(data, answers, strict=True):
        read = decode_assignment(ours)
        assert answer == f"{shown(read.partitions)} {shown_bytes(read.user_data)} x{ours.hex()}"


def test_kafka_reads_a_newer_version_as_we_do(java: Run) -> None:
    subscription = Subscription(("orders",), b"u", (TopicPartition("orders", 1),), 4, "rack-a")
    newer = b"\x00\x09" + encode_subscription(subscription, 3)[2:] + b"fields of the future"
    assert decode_subscription(newer) == subscription
    (answer,) = asked(java, [f"subscription 9 {newer.hex()}"])
    assert answer == f"orders x75 orders:1 4 rack-a x{encode_subscription(subscription, 9).hex()}"


def test_the_oracle_says_no(java: Run) -> None:
    data = encode_subscription(Subscription(("orders",)), 3)
    lines = [f"subscription 3 {data[:-3].hex()}", f"assignment 3 ffff{data[2:].hex()}", "assign sticky"]
    assert [answer.split()[0] for answer in asked(java, lines)] == ["error", "error", "error"]
    case = random_case("range", 1)
    fewer = case._replace(cluster=TopicPartitions(dict.fromkeys(case.cluster.counts, 1)))
    assert theirs(java, [case]) != theirs(java, [fewer])
