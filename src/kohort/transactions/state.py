"""The states of a transactional id, and the transitions between them, as tables that the code runs on.

`python -m kohort.transactions.state` draws TRANSITIONS as a Mermaid diagram.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Final

from kohort.wire.errors import ErrorCode


class TransactionState(IntEnum):
    """The states, by the numbers that `__transaction_state` holds; `label` is what DescribeTransactions prints."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, _FENCE = (
    TransactionState
)
AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""States without an open transaction; an id that stays in one of them expires."""
COMPLETED: Final = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}

TRANSITIONS: Final[dict[tuple[TransactionState, TransactionState], str]] = {
    (EMPTY, EMPTY): "InitProducerId",
    (COMPLETE_COMMIT, EMPTY): "InitProducerId",
    (COMPLETE_ABORT, EMPTY): "InitProducerId",
    (EMPTY, ONGOING): "partitions or a group are added",
    (ONGOING, ONGOING): "more partitions are added",
    (COMPLETE_COMMIT, ONGOING): "partitions or a group are added",
    (COMPLETE_ABORT, ONGOING): "partitions or a group are added",
    (ONGOING, PREPARE_COMMIT): "EndTxn commits",
    (ONGOING, PREPARE_ABORT): "EndTxn aborts, a timeout, InitProducerId",
    (EMPTY, PREPARE_ABORT): "EndTxn v5 aborts what nothing was written in",
    (COMPLETE_COMMIT, PREPARE_ABORT): "EndTxn v5 aborts what nothing was written in",
    (COMPLETE_ABORT, PREPARE_ABORT): "EndTxn v5 aborts what nothing was written in",
    (PREPARE_COMMIT, COMPLETE_COMMIT): "all markers are durable",
    (PREPARE_ABORT, COMPLETE_ABORT): "all markers are durable",
    (EMPTY, DEAD): "expired",
    (COMPLETE_COMMIT, DEAD): "expired",
    (COMPLETE_ABORT, DEAD): "expired",
}

# How a failed append is answered, as in Kafka 4.3; other errors are answered as they are.
_E = ErrorCode
APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
}


def diagram() -> str:
    """Draws TRANSITIONS as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {EMPTY.label}"]
    lines += [f"    {a.label} --> {b.label}: {why}" for (a, b), why in TRANSITIONS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(diagram())
