"""Defines the settings that a group can have of its own, with Kafka's names.

The broker's settings are their defaults and limits. A value outside of the limits is refused. If the limits change
later, the value is capped while it is used, and stays as it was set.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohort.broker import names
from kohort.coordinator.group_config import GroupConfig
from kohort.settings import Kind, SettingError, Synonym, Table, Value, at_least, one_of, setting

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.config import BrokerConfig

log = logging.getLogger("kohort.broker")

_DURATION = re.compile(
    r"by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{0,9})?S)?)?",
    re.IGNORECASE,
)


def _of_broker(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"group.{name}"),)


def _check_reset(value: str) -> str | None:
    if value in ("earliest", "latest") or _DURATION.fullmatch(value):
        return None
    return (
        f"Invalid value `{value}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
        "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _check_topic(value: str) -> str | None:
    return names.what_is_wrong(value) if value else None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The table of these settings. `group_config` makes the values that are in force of them."""

    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms", Kind.INT, 45_000, at_least(1),
        "A member that sends no heartbeat for this long is removed.",
        synonyms=_of_broker("consumer.session.timeout.ms"),
    )  # fmt: skip
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms", Kind.INT, 5_000, at_least(1), "How often members send heartbeats.",
        synonyms=_of_broker("consumer.heartbeat.interval.ms"),
    )  # fmt: skip
    consumer_assignment_interval_ms: int = setting(
        "consumer.assignment.interval.ms", Kind.INT, 1_000, at_least(0), "The least time between two assignments.",
        synonyms=_of_broker("consumer.assignment.interval.ms"),
    )  # fmt: skip
    share_session_timeout_ms: int = setting(
        "share.session.timeout.ms", Kind.INT, 45_000, at_least(1),
        "A member of a share group that sends no heartbeat for this long is removed.",
        synonyms=_of_broker("share.session.timeout.ms"),
    )  # fmt: skip
    share_heartbeat_interval_ms: int = setting(
        "share.heartbeat.interval.ms", Kind.INT, 5_000, at_least(1),
        "How often members of a share group send heartbeats.",
        synonyms=_of_broker("share.heartbeat.interval.ms"),
    )  # fmt: skip
    share_assignment_interval_ms: int = setting(
        "share.assignment.interval.ms", Kind.INT, 1_000, at_least(0),
        "The least time between two assignments of a share group.",
        synonyms=_of_broker("share.assignment.interval.ms"),
    )  # fmt: skip
    share_record_lock_duration_ms: int = setting(
        "share.record.lock.duration.ms", Kind.INT, 30_000, at_least(1_000),
        "How long a member has a record for itself; then another one may get it.",
        synonyms=_of_broker("share.record.lock.duration.ms"),
    )  # fmt: skip
    share_delivery_count_limit: int = setting(
        "share.delivery.count.limit", Kind.INT, 5, at_least(2), "How often a record is delivered at most.",
        synonyms=_of_broker("share.delivery.count.limit"),
    )  # fmt: skip
    share_partition_max_record_locks: int = setting(
        "share.partition.max.record.locks", Kind.INT, 2_000, at_least(100),
        "How many records of a partition are in flight at most.",
        synonyms=_of_broker("share.partition.max.record.locks"),
    )  # fmt: skip
    share_auto_offset_reset: str = setting(
        "share.auto.offset.reset", Kind.STRING, "latest", _check_reset,
        "Where a share group begins in a partition: earliest, latest, or by_duration:PnDTnHnMn.nS before now.",
    )  # fmt: skip
    share_isolation_level: str = setting(
        "share.isolation.level", Kind.STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
        "Whether records of open and aborted transactions are delivered.",
    )  # fmt: skip
    share_renew_acknowledge_enable: bool = setting(
        "share.renew.acknowledge.enable", Kind.BOOLEAN, True, None,
        "Whether a member may renew its lock of a record.",
    )  # fmt: skip
    share_dlq_topic: str | None = setting(
        "share.dlq.topic", Kind.STRING, None, _check_topic,
        "Kohort's own: the topic to which records are copied that were delivered too often.",
    )  # fmt: skip


