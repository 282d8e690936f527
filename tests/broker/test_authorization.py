"""What an authorizer changes: the short ways ask too, answers keep their shape, and nobody learns what is hidden."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kohort.broker.apis.cluster import NOT_ASKED
from kohort.broker.apis.table import TABLE
from kohort.broker.net.hosts import host_of
from kohort.security.acls import Permission
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.describe_cluster import DescribeClusterRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.sync_group import SyncGroupRequest
from kohort.wire.struct import ZERO_UUID
from tests.broker import peer
from tests.broker.secured import allow, allowed, codes_in, login, secured, take_back

T29, G30, C31 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


@pytest.fixture(scope="module")
def broker():
    with secured(auto_create_topics_enable=True) as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker):
    with login(broker.bootstrap_servers, "admin") as connection:
        connection.call(FindCoordinatorRequest("g", 0), 3)
        yield connection


@pytest.fixture
def alice(broker):
    with login(broker.bootstrap_servers, "alice") as connection:
        yield connection


@pytest.fixture
def topic(admin, request):
    """A topic of the test's own."""
    name = f"topic-of-{request.node.name.replace('[', '-').replace(']', '')}"[:200]
    created = peer.create_topic(admin, name)
    assert created.error_code == 0, created.error_message
    return created


# --- the short ways ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 10])
def test_recognized_commits_ask(admin, alice, topic, version):
    group = f"recognized-{version}"
    rights = (f"READ GROUP {group}", f"READ TOPIC {topic.name}")

    def commit(offset: int) -> set[int]:
        part = OffsetCommitRequestPartition(0, offset, -1, "")
        of_topic = OffsetCommitRequestTopic(topic.name, topic.topic_id, [part])
        return codes_in(alice.call(OffsetCommitRequest(group, -1, "", topics=[of_topic]), version))

    with allowed(admin, *rights):
        for offset in range(5):
            assert commit(offset) == set()
        layouts = TABLE[8].codec(version)._layouts.values()
        (layout,) = (each for each in layouts if each.message.group_id == group)
        assert layout.prepared is not None, "the commits above took the short way"
    assert commit(5) == {G30}
    with allowed(admin, rights[0]):
        assert commit(6) == {T29}
    with allowed(admin, *rights):
        assert commit(7) == set()
        assert layout.prepared is not None


def test_heartbeats_in_time_ask(admin, alice):
    group = "beating"
    protocol = JoinGroupRequestProtocol("range", b"")
    right = f"READ GROUP {group}"
    allow(admin, right)
    join = JoinGroupRequest(group, 60_000, 60_000, "", protocol_type="consumer", protocols=[protocol])
    joined = alice.call(join, 3)
    alice.call(SyncGroupRequest(group, joined.generation_id, joined.member_id), 3)

    def beat() -> int:
        return alice.call(HeartbeatRequest(group, joined.generation_id, joined.member_id), 3).error_code

    assert beat() == 0
    take_back(admin, right)
    assert beat() == G30
    allow(admin, right)
    assert beat() == 0, "the member was not lost meanwhile"


def session_fetch(alice: Any, topic: Any, session_id: int, epoch: int, version: int, **more: Any) -> Any:
    """A fetch of a session; the first one names the partition, the others name nothing."""
    part = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic.name, topic.topic_id, [part])] if epoch == 0 else []
    request = FetchRequest(
        max_bytes=1 << 20, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics, **more
    )
    return alice.call(request, version)


@pytest.mark.parametrize("version", [11, 16])
def test_the_fetches_of_a_session_ask(admin, alice, topic, version):
    peer.produce(admin, topic.name, peer.batch_of(b"1"))
    right = f"READ TOPIC {topic.name}"
    with allowed(admin, right):
        first = session_fetch(alice, topic, 0, 0, version)
        assert peer.values_in(first.responses[0].partitions[0]) == [b"1"]
    for epoch in (1, 2):
        answer = session_fetch(alice, topic, first.session_id, epoch, version)
        (part,) = answer.responses[0].partitions
        assert (answer.error_code, part.error_code, part.high_watermark) == (0, T29, -1)
        assert (part.records or b"", part.aborted_transactions) == (b"", [])
    with allowed(admin, right):
        answer = session_fetch(alice, topic, first.session_id, 3, version)
        assert peer.values_in(answer.responses[0].partitions[0]) == [b"1"]


