"""Groups over real bytes: every version, fields at their limits and beyond, a restart in between."""

from __future__ import annotations

import pytest

from kohort.broker import running
from kohort.broker.broker import Broker
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.coordinator.records import CommittedOffset, decode_offset
from kohort.coordinator.settings import partition_for
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.peer import create_topic
from tests.clients.process import eventually


@pytest.fixture(scope="module", params=["memory", "disk"])
def broker(request, tmp_path_factory):
    directory = None if request.param == "memory" else tmp_path_factory.mktemp("data")
    with running(directory, durability=request.param) as started:
        with BlockingConnection(started.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest("any"), version=2)
            create_topic(client, "orders", partitions=4)
        yield started


@pytest.fixture
def client(broker):
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def group(request):
    return f"g-{request.node.name}"


def join_request(group_id: str, member_id: str = "", **more) -> JoinGroupRequest:
    protocols = more.pop("protocols", [("range", b"subscription")])
    return JoinGroupRequest(
        group_id,
        more.pop("session_timeout_ms", 600_000),
        more.pop("rebalance_timeout_ms", 600_000),
        member_id,
        protocol_type=more.pop("protocol_type", "consumer"),
        protocols=[JoinGroupRequestProtocol(*each) for each in protocols],
        **more,
    )


def join(client: BlockingConnection, group_id: str, version: int = 9, **more):
    """Joins as a new member, asking twice where the version wants that."""
    answer = client.call(join_request(group_id, **more), version=version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = client.call(join_request(group_id, answer.member_id, **more), version=version)
    return answer


def sync(client: BlockingConnection, group_id: str, joined, assignment: bytes = b"all", version: int = 5):
    given = [SyncGroupRequestAssignment(m.member_id, assignment) for m in joined.members]
    request = SyncGroupRequest(group_id, joined.generation_id, joined.member_id, assignments=given)
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return client.call(request, version=version)


def stable(client: BlockingConnection, group_id: str, **more):
    joined = join(client, group_id, **more)
    assert (joined.error_code, sync(client, group_id, joined).error_code) == (0, 0)
    return joined


def commit_request(
    group_id: str, offset: int, joined=None, topic: str = "orders", partition: int = 0, metadata=""
):
    part = OffsetCommitRequestPartition(partition, offset, 0, metadata)
    request = OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic(topic, partitions=[part])])
    if joined is not None:
        request.generation_id_or_member_epoch, request.member_id = joined.generation_id, joined.member_id
    return request


def commit(client: BlockingConnection, group_id: str, offset: int, version: int = 8, **more) -> int:
    answer = client.call(commit_request(group_id, offset, **more), version=version)
    return answer.topics[0].partitions[0].error_code


def committed(client: BlockingConnection, group_id: str, partition: int = 0, topic: str = "orders") -> int:
    asked = [OffsetFetchRequestTopic(topic, [partition])]
    return (
        client.call(OffsetFetchRequest(group_id, asked), version=5).topics[0].partitions[0].committed_offset
    )


# Every version


@pytest.mark.parametrize("version", range(10))
def test_join_sync_heartbeat_and_leave_in_every_version(client, group, version):
    joined = join(client, group, version)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    assert [m.member_id for m in joined.members] == [joined.member_id]
    given = sync(client, group, joined, b"mine", min(version, 5))
    assert (given.error_code, given.assignment) == (0, b"mine")
    beat = HeartbeatRequest(group, joined.generation_id, joined.member_id)
    assert client.call(beat, version=min(version, 4)).error_code == 0
    leave = LeaveGroupRequest(group, joined.member_id, [MemberIdentity(joined.member_id)])
    assert client.call(leave, version=min(version, 5)).error_code == 0
    assert client.call(beat, version=min(version, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_every_version(client, group, version):
    request = commit_request(group, 42)
    if version >= 10:
        request.topics[0].topic_id = topic_id(client, "orders")
    assert client.call(request, version=version).topics[0].partitions[0].error_code == 0
    assert committed(client, group) == 42


def topic_id(client: BlockingConnection, name: str) -> bytes:
    return next(t.topic_id for t in client.call(MetadataRequest(None), version=12).topics if t.name == name)


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_of_offsets_in_every_version(client, group, version):
    commit(client, group, 7, partition=1)
    if version < 8:
        request = OffsetFetchRequest(group, [OffsetFetchRequestTopic("orders", [0, 1])])
        topic = client.call(request, version=version).topics[0]
    else:
        topics = OffsetFetchRequestTopics("orders", topic_id(client, "orders"), [0, 1])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[topics])])
        answer = client.call(request, version=version).groups[0]
        assert (answer.group_id, answer.error_code) == (group, 0)
        topic = answer.topics[0]
    assert [part.committed_offset for part in topic.partitions] == [-1, 7]


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_in_every_version(broker, client, version):
    if version < 4:
        answer = client.call(FindCoordinatorRequest("g"), version=version)
    else:
        answer = client.call(
            FindCoordinatorRequest(coordinator_keys=["g", "h"]), version=version
        ).coordinators[1]
        assert answer.key == "h"
    assert answer.error_message == ("NONE" if 1 <= version < 4 else "")  # Kafka's words
    assert f"{answer.host}:{answer.port}" == broker.bootstrap_servers


