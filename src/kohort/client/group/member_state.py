"""The states of a group member, the table of which may follow which, and the value that describes a member."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kohort.client.core.operation import Operation
from kohort.client.group.leadership import Election, Snapshot

NO_GENERATION = -1


class MemberState(Enum):
    """Where a member stands between its first poll and its last."""

    UNJOINED = "not a member; the next poll joins"
    PREPARING = "about to join: waits for the coordinator, a commit, a backoff"
    JOINING = "JoinGroup is under way"
    ASSIGNING = "the leader waits for metadata of the group's topics"
    SYNCING = "SyncGroup is under way"
    CALLING_BACK = "the user's callback is to run"
    STABLE = "a member that has its assignment"
    LEAVING = "LeaveGroup is under way"
    FENCED = "another consumer took the group.instance.id; this is final"


_ANYTIME = frozenset(
    {MemberState.UNJOINED, MemberState.CALLING_BACK, MemberState.LEAVING, MemberState.FENCED}
)
"""Ownership may end at any time: by the broker, by the clock, by the user."""

TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    MemberState.UNJOINED: _ANYTIME | {MemberState.PREPARING},
    MemberState.PREPARING: _ANYTIME | {MemberState.JOINING},
    MemberState.JOINING: _ANYTIME | {MemberState.PREPARING, MemberState.ASSIGNING, MemberState.SYNCING},
    MemberState.ASSIGNING: _ANYTIME | {MemberState.PREPARING, MemberState.SYNCING},
    MemberState.SYNCING: _ANYTIME | {MemberState.PREPARING, MemberState.STABLE},
    MemberState.CALLING_BACK: _ANYTIME | {MemberState.PREPARING, MemberState.STABLE},
    MemberState.STABLE: _ANYTIME | {MemberState.PREPARING},
    MemberState.LEAVING: _ANYTIME | {MemberState.PREPARING},
    MemberState.FENCED: frozenset(),
}

UNDER_WAY = (MemberState.PREPARING, MemberState.JOINING, MemberState.ASSIGNING, MemberState.SYNCING)
"""A join has begun and goes on by itself."""


@dataclass(frozen=True, slots=True)
class JoinedGeneration:
    """The generation that the last answered JoinGroup put this member into."""

    generation_id: int
    protocol_name: str | None
    is_leader: bool = False
    assigned_from: Snapshot | None = None
    """What the leader's assignment was made from; it rejoins when this changes."""


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """How this member came to be in no generation."""

    reason: str
    lost: bool = True
    """Whether other members may have its partitions already."""
    overdue_since_ms: int | None = None
    """The last poll, if the member left because no other poll came in time."""


class AfterCallbacks(Enum):
    """What follows when the callbacks that are to run now have returned."""

    JOIN = "the join goes on"
    SETTLE = "the assignment is complete"
    LOSE = "what the fenced member still owns is lost"
    FENCE = "the member stays fenced"


@dataclass(frozen=True, slots=True)
class PendingLeave:
    """A leave that waits until the callbacks have returned."""

    reason: str
    operation: Operation[None]
    was_joining: bool


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """Everything that decides what a member does next. It is replaced as a whole, never changed."""

    state: MemberState = MemberState.UNJOINED
    member_id: str = ""
    generation: JoinedGeneration | None = None
    attempt: int = 0
    """Counts joins and what makes them void: an answer to an earlier attempt comes too late."""
    rejoin_reason: str | None = ""
    """Why a join is needed or under way, empty for the first one. None: nothing speaks for a rejoin."""
    prepared: bool = False
    """Whether the commit and the callbacks before the next join are done."""
    metadata_after: int | None = None
    """A subscription by pattern joins only with metadata that is newer than this version."""
    joined_topics: frozenset[str] | None = None
    """The subscription that the last JoinGroup told the group."""
    election: Election | None = None
    """What the leader owes its generation, while it is ASSIGNING."""
    after_callbacks: AfterCallbacks | PendingLeave | None = None
    """What follows CALLING_BACK."""
    failures: int = 0
    """Joins in a row that failed."""
    retry_at_ms: int = 0
    """No join is sent before this."""
    ended: GenerationEnd | None = None
    error: Exception | None = None
    """What the next poll raises."""
    fenced: Exception | None = None
    """What every poll raises because another consumer took this one's place."""

    @property
    def generation_id(self) -> int:
        return NO_GENERATION if self.generation is None else self.generation.generation_id

    @property
    def protocol_name(self) -> str | None:
        return None if self.generation is None else self.generation.protocol_name

    @property
    def rejoin_needed(self) -> bool:
        return self.rejoin_reason is not None