def test_a_session_is_there_for_its_own_principal_only(broker, admin, alice, topic):
    with allowed(admin, f"READ TOPIC {topic.name}"), login(broker.bootstrap_servers, "bob") as bob:
        session_id = session_fetch(alice, topic, 0, 0, 11).session_id
        assert session_id > 0
        hijacked = session_fetch(bob, topic, session_id, 1, 11)
        assert (hijacked.error_code, hijacked.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        session_fetch(bob, topic, session_id, -1, 11)  # ends nothing of hers
        with login(broker.bootstrap_servers, "alice") as again:  # another connection of hers is as good
            own = session_fetch(again, topic, session_id, 1, 11)
            assert (own.error_code, own.session_id) == (0, session_id)


def test_a_long_poll_goes_on_and_the_next_one_asks(admin, alice, topic):
    """As in Kafka: who may read is asked when a fetch comes, not when it is answered."""
    right = f"READ TOPIC {topic.name}"
    allow(admin, right)
    request = peer.fetch_request(topic.name, 0, max_wait_ms=peer.LONG_POLL_MS)
    alice.send(request, 11)
    admin.call(MetadataRequest([]), 9)  # its answer comes after the fetch was read
    take_back(admin, right)
    peer.produce(admin, topic.name, peer.batch_of(b"1"))
    assert peer.values_in(alice.receive().responses[0].partitions[0]) == [b"1"]
    refused = peer.fetch(alice, topic.name, 1, max_wait_ms=peer.LONG_POLL_MS)
    assert refused.error_code == T29, "at once: there is nothing to wait for"


def test_a_fetch_of_two_topics_waits_for_the_one_that_may_be_read(admin, alice, topic):
    peer.create_topic(admin, "hidden-from-alice")
    peer.produce(admin, "hidden-from-alice", peer.batch_of(b"secret"))
    peer.produce(admin, topic.name, peer.batch_of(b"1"))
    parts = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
    topics = [FetchTopic("hidden-from-alice", partitions=parts), FetchTopic(topic.name, partitions=parts)]
    with allowed(admin, f"READ TOPIC {topic.name}"):
        answer = alice.call(FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=topics), 11)
    outcomes = {
        each.topic: (each.partitions[0].error_code, peer.values_in(each.partitions[0]))
        for each in answer.responses
    }
    assert outcomes == {"hidden-from-alice": (T29, []), topic.name: (0, [b"1"])}


# --- shapes --------------------------------------------------------------------------------------------------------


def test_a_produce_without_acks_that_is_refused_closes_the_connection(alice, admin, topic):
    alice.send(peer.produce_request(topic.name, peer.batch_of(b"1"), acks=0), 9, answered=False)
    alice.send(MetadataRequest([]), 9)
    with pytest.raises(ConnectionError):
        alice.receive()
    assert peer.fetch(admin, topic.name).high_watermark == 0


def test_metadata_hides_what_may_not_be_described(admin, alice, topic):
    def ask(*topics: MetadataRequestTopic, **more: Any) -> Any:
        return alice.call(MetadataRequest(list(topics), **more), 12).topics

    named = [MetadataRequestTopic(ZERO_UUID, name) for name in (topic.name, "not-there")]
    for answer in ask(*named, allow_auto_topic_creation=True):
        fields = (answer.error_code, answer.topic_id, answer.partitions, answer.topic_authorized_operations)
        assert fields == (T29, ZERO_UUID, [], NOT_ASKED), "existing or not, it is the same"
    (by_id,) = ask(MetadataRequestTopic(topic.topic_id, None))
    assert (by_id.error_code, by_id.name, by_id.topic_id) == (T29, None, topic.topic_id)
    (unknown,) = ask(MetadataRequestTopic(b"\7" * 16, None))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    with allowed(admin, "DESCRIBE TOPIC not-there"):
        (answer,) = ask(named[1], allow_auto_topic_creation=True)
        assert answer.error_code == T29, "it may be described, and not be created"
        (answer,) = ask(named[1], allow_auto_topic_creation=False)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_operations_are_told_to_those_who_ask(admin, alice, topic):
    def told() -> tuple[int, int, int]:
        asked = MetadataRequest([MetadataRequestTopic(ZERO_UUID, topic.name)], False, True, True)
        metadata = alice.call(asked, 10)
        cluster = alice.call(DescribeClusterRequest(True))
        assert [node.broker_id for node in cluster.brokers] == [1], "nodes are shown to everybody"
        assert metadata.cluster_authorized_operations == cluster.cluster_authorized_operations
        (group,) = alice.call(DescribeGroupsRequest(["told"], True), 5).groups
        return (
            metadata.topics[0].topic_authorized_operations,
            cluster.cluster_authorized_operations,
            group.authorized_operations,
        )

    assert told() == (NOT_ASKED, 0, NOT_ASKED)
    rights = (f"READ TOPIC {topic.name}", "DESCRIBE CLUSTER", "READ GROUP told", "DELETE GROUP told")
    with allowed(admin, *rights):
        assert told() == (1 << 3 | 1 << 8, 1 << 8, 1 << 3 | 1 << 6 | 1 << 8)
    with allowed(admin, f"ALL TOPIC {topic.name}", "ALL CLUSTER", "ALL GROUP told"):
        assert told() == (3576, 8096, 3400)
        with allowed(admin, f"WRITE TOPIC {topic.name}", permission=Permission.DENY):
            assert told()[0] == 3576 - (1 << 4)


def test_a_refused_join_has_kafkas_shape(alice):
    refused = alice.call(JoinGroupRequest("nope", 10_000, 10_000, "mine", protocol_type="consumer"), 9)
    fields = (refused.generation_id, refused.protocol_type, refused.protocol_name, refused.leader)
    assert (refused.error_code, *fields, refused.member_id) == (G30, -1, None, None, "", "")


