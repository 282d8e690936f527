"""Numbers over time in bounded memory: each point of the last minutes, and a part of those of the last hours."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

UNKNOWN = -(1 << 62)
"""Stands for None in the arrays."""


class Series:
    """Points of (at_ms, values…), oldest first.

    The last `length` points are kept as they came. Of older ones, one in `coarse_ms` is kept, `length` of them. A run
    of points with the same values is kept as its first and its last point, so what does not change costs nothing.
    """

    __slots__ = ("_coarse", "_coarse_ms", "_fine", "_width")

    def __init__(self, values: int, coarse_ms: int) -> None:
        self._width = values + 1
        self._coarse_ms = coarse_ms
        self._fine: array[int] = array("q")
        self._coarse: array[int] = array("q")

    def __len__(self) -> int:
        return (len(self._fine) + len(self._coarse)) // self._width

    def __iter__(self) -> Iterator[Sequence[int]]:
        for start in range(0, len(self._coarse), self._width):
            yield self._coarse[start : start + self._width]
        yield from self.recent()

    def recent(self) -> Iterator[Sequence[int]]:
        """Yields the points that are kept as they came."""
        for start in range(0, len(self._fine), self._width):
            yield self._fine[start : start + self._width]

    def add(self, at_ms: int, values: Sequence[int], length: int) -> None:
        """Appends a point, which must be later than the others, and forgets what is beyond `length`."""
        fine, width = self._fine, self._width
        new = array("q", (at_ms, *values))
        if len(fine) >= 2 * width and fine[-width + 1 :] == fine[1 - 2 * width : -width] == new[1:]:
            fine[-width] = at_ms
            return
        fine.extend(new)
        while len(fine) > length * width:
            self._grow_old(fine[:width])
            del fine[:width]
        if (excess := len(self._coarse) - length * width) > 0:
            del self._coarse[:excess]

    def add_past(self, points: Iterable[Sequence[int]], length: int) -> None:
        """Puts points before the oldest one; those that are not older are left out."""
        oldest_ms = next((point[0] for point in self), None)
        older = [tuple(point) for point in points if oldest_ms is None or point[0] < oldest_ms]
        surplus = max(0, len(older) + len(self._coarse) // self._width - length)
        self._coarse[:0] = array("q", (value for point in sorted(older)[surplus:] for value in point))

    def _grow_old(self, point: array[int]) -> None:
        coarse, width = self._coarse, self._width
        if not coarse or point[0] - coarse[-width] >= self._coarse_ms:
            coarse.extend(point)
