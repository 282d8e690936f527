"""The states of a membership, and which may follow which."""

from __future__ import annotations

from enum import Enum

NO_GENERATION = -1


class State(Enum):
    UNJOINED = "no member; the next poll joins"
    PREPARING = "about to join: waits for the coordinator, a commit, a backoff"
    JOINING = "JoinGroup is under way"
    ASSIGNING = "the leader waits for metadata of the group's topics"
    SYNCING = "SyncGroup is under way"
    CALLING_BACK = "the user's callback is to run"
    STABLE = "a member that has its assignment"
    LEAVING = "LeaveGroup is under way"
    FENCED = "another consumer took the group.instance.id; for good"


_ANYTIME = frozenset({State.UNJOINED, State.CALLING_BACK, State.LEAVING, State.FENCED})
"""Ownership may end at any time: by the broker, by the clock, by the user."""

TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNJOINED: _ANYTIME | {State.PREPARING},
    State.PREPARING: _ANYTIME | {State.JOINING},
    State.JOINING: _ANYTIME | {State.PREPARING, State.ASSIGNING, State.SYNCING},
    State.ASSIGNING: _ANYTIME | {State.PREPARING, State.SYNCING},
    State.SYNCING: _ANYTIME | {State.PREPARING, State.STABLE},
    State.CALLING_BACK: _ANYTIME | {State.PREPARING, State.STABLE},
    State.STABLE: _ANYTIME | {State.PREPARING},
    State.LEAVING: _ANYTIME | {State.PREPARING},
    State.FENCED: frozenset(),
}

UNDER_WAY = (State.PREPARING, State.JOINING, State.ASSIGNING, State.SYNCING)
"""A join has begun and goes on by itself."""
