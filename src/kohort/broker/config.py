"""Defines the broker settings, with Kafka's names and defaults, and Kohort's own `durability`.

`BrokerConfig.parse({"num.partitions": "3"})` checks everything once. Settings of Kafka that have no effect here are
accepted and named in `warnings`; those that matter and are not supported are refused (`kafka_settings` has both lists).
Unknown names are refused with the most similar known one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any

from kohort.broker import kafka_settings
from kohort.broker.group_settings import GROUP_SETTINGS, check_bounds, group_values
from kohort.broker.listeners import check_ip_overrides, ip_overrides, one_spelling
from kohort.log.config import DAY_MS, HOUR_MS, MIB, MINUTE_MS, TOPIC_SETTINGS, TopicConfig, broker_row
from kohort.settings import (
    INT_MAX,
    ConfigSource,
    Described,
    DescribedSynonym,
    Kind,
    Setting,
    SettingError,
    Table,
    Value,
    as_text,
    at_least,
    between,
    described,
    list_of,
    one_of,
    setting,
    setting_field,
)


def _default(topic_name: str, broker_name: str) -> Any:
    return setting_field(broker_row(topic_name, broker_name))


def _fixed(name: str, kind: Kind, default: Value, check: Any, doc: str) -> Any:
    """Defines a setting that only a restart changes, as most are in Kafka."""
    return setting(name, kind, default, check, doc, read_only=True)


_MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")


def _check_assignors(names: tuple[str, ...]) -> str | None:
    return list_of("uniform", "range")(names) if names else "it must name at least one assignor"


def _check_policy(value: str) -> str | None:
    return one_of(*_MIGRATION_POLICIES)(value.lower())


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of a node, parsed. `BrokerConfig.parse(values)` makes one."""

    # the node
    node_id: int = _fixed("node.id", Kind.INT, 1, at_least(0), "The id of this node; broker.id is the same.")
    broker_id: int = _fixed("broker.id", Kind.INT, 1, at_least(0), "The older name of node.id.")
    durability: str = _fixed(
        "durability", Kind.STRING, "disk", one_of("disk", "os", "memory"),
        "When acks=all is answered: on disk, handed to the operating system, or in memory only.",
    )  # fmt: skip
    listeners: tuple[str, ...] = _fixed(
        "listeners", Kind.LIST, ("PLAINTEXT://127.0.0.1:9092",), list_of(), "Where the broker listens."
    )
    advertised_listeners: tuple[str, ...] | None = _fixed(
        "advertised.listeners", Kind.LIST, None, list_of(), "Where clients are told to connect."
    )
    listener_security_protocol_map: str = _fixed(
        "listener.security.protocol.map", Kind.STRING, "PLAINTEXT:PLAINTEXT", None,
        "NAME:PROTOCOL of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )  # fmt: skip
    # who may come in; names of single listeners (listener.name.…) are read by broker/security/listener_settings.py
    sasl_enabled_mechanisms: tuple[str, ...] = _fixed(
        "sasl.enabled.mechanisms", Kind.LIST, ("GSSAPI",), list_of(),
        "The mechanisms of listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. There is no GSSAPI.",
    )  # fmt: skip
    connections_max_reauth_ms: int = _fixed(
        "connections.max.reauth.ms", Kind.LONG, 0, at_least(0),
        "After so long a client with SASL has to authenticate again; 0 is never.",
    )  # fmt: skip
    sasl_server_max_receive_size: int = _fixed(
        "sasl.server.max.receive.size", Kind.INT, 524_288, at_least(1),
        "The most bytes a client may send in one request before it is authenticated.",
    )  # fmt: skip
    connection_failed_authentication_delay_ms: int = _fixed(
        "connection.failed.authentication.delay.ms", Kind.INT, 100, at_least(0),
        "How long the answer to a failed authentication waits.",
    )  # fmt: skip
    authorizer_class_name: str = _fixed(
        "authorizer.class.name", Kind.STRING, "", None,
        "Who decides about permissions: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or nobody.",
    )  # fmt: skip
    super_users: str = _fixed(
        "super.users", Kind.STRING, "", None, "Principals that may do everything: User:alice;User:bob."
    )
    allow_everyone_if_no_acl_found: bool = _fixed(
        "allow.everyone.if.no.acl.found", Kind.BOOLEAN, False, None,
        "Whether a resource that no ACL is about is open to everybody.",
    )  # fmt: skip
    # quotas: their values are set by AlterClientQuotas
    quota_window_num: int = _fixed(
        "quota.window.num", Kind.INT, 11, at_least(1), "Samples that a quota's rate is measured over."
    )
    quota_window_size_seconds: int = _fixed(
        "quota.window.size.seconds", Kind.INT, 1, at_least(1), "How long one of these samples is."
    )
    controller_quota_window_num: int = _fixed(
        "controller.quota.window.num", Kind.INT, 11, at_least(1),
        "Samples of the controller mutation quota: so many at once may be used up.",
    )  # fmt: skip
    controller_quota_window_size_seconds: int = _fixed(
        "controller.quota.window.size.seconds", Kind.INT, 1, at_least(1), "How long one of these samples is."
    )
    log_dir: str | None = _fixed(
        "log.dir", Kind.STRING, None, None, "The data directory, if log.dirs does not say."
    )
    log_dirs: tuple[str, ...] | None = _fixed(
        "log.dirs",
        Kind.LIST,
        None,
        list_of(),
        "The data directory; one, and the same as on the command line.",
    )
    # connections
    connections_max_idle_ms: int = _fixed(
        "connections.max.idle.ms", Kind.LONG, 10 * MINUTE_MS, None,
        "A connection that is silent this long is closed; negative is never.",
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", Kind.INT, INT_MAX, at_least(0), "How many connections the broker takes."
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", Kind.INT, INT_MAX, at_least(0), "How many connections one address may have."
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides", Kind.STRING, "", check_ip_overrides,
        "The limits of single addresses or hosts: 10.0.0.1:5,example.org:100.",
    )  # fmt: skip
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate", Kind.INT, INT_MAX, at_least(1),
        "How many connections may begin in a second; what is more waits.",
    )  # fmt: skip
    socket_listen_backlog_size: int = _fixed(
        "socket.listen.backlog.size", Kind.INT, 50, at_least(1), "Connections waiting to be accepted."
    )
    socket_receive_buffer_bytes: int = _fixed(
        "socket.receive.buffer.bytes", Kind.INT, 102400, None, "SO_RCVBUF; -1 is the system's default."
    )
    socket_request_max_bytes: int = _fixed(
        "socket.request.max.bytes", Kind.INT, 100 * MIB, at_least(1),
        "A longer request closes the connection.",
    )  # fmt: skip
    socket_send_buffer_bytes: int = _fixed(
        "socket.send.buffer.bytes", Kind.INT, 102400, None, "SO_SNDBUF; -1 is the system's default."
    )
    fetch_max_bytes: int = _fixed(
        "fetch.max.bytes", Kind.INT, 55 * MIB, at_least(1024), "The most bytes one fetch is answered with."
    )
    max_incremental_fetch_session_cache_slots: int = _fixed(
        "max.incremental.fetch.session.cache.slots", Kind.INT, 1000, at_least(0), "Fetch sessions kept."
    )
    max_request_partition_size_limit: int = _fixed(
        "max.request.partition.size.limit", Kind.INT, 2000, at_least(1),
        "The most partitions one DescribeTopicPartitions is answered with.",
    )  # fmt: skip
    # topics
    auto_create_topics_enable: bool = _fixed(
        "auto.create.topics.enable", Kind.BOOLEAN, True, None, "Whether asking for a topic creates it."
    )
    delete_topic_enable: bool = _fixed(
        "delete.topic.enable", Kind.BOOLEAN, True, None, "Whether topics can be deleted."
    )
    default_replication_factor: int = _fixed(
        "default.replication.factor", Kind.INT, 1, at_least(1), "Replicas of a new topic; one node has one."
    )
    num_partitions: int = _fixed("num.partitions", Kind.INT, 1, at_least(1), "Partitions of a new topic.")
    # the log: what topics have unless they say otherwise
    compression_gzip_level: int = _default("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = _default("compression.lz4.level", "compression.lz4.level")
    compression_type: str = _default("compression.type", "compression.type")
    compression_zstd_level: int = _default("compression.zstd.level", "compression.zstd.level")
    log_cleaner_delete_retention_ms: int = _default("delete.retention.ms", "log.cleaner.delete.retention.ms")
    log_cleaner_max_compaction_lag_ms: int = _default(
        "max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    )
    log_cleaner_min_cleanable_ratio: float = _default(
        "min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"
    )
    log_cleaner_min_compaction_lag_ms: int = _default(
        "min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"
    )
    log_cleanup_policy: tuple[str, ...] = _default("cleanup.policy", "log.cleanup.policy")
    log_flush_interval_messages: int = _default("flush.messages", "log.flush.interval.messages")
    log_flush_interval_ms: int | None = _default("flush.ms", "log.flush.interval.ms")
    log_flush_scheduler_interval_ms: int = _default("flush.ms", "log.flush.scheduler.interval.ms")
    log_index_interval_bytes: int = _default("index.interval.bytes", "log.index.interval.bytes")
    log_index_size_max_bytes: int = _default("segment.index.bytes", "log.index.size.max.bytes")
    log_local_retention_bytes: int = _default("local.retention.bytes", "log.local.retention.bytes")
    log_local_retention_ms: int = _default("local.retention.ms", "log.local.retention.ms")
    log_message_timestamp_after_max_ms: int = _default(
        "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"
    )
    log_message_timestamp_before_max_ms: int = _default(
        "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"
    )
    log_message_timestamp_type: str = _default("message.timestamp.type", "log.message.timestamp.type")
    log_preallocate: bool = _default("preallocate", "log.preallocate")
    log_retention_bytes: int = _default("retention.bytes", "log.retention.bytes")
    log_retention_hours: int = _default("retention.ms", "log.retention.hours")
    log_retention_minutes: int | None = _default("retention.ms", "log.retention.minutes")
    log_retention_ms: int | None = _default("retention.ms", "log.retention.ms")
    log_roll_hours: int = _default("segment.ms", "log.roll.hours")
    log_roll_jitter_hours: int = _default("segment.jitter.ms", "log.roll.jitter.hours")
    log_roll_jitter_ms: int | None = _default("segment.jitter.ms", "log.roll.jitter.ms")
    log_roll_ms: int | None = _default("segment.ms", "log.roll.ms")
    log_segment_bytes: int = _default("segment.bytes", "log.segment.bytes")
    log_segment_delete_delay_ms: int = _default("file.delete.delay.ms", "log.segment.delete.delay.ms")
    message_max_bytes: int = _default("max.message.bytes", "message.max.bytes")
    min_insync_replicas: int = _default("min.insync.replicas", "min.insync.replicas")
    unclean_leader_election_enable: bool = _default(
        "unclean.leader.election.enable", "unclean.leader.election.enable"
    )
    # the log: the work in the background
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", Kind.LONG, 15_000, at_least(0), "Pause between looks for what to compact."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, 128 * MIB, at_least(MIB),
        "Memory for the keys of one compaction pass, at 24 bytes a key as in Kafka; at most 250,000 keys.",
    )  # fmt: skip
    log_cleaner_enable: bool = _fixed(
        "log.cleaner.enable", Kind.BOOLEAN, True, None, "Whether compacted topics are compacted."
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, between(0.01, 1),
        "How much of the dedupe buffer is used.",
    )  # fmt: skip
    log_retention_check_interval_ms: int = _fixed(
        "log.retention.check.interval.ms", Kind.LONG, 5 * MINUTE_MS, at_least(1),
        "How often the broker looks for what to delete.",
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", Kind.INT, DAY_MS, at_least(1),
        "A producer that wrote nothing for this long is forgotten.",
    )  # fmt: skip
    # groups
    group_consumer_assignors: tuple[str, ...] = _fixed(
        "group.consumer.assignors", Kind.LIST, ("uniform", "range"), _check_assignors,
        "The assignors that members of consumer groups (KIP-848) may name; the first is the default.",
    )  # fmt: skip
    group_consumer_max_size: int = _fixed(
        "group.consumer.max.size", Kind.INT, INT_MAX, at_least(1), "Members of one consumer group."
    )
    group_consumer_migration_policy: str = _fixed(
        "group.consumer.migration.policy", Kind.STRING, "bidirectional", _check_policy,
        "Whether groups with members become consumer groups, and classic ones again: "
        "disabled, upgrade, downgrade, bidirectional.",
    )  # fmt: skip
    group_consumer_regex_refresh_interval_ms: int = _fixed(
        "group.consumer.regex.refresh.interval.ms", Kind.INT, 600_000, at_least(10_000),
        "How often the regular expressions of consumer groups are matched against the topics.",
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = _fixed(
        "group.initial.rebalance.delay.ms", Kind.INT, 3000, at_least(0),
        "How long the first rebalance of an empty group waits for more members.",
    )  # fmt: skip
    group_max_session_timeout_ms: int = _fixed(
        "group.max.session.timeout.ms", Kind.INT, HOUR_MS // 2, at_least(1), "The longest session timeout."
    )
    group_max_size: int = _fixed("group.max.size", Kind.INT, INT_MAX, at_least(1), "Members of one group.")
    group_min_session_timeout_ms: int = _fixed(
        "group.min.session.timeout.ms", Kind.INT, 6000, at_least(1), "The shortest session timeout."
    )
    offset_metadata_max_bytes: int = _fixed(
        "offset.metadata.max.bytes", Kind.INT, 4096, at_least(0), "The longest text a commit may carry."
    )
    offsets_retention_check_interval_ms: int = _fixed(
        "offsets.retention.check.interval.ms", Kind.LONG, 600_000, at_least(1),
        "How often the broker looks for offsets that expired.",
    )  # fmt: skip
    offsets_retention_minutes: int = _fixed(
        "offsets.retention.minutes", Kind.INT, 7 * 24 * 60, at_least(1),
        "How long offsets are kept after their group became empty.",
    )  # fmt: skip
    offsets_topic_num_partitions: int = _fixed(
        "offsets.topic.num.partitions", Kind.INT, 50, at_least(1), "Partitions of __consumer_offsets."
    )
    offsets_topic_segment_bytes: int = _fixed(
        "offsets.topic.segment.bytes",
        Kind.INT,
        100 * MIB,
        at_least(1),
        "Segment size of __consumer_offsets.",
    )
    # groups of the KIP-848 protocol; a group may have settings of its own, within these limits
    group_consumer_session_timeout_ms: int = _fixed(
        "group.consumer.session.timeout.ms", Kind.INT, 45_000, at_least(1),
        "A member of a KIP-848 group that sends no heartbeat for this long is removed.",
    )  # fmt: skip
    group_consumer_min_session_timeout_ms: int = _fixed(
        "group.consumer.min.session.timeout.ms", Kind.INT, 45_000, at_least(1),
        "The lowest session.timeout.ms that a group may set.",
    )  # fmt: skip
    group_consumer_max_session_timeout_ms: int = _fixed(
        "group.consumer.max.session.timeout.ms", Kind.INT, 60_000, at_least(1),
        "The highest session.timeout.ms that a group may set.",
    )  # fmt: skip
    group_consumer_heartbeat_interval_ms: int = _fixed(
        "group.consumer.heartbeat.interval.ms", Kind.INT, 5_000, at_least(1),
        "How often members of a KIP-848 group send heartbeats.",
    )  # fmt: skip
    group_consumer_min_heartbeat_interval_ms: int = _fixed(
        "group.consumer.min.heartbeat.interval.ms", Kind.INT, 5_000, at_least(1),
        "The lowest heartbeat.interval.ms that a group may set.",
    )  # fmt: skip
    group_consumer_max_heartbeat_interval_ms: int = _fixed(
        "group.consumer.max.heartbeat.interval.ms", Kind.INT, 15_000, at_least(1),
        "The highest heartbeat.interval.ms that a group may set.",
    )  # fmt: skip
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms", Kind.INT, 1_000, at_least(0),
        "The least time between two assignments of a KIP-848 group.",
    )  # fmt: skip
    group_consumer_min_assignment_interval_ms: int = _fixed(
        "group.consumer.min.assignment.interval.ms", Kind.INT, 0, at_least(0),
        "The lowest assignment.interval.ms that a group may set.",
    )  # fmt: skip
    group_consumer_max_assignment_interval_ms: int = _fixed(
        "group.consumer.max.assignment.interval.ms", Kind.INT, 15_000, at_least(0),
        "The highest assignment.interval.ms that a group may set.",
    )  # fmt: skip
    # share groups
    group_share_session_timeout_ms: int = _fixed(
        "group.share.session.timeout.ms", Kind.INT, 45_000, at_least(1),
        "A member of a share group that sends no heartbeat for this long is removed.",
    )  # fmt: skip
    group_share_min_session_timeout_ms: int = _fixed(
        "group.share.min.session.timeout.ms", Kind.INT, 45_000, at_least(1),
        "The lowest session.timeout.ms that a group may set.",
    )  # fmt: skip
    group_share_max_session_timeout_ms: int = _fixed(
        "group.share.max.session.timeout.ms", Kind.INT, 60_000, at_least(1),
        "The highest session.timeout.ms that a group may set.",
    )  # fmt: skip
    group_share_heartbeat_interval_ms: int = _fixed(
        "group.share.heartbeat.interval.ms", Kind.INT, 5_000, at_least(1),
        "How often members of a share group send heartbeats.",
    )  # fmt: skip
    group_share_min_heartbeat_interval_ms: int = _fixed(
        "group.share.min.heartbeat.interval.ms", Kind.INT, 5_000, at_least(1),
        "The lowest heartbeat.interval.ms that a group may set.",
    )  # fmt: skip
    group_share_max_heartbeat_interval_ms: int = _fixed(
        "group.share.max.heartbeat.interval.ms", Kind.INT, 15_000, at_least(1),
        "The highest heartbeat.interval.ms that a group may set.",
    )  # fmt: skip
    group_share_assignment_interval_ms: int = setting(
        "group.share.assignment.interval.ms", Kind.INT, 1_000, at_least(0),
        "The least time between two assignments of a share group.",
    )  # fmt: skip
    group_share_min_assignment_interval_ms: int = _fixed(
        "group.share.min.assignment.interval.ms", Kind.INT, 0, at_least(0),
        "The lowest assignment.interval.ms that a group may set.",
    )  # fmt: skip
    group_share_max_assignment_interval_ms: int = _fixed(
        "group.share.max.assignment.interval.ms", Kind.INT, 15_000, at_least(0),
        "The highest assignment.interval.ms that a group may set.",
    )  # fmt: skip
    group_share_max_size: int = _fixed(
        "group.share.max.size", Kind.INT, 200, between(1, 1000),
        "Members of one share group.",
    )  # fmt: skip
    group_share_record_lock_duration_ms: int = _fixed(
        "group.share.record.lock.duration.ms", Kind.INT, 30_000, between(1_000, HOUR_MS),
        "How long a member of a share group has a record for itself.",
    )  # fmt: skip
    group_share_min_record_lock_duration_ms: int = _fixed(
        "group.share.min.record.lock.duration.ms", Kind.INT, 15_000, between(1_000, 30_000),
        "The lowest record.lock.duration.ms that a group may set.",
    )  # fmt: skip
    group_share_max_record_lock_duration_ms: int = _fixed(
        "group.share.max.record.lock.duration.ms", Kind.INT, 60_000, between(30_000, HOUR_MS),
        "The highest record.lock.duration.ms that a group may set.",
    )  # fmt: skip
    group_share_delivery_count_limit: int = _fixed(
        "group.share.delivery.count.limit", Kind.INT, 5, between(2, 10),
        "How often a record is delivered to a share group at most.",
    )  # fmt: skip
    group_share_min_delivery_count_limit: int = _fixed(
        "group.share.min.delivery.count.limit", Kind.INT, 2, between(2, 5),
        "The lowest delivery.count.limit that a group may set.",
    )  # fmt: skip
    group_share_max_delivery_count_limit: int = _fixed(
        "group.share.max.delivery.count.limit", Kind.INT, 10, between(5, 25),
        "The highest delivery.count.limit that a group may set.",
    )  # fmt: skip
    group_share_partition_max_record_locks: int = _fixed(
        "group.share.partition.max.record.locks", Kind.INT, 2_000, between(100, 10_000),
        "How many records of a partition a share group has in flight.",
    )  # fmt: skip
    group_share_min_partition_max_record_locks: int = _fixed(
        "group.share.min.partition.max.record.locks", Kind.INT, 100, between(100, 2_000),
        "The lowest partition.max.record.locks that a group may set.",
    )  # fmt: skip
    group_share_max_partition_max_record_locks: int = _fixed(
        "group.share.max.partition.max.record.locks", Kind.INT, 4_000, between(2_000, 10_000),
        "The highest partition.max.record.locks that a group may set.",
    )  # fmt: skip
    group_share_max_share_sessions: int = _fixed(
        "group.share.max.share.sessions", Kind.INT, 2_000, at_least(1),
        "Share sessions that the broker keeps.",
    )  # fmt: skip
    group_share_initialize_retry_interval_ms: int = setting(
        "group.share.initialize.retry.interval.ms", Kind.INT, 30_000, at_least(1),
        "When partitions of a share group whose state was not initialized are tried again.",
        read_only=True, internal=True,
    )  # fmt: skip
    # the share coordinator
    share_coordinator_cold_partition_snapshot_interval_ms: int = _fixed(
        "share.coordinator.cold.partition.snapshot.interval.ms", Kind.INT, 5 * MINUTE_MS, at_least(1),
        "A share partition that was not written for this long gets a snapshot of its state.",
    )  # fmt: skip
    share_coordinator_snapshot_update_records_per_snapshot: int = _fixed(
        "share.coordinator.snapshot.update.records.per.snapshot", Kind.INT, 500, between(0, 500),
        "Updates of the state of a share partition between two snapshots.",
    )  # fmt: skip
    share_coordinator_state_topic_num_partitions: int = _fixed(
        "share.coordinator.state.topic.num.partitions", Kind.INT, 50, at_least(1),
        "Partitions of __share_group_state.",
    )  # fmt: skip
    share_coordinator_state_topic_prune_interval_ms: int = _fixed(
        "share.coordinator.state.topic.prune.interval.ms", Kind.INT, 5 * MINUTE_MS, at_least(1),
        "How often what no share partition needs any more is deleted from __share_group_state.",
    )  # fmt: skip
    share_coordinator_state_topic_segment_bytes: int = _fixed(
        "share.coordinator.state.topic.segment.bytes", Kind.INT, 100 * MIB, at_least(1),
        "Segment size of __share_group_state.",
    )  # fmt: skip
    # transactions
    add_partitions_to_txn_retry_backoff_max_ms: int = _fixed(
        "add.partitions.to.txn.retry.backoff.max.ms", Kind.INT, 100, at_least(0),
        "How long a first batch waits for the end of the producer's transaction before.",
    )  # fmt: skip
    add_partitions_to_txn_retry_backoff_ms: int = _fixed(
        "add.partitions.to.txn.retry.backoff.ms", Kind.INT, 20, at_least(1),
        "How often it is looked whether that has ended.",
    )  # fmt: skip
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _fixed(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT, 10_000, at_least(1),
        "How often the broker looks for transactions past their timeout.",
    )  # fmt: skip
    transaction_max_timeout_ms: int = _fixed(
        "transaction.max.timeout.ms", Kind.INT, 15 * MINUTE_MS, at_least(1),
        "The longest transaction.timeout.ms that a producer may have.",
    )  # fmt: skip
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _fixed(
        "transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT, HOUR_MS, at_least(1),
        "How often the broker looks for transactional ids that expired.",
    )  # fmt: skip
    transaction_state_log_num_partitions: int = _fixed(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        at_least(1),
        "Partitions of __transaction_state.",
    )
    transaction_state_log_segment_bytes: int = _fixed(
        "transaction.state.log.segment.bytes", Kind.INT, 100 * MIB, at_least(1),
        "Segment size of __transaction_state.",
    )  # fmt: skip
    transactional_id_expiration_ms: int = _fixed(
        "transactional.id.expiration.ms", Kind.INT, 7 * DAY_MS, at_least(1),
        "How long a transactional id is kept after its last transaction.",
    )  # fmt: skip

    # where the values come from, and what they make
    static_values: Mapping[str, str] = field(default_factory=dict)
    dynamic_values: Mapping[str, str] = field(default_factory=dict)
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict)
    # those of listeners, which broker/security reads: with TLS some can be changed while the broker runs
    listener_values: Mapping[str, str] = field(default_factory=dict)
    dynamic_listener_values: Mapping[str, str] = field(default_factory=dict)
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    warnings: tuple[str, ...] = ()

    @staticmethod
    def parse(
        static: Mapping[str, str],
        *,
        dynamic: Mapping[str, str] | None = None,
        dynamic_defaults: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """Parses the settings of a broker; SettingError says what is wrong and what is allowed.

        `dynamic` (this broker) overrides `dynamic_defaults` (all brokers), which override `static` (the command line).
        """
        kafka_settings.check_all(static)
        static = _with_one_id(static)
        layers = (static, dynamic_defaults or {}, dynamic or {})
        warnings = tuple(
            kafka_settings.why_inert(name)
            for layer in layers
            for name in layer
            if kafka_settings.is_inert(name) or _is_inert(name)
        )
        known = [
            {
                name: text
                for name, text in layer.items()
                if not _is_inert(name) and not _is_of_a_listener(name)
            }
            for layer in layers
        ]
        of_listeners = [{n: text for n, text in layer.items() if _is_of_a_listener(n)} for layer in layers]
        parsed: Any = {}
        for layer in known:
            parsed |= BROKER_SETTINGS.read(layer)
        config = BrokerConfig(
            **parsed,
            static_values=known[0],
            dynamic_defaults=known[1],
            dynamic_values=known[2],
            listener_values=of_listeners[0],
            dynamic_listener_values=of_listeners[2],
            warnings=warnings,
        )
        config._check()
        return replace(config, topic_defaults=_topic_defaults(config))

    def with_changes(
        self,
        changes: Mapping[str, str | None],
        *,
        for_all_brokers: bool = False,
    ) -> BrokerConfig:
        """Returns the settings with these dynamic ones set, or unset where the value is None."""
        # A setting that has a row can be set and is described, as clients' tests expect; the next start checks it.
        others = {
            n: text for n, text in changes.items() if text is not None and n not in BROKER_SETTINGS.settings
        }
        kafka_settings.check_all(others)
        of_listeners = [name for name in changes if _is_of_a_listener(name)]
        if of_listeners:
            from kohort.broker.security.listener_settings import check_dynamic

            check_dynamic(of_listeners, for_all_brokers=for_all_brokers)
        fixed = sorted(
            name
            for name in changes
            if name not in of_listeners
            and not kafka_settings.is_inert(name)
            and not _is_inert(name)
            and BROKER_SETTINGS[name].read_only
        )
        if fixed:
            raise SettingError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
        before = self.dynamic_defaults if for_all_brokers else self.own_dynamic_values
        after = {name: text for name, text in {**before, **changes}.items() if text is not None}
        if for_all_brokers:
            return self.with_dynamic(self.own_dynamic_values, after)
        return self.with_dynamic(after, self.dynamic_defaults)

    def with_dynamic(self, own: Mapping[str, str], of_all: Mapping[str, str]) -> BrokerConfig:
        """Returns the settings with these dynamic ones: this broker's own, and those of all brokers."""
        static = {**self.static_values, **self.listener_values}
        return BrokerConfig.parse(static, dynamic=own, dynamic_defaults=of_all)

    @property
    def own_dynamic_values(self) -> dict[str, str]:
        """All dynamic settings of this broker, those of its listeners too."""
        return {**self.dynamic_values, **self.dynamic_listener_values}

    def max_connections_of(self, address: str) -> int:
        """Returns how many connections an address may have."""
        if not self.max_connections_per_ip_overrides:
            return self.max_connections_per_ip
        limits = ip_overrides(self.max_connections_per_ip_overrides)
        return limits.get(one_spelling(address), self.max_connections_per_ip)

    @property
    def max_compaction_keys(self) -> int:
        """How many keys one pass of compaction may hold; a key takes 24 bytes in Kafka, here more, hence the limit."""
        fit = int(self.log_cleaner_dedupe_buffer_size * self.log_cleaner_io_buffer_load_factor) // 24
        return max(1, min(fit, 250_000))

    def describe(self) -> list[Described]:
        """Returns all settings of this broker, as DescribeConfigs answers them."""
        rows = []
        for row in BROKER_SETTINGS:
            found = self._explained_by(row.name, _chain(row.name))
            rows.append(described(row, getattr(self, row.field), tuple(found), read_only=row.read_only))
        if self.listener_values or self.dynamic_listener_values:
            rows += self._describe_listeners()
        return rows

    def _describe_listeners(self) -> Iterator[Described]:
        """Yields the settings of listeners that somebody has set; secrets have no value."""
        from kohort.broker.security.listener_settings import is_dynamic, is_secret

        layers = (
            (self.dynamic_listener_values, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.listener_values, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for name in sorted({**self.listener_values, **self.dynamic_listener_values}):
            names = (
                name,
                _without_listener(name, self.listener_values),
            )  # the plain one holds if there is no other
            found = tuple(
                DescribedSynonym(each, values[each], source)
                for each in names
                for values, source in layers
                if each is not None and each in values
            )
            doc = "A security setting of listeners."
            row = Setting(name, Kind.STRING, None, None, doc, sensitive=is_secret(name))
            yield described(row, found[0].value, found, read_only=not is_dynamic(name))

    def describe_defaults(self) -> list[Described]:
        """Returns the settings for all brokers (resource name empty): only those that were set."""
        rows = []
        for name, text in sorted(self._of_all_brokers().items()):
            row = BROKER_SETTINGS[name]
            source = DescribedSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            rows.append(described(row, row.parse(text), (source,), read_only=row.read_only))
        return rows

    def describe_topic(self, overrides: Mapping[str, str]) -> list[Described]:
        """Returns all settings of a topic with these overrides, as DescribeConfigs answers them."""
        config = TopicConfig.parse(overrides, self.topic_defaults)
        rows = []
        for row in TOPIC_SETTINGS:
            value = getattr(config, row.field)
            names = tuple(synonym.name for synonym in row.synonyms)
            found = self._explained_by(names[0], names) if names else []
            if row.name in overrides:
                found.insert(0, DescribedSynonym(row.name, as_text(value), ConfigSource.DYNAMIC_TOPIC_CONFIG))
            rows.append(described(row, value, tuple(found), read_only=False))
        return rows

    def describe_group(self, overrides: Mapping[str, str]) -> list[Described]:
        """Returns all settings of a group with these overrides, as DescribeConfigs answers them."""
        values = group_values(self, overrides)
        rows = []
        for row in GROUP_SETTINGS:
            value = values[row.field]
            found = list(self._synonyms(tuple(synonym.name for synonym in row.synonyms)))
            if not row.synonyms and row.default is not None:
                found = [DescribedSynonym(row.name, as_text(row.default), ConfigSource.DEFAULT_CONFIG)]
            if row.name in overrides:
                found.insert(0, DescribedSynonym(row.name, as_text(value), ConfigSource.DYNAMIC_GROUP_CONFIG))
            rows.append(described(row, value, tuple(found), read_only=False))
        return rows

    def _of_all_brokers(self) -> dict[str, str]:
        """Returns the settings for all brokers; a new Kafka 4 has min.insync.replicas there, and clients check it."""
        name = "min.insync.replicas"
        text = self.static_values.get(name, as_text(BROKER_SETTINGS[name].default) or "")
        return {name: text, **self.dynamic_defaults}

    def _explained_by(self, name: str, names: tuple[str, ...]) -> list[DescribedSynonym]:
        """Returns the synonyms from `name` itself on, as Kafka: retention.ms does not show log.retention.hours."""
        return list(dropwhile(lambda synonym: synonym.name != name, self._synonyms(names)))

    def _synonyms(self, names: tuple[str, ...]) -> Iterator[DescribedSynonym]:
        for values, source in (
            (self.dynamic_values, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._of_all_brokers(), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static_values, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            for name in names:
                if name in values:
                    yield DescribedSynonym(name, values[name], source)
        for name in names:
            default = BROKER_SETTINGS[name].default
            if default is not None:
                yield DescribedSynonym(name, as_text(default), ConfigSource.DEFAULT_CONFIG)

    def _check(self) -> None:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise SettingError(
                "group.max.session.timeout.ms must be greater than or equal to group.min.session.timeout.ms"
            )
        check_bounds(self)
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            raise SettingError(
                "max.connections.per.ip of 0 would refuse every client; set it to at least 1, or say who may connect: "
                "max.connections.per.ip.overrides=127.0.0.1:100"
            )
        if self.default_replication_factor > 1:
            raise SettingError("default.replication.factor must be 1: a single node holds one copy")


BROKER_SETTINGS: Table[BrokerConfig] = Table(BrokerConfig, "broker")


def _is_inert(name: str) -> bool:
    """Tells whether Kafka knows the setting and Kohort does not even list it."""
    known = kafka_settings.is_inert(name) or kafka_settings.is_refused(name)
    return known and name not in BROKER_SETTINGS.settings


def _is_of_a_listener(name: str) -> bool:
    """Tells whether the security of listeners reads the setting (broker/security), and no row has it."""
    return kafka_settings.is_of_security(name) and name not in BROKER_SETTINGS.settings


def _without_listener(name: str, plain: Mapping[str, str]) -> str | None:
    """Returns the setting that a listener's own one takes the place of, if it is among these."""
    return next(
        (each for each in plain if name.startswith("listener.name.") and name.endswith(f".{each}")), None
    )


def _with_one_id(static: Mapping[str, str]) -> dict[str, str]:
    """Makes node.id and broker.id the same: they are one setting with two names."""
    values = dict(static)
    given = {values[name].strip() for name in ("node.id", "broker.id") if name in values}
    if len(given) > 1:
        raise SettingError("You must set node.id to the same value as broker.id, or leave broker.id out.")
    for text in given:
        values["node.id"] = values["broker.id"] = text
    return values


def _chain(name: str) -> tuple[str, ...]:
    """Returns the broker settings that are alternatives of each other (log.retention.ms, .minutes, .hours)."""
    for row in TOPIC_SETTINGS.settings.values():
        names = tuple(synonym.name for synonym in row.synonyms)
        if name in names:
            return names
    return (name,)


def _topic_defaults(config: BrokerConfig) -> TopicConfig:
    values: Any = {}
    for row in TOPIC_SETTINGS.settings.values():
        for synonym in row.synonyms:
            value = getattr(config, synonym.name.replace(".", "_"))
            if value is not None:
                values[row.field] = _in_unit_of(row, synonym.name, value, synonym.factor)
                break
    return TopicConfig(**values)


def _in_unit_of(row: Setting, name: str, value: Any, factor: int) -> Value:
    if factor > 1:
        value = value * factor if value >= 0 else -1
    wrong = row.check(value) if row.check else None
    if row.name == "retention.ms" and value == 0:
        wrong = "must be unlimited (-1) or at least 1"
    if wrong is not None:
        raise SettingError(f"Invalid value {value} for configuration {name}: {wrong}")
    result: Value = value
    return result
