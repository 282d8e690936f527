"""Consumer groups of KIP-848 over real bytes: what is refused, what is answered, and a broker that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode as E
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.peer import create_topic
from tests.clients.process import BrokerProcess

AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}


@pytest.fixture(scope="module")
def client() -> Iterator[BlockingConnection]:
    with running(settings=AT_ONCE) as broker, BlockingConnection(broker.bootstrap_servers) as connection:
        connection.call(FindCoordinatorRequest("any"), version=2)
        create_topic(connection, "orders", partitions=4)
        yield connection


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return f"g-{request.node.name}"


def heartbeat(
    group_id: str, member_id: str = "m", member_epoch: int = 0, **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat; with epoch 0 it has all that a join needs."""
    if member_epoch == 0:
        fields = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
            **fields,
        }
    return ConsumerGroupHeartbeatRequest(group_id, member_id, member_epoch, **fields)


def owned(answer: Any) -> list[int] | None:
    if answer.assignment is None:
        return None
    return sorted(p for each in answer.assignment.topic_partitions for p in each.partitions)


@pytest.mark.parametrize(
    ("fields", "version", "error", "words"),
    [
        ({"member_id": ""}, 1, E.INVALID_REQUEST, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 3}, 0, E.INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": " "}, 1, E.INVALID_REQUEST, "GroupId can't be empty."),
        ({"instance_id": " "}, 1, E.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": ""}, 1, E.INVALID_REQUEST, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 1, E.INVALID_REQUEST, "RebalanceTimeoutMs must be provided"),
        ({"topic_partitions": None}, 1, E.INVALID_REQUEST, "TopicPartitions must be empty"),
        (
            {"topic_partitions": [TopicPartitions(bytes(16), [0])]},
            1,
            E.INVALID_REQUEST,
            "TopicPartitions must be empty",
        ),
        ({"subscribed_topic_names": None}, 1, E.INVALID_REQUEST, "must be non-null"),
        ({"member_epoch": -2}, 1, E.INVALID_REQUEST, "InstanceId can't be null."),
        ({"member_epoch": -3}, 1, E.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"server_assignor": "best"}, 1, E.UNSUPPORTED_ASSIGNOR, "Supported assignors: uniform, range."),
        ({"member_epoch": 5}, 1, E.GROUP_ID_NOT_FOUND, "not found"),
        ({"member_epoch": -1}, 1, E.GROUP_ID_NOT_FOUND, "not found"),
        (
            {"subscribed_topic_names": None, "subscribed_topic_regex": "o(?=rders)"},
            1,
            E.INVALID_REGULAR_EXPRESSION,
            "`o(?=rders)` is not a valid regular expression",
        ),
    ],
)
def test_a_heartbeat_that_is_refused(
    client: BlockingConnection, fields: dict[str, Any], version: int, error: E, words: str
) -> None:
    answer = client.call(heartbeat(**{"group_id": "refused", **fields}), version=version)
    assert answer.error_code == error
    assert words in answer.error_message
    assert (answer.member_id, answer.assignment) == (None, None)


def test_a_member_of_version_0_gets_an_id(client: BlockingConnection, group: str) -> None:
    answer = client.call(heartbeat(group, ""), version=0)
    assert answer.error_code == E.NONE
    assert len(answer.member_id) == 36
    assert (answer.member_epoch, answer.heartbeat_interval_ms, owned(answer)) == (2, 5_000, [0, 1, 2, 3])


