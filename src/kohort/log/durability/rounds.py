"""Defines the format of the journal of small appends on disk, and reads what an earlier run left in it.

`appends-<n>.journal` are files of fixed size, filled with rounds one after the other and used again in turn. A round
begins at a block, so that writing it touches no block of an earlier one:

    magic, CRC-32C of the rest, sequence number, checkpoint, length, number of entries
    entries: topic id, partition, and the batch as it is in the partition's log

Sequence numbers go up by one. The first one after a start is random, so that what an earlier run left behind the last
round never looks like its successor. Everything before `checkpoint` is durable in the partitions' own files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kohort.wire.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, header_fields, read_header

BLOCK = 4096
PATTERN = "appends-*.journal"

HEAD = Struct(">4sIQQII")
KEY = Struct(">16sI")
MAGIC = b"KHJ1"
CRC = Struct(">I")
CRC_AT, CRC_FROM = 4, 8  # its position, and that of the first byte that it covers

_PLACE = header_fields("base_offset", "batch_length")


class JournalEntry(NamedTuple):
    """One batch in the journal, and the partition that it belongs to."""

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


class JournalRound(NamedTuple):
    """One synced write of the journal, as it is read back."""

    sequence: int
    checkpoint: int
    entries: list[JournalEntry]


class FoundRounds(NamedTuple):
    """The rounds that a start found and that may be needed."""

    rounds: list[JournalRound]  # from the checkpoint on, in order
    damage: str | None  # which rounds are missing, if any

    def offsets(self) -> dict[tuple[bytes, int], set[int]]:
        """Returns the base offsets of all batches, by topic id and partition."""
        offsets: dict[tuple[bytes, int], set[int]] = {}
        for journaled in self.rounds:
            for entry in journaled.entries:
                offsets.setdefault(entry[:2], set()).add(entry.base_offset)
        return offsets


def blocks(length: int) -> int:
    """Returns the length rounded up to whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


def rounds_in(data: memoryview) -> Iterator[JournalRound]:
    """Yields the rounds of one file, up to the first that is torn or does not follow the one before."""
    position, expected = 0, None
    while position + HEAD.size <= len(data):
        magic, crc, sequence, checkpoint, length, count = HEAD.unpack_from(data, position)
        end = position + length
        if magic != MAGIC or length < HEAD.size or end > len(data) or expected not in (None, sequence):
            return
        if crc32c(data[position + CRC_FROM : end]) != crc:
            return
        yield JournalRound(sequence, checkpoint, _entries(data[position + HEAD.size : end], count))
        expected = sequence + 1
        position += blocks(length)


def _entries(data: memoryview, count: int) -> list[JournalEntry]:
    entries, position = [], 0
    for _ in range(count):
        topic_id, partition = KEY.unpack_from(data, position)
        position += KEY.size
        size = _PLACE.unpack_from(data, position)[1] + LENGTH_END
        assert size >= HEADER_SIZE, f"a batch of {size} bytes in the journal"
        entries.append(JournalEntry(topic_id, partition, data[position : position + size]))
        position += size
    return entries


def read_rounds(directory: Path) -> FoundRounds:
    """Reads the journal of a data directory that no process has open."""
    chains: list[list[JournalRound]] = []
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
        return FoundRounds([], None)
    checkpoint = rounds[-1].checkpoint
    live = [found for found in rounds if found.sequence >= checkpoint]
    expected = rounds[-1].sequence - checkpoint + 1
    damage = None
    if len(live) < expected:
        damage = f"{expected - len(live)} of the last {expected} rounds of the journal cannot be read"
    return FoundRounds(live, damage)


def remove_journal(directory: Path) -> None:
    for path in directory.glob(PATTERN):
        path.unlink()
