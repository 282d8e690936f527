"""The health of a group by the rules of Burrow, which need no thresholds of lag.

Burrow reads every commit; samples show only those that move an offset. So these rules differ from Burrow's in two ways:
- A commit is a change of the committed offset from one sample to the next.
- An offset that does not move is a STALL if a member owns the partition (it lives, and gets nowhere), and a STOP if
  nobody does. Burrow tells the two apart by commits that repeat an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

COMMITS = 10
"""A partition is judged by its last commits, so many of them."""
FEWEST_COMMITS = 5
"""A lag that grows is a WARN after so many commits; two or three may grow by chance."""
PATIENCE_MS = 60_000
"""A committed offset that has not moved for a shorter time says nothing: consumers commit every few seconds."""


class Health(StrEnum):
    """How a partition or a group does."""

    OK = "OK"
    """It keeps up, or nothing else can be said yet."""
    WARN = "WARN"
    """It reads, and its lag grows."""
    ERR = "ERR"
    """Of a group: some of its partitions are in STOP, STALL or REWIND, and others are not."""
    STOP = "STOP"
    """Nobody reads, while there is something to read."""
    STALL = "STALL"
    """A member owns it and gets nowhere, while there is something to read."""
    REWIND = "REWIND"
    """It went back to an earlier offset, and has not come back to where it was."""
    NOTFOUND = "NOTFOUND"
    """Nothing is known: nothing is committed, or the topic is gone."""


BAD = (Health.STOP, Health.STALL, Health.REWIND)


class OffsetPoint(NamedTuple):
    """What a sample says of a partition."""

    at_ms: int
    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def partition_health(points: Sequence[OffsetPoint], now_ms: int, *, is_owned: bool) -> Health:
    """Judges a partition by its points, oldest first; `is_owned` says whether a member owns it now."""
    if not points or points[-1].lag is None:
        return Health.NOTFOUND
    known = [point for point in points if point.lag is not None]
    if known[-1].lag == 0:
        return Health.OK
    commits = commits_in(known)[-COMMITS:]
    # What was before the first of these commits is forgotten.
    recent = [point for point in known if point.at_ms >= commits[0].at_ms]
    if _stands_still(commits, now_ms) and not _was_at_the_end(recent):
        return Health.STALL if is_owned else Health.STOP
    if _went_back(commits):
        return Health.REWIND
    if all(point.lag for point in recent) and _falls_behind(commits):
        return Health.WARN
    return Health.OK


def group_health(partitions: Iterable[Health]) -> Health:
    """Judges a group by its partitions: the worst of them, and ERR where some are bad and not all in the same way."""
    known = [each for each in partitions if each is not Health.NOTFOUND]
    if not known:
        return Health.NOTFOUND
    if any(each in BAD for each in known):
        return known[0] if len(set(known)) == 1 else Health.ERR
    return Health.WARN if Health.WARN in known else Health.OK


def commits_in(points: Sequence[OffsetPoint]) -> list[OffsetPoint]:
    """Returns the first point, and those whose committed offset is not that of the point before."""
    return [point for n, point in enumerate(points) if n == 0 or point.committed != points[n - 1].committed]


def _stands_still(commits: Sequence[OffsetPoint], now_ms: int) -> bool:
    """Whether there was no commit for longer than the last commits took together (Burrow's rule 3)."""
    last_ms = commits[-1].at_ms
    return now_ms - last_ms > max(PATIENCE_MS, last_ms - commits[0].at_ms)


def _was_at_the_end(recent: Sequence[OffsetPoint]) -> bool:
    """Whether the last committed offset was the end of the log a short while ago: then nothing is wrong yet."""
    patience_ms = recent[-1].at_ms - PATIENCE_MS
    committed = recent[-1].committed
    assert committed is not None
    return any(
        point.end is not None and point.end <= committed for point in recent if point.at_ms >= patience_ms
    )


def _went_back(commits: Sequence[OffsetPoint]) -> bool:
    """Whether an offset went down and has not been reached again since (rule 2)."""
    highest = -1
    for point in commits:
        assert point.committed is not None
        highest = max(highest, point.committed)
    last = commits[-1].committed
    assert last is not None
    return last < highest


def _falls_behind(commits: Sequence[OffsetPoint]) -> bool:
    """Whether the lag has grown, and never shrunk from one commit to the next (rule 5)."""
    lags = [point.lag or 0 for point in commits]
    never_shrinks = all(before <= after for before, after in pairwise(lags))
    return len(lags) >= FEWEST_COMMITS and never_shrinks and lags[-1] > lags[0]
