"""Metadata and DescribeTopicPartitions."""

from __future__ import annotations

import pytest

from kohort.broker.apis.cluster import NOT_ASKED
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_topic_partitions import (
    CursorRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.struct import ZERO_UUID
from tests.broker.handlers import Node


@pytest.fixture
def node():
    with Node() as started:
        yield started


def named(*names: str, create: bool = False, **more: bool) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], create, **more)


def by_id(*ids: bytes) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(topic_id, None) for topic_id in ids], False)


def errors(answer) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}


@pytest.mark.parametrize("version", range(14))
def test_the_one_node_leads_every_partition(node, version):
    topic_id = node.create("orders", partitions=3)
    answer = node.call(named("orders", create=True), version)
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
        (1, "kohort.test", 9092)
    ]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert answer.cluster_id == (node.store.cluster_id if version >= 2 else None)
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert topic.topic_id == (topic_id if version >= 10 else ZERO_UUID)


def test_no_topics_means_all_in_version_0_and_none_later(node):
    node.create("a")
    node.create("b")
    assert set(errors(node.call(MetadataRequest([]), 0))) == {"a", "b"}
    assert errors(node.call(MetadataRequest([]), 1)) == {}
    assert set(errors(node.call(MetadataRequest(None), 1))) == {"a", "b"}
    assert set(errors(node.call(MetadataRequest(None)))) == {"a", "b"}


def test_asking_for_all_topics_creates_none(node):
    assert node.call(MetadataRequest(None, True)).topics == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
@pytest.mark.parametrize("version", [4, 13])
def test_a_topic_that_is_not_there_is_named_with_its_error(node, name, code, version):
    assert errors(node.call(named(name), version)) == {name: code}


def test_a_topic_asked_for_is_unknown_first_and_there_when_it_is_asked_for_again():
    with Node(num_partitions=4) as node:
        (first,) = node.call(named("fresh", create=True)).topics
        assert (first.error_code, first.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "fresh")
        assert (first.topic_id, first.partitions) == (ZERO_UUID, [])
        (topic,) = node.call(named("fresh", create=True)).topics
        assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "fresh", 4)
        assert node.store.topics["fresh"].topic_id == topic.topic_id != ZERO_UUID


@pytest.mark.parametrize("version", range(4))
def test_versions_that_cannot_say_otherwise_create_topics(node, version):
    assert errors(node.call(named("old"), version)) == {"old": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors(node.call(named("old"), version)) == {"old": ErrorCode.NONE}


def test_nothing_is_created_where_the_broker_or_the_client_does_not_want_it(node):
    assert errors(node.call(named("x"), 4)) == {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with Node(auto_create_topics_enable=False) as strict:
        assert errors(strict.call(named("x", create=True))) == {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not strict.store.topics


def test_names_that_cannot_be_created_are_refused_and_the_others_created(node):
    node.create("a.b")
    answer = node.call(named("a_b", "bad!", "good", "__cluster_metadata", "__transaction_state", create=True))
    assert errors(answer) == {
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "bad!": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "good": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__transaction_state": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set(node.store.topics) == {"a.b", "good"}


def test_the_offsets_topic_appears_compacted_with_its_own_partition_count():
    with Node(offsets_topic_num_partitions=7) as node:
        node.call(named("__consumer_offsets", create=True))
        (topic,) = node.call(named("__consumer_offsets", create=True)).topics
        assert (topic.is_internal, len(topic.partitions)) == (True, 7)
        assert node.store.topics["__consumer_offsets"].config.cleanup_policy == ("compact",)


def test_a_request_cannot_create_more_than_ten_thousand_partitions():
    with Node(num_partitions=6000) as node:
        node.call(named("one", "two", create=True))
        answer = errors(node.call(named("one", "two")))
        assert answer == {"one": ErrorCode.NONE, "two": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_name_asked_twice_is_answered_once(node):
    assert len(node.call(named("twice", "twice", create=True)).topics) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(node, version):
    topic_id = node.create("known")
    answer = node.call(by_id(topic_id, b"\x01" * 16), version)
    found = {topic.topic_id: (topic.name, ErrorCode(topic.error_code)) for topic in answer.topics}
    assert found == {
        topic_id: ("known", ErrorCode.NONE),
        b"\x01" * 16: (None, ErrorCode.UNKNOWN_TOPIC_ID),
    }


def test_an_id_is_refused_in_versions_that_carry_it_without_meaning(node):
    topic_id = node.create("known")
    (topic,) = node.call(MetadataRequest([MetadataRequestTopic(topic_id, "known")]), 11).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.INVALID_REQUEST, "known", topic_id)


def test_a_topic_without_name_and_id_is_an_invalid_request(node):
    answer = node.call(by_id(ZERO_UUID), 13)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]


def test_authorized_operations_are_told_to_those_who_ask(node):
    node.create("t")
    plain = node.call(named("t"), 10)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED == -2147483648
    assert plain.cluster_authorized_operations == NOT_ASKED
    asked = node.call(
        named("t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True), 10
    )
    assert asked.topics[0].topic_authorized_operations == 3576 == 0b1101_1111_1000
    assert asked.cluster_authorized_operations == 8096 == 0b1_1111_1010_0000


# --- DescribeTopicPartitions -----------------------------------------------------------------------------------


def describe(node, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None):
    at = CursorRequest(*cursor) if cursor else None
    return node.call(DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, at))


def pages(answer) -> list[tuple[str, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics]


def test_topics_come_in_the_order_of_their_names(node):
    for name in ("b", "c", "a"):
        node.create(name, partitions=2)
    answer = describe(node)
    assert pages(answer) == [("a", [0, 1]), ("b", [0, 1]), ("c", [0, 1])]
    assert answer.next_cursor is None
    assert pages(describe(node, "c", "a")) == [("a", [0, 1]), ("c", [0, 1])]
    first = answer.topics[0].partitions[0]
    assert (first.leader_id, first.leader_epoch, first.isr_nodes, first.eligible_leader_replicas) == (
        1,
        0,
        [1],
        [],
    )


def test_pages_put_together_are_everything(node):
    for name, partitions in (("a", 3), ("b", 1), ("c", 4)):
        node.create(name, partitions)
    seen, cursor = [], None
    for _ in range(10):
        answer = describe(node, limit=2, cursor=cursor)
        assert sum(len(partitions) for _, partitions in pages(answer)) <= 2
        seen += [(name, index) for name, partitions in pages(answer) for index in partitions]
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1), ("c", 2), ("c", 3)]


def test_the_broker_caps_the_page():
    with Node(max_request_partition_size_limit=3) as node:
        node.create("t", partitions=5)
        answer = describe(node, limit=100)
        assert pages(answer) == [("t", [0, 1, 2])]
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 3)
        assert pages(describe(node, limit=-5)) == [("t", [0])]


def test_unknown_topics_are_named_when_asked_for(node):
    answer = describe(node, "absent", "bad name")
    assert errors(answer) == {
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("cursor", [("elsewhere", 0), ("t", -1)])
def test_a_cursor_outside_of_what_is_asked_is_refused(node, cursor):
    node.create("t")
    assert errors(describe(node, "t", cursor=cursor)) == {"t": ErrorCode.INVALID_REQUEST}
