"""The states of a record in a share group, and the transitions between them, as tables that the code runs on.

`python -m kohort.share.record_state` draws TRANSITIONS as a Mermaid diagram.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Final


class RecordState(IntEnum):
    """The states, by the numbers that `__share_group_state` holds; Acquired is never written there."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = RecordState
DONE: Final = frozenset({ACKNOWLEDGED, ARCHIVED})
"""States that a record never leaves; the start of a share partition moves over them."""

TRANSITIONS: Final[dict[tuple[RecordState, RecordState], str]] = {
    (AVAILABLE, ACQUIRED): "fetched: the delivery count grows by one, the lock begins",
    (AVAILABLE, ARCHIVED): "below the log start, or compacted away",
    (ACQUIRED, ACKNOWLEDGED): "accepted",
    (ACQUIRED, AVAILABLE): "released, the lock expired, the session closed",
    (ACQUIRED, ARCHIVED): "rejected, a gap, an aborted transaction, or released at the limit of deliveries",
}


class AckType(IntEnum):
    """What a consumer says of a record that it has acquired."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


GAP, ACCEPT, RELEASE, REJECT, RENEW = AckType
OUTCOMES: Final[dict[int, RecordState]] = {
    GAP: ARCHIVED,
    ACCEPT: ACKNOWLEDGED,
    RELEASE: AVAILABLE,
    REJECT: ARCHIVED,
}
"""Acknowledge type -> the state that follows; RENEW changes no state."""


def diagram() -> str:
    """Draws TRANSITIONS as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {AVAILABLE.name.capitalize()}"]
    lines += [
        f"    {a.name.capitalize()} --> {b.name.capitalize()}: {why.replace(':', ' -')}"
        for (a, b), why in TRANSITIONS.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(diagram())
