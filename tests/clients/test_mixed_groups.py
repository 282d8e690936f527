"""Members of different libraries in one group, ours among them, with each of them as its leader in turn.

The leader's library divides the partitions from what the others' libraries told about themselves, so every pair of
libraries must understand each other. Which assignors a library has is in its adapter: aiokafka has no cooperative one,
confluent-kafka no sticky one.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.clients import CLIENTS
from tests.clients.confluent import Confluent
from tests.clients.conftest import Connect
from tests.clients.kafka_python import KafkaPython
from tests.clients.ours import Kohort
from tests.clients.process import BrokerProcess
from tests.clients.team import Team, leader_of, new_team

SETTINGS = ("group.initial.rebalance.delay.ms=0",)

ASSIGNORS = {
    name: [client for client in CLIENTS if name in client.assignors]
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky")
}
LEADERS = [
    pytest.param(assignor, leader, id=f"{assignor}-{leader.name}")
    for assignor, clients in ASSIGNORS.items()
    for leader in clients
]


def team_of(connect: Connect, name: str, partitions: int, topics: int = 1) -> Team:
    """A team without members, of a group that counts each record: it must not depend on where a library begins."""
    team = new_team(connect(Confluent), name, partitions, topics)
    team.begin_at_0()
    return team


def leads(broker: BrokerProcess, team: Team) -> str:
    """The client id of the leader."""
    view = team.settle()
    leader = leader_of(broker.bootstrap_servers, team.group)
    (found,) = [member.client_id for member in view.members if member.member_id == leader]
    return found


def shares(team: Team) -> list[int]:
    return sorted(len(member.assignment) for member in team.members)


@pytest.mark.parametrize(("assignor", "leader"), LEADERS)
def test_each_library_leads_a_group_of_all(
    assignor: str, leader: type[Any], broker: BrokerProcess, connect: Connect, name: str
) -> None:
    clients = ASSIGNORS[assignor]
    others = [client for client in clients if client is not leader]
    with team_of(connect, name, partitions=2 * len(clients), topics=2) as team:
        team.produce(connect(Confluent))
        (first,) = team.join(connect(leader), assignor=assignor)
        team.settle()
        for client in others:
            team.join(connect(client), assignor=assignor)
        assert team.settle().protocol == assignor
        assert leads(broker, team) == first.client_id
        assert shares(team) == [4] * len(clients)
        team.all_received()
        team.each_once(connect(Confluent))
        for client in clients:  # a second one of each, while the first ones work
            team.join(connect(client), assignor=assignor)
        assert leads(broker, team) == first.client_id
        assert shares(team) == [2] * len(team.members)
        team.each_once(connect(Confluent))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_when_the_leader_leaves_the_next_library_leads(
    assignor: str, broker: BrokerProcess, connect: Connect, name: str
) -> None:
    clients = ASSIGNORS[assignor]
    seen = set()
    with team_of(connect, name, partitions=12) as team:
        for client in clients:
            team.join(connect(client), assignor=assignor)
        while team.members:
            client_id = leads(broker, team)
            seen.add(client_id)
            team.each_once(connect(Confluent))
            team.leave(next(member for member in team.members if member.client_id == client_id))
    assert len(seen) == len(clients), "each of them led once"
    assert connect(Kohort).committed(name) == team.produced


def test_static_members_of_all_libraries(connect: Connect, name: str) -> None:
    def start(client: type[Any]) -> None:
        instance = f"{client.name}-instance"
        team.join(connect(client), group_instance_id=instance, client_id=client.name)

    with team_of(connect, name, partitions=2 * len(CLIENTS)) as team:
        for client in CLIENTS:
            start(client)
        before = {member.group_instance_id: member.assignment for member in team.settle().members}
        assert {len(assignment) for assignment in before.values()} == {2}
        team.each_once(connect(Confluent))
        for client in CLIENTS:  # each is restarted as a process is, with a new member id
            team.leave(next(member for member in team.members if member.client_id == client.name))
            start(client)
            after = {member.group_instance_id: member.assignment for member in team.settle().members}
            assert after == before, f"{client.name} got back what it had"
        team.each_once(connect(Confluent))


def replace(team: Team, old: Any, client: Any, assignor: str) -> Any:
    """One member is stopped and started again with another setting."""
    team.leave(old)
    return team.join(client, assignor=assignor)[0]


def test_rolling_upgrade_from_range_to_cooperative_sticky(connect: Connect, name: str) -> None:
    """Of these libraries only ours can list an eager and a cooperative assignor: its members change in two rounds."""
    ours = connect(Kohort)
    with team_of(connect, name, partitions=8) as team:
        for client in (connect(Confluent), ours, ours, connect(KafkaPython)):
            team.join(client, assignor="range")
        assert team.settle().protocol == "range"
        team.each_once(connect(Confluent))
        for old in [member for member in team.members if member.client_id.startswith("kohort")]:
            replace(team, old, ours, "cooperative-sticky,range")
            assert team.settle().protocol == "range", "the others know nothing else"
            team.each_once(connect(Confluent))
        # Members that know only one: each leaves, and comes back when all that are left know the other.
        for old in [member for member in team.members if not member.client_id.startswith("kohort")]:
            team.leave(old)
        assert team.settle().protocol == "cooperative-sticky"
        for client in (connect(Confluent), connect(KafkaPython)):
            team.join(client, assignor="cooperative-sticky")
            assert team.settle().protocol == "cooperative-sticky"
            team.each_once(connect(Confluent))
        for old in [member for member in team.members if member.client_id.startswith("kohort")]:
            replace(team, old, ours, "cooperative-sticky")
            assert team.settle().protocol == "cooperative-sticky"
            team.each_once(connect(Confluent))
        assert shares(team) == [2, 2, 2, 2]
