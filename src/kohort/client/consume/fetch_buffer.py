"""What was fetched and not handed out yet: for each partition a chain of answers, decoded when they are reached.

Where a chain ends is known from the headers of its batches, so the next fetch can be on its way before anything
is decoded. Partitions take turns: one whose answer is used up goes to the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kohort.client.offsets.subscription import PartitionState, Position, Subscription
from kohort.client.types import TopicPartition
from kohort.wire.errors import BadBatch, ErrorCode
from kohort.wire.records.batch import (
    COMPRESSION_MASK,
    FLAGS_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_END,
    MAGIC,
    header_fields,
)
from kohort.wire.records.columns import Columns, Decoded, decode_columns

MAX_CHAIN = 2
"""One answer that is being handed out, and the one after it."""

MAX_DECODED = 4 << 20
"""Bytes that are unpacked at a time: well compressed answers unpack to far more than was fetched, and what is decoded
should still be in the processor's caches when it is handed out."""

ARROW_DECODED = 768 << 10
"""The same for Arrow of what is compressed, where each such part is copied before the next is unpacked: about as much
as a core has in the cache of its own. What is not compressed is not in that cache, and gains nothing by it."""

FIRST_PART = 500
"""Records decoded at first where no compiled code does it: the first one is not kept waiting for all others."""

MAX_ARROW_BYTES = 1 << 30
"""A column of Arrow holds 2 GiB; after so many bytes no further answer is added to it."""

MAX_ROWS = 1 << 62
"""As a number of records: all there are."""

DEFAULT_FETCH_BYTES = 1 << 20  # of max.partition.fetch.bytes
BULK_FETCH_BYTES = 8 << 20
"""A poll costs some hundred microseconds however much it brings: with Kafka's 1 MB that is a third of all time."""

_start_of_batch = header_fields("base_offset", "batch_length", "partition_leader_epoch", "magic").unpack_from
_last_offset_delta = header_fields("last_offset_delta").unpack_from


def end_of(records: memoryview) -> tuple[int, int] | None:
    """The offset after the whole batches in `records`, and the leader epoch of the last; None if there is none
    or the headers make no sense: that is found out when they are decoded."""
    pos, end, last = 0, len(records), -1
    while end - pos >= HEADER_SIZE:
        _, length, _, magic = _start_of_batch(records, pos)
        if magic != MAGIC or length < HEADER_SIZE - LENGTH_END:
            return None
        if pos + LENGTH_END + length > end:
            break
        last, pos = pos, pos + LENGTH_END + length
    if last < 0:
        return None
    base_offset, _, epoch, _ = _start_of_batch(records, last)
    delta: int = _last_offset_delta(records, last + LAST_OFFSET_DELTA_AT)[0]
    return (base_offset + delta + 1, epoch) if delta >= 0 else None


def _begins_with_a_batch(records: memoryview, pos: int) -> bool:
    """Whether there is something to decode at `pos`: a whole batch, or what cannot be one."""
    if len(records) - pos < HEADER_SIZE:
        return False
    _, length, _, magic = _start_of_batch(records, pos)
    return bool(
        magic != MAGIC or length < HEADER_SIZE - LENGTH_END or pos + LENGTH_END + length <= len(records)
    )


@dataclass(slots=True)
class FetchSize:
    """How much one partition is asked for: what is set; while that is the default, as much as one poll returns, up to
    BULK_FETCH_BYTES."""

    configured: int
    wanted: int = 0
    """Records of one poll."""
    record_bytes: int = 0
    """What one takes in an answer, about."""

    def arrived(self, size: int, offsets: int) -> None:
        if offsets > 0:
            self.record_bytes = size // offsets

    @property
    def to_ask(self) -> int:
        if self.configured != DEFAULT_FETCH_BYTES:
            return self.configured
        return max(self.configured, min(self.wanted * self.record_bytes, BULK_FETCH_BYTES))


