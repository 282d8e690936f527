"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import pytest

from kohort.broker.apis.configs import AlterConfigOp, ResourceType
from kohort.settings import ConfigSource, Kind
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import alter_configs as legacy
from kohort.wire.messages import incremental_alter_configs as incremental
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.handlers import Node

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = AlterConfigOp
OK = (ErrorCode.NONE, None)
OF_ALL_BROKERS = {"min.insync.replicas": "1"}
"""What a cluster of Kafka 4 says of all brokers before anybody sets anything."""


@pytest.fixture
def node():
    with Node() as started:
        started.create("t", retention_ms=1000)
        yield started


def describe(
    node, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True, docs: bool = True
):
    asked = DescribeConfigsResource(kind, name, list(keys) or None)
    (result,) = node.call(DescribeConfigsRequest([asked], synonyms, docs), version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def values(node, kind: int, name: str, *keys: str) -> dict[str, str | None]:
    return {config.name: config.value for config in describe(node, kind, name, *keys).configs}


def outcome(result) -> tuple[ErrorCode, str | None]:
    return ErrorCode(result.error_code), result.error_message


# --- DescribeConfigs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_the_settings_of_a_topic(node, version):
    configs = {config.name: config for config in describe(node, TOPIC, "t", version=version).configs}
    assert {"cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes"} <= set(configs)
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (retention.read_only, retention.is_sensitive) == (False, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms] == [
        ("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
    ]
    segment = configs["segment.bytes"]
    assert [(synonym.name, synonym.source) for synonym in segment.synonyms] == [
        ("log.segment.bytes", ConfigSource.DEFAULT_CONFIG)
    ]
    if version >= 3:
        assert retention.config_type == Kind.LONG
        assert retention.documentation
    assert configs["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
    replicas = configs["min.insync.replicas"]
    assert (replicas.value, replicas.config_source) == ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_success_has_an_empty_message_as_in_kafka(node):
    assert outcome(describe(node, TOPIC, "t")) == (ErrorCode.NONE, "")
    assert outcome(describe(node, TOPIC, "nobody")) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")


def test_synonyms_and_documentation_only_for_those_who_ask(node):
    result = describe(node, TOPIC, "t", "retention.ms", synonyms=False, docs=False)
    (retention,) = result.configs
    assert (retention.synonyms, retention.documentation) == ([], None)
    assert retention.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_only_the_keys_that_are_asked_for(node):
    assert values(node, TOPIC, "t", "retention.ms", "no.such.key") == {"retention.ms": "1000"}


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1")])
def test_an_empty_list_of_keys_is_all_keys(node, kind, name):
    every, none = (DescribeConfigsResource(kind, name, keys) for keys in (None, []))
    results = (
        node.call(DescribeConfigsRequest([every])).results + node.call(DescribeConfigsRequest([none])).results
    )
    assert results[0].configs
    assert results[1].configs == results[0].configs


def test_a_default_of_the_broker_shows_on_its_topics():
    with Node(settings={"log.retention.ms": "77"}) as node:
        node.create("t")
        (retention,) = describe(node, TOPIC, "t", "retention.ms").configs
        assert (retention.value, retention.config_source) == ("77", ConfigSource.STATIC_BROKER_CONFIG)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (3, "t", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(node, kind, name, code):
    result = describe(node, kind, name)
    assert (result.error_code, result.configs) == (code, [])


def test_the_settings_of_this_broker(node):
    configs = {config.name: config for config in describe(node, BROKER, "1").configs}
    assert (configs["node.id"].value, configs["node.id"].read_only) == ("1", True)
    assert (configs["log.retention.bytes"].value, configs["log.retention.bytes"].read_only) == ("-1", False)
    durability = configs["durability"]
    assert (durability.value, durability.config_source) == ("memory", ConfigSource.STATIC_BROKER_CONFIG)


def test_the_settings_of_all_brokers_are_those_that_were_set_there(node):
    assert values(node, BROKER, "") == OF_ALL_BROKERS
    alter(node, BROKER, "", ("log.retention.ms", SET, "5"), ("min.insync.replicas", SET, "2"))
    assert values(node, BROKER, "") == {"log.retention.ms": "5", "min.insync.replicas": "2"}
    retention, _ = describe(node, BROKER, "").configs
    assert (retention.name, retention.value) == ("log.retention.ms", "5")
    assert retention.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def test_kinds_without_settings_here(node):
    assert set(values(node, ResourceType.BROKER_LOGGER, "1")) == {"root", "kohort"}


# --- IncrementalAlterConfigs -----------------------------------------------------------------------------------


def changing(kind: int, name: str, *changes: tuple[str, int, str | None]) -> incremental.AlterConfigsResource:
    return incremental.AlterConfigsResource(
        kind, name, [incremental.AlterableConfig(key, operation, value) for key, operation, value in changes]
    )


def alter_all(node, *resources, validate_only: bool = False, version: int = 1):
    request = incremental.IncrementalAlterConfigsRequest(list(resources), validate_only)
    return [outcome(result) for result in node.call(request, version).responses]


def alter(
    node, kind: int, name: str, *changes: tuple[str, int, str | None], **more
) -> tuple[ErrorCode, str | None]:
    (result,) = alter_all(node, changing(kind, name, *changes), **more)
    return result


@pytest.mark.parametrize("version", [0, 1])
def test_one_setting_changes_and_the_others_stay(node, version):
    assert alter(node, TOPIC, "t", ("segment.ms", SET, "60000"), version=version) == OK
    assert node.store.topics["t"].overrides == {"retention.ms": "1000", "segment.ms": "60000"}
    assert alter(node, TOPIC, "t", ("retention.ms", DELETE, None), version=version) == OK
    assert node.store.topics["t"].overrides == {"segment.ms": "60000"}


def test_a_change_is_in_force_on_open_partitions(node):
    node.append("t", 1)
    partition = node.store.topics["t"].partitions[0]
    assert alter(node, TOPIC, "t", ("max.message.bytes", SET, "100")) == OK
    assert node.store.topics["t"].config.max_message_bytes == 100
    assert partition.config.max_message_bytes == 100


def test_lists_grow_and_shrink(node):
    assert alter(node, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == OK
    assert values(node, TOPIC, "t", "cleanup.policy") == {"cleanup.policy": "delete,compact"}
    assert alter(node, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == OK
    assert alter(node, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert values(node, TOPIC, "t", "cleanup.policy") == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_can_be_appended_to(node, operation):
    assert alter(node, TOPIC, "t", ("retention.ms", operation, "1")) == (
        ErrorCode.INVALID_CONFIG,
        f"Can't {operation.name} to key retention.ms because its type is not LIST.",
    )


@pytest.mark.parametrize(
    ("name", "changes", "code", "text"),
    [
        ("t", [("retention.ms", SET, "never")], ErrorCode.INVALID_CONFIG, "Not a number of type LONG"),
        (
            "t",
            [("retention.sm", SET, "1")],
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.sm",
        ),
        (
            "t",
            [("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            "t",
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        ("t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        ("t", [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")], 40, "conflict"),
        ("absent", [("retention.ms", SET, "1")], 3, "The topic 'absent' does not exist."),
        ("absent", [("retention.ms", SET, "never")], ErrorCode.INVALID_CONFIG, "Not a number"),
        (
            "",
            [("retention.ms", SET, "1")],
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        ("b d", [("retention.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
    ],
)
def test_changes_of_a_topic_that_cannot_be(node, name, changes, code, text):
    found, words = alter(node, TOPIC, name, *changes)
    assert found == code
    assert text in words
    assert node.store.topics["t"].overrides == {"retention.ms": "1000"}


def test_a_list_does_not_grow_beyond_what_a_string_can_carry(node):
    key = "follower.replication.throttled.replicas"
    long = [",".join(f"{partition}:{broker}" for partition in range(4000)) for broker in (1, 2)]
    assert alter(node, TOPIC, "t", (key, SET, long[0])) == OK
    code, words = alter(node, TOPIC, "t", (key, APPEND, long[1]))
    assert code == ErrorCode.INVALID_CONFIG
    assert "exceeds the maximum value size of 32767 bytes" in words
    assert values(node, TOPIC, "t", key) == {key: long[0]}


def test_a_resource_changes_as_a_whole_or_not_at_all(node):
    node.create("u")
    results = alter_all(
        node,
        changing(TOPIC, "t", ("segment.ms", SET, "5"), ("retention.ms", SET, "bad")),
        changing(TOPIC, "u", ("segment.ms", SET, "5")),
    )
    assert [code for code, _ in results] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert node.store.topics["t"].overrides == {"retention.ms": "1000"}
    assert node.store.topics["u"].overrides == {"segment.ms": "5"}


def test_a_resource_twice_in_one_request(node):
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    change = changing(TOPIC, "t", ("segment.ms", SET, "5"))
    assert alter_all(node, change, change) == [twice, twice]
    assert node.store.topics["t"].overrides == {"retention.ms": "1000"}


def test_validate_only_finds_what_is_wrong_and_changes_nothing(node):
    assert alter(node, TOPIC, "t", ("segment.ms", SET, "5"), validate_only=True) == OK
    assert (
        alter(node, TOPIC, "t", ("segment.ms", SET, "x"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG
    )
    assert alter(node, BROKER, "", ("log.retention.ms", SET, "5"), validate_only=True) == OK
    assert node.store.topics["t"].overrides == {"retention.ms": "1000"}
    assert values(node, BROKER, "") == OF_ALL_BROKERS


@pytest.mark.parametrize("name", ["1", ""])
def test_a_dynamic_setting_of_the_broker_reaches_its_topics(node, name):
    node.create("u")
    assert alter(node, BROKER, name, ("log.retention.ms", SET, "123"), ("message.max.bytes", SET, "99")) == OK
    assert node.broker.config.log_retention_ms == 123
    assert node.store.topics["u"].config.retention_ms == 123
    assert node.store.topics["u"].partitions[0].config.max_message_bytes == 99
    assert node.store.topics["t"].config.retention_ms == 1000, "its own setting counts"
    node.create("later")
    assert node.store.topics["later"].config.retention_ms == 123
    assert alter(node, BROKER, name, ("log.retention.ms", DELETE, None)) == OK
    assert node.store.topics["u"].config.retention_ms == 7 * 24 * 3_600_000


def test_a_dynamic_setting_without_effect_here_is_taken_as_kafka_takes_it(node):
    """librdkafka's own tests set these."""
    for name in ("sasl.kerberos.min.time.before.relogin", "num.io.threads", "log.cleaner.threads"):
        assert alter(node, BROKER, "1", (name, SET, "58000")) == OK
        assert replace(node, BROKER, "1", **{name: "58000"}) == OK


def test_this_brokers_setting_beats_that_of_all_brokers(node):
    assert alter(node, BROKER, "", ("log.retention.ms", SET, "1")) == OK
    assert alter(node, BROKER, "1", ("log.retention.ms", SET, "2")) == OK
    (retention,) = describe(node, BROKER, "1", "log.retention.ms").configs
    assert (retention.value, retention.config_source) == ("2", ConfigSource.DYNAMIC_BROKER_CONFIG)


@pytest.mark.parametrize(
    ("name", "key", "value", "text"),
    [
        ("1", "num.partitions", "3", "Cannot update these configs dynamically: num.partitions"),
        ("", "node.id", "3", "Cannot update these configs dynamically: node.id"),
        ("1", "log.retention.ms", "x", "Not a number of type LONG"),
        ("1", "log.retention.sm", "1", "did you mean log.retention.ms?"),
        ("2", "log.retention.ms", "1", "Unexpected broker id, expected 1"),
        ("x", "log.retention.ms", "1", "Node id must be an integer, but it is: x"),
    ],
)
def test_changes_of_a_broker_that_cannot_be(node, name, key, value, text):
    code, words = alter(node, BROKER, name, (key, SET, value))
    assert code == ErrorCode.INVALID_REQUEST
    assert text in words
    assert node.broker.config.dynamic_values == {}


def test_a_default_that_contradicts_a_topics_own_setting(node):
    node.create("u", min_compaction_lag_ms=500)
    code, words = alter(node, BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "400"))
    assert code == ErrorCode.INVALID_REQUEST
    assert "conflict" in words
    assert node.broker.config.dynamic_defaults == {}


@pytest.mark.parametrize("kind", [ResourceType.BROKER_LOGGER, 7])
def test_what_has_no_settings_cannot_be_altered(node, kind):
    assert alter(node, kind, "1", ("x", SET, "1"))[0] == ErrorCode.INVALID_REQUEST


# --- AlterConfigs ----------------------------------------------------------------------------------------------


def replace(
    node, kind: int, name: str, version: int = 2, validate_only: bool = False, **settings: str | None
):
    rows = [legacy.AlterableConfig(key.replace("_", "."), value) for key, value in settings.items()]
    request = legacy.AlterConfigsRequest([legacy.AlterConfigsResource(kind, name, rows)], validate_only)
    (result,) = node.call(request, version).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return outcome(result)


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced(node, version):
    assert replace(node, TOPIC, "t", version, segment_ms="5", cleanup_policy="compact") == OK
    assert node.store.topics["t"].overrides == {"segment.ms": "5", "cleanup.policy": "compact"}
    assert replace(node, TOPIC, "t", version) == OK
    assert node.store.topics["t"].overrides == {}


def test_all_settings_of_a_broker_are_replaced(node):
    assert replace(node, BROKER, "1", log_retention_ms="5") == OK
    assert replace(node, BROKER, "1", log_retention_bytes="6") == OK
    assert node.broker.config.dynamic_values == {"log.retention.bytes": "6"}


def test_a_replacement_that_cannot_be(node):
    assert replace(node, TOPIC, "t", segment_ms=None)[0] == ErrorCode.INVALID_REQUEST
    assert replace(node, TOPIC, "t", segment_ms="x")[0] == ErrorCode.INVALID_CONFIG
    assert replace(node, TOPIC, "absent", segment_ms="5")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(node, ResourceType.BROKER_LOGGER, "1", root="INFO")[0] == ErrorCode.INVALID_REQUEST
    assert replace(node, TOPIC, "t", validate_only=True) == OK
    assert node.store.topics["t"].overrides == {"retention.ms": "1000"}


def test_settings_survive_a_restart(tmp_path):
    with Node(tmp_path) as node:
        node.create("t")
        assert alter(node, TOPIC, "t", ("segment.ms", SET, "5")) == OK
        assert alter(node, BROKER, "", ("log.retention.ms", SET, "123")) == OK
        assert alter(node, BROKER, "1", ("log.retention.bytes", SET, "456")) == OK
    with Node(tmp_path) as node:
        config = node.store.topics["t"].config
        assert (config.segment_ms, config.retention_ms, config.retention_bytes) == (5, 123, 456)
        assert values(node, BROKER, "") == {"log.retention.ms": "123", **OF_ALL_BROKERS}


# --- ListConfigResources ---------------------------------------------------------------------------------------


def resources(node, *kinds: int, version: int = 1):
    answer = node.call(ListConfigResourcesRequest(list(kinds)), version)
    found = {(resource.resource_type, resource.resource_name) for resource in answer.config_resources}
    return ErrorCode(answer.error_code), found


def test_resources_that_have_settings(node):
    topics, brokers = {(TOPIC, "t")}, {(BROKER, "1")}
    assert resources(node, TOPIC) == (ErrorCode.NONE, topics)
    assert resources(node, BROKER, TOPIC) == (ErrorCode.NONE, topics | brokers)
    assert resources(node) == (ErrorCode.NONE, topics | brokers | {(ResourceType.BROKER_LOGGER, "1")})
    assert resources(node, version=0) == (ErrorCode.NONE, set())
    assert resources(node, 77) == (ErrorCode.UNSUPPORTED_VERSION, set())
