"""Java members and ours in one group, on our broker and on Apache Kafka, with each of them as leader."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.targets import Target

from tests.clients.aio import AioKafka
from tests.clients.client import Member
from tests.clients.confluent import Confluent
from tests.clients.kafka_python import KafkaPython
from tests.clients.ours import Kohort
from tests.clients.team import Team, leader_of, new_team

from .apache_kafka import CONSUMER_GROUPS, ApacheKafka
from .java_members import JavaClient, JavaMachine

pytestmark = pytest.mark.interop
EAGER, COOPERATIVE = "range", "cooperative-sticky"


class Company:
    """A cluster, and the clients that work with it."""

    def __init__(self, servers: str, machine: JavaMachine) -> None:
        self.servers = servers
        self.confluent, self.ours = Confluent(servers), Kohort(servers)
        self.java = JavaClient(machine, servers)

    def team(self, what: str, partitions: int, topics: int = 1) -> Team:
        return new_team(self.ours, f"{what}-{uuid.uuid4().hex[:6]}", partitions, topics)

    def leader(self, team: Team) -> Member:
        view = team.settle()
        leader = leader_of(self.servers, team.group)
        (client_id,) = [member.client_id for member in view.members if member.member_id == leader]
        return next(member for member in team.members if member.client_id == client_id)


@pytest.fixture(scope="module")
def machine(classes: Path) -> Iterator[JavaMachine]:
    running = JavaMachine(classes)
    yield running
    running.close()


@pytest.fixture(scope="module", params=["kohort", "apache-kafka"])
def company(
    request: pytest.FixtureRequest, machine: JavaMachine, apache_kafka: ApacheKafka
) -> Iterator[Company]:
    own: Target | None = None
    if request.param == "kohort":
        own = request.getfixturevalue("start_broker")("group.initial.rebalance.delay.ms=0", *CONSUMER_GROUPS)
    there = Company(own.address if own else apache_kafka.bootstrap_servers, machine)
    yield there
    there.ours.close()


@pytest.mark.parametrize("leader", ["java", "ours"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_java_and_ours_lead_in_turn(company: Company, assignor: str, leader: str) -> None:
    first, second = (company.java, company.ours) if leader == "java" else (company.ours, company.java)
    with company.team(f"mixed-{assignor}-{leader}", partitions=4, topics=2) as team:
        team.produce(company.confluent)
        (led,) = team.join(first, assignor=assignor)
        team.settle()
        team.join(second, assignor=assignor)
        assert team.settle().protocol == assignor
        assert company.leader(team) is led
        team.all_received()
        team.each_once(company.confluent)
        team.join(first, assignor=assignor)
        team.join(second, assignor=assignor)
        team.settle()
        assert {len(member.assignment) for member in team.members} == {2}
        team.each_once(company.confluent)
        team.leave(led)  # somebody else divides now
        team.settle()
        team.each_once(company.confluent)
    assert company.ours.committed(team.group) == team.produced


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_all_libraries_lead_in_turn(company: Company, assignor: str) -> None:
    clients: list[Any] = [company.java, company.confluent, company.ours, KafkaPython(company.servers)]
    if assignor == EAGER:
        clients.append(AioKafka(company.servers))
    led = set()
    with company.team(f"all-{assignor}", partitions=2 * len(clients)) as team:
        for client in clients:
            team.join(client, assignor=assignor)
        while team.members:
            member = company.leader(team)
            led.add(member.client_id)
            team.each_once(company.confluent)
            team.leave(member)
    assert len(led) == len(clients)
    for client in clients[3:]:
        client.close()


def test_rolling_upgrade_from_range_to_cooperative_sticky(company: Company) -> None:
    """Two rounds of restarts, one member at a time, without a moment in which the group does not work."""
    with company.team("upgraded", partitions=8) as team:
        for client in (company.java, company.ours, company.java, company.ours):
            team.join(client, assignor=EAGER)
        assert team.settle().protocol == EAGER
        for setting in (f"{COOPERATIVE},{EAGER}", COOPERATIVE):
            for old in list(team.members):
                client = company.java if old.client_id.startswith("java") else company.ours
                team.leave(old)
                team.join(client, assignor=setting)
                team.settle()
                team.each_once(company.confluent)
            assert team.settle().protocol == COOPERATIVE
        assert {len(member.assignment) for member in team.members} == {2}


def test_static_members_come_back_to_what_they_had(company: Company) -> None:
    with company.team("static", partitions=4) as team:
        clients = {"java-static": company.java, "ours-static": company.ours}
        for name, client in clients.items():
            team.join(client, client_id=name, group_instance_id=name)
        before = {member.group_instance_id: member.assignment for member in team.settle().members}
        for name, client in clients.items():
            team.leave(next(member for member in team.members if member.client_id == name))
            team.join(client, client_id=name, group_instance_id=name)
            after = {member.group_instance_id: member.assignment for member in team.settle().members}
            assert after == before
        team.each_once(company.confluent)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_group_of_the_consumer_protocol_takes_all_three(company: Company, assignor: str) -> None:
    """Java, librdkafka and ours in one group that the broker assigns; each leaves and another one comes."""
    options = {"group_protocol": "consumer", "assignor": assignor}
    clients = (company.java, company.confluent, company.ours)
    with company.team(f"modern-{assignor}", partitions=6) as team:
        team.begin_at_0()
        team.produce(company.confluent)
        for client in clients:
            team.join(client, **options)
        assert team.settle().protocol == assignor
        assert {len(member.assignment) for member in team.members} == {2}
        team.all_received()
        team.each_once(company.confluent)
        for member, client in zip(list(team.members), reversed(clients), strict=True):
            team.leave(member)
            team.join(client, **options)
            team.settle()
        team.each_once(company.confluent)


def test_a_live_group_moves_to_the_consumer_protocol_and_back(company: Company) -> None:
    """Members are replaced one by one by those of the other protocol; none of three clients notices."""
    clients = (company.java, company.confluent, company.ours)
    with company.team("moves", partitions=6) as team:
        team.begin_at_0()
        for client in clients:
            team.join(client)
        team.settle()
        for protocol in ("consumer", "classic"):
            for client in clients:
                team.produce(company.confluent)
                team.leave(team.members[0])
                team.join(client, group_protocol=protocol)
                team.settle()
                team.all_received()
        team.each_once(company.confluent)
