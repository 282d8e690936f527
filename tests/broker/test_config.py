from __future__ import annotations

import pytest

from kohort.broker.config import BROKER_SETTINGS, BrokerConfig
from kohort.broker.kafka_settings import INERT
from kohort.log.config import TOPIC_SETTINGS, TopicConfig
from kohort.settings import ConfigSource, Described, Kind, SettingError


def named(rows: list[Described], name: str) -> Described:
    return next(row for row in rows if row.name == name)


def test_every_field_is_named_after_its_setting() -> None:
    for table, config in ((BROKER_SETTINGS, BrokerConfig.parse({})), (TOPIC_SETTINGS, TopicConfig())):
        for row in table.settings.values():
            assert hasattr(config, row.field), row.name


def test_the_defaults_of_a_broker_are_the_defaults_of_a_topic() -> None:
    assert BrokerConfig.parse({}).topic_defaults == TopicConfig()


def test_kafkas_defaults() -> None:
    topic = TopicConfig()
    assert topic.retention_ms == topic.segment_ms == 604_800_000
    assert topic.max_message_bytes == 1_048_588
    assert topic.segment_bytes == 1_073_741_824
    assert topic.cleanup_policy == ("delete",)
    broker = BrokerConfig.parse({})
    assert broker.socket_request_max_bytes == 104_857_600
    assert broker.fetch_max_bytes == 57_671_680
    assert broker.offsets_topic_num_partitions == 50
    assert broker.group_max_session_timeout_ms == 1_800_000
    assert broker.durability == "disk"


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_most_precise_retention_counts(static: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.parse(static).topic_defaults.retention_ms == retention_ms


def test_broker_synonyms_reach_the_topics() -> None:
    static = {
        "log.segment.bytes": "2000000",
        "message.max.bytes": "77",
        "log.roll.hours": "2",
        "log.cleaner.min.cleanable.ratio": "0.1",
        "log.cleanup.policy": "compact",
        "compression.type": "zstd",
    }
    topic = BrokerConfig.parse(static).topic_defaults
    assert (topic.segment_bytes, topic.max_message_bytes, topic.segment_ms) == (2_000_000, 77, 7_200_000)
    assert topic.compact
    assert not topic.delete
    assert (topic.min_cleanable_dirty_ratio, topic.compression_type) == (0.1, "zstd")
    assert TopicConfig.parse({"segment.ms": "9"}, topic).segment_bytes == 2_000_000


@pytest.mark.parametrize(
    ("static", "why"),
    [
        (
            {"num.partitions": "0"},
            "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        ({"log.segment.bytes": "1000"}, "configuration log.segment.bytes: Value must be at least 1048576"),
        ({"log.roll.ms": "0"}, "Invalid value 0 for configuration log.roll.ms: Value must be at least 1"),
        ({"log.retention.ms": "0"}, "configuration log.retention.ms: must be unlimited"),
        ({"durability": "tape"}, "String must be one of: disk, os, memory"),
        ({"log.retention.m": "1"}, "did you mean log.retention.ms?"),
        ({"node.id": "1", "broker.id": "2"}, "node.id to the same value as broker.id"),
        ({"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"}, "greater than or equal"),
        ({"default.replication.factor": "3"}, "a single node holds one copy"),
    ],
)
def test_a_wrong_broker_setting_says_what_is_right(static: dict[str, str], why: str) -> None:
    with pytest.raises(SettingError) as error:
        BrokerConfig.parse(static)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"segment.bytes": "1048575"}, "Value must be at least 1048576"),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        ({"cleanup.policy": "shred"}, "String must be one of: compact, delete"),
        ({"cleanup.policy": "compact,compact"}, "duplicated"),
        ({"compression.type": "brotli"}, "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "Value must be no more than 1"),
        ({"remote.storage.enable": "true"}, "Tiered storage"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms (5) > max"),
        ({"retention": "5"}, "Unknown topic config name: retention; did you mean retention."),
        ({"message.format.version": "2.0"}, "Unknown topic config name: message.format.version"),
    ],
)
def test_a_wrong_topic_setting_says_what_is_right(overrides: dict[str, str], why: str) -> None:
    with pytest.raises(SettingError) as error:
        TopicConfig.parse(overrides, TopicConfig())
    assert why in str(error.value)


def test_tests_may_have_tiny_segments() -> None:
    config = TopicConfig.parse({"internal.segment.bytes": "100"})
    assert config.segment_size == 100
    assert "internal.segment.bytes" not in [row.name for row in TOPIC_SETTINGS]


def test_a_topic_without_overrides_shares_the_defaults() -> None:
    defaults = TopicConfig()
    assert TopicConfig.parse({}, defaults) is defaults


def test_a_compacted_topic_closes_segments_before_the_lag_is_over() -> None:
    both = {"max.compaction.lag.ms": "10", "segment.ms": "20"}
    assert TopicConfig.parse(both).max_segment_ms == 20
    assert TopicConfig.parse({**both, "cleanup.policy": "compact"}).max_segment_ms == 10


