"""Finds groups that rebalance again and again, and what to do about the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kohort.coordinator.history import Rebalance

WINDOW_MS = 600_000
MANY = 4
"""So many rebalances within the window are too many: a deployment of a few members takes two or three."""


class RebalanceCause(StrEnum):
    """What makes a group rebalance, as far as the words of a rebalance tell it."""

    SLOW_POLL = "a member did not poll in time"
    SESSION = "a member sent no heartbeat in time"
    LATE = "a member was late to join or to sync"
    LEFT = "members leave"
    CAME = "members join"
    CHANGED = "members change, or topics do"


ADVICE = {
    RebalanceCause.SLOW_POLL: "The work between two polls takes longer than max.poll.interval.ms: raise it, lower"
    " max.poll.records, or hand the work to other threads and pause the partitions meanwhile.",
    RebalanceCause.SESSION: "The process stood still, died or lost the network for session.timeout.ms: look for long"
    " pauses (memory, CPU limits), killed processes and lost connections before you raise it.",
    RebalanceCause.LATE: "A member works for too long before it polls again: lower max.poll.records, or raise"
    " max.poll.interval.ms, which is the time that a rebalance waits for it.",
    RebalanceCause.LEFT: "Members close and start again and again: look at their logs and at what restarts them. With"
    " group.instance.id a restart within session.timeout.ms causes no rebalance.",
    RebalanceCause.CAME: "Members come again and again: look at what starts them. With group.instance.id a restart"
    " within session.timeout.ms causes no rebalance.",
    RebalanceCause.CHANGED: "Subscriptions or topics change often: compare the members' subscriptions and patterns, and"
    " metadata.max.age.ms if topics come and go.",
}
_WORDS = (
    (RebalanceCause.SLOW_POLL, ("poll timeout", "max.poll.interval", "poll was not called")),
    (RebalanceCause.SESSION, ("session expired", "without a heartbeat")),
    (RebalanceCause.LATE, ("did not rejoin in time", "did not sync in time", "was parked")),
    (RebalanceCause.LEFT, (" left", " went", "came anew in place")),
)


@dataclass(frozen=True, slots=True)
class RepeatedRebalances:
    """Too many rebalances: how many in which time, and their causes, the most frequent first."""

    count: int
    span_ms: int
    causes: tuple[tuple[RebalanceCause, int], ...]
    last: Rebalance

    def sentence(self) -> str:
        """Describes them in one line."""
        causes = ", ".join(f"{cause} ({count})" for cause, count in self.causes)
        return f"{self.count} rebalances in {max(1, round(self.span_ms / 60_000))} min: {causes}"

    @property
    def advice(self) -> str:
        """What to do about the worst cause: one that names a fault, before members that come and go."""
        found = {cause for cause, _ in self.causes}
        return ADVICE[next(cause for cause in RebalanceCause if cause in found)]


def cause_of(rebalance: Rebalance) -> RebalanceCause:
    """Reads the cause off the words of a rebalance, Kohort's or those concluded from `__consumer_offsets`."""
    said = " ".join((rebalance.reason, *(why for _, why in rebalance.went))).lower()
    for cause, words in _WORDS:
        if any(word in said for word in words):
            return cause
    return RebalanceCause.CAME if rebalance.came else RebalanceCause.CHANGED


def repeated_rebalances(
    rebalances: Sequence[Rebalance], now_ms: int, *, window_ms: int = WINDOW_MS, many: int = MANY
) -> RepeatedRebalances | None:
    """Returns what is wrong with a group that has rebalanced too often before `now_ms`; None if it has not."""
    recent = [each for each in rebalances if now_ms - window_ms <= each.began_ms <= now_ms + window_ms]
    if len(recent) < many:
        return None
    causes = Counter(cause_of(each) for each in recent)
    span_ms = recent[-1].began_ms - recent[0].began_ms
    return RepeatedRebalances(len(recent), span_ms, tuple(causes.most_common()), recent[-1])
