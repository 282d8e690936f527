"""Batches, a loop of one queue, and partitions over any directory."""

from __future__ import annotations

import queue
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kohort.log.config import TopicConfig
from kohort.log.durability.sync import Syncer
from kohort.log.partition import Durability, Partition
from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.recovery import CleanState
from kohort.wire.records.batch import BatchHeader, BatchRecord, check_batch, encode_batch, iter_batches

PATIENCE_S = 120.0  # for what never comes: a machine may be slow, and children have to be started


def make_batch(
    count: int = 1,
    *,
    timestamp: int = 1_000,
    step_ms: int = 1,
    size: int = 10,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = 0,
) -> tuple[memoryview, BatchHeader]:
    records = [BatchRecord(n, timestamp + n * step_ms, b"k", b"v" * size, []) for n in range(count)]
    who = (producer_id, producer_epoch, base_sequence) if producer_id >= 0 else (-1, -1, -1)
    batch = encode_batch(records, producer_id=who[0], producer_epoch=who[1], base_sequence=who[2])
    return memoryview(batch), check_batch(batch)


class Inbox:
    """The event loop of a test: callbacks of workers and of the kernel run when the test says so."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._readers: dict[int, Callable[[], None]] = {}

    def __call__(self, fn: Callable[[], None]) -> None:
        self._calls.put(fn)

    call_soon = __call__

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self._readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        del self._readers[fd]

    def run_one(self) -> None:
        if not self._readers:
            self._calls.get(timeout=PATIENCE_S)()
            return
        for _ in range(int(PATIENCE_S / 0.005)):
            if self._run_readers():
                return
            try:
                call = self._calls.get(timeout=0.005)
            except queue.Empty:
                continue
            call()
            return
        raise AssertionError(f"nothing happened for {PATIENCE_S:.0f} s")

    def _run_readers(self) -> bool:
        readable = select.select(list(self._readers), [], [], 0)[0]
        for fd in readable:
            self._readers[fd]()
        return bool(readable)

    def run_ready(self) -> None:
        self._run_readers()
        while not self._calls.empty():
            self.run_one()

    def run_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self.run_one()


class Node:
    """A syncer with its loop, and partitions of one topic `t`."""

    def __init__(self, directory: Directory, durability: Durability = "os", **config: int) -> None:
        self.directory = directory
        self.durability: Durability = durability
        given: dict[str, Any] = {**config}
        self.config = replace(TopicConfig(), **given)
        self.inbox = Inbox()
        self.fatal: list[str] = []
        self.syncer = Syncer(self.inbox, self.fatal.append)

    def open(self, index: int = 0, *, clean: CleanState | None = None) -> Partition:
        """Open a partition: recovered, unless `clean` says how it was left."""
        return Partition.open(
            self.directory,
            "t",
            index,
            self.config,
            durability=self.durability,
            syncer=self.syncer,
            clean=clean,
        )

    def crash(self) -> Node:
        """Open the same directory as a new process would, as far as that is possible in a test."""
        self.syncer.close()
        self.inbox = Inbox()
        self.syncer = Syncer(self.inbox, self.fatal.append)
        return self


@contextmanager
def node_on(directory: Directory, durability: Durability = "os", **config: int) -> Iterator[Node]:
    node = Node(directory, durability, **config)
    try:
        yield node
    finally:
        node.syncer.close()
        if isinstance(directory, DiskDirectory):
            directory.pool.close()


def append(partition: Partition, count: int = 1, *, now_ms: int = 0, **batch: int) -> int:
    data, header = make_batch(count, **batch)
    return partition.append(data, header, now_ms)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log and the broker have logged. Clients of earlier tests may still log something, too."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("kohort.")]


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_batches(data)]


def content(partition: Partition) -> bytes:
    """Everything that can be read, as a consumer would."""
    found = b""
    offset = partition.log_start_offset
    while piece := b"".join(partition.read(offset, 1 << 20, at_least_one=True).chunks()):
        found += piece
        offset = headers_of(piece)[-1].last_offset + 1
    return found
