"""Subscriptions to metrics of clients: the resource type CLIENT_METRICS of DescribeConfigs, AlterConfigs and lists."""

from __future__ import annotations

import pytest

from kohort.broker.apis.configs import ResourceType
from kohort.broker.apis.table import TABLE
from kohort.settings import ConfigSource
from kohort.wire.errors import ErrorCode
from tests.broker.handlers import Node
from tests.broker.test_configs import APPEND, DELETE, OK, SET, alter, describe, resources, values

METRICS = ResourceType.CLIENT_METRICS
DEFAULTS = {"interval.ms": "300000", "match": "", "metrics": ""}


def test_a_subscription_is_kept_described_and_listed(tmp_path):
    with Node(tmp_path) as node:
        assert values(node, METRICS, "s") == DEFAULTS  # as Kafka: also of one that is not there
        changes = [("metrics", SET, "org.apache.kafka.producer."), ("interval.ms", SET, "1000")]
        assert (
            alter(node, METRICS, "s", *changes, ("match", SET, "client_id=.*,client_source_port=9.*")) == OK
        )
        assert alter(node, METRICS, "s", ("metrics", APPEND, "org.apache.kafka.consumer.")) == OK
    with Node(tmp_path) as node:
        assert resources(node, METRICS) == (ErrorCode.NONE, {(METRICS, "s")})
        assert resources(node, version=0) == (ErrorCode.NONE, {(METRICS, "s")})
        assert values(node, METRICS, "s") == {
            "interval.ms": "1000",
            "match": "client_id=.*,client_source_port=9.*",
            "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.",
        }
        (interval,) = describe(node, METRICS, "s", "interval.ms").configs
        assert [(each.value, each.source) for each in interval.synonyms] == [
            ("1000", ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
        ]
        gone = [(name, DELETE, None) for name in DEFAULTS]
        assert alter(node, METRICS, "s", *gone) == OK
        assert resources(node, METRICS) == (ErrorCode.NONE, set())


@pytest.mark.parametrize(
    ("name", "change", "code", "text"),
    [
        ("", ("metrics", SET, "*"), ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        (
            "s",
            ("no.such", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: no.such",
        ),
        (
            "s",
            ("interval.ms", SET, "99"),
            ErrorCode.INVALID_REQUEST,
            "interval must be between 100 and 3600000",
        ),
        ("s", ("interval.ms", SET, "soon"), ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        (
            "s",
            ("match", SET, "client_id"),
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: client_id",
        ),
        ("s", ("match", SET, "host=a"), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: host=a"),
        ("s", ("match", SET, "client_id=("), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ("s", ("match", SET, "client_id=a=b"), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ],
)
def test_subscriptions_that_cannot_be(name, change, code, text):
    with Node() as node:
        found, words = alter(node, METRICS, name, change)
        assert found == code
        assert text in words
        assert not node.store.client_metrics


def test_nobody_is_asked_to_push():
    """As with a Kafka that has no receiver of such metrics: ApiVersions does not name these APIs."""
    assert {71, 72}.isdisjoint(TABLE)
