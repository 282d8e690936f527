"""Share groups through real bytes: membership, describe, list, delete, and the offsets that administrators see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import alter_share_group_offsets as alter
from kohort.wire.messages import delete_share_group_offsets as delete
from kohort.wire.messages import describe_share_group_offsets as describe
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kohort.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.peer import LONG_POLL_MS, batch_of, create_topic, produce
from tests.broker.share_peer import ShareMember, topic_id_of

E = ErrorCode


@pytest.fixture(scope="module")
def broker() -> Iterator[running]:
    with running(group_share_assignment_interval_ms=0, group_share_min_assignment_interval_ms=0) as started:
        yield started


@pytest.fixture
def client(broker: running) -> Iterator[BlockingConnection]:
    with BlockingConnection(broker.bootstrap_servers) as connection:
        connection.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), version=6)
        yield connection


@pytest.fixture
def topic(client: BlockingConnection, request: Any) -> str:
    name = f"t{abs(hash(request.node.name))}"
    create_topic(client, name, partitions=3)
    return name


def beat(
    client: Any, group: str, member: str, epoch: int, names: list[str] | None = None, **more: Any
) -> Any:
    request = ShareGroupHeartbeatRequest(group, member, epoch, subscribed_topic_names=names, **more)
    return client.call(request, version=1)


def assigned(client: Any, group: str, member: str, topic: str, count: int) -> tuple[int, list[int]]:
    """Joins and beats until the member has so many partitions; returns its epoch and the partitions."""
    answer = beat(client, group, member, 0, [topic])
    partitions: list[int] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        if answer.assignment is not None:
            partitions = [p for t in answer.assignment.topic_partitions for p in t.partitions]
        if len(partitions) == count:
            return answer.member_epoch, partitions
        answer = beat(client, group, member, answer.member_epoch)
    raise AssertionError(f"{member} has {partitions}")


@pytest.mark.parametrize("version", [5, 6])
def test_the_coordinator_of_a_share_partition(client, version):
    good = "g:AAAAAAAAAAAAAAAAAAAAAA:0"
    asked = FindCoordinatorRequest(
        key_type=2, coordinator_keys=[good, "g", "g:x:0", ":AAAAAAAAAAAAAAAAAAAAAA:0"]
    )
    found = [each.error_code for each in client.call(asked, version=version).coordinators]
    assert found == [0 if version == 6 else E.INVALID_REQUEST] + 3 * [E.INVALID_REQUEST]


def test_a_member_gets_partitions_once_they_have_state(client, topic):
    first = beat(client, topic, "m1", 0, [topic])
    assert (first.error_code, first.member_id, first.assignment.topic_partitions) == (0, "m1", [])
    assert first.heartbeat_interval_ms < 5000  # the assignment follows soon
    epoch, partitions = assigned(client, topic, "m1", topic, 3)
    assert sorted(partitions) == [0, 1, 2]
    later = beat(client, topic, "m1", epoch)
    assert (later.member_epoch, later.assignment, later.heartbeat_interval_ms) == (epoch, None, 5000)


def test_records_go_to_members_of_a_group_that_heartbeats_made(client, topic):
    assigned(client, topic, "m1", topic, 3)
    member = ShareMember(client, topic, "m1", topic_id_of(client, topic))
    assert member.acquire(partitions=(0, 1, 2)[:1]) == []  # latest: it begins at the end
    produce(client, topic, batch_of(b"a"))
    assert member.acquire(max_wait_ms=LONG_POLL_MS) == [(0, 0, 1)]
    assert member.acknowledge((0, 0, 1)) == 0


def test_partitions_are_shared_when_there_are_more_members(client, topic):
    for number in range(4):
        epoch, partitions = assigned(client, topic, f"m{number}", topic, 3 if number == 0 else 1)
        assert epoch > 0
        assert partitions


def test_a_topic_that_grows_is_assigned_whole(client, topic):
    epoch, _ = assigned(client, topic, "m1", topic, 3)
    client.call(CreatePartitionsRequest([CreatePartitionsTopic(topic, 5)], 1000), version=3)
    assert sorted(assigned(client, topic, "m1", topic, 5)[1]) == [0, 1, 2, 3, 4]
    assert beat(client, topic, "m1", epoch).error_code in (0, E.FENCED_MEMBER_EPOCH)


@pytest.mark.parametrize(
    ("group", "member", "epoch", "names", "more"),
    [
        ("g", "", 0, ["t"], {}),
        ("", "m", 0, ["t"], {}),
        ("g", "m", 0, None, {}),
        ("g", "m", 0, [], {}),
        ("g", "m", -2, None, {}),
        ("g", "m", 0, ["t"], {"rack_id": ""}),
    ],
)
def test_heartbeats_that_make_no_sense(client, group, member, epoch, names, more):
    assert beat(client, group, member, epoch, names, **more).error_code == E.INVALID_REQUEST


def test_epochs_and_unknown_members(client, topic):
    assert beat(client, topic, "m1", 3).error_code == E.GROUP_ID_NOT_FOUND
    assert beat(client, topic, "m1", -1).error_code == E.GROUP_ID_NOT_FOUND
    epoch, _ = assigned(client, topic, "m1", topic, 3)
    assert beat(client, topic, "m2", 3).error_code == E.UNKNOWN_MEMBER_ID
    assert beat(client, topic, "m2", -1).error_code == E.UNKNOWN_MEMBER_ID
    assert beat(client, topic, "m1", epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert beat(client, topic, "m1", epoch - 2).error_code == E.FENCED_MEMBER_EPOCH
    assert beat(client, topic, "m1", -1).error_code == 0
    assert beat(client, topic, "m1", epoch).error_code == E.UNKNOWN_MEMBER_ID


def test_a_member_that_falls_silent_is_removed(broker, client, topic):
    epoch, _ = assigned(client, topic, "m1", topic, 3)

    async def later() -> None:
        broker.server.broker.clock.shift_ms += 45_001
        broker.server.broker.groups.fire_due()

    broker.call(later())
    assert beat(client, topic, "m1", epoch).error_code == E.UNKNOWN_MEMBER_ID


def test_describe_list_and_delete(client, topic):
    epoch, _ = assigned(client, topic, "m1", topic, 3)
    (group,) = client.call(ShareGroupDescribeRequest([topic]), version=1).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("m1", epoch, [topic])
    assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [(topic, [0, 1, 2])]
    listed = client.call(ListGroupsRequest(types_filter=["share"]), version=5).groups
    assert (topic, "share", "Stable", "share") in [
        (g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed
    ]
    (unknown,) = client.call(ShareGroupDescribeRequest(["nobody"]), version=1).groups
    assert unknown.error_code == E.GROUP_ID_NOT_FOUND
    assert client.call(HeartbeatRequest(topic, 1, "m1"), version=4).error_code == E.UNKNOWN_MEMBER_ID

    def delete_group() -> int:
        return int(client.call(DeleteGroupsRequest([topic]), version=2).results[0].error_code)

    assert delete_group() == E.NON_EMPTY_GROUP
    assert beat(client, topic, "m1", -1).error_code == 0
    assert delete_group() == 0
    assert delete_group() == E.GROUP_ID_NOT_FOUND


def offsets_of(client: Any, group: str, topic: str | None = None, partition: int = 0) -> Any:
    topics = None
    if topic is not None:
        topics = [describe.DescribeShareGroupOffsetsRequestTopic(topic, [partition])]
    asked = describe.DescribeShareGroupOffsetsRequestGroup(group, topics)
    return client.call(describe.DescribeShareGroupOffsetsRequest([asked]), version=1).groups[0]


def alter_to(client: Any, group: str, topic: str, offset: int, partition: int = 0) -> int:
    part = alter.AlterShareGroupOffsetsRequestPartition(partition, offset)
    asked = alter.AlterShareGroupOffsetsRequestTopic(topic, [part])
    answer = client.call(alter.AlterShareGroupOffsetsRequest(group, [asked]), version=0)
    return int(answer.error_code or answer.responses[0].partitions[0].error_code)


def test_offsets_are_described_altered_and_deleted(client, topic):
    assert offsets_of(client, topic).error_code == E.GROUP_ID_NOT_FOUND
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    assert alter_to(client, topic, topic, 1) == 0  # makes the group
    (found,) = offsets_of(client, topic).topics
    (data,) = found.partitions
    assert (found.topic_name, data.partition_index, data.start_offset, data.lag) == (topic, 0, 1, 2)
    assert alter_to(client, topic, topic, 1, partition=9) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert alter_to(client, topic, "no-such-topic", 1) == E.UNKNOWN_TOPIC_OR_PARTITION

    assigned(client, topic, "m1", topic, 3)
    member = ShareMember(client, topic, "m1", topic_id_of(client, topic))
    assert member.acquire(max_wait_ms=LONG_POLL_MS) == [(1, 2, 1)]
    assert member.acknowledge((2, 2, 1)) == 0
    data = offsets_of(client, topic, topic).topics[0].partitions[0]
    assert (data.start_offset, data.lag) == (1, 1)
    assert alter_to(client, topic, topic, 0) == E.NON_EMPTY_GROUP
    assert member.fetch(epoch=-1).error_code == 0
    assert beat(client, topic, "m1", -1).error_code == 0
    assert alter_to(client, topic, topic, 0) == 0
    data = offsets_of(client, topic, topic).topics[0].partitions[0]
    assert (data.start_offset, data.lag) == (0, 3)

    def delete_offsets(name: str) -> int:
        asked = delete.DeleteShareGroupOffsetsRequestTopic(name)
        answer = client.call(delete.DeleteShareGroupOffsetsRequest(topic, [asked]), version=0)
        return int(answer.error_code or answer.responses[0].error_code)

    assert delete_offsets("no-such-topic") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_offsets(topic) == 0
    assert delete_offsets(topic) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert offsets_of(client, topic).topics == []


def test_a_group_of_another_type_is_not_a_share_group(client, topic):
    from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    request = ConsumerGroupHeartbeatRequest(
        topic, "m1", 0, rebalance_timeout_ms=1000, subscribed_topic_names=[topic]
    )
    request.topic_partitions = []
    assert client.call(request, version=1).error_code == 0
    assert beat(client, topic, "m2", 0, [topic]).error_code == E.GROUP_ID_NOT_FOUND
    assert alter_to(client, topic, topic, 0) == E.GROUP_ID_NOT_FOUND


def test_a_share_group_survives_a_restart(tmp_path):
    with (
        running(tmp_path, group_share_assignment_interval_ms=0) as broker,
        BlockingConnection(broker.bootstrap_servers) as client,
    ):
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), version=6)
        create_topic(client, "t", partitions=2)
        epoch, partitions = assigned(client, "g", "m1", "t", 2)
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), version=6)
        answer = beat(client, "g", "m1", epoch, ["t"])
        assert (answer.error_code, answer.member_epoch) == (0, epoch)
        assert answer.assignment.topic_partitions[0].partitions == sorted(partitions)
