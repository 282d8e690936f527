"""Groups of real consumers: they grow, shrink, crash, pause and restart; nothing is skipped, commits add up."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.clients.client import GroupMember, Member, Received
from tests.clients.clients import CLIENTS, each_client
from tests.clients.confluent import Confluent
from tests.clients.conftest import Connect
from tests.clients.crashing_member import SESSION_TIMEOUT_MS
from tests.clients.process import BrokerProcess, eventually
from tests.clients.team import PATIENCE_S, Team, generation_of, new_team

SETTINGS = ("group.initial.rebalance.delay.ms=0",)
ROOT = Path(__file__).parents[2]

BY_ASSIGNOR = [
    pytest.param(client, assignor, id=f"{client.name}-{assignor}")
    for client in CLIENTS
    for assignor in client.assignors
]


def team_of(connect: Connect, name: str, partitions: int, topics: int = 1) -> Team:
    """A team without members over new topics."""
    return new_team(connect(Confluent), name, partitions, topics)


@pytest.mark.parametrize(("client", "assignor"), BY_ASSIGNOR, indirect=["client"])
def test_a_group_grows_to_eight_and_shrinks_to_one(
    client: Any, assignor: str, connect: Connect, name: str
) -> None:
    with team_of(connect, name, partitions=8) as team:
        for joining in (1, 1, 2, 4):
            team.produce(connect(Confluent))
            team.join(client, joining, assignor=assignor)
            view = team.settle()
            assert view.protocol == assignor
        assert all(len(member.assignment) == 1 for member in team.members)
        for leaving in (5, 2):
            team.produce(connect(Confluent))
            for member in team.members[:leaving]:
                team.leave(member)
            team.settle()
        assert len(team.members) == 1
        team.produce(connect(Confluent))
        team.all_received()
        for reader in map(connect, CLIENTS):
            # Not at once: librdkafka may read once more, and commit so, what it had (see Team.begin_at_0).
            eventually(
                lambda reader=reader: reader.committed(name) == team.produced,
                f"all of it committed, as {reader.name} sees it",
                PATIENCE_S,
            )


def test_crashed_members_lose_their_partitions_after_the_session_timeout(
    broker: BrokerProcess, connect: Connect, name: str
) -> None:
    with team_of(connect, name, partitions=2 * (1 + len(CLIENTS))) as team:
        survivor = team.join(connect(Confluent), session_timeout_ms=SESSION_TIMEOUT_MS)[0]
        team.settle()
        programs = [crashing_member(client.name, broker, name, f"{name}-0") for client in CLIENTS]
        try:
            team.settle(others=len(CLIENTS))
            assert len(survivor.assignment) == 2
            team.produce(connect(Confluent))
            told = {int(program.stdout.readline().split()[0]) for program in programs}  # all of them consume
            assert len(told) == len(CLIENTS)
        finally:
            for program in programs:
                program.kill()
                program.wait(60)
                program.stdout.close()
        team.produce(connect(Confluent))
        team.settle()
        assert len(survivor.assignment) == len(team.partitions)
        # What the crashed had committed is not read again; what they had not is the survivor's now.
        eventually(
            lambda: connect(Confluent).committed(name) == team.produced, "all records committed", PATIENCE_S
        )


def crashing_member(client: str, broker: BrokerProcess, group: str, topic: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "tests.clients.crashing_member",
        client,
        broker.bootstrap_servers,
        group,
        topic,
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@each_client("member")
def test_a_member_that_does_not_poll_for_too_long_is_replaced_and_comes_back(
    client: Any, connect: Connect, name: str
) -> None:
    limits: dict[str, Any] = {"session_timeout_ms": 6000, "max_poll_interval_ms": 6000}  # librdkafka's least
    with team_of(connect, name, partitions=4) as team:
        busy, other = team.join(client, 2, **limits)
        team.settle()
        team.produce(connect(Confluent))
        team.all_received()
        busy.stand_still()
        eventually(lambda: len(other.assignment) == 4, "the other member owns all partitions", PATIENCE_S)
        team.produce(connect(Confluent))
        team.all_received()
        owned_by_one = "the broker says so too"
        eventually(lambda: connect(Confluent).group(name).owned == team.partitions, owned_by_one, PATIENCE_S)
        busy.polling.set()
        team.settle()
        assert len(busy.assignment) == len(other.assignment) == 2
        team.produce(connect(Confluent))
        team.all_received()


@each_client("member")
def test_a_static_member_restarts_without_a_rebalance(
    client: Any, broker: BrokerProcess, connect: Connect, name: str
) -> None:
    def start(instance: str) -> Member:
        options: dict[str, Any] = {"group_instance_id": instance, "session_timeout_ms": 30_000}
        return team.join(client, client_id=f"client-{instance}", **options)[0]

    def owners() -> dict[str, GroupMember]:
        return {member.group_instance_id or "": member for member in team.settle().members}

    with team_of(connect, name, partitions=4) as team:
        running = {}
        for instance in ("one", "two"):
            running[instance] = start(instance)
            before = owners()
        generation = generation_of(broker.bootstrap_servers, name, before["one"].member_id, "one")
        for instance in ("one", "two"):  # one of them is the leader
            team.leave(running[instance])
            start(instance)
            after = owners()
            assert {key: member.assignment for key, member in after.items()} == {
                key: member.assignment for key, member in before.items()
            }
            member_id = after[instance].member_id
            assert member_id != before[instance].member_id
            assert generation_of(broker.bootstrap_servers, name, member_id, instance) == generation
        team.produce(connect(Confluent))
        team.all_received()


@each_client("member")
def test_a_pattern_finds_topics_that_are_made_later(client: Any, connect: Connect, name: str) -> None:
    team = team_of(connect, name, partitions=2, topics=2)
    with team:
        team.join(client, 2, topics=f"^{name}-.*")
        team.settle()
        connect(Confluent).create_topic(f"{name}-later", 2)
        connect(Confluent).create_topic(f"other-{name}", 2)
        later = [(f"{name}-later", index) for index in range(2)]
        team.partitions = sorted(team.partitions + later)
        team.produced |= dict.fromkeys(later, 0)
        team.settle()
        team.produce(connect(Confluent))
        team.all_received()


@each_client("member")
def test_a_member_that_joins_reads_on_where_the_last_one_committed(
    client: Any, connect: Connect, name: str
) -> None:
    with team_of(connect, name, partitions=2) as team:
        team.produce(connect(Confluent))
        for reader in (client, connect(Confluent)):
            team.join(reader)
            team.settle()
            team.all_received()
            team.leave(team.members[0])
            team.produce(connect(Confluent))
        team.join(client)
        team.all_received()
        offsets = [offsets_of(member.received) for member in team.gone + team.members]
        assert offsets == [{0: range(20), 1: range(20)}, {0: range(20, 40), 1: range(20, 40)}] + [
            {0: range(40, 60), 1: range(40, 60)}
        ]


def offsets_of(received: list[Received]) -> dict[int, range]:
    by_partition: dict[int, list[int]] = {}
    for record in received:
        by_partition.setdefault(record.partition, []).append(record.offset)
    for offsets in by_partition.values():
        assert offsets == list(range(offsets[0], offsets[-1] + 1)), "out of order, twice or skipped"
    return {index: range(offsets[0], offsets[-1] + 1) for index, offsets in by_partition.items()}


def test_no_thread_of_a_member_is_left_behind() -> None:
    # By their client ids: other tests of this process may have left threads of ours, as one that resolves a name.
    member = re.compile(rf"({'|'.join(client.name for client in CLIENTS)})-\d")
    eventually(
        lambda: not [t for t in threading.enumerate() if member.match(t.name)], "all of them have ended"
    )
