"""SIGKILL during joins, syncs and commits of real consumers: commits stay, groups settle, members keep their ids."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.chaos.committer import RawCommitter
from tests.chaos.observer import Observer
from tests.clients.aio import AioKafka
from tests.clients.client import GroupView, Member, Partition
from tests.clients.confluent import Confluent
from tests.clients.process import BrokerProcess, eventually
from tests.clients.team import Team, generation_of

SETTINGS = ("group.initial.rebalance.delay.ms=0",)
SEED = int(os.environ.get("KOHORT_CHAOS_SEED", "20261115"))
GROUP = "survivors"
PARTITIONS = [("events", index) for index in range(6)]
# librdkafka throws its member id away when it has not reached the broker for a session timeout; a machine that has
# much else to do may take half a minute to start the broker.
MEMBER: dict[str, Any] = {
    "assignor": "range",
    "patient": True,
    "session_timeout_ms": 90_000,
    "max_poll_interval_ms": 300_000,
}
PATIENCE_S = 180.0  # longer than a session: a member that was lost does not fail a test that goes on


@dataclass
class Clients:
    confluent: Confluent
    aiokafka: AioKafka
    observer: Observer


@pytest.fixture
def clients(broker: BrokerProcess) -> Iterator[Clients]:
    address = broker.bootstrap_servers
    made = Clients(Confluent(address), AioKafka(address), Observer(address))
    made.confluent.create_topic("events", len(PARTITIONS))
    yield made
    made.aiokafka.close()


@pytest.mark.timeout(900)
def test_groups_survive_25_kills(broker: BrokerProcess, clients: Clients) -> None:
    kill_while_grouping(broker, clients, cycles=25, seed=SEED)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_groups_survive_many_kills(broker: BrokerProcess, clients: Clients) -> None:
    kill_while_grouping(
        broker, clients, cycles=int(os.environ.get("KOHORT_CHAOS_CYCLES", "200")), seed=SEED + 1
    )


def kill_while_grouping(broker: BrokerProcess, clients: Clients, cycles: int, seed: int) -> None:
    print(f"\nseed {seed}, {cycles} cycles (KOHORT_CHAOS_SEED to choose another)")
    chance = random.Random(seed)
    committer = RawCommitter(broker.bootstrap_servers, "raw-commits", "events", len(PARTITIONS))
    committer.start()
    # Not from where nothing is committed: see Team.begin_at_0.
    clients.confluent.alter_offsets(GROUP, dict.fromkeys(PARTITIONS, 0))
    with Team(clients.observer, GROUP, PARTITIONS) as team:
        for client in (clients.confluent, clients.aiokafka):
            team.join(client, **MEMBER)
        view = team.settle(PATIENCE_S)
        for cycle in range(cycles):
            team.produce(clients.confluent, count=30)
            changes, going, generation = chance.random() < 0.5, None, -1
            if changes:
                going = change_members(team, clients, chance)
            else:
                all_have_heard(team)
                generation = generation_of(broker.bootstrap_servers, GROUP, view.members[0].member_id)
            time.sleep(chance.uniform(0.0, 0.4))  # how far commits, joins and syncs get
            broker.kill()
            promised, raw = team.committed(), committer.acknowledged
            broker.restart()
            check_commits(team, promised, committer, raw)
            before = view
            if going is not None:  # its farewell may have been lost, and its session is long
                going.leave(PATIENCE_S)  # else it could join again when it hears that it is not known
                clients.observer.remove(GROUP, id_of(before, going))
            view = team.settle(PATIENCE_S)
            check_ids(before, view)
            if not changes:
                check_generation(broker, view, generation)
            what = "members changed" if changes else f"generation {generation} kept"
            print(
                f"  cycle {cycle + 1}: {sum(promised.values()):,} + {raw:,} commits kept, {what}, stable again"
            )
        committer.finish()
        team.produce(clients.confluent)
        team.all_received(PATIENCE_S)
        assert clients.observer.committed(GROUP) == team.produced
    assert set(raw_commits(team, committer).values()) == {committer.sent}


def all_have_heard(team: Team) -> None:
    """That the group is stable.

    What a member has told of its assignment may be of before the rebalance, if that has given it the same again: a
    kill would then meet it before it has heard of the new generation. So everyone has to tell it once more.
    """
    turns = {member: member.turns for member in team.members}
    eventually(
        lambda: all(
            member.turns >= known + 2 for member, known in turns.items()
        ),  # one may have begun before
        "every member has polled",
        PATIENCE_S,
    )
    team.settle(PATIENCE_S)


def raw_commits(team: Team, committer: RawCommitter) -> dict[int, int]:
    return {index: offset for (_, index), offset in team.observer.committed(committer.group).items()}


def change_members(team: Team, clients: Clients, chance: random.Random) -> Member | None:
    """Somebody comes or somebody goes (who is returned); the next kill may meet any step of the rebalance."""
    if len(team.members) <= 2 or (len(team.members) < 5 and chance.random() < 0.6):
        team.join(chance.choice([clients.confluent, clients.aiokafka]), **MEMBER)
        return None
    going = team.members.pop(0)
    team.gone.append(going)
    going.leaving.set()
    return going


def id_of(view: GroupView, member: Member) -> str:
    return next(known.member_id for known in view.members if known.client_id == member.client_id)


def check_commits(team: Team, promised: dict[Partition, int], committer: RawCommitter, raw: int) -> None:
    """What was acknowledged before the kill is there, and nothing that nobody sent."""
    kept = team.observer.committed(GROUP)
    for part, offset in promised.items():
        assert offset <= kept.get(part, 0) <= team.produced[part], f"{part}: {offset} was acknowledged"
    if raw:
        by_partition = raw_commits(team, committer)
        assert set(by_partition) == set(range(len(PARTITIONS)))
        assert all(raw <= offset <= committer.sent for offset in by_partition.values()), (raw, by_partition)


def check_ids(before: GroupView, after: GroupView) -> None:
    """Who was in the last generation that was durable, and is still there, is known by the same id."""
    ids = {member.client_id: member.member_id for member in before.members}
    changed = [
        member for member in after.members if ids.get(member.client_id, member.member_id) != member.member_id
    ]
    assert not changed, f"members that got a new id: {changed}; before: {ids}"


def check_generation(broker: BrokerProcess, view: GroupView, generation: int) -> None:
    """A stable group goes on as if nothing had happened."""
    for member in view.members:
        assert generation_of(broker.bootstrap_servers, GROUP, member.member_id) == generation


@pytest.mark.timeout(900)
def test_a_static_member_keeps_its_place_over_a_kill(broker: BrokerProcess, clients: Clients) -> None:
    # The broker has to be up again before the session of the one who is away ends.
    static = MEMBER | {"session_timeout_ms": 600_000, "max_poll_interval_ms": 600_000}
    with Team(clients.observer, GROUP, PARTITIONS) as team:
        for instance in ("one", "two"):
            team.join(clients.confluent, client_id=instance, group_instance_id=instance, **static)
            before = team.settle(PATIENCE_S)
        generation = generation_of(
            broker.bootstrap_servers, GROUP, before.members[0].member_id, before.members[0].group_instance_id
        )
        team.leave(team.members[1])  # a static member that stops stays in the group
        broker.kill()
        broker.restart()
        eventually(lambda: len(clients.observer.group(GROUP).members) == 2, "the group is loaded")
        team.join(clients.confluent, client_id="two", group_instance_id="two", **static)
        after = team.settle(PATIENCE_S)
        for member in after.members:
            assert (
                generation_of(broker.bootstrap_servers, GROUP, member.member_id, member.group_instance_id)
                == generation
            )
        assert {m.client_id: m.assignment for m in after.members} == {
            m.client_id: m.assignment for m in before.members
        }
