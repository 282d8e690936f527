"""Backoff: how long to wait before trying again; doubling, bounded and with jitter, as in all Kafka clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Jitter = Callable[[], float]
"""Returns a number in [0, 1). Real clients use `random.random`, the simulator its seeded generator."""

SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """The bounds of the wait and the source of its jitter."""

    initial_ms: int
    max_ms: int
    jitter: Jitter

    def after(self, failures: int) -> int:
        """Milliseconds to wait after this many failures in a row (the first is 1), 20 % more or less by chance."""
        if failures <= 0 or self.initial_ms <= 0:
            return 0
        grown = min(self.initial_ms * 2.0 ** min(failures - 1, 30), self.max_ms)
        return max(1, int(grown * (1 - SPREAD + 2 * SPREAD * self.jitter())))
