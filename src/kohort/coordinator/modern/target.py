"""The target assignment: when it may be computed, and the records that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.coordinator.assignors.spec import PartitionsByTopic
from kohort.coordinator.modern.state import Change, ModernState, TargetChange, TargetEpochChange

NOTHING: PartitionsByTopic = {}


def may_compute(computed_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the interval since the last target has passed (KIP-1263); at once if there was none, or no interval."""
    return computed_ms == 0 or interval_ms == 0 or now_ms >= computed_ms + interval_ms


def target_is_due(state: ModernState[Any], interval_ms: int, now_ms: int) -> bool:
    """Whether the group has changed since its target was computed, and may have another one by now."""
    return state.assignment_epoch < state.group_epoch and may_compute(
        state.assignment_timestamp_ms, interval_ms, now_ms
    )


def target_changes(
    state: ModernState[Any],
    members: Iterable[str],
    computed: Mapping[str, PartitionsByTopic],
    now_ms: int,
) -> list[Change]:
    """Returns the changes to a new target of the group's epoch: the members whose target differs, then the epoch.

    Targets of members that are gone are ended. There are none, unless a write of the group has failed.
    """
    old = state.targets
    wanted = {member_id: computed.get(member_id, NOTHING) for member_id in members}
    changes: list[Change] = [TargetChange(gone, None) for gone in old if gone not in wanted]
    changes += [
        TargetChange(member_id, partitions)
        for member_id, partitions in wanted.items()
        if old.get(member_id) != partitions
    ]
    changes.append(TargetEpochChange(state.group_epoch, now_ms))
    return changes