def test_a_group_forms_commits_and_ends(client: BlockingConnection, group: str) -> None:
    first = client.call(heartbeat(group, "a", instance_id="i", rack_id="r"), version=1)
    second = client.call(heartbeat(group, "b"), version=1)
    assert (owned(first), owned(second)) == ([0, 1, 2, 3], [])
    topic_id = first.assignment.topic_partitions[0].topic_id
    giving_up = client.call(heartbeat(group, "a", 2, instance_id="i"), version=1)
    assert (giving_up.member_epoch, owned(giving_up)) == (2, [0, 1])
    given_up = [TopicPartitions(topic_id, [0, 1])]
    done = client.call(heartbeat(group, "a", 2, instance_id="i", topic_partitions=given_up), version=1)
    assert done.member_epoch == 3
    got = client.call(heartbeat(group, "b", 3), version=1)
    assert owned(got) == [2, 3]
    quiet = client.call(heartbeat(group, "b", 3), version=1)
    assert (quiet.error_code, quiet.member_epoch, quiet.assignment) == (0, 3, None)

    described = client.call(ConsumerGroupDescribeRequest([group], True), version=1).groups[0]
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (3, 3)
    assert described.authorized_operations > 0
    a, b = sorted(described.members, key=lambda member: member.member_id)
    assert (a.instance_id, a.rack_id, a.member_epoch, a.member_type) == ("i", "r", 3, 1)
    (of_topic,) = b.assignment.topic_partitions
    assert (of_topic.topic_name, of_topic.partitions) == ("orders", [2, 3])
    assert b.target_assignment == b.assignment
    listed = client.call(ListGroupsRequest([], ["Consumer"]), version=5).groups
    assert (group, "consumer", "Stable", "consumer") in [
        (g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed
    ]

    assert commit(client, group, "b", 3, 9) == E.NONE
    assert commit(client, group, "b", 4, 9) == E.STALE_MEMBER_EPOCH
    assert commit(client, group, "b", 3, 8) == E.UNSUPPORTED_VERSION
    assert commit(client, group, "", -1, 9) == E.UNKNOWN_MEMBER_ID
    assert fetched(client, group, "b", 3) == (E.NONE, 7)
    assert fetched(client, group, "b", 2)[0] == E.STALE_MEMBER_EPOCH
    assert fetched(client, group, "nobody", 3)[0] == E.UNKNOWN_MEMBER_ID
    assert fetched(client, group, None, -1) == (E.NONE, 7)
    assert client.call(DeleteGroupsRequest([group]), version=2).results[0].error_code == E.NON_EMPTY_GROUP
    for name, instance in (("a", "i"), ("b", None)):
        left = client.call(heartbeat(group, name, -1, instance_id=instance), version=1)
        assert (left.error_code, left.member_epoch) == (0, -1)
    assert client.call(DeleteGroupsRequest([group]), version=2).results[0].error_code == E.NONE
    gone = client.call(ConsumerGroupDescribeRequest([group]), version=0).groups[0]
    assert (gone.error_code, gone.error_message) == (E.GROUP_ID_NOT_FOUND, f"Group {group} not found.")


def commit(client: BlockingConnection, group: str, member_id: str, epoch: int, version: int) -> int:
    part = OffsetCommitRequestPartition(2, 7)
    request = OffsetCommitRequest(
        group, epoch, member_id, topics=[OffsetCommitRequestTopic("orders", partitions=[part])]
    )
    answer = client.call(request, version=version)
    error: int = answer.topics[0].partitions[0].error_code
    return error


def fetched(client: BlockingConnection, group: str, member_id: str | None, epoch: int) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics("orders", partition_indexes=[2])]
    asked = OffsetFetchRequestGroup(group, member_id, epoch, topics)
    answer = client.call(OffsetFetchRequest(groups=[asked]), version=9).groups[0]
    if answer.error_code:
        return answer.error_code, -1
    return E.NONE, answer.topics[0].partitions[0].committed_offset


def test_partitions_that_are_added_reach_the_members(client: BlockingConnection, group: str) -> None:
    create_topic(client, group, partitions=1)
    names = {"subscribed_topic_names": [group]}
    assert owned(client.call(heartbeat(group, **names), version=1)) == [0]
    client.call(CreatePartitionsRequest([CreatePartitionsTopic(group, 3)], 10_000), version=3)
    assert owned(client.call(heartbeat(group, "m", 2), version=1)) == [0, 1, 2]


def test_the_version_of_groups_is_finalized(client: BlockingConnection) -> None:
    answer = client.call(ApiVersionsRequest("a", "1"), version=4)
    assert ("group.version", 1) in [(f.name, f.max_version_level) for f in answer.finalized_features]
    assert {68: 1, 69: 1}.items() <= {key.api_key: key.max_version for key in answer.api_keys}.items()


def test_a_broker_that_is_killed_knows_epochs_and_owners_afterwards(tmp_path: Any) -> None:
    settings = [f"{name}={value}" for name, value in AT_ONCE.items()]
    with BrokerProcess(tmp_path, "durability=disk", *settings) as broker:
        with BlockingConnection(broker.bootstrap_servers) as before:
            before.call(FindCoordinatorRequest("g"), version=2)
            create_topic(before, "orders", partitions=4)
            create_topic(before, "orders-2", partitions=1)
            assert owned(before.call(heartbeat("g", "a"), version=1)) == [0, 1, 2, 3]
            pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "orders.*"}
            before.call(heartbeat("g", "b", **pattern), version=1)
            before.call(heartbeat("g", "c", instance_id="i"), version=1)
            before.call(heartbeat("g", "a", 2), version=1)  # it has to give up some, and has not yet
            known = before.call(ConsumerGroupDescribeRequest(["g"]), version=1).groups[0]
        broker.kill()
        broker.restart()
        with BlockingConnection(broker.bootstrap_servers) as after:
            again = after.call(ConsumerGroupDescribeRequest(["g"]), version=1).groups[0]
            assert again == known
            assert known.group_state == "Reconciling"
            same = after.call(heartbeat("g", "a", 2), version=1)
            assert (same.error_code, same.member_epoch) == (0, 2)
