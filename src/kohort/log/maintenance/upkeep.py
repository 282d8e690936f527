"""Runs rounds over all partitions that delete what has expired and compact what is dirty.

A partition is examined only if its end has moved since the last time, or if the time noted then has come. So ten
thousand idle partitions cost a few milliseconds, and one that was not used since the start is not even opened. A round
works in slices of a few milliseconds, and one pass of compaction runs at a time. Compaction has its own, shorter
interval: a round deletes from topics that are not compacted only once `retention_interval_ms` have passed, because
records may be produced with timestamps that expired long ago, and clients expect to read them for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

from kohort.log.maintenance.cleaner import Covered, Spoiled
from kohort.log.maintenance.compaction import MAX_KEYS, ChildPass, MemoryPass, Pass, job_for, plan
from kohort.log.maintenance.retention import NEVER, expire
from kohort.log.partition import Partition
from kohort.log.storage.files import Directory
from kohort.log.topic import Topic
from kohort.wire.errors import KohortError

log = logging.getLogger(__name__)

CHECKPOINT = "cleaner-offset-checkpoint"
SLICE_S = 0.003
DAY_MS = 24 * 60 * 60 * 1000
# After the first round, which comes log.cleaner.backoff.ms (15 s) after the start.
FIRST_RETENTION_MS = 15_000

Key = tuple[str, int]


class Upkeep:
    """The housekeeping of one node. `root` is the data directory; None if everything is in memory."""

    def __init__(
        self,
        root: Directory | None,
        call_soon: Callable[[Callable[[], None]], object],
        background: Callable[[Callable[[], None]], object],
    ) -> None:
        self.compacts = True  # log.cleaner.enable
        self.max_keys = MAX_KEYS
        self.producer_id_expiration_ms = DAY_MS
        self.retention_interval_ms = 0  # 0: in every round
        self.uncleanable: dict[Key, str] = {}  # why a partition is not compacted any more
        self.checkpoints: dict[Key, int] = read_checkpoints(root) if root is not None else {}
        self._root = root
        self._call_soon = call_soon
        self._background = background
        self._round: Iterator[None] | None = None
        self._dirty: list[tuple[float, Topic, Partition]] = []
        self._pass: tuple[Topic, Pass] | None = None
        self._now_ms = 0
        self._retains = False  # whether this round deletes what has expired in topics that are not compacted
        self.next_retention_ms: int | None = None  # until then a round deletes from compacted topics only

    def start(self, topics: list[Topic], now_ms: int) -> None:
        """Begins a round, if none is under way."""
        self._now_ms = now_ms
        if self._round is None and self._pass is None:
            self._dirty.clear()
            if self.next_retention_ms is None:
                self.next_retention_ms = now_ms + min(self.retention_interval_ms, FIRST_RETENTION_MS)
            self._retains = now_ms >= self.next_retention_ms
            if self._retains:
                self.next_retention_ms = now_ms + self.retention_interval_ms
            self._round = self._look_at_all(topics)
            self._slice()

    @property
    def is_busy(self) -> bool:
        return self._round is not None or self._pass is not None

    def forget(self, topic: Topic) -> None:
        """Stops all work on a topic that is deleted; when this returns nothing uses its files."""
        if self._pass is not None and self._pass[0] is topic:
            self._pass[1].abort()
            self._pass = None
            self._call_soon(self._compact_next)
        gone = [key for key in self.checkpoints if key[0] == topic.name]
        for key in gone:
            del self.checkpoints[key]
        for index in range(len(topic.partitions)):
            self.uncleanable.pop((topic.name, index), None)
        if gone:
            self._save_checkpoints()

    def close(self) -> None:
        """Blocks until nothing is under way."""
        self._round = None
        self._dirty.clear()
        if self._pass is not None:
            self._pass[1].abort()
            self._pass = None

    # A round

    def _slice(self) -> None:
        until = perf_counter() + SLICE_S
        while self._round is not None:
            try:
                next(self._round)
            except StopIteration:
                self._round = None
                self._dirty.sort(key=lambda item: item[0])
                self._compact_next()
                return
            if perf_counter() > until:
                self._call_soon(self._slice)
                return

    def _look_at_all(self, topics: list[Topic]) -> Iterator[None]:
        for topic in topics:
            for index, partition in enumerate(topic.partitions):
                if topic.deleted:
                    break
                end = partition.log_end_offset
                if end == topic.seen_end[index] and topic.due_ms[index] > self._now_ms:
                    if partition.unload():  # nothing was written since the last look
                        yield
                    continue
                topic.seen_end[index] = end
                topic.due_ms[index] = NEVER if not partition.size else self._look_at(topic, partition)
                yield
            yield

    def _look_at(self, topic: Topic, partition: Partition) -> int:
        """Deletes and plans what is due in a partition; returns when to examine it again."""
        try:
            assert self.next_retention_ms is not None
            retains = self._retains or topic.config.compact
            due_ms = expire(partition, self._now_ms) if retains else self.next_retention_ms
            partition.producers.expire(self._now_ms, self.producer_id_expiration_ms)
            if len(partition.producers):
                due_ms = min(due_ms, self._now_ms + self.producer_id_expiration_ms)
            if topic.config.compact and self.compacts:
                key = (topic.name, partition.index)
                if key not in self.uncleanable:
                    chosen, again_ms = plan(partition, self.checkpoints.get(key), self._now_ms)
                    if chosen is None:
                        due_ms = min(due_ms, again_ms)
                    else:
                        self._dirty.append((chosen.dirty_ratio, topic, partition))
            return due_ms
        except (OSError, KohortError) as problem:
            log.error("%s-%d: housekeeping failed: %s", topic.name, partition.index, problem)
            return self._now_ms

    # Compaction

    def _compact_next(self) -> None:
        while self._dirty and self._pass is None:
            _, topic, partition = self._dirty.pop()
            if topic.deleted:
                continue
            try:
                self._begin_pass(topic, partition)
            except (OSError, KohortError) as problem:
                log.error("%s-%d: compaction failed: %s", topic.name, partition.index, problem)

    def _begin_pass(self, topic: Topic, partition: Partition) -> None:
        key = (topic.name, partition.index)
        chosen, again_ms = plan(partition, self.checkpoints.get(key), self._now_ms)
        if chosen is None:
            topic.due_ms[partition.index] = min(
                topic.due_ms[partition.index], max(again_ms, self._now_ms + 1)
            )
            return
        job = job_for(partition, chosen, self._now_ms, self.max_keys)
        kind = MemoryPass if self._root is None else ChildPass
        work = kind(partition, job, partial(self._passed, topic, partition), self._call_soon)
        self._pass = (topic, work)
        try:
            work.start()
        except OSError:  # a process could not be started; the next round tries again
            work.abort()
            self._pass = None
            topic.due_ms[partition.index] = 0
            raise

    def _passed(self, topic: Topic, partition: Partition, result: Covered | Spoiled | None) -> None:
        assert self._pass is not None
        dropped = self._pass[1].dropped
        self._pass = None
        key = (topic.name, partition.index)
        where = f"{topic.name}-{partition.index}"
        if isinstance(result, Spoiled):
            reason = f"bad batch at offset {result.offset}: {result.why}"
            log.error("%s is not compacted any more: %s", where, reason)
            self.uncleanable[key] = reason
        elif isinstance(result, Covered) and not topic.deleted:
            log.info(
                "%s: compacted up to offset %d, %d records dropped", where, result.first_dirty_offset, dropped
            )
            self.checkpoints[key] = result.first_dirty_offset
            self._save_checkpoints()
            self._dirty.append((0.0, topic, partition))  # there may be more keys than one pass can hold
        elif result is None:
            topic.due_ms[partition.index] = 0
        self._compact_next()

    def _save_checkpoints(self) -> None:
        if self._root is not None:
            self._background(partial(self._root.replace, CHECKPOINT, encode_checkpoints(self.checkpoints)))


def encode_checkpoints(checkpoints: dict[Key, int]) -> bytes:
    """Encodes the checkpoints in Kafka's file format."""
    lines = [f"{topic} {index} {offset}\n" for (topic, index), offset in sorted(checkpoints.items())]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def read_checkpoints(directory: Directory) -> dict[Key, int]:
    """Reads the checkpoints; none if the file is damaged: everything counts as dirty then, which costs only time."""
    data = directory.read(CHECKPOINT)
    if data is None:
        return {}
    try:
        version, count, *lines = data.decode().splitlines()
        rows = [line.split(" ") for line in lines]
        if version != "0" or int(count) != len(rows):
            raise ValueError(f"version {version}, {count} entries announced, {len(rows)} found")
        return {(topic, int(index)): int(offset) for topic, index, offset in rows}
    except ValueError as problem:
        log.warning("%s/%s is not usable: %s", directory.path, CHECKPOINT, problem)
        return {}
