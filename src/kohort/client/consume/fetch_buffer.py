"""Buffers what was fetched and not handed out yet: a chain of answers per partition, decoded when they are reached.

The headers of the batches say where a chain ends, so the next fetch can be under way before anything is decoded.
Partitions take turns: one whose answer is used up goes to the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kohort.client.offsets.subscription import PartitionState, Position, SubscriptionState
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
"""The same for compressed answers that become Arrow, where each part is copied before the next is unpacked: about as
much as a core's own cache holds. Answers that are not compressed are not in that cache, and gain nothing by it."""

FIRST_PART = 500
"""Records decoded at first where no compiled code does it: the first record does not wait for all others."""

MAX_ARROW_BYTES = 1 << 30
"""A column of Arrow holds 2 GiB; after this many bytes no further answer is added to it."""

MAX_ROWS = 1 << 62
"""A number of records that means: all there are."""

DEFAULT_FETCH_BYTES = 1 << 20  # of max.partition.fetch.bytes
BULK_FETCH_BYTES = 8 << 20
"""A poll costs some hundred microseconds however much it brings: with Kafka's 1 MB that is a third of all time."""

_start_of_batch = header_fields("base_offset", "batch_length", "partition_leader_epoch", "magic").unpack_from
_last_offset_delta = header_fields("last_offset_delta").unpack_from


def end_of(records: memoryview) -> tuple[int, int] | None:
    """Returns the offset after the whole batches in `records`, and the leader epoch of the last.

    None if there is no whole batch, or the headers make no sense: decoding finds that out.
    """
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
    """Whether there is something to decode at `pos`: a whole batch, or bytes that cannot be one."""
    if len(records) - pos < HEADER_SIZE:
        return False
    _, length, _, magic = _start_of_batch(records, pos)
    return bool(
        magic != MAGIC or length < HEADER_SIZE - LENGTH_END or pos + LENGTH_END + length <= len(records)
    )


@dataclass(slots=True)
class FetchSize:
    """How many bytes of one partition a fetch asks for.

    This is what the user set. If they left the default, it is as much as one poll returns, up to BULK_FETCH_BYTES.
    """

    configured: int
    wanted: int = 0
    """Records of one poll."""
    record_bytes: int = 0
    """About how many bytes a record takes in an answer."""

    def polled(self, max_records: int) -> None:
        self.wanted = max_records

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
    """The records of one partition in one answer."""

    state: PartitionState
    seeks: int
    next_offset: int
    """Where handing out goes on; it is the position, while this is the first piece of its chain."""
    records: memoryview
    """The bytes that are not decoded yet."""
    aborted: Sequence[tuple[int, int]] | None
    """Producer id and first offset of the transactions to leave out; None for read_uncommitted."""
    size: int
    end_offset: int | None
    """Where the next fetch goes on; None if that is not known before decoding."""
    end_epoch: int
    decoded: Decoded | None = None
    row: int = 0
    """How many rows of `decoded` are handed out."""

    def cut(self, max_records: int, check_crcs: bool, max_bytes: int = MAX_DECODED) -> Columns | None:
        """Returns the next records, at most `max_records`; None at the end of the answer or at damage.

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
        """Goes on behind the place where the decoder stopped, at `max_bytes`."""
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
        """The damage of the batch at `next_offset`, once everything before it is handed out."""
        if not self.is_used_up:
            return None
        assert self.decoded is not None
        if self.decoded.error is None and self.end_offset is None:
            return BadBatch(ErrorCode.CORRUPT_MESSAGE, f"its {self.size} bytes hold no whole batch")
        return self.decoded.error

    def position_after(self, position: Position, columns: Columns | None) -> Position:
        """Returns the position once `columns`, which `cut` returned, are handed out."""
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
        """Returns what is buffered of a partition; None if that is nothing, never an empty chain."""
        return self._chains.get(partition)

    @property
    def is_compressed(self) -> bool:
        """Whether the batch that comes next is compressed."""
        records = next((chain[0].records for chain in self._chains.values()), memoryview(b""))
        return len(records) > FLAGS_AT and records[FLAGS_AT] & COMPRESSION_MASK != 0

    def order(self) -> list[TopicPartition]:
        """Returns the partitions in the order of their turns."""
        return list(self._chains)

    def add(self, partition: TopicPartition, piece: Piece) -> None:
        self._chains.setdefault(partition, deque()).append(piece)
        self.bytes += piece.size

    def used_up(self, partition: TopicPartition) -> None:
        """Drops the first piece of a chain; the partition's next turn comes after those of all others."""
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

    def drop_late(self, subscription: SubscriptionState) -> list[TopicPartition]:
        """Drops what was fetched for another position or assignment than the present; returns the partitions."""
        late = [p for p, chain in self._chains.items() if not self._is_current(p, chain[0], subscription)]
        for partition in late:
            self.drop(partition)
        return late

    def _is_current(self, partition: TopicPartition, piece: Piece, subscription: SubscriptionState) -> bool:
        state = piece.state
        return (
            subscription.partitions.get(partition) is state
            and state.seeks == piece.seeks
            # If a new leader's log differs at the position, it may differ in everything after it as well.
            and not state.validating
            and state.position is not None
            and state.position.offset == piece.next_offset
        )