def test_kafka_settings_without_effect_are_accepted_and_named() -> None:
    config = BrokerConfig.parse(
        {"num.io.threads": "8", "process.roles": "broker", "log.flush.interval.ms": "1"}
    )
    assert config.warnings == (
        "num.io.threads has no effect here",
        "process.roles has no effect here: one node needs no quorum of controllers",
        "log.flush.interval.ms has no effect here: durability says when data is on disk",
    )
    assert "durability" not in INERT


def test_one_id_under_two_names() -> None:
    assert BrokerConfig.parse({"broker.id": "4"}).node_id == 4
    assert BrokerConfig.parse({"node.id": "4"}).broker_id == 4


def test_dynamic_changes_beat_static_ones_and_can_be_taken_back() -> None:
    static = BrokerConfig.parse({"message.max.bytes": "10"})
    for_all = static.with_changes({"message.max.bytes": "20"}, for_all_brokers=True)
    for_one = for_all.with_changes({"message.max.bytes": "30"})
    assert [c.message_max_bytes for c in (static, for_all, for_one)] == [10, 20, 30]
    assert for_one.topic_defaults.max_message_bytes == 30
    row = named(for_one.describe(), "message.max.bytes")
    assert [(s.value, s.source) for s in row.synonyms] == [
        ("30", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("20", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("10", ConfigSource.STATIC_BROKER_CONFIG),
        ("1048588", ConfigSource.DEFAULT_CONFIG),
    ]
    assert [(r.name, r.value) for r in for_one.describe_defaults()] == [
        ("message.max.bytes", "20"),
        ("min.insync.replicas", "1"),
    ]
    assert for_one.with_changes({"message.max.bytes": None}).message_max_bytes == 20


def test_what_only_a_restart_changes_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Cannot update these configs dynamically: log.retention.hours"):
        BrokerConfig.parse({}).with_changes({"log.retention.hours": "3"})
    with pytest.raises(SettingError, match="Value must be at least 0"):
        BrokerConfig.parse({}).with_changes({"message.max.bytes": "-1"})


def test_a_broker_is_described() -> None:
    rows = BrokerConfig.parse({"log.retention.ms": "5"}).describe()
    ms, hours, idle = (
        named(rows, n) for n in ("log.retention.ms", "log.retention.hours", "connections.max.idle.ms")
    )
    assert (ms.value, ms.source, ms.is_default) == ("5", ConfigSource.STATIC_BROKER_CONFIG, False)
    assert (hours.value, hours.source, hours.is_default) == ("168", ConfigSource.DEFAULT_CONFIG, True)
    assert [s.name for s in hours.synonyms] == ["log.retention.hours"]
    assert (idle.config_type, idle.read_only, idle.sensitive) == (Kind.LONG, True, False)
    assert not ms.read_only
    assert all(row.documentation for row in rows)
    assert [row.name for row in rows] == sorted(row.name for row in rows)


def test_a_topic_is_described_with_where_each_value_comes_from() -> None:
    broker = BrokerConfig.parse({"log.segment.bytes": "2000000"})
    rows = broker.describe_topic({"retention.ms": "99"})
    retention, segment = named(rows, "retention.ms"), named(rows, "segment.bytes")
    assert (retention.value, retention.source) == ("99", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (segment.value, segment.source) == ("2000000", ConfigSource.STATIC_BROKER_CONFIG)
    assert [(s.name, s.value) for s in segment.synonyms] == [
        ("log.segment.bytes", "2000000"),
        ("log.segment.bytes", "1073741824"),
    ]
    assert named(rows, "cleanup.policy").is_default
    assert named(rows, "remote.storage.enable").synonyms == ()


def test_the_hours_of_the_broker_do_not_explain_a_topics_milliseconds() -> None:
    """Kafka names log.retention.ms as the synonym of retention.ms, and nothing before it."""
    hours = named(BrokerConfig.parse({"log.retention.hours": "2"}).describe_topic({}), "retention.ms")
    assert (hours.value, hours.source, hours.synonyms) == ("7200000", ConfigSource.DEFAULT_CONFIG, ())
    both = BrokerConfig.parse({"log.retention.ms": "5", "log.retention.hours": "2"}).describe_topic({})
    assert [(s.name, s.source) for s in named(both, "retention.ms").synonyms] == [
        ("log.retention.ms", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", ConfigSource.DEFAULT_CONFIG),
    ]


def test_the_dedupe_buffer_bounds_the_keys_of_a_pass() -> None:
    assert BrokerConfig.parse({}).max_compaction_keys == 250_000
    small = {"log.cleaner.dedupe.buffer.size": "1048576", "log.cleaner.io.buffer.load.factor": "0.5"}
    assert BrokerConfig.parse(small).max_compaction_keys == 21_845
