"""The health of a group by the rules of Burrow, which need no thresholds: is the consumer keeping up?"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Health(StrEnum):
    """How a partition or a group does."""

    OK = "OK"
    """It keeps up."""
    WARN = "WARN"
    """It reads, and its lag grows."""
    ERR = "ERR"
    """Of a group: at least one of its partitions stands still (STOP, STALL) or went back (REWIND)."""
    STOP = "STOP"
    """Nothing is committed any more, while there is something to read."""
    STALL = "STALL"
    """It commits, always the same offset, while there is something to read."""
    REWIND = "REWIND"
    """It went back to an earlier offset."""
    NOTFOUND = "NOTFOUND"
    """Nothing is known: it never committed, or its topic is gone."""


class OffsetPoint(NamedTuple):
    """What a sample says of a partition."""

    at_ms: int
    committed: int | None
    end: int | None


def partition_health(points: Sequence[OffsetPoint], now_ms: int) -> Health:
    """Judges a partition by its last points, oldest first."""
    raise NotImplementedError


def group_health(partitions: Sequence[Health]) -> Health:
    """Judges a group by its partitions."""
    raise NotImplementedError
