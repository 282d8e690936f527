"""Limits how often a client warns: about a node once a second, about what lasts every few seconds. Sans-IO.

A broker that goes away fails every batch, commit and connection at once, and the second
of these warnings says nothing new. What is left out is counted in the next warning, and is logged at DEBUG.
"""

from __future__ import annotations

import logging

SECOND_MS = 1_000
AWAY_EVERY_MS = 5_000
"""How often there is a warning about a broker that stays away."""


class NodeWarnings:
    """Logs at most one warning per second and node, whichever part of the client it comes from."""

    def __init__(self) -> None:
        self._last_ms: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, log: logging.Logger, node: str, now_ms: int, text: str) -> None:
        last_ms = self._last_ms.get(node)
        if last_ms is not None and now_ms - last_ms < SECOND_MS:
            self._left_out[node] = self._left_out.get(node, 0) + 1
            log.debug("%s", text)
            return
        self._last_ms[node] = now_ms
        left_out = self._left_out.pop(node, 0)
        before = f" ({left_out} more about {node} since the last warning)" if left_out else ""
        log.warning("%s%s", text, before)


class LastingCondition:
    """A condition that is worth a warning once it has lasted for `after_ms`, and then every `every_ms`."""

    __slots__ = ("_after_ms", "_every_ms", "_next_ms")

    def __init__(self, after_ms: int, every_ms: int) -> None:
        self._after_ms, self._every_ms = after_ms, every_ms
        self._next_ms: int | None = None

    def is_worth_a_warning(self, now_ms: int) -> bool:
        """Whether to warn now. To be called each time the condition is seen."""
        if self._next_ms is None:
            self._next_ms = now_ms + self._after_ms
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._every_ms
        return True

    def is_over(self) -> None:
        self._next_ms = None
