"""The segments of one partition, in order; the last one takes the appends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from kohort.log.storage.files import Directory, Slice
from kohort.log.storage.segment import Segment
from kohort.log.storage.transactions import AbortedTxn
from kohort.wire.errors import ErrorCode, KafkaError

LOADED_INDEXES = 4  # of sealed segments, per partition

_base_offset = attrgetter("base_offset")


class Segments:
    """The list of segments, and what is found across it."""

    __slots__ = ("_found", "_loaded", "items")

    def __init__(self, items: list[Segment]) -> None:
        self.items = items
        self._found: tuple[int, Segment, int, int] | None = None
        self._loaded: list[Segment] = []

    @property
    def active(self) -> Segment | None:
        return self.items[-1] if self.items else None

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.items)

    def begin(self, directory: Directory, base_offset: int, interval: int, now_ms: int) -> Segment:
        """Adds a new active segment; its file is created by the first append."""
        segment = Segment(directory, base_offset, interval, sealed=False)
        segment.created_ms = now_ms
        self.items.append(segment)
        return segment

    def locate(self, offset: int) -> tuple[Segment, int, int] | None:
        """Returns segment, position and size of the batch that holds the offset, or of the next one."""
        found = self._found
        if found is not None and found[0] == offset:
            return found[1:]
        at = max(bisect_right(self.items, offset, key=_base_offset) - 1, 0)
        for segment in self.items[at:]:
            try:
                place = segment.locate(offset)
            except OSError as problem:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
            if segment.sealed:
                self.keep_loaded(segment)
            if place is not None:
                self._found = (offset, segment, *place)
                return segment, *place
        return None

    @property
    def in_use(self) -> bool:
        """Whether a piece of one is being sent to a client."""
        return any(segment.file.is_pinned for segment in self.items)

    def keep_loaded(self, segment: Segment) -> None:
        """Keeps the indexes of this sealed segment in memory, and frees those of the one longest kept."""
        if segment in self._loaded:
            return
        self._loaded.append(segment)
        if len(self._loaded) > LOADED_INDEXES:
            self._loaded.pop(0).drop_indexes()

    def find_time(self, timestamp: int, start_offset: int) -> tuple[int, int] | None:
        try:
            for segment in self.items:
                if segment.largest_timestamp() >= timestamp:
                    found = segment.find_time(timestamp, start_offset)
                    if found is not None:
                        return found
        except OSError as problem:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        return None

    def find_max_timestamp(self) -> tuple[int, int] | None:
        try:
            newest = max(self.items, key=Segment.largest_timestamp, default=None)
            return newest.find_max_timestamp() if newest is not None else None
        except OSError as problem:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem

    def aborted_transactions(self, start: int, records: Slice, end: int) -> list[AbortedTxn]:
        """Returns the aborted transactions with records from `start` to the end of a slice, at most before `end`."""
        found: list[AbortedTxn] = []
        at = next((i for i, segment in enumerate(self.items) if segment.file is records.file), None)
        if at is None:
            return found
        end = min(end, self.items[at].offset_bound(records.position + records.length))
        if at + 1 < len(self.items):
            end = min(end, self.items[at + 1].base_offset)
        for segment in self.items[at:]:
            if segment.txn_index.collect(start, end, found):
                break
        return found

    def aborted_before(self, end: int) -> list[AbortedTxn]:
        return [
            entry for segment in self.items for entry in segment.txn_index.entries if entry.first_offset < end
        ]

    def wholly_below(self, offset: int) -> int:
        """Returns how many of the oldest segments have only offsets below that one; the active one never counts."""
        return max(bisect_right(self.items, offset, key=_base_offset) - 1, 0)

    def drop(self, count: int) -> list[Segment]:
        """Takes the oldest segments out of the list; the caller deletes them."""
        dropped = self.items[:count]
        del self.items[:count]
        self._forget(dropped)
        return dropped

    def replace(self, old: Iterable[Segment], new: Segment | None) -> None:
        """Replaces neighbouring segments by one sealed segment, or by none."""
        old = list(old)
        at = self.items.index(old[0])
        assert self.items[at : at + len(old)] == old, "not neighbours"
        assert old[-1] is not self.active, "the active segment cannot be replaced"
        self.items[at : at + len(old)] = [] if new is None else [new]
        self._forget(old)

    def _forget(self, gone: list[Segment]) -> None:
        self._found = None
        self._loaded = [segment for segment in self._loaded if segment not in gone]
