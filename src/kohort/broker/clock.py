"""What time it is for a broker. A test may move it forward; nothing else does."""

from __future__ import annotations

import time


class Clock:
    """Time of day, and a steady one that nobody can set back.

    Sessions are timed by the steady clock, commits carry the time of day: one clock serves both, the time of day
    when it was made and from then on what the monotonic clock adds.
    """

    __slots__ = ("_steady_offset_ms", "shift_ms")

    def __init__(self) -> None:
        self.shift_ms = 0  # how far it was moved forward
        self._steady_offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.shift_ms

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._steady_offset_ms + self.shift_ms
