"""The states of a group, the transitions between them, and what each state answers, as tables that the code runs on.

`python -m kohort.coordinator.classic.state` draws TRANSITIONS as a Mermaid diagram.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Final, NamedTuple

from kohort.wire.errors import ErrorCode


class GroupState(Enum):
    """The states of a group, named as DescribeGroups prints them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class SyncAnswer(Enum):
    """What SyncGroup does in a state where it is not an error."""

    PARK = "park it; the leader's starts the write"
    GIVE = "give the member its assignment"


# For code that every request runs: a member of an Enum takes as long to look up as a call.
EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

TRANSITIONS: Final[dict[tuple[GroupState, GroupState], str]] = {
    (EMPTY, PREPARING): "a member joins",
    (PREPARING, COMPLETING): "all members joined and no id is pending, or the join timer fired",
    (PREPARING, EMPTY): "no member is left",
    (COMPLETING, STABLE): "the leader's assignment is durable",
    (COMPLETING, PREPARING): "member joins, leaves, fails or changes; the write failed",
    (STABLE, PREPARING): "member joins, leaves, fails or changes; the leader rejoins",
    (EMPTY, DEAD): "deleted or expired; its partition moved away",
    (PREPARING, DEAD): "its partition moved away",
    (COMPLETING, DEAD): "its partition moved away",
    (STABLE, DEAD): "its partition moved away",
    (DEAD, EMPTY): "the tombstone could not be written",
}


class StateAnswers(NamedTuple):
    """What a state answers to the requests of a member that passed the guards."""

    sync: ErrorCode | SyncAnswer
    heartbeat: ErrorCode
    commit: ErrorCode


_E = ErrorCode
ANSWERS: Final[dict[GroupState, StateAnswers]] = {
    #       state           SyncGroup                      Heartbeat                      OffsetCommit
    EMPTY: StateAnswers(_E.UNKNOWN_MEMBER_ID, _E.UNKNOWN_MEMBER_ID, _E.NONE),
    PREPARING: StateAnswers(_E.REBALANCE_IN_PROGRESS, _E.REBALANCE_IN_PROGRESS, _E.NONE),
    COMPLETING: StateAnswers(SyncAnswer.PARK, _E.NONE, _E.REBALANCE_IN_PROGRESS),
    STABLE: StateAnswers(SyncAnswer.GIVE, _E.NONE, _E.NONE),
    DEAD: StateAnswers(
        _E.COORDINATOR_NOT_AVAILABLE, _E.COORDINATOR_NOT_AVAILABLE, _E.COORDINATOR_NOT_AVAILABLE
    ),
}

CAN_REBALANCE: Final = frozenset(a for a, b in TRANSITIONS if b is GroupState.PREPARING_REBALANCE)

# How a failed append is answered, as in Kafka 4.3.1; other errors are answered as they are.
APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.INVALID_FETCH_SIZE: _E.UNKNOWN_SERVER_ERROR,
}


def answer_for_append_error(error: ErrorCode) -> ErrorCode:
    return APPEND_ERRORS.get(error, error)


def diagram() -> str:
    """Draws TRANSITIONS as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {EMPTY.value}"]
    lines += [f"    {a.value} --> {b.value}: {why}" for (a, b), why in TRANSITIONS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(diagram())
