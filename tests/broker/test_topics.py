"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kohort.log.registry import REGISTRY_FILE
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kohort.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.struct import ZERO_UUID
from tests.broker.handlers import Node


@pytest.fixture
def node():
    with Node() as started:
        yield started


def create(node, *topics: CreatableTopic, version: int = 7, validate_only: bool = False):
    return node.call(CreateTopicsRequest(list(topics), 1000, validate_only), version).topics


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, factor, [], given)


def assigned(name: str, *assignments: tuple[int, list[int]], partitions: int = -1, factor: int = -1):
    rows = [CreatableReplicaAssignment(index, nodes) for index, nodes in assignments]
    return CreatableTopic(name, partitions, factor, rows)


def outcome(results) -> list[tuple[ErrorCode, str | None]]:
    return [(ErrorCode(result.error_code), result.error_message) for result in results]


def refusal(node, wanted: CreatableTopic) -> tuple[ErrorCode, str | None]:
    """Return how a topic is refused, after a check that nothing of it remains."""
    before = set(node.store.topics)
    (result,) = create(node, wanted)
    assert result.error_code != ErrorCode.NONE
    assert (result.num_partitions, result.replication_factor, result.topic_id) == (-1, -1, ZERO_UUID)
    assert set(node.store.topics) == before
    return ErrorCode(result.error_code), result.error_message


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_is_there_when_it_is_answered(node, version):
    (result,) = create(node, topic("t", 3, retention_ms="1000"), version=version)
    assert (result.error_code, result.name, result.error_message) == (0, "t", None)
    made = node.store.topics["t"]
    assert (len(made.partitions), made.overrides, made.config.retention_ms) == (
        3,
        {"retention.ms": "1000"},
        1000,
    )
    if version >= 7:
        assert result.topic_id == made.topic_id
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: config for config in result.configs}
        assert list(configs) == sorted(configs)
        retention, segment = configs["retention.ms"], configs["segment.bytes"]
        assert (retention.value, retention.config_source, retention.read_only) == ("1000", 1, False)
        assert (segment.value, segment.config_source) == (str(1 << 30), 5)


def test_minus_one_takes_the_brokers_defaults():
    with Node(num_partitions=5) as node:
        (result,) = create(node, topic("t", -1, -1))
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 5, 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_names_are_checked_as_by_kafka(node, name, reason):
    code, text = refusal(node, topic(name))
    assert (code, text) == (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


@pytest.mark.parametrize("name", ["x" * 249, "...", "-", "A.b_c-9", "__consumer_offsets"])
def test_names_that_kafka_takes(node, name):
    assert create(node, topic(name))[0].error_code == 0


def test_a_name_that_collides_with_an_existing_topic(node):
    node.create("a.b_c")
    assert refusal(node, topic("a_b.c")) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b.c' collides with existing topic: a.b_c",
    )
    assert create(node, topic("ab.c"))[0].error_code == 0


def test_a_topic_that_exists(node):
    topic_id = node.create("a.b")
    assert outcome(create(node, topic("a.b"))) == [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists.")
    ]
    assert node.store.topics["a.b"].topic_id == topic_id


def test_a_name_twice_in_one_request_creates_nothing_of_that_name(node):
    results = create(node, topic("twice"), topic("once"), topic("twice"))
    found = {result.name: (ErrorCode(result.error_code), result.error_message) for result in results}
    assert len(results) == 2
    assert found["twice"] == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert set(node.store.topics) == {"once"}


@pytest.mark.parametrize(
    ("partitions", "factor", "code", "text"),
    [
        (
            0,
            1,
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            -2,
            1,
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            1,
            0,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            1,
            2,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached "
            "because only 1 broker(s) are registered.",
        ),
    ],
)
def test_counts_that_one_node_cannot_have(node, partitions, factor, code, text):
    assert refusal(node, topic("t", partitions, factor)) == (code, text)


