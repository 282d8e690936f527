"""Tells a broker the time. A test may move the clock forward; nothing else does."""

from __future__ import annotations

import time


class Clock:
    """The time of day, and a steady time that cannot be set back.

    Sessions are timed by the steady time, which is the time of day at the start plus what the monotonic clock adds.
    So commits, which carry a time of day, can use it too.
    """

    __slots__ = ("_steady_offset_ms", "shift_ms")

    def __init__(self) -> None:
        self.shift_ms = 0  # how far it was moved forward
        self._steady_offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.shift_ms

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._steady_offset_ms + self.shift_ms
