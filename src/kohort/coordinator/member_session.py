"""MemberSession: when a member of a group is given up because it was not heard of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MemberSession:
    """When a member is given up; a heartbeat moves only `deadline_ms`, and the timer that fires looks at it."""

    deadline_ms: int = 0
    timer_ms: int | None = None
    """The deadline of the timer that is set; None if there is none."""
    heard_ms: int = 0

    def moved(self, now_ms: int, timeout_ms: int) -> bool:
        """Moves the deadline, because the member was heard of; False, and nothing changes, if that needs a timer."""
        deadline_ms = now_ms + timeout_ms
        if self.timer_ms is None or deadline_ms < self.timer_ms:
            return False
        self.heard_ms, self.deadline_ms = now_ms, deadline_ms
        return True
