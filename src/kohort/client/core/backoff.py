"""How long to wait before trying again: doubling, bounded, with jitter, as all Kafka clients do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Jitter = Callable[[], float]
"""A number in [0, 1). Real clients give `random.random`, the simulator its seeded one."""

SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    initial_ms: int
    max_ms: int
    jitter: Jitter

    def after(self, failures: int) -> int:
        """Milliseconds to wait after so many failures in a row (the first is 1); 20 % more or less by chance."""
        if failures <= 0 or self.initial_ms <= 0:
            return 0
        grown = min(self.initial_ms * 2.0 ** min(failures - 1, 30), self.max_ms)
        return max(1, int(grown * (1 - SPREAD + 2 * SPREAD * self.jitter())))