def test_a_new_topic_hides_its_settings(admin, alice):
    with allowed(admin, "CREATE TOPIC made-*"):
        (made,) = alice.call(CreateTopicsRequest([CreatableTopic("made-1", 3, 1)]), 7).topics
    fields = (made.error_code, made.topic_config_error_code, made.num_partitions, made.replication_factor)
    assert (*fields, made.configs or []) == (0, T29, -1, -1, [])
    assert made.topic_id != ZERO_UUID


def delete(alice: Any, *names: str, ids: tuple[bytes, ...] = ()) -> dict[Any, tuple[int, bytes]]:
    states = [DeleteTopicState(name, ZERO_UUID) for name in names]
    states += [DeleteTopicState(None, topic_id) for topic_id in ids]
    answer = alice.call(DeleteTopicsRequest(states, [], 1000), 6)
    return {result.name: (result.error_code, result.topic_id) for result in answer.responses}


def test_deleting_tells_only_those_who_may_know(admin, alice, topic):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(alice, topic.name, "not-there") == {
        topic.name: (T29, ZERO_UUID),
        "not-there": (T29, ZERO_UUID),
    }
    assert delete(alice, ids=(topic.topic_id,)) == {None: (T29, topic.topic_id)}
    with allowed(admin, f"DESCRIBE TOPIC {topic.name}", "DESCRIBE TOPIC not-there"):
        assert delete(alice, topic.name, "not-there") == {
            topic.name: (T29, ZERO_UUID),
            "not-there": (unknown, ZERO_UUID),
        }
        assert delete(alice, ids=(topic.topic_id,)) == {topic.name: (T29, topic.topic_id)}


def test_the_order_of_deleted_topics_tells_nothing(alice):
    names = [f"absent-{number}" for number in range(30)]
    states = [DeleteTopicState(name, ZERO_UUID) for name in names]
    answer = alice.call(DeleteTopicsRequest(states, [], 1000), 6)
    told = [result.name for result in answer.responses]
    assert sorted(told) == sorted(names)
    assert told != names, "shuffled: one order of 30! is this one"


def test_described_topics_that_are_refused_come_last(admin, alice, topic):
    names = ["a-hidden-one", topic.name, "z-hidden-one"]
    with allowed(admin, f"DESCRIBE TOPIC {topic.name}"):
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], 1)
        answer = alice.call(request, 0)
    told = [(each.name, each.error_code) for each in answer.topics]
    assert told == [(topic.name, 0), ("a-hidden-one", T29), ("z-hidden-one", T29)]


def test_wrong_settings_of_a_broker_are_told_before_rights(alice, caplog):
    def alter(kind: int, name: str, *settings: tuple[str, str | None]) -> int:
        configs = [AlterableConfig(setting, 0, value) for setting, value in settings]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
        return alice.call(request).responses[0].error_code

    wrong = ErrorCode.INVALID_REQUEST
    assert alter(4, "1", ("message.max.bytes", "many")) == wrong
    assert alter(4, "7") == wrong
    assert alter(2, "t", ("retention.ms", None)) == wrong
    assert alter(4, "1", ("message.max.bytes", "1000000")) == C31
    assert alter(4, "1", ("log.cleaner.threads", "2")) == C31
    assert alter(4, "1", ("listener.name.lan.ssl.keystore.location", "/no/such/file")) == C31, (
        "no file is read"
    )
    assert "log.cleaner.threads" not in caplog.text, "no advice for those who may not change it"
    assert alter(2, "t", ("retention.ms", "many")) == T29


# --- hosts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer_name", "host"),
    [
        (("127.0.0.1", 1), "127.0.0.1"),
        (("::1", 1, 0, 0), "0:0:0:0:0:0:0:1"),
        (("::ffff:10.1.2.3", 1, 0, 0), "10.1.2.3"),
        (("2001:db8::AB:0:1", 1, 0, 0), "2001:db8:0:0:0:ab:0:1"),
        (("fe80::1%eth0", 1, 0, 3), "fe80:0:0:0:0:0:0:1%3"),
        (None, ""),
    ],
)
def test_addresses_are_printed_as_java_does(peer_name, host):
    assert host_of(peer_name) == host


def test_an_acl_counts_for_its_host(admin, alice, topic):
    def error() -> int:
        return peer.fetch(alice, topic.name).error_code

    right = f"READ TOPIC {topic.name}"
    with allowed(admin, right, host="10.0.0.1"):
        assert error() == T29
    with allowed(admin, right, host="127.0.0.1"):
        assert error() == 0
        with allowed(admin, right, host="127.0.0.1", permission=Permission.DENY):
            assert error() == T29


def test_a_host_of_ipv6_is_written_out():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with secured(listeners="LAN://[::1]:0") as broker:
        address = broker.bootstrap_servers
        with login(address, "admin") as admin, login(address, "alice") as alice:
            peer.create_topic(admin, "t")
            for host, error in (("::1", T29), ("0:0:0:0:0:0:0:1", 0)):
                with allowed(admin, "READ TOPIC t", host=host):
                    assert peer.fetch(alice, "t").error_code == error