@pytest.mark.parametrize("version", range(7))
def test_describe_in_every_version(client, group, version):
    joined = stable(client, group)
    answer = client.call(DescribeGroupsRequest([group, "nobody"]), version=version).groups
    assert (answer[0].group_state, answer[0].members[0].member_id) == ("Stable", joined.member_id)
    assert answer[0].members[0].client_host == "/127.0.0.1"
    assert (answer[1].group_state, answer[1].error_code) == (
        "Dead",
        ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0,
    )


@pytest.mark.parametrize("version", range(6))
def test_list_in_every_version(client, group, version):
    stable(client, group)
    commit(client, f"{group}-simple", 1)
    listed = {g.group_id: g for g in client.call(ListGroupsRequest(), version=version).groups}
    assert {group, f"{group}-simple"} <= listed.keys()
    if version >= 4:
        only = client.call(ListGroupsRequest(states_filter=["Stable"]), version=version).groups
        assert group in {g.group_id for g in only}
        assert f"{group}-simple" not in {g.group_id for g in only}
    if version >= 5:
        assert client.call(ListGroupsRequest(types_filter=["consumer"]), version=version).groups == []


@pytest.mark.parametrize("version", range(3))
def test_delete_in_every_version(client, group, version):
    joined = stable(client, group)
    codes = [
        r.error_code for r in client.call(DeleteGroupsRequest([group, "nobody"]), version=version).results
    ]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    client.call(LeaveGroupRequest(group, members=[MemberIdentity(joined.member_id)]), version=5)
    assert client.call(DeleteGroupsRequest([group]), version=version).results[0].error_code == 0


def test_a_group_that_is_deleted_twice_in_one_request_is_answered_once(client, group):
    commit(client, group, 5)
    results = client.call(DeleteGroupsRequest([group, "nobody", group])).results
    assert [(r.group_id, r.error_code) for r in results] == [
        (group, 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_sync_5_must_name_the_protocol(client, group):
    joined = join(client, group)
    request = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, "consumer", None)
    assert client.call(request, version=5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, None, "range")
    assert client.call(request, version=5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.call(request, version=4).error_code == 0


@pytest.mark.parametrize("key_type", [-1, 2, 5])
def test_kinds_of_coordinators_that_there_are_not(client, key_type):
    answer = client.call(FindCoordinatorRequest("key", key_type), version=2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_offsets_are_deleted_but_not_of_a_topic_that_is_subscribed_to(client, group):
    commit(client, group, 5)
    topics = [
        OffsetDeleteRequestTopic(
            "orders", [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(99)]
        )
    ]
    answer = client.call(OffsetDeleteRequest(group, topics), version=0)
    assert [p.error_code for p in answer.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(client, group) == -1


# What is asked of topics that are not there


def test_commits_for_unknown_topics_and_partitions_are_refused_one_by_one(client, group):
    request = commit_request(group, 1)
    request.topics.append(
        OffsetCommitRequestTopic("nowhere", partitions=[OffsetCommitRequestPartition(0, 1)])
    )
    request.topics[0].partitions.append(OffsetCommitRequestPartition(99, 1, committed_metadata=""))
    request.topics[1].partitions[0].committed_metadata = ""
    answer = client.call(request, version=8)
    codes = [p.error_code for topic in answer.topics for p in topic.partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_offsets_of_a_deleted_topic_go_with_it(client, group):
    create_topic(client, f"short-{abs(hash(group))}")
    name = f"short-{abs(hash(group))}"
    assert commit(client, group, 3, topic=name) == 0
    assert commit(client, group, 4) == 0
    client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), version=5)
    # As in Kafka the tombstones follow the answer; they are durable a moment later.
    eventually(
        lambda: (
            [t.name for t in client.call(OffsetFetchRequest(group, None), version=5).topics] == ["orders"]
        ),
        "the offsets of the deleted topic are gone",
    )


# Fields at their limits and beyond


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, -1, -(2**31), 2**31 - 1, 0])
def test_session_timeouts_outside_the_limits(client, group, timeout_ms):
    answer = client.call(join_request(group, session_timeout_ms=timeout_ms), version=5)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_an_empty_group_id(client):
    assert client.call(join_request(""), version=5).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.call(HeartbeatRequest("", 1, "m"), version=3).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.call(SyncGroupRequest("", 1, "m"), version=3).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("protocols", [[], [("", b"")]])
def test_no_protocols(client, group, protocols):
    answer = client.call(join_request(group, protocols=protocols), version=3)
    assert answer.error_code == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if not protocols else 0)


