"""Defines the settings of a subscription to metrics of clients (KIP-714), the resource CLIENT_METRICS.

Subscriptions are kept, described and listed as by a Kafka without a receiver for these metrics. Like such a Kafka, the
broker does not offer GetTelemetrySubscriptions and PushTelemetry, so that no client spends requests on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.settings import (
    ConfigSource,
    Described,
    DescribedSynonym,
    Kind,
    SettingError,
    Table,
    as_text,
    described,
    list_of,
    setting,
)
from kohort.wire.errors import ErrorCode, KafkaError

LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 100, 3_600_000
_MATCHED = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


@dataclass(frozen=True, slots=True)
class ClientMetricsSettings:
    """The table of these settings."""

    metrics: tuple[str, ...] = setting(
        "metrics", Kind.LIST, (), list_of(), "The beginnings of the names of metrics to push; * is all."
    )
    interval_ms: int = setting("interval.ms", Kind.INT, 300_000, None, "How often clients push.")
    match: tuple[str, ...] = setting(
        "match", Kind.LIST, (), list_of(),
        "Which clients: client_id=…, client_software_name=… and so on, each with a regular expression.",
    )  # fmt: skip


CLIENT_METRICS_SETTINGS: Table[ClientMetricsSettings] = Table(ClientMetricsSettings, "client metrics")


def check_subscription(name: str, values: Mapping[str, str]) -> None:
    """Raises KafkaError if there cannot be a subscription of this name with these values."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in values:
        if key not in CLIENT_METRICS_SETTINGS.settings:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        parsed = CLIENT_METRICS_SETTINGS.parse(values)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not LEAST_INTERVAL_MS <= parsed.interval_ms <= MOST_INTERVAL_MS:
        text = f"Invalid value {parsed.interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    _check_patterns(parsed.match)


def _check_patterns(patterns: Iterable[str]) -> None:
    for each in patterns:
        what, _, pattern = each.partition("=")
        try:
            re.compile(pattern.strip())
            bad = what.strip() not in _MATCHED or not pattern or "=" in pattern
        except re.error:
            bad = True
        if bad:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {each}")


def describe_subscription(values: Mapping[str, str]) -> list[Described]:
    """Returns the settings of a subscription, as DescribeConfigs answers them; of one that is not there, defaults."""
    parsed = CLIENT_METRICS_SETTINGS.parse(values)
    rows = []
    for row in CLIENT_METRICS_SETTINGS:
        value = getattr(parsed, row.field)
        found: tuple[DescribedSynonym, ...] = ()
        if row.name in values:
            source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
            found = (DescribedSynonym(row.name, as_text(value), source),)
        rows.append(described(row, value, found, read_only=False))
    return rows
