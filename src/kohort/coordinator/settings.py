"""The settings of the group coordinator, with Kafka's names and defaults, and the partition of a group."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.wire.java_hash import partition_of

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """Kafka's settings for groups; `group.min.session.timeout.ms` is `group_min_session_timeout_ms`, and so on."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT32_MAX
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    group_consumer_max_size: int = INT32_MAX
    group_share_max_size: int = 200
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    # This is a constant in Kafka: how long a JoinGroup of a member that never finished a rebalance may stay parked.
    # Such a member has no id yet and cannot send heartbeats.
    new_member_join_timeout_ms: int = 300_000
    # How many rebalances of a group are remembered for people.
    history_length: int = 32

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members becomes a consumer group when a member of KIP-848 joins it."""
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group becomes a classic one when its last member of KIP-848 is gone."""
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "downgrade")

    @property
    def may_migrate(self) -> bool:
        return self.group_consumer_migration_policy.lower() != "disabled"

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


partition_for = partition_of
"""Returns the partition of `__consumer_offsets` that holds a group."""