GROUP_SETTINGS: Table[GroupSettings] = Table(GroupSettings, "group")
_BOUNDED = tuple(row for row in GROUP_SETTINGS.settings.values() if row.synonyms)


def _limit_names(name: str) -> tuple[str, str]:
    """Returns the broker settings that are the lowest and the highest value of a group setting."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def _value_of(config: BrokerConfig, name: str) -> int:
    value: int = getattr(config, name.replace(".", "_"))
    return value


def check_bounds(config: BrokerConfig) -> None:
    """Raises SettingError if the broker's own values are not within the limits that it sets for groups."""
    for row in _BOUNDED:
        low, high = _limit_names(row.name)
        name = row.synonyms[0].name
        for larger, smaller in ((high, name), (name, low)):
            if _value_of(config, larger) < _value_of(config, smaller):
                raise SettingError(f"{larger} must be greater than or equal to {smaller}")
    for kind in ("consumer", "share"):
        session, heartbeat = f"group.{kind}.session.timeout.ms", f"group.{kind}.heartbeat.interval.ms"
        if _value_of(config, heartbeat) >= _value_of(config, session):
            raise SettingError(f"{heartbeat} must be less than {session}")
    if config.group_share_max_share_sessions < config.group_share_max_size:
        raise SettingError(
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size"
        )


def group_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Returns the values of a group by the names of their fields; SettingError if one of them is wrong."""
    values: dict[str, Value] = {row.field: row.default for row in GROUP_SETTINGS.settings.values()}
    for row in _BOUNDED:
        values[row.field] = _value_of(config, row.synonyms[0].name)
    values |= GROUP_SETTINGS.read(overrides)
    return values


def check_group(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Raises SettingError, in Kafka's words, if a group may not have these settings."""
    values: Any = group_values(config, overrides)
    for row in _BOUNDED:
        low, high = _limit_names(row.name)
        if values[row.field] < _value_of(config, low):
            raise SettingError(f"{row.name} must be greater than or equal to {low}")
        if values[row.field] > _value_of(config, high):
            raise SettingError(f"{row.name} must be less than or equal to {high}")
    for kind in ("consumer", "share"):
        if values[f"{kind}_session_timeout_ms"] <= values[f"{kind}_heartbeat_interval_ms"]:
            raise SettingError(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def group_config(config: BrokerConfig, overrides: Mapping[str, str], group_id: str = "") -> GroupConfig:
    """Returns the values in force: what the group has set, capped to the limits, else what the broker has."""
    known = {name: text for name, text in overrides.items() if name in GROUP_SETTINGS.settings}
    values: Any = group_values(config, known)
    for row in _BOUNDED:
        low, high = (_value_of(config, name) for name in _limit_names(row.name))
        capped = min(max(values[row.field], low), high)
        if capped != values[row.field]:
            log.warning(
                "group %s: %s is %s, which is outside of the broker's limits; %s is in force",
                group_id, row.name, values[row.field], capped,
            )  # fmt: skip
            values[row.field] = capped
    values["share_dlq_topic"] = values["share_dlq_topic"] or None
    return GroupConfig(**values)


class GroupConfigs:
    """The settings in force of all groups. They are made when somebody asks, and kept until something changes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made_of: BrokerConfig | None = None
        self._default = GroupConfig()
        self._own: dict[str, GroupConfig] = {}

    def of(self, group_id: str) -> GroupConfig:
        config = self._broker.config
        if config is not self._made_of:
            self._made_of, self._default = config, group_config(config, {})
            self._own.clear()
        overrides = self._broker.store.group_configs.get(group_id)
        if overrides is None:
            return self._default
        found = self._own.get(group_id)
        if found is None:
            found = self._own[group_id] = group_config(config, overrides, group_id)
        return found

    def changed(self, group_id: str) -> None:
        self._own.pop(group_id, None)
