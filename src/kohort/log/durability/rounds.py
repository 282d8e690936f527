"""The journal of small appends on disk: what a round looks like, and what a start finds.

`appends-<n>.journal` are files of fixed size, filled with rounds one after the other and used again in turn. A round
begins at a block, so that writing it touches no block of an earlier one:

    magic, CRC-32C of the rest, sequence number, checkpoint, length, number of entries
    entries: topic id, partition, and the batch as it is in the partition's log

Sequence numbers go up by one; the first one after a start is random, so that what an earlier life of the file left
behind the last round never looks like its successor. Everything before `checkpoint` is in the partitions' own files
for good.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kohort.log.storage import recovery
from kohort.wire.errors import KafkaError, KohortError
from kohort.wire.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, header_fields, read_header

if TYPE_CHECKING:
    from kohort.log.partition import Partition
    from kohort.log.topic import Topic

log = logging.getLogger(__name__)

BLOCK = 4096
PATTERN = "appends-*.journal"

HEAD = Struct(">4sIQQII")
KEY = Struct(">16sI")
MAGIC = b"KHJ1"
CRC = Struct(">I")
CRC_AT, CRC_FROM = 4, 8  # where it is, and from where on it counts

_PLACE = header_fields("base_offset", "batch_length")


class DamagedJournal(KohortError):
    """What the journal has cannot be put back; the text says what to do."""


class Entry(NamedTuple):
    topic_id: bytes
    partition: int
    batch: memoryview

    @property
    def base_offset(self) -> int:
        offset: int = _PLACE.unpack_from(self.batch)[0]
        return offset

    @property
    def header(self) -> BatchHeader:
        return read_header(self.batch)


class Round(NamedTuple):
    sequence: int
    checkpoint: int
    entries: list[Entry]


class Found(NamedTuple):
    rounds: list[Round]  # from the checkpoint on, in order
    damage: str | None  # why there may have been more

    def offsets(self) -> dict[tuple[bytes, int], set[int]]:
        """By topic id and partition: where the batches begin."""
        offsets: dict[tuple[bytes, int], set[int]] = {}
        for journaled in self.rounds:
            for entry in journaled.entries:
                offsets.setdefault(entry[:2], set()).add(entry.base_offset)
        return offsets


def blocks(length: int) -> int:
    """The length, up to the end of its last block."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


def rounds_in(data: memoryview) -> Iterator[Round]:
    """The rounds of one file, up to the first that is torn or older than the one before."""
    position, expected = 0, None
    while position + HEAD.size <= len(data):
        magic, crc, sequence, checkpoint, length, count = HEAD.unpack_from(data, position)
        end = position + length
        if magic != MAGIC or length < HEAD.size or end > len(data) or expected not in (None, sequence):
            return
        if crc32c(data[position + CRC_FROM : end]) != crc:
            return
        yield Round(sequence, checkpoint, _entries(data[position + HEAD.size : end], count))
        expected = sequence + 1
        position += blocks(length)


def _entries(data: memoryview, count: int) -> list[Entry]:
    entries, position = [], 0
    for _ in range(count):
        topic_id, partition = KEY.unpack_from(data, position)
        position += KEY.size
        size = _PLACE.unpack_from(data, position)[1] + LENGTH_END
        assert size >= HEADER_SIZE, f"a batch of {size} bytes in the journal"
        entries.append(Entry(topic_id, partition, data[position : position + size]))
        position += size
    return entries


def read_rounds(directory: Path) -> Found:
    """What lies in the journal of a data directory that nobody has open."""
    chains: list[list[Round]] = []
    for path in sorted(directory.glob(PATTERN)):
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                continue
            file.seek(0)
            chain = list(rounds_in(memoryview(file.read())))
        if chain:
            chains.append(chain)
    chains.sort(key=lambda chain: chain[0].sequence)
    rounds = [found for chain in chains for found in chain]
    if not rounds:
        return Found([], None)
    checkpoint = rounds[-1].checkpoint
    live = [found for found in rounds if found.sequence >= checkpoint]
    expected = rounds[-1].sequence - checkpoint + 1
    damage = None
    if len(live) < expected:
        damage = f"{expected - len(live)} of the last {expected} rounds of the journal cannot be read"
    return Found(live, damage)


def remove_journal(directory: Path) -> None:
    for path in directory.glob(PATTERN):
        path.unlink()


def put_back(found: Found, topics_by_id: Mapping[bytes, Topic], now_ms: int) -> dict[Partition, int]:
    """Append what the recovered logs miss; partitions of which the journal knows, and how many batches they got.

    A batch that follows the end of its log was torn or lost with the page cache. One before the end is there already;
    one behind it was not acknowledged, because what lies between was not. Topics that are gone stay gone.
    """
    partitions: dict[Partition, int] = {}
    behind: dict[Partition, int] = {}
    for entry in (entry for journaled in found.rounds for entry in journaled.entries):
        topic = topics_by_id.get(entry.topic_id)
        if topic is None or entry.partition >= len(topic.partitions):
            continue
        partition = topic.partitions[entry.partition]
        partitions.setdefault(partition, 0)
        if entry.base_offset == partition.log_end_offset:
            try:
                partition.append_as_is(entry.batch, entry.header, now_ms)
            except KafkaError as error:
                raise DamagedJournal(
                    f"what the journal has for {error.message} cannot be written back; "
                    "make that possible and start again: the journal is kept"
                ) from error
            partitions[partition] += 1
        elif entry.base_offset > partition.log_end_offset:
            behind.setdefault(partition, entry.base_offset)
    for partition, offset in behind.items():
        log.warning(
            "%s-%d: the journal goes on at offset %d, but the log ends at %d and it stays so: "
            "what comes before was not acknowledged, or is lost",
            partition.topic, partition.index, offset, partition.log_end_offset,
        )  # fmt: skip
    return partitions


def begin_again(partition: Partition, batches: int) -> None:
    """After `put_back`, when all is on disk: what was deleted before the crash is deleted still."""
    log.warning(
        "%s-%d: %d batches up to offset %d were put back from the journal",
        partition.topic, partition.index, batches, partition.log_end_offset,
    )  # fmt: skip
    start_offset = min(recovery.read_start_offset(partition.directory), partition.log_end_offset)
    if start_offset > partition.log_start_offset:
        partition.delete_records(start_offset)
