"""The states of a member of the consumer protocol (KIP-848), which may follow which, and the value that says all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kohort.client.core.operation import Operation
from kohort.client.types import TopicPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member goes away for a while: its partitions wait for it."""


class ConsumerMembershipState(Enum):
    """Where a member stands, by Kafka's names."""

    UNSUBSCRIBED = "not a member; the next poll joins"
    JOINING = "the heartbeat with epoch 0 is due or under way"
    RECONCILING = "takes over a new assignment: commit, callbacks"
    ACKNOWLEDGING = "has taken it over; the coordinator is to be told"
    STABLE = "a member that has its assignment"
    FENCED = "the coordinator has dropped it: partitions are lost, then it joins again"
    PREPARE_LEAVING = "gives its partitions back before it leaves"
    LEAVING = "the last heartbeat is to be sent"
    STALE = "left because poll was not called in time; the next poll joins"
    FATAL = "the coordinator refuses it for good"


_S = ConsumerMembershipState
_IN_GROUP = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})
_ENDS = frozenset({_S.FENCED, _S.PREPARE_LEAVING, _S.FATAL})
"""Membership may end at any time: by the coordinator, by the clock, by the user."""

CONSUMER_TRANSITIONS: dict[ConsumerMembershipState, frozenset[ConsumerMembershipState]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
    _S.JOINING: _ENDS | {_S.RECONCILING, _S.STABLE},
    _S.RECONCILING: _ENDS | {_S.ACKNOWLEDGING, _S.STABLE},
    _S.ACKNOWLEDGING: _ENDS | {_S.RECONCILING, _S.STABLE},
    _S.STABLE: _ENDS | {_S.RECONCILING},
    _S.FENCED: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.PREPARE_LEAVING: frozenset({_S.LEAVING, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED, _S.STALE}),
    _S.STALE: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.FATAL: frozenset({_S.PREPARE_LEAVING}),
}

AT_ONCE = frozenset({_S.JOINING, _S.ACKNOWLEDGING, _S.LEAVING})
"""The coordinator is to be told something: the heartbeat does not wait for the interval."""

SILENT = frozenset({_S.UNSUBSCRIBED, _S.FENCED, _S.STALE, _S.FATAL})
"""Not in the group: no heartbeat is sent."""

MEMBERS = _IN_GROUP
"""In the group, and about to stay."""


@dataclass(frozen=True, slots=True)
class NumberedAssignment:
    """Partitions by topic id. The number tells two assignments of the same partitions apart."""

    number: int
    partitions: frozenset[tuple[bytes, int]]


class ReconciliationStep(Enum):
    """What a reconciliation waits for."""

    COMMIT = "what was processed is committed"
    REVOKE = "the user is told what goes"
    ASSIGN = "the user is told what comes"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """An assignment that is being taken over. It is finished even if another one comes meanwhile."""

    assignment: NumberedAssignment
    """What the coordinator is told afterwards: the part of the target whose topics have names."""
    partitions: frozenset[TopicPartition]
    """The same by name."""
    step: ReconciliationStep = ReconciliationStep.COMMIT


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """How this member came to be outside of its group."""

    reason: str
    overdue_since_ms: int | None = None
    """The last poll, if the member left because no other poll came in time."""


@dataclass(frozen=True, slots=True)
class ToldFields:
    """What the coordinator was told last; only what differs is told again."""

    rebalance_timeout_ms: int
    topics: frozenset[str]
    regex: str | None
    assignor: str | None
    owned: NumberedAssignment | None


@dataclass(frozen=True, slots=True)
class ConsumerMembershipStatus:
    """Everything that decides what a member does next. It is replaced as a whole, never changed."""

    member_id: str
    """Chosen when the consumer was made; it is kept for life."""
    state: ConsumerMembershipState = ConsumerMembershipState.UNSUBSCRIBED
    epoch: int = JOIN_EPOCH
    joined_epoch: int = JOIN_EPOCH
    """The epoch that the last join gave."""
    attempt: int = 0
    """Counts joins and leaves: an answer to a heartbeat before the last one comes too late."""
    joins_sent: int = 0
    """How often a heartbeat with epoch 0 was sent: after the first one the coordinator may know this member already."""
    released: bool = False
    """Whether this join has given the group.instance.id free that an earlier one may hold."""
    target: NumberedAssignment | None = None
    """What the coordinator wants this member to have."""
    metadata_before: int = 0
    """The version of the metadata when the target came. Names that are missing are waited for once, by a newer one."""
    owned: NumberedAssignment | None = None
    """What was taken over last."""
    reconciliation: Reconciliation | None = None
    callback_failed: bool = False
    """Whether a callback raised: the assignment is not acknowledged, and the next poll tries again."""
    told: ToldFields | None = None
    """None: the next heartbeat says everything."""
    metadata_after: int | None = None
    """A pattern that is matched here joins only with metadata that is newer than this version."""
    leaving: Operation[None] | None = None
    """Done when the coordinator has answered that this member is gone."""
    leave_reason: str = ""
    ended: EpochEnd | None = None
    error: Exception | None = None
    """What the next poll raises."""
    fatal: Exception | None = None
    """What every poll raises."""

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    @property
    def is_reconciled(self) -> bool:
        return self.target == self.owned