def test_more_than_ten_thousand_partitions_at_once(node):
    results = create(node, topic("a", 9_999), topic("b", 2))
    expected = (ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    assert outcome(results) == [expected, expected]
    assert refusal(node, topic("huge", 2**31 - 1)) == expected


def test_a_manual_assignment_to_this_node(node):
    (result,) = create(node, assigned("t", (1, [1]), (0, [1])))
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert len(node.store.topics["t"].partitions) == 2


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        (assigned("t", (0, [1]), partitions=1), ErrorCode.INVALID_REQUEST, "numPartitions was not set to -1"),
        (
            assigned("t", (0, [1]), factor=1),
            ErrorCode.INVALID_REQUEST,
            "replication factor was not set to -1",
        ),
        (
            assigned("t", (0, [1]), (0, [1])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "multiple manual partition",
        ),
        (
            assigned("t", (1, [1])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "consecutive 0-based integer sequence",
        ),
        (assigned("t", (0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
        (assigned("t", (0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once."),
        (
            assigned("t", (0, [7])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 7, but no such broker is registered.",
        ),
    ],
)
def test_manual_assignments_that_make_no_sense(node, wanted, code, text):
    found, words = refusal(node, wanted)
    assert found == code
    assert text in words


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("segment.bytes", "1000", "Value must be at least 1048576"),
        ("retention.msec", "1", "Unknown topic config name: retention.msec; did you mean retention.ms?"),
        ("cleanup.policy", "shred", "String must be one of: compact, delete"),
        ("cleanup.policy", None, "Null value not supported for topic configs: cleanup.policy"),
    ],
)
def test_settings_are_checked(node, name, value, text):
    code, words = refusal(node, CreatableTopic("t", 1, 1, [], [CreatableTopicConfig(name, value)]))
    assert code == ErrorCode.INVALID_CONFIG
    assert text in words


def test_kafkas_own_metadata_topic_cannot_be_made(node):
    assert refusal(node, topic("__cluster_metadata")) == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )


def test_validate_only_answers_alike_and_changes_nothing(node):
    results = create(node, topic("good", 3), topic("bad", 0), validate_only=True)
    assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert results[0].num_partitions == 3
    assert not node.store.topics


def test_one_bad_topic_does_not_keep_the_others_from_being_created(node):
    results = create(node, topic("one"), topic("b d"), topic("two"))
    codes = [result.error_code for result in results]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert set(node.store.topics) == {"one", "two"}


def test_topics_settings_and_partition_counts_survive_a_restart(tmp_path):
    with Node(tmp_path) as node:
        kept = node.create("kept", 2, retention_ms=5)
        node.create("deleted")
        assert (
            node.call(CreatePartitionsRequest([CreatePartitionsTopic("kept", 4, None)])).results[0].error_code
            == 0
        )
        assert node.call(DeleteTopicsRequest(topic_names=["deleted"]), 5).responses[0].error_code == 0
    with Node(tmp_path) as node:
        (found,) = node.store.topics.values()
        assert (found.name, found.topic_id, len(found.partitions)) == ("kept", kept, 4)
        assert found.config.retention_ms == 5


@contextmanager
def no_room_on_disk(node: Node) -> Iterator[None]:
    """Files cannot grow beyond the size that the registry's file has now."""
    size = (node.store.directory / REGISTRY_FILE).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_cannot_be_made_durable_does_not_happen_and_is_answered_so(tmp_path):
    with Node(tmp_path) as node:
        node.create("old")
        with no_room_on_disk(node):
            created = create(node, topic("new"), topic("b d"))
            grown = node.call(CreatePartitionsRequest([CreatePartitionsTopic("old", 4, None)])).results
            deleted = node.call(DeleteTopicsRequest(topic_names=["old"]), 5).responses
            asked = node.call(MetadataRequest([MetadataRequestTopic(name="auto")], True)).topics
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        assert [result.error_code for result in created] == [failed, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert [result.error_code for result in (*grown, *deleted, *asked)] == [failed] * 3
        assert [(topic.name, len(topic.partitions)) for topic in node.store.topics.values()] == [("old", 1)]
    with Node(tmp_path) as node:
        assert list(node.store.topics) == ["old"]


# --- DeleteTopics ----------------------------------------------------------------------------------------------


def delete(node, *topics: str | bytes | tuple[str | None, bytes], version: int = 6):
    if version < 6:
        return node.call(DeleteTopicsRequest(topic_names=list(topics)), version).responses
    states = []
    for given in topics:
        name, topic_id = (given, ZERO_UUID) if isinstance(given, str) else (None, given)
        name, topic_id = given if isinstance(given, tuple) else (name, topic_id)
        states.append(DeleteTopicState(name, topic_id))
    return node.call(DeleteTopicsRequest(states), version).responses


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name(node, version):
    topic_id = node.create("t")
    results = delete(node, "t", "absent", version=version)
    found = {result.name: ErrorCode(result.error_code) for result in results}
    assert found == {"t": ErrorCode.NONE, "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not node.store.topics
    assert not node.store.topics_by_id
    assert results[0].topic_id == (topic_id if version >= 6 else ZERO_UUID)
    metadata = node.call(MetadataRequest([MetadataRequestTopic(name="t")], False)).topics[0]
    assert metadata.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_id(node):
    topic_id = node.create("t")
    (result,) = delete(node, topic_id)
    assert (result.error_code, result.name, result.topic_id) == (0, "t", topic_id)
    (again,) = delete(node, topic_id)
    assert (again.error_code, again.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_a_topic_made_again_begins_anew(node):
    first = node.create("t")
    node.append("t", 1)
    delete(node, "t")
    second = node.create("t")
    assert second != first
    assert node.store.topics["t"].partitions[0].log_end_offset == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([(None, ZERO_UUID)], "Neither topic name nor id were specified."),
        ([("t", b"\x01" * 16)], "You may not specify both topic name and topic id."),
        (["t", "t"], "Duplicate topic name."),
        ([b"\x01" * 16, b"\x01" * 16], "Duplicate topic id."),
    ],
)
def test_deletions_that_are_not_clear(node, given, text):
    node.create("t")
    assert outcome(delete(node, *given)) == [(ErrorCode.INVALID_REQUEST, text)]
    assert "t" in node.store.topics


def test_a_topic_by_name_and_by_id_in_one_request_is_deleted_once(node):
    topic_id = node.create("t")
    codes = [code for code, _ in outcome(delete(node, "t", topic_id))]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert not node.store.topics


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
def test_deletion_can_be_disabled(version, code):
    with Node(delete_topic_enable=False) as node:
        node.create("t")
        assert [result.error_code for result in delete(node, "t", version=version)] == [code]
        assert "t" in node.store.topics


# --- CreatePartitions ------------------------------------------------------------------------------------------


def grow(node, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False):
    return outcome(node.call(CreatePartitionsRequest(list(topics), 1000, validate_only), version).results)


def to(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    rows = [CreatePartitionsAssignment(nodes) for nodes in assignments]
    return CreatePartitionsTopic(name, count, rows or None)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_and_the_old_ones_stay(node, version):
    node.create("t", 2)
    node.append("t", 1, index=1)
    assert grow(node, to("t", 5), version=version) == [(ErrorCode.NONE, None)]
    assert [partition.log_end_offset for partition in node.store.topics["t"].partitions] == [0, 1, 0, 0, 0]


def test_partitions_may_be_assigned_to_this_node(node):
    node.create("t", 1)
    assert grow(node, to("t", 3, [1], [1])) == [(ErrorCode.NONE, None)]
    assert len(node.store.topics["t"].partitions) == 3


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        (to("t", 3), ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        (
            to("t", 2),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 3 partition(s); 2 would not be an increase.",
        ),
        (to("t", -1), ErrorCode.INVALID_PARTITIONS, "-1 would not be an increase."),
        (to("x", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not host"),
        (
            to("t", 5, [1]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (to("t", 4, [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 2, but no such broker is registered"),
        (to("t", 4, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        (to("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions"),
    ],
)
def test_growth_that_cannot_be(node, wanted, code, text):
    node.create("t", 3)
    ((found, words),) = grow(node, wanted)
    assert found == code
    assert text in words
    assert len(node.store.topics["t"].partitions) == 3


def test_the_offsets_topic_keeps_its_partitions_because_groups_are_found_by_their_number(node):
    node.create("__consumer_offsets", 2)
    ((code, _),) = grow(node, to("__consumer_offsets", 3))
    assert code == ErrorCode.INVALID_PARTITIONS
    assert len(node.store.topics["__consumer_offsets"].partitions) == 2


def test_growth_is_only_validated_if_asked_so(node):
    node.create("t")
    assert grow(node, to("t", 4), validate_only=True) == [(ErrorCode.NONE, None)]
    assert len(node.store.topics["t"].partitions) == 1


def test_a_topic_twice_does_not_grow(node):
    node.create("t")
    assert grow(node, to("t", 2), to("t", 3)) == [(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")]
    assert len(node.store.topics["t"].partitions) == 1
