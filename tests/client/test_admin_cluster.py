"""Admin on a cluster of several nodes, some of which move, die or keep silent."""

from __future__ import annotations

import threading

import pytest

from kohort import Admin, ErrorCode, KafkaError, KohortError, PartlyFailed, TimedOut, TopicPartition
from kohort.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.scripted import CLOSE, SILENCE, Received, ScriptedCluster

LIST_OFFSETS, LIST_GROUPS = 2, 16
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Ends(ScriptedCluster):
    """Node n says that every partition ends at 100 n, if it leads it."""

    def __init__(self, *leaders: int) -> None:
        super().__init__(2)
        self.add_topic("t", leaders=list(leaders))
        for node_id, node in self.nodes.items():
            node.on(LIST_OFFSETS, lambda request, me=node_id: self._ends(me, request))  # type: ignore[misc]

    def __enter__(self) -> Ends:
        super().__enter__()
        return self

    def _ends(self, me: int, request: Received) -> ListOffsetsResponse:
        (topic,) = request.message.topics
        rows = [
            ListOffsetsPartitionResponse(part.partition_index, offset=100 * me)
            if self.topics["t"][part.partition_index][0] == me
            else ListOffsetsPartitionResponse(part.partition_index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for part in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", rows)])


def admin(cluster: ScriptedCluster, **settings: object) -> Admin:
    return Admin(bootstrap_servers=cluster.bootstrap_servers, **settings)


def refusal(client: Admin, *partitions: TopicPartition) -> KohortError:
    """What is raised when time is up; more of it where a slow machine did not even get to the metadata."""
    for timeout_s in (1, 4, 16, 60):
        with pytest.raises((PartlyFailed, KafkaError, TimedOut)) as raised:
            client.end_offsets(*partitions, timeout=timeout_s)
        if not isinstance(raised.value, TimedOut):
            break
    error: KohortError = raised.value
    return error


def test_each_leader_is_asked_for_its_own_partitions() -> None:
    with Ends(1, 2) as cluster, admin(cluster) as client:
        assert client.end_offsets(T0, T1) == {T0: 100, T1: 200}
        assert client.beginning_offsets(T0) == {T0: 100}


def test_a_leader_that_died_is_replaced_by_the_next() -> None:
    with Ends(1, 2) as cluster, admin(cluster) as client:
        assert client.end_offsets(T1) == {T1: 200}
        cluster[2].stop()
        cluster.move_leader("t", 1, to=1)
        assert client.end_offsets(T0, T1) == {T0: 100, T1: 100}


def test_what_a_leader_that_is_away_leaves_open_costs_nothing_of_the_others() -> None:
    with Ends(1, 2) as cluster, admin(cluster) as client:
        cluster[2].on(LIST_OFFSETS, SILENCE)
        partly = refusal(client, T0, T1, TopicPartition("nowhere", 0))
        assert isinstance(partly, PartlyFailed)
        assert partly.results == {T0: 100}
        assert {p: error.code for p, error in partly.errors.items()} == {
            T1: ErrorCode.REQUEST_TIMED_OUT,
            TopicPartition("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


def test_a_partition_without_a_leader_is_waited_for() -> None:
    with Ends(1, -1) as cluster, admin(cluster) as client:
        assert "no leader" in str(refusal(client, T1))
        cluster[1].script(LIST_OFFSETS, lambda request: (cluster.move_leader("t", 1, to=2), CLOSE)[1])
        assert client.end_offsets(T0, T1) == {T0: 100, T1: 200}


def test_all_nodes_are_asked_for_their_groups_at_the_same_time() -> None:
    """Each answers when it knows that the other was asked."""
    asked = threading.Barrier(2)
    with Ends(1, 2) as cluster, admin(cluster) as client:

        def groups_of(me: int) -> ListGroupsResponse:
            asked.wait(30)
            return ListGroupsResponse(groups=[ListedGroup(f"of {me}", "consumer", "Stable", "classic")])

        for me, node in cluster.nodes.items():
            node.on(LIST_GROUPS, lambda _, me=me: groups_of(me))  # type: ignore[misc]
        assert [group.group_id for group in client.list_groups()] == ["of 1", "of 2"]


def test_a_node_that_left_the_cluster_is_not_waited_for() -> None:
    with Ends(1, 1) as cluster, admin(cluster) as client:
        cluster[1].on(
            LIST_GROUPS, ListGroupsResponse(groups=[ListedGroup("a", "consumer", "Stable", "classic")])
        )

        def leave(request: Received) -> object:
            """Dies in the middle of it; the other node's metadata has it no more."""
            del cluster.nodes[2]
            return CLOSE

        left = cluster[2]
        left.script(LIST_GROUPS, leave)
        assert [group.group_id for group in client.list_groups()] == ["a"]
        left.end()
