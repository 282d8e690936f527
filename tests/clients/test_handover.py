"""Members that commit when their partitions are taken away: however the group changes, no record comes twice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.clients.confluent import Confluent
from tests.clients.conftest import Connect
from tests.clients.ours import Kohort
from tests.clients.ours_async import KohortAsync
from tests.clients.process import BrokerProcess, eventually
from tests.clients.team import PATIENCE_S, Team, generation_of, new_team

SETTINGS = ("group.initial.rebalance.delay.ms=0",)
STEPS = 25


def settle(team: Team, broker: BrokerProcess) -> None:
    """Waits until the group is stable, and every member has been told so.

    Who is given what it had looks the same before it has heard of the last rebalance: it would still be in the middle
    of it.
    """

    def all_have_heard() -> bool:
        member_id = team.settle().members[0].member_id
        generation = generation_of(broker.bootstrap_servers, team.group, member_id)
        return all(member.generation == generation for member in team.members)

    eventually(all_have_heard, "every member was told its assignment of the last generation", PATIENCE_S)


def change(
    team: Team, broker: BrokerProcess, clients: list[Any], assignor: str, chance: random.Random
) -> None:
    """Somebody comes or goes, or records are written; the group may still be busy with the last change.

    Nobody goes in the middle of a rebalance: as in Kafka, who closes then has lost its partitions and cannot commit.
    """
    what = chance.random()
    if what < 0.4 and len(team.members) < 6:
        team.join(chance.choice(clients), assignor=assignor, commits_when_revoked=True)
    elif what < 0.65 and len(team.members) > 1:
        settle(team, broker)
        team.leave(chance.choice(team.members))
    else:
        team.produce(team.observer, count=3)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_every_record_once_while_members_come_and_go(
    assignor: str, seed: int, broker: BrokerProcess, connect: Connect, name: str
) -> None:
    chance = random.Random(seed)
    clients = [connect(Kohort), connect(KohortAsync)]
    with new_team(connect(Confluent), name, partitions=12) as team:
        team.join(clients[0], assignor=assignor, commits_when_revoked=True)
        for _ in range(STEPS):
            change(team, broker, clients, assignor, chance)
        team.settle()
        everyone = team.members + team.gone

        def received() -> Counter[tuple[int, int]]:
            return Counter((record.partition, record.offset) for m in everyone for record in list(m.received))

        total = sum(team.produced.values())
        eventually(lambda: len(received()) == total, f"all {total} records received, seed {seed}", PATIENCE_S)
        while team.members:  # one after the other, none in the middle of a rebalance
            settle(team, broker)
            team.leave(team.members[0])
    twice = {at for at, times in received().items() if times > 1}
    assert not twice, f"seed {seed}"
    assert connect(Confluent).committed(name) == team.produced, "what the last one had is committed too"
