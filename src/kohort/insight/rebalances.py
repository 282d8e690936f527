"""The last rebalances of a group: from Kohort's history, or what `__consumer_offsets` of any other Kafka tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.client.admin import Admin
from kohort.coordinator.history import Rebalance

KOHORT, OFFSETS_LOG = "kohort", "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class GroupRebalances:
    """The rebalances of a group that are on record, oldest first, and what the record does not hold."""

    group_id: str
    source: str
    """"kohort" or "__consumer_offsets"."""
    rebalances: list[Rebalance]
    """From `__consumer_offsets`, `reason` says what can be concluded, and join_ms and sync_ms are None."""
    unknown: tuple[str, ...] = ()
    """What cannot be known from this source, one sentence each; empty for Kohort's."""


def rebalances_of(admin: Admin, settings: Mapping[str, str], group_id: str) -> GroupRebalances:
    """Reads the rebalances of a group. KohortError if the group does not exist or may not be read."""
    raise NotImplementedError
