"""Several samples of a cluster: rates, lag in seconds, the time until a group has caught up. Memory is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kohort.client.types import TopicPartition
from kohort.insight.health import Health, OffsetPoint
from kohort.insight.samples import ClusterSample


@dataclass(frozen=True, slots=True)
class PartitionTrend:
    """How one partition of a group develops."""

    health: Health
    lag: int | None
    lag_seconds: float | None
    """How old the first record is that the group has not read; None if that is not known."""
    consume_rate: float | None
    """Records in a second that the group gets on with; None until there are two samples."""
    produce_rate: float | None
    caught_up_in_s: float | None
    """None if it never will be at these rates, or if the rates are not known yet."""
    series: list[OffsetPoint] = field(default_factory=list)
    """Oldest first."""


@dataclass(frozen=True, slots=True)
class GroupTrend:
    """How a group develops."""

    health: Health
    lag: int
    lag_seconds: float | None
    """The largest of its partitions."""
    consume_rate: float | None
    produce_rate: float | None
    caught_up_in_s: float | None
    partitions: dict[TopicPartition, PartitionTrend] = field(default_factory=dict)
    lag_series: list[tuple[int, int]] = field(default_factory=list)
    """(at_ms, lag), oldest first."""


class Trends:
    """Keeps what samples say: points of the last minutes finely, of the last hours coarsely."""

    def __init__(self) -> None:
        self.latest: ClusterSample | None = None

    def add(self, sample: ClusterSample) -> None:
        """Takes a sample, which must be later than those before; groups that are gone are forgotten."""
        raise NotImplementedError

    def group(self, group_id: str) -> GroupTrend | None:
        """Returns how a group develops, with all its partitions; None if the latest sample does not have it."""
        raise NotImplementedError

    def groups(self) -> dict[str, GroupTrend]:
        """Returns how all groups of the latest sample develop."""
        raise NotImplementedError

    def ends(self, partition: TopicPartition) -> Sequence[tuple[int, int]]:
        """Returns the known (at_ms, end offset) of a partition, oldest first."""
        raise NotImplementedError
