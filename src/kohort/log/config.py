"""Defines the settings of a topic, with Kafka's names, defaults and limits.

Settings that a single node has no use for (replication throttles, tiered storage) are accepted and listed as by Kafka,
because clients send and compare them; tiered storage cannot be switched on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.settings import (
    LONG_MAX,
    Kind,
    Setting,
    SettingError,
    Synonym,
    Table,
    at_least,
    between,
    list_of,
    one_of,
    setting,
)

MIB = 1 << 20
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _log(*names: str) -> tuple[Synonym, ...]:
    """Returns the broker settings under `log.` with these names, the most precise unit first."""
    factors = {"minutes": MINUTE_MS, "hours": HOUR_MS}
    return tuple(Synonym(f"log.{name}", factors.get(name.rsplit(".", 1)[-1], 1)) for name in names)


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def _only_false(value: bool) -> str | None:
    return "Tiered storage is not available on this broker; leave it false" if value else None


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic, parsed. `TopicConfig.parse(overrides, defaults)` makes one."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", Kind.LIST, ("delete",), list_of("compact", "delete"),
        "What is done with old records: delete them, or keep the last one of each key (compact), or both.",
        synonyms=_log("cleanup.policy"),
    )  # fmt: skip
    compression_gzip_level: int = setting(
        "compression.gzip.level", Kind.INT, -1, between(1, 9, or_equal=-1),
        "The level if compression.type is gzip.", synonyms=_same("compression.gzip.level"),
    )  # fmt: skip
    compression_lz4_level: int = setting(
        "compression.lz4.level", Kind.INT, 9, between(1, 17),
        "The level if compression.type is lz4.", synonyms=_same("compression.lz4.level"),
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", Kind.STRING, "producer", one_of(*COMPRESSION_TYPES),
        "The codec batches are stored with; `producer` stores them as they came.",
        synonyms=_same("compression.type"),
    )  # fmt: skip
    compression_zstd_level: int = setting(
        "compression.zstd.level", Kind.INT, 3, between(-131072, 22),
        "The level if compression.type is zstd.", synonyms=_same("compression.zstd.level"),
    )  # fmt: skip
    delete_retention_ms: int = setting(
        "delete.retention.ms", Kind.LONG, DAY_MS, at_least(0),
        "How long a tombstone of a compacted topic stays readable.",
        synonyms=_log("cleaner.delete.retention.ms"),
    )  # fmt: skip
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms", Kind.LONG, MINUTE_MS, at_least(0),
        "Accepted; the files are deleted at once, and a fetch that is reading one reads it to the end.",
        synonyms=_log("segment.delete.delay.ms"),
    )  # fmt: skip
    flush_messages: int = setting(
        "flush.messages", Kind.LONG, LONG_MAX, at_least(1),
        "Accepted; here `durability` decides when records reach the disk.",
        synonyms=_log("flush.interval.messages"),
    )  # fmt: skip
    flush_ms: int = setting(
        "flush.ms", Kind.LONG, LONG_MAX, at_least(0),
        "Accepted; here `durability` decides when records reach the disk.",
        synonyms=_log("flush.interval.ms", "flush.scheduler.interval.ms"),
    )  # fmt: skip
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas", Kind.LIST, (), None,
        "Accepted; a single node does not replicate.",
    )  # fmt: skip
    index_interval_bytes: int = setting(
        "index.interval.bytes", Kind.INT, 4096, at_least(0),
        "About how many bytes of log lie between two entries of the offset index.",
        synonyms=_log("index.interval.bytes"),
    )  # fmt: skip
    internal_segment_bytes: int | None = setting(
        "internal.segment.bytes", Kind.INT, None, at_least(1),
        "Segment size without the lower limit; for tests.", internal=True,
    )  # fmt: skip
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas", Kind.LIST, (), None,
        "Accepted; a single node does not replicate.",
    )  # fmt: skip
    local_retention_bytes: int = setting(
        "local.retention.bytes", Kind.LONG, -2, at_least(-2),
        "Accepted; only tiered storage would use it.", synonyms=_log("local.retention.bytes"),
    )  # fmt: skip
    local_retention_ms: int = setting(
        "local.retention.ms", Kind.LONG, -2, at_least(-2),
        "Accepted; only tiered storage would use it.", synonyms=_log("local.retention.ms"),
    )  # fmt: skip
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", Kind.LONG, LONG_MAX, at_least(1),
        "After this time a record is compacted even if the dirty ratio is low.",
        synonyms=_log("cleaner.max.compaction.lag.ms"),
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", Kind.INT, MIB + 12, at_least(0),
        "The largest record batch a producer may send, as it comes.", synonyms=_same("message.max.bytes"),
    )  # fmt: skip
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", Kind.LONG, HOUR_MS, at_least(0),
        "How far in the future a CreateTime timestamp may lie.",
        synonyms=_log("message.timestamp.after.max.ms"),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", Kind.LONG, LONG_MAX, at_least(0),
        "How far in the past a CreateTime timestamp may lie.",
        synonyms=_log("message.timestamp.before.max.ms"),
    )  # fmt: skip
    message_timestamp_type: str = setting(
        "message.timestamp.type", Kind.STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whether records carry the producer's time or the broker's.", synonyms=_log("message.timestamp.type"),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5, between(0, 1),
        "The share of not yet compacted bytes from which on a compaction is worth it.",
        synonyms=_log("cleaner.min.cleanable.ratio"),
    )  # fmt: skip
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", Kind.LONG, 0, at_least(0),
        "A record younger than this is not compacted.", synonyms=_log("cleaner.min.compaction.lag.ms"),
    )  # fmt: skip
    min_insync_replicas: int = setting(
        "min.insync.replicas", Kind.INT, 1, at_least(1),
        "How many replicas must have a record before acks=all is answered.",
        synonyms=_same("min.insync.replicas"),
    )  # fmt: skip
    preallocate: bool = setting(
        "preallocate", Kind.BOOLEAN, False, None,
        "Accepted; segment files grow as they are written.", synonyms=_log("preallocate"),
    )  # fmt: skip
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable", Kind.BOOLEAN, False, None, "Accepted; only tiered storage would use it."
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        False,
        None,
        "Accepted; only tiered storage would use it.",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable", Kind.BOOLEAN, False, _only_false, "Tiered storage; always false here."
    )
    retention_bytes: int = setting(
        "retention.bytes", Kind.LONG, -1, None,
        "The size a partition may have before its oldest segments are deleted; -1 is no limit.",
        synonyms=_log("retention.bytes"),
    )  # fmt: skip
    retention_ms: int = setting(
        "retention.ms", Kind.LONG, 7 * DAY_MS, at_least(-1),
        "How long records are kept before their segment is deleted; -1 is for ever.",
        synonyms=_log("retention.ms", "retention.minutes", "retention.hours"),
    )  # fmt: skip
    segment_bytes: int = setting(
        "segment.bytes", Kind.INT, 1024 * MIB, at_least(MIB),
        "The size at which a new segment is begun.", synonyms=_log("segment.bytes"),
    )  # fmt: skip
    segment_index_bytes: int = setting(
        "segment.index.bytes", Kind.INT, 10 * MIB, at_least(4),
        "The size of an index at which a new segment is begun.", synonyms=_log("index.size.max.bytes"),
    )  # fmt: skip
    segment_jitter_ms: int = setting(
        "segment.jitter.ms", Kind.LONG, 0, at_least(0),
        "At most this much is taken off segment.ms, differently for each partition.",
        synonyms=_log("roll.jitter.ms", "roll.jitter.hours"),
    )  # fmt: skip
    segment_ms: int = setting(
        "segment.ms", Kind.LONG, 7 * DAY_MS, at_least(1),
        "The age at which a new segment is begun even if the old one is small.",
        synonyms=_log("roll.ms", "roll.hours"),
    )  # fmt: skip
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", Kind.BOOLEAN, False, None,
        "Accepted; a single node has no elections.", synonyms=_same("unclean.leader.election.enable"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise SettingError(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms})"
                f" > max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )

    @staticmethod
    def parse(overrides: Mapping[str, str], defaults: TopicConfig | None = None) -> TopicConfig:
        """Returns the settings of a topic with these overrides; SettingError says what is wrong (INVALID_CONFIG).

        Without overrides `defaults` itself is returned, so that ten thousand topics share one object.
        """
        if defaults is not None and not overrides:
            return defaults
        return TOPIC_SETTINGS.parse(overrides, defaults)

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def segment_size(self) -> int:
        """The size in bytes at which a segment is full."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is closed; in a compacted topic at most the compaction lag."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms


TOPIC_SETTINGS: Table[TopicConfig] = Table(TopicConfig, "topic")


def broker_row(topic_name: str, broker_name: str) -> Setting:
    """Returns the broker setting that gives a topic setting its default: the same limits under another name.

    Of several synonyms the last one has the default; limits are checked once it is known which one is in force.
    """
    row = TOPIC_SETTINGS[topic_name]
    factor = next(synonym.factor for synonym in row.synonyms if synonym.name == broker_name)
    first, last = row.synonyms[0].name, row.synonyms[-1].name
    if first == last:
        return Setting(broker_name, row.kind, row.default, row.check, row.doc)
    assert isinstance(row.default, int)
    default = row.default // factor if broker_name == last else None
    kind = row.kind if factor == 1 else Kind.INT
    return Setting(broker_name, kind, default, None, row.doc, read_only=broker_name != first)