def test_no_protocol_type(client, group):
    answer = client.call(join_request(group, protocol_type=""), version=3)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_ten_thousand_protocols(client, group):
    protocols = [(f"p{i}", b"x") for i in range(10_000)]
    answer = join(client, group, protocols=protocols)
    assert (answer.error_code, answer.protocol_name) == (0, "p0")


def test_names_of_30_kilobytes_and_metadata_of_a_megabyte(client):
    long = "n" * 30_000
    joined = join(client, long, protocols=[("range", b"s" * 500_000)])
    assert joined.error_code == 0
    assert sync(client, long, joined, b"a" * 400_000).assignment == b"a" * 400_000
    assert client.call(DescribeGroupsRequest([long]), version=5).groups[0].group_state == "Stable"


def test_an_assignment_that_does_not_fit_into_the_log_is_an_error_and_the_group_lives_on(client, group):
    joined = join(client, group)
    assert sync(client, group, joined, b"a" * 5_000_000).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    again = client.call(join_request(group, joined.member_id), version=9)
    assert (again.error_code, again.generation_id) == (0, joined.generation_id + 1)
    assert sync(client, group, again, b"less").assignment == b"less"


@pytest.mark.parametrize("generation", [2**31 - 1, -1, -(2**31), 0, 2])
def test_generations_that_are_not_the_groups(client, group, generation):
    joined = stable(client, group)
    beat = client.call(HeartbeatRequest(group, generation, joined.member_id), version=3)
    assert beat.error_code == ErrorCode.ILLEGAL_GENERATION
    sync_answer = client.call(SyncGroupRequest(group, generation, joined.member_id), version=3)
    assert sync_answer.error_code == ErrorCode.ILLEGAL_GENERATION


def test_an_assignment_for_strangers_is_passed_over(client, group):
    joined = join(client, group)
    strangers = [SyncGroupRequestAssignment(f"stranger-{i}", b"x") for i in range(1000)]
    answer = client.call(
        SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=strangers), version=3
    )
    assert (answer.error_code, answer.assignment) == (0, b"")


def test_metadata_of_a_commit_above_the_limit(client, group):
    assert commit(client, group, 1, metadata="m" * 4096) == 0
    assert commit(client, group, 2, metadata="m" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert committed(client, group) == 1


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1, 0])
def test_offsets_at_their_limits_are_kept_as_they_are(client, group, offset):
    assert commit(client, group, offset) == 0
    assert committed(client, group) == offset


def test_a_commit_from_outside_into_a_group_with_members(client, group):
    stable(client, group)
    assert commit(client, group, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_ten_thousand_groups_in_one_request(client):
    names = [f"none-{i}" for i in range(10_000)]
    answer = client.call(DescribeGroupsRequest(names), version=5)
    assert [g.group_id for g in answer.groups] == names
    fetched = client.call(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(n, topics=None) for n in names]), version=8
    )
    assert [g.group_id for g in fetched.groups] == names


