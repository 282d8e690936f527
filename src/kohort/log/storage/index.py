"""The sparse offset index and time index of a segment, in Kafka's file format.

    .index      int32 offset relative to the segment, int32 position
    .timeindex  int64 timestamp, int32 offset relative to the segment

There is one entry of each per index.interval.bytes of log. An offset entry has the last offset of the batch that starts
at its position; a time entry the largest timestamp so far and the last offset of its batch. Entries are kept in
arrays; `encode` and `decode` convert them without a loop in Python.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import ge

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12

_SWAP = sys.byteorder == "little"


class DamagedIndex(Exception):
    """Raised if a file cannot be the index of its segment; the index must be rebuilt."""


class OffsetIndex:
    """Positions of batches by the offset, relative to the segment's base offset."""

    __slots__ = ("flushed", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")
        self.flushed = 0  # how many entries the file has

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def floor(self, relative_offset: int) -> int:
        """Returns the position of the last entry at or before that offset; 0 if there is none."""
        at = bisect_right(self.offsets, relative_offset)
        return self.positions[at - 1] if at else 0

    def ceiling(self, relative_offset: int) -> int | None:
        """Returns the position of the first entry at or after that offset."""
        at = bisect_left(self.offsets, relative_offset)
        return self.positions[at] if at < len(self.positions) else None

    def truncate(self, count: int) -> None:
        del self.offsets[count:]
        del self.positions[count:]
        self.flushed = min(self.flushed, count)

    def encode(self, first: int = 0) -> bytes:
        entries = array("i", bytes(OFFSET_ENTRY_SIZE * (len(self) - first)))
        entries[0::2] = self.offsets[first:]
        entries[1::2] = self.positions[first:]
        if _SWAP:
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def decode(cls, data: bytes, log_size: int) -> OffsetIndex:
        if len(data) % OFFSET_ENTRY_SIZE:
            raise DamagedIndex(f"{len(data)} bytes are not a multiple of {OFFSET_ENTRY_SIZE}")
        entries = array("i", data)
        if _SWAP:
            entries.byteswap()
        index = cls()
        index.offsets = entries[0::2]
        index.positions = entries[1::2]
        index.flushed = len(index)
        if index.offsets and (
            index.offsets[0] < 0
            or index.positions[0] < 0
            or index.positions[-1] >= log_size
            or not _ascending(index.offsets)
            or not _ascending(index.positions)
        ):
            raise DamagedIndex("entries are out of order or point behind the end of the log")
        return index


class TimeIndex:
    """Offsets, relative to the segment's base offset, by the largest timestamp up to them."""

    __slots__ = ("flushed", "offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")
        self.flushed = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Appends an entry if the timestamp is larger than all before."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def floor(self, timestamp: int) -> int:
        """Returns the relative offset of the last entry at or before that time; 0 if there is none."""
        at = bisect_right(self.timestamps, timestamp)
        return self.offsets[at - 1] if at else 0

    def truncate(self, count: int) -> None:
        del self.timestamps[count:]
        del self.offsets[count:]
        self.flushed = min(self.flushed, count)

    def encode(self, first: int = 0) -> bytes:
        timestamps, offsets = self.timestamps[first:], self.offsets[first:]
        if _SWAP:
            timestamps.byteswap()
            offsets.byteswap()
        halves = array("i", timestamps.tobytes())
        entries = array("i", bytes(TIME_ENTRY_SIZE * len(offsets)))
        entries[0::3] = halves[0::2]
        entries[1::3] = halves[1::2]
        entries[2::3] = offsets
        return entries.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        if len(data) % TIME_ENTRY_SIZE:
            raise DamagedIndex(f"{len(data)} bytes are not a multiple of {TIME_ENTRY_SIZE}")
        entries = array("i", data)
        halves = array("i", bytes(8 * (len(entries) // 3)))
        halves[0::2] = entries[0::3]
        halves[1::2] = entries[1::3]
        index = cls()
        index.timestamps = array("q", halves.tobytes())
        index.offsets = entries[2::3]
        if _SWAP:
            index.timestamps.byteswap()
            index.offsets.byteswap()
        index.flushed = len(index)
        if index.offsets and (
            index.offsets[0] < 0 or not _ascending(index.offsets) or not _ascending(index.timestamps)
        ):
            raise DamagedIndex("entries are out of order")
        return index


def _ascending(values: array[int]) -> bool:
    return not any(map(ge, values, islice(values, 1, None)))
