"""sample_cluster against real brokers, and against clusters in trouble: the rest is sampled all the same."""

from __future__ import annotations

import pytest

from kohort import Admin, ErrorCode, KafkaError, TimedOut
from kohort.insight.samples import MOST_PROBLEMS, sample_cluster
from kohort.testing import Kafka
from kohort.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.list_groups import ListGroupsResponse
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.client.scripted import Received, ScriptedCluster
from tests.insight.groups import member, settle

LIST_OFFSETS, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 2, 9, 10, 15, 16


@pytest.fixture
def orders(kafka: Kafka) -> Kafka:
    kafka.create_topic("orders", partitions=3)
    kafka.produce("orders", [{"value": f"{n}", "partition": n % 3} for n in range(30)])
    return kafka


def test_a_sample_has_the_nodes_topics_groups_members_and_lag(orders: Kafka) -> None:
    servers = orders.bootstrap_servers
    with (
        Admin(bootstrap_servers=servers) as admin,
        member(servers, "billing", "orders", client_id="c") as consumer,
    ):
        settle(consumer, partitions=3)
        consumer.commit({("orders", 0): 4, ("orders", 1): 10})
        sample = sample_cluster(admin, 1234)
    assert sample.at_ms == 1234
    assert [node.node_id for node in sample.cluster.nodes] == [1]
    topic = sample.topics["orders"]
    assert (topic.begins, topic.ends) == ({0: 0, 1: 0, 2: 0}, {0: 10, 1: 10, 2: 10})
    assert sample.topics["__consumer_offsets"].is_internal
    group = sample.groups["billing"]
    assert (group.state, group.group_type, group.protocol_type, group.lag) == (
        "Stable",
        "classic",
        "consumer",
        6,
    )
    assert group.coordinator == sample.cluster.nodes[0]
    (only,) = group.members
    assert only.client_id == "c"
    assert [(p.committed, p.begin, p.end, p.lag, p.owners) for p in group.partitions] == [
        (4, 0, 10, 6, (only.member_id,)),
        (10, 0, 10, 0, (only.member_id,)),
        (None, 0, 10, None, (only.member_id,)),
    ]
    assert sample.problems == ()


def test_only_some_groups_and_the_topics_that_they_read(orders: Kafka) -> None:
    orders.create_topic("other")
    with Admin(bootstrap_servers=orders.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 1})
        admin.alter_group_offsets("b", {("other", 0): 0})
        sample = sample_cluster(admin, 0, groups=["billing"])
        assert (list(sample.groups), list(sample.topics)) == (["billing"], ["orders"])
        assert sample.groups["billing"].lag == 9
        nothing = sample_cluster(admin, 0, groups=[])
        assert (nothing.groups, nothing.topics, nothing.problems) == ({}, {}, ())


def test_a_group_that_is_gone_is_a_problem_and_no_error(orders: Kafka) -> None:
    with Admin(bootstrap_servers=orders.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 1})
        sample = sample_cluster(admin, 0, groups=["billing", "gone"])
    assert list(sample.groups) == ["billing"]
    assert sample.problems == ("group gone does not exist any more",)


def test_a_topic_that_is_gone_is_a_problem_and_no_error() -> None:
    with ScriptedCluster(1) as cluster:
        me = cluster[1]
        cluster.add_topic("t", leaders=[1])
        found = Coordinator("g", 1, me.host, me.port)
        cluster.on(FIND_COORDINATOR, FindCoordinatorResponse(coordinators=[found]))
        cluster.on(DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[DescribedGroup(0, None, "g", "Empty")]))
        topics = [
            OffsetFetchResponseTopics(name, partitions=[OffsetFetchResponsePartitions(0, 3)])
            for name in ("t", "gone")
        ]
        cluster.on(OFFSET_FETCH, OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)]))
        cluster.on(LIST_OFFSETS, lambda request: ends(cluster, request))
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            sample = sample_cluster(admin, 0, groups=["g"])
    assert sample.problems == ("group g has offsets of topic gone, which does not exist",)
    assert [(p.topic, p.committed, p.lag) for p in sample.groups["g"].partitions] == [
        ("gone", 3, None),
        ("t", 3, 4),
    ]
    assert sample.groups["g"].lag == 4


def ends(cluster: ScriptedCluster, request: Received) -> ListOffsetsResponse:
    rows = []
    for topic in request.message.topics:
        parts = []
        for part in topic.partitions:
            is_broken = cluster.topics[topic.name][part.partition_index][0] == 2
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_broken else ErrorCode.NONE
            parts.append(ListOffsetsPartitionResponse(part.partition_index, code, offset=7))
        rows.append(ListOffsetsTopicResponse(topic.name, parts))
    return ListOffsetsResponse(topics=rows)


def test_a_partition_without_a_leader_and_one_that_is_refused_cost_only_themselves() -> None:
    with ScriptedCluster(2) as cluster:
        cluster.add_topic("t", leaders=[1, 2, 1])
        cluster.move_leader("t", 2, to=-1)
        cluster.on(LIST_OFFSETS, lambda request: ends(cluster, request))
        cluster.on(LIST_GROUPS, ListGroupsResponse())
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            sample = sample_cluster(admin, 0)
    assert sample.topics["t"].ends == {0: 7}
    assert sample.problems[0] == "t-2 has no leader"
    assert sample.problems[1].startswith("t-1 gave no offsets: ")
    assert len(sample.problems) == 2


def test_groups_that_cannot_be_listed_are_a_problem_and_the_topics_are_there() -> None:
    with ScriptedCluster(1) as cluster:
        cluster.add_topic("t", leaders=[1])
        cluster.on(LIST_OFFSETS, lambda request: ends(cluster, request))
        cluster.on(LIST_GROUPS, ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            sample = sample_cluster(admin, 0)
    assert list(sample.topics) == ["t"]
    (problem,) = sample.problems
    assert problem.startswith("the groups could not be listed")


def test_many_problems_are_counted_and_not_all_told() -> None:
    with ScriptedCluster(1) as cluster:
        cluster.add_topic("t", leaders=[-1] * 200)
        cluster.on(LIST_GROUPS, ListGroupsResponse())
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            sample = sample_cluster(admin, 0)
    assert len(sample.problems) == MOST_PROBLEMS + 1
    assert sample.problems[-1] == f"and {200 - MOST_PROBLEMS} more problems"


def test_a_cluster_that_is_not_there_is_an_error() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises((TimedOut, KafkaError)):
        sample_cluster(admin, 0, timeout=0.2)