@dataclass(slots=True)
class Piece:
    """One partition of one answer."""

    state: PartitionState
    seeks: int
    next_offset: int
    """Where handing out goes on; the position, while this is the first of its chain."""
    records: memoryview
    """What is not decoded yet."""
    aborted: Sequence[tuple[int, int]] | None
    """None: read_uncommitted. Else producer id and first offset of the transactions to leave out."""
    size: int
    end_offset: int | None
    """Where the next fetch goes on; None if that cannot be told before decoding."""
    end_epoch: int
    decoded: Decoded | None = None
    row: int = 0
    """How many rows of `decoded` are handed out."""

    def cut(self, max_records: int, check_crcs: bool, max_bytes: int = MAX_DECODED) -> Columns | None:
        """The next records, at most so many; None when there are no more, because of the end or of damage.

        `next_offset` moves past what is returned, and past everything that is not for users.
        """
        while True:
            if self.decoded is None:
                self.decoded = decode_columns(
                    self.records,
                    self.next_offset,
                    check_crcs=check_crcs,
                    aborted=self.aborted,
                    max_bytes=max_bytes,
                    first_part=FIRST_PART,
                )
                self.row = 0
            if self.row < len(self.decoded.columns):
                return self._rows(self.decoded.columns, max_records)
            if self.decoded.more is not None:
                self.decoded, self.row = self.decoded.more(), 0
                continue
            self.next_offset = self.decoded.next_offset
            if self.error is not None or self.is_whole:
                return None
            self._decode_on()

    def _rows(self, columns: Columns, max_records: int) -> Columns:
        assert self.decoded is not None
        stop = min(self.row + max_records, len(columns))
        rows = columns if self.row == 0 and stop == len(columns) else columns.slice(self.row, stop)
        self.row = stop
        self.next_offset = (
            self.decoded.next_offset if stop == len(columns) else int(columns.offsets[stop - 1]) + 1
        )
        return rows

    def _decode_on(self) -> None:
        """The decoder stopped in between, at `max_bytes`."""
        assert self.decoded is not None
        self.records = self.records[self.decoded.bytes_used :]
        self.aborted = self.decoded.aborted
        self.decoded = None

    @property
    def is_whole(self) -> bool:
        """Whether everything that is whole in the answer has been decoded."""
        if self.decoded is None or self.decoded.more is not None:
            return False
        return self.decoded.error is not None or not _begins_with_a_batch(
            self.records, self.decoded.bytes_used
        )

    @property
    def is_used_up(self) -> bool:
        return self.decoded is not None and self.row >= len(self.decoded.columns) and self.is_whole

    @property
    def error(self) -> BadBatch | None:
        """What is wrong with the batch at `next_offset`, once everything before it is handed out."""
        if not self.is_used_up:
            return None
        assert self.decoded is not None
        if self.decoded.error is None and self.end_offset is None:
            return BadBatch(ErrorCode.CORRUPT_MESSAGE, f"its {self.size} bytes hold no whole batch")
        return self.decoded.error

    def position_after(self, position: Position, columns: Columns | None) -> Position:
        """The position once `columns` are handed out, as moved by `cut`."""
        if self.is_used_up and self.end_epoch >= 0 and self.end_offset == self.next_offset:
            epoch = self.end_epoch
        elif columns is not None and len(columns):
            epoch = columns.runs[-1][1]
        else:
            epoch = position.offset_epoch
        return Position(self.next_offset, epoch, position.leader_id, position.leader_epoch)


class FetchBuffer:
    """The chains of all partitions, in the order of their turns."""

    def __init__(self) -> None:
        self._chains: dict[TopicPartition, deque[Piece]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._chains)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._chains)

    def __contains__(self, partition: object) -> bool:
        return partition in self._chains

    def chain(self, partition: TopicPartition) -> deque[Piece] | None:
        """None: nothing is buffered; never an empty chain."""
        return self._chains.get(partition)

    @property
    def is_compressed(self) -> bool:
        """Whether what comes next is."""
        records = next((chain[0].records for chain in self._chains.values()), memoryview(b""))
        return len(records) > FLAGS_AT and records[FLAGS_AT] & COMPRESSION_MASK != 0

    def turns(self) -> list[TopicPartition]:
        return list(self._chains)

    def add(self, partition: TopicPartition, piece: Piece) -> None:
        self._chains.setdefault(partition, deque()).append(piece)
        self.bytes += piece.size

    def used_up(self, partition: TopicPartition) -> None:
        """The first of the chain is done with; the partition's next turn comes after all others'."""
        chain = self._chains.pop(partition)
        self.bytes -= chain.popleft().size
        if chain:
            self._chains[partition] = chain

    def drop(self, partition: TopicPartition) -> None:
        for piece in self._chains.pop(partition, ()):
            self.bytes -= piece.size

    def clear(self) -> None:
        self._chains.clear()
        self.bytes = 0

    def drop_late(self, subscription: Subscription) -> list[TopicPartition]:
        """Drops what was fetched for another position or assignment than the present one; of which partitions."""
        late = [p for p, chain in self._chains.items() if not self._is_current(p, chain[0], subscription)]
        for partition in late:
            self.drop(partition)
        return late

    def _is_current(self, partition: TopicPartition, piece: Piece, subscription: Subscription) -> bool:
        state = piece.state
        return (
            subscription.partitions.get(partition) is state
            and state.seeks == piece.seeks
            # What a new leader has to say of the position may go for everything after it as well.
            and not state.validating
            and state.position is not None
            and state.position.offset == piece.next_offset
        )
