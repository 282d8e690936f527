"""What operators do to groups, with the admin calls of each library."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.client import Refused
from tests.clients.clients import CLIENTS, each_client
from tests.clients.confluent import Confluent
from tests.clients.conftest import Connect
from tests.clients.kafka_python import KafkaPython
from tests.clients.process import eventually
from tests.clients.team import PATIENCE_S, Team

SETTINGS = ("group.initial.rebalance.delay.ms=0",)


def team_of(connect: Connect, name: str, partitions: int = 2) -> Team:
    observer = connect(Confluent)
    observer.create_topic(name, partitions)
    team = Team(observer, name, [(name, index) for index in range(partitions)])
    team.produce(observer, count=10)
    return team


def an_empty_group(connect: Connect, name: str) -> None:
    """Has committed offset 10 for both partitions of the topic of its name; nobody is in it."""
    with team_of(connect, name) as team:
        team.join(connect(Confluent))
        team.all_received()
    wait_empty(connect, name)


def wait_empty(connect: Connect, name: str) -> None:
    """A library's close() may return before the broker has heard the farewell."""
    eventually(lambda: connect(Confluent).group(name).state == "empty", "the group is empty", PATIENCE_S)


@each_client("groups")
def test_list(client: Any, connect: Connect, name: str) -> None:
    assert name not in client.groups()
    with team_of(connect, name) as team:
        team.join(connect(Confluent))
        team.settle()
        assert client.groups()[name] == "stable"
        team.leave(team.members[0])
        wait_empty(connect, name)
        assert client.groups()[name] == "empty"


@each_client("group_names")
def test_list_without_states(client: Any, connect: Connect, name: str) -> None:
    assert name not in client.group_names()
    an_empty_group(connect, name)
    assert name in client.group_names()


@each_client("group")
def test_describe(client: Any, connect: Connect, name: str) -> None:
    with team_of(connect, name) as team:
        team.join(client, 2)
        seen = team.settle()
        view = client.group(name)
        assert (view.state, view.protocol) == ("stable", "range")
        assert {member.member_id for member in view.members} == {member.member_id for member in seen.members}
        assert {member.client_id for member in view.members} == {member.client_id for member in team.members}
        assert view.owned == [(name, 0), (name, 1)]
    wait_empty(connect, name)
    assert client.group(name).state == "empty"
    assert client.group(name).members == ()


@each_client("group")
def test_a_group_that_does_not_exist_is_dead(client: Any, name: str) -> None:
    assert client.group(name).state == "dead"


@each_client("committed")
def test_committed_offsets_of_a_group_without_members(client: Any, connect: Connect, name: str) -> None:
    an_empty_group(connect, name)
    assert client.committed(name) == {(name, 0): 10, (name, 1): 10}


@each_client("delete_group")
def test_delete_a_group(client: Any, connect: Connect, name: str) -> None:
    with team_of(connect, name) as team:
        team.join(connect(Confluent))
        team.settle()
        with pytest.raises(Refused) as refused:
            client.delete_group(name)
        assert refused.value.error == "NON_EMPTY_GROUP"
        team.all_received()
    wait_empty(connect, name)
    client.delete_group(name)
    assert name not in client.groups()
    assert client.committed(name) == {}
    with pytest.raises(Refused) as refused:
        client.delete_group(name)
    assert refused.value.error == "GROUP_ID_NOT_FOUND"


@each_client("alter_offsets")
def test_alter_offsets(client: Any, connect: Connect, name: str) -> None:
    with team_of(connect, name) as team:
        team.join(connect(Confluent))
        team.settle()
        team.all_received()
        with pytest.raises(Refused) as refused:
            client.alter_offsets(name, {(name, 0): 3})
        assert refused.value.error == "UNKNOWN_MEMBER_ID", "the members decide while there are any"
    wait_empty(connect, name)
    client.alter_offsets(name, {(name, 0): 3})
    for reader in CLIENTS:
        assert connect(reader).committed(name) == {(name, 0): 3, (name, 1): 10}, reader.name
    with Team(connect(Confluent), name, [(name, 0), (name, 1)]) as team:
        member = team.join(connect(Confluent))[0]
        eventually(lambda: len(member.received) >= 7, "the group reads again from offset 3", PATIENCE_S)
        assert [record.offset for record in member.received] == list(range(3, 10))


@each_client("alter_offsets")
def test_offsets_can_be_set_before_the_group_exists(client: Any, connect: Connect, name: str) -> None:
    connect(Confluent).create_topic(name, 2)
    client.alter_offsets(name, {(name, 1): 0})
    assert client.groups()[name] == "empty"
    assert client.committed(name) == {(name, 1): 0}


@each_client("delete_offsets")
def test_delete_offsets(client: Any, connect: Connect, name: str) -> None:
    with team_of(connect, name) as team:
        team.join(connect(Confluent))
        team.settle()
        team.all_received()
        with pytest.raises(Refused) as refused:
            client.delete_offsets(name, [(name, 0)])
        assert refused.value.error == "GROUP_SUBSCRIBED_TO_TOPIC"
    wait_empty(connect, name)
    client.delete_offsets(name, [(name, 0)])
    assert client.committed(name) == {(name, 1): 10}


@each_client("delete_topic")
def test_the_offsets_of_a_deleted_topic_are_gone(client: Any, connect: Connect, name: str) -> None:
    an_empty_group(connect, name)
    connect(Confluent).create_topic(f"{name}-stays")
    connect(Confluent).alter_offsets(name, {(f"{name}-stays", 0): 0})
    client.delete_topic(name)
    eventually(
        lambda: connect(Confluent).committed(name) == {(f"{name}-stays", 0): 0},
        "only what is there is left",
        PATIENCE_S,
    )
    client.create_topic(name, 2)
    assert connect(Confluent).committed(name) == {(f"{name}-stays", 0): 0}, "and it does not come back"


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_an_operator_removes_a_member(connect: Connect, name: str, static: bool) -> None:
    # Only kafka-python has a call for it.
    with team_of(connect, name) as team:
        options: dict[str, Any] = {"group_instance_id": "one"} if static else {}
        stays = team.join(connect(Confluent))[0]
        team.settle()
        removed = team.join(connect(Confluent), client_id="to-be-removed", **options)[0]
        view = team.settle()
        (member,) = [member for member in view.members if member.client_id == "to-be-removed"]
        removed.stand_still()  # or it would come back before we look
        if static:
            connect(KafkaPython).remove_member(name, group_instance_id="one")
        else:
            connect(KafkaPython).remove_member(name, member_id=member.member_id)
        eventually(lambda: len(stays.assignment) == 2, "the other member owns all partitions", PATIENCE_S)
        left = connect(Confluent).group(name).members
        assert member.member_id not in {other.member_id for other in left}
        removed.polling.set()
