"""The settings of one group: what AlterConfigs has set for it, else the defaults of the broker."""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator.frozen import frozen


@frozen
class GroupConfig:
    """The values in force for a group, capped to the limits of the broker; names and defaults are Kafka's."""

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_assignment_interval_ms: int = 1_000
    share_record_lock_duration_ms: int = 30_000
    share_delivery_count_limit: int = 5
    share_partition_max_record_locks: int = 2_000
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    share_renew_acknowledge_enable: bool = True
    share_dlq_topic: str | None = None
    """Kohort's own: records over the limit of deliveries are copied to this topic before they are archived."""


GroupConfigOf = Callable[[str], GroupConfig]
"""The settings of a group by its id; they may be others at the next call."""

DEFAULT_GROUP_CONFIG = GroupConfig()