# Over a restart


def test_members_generations_and_offsets_survive_a_restart(tmp_path):
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        create_topic(client, "orders", partitions=4)
        joined = stable(client, "g")
        assert commit(client, "g", 11, joined=joined) == 0
        commit(client, "simple", 5)
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        # As clients do; it is answered when all groups are loaded.
        client.call(FindCoordinatorRequest("g"), version=2)
        beat = HeartbeatRequest("g", joined.generation_id, joined.member_id)
        assert client.call(beat, version=3).error_code == 0
        assert (committed(client, "g"), committed(client, "simple")) == (11, 5)
        again = client.call(SyncGroupRequest("g", joined.generation_id, joined.member_id), version=3)
        assert (again.error_code, again.assignment) == (0, b"all")


def test_without_find_coordinator_a_fresh_broker_is_not_the_coordinator():
    """The first request for a coordinator creates __consumer_offsets, as in Kafka."""
    with running() as fresh, BlockingConnection(fresh.bootstrap_servers) as client:
        assert client.call(join_request("g"), version=5).error_code == ErrorCode.NOT_COORDINATOR
        client.call(FindCoordinatorRequest("g"), version=2)
        assert join(client, "g").error_code == 0
        names = {t.name for t in client.call(MetadataRequest(None), version=9).topics}
        assert names == {"__consumer_offsets"}


def test_an_offset_of_an_older_topic_of_that_name_is_none_to_those_who_ask_by_id(kafka: Kafka) -> None:
    """Kafka: version 10 names topics by id; older versions cannot tell two topics of one name apart."""
    kafka.create_topic("t", partitions=3)
    before = b"\7" * 16
    with BlockingConnection(kafka.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        now = topic_id(client, "t")
        assert commit(client, "g", 4, topic="t") == 0  # the shard of the group is active

        def put(broker: Broker) -> None:
            shards = broker.groups.runtime.shards
            durable = shards[partition_for("g", len(shards))].durable
            offsets = [CommittedOffset(5, -1, "m", 0, -1, each) for each in (before, now, bytes(16))]
            durable.apply_commit("g", [("t", 0), ("t", 1), ("t", 2)], offsets, 0, -1)

        kafka.on_broker(put)

        def fetched(version: int, topics: list[OffsetFetchRequestTopics] | None) -> list[tuple[int, int]]:
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
            (group,) = client.call(asked, version=version).groups
            (topic,) = group.topics
            return [(part.committed_offset, part.error_code) for part in topic.partitions]

        found, none = (5, 0), (-1, 0)
        assert fetched(10, [OffsetFetchRequestTopics("", now, [0, 1, 2])]) == [none, found, found]
        assert (
            fetched(10, None) == [found] * 3
        )  # as Kafka: all offsets of the group, whatever topic they are of
        assert fetched(9, [OffsetFetchRequestTopics("t", bytes(16), [0, 1, 2])]) == [found] * 3
        unknown = fetched(10, [OffsetFetchRequestTopics("", before, [0])])
        assert unknown == [(-1, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("version", [8, 10])
def test_the_id_of_the_topic_is_kept_with_the_offset(kafka: Kafka, version: int) -> None:
    """By the ordinary way and, from the third commit on, in a layout; whatever way the request names the topic."""
    kafka.create_topic("t")
    with BlockingConnection(kafka.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        now = topic_id(client, "t")
        for offset in range(5):
            request = commit_request("g", offset, topic="t")
            request.topics[0].topic_id = now
            assert client.call(request, version=version).topics[0].partitions[0].error_code == 0
        request.topics[0].topic_id, request.topics[0].name = b"\7" * 16, "nobody"
        refused = client.call(request, version=version).topics[0].partitions[0].error_code
        expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused == expected
    written = [
        decode_offset(each.value)
        for each in kafka.consume_all("__consumer_offsets")
        if each.key[:2] == b"\0\1"
    ]
    assert [(each.offset, each.topic_id) for each in written] == [(n, now) for n in range(5)]
