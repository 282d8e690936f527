"""Admin against a real cluster: what it makes is there, what it is refused is said, what is gone stays gone."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import confluent_kafka
import pytest

from kohort import (
    Admin,
    ClosedClient,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    PartlyFailed,
    TimedOut,
    TopicPartition,
)
from kohort.settings import SettingError
from kohort.wire.messages.list_groups import ListGroupsResponse
from tests.client.scripted import CLOSE, ScriptedCluster
from tests.clients.process import eventually

NewName = Callable[[str], str]
NewTopicMaker = Callable[..., str]


def write(bootstrap_servers: str, topic: str, count: int, partition: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=partition)
    assert producer.flush(60) == 0


def test_a_topic_is_made_described_and_deleted(admin: Admin, new_name: NewName) -> None:
    name = new_name("made")
    admin.create_topic(name, partitions=3, replication_factor=1, configs={"retention.ms": 60_000})
    eventually(lambda: name in admin.list_topics(), "the topic is listed")
    described = admin.describe_topics(name)[name]
    assert [p.partition for p in described.partitions] == [0, 1, 2]
    assert all(p.replicas == (p.leader,) for p in described.partitions)
    assert not described.is_internal
    admin.delete_topics(name)
    eventually(lambda: name not in admin.list_topics(), "the topic is gone")


def test_a_topic_that_exists_is_not_made_again(admin: Admin, new_topic: NewTopicMaker) -> None:
    topic = new_topic()
    with pytest.raises(KafkaError, match=topic) as refused:
        admin.create_topic(topic)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_of_several_topics_those_that_can_be_made_are(
    admin: Admin, new_topic: NewTopicMaker, new_name: NewName
) -> None:
    there, fresh = new_topic(), new_name("fresh")
    with pytest.raises(PartlyFailed) as partly:
        admin.create_topics([NewTopic(there, 1, 1), NewTopic(fresh, 1, 1)])
    assert list(partly.value.errors) == [there]
    assert list(partly.value.results) == [fresh]
    eventually(lambda: fresh in admin.list_topics(), "the other one is made")


def test_validate_only_makes_nothing(admin: Admin, new_name: NewName) -> None:
    name = new_name("maybe")
    admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)
    with pytest.raises(KafkaError) as refused:
        admin.create_topics([NewTopic(name, 0, 1)], validate_only=True)
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    assert name not in admin.list_topics()


def test_an_unknown_topic_is_said_to_be_unknown(admin: Admin, new_name: NewName) -> None:
    name = new_name("nowhere")
    with pytest.raises(KafkaError, match=name) as refused:
        admin.describe_topics(name)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as refused:
        admin.delete_topics(name)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert name not in admin.list_topics()  # looking for it did not make it


def test_a_topic_gets_more_partitions_but_not_fewer(admin: Admin, new_topic: NewTopicMaker) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions({topic: 5})
    eventually(lambda: len(admin.describe_topics(topic)[topic].partitions) == 5, "there are five")
    with pytest.raises(KafkaError) as refused:
        admin.create_partitions({topic: 3})
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS


def test_settings_of_a_topic_are_changed_one_by_one(admin: Admin, new_topic: NewTopicMaker) -> None:
    topic = new_topic(retention_ms=60_000)
    admin.alter_topic_configs({topic: {"cleanup.policy": "compact"}})
    eventually(
        lambda: admin.topic_configs(topic)[topic]["cleanup.policy"].value == "compact", "the setting changed"
    )
    configs = admin.topic_configs(topic)[topic]
    assert configs["retention.ms"].value == "60000"
    assert not configs["retention.ms"].is_default
    admin.alter_topic_configs({topic: {"retention.ms": None}})
    eventually(
        lambda: admin.topic_configs(topic)[topic]["retention.ms"].is_default, "it is the default again"
    )
    with pytest.raises(KafkaError) as refused:
        admin.alter_topic_configs({topic: {"retention.ms": "soon"}})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_settings_of_a_group_are_changed_one_by_one(admin: Admin) -> None:
    group, name = f"settings-{uuid4().hex}", "consumer.session.timeout.ms"
    admin.alter_group_configs({group: {name: 50_000}})
    eventually(lambda: admin.group_configs(group)[group][name].value == "50000", "the setting changed")
    assert admin.group_configs(group)[group][name].source == "DYNAMIC_GROUP_CONFIG"
    admin.alter_group_configs({group: {name: None}})
    eventually(
        lambda: admin.group_configs(group)[group][name].source != "DYNAMIC_GROUP_CONFIG",
        "it is that of the broker again",
    )
    with pytest.raises(KafkaError) as refused:
        admin.alter_group_configs({group: {name: 1}}, validate_only=True)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_settings_of_a_broker_are_shown(admin: Admin) -> None:
    node = admin.describe_cluster().nodes[0]
    configs = admin.broker_configs(node.node_id)[str(node.node_id)]
    assert configs["num.partitions"].value is not None


def test_the_cluster_has_a_controller_and_nodes(admin: Admin, bootstrap_servers: str) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == bootstrap_servers


def test_records_are_deleted_up_to_an_offset(
    admin: Admin, bootstrap_servers: str, new_topic: NewTopicMaker
) -> None:
    topic = new_topic()
    write(bootstrap_servers, topic, 10)
    partition = TopicPartition(topic, 0)
    assert admin.delete_records({partition: 4}) == {partition: 4}
    assert admin.delete_records({partition: -1}) == {partition: 10}
    with pytest.raises(KafkaError) as refused:
        admin.delete_records({partition: 99})
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_group_is_listed_and_described_with_its_members(
    admin: Admin, bootstrap_servers: str, new_topic: NewTopicMaker, group: str
) -> None:
    topic = new_topic(partitions=2)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, client_id="me") as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.2) or consumer.assignment(), "the consumer has its partitions")
        described = admin.describe_groups(group)[group]
        assert (described.state, described.protocol_type, described.protocol) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = described.members
        assert member.client_id == "me"
        assert set(member.assignment) == {(topic, 0), (topic, 1)}
        assert described.coordinator is not None
        assert (group, "Stable") in [(g.group_id, g.state) for g in admin.list_groups("Stable")]
        with pytest.raises(KafkaError) as refused:
            admin.delete_groups(group)
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    assert admin.describe_groups(group)[group].state == "Empty"


def test_a_group_that_nobody_knows_is_dead(admin: Admin, group: str) -> None:
    assert admin.describe_groups(group)[group].state == "Dead"
    with pytest.raises(KafkaError) as refused:
        admin.delete_groups(group)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_are_set_read_and_forgotten(
    admin: Admin, new_topic: NewTopicMaker, group: str
) -> None:
    topic = new_topic(partitions=2)
    admin.alter_group_offsets(group, {(topic, 0): 7, (topic, 1): OffsetAndMetadata(9, "noted", 0)})
    assert admin.group_offsets(group) == {
        (topic, 0): OffsetAndMetadata(7),
        (topic, 1): OffsetAndMetadata(9, "noted", 0),
    }
    assert admin.group_offsets(group, (topic, 1)) == {(topic, 1): OffsetAndMetadata(9, "noted", 0)}
    admin.delete_group_offsets(group, (topic, 0))
    assert list(admin.group_offsets(group)) == [(topic, 1)]
    admin.delete_groups(group)
    assert admin.group_offsets(group) == {}


def test_members_are_removed_and_the_consumer_joins_again(
    admin: Admin, bootstrap_servers: str, new_topic: NewTopicMaker, group: str
) -> None:
    topic = new_topic()
    lost: list[TopicPartition] = []
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, heartbeat_interval_ms=100) as consumer:
        consumer.subscribe([topic], on_lost=lost.extend)
        eventually(lambda: consumer.poll(0.2) or consumer.assignment(), "it has its partition")
        before = consumer.group_metadata().member_id
        admin.remove_members(group, before)
        eventually(lambda: consumer.poll(0.2) or lost == [(topic, 0)], "it lost its partition")
        eventually(lambda: consumer.poll(0.2) or consumer.assignment(), "it has it again")
        assert consumer.group_metadata().member_id != before


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.server": "x:1"}, "did you mean bootstrap.servers"),
        ({"bootstrap.servers": "x:1", "retries": "many"}, "retries"),
        (
            {"bootstrap.servers": "x:1", "bootstrap.controllers": "a"},
            "admin does not have yet: brokers are asked",
        ),
    ],
)
def test_a_wrong_setting_is_explained(settings: dict[str, object], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        Admin(settings)


def test_a_broker_that_is_not_there_is_named(unused_port: int) -> None:
    address = f"127.0.0.1:{unused_port}"
    with Admin(bootstrap_servers=address) as nobody:

        def told() -> str:
            with pytest.raises(TimedOut) as late:
                nobody.list_topics(timeout=0.3)
            return str(late.value)

        eventually(lambda: address in told(), "the broker is named")  # not if time was up before we had tried


def test_a_closed_admin_says_so(bootstrap_servers: str) -> None:
    client = Admin(bootstrap_servers=bootstrap_servers)
    client.close()
    client.close()
    with pytest.raises(ClosedClient):
        client.list_topics()


def test_retries_limits_how_often_a_question_is_asked_again() -> None:
    """It was a setting without an effect."""
    list_groups, loading = 16, ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with ScriptedCluster() as cluster:
        for retries, replies, code in (
            (0, [loading], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (0, [CLOSE], ErrorCode.NETWORK_EXCEPTION),
            (1, [loading, loading], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (2, [loading, CLOSE, ListGroupsResponse()], None),
        ):
            cluster[1].script(list_groups, *replies)
            with Admin(bootstrap_servers=cluster.bootstrap_servers, retries=retries) as client:
                if code is None:
                    assert client.list_groups() == []
                else:
                    with pytest.raises(KafkaError) as refused:
                        client.list_groups()
                    assert refused.value.code is code
