"""The layout of commits that differ from each other in nothing but their offsets.

A consumer commits the same partitions with the same metadata again and again. What such commits have in common is
a layout. It is worked out once; then a commit is a tuple of offsets, from the request to the log and in the state of
the group. Other code need not know: where it expects a sequence of offsets or of records, the classes of this module
are sequences that make their items on access.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from crc32c import crc32c

from kohort.coordinator.effects import CommitResponse, RecordToWrite
from kohort.coordinator.events import OffsetToCommit
from kohort.coordinator.records import CommittedOffset, fits, offset_records
from kohort.wire.errors import ErrorCode
from kohort.wire.records.batch import (
    CRC_START,
    KEEP_LOCK,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    encode_pairs_batch,
    header_fields,
)
from kohort.wire.template import int64_fields

T = TypeVar("T")
_TOO_LONG = 1 << 31
_HEAD = header_fields("base_offset", "batch_length", "partition_leader_epoch", "magic", "crc").pack
_new_tuple = tuple.__new__


class CommitLayout:
    """The group, partitions, leader epochs and metadata of commits; none of the partitions was refused."""

    __slots__ = (
        "_batch_length", "_pack", "_parts", "accepted", "group_id", "items", "keys", "metadata_units",
    )  # fmt: skip

    def __init__(self, group_id: str, items: Sequence[OffsetToCommit]) -> None:
        """Takes one item per partition, at least one; the offsets in `items` do not matter."""
        self.group_id = group_id
        self.items = tuple(items)
        self.keys = tuple((item.topic, item.partition) for item in items)
        assert len(set(self.keys)) == len(items) > 0
        assert not any(item.refused for item in items)
        self.accepted = CommitResponse((ErrorCode.NONE,) * len(items))
        self.metadata_units = max(_utf16_units(item.metadata or "") for item in items)
        """The length of the longest metadata, as Kafka counts it."""
        self._parts: list[Any] = []

    def committed(self, offsets: Sequence[int], timestamp_ms: int) -> Iterator[CommittedOffset]:
        for item, offset in zip(self.items, offsets, strict=True):
            yield CommittedOffset(
                offset, item.leader_epoch, item.metadata or "", timestamp_ms, -1, item.topic_id
            )

    def records(self, offsets: Sequence[int], timestamp_ms: int) -> tuple[RecordToWrite, ...]:
        return offset_records(self.group_id, self.keys, tuple(self.committed(offsets, timestamp_ms)))

    def encode_batch(
        self, offsets: Sequence[int], commit_timestamp_ms: int, timestamp_ms: int
    ) -> tuple[bytearray, BatchHeader]:
        """Returns what `encode_pairs_batch` makes of the records at `timestamp_ms`."""
        if not self._parts:
            self._learn()
        count, length, parts = len(offsets), self._batch_length, self._parts[:]
        parts[1] = parts[3] = timestamp_ms
        parts[5::4] = offsets
        parts[7::4] = [commit_timestamp_ms] * count
        body = self._pack(*parts)
        crc = crc32c(body, 0, KEEP_LOCK)
        header = (0, length, -1, MAGIC, 0, 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
        return bytearray(_HEAD(0, length, -1, MAGIC, crc) + body), _new_tuple(BatchHeader, header)

    def _learn(self) -> None:
        """Learns how a batch of such commits looks: the part that the CRC covers, as bytes and numbers alternately.

        The numbers are the two timestamps of the batch, and then an offset and a timestamp for each record.
        """
        count = len(self.keys)
        zeros, _ = encode_pairs_batch(self.records([0] * count, 0), 0)
        ones, _ = encode_pairs_batch(self.records([-1] * count, -1), -1)
        fields = int64_fields(zeros[CRC_START:], ones[CRC_START:])
        self._pack, self._batch_length = fields.pack, len(zeros) - LENGTH_END
        self._parts = list(fields.unpack_from(zeros, CRC_START))
        assert len(self._parts) == 5 + 4 * count


def _utf16_units(metadata: str) -> int:
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 if fits(metadata) else _TOO_LONG


class _Made(Sequence[T], Generic[T]):
    """A sequence that makes its items on access."""

    __slots__ = ()

    @abstractmethod
    def made(self) -> tuple[T, ...]: ...

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.made()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.made() == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.made())


class LaidOutOffsets(_Made[OffsetToCommit]):
    """The offsets of a request in a layout."""

    __slots__ = ("layout", "offsets")

    def __init__(self, layout: CommitLayout, offsets: tuple[int, ...]) -> None:
        self.layout = layout
        self.offsets = offsets

    def made(self) -> tuple[OffsetToCommit, ...]:
        return tuple(
            item._replace(offset=offset) for item, offset in zip(self.layout.items, self.offsets, strict=True)
        )

    def __len__(self) -> int:
        return len(self.offsets)


class LaidOutRecords(_Made[RecordToWrite]):
    """The records of a commit in a layout."""

    __slots__ = ("layout", "offsets", "timestamp_ms")

    def __init__(self, layout: CommitLayout, offsets: tuple[int, ...], timestamp_ms: int) -> None:
        self.layout = layout
        self.offsets = offsets
        self.timestamp_ms = timestamp_ms

    def made(self) -> tuple[RecordToWrite, ...]:
        return self.layout.records(self.offsets, self.timestamp_ms)

    def committed(self) -> Iterator[CommittedOffset]:
        return self.layout.committed(self.offsets, self.timestamp_ms)

    def encode_batch(self, timestamp_ms: int) -> tuple[bytearray, BatchHeader]:
        return self.layout.encode_batch(self.offsets, self.timestamp_ms, timestamp_ms)

    def __len__(self) -> int:
        return len(self.offsets)
