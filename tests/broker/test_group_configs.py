"""Settings of groups: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of the resource type 32."""

from __future__ import annotations

import logging

import pytest

from kohort.broker.apis.configs import ResourceType
from kohort.broker.config import BrokerConfig
from kohort.broker.group_settings import group_config
from kohort.coordinator.group_config import DEFAULT_GROUP_CONFIG
from kohort.settings import ConfigSource, Kind, SettingError
from kohort.wire.errors import ErrorCode
from tests.broker.handlers import Node
from tests.broker.test_configs import (
    APPEND,
    BROKER,
    DELETE,
    OK,
    SET,
    alter,
    describe,
    replace,
    resources,
    values,
)

GROUP = ResourceType.GROUP
SESSION = "consumer.session.timeout.ms"


@pytest.fixture
def node():
    with Node() as started:
        yield started


def test_a_group_has_the_settings_of_the_broker(node):
    configs = {config.name: config for config in describe(node, GROUP, "g").configs}
    session = configs[SESSION]
    assert (session.value, session.config_source, session.read_only) == (
        "45000",
        ConfigSource.DEFAULT_CONFIG,
        False,
    )
    assert session.config_type == Kind.INT
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG)
    ]
    reset = configs["share.auto.offset.reset"]
    assert [(each.name, each.value, each.source) for each in reset.synonyms] == [
        ("share.auto.offset.reset", "latest", ConfigSource.DEFAULT_CONFIG)
    ]
    assert node.broker.group_config("g") == DEFAULT_GROUP_CONFIG


def test_a_group_that_nobody_knows_can_have_settings_of_its_own(node):
    assert (
        alter(node, GROUP, "g", (SESSION, SET, "50000"), ("share.auto.offset.reset", SET, "earliest")) == OK
    )
    (session,) = describe(node, GROUP, "g", SESSION).configs
    assert (session.value, session.config_source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        (SESSION, "50000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    config = node.broker.group_config("g")
    assert (config.consumer_session_timeout_ms, config.share_auto_offset_reset) == (50_000, "earliest")
    assert node.broker.group_config("other") == DEFAULT_GROUP_CONFIG
    assert alter(node, GROUP, "g", (SESSION, DELETE, None)) == OK
    assert node.broker.group_config("g").consumer_session_timeout_ms == 45_000
    assert resources(node, GROUP) == (ErrorCode.NONE, {(GROUP, "g")})
    assert replace(node, GROUP, "g") == OK  # the older way replaces all: nothing is left
    assert resources(node, GROUP) == (ErrorCode.NONE, set())


@pytest.mark.parametrize(
    ("name", "change", "code", "text"),
    [
        ("", (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        ("g", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown group config name: no.such"),
        ("g", (SESSION, SET, "soon"), ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        ("g", (SESSION, SET, "44999"), ErrorCode.INVALID_CONFIG,
         f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ("g", (SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG,
         f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ("g", ("share.delivery.count.limit", SET, "11"), ErrorCode.INVALID_CONFIG,
         "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit"),
        ("g", ("share.record.lock.duration.ms", SET, "14999"), ErrorCode.INVALID_CONFIG,
         "must be greater than or equal to group.share.min.record.lock.duration.ms"),
        ("g", ("share.auto.offset.reset", SET, "none"), ErrorCode.INVALID_CONFIG, "'by_duration:<PnDTnHnMn.nS>'"),
        ("g", ("share.auto.offset.reset", SET, "by_duration:-PT1S"), ErrorCode.INVALID_CONFIG, "must be either"),
        ("g", ("share.isolation.level", SET, "serial"), ErrorCode.INVALID_CONFIG, "String must be one of"),
        ("g", ("share.isolation.level", APPEND, "x"), ErrorCode.INVALID_CONFIG, "its type is not LIST"),
        ("g", ("share.dlq.topic", SET, "b d"), ErrorCode.INVALID_CONFIG, "b d"),
    ],
)  # fmt: skip
def test_changes_that_cannot_be(node, name, change, code, text):
    found, words = alter(node, GROUP, name, change)
    assert found == code
    assert text in words
    assert not node.store.group_configs


@pytest.mark.parametrize(
    "value", ["by_duration:PT1H", "by_duration:P1DT2H3M4.5S", "by_duration:P7D", "earliest"]
)
def test_where_a_share_group_may_begin(node, value):
    assert alter(node, GROUP, "g", ("share.auto.offset.reset", SET, value)) == OK
    assert node.broker.group_config("g").share_auto_offset_reset == value


def test_a_session_is_longer_than_a_heartbeat():
    limits = {
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.max.heartbeat.interval.ms": "15000",
    }
    with Node(settings=limits) as node:
        code, words = alter(
            node, GROUP, "g", (SESSION, SET, "9000"), ("consumer.heartbeat.interval.ms", SET, "9000")
        )
        assert code == ErrorCode.INVALID_CONFIG
        assert words == f"{SESSION} must be greater than consumer.heartbeat.interval.ms"


def test_settings_survive_a_restart_and_are_capped_to_new_limits(tmp_path, caplog):
    with Node(tmp_path) as node:
        assert alter(node, GROUP, "g", (SESSION, SET, "60000"), ("share.dlq.topic", SET, "dead")) == OK
    tighter = {"group.consumer.max.session.timeout.ms": "50000"}
    with Node(tmp_path, settings=tighter) as node, caplog.at_level(logging.WARNING, "kohort"):
        config = node.broker.group_config("g")
        assert (config.consumer_session_timeout_ms, config.share_dlq_topic) == (50_000, "dead")
        assert values(node, GROUP, "g", SESSION) == {SESSION: "60000"}  # what was set
        node.broker.group_config("g")
    assert caplog.text.count("outside of the broker's limits") == 1


def test_a_change_of_the_broker_reaches_groups_without_a_value_of_their_own(node):
    name = "group.consumer.assignment.interval.ms"
    assert alter(node, GROUP, "own", ("consumer.assignment.interval.ms", SET, "7")) == OK
    assert alter(node, BROKER, "", (name, SET, "20")) == OK
    assert node.broker.group_config("own").consumer_assignment_interval_ms == 7
    assert node.broker.group_config("other").consumer_assignment_interval_ms == 20


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"group.consumer.session.timeout.ms": "1000"}, "group.consumer.min.session.timeout.ms"),
        ({"group.share.max.size": "1000", "group.share.max.share.sessions": "5"}, "group.share.max.size"),
        ({"group.share.delivery.count.limit": "11"}, "no more than 10"),
        ({"group.share.min.heartbeat.interval.ms": "6000"}, "group.share.heartbeat.interval.ms"),
    ],
)
def test_brokers_whose_limits_contradict_each_other(settings, text):
    with pytest.raises(SettingError, match=text):
        BrokerConfig.parse(settings)


def test_the_defaults_of_a_broker_are_those_of_the_coordinator():
    assert group_config(BrokerConfig.parse({}), {}) == DEFAULT_GROUP_CONFIG
