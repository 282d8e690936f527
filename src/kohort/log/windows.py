"""Parts of files that are mapped into memory, to be sent from there.

`sendfile` hands pages of 4 KB over one by one; a `write` from a mapped file copies them to large buffers, and took a
fifth (first reading) to a third (read again) less of the broker's CPU, and less of the reader's, on Linux 6.18. What
is mapped is page cache, but counts as resident: it is kept small, and given back when nobody reads.

A view stays good for as long as somebody has it, whatever becomes of the file. Only the kernel reads from it: a disk
that fails is an OSError of `write` then, not the end of the process.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from kohort.log.files import DiskFile

MB = 1 << 20
WINDOW_BYTES = 4 * MB
MOST_WINDOWS = 16
MOST_DESCRIPTORS = 32  # a mapping has one of its own, until the slowest client has taken the last view of it
MOST_BYTES = 64 * MB
LARGEST_VIEW = 16 * MB
_OVERLAP = 1 * MB  # so that a view of the usual size does not fall between two windows
_WORTH_IT = 1 * MB  # for less, to make a mapping and to give it back costs more than sendfile


class Windows:
    """The least recently used goes first."""

    __slots__ = ("_alive", "_by_place", "_bytes", "_used")

    def __init__(self) -> None:
        self._by_place: dict[tuple[DiskFile, int], memoryview] = {}  # in the order of use
        self._alive: WeakSet[mmap.mmap] = WeakSet()
        self._bytes = 0
        self._used = False

    def __len__(self) -> int:
        return len(self._by_place)

    def view(self, file: DiskFile, position: int, length: int) -> memoryview | None:
        """That part of the file; None if it is better sent in another way."""
        start = position - position % WINDOW_BYTES
        place = (file, start)
        window = self._by_place.pop(place, None)
        if window is None or position + length > start + len(window):
            if window is not None:
                self._bytes -= len(window)
            window = self._map(file, start, position, length)
            if window is None:
                return None
        self._by_place[place] = window
        self._used = True
        return window[position - start : position - start + length]

    def _map(self, file: DiskFile, start: int, position: int, length: int) -> memoryview | None:
        end = min(max(start + WINDOW_BYTES + _OVERLAP, position + length), file.size)
        if end - position < _WORTH_IT or length > LARGEST_VIEW or position + length > end:
            return None
        size = end - start
        while len(self._by_place) >= MOST_WINDOWS or (self._by_place and self._bytes + size > MOST_BYTES):
            self._forget(next(iter(self._by_place)))
        if len(self._alive) >= MOST_DESCRIPTORS:
            return None
        try:
            fd = file.fd
            assert fd is not None
            mapped = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
        except (OSError, ValueError):  # no descriptor, no address space, a file that was cut: sendfile tells
            return None
        self._alive.add(mapped)
        self._bytes += size
        return memoryview(mapped)

    def _forget(self, place: tuple[DiskFile, int]) -> None:
        self._bytes -= len(self._by_place.pop(place))

    def drop(self, file: DiskFile) -> None:
        """The file was cut or is gone."""
        for place in [place for place in self._by_place if place[0] is file]:
            self._forget(place)

    def rest(self) -> None:
        """Called now and then: gives all back if nobody used one since the last call."""
        if not self._used:
            self._by_place.clear()
            self._bytes = 0
        self._used = False
