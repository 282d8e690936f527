"""Whatever happens before and between power cuts, what was acknowledged is there, at its offset, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from kohort.log.datadir import new_uuid
from kohort.log.durability.journal import SMALL_BYTES
from kohort.log.durability.rounds import BLOCK
from kohort.log.partition import Partition
from kohort.log.registry import TopicCreated, TopicDeleted
from kohort.wire.errors import ErrorCode
from kohort.wire.records.batch import BatchRecord, check_batch, encode_batch, iter_records, read_header
from tests.log.power import Disk
from tests.log.support import Inbox, content, headers_of
from tests.log.test_store import crash, do, open_store

PARTITIONS = 3
EXPIRED_MS = 10_000_000
CONFIGS = {
    "plain": {"internal.segment.bytes": "40000"},
    "small": {"internal.segment.bytes": "600"},
    "expires": {"internal.segment.bytes": "600", "retention.ms": "1000"},
    "compacted": {
        "internal.segment.bytes": "600",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
}


@dataclass
class Promise:
    """What one partition has acknowledged."""

    batches: dict[int, bytes] = field(default_factory=dict)  # base offset -> batch
    start_offset: int = 0  # as DeleteRecords answered
    expired_offset: int = 0  # what is before it has expired: some of it may come back, some not

    @property
    def end_offset(self) -> int:
        return max((read_header(batch).last_offset + 1 for batch in self.batches.values()), default=0)

    def check(self, partition: Partition, compacted: bool, expires: bool) -> None:
        found = content(partition)
        headers = headers_of(found)
        offsets = [header.base_offset for header in headers]
        assert offsets == sorted(set(offsets)), "an offset twice"
        assert partition.log_end_offset >= self.end_offset
        assert partition.log_start_offset >= self.start_offset
        if compacted:
            self._check_keys(found)
            return
        assert expires or partition.log_start_offset <= self.start_offset
        at = {}
        position = 0
        for header in headers:
            at[header.base_offset] = found[position : position + header.size]
            position += header.size
        for base_offset, batch in self.batches.items():
            if read_header(batch).last_offset >= max(partition.log_start_offset, self.expired_offset):
                assert at.get(base_offset) == batch, (
                    f"{partition}: offset {base_offset} is not among {offsets}; {partition.segments}"
                )

    def _check_keys(self, found: bytes) -> None:
        promised = {record.key: record for batch in self.batches.values() for record in iter_records(batch)}
        last: dict[bytes | None, BatchRecord] = {}
        position = 0
        for header in headers_of(found):
            for record in iter_records(memoryview(found)[position : position + header.size]):
                last[record.key] = record
            position += header.size
        for key, record in promised.items():
            assert key in last, f"key {key!r} at offset {record.offset}"
            newest = last[key]
            assert newest.offset > record.offset or newest == record


class Life:
    """A store under random work, on a disk whose power goes now and then."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self.disk = disk
        self.chance = Random(seed)
        self.promises: dict[bytes, list[Promise]] = {}
        self.lives = 0
        self._open()

    def _open(self) -> None:
        self.inbox = Inbox()
        self.fatal: list[str] = []
        loop = self.inbox if self.disk.kernel_writes else None
        self.store = open_store(
            self.disk.root, "disk", call_soon=self.inbox, on_fatal=self.fatal.append, loop=loop
        )
        self.store.set_upkeep(
            compacts=True, max_keys=1000, producer_id_expiration_ms=1 << 40, retention_interval_ms=0
        )
        for name in CONFIGS:
            if name not in self.store.topics:
                self._create(name)

    def _create(self, name: str) -> None:
        topic_id = new_uuid()
        do(self.store, TopicCreated(name, topic_id, PARTITIONS, CONFIGS[name]))
        self.promises[topic_id] = [Promise() for _ in range(PARTITIONS)]

    def work(self, steps: int) -> None:
        kinds: list[tuple[int, Callable[[], None]]] = [
            (60, self.append),
            (25, self.let_loop_run),
            (10, self.wait),
            (4, self.delete_records),
            (4, self.unload),
            (2, self.recreate),
            (2, self.upkeep),
            (2, self.kill),
            (3, self.cut_power),
            (1, self.stop_and_start),
        ]
        weights = [weight for weight, _ in kinds]
        for _ in range(steps):
            self.chance.choices(kinds, weights)[0][1]()
            assert self.fatal == []
        self.cut_power()

    # What can happen

    def append(self) -> None:
        topic = self.chance.choice(list(self.store.topics.values()))
        index = self.chance.randrange(PARTITIONS)
        size = self.chance.choice((5, 50, 500, 5000, SMALL_BYTES if topic.name == "plain" else 5))
        records = [
            BatchRecord(n, 1000 + n, b"%d" % self.chance.randrange(8), self.chance.randbytes(size), [])
            for n in range(self.chance.randint(1, 4))
        ]
        batch = encode_batch(records)
        partition = topic.partitions[index]
        base_offset = partition.append(memoryview(batch), check_batch(batch), 0)
        promise = self.promises[topic.topic_id][index]

        def answered(code: ErrorCode) -> None:
            if code == ErrorCode.NONE:
                promise.batches[base_offset] = bytes(batch)

        partition.when_durable(base_offset + len(records), answered)

    def let_loop_run(self) -> None:
        self.inbox.run_ready()

    def wait(self) -> None:
        """Run the loop until all is acknowledged."""
        partitions = [partition for topic in self.store.topics.values() for partition in topic.partitions]

        def all_is_done() -> bool:
            assert self.fatal == []
            assert not [partition.stopped for partition in partitions if partition.stopped]
            return all(p.high_watermark == p.log_end_offset for p in partitions)

        self.inbox.run_until(all_is_done)

    def delete_records(self) -> None:
        topic = self.chance.choice(list(self.store.topics.values()))
        partition = topic.partitions[self.chance.randrange(PARTITIONS)]
        low, high = partition.log_start_offset, partition.high_watermark
        if topic.name != "compacted":
            start = partition.delete_records(self.chance.choice((low, high, (low + high) // 2)))
            if start > low:  # else it was retention's doing, which a power cut may undo
                self.promises[topic.topic_id][partition.index].start_offset = start

    def unload(self) -> None:
        for topic in self.store.topics.values():
            for partition in topic.partitions:
                partition.unload()

    def recreate(self) -> None:
        topic = self.chance.choice(list(self.store.topics.values()))
        do(self.store, TopicDeleted(topic.topic_id))
        del self.promises[topic.topic_id]
        self._create(topic.name)

    def upkeep(self) -> None:
        """Retention and compaction; sometimes only their beginning, before something else happens."""
        self.store.housekeeping(EXPIRED_MS)
        if self.chance.random() < 0.7:
            self.inbox.run_until(lambda: not self.store.upkeep.is_busy)
        else:
            until = time.monotonic() + self.chance.random() / 5
            while time.monotonic() < until:
                self.inbox.run_ready()

    def kill(self) -> None:
        """The process dies, the machine does not: what was written is there."""
        self.store.upkeep.close()
        crash(self.store)
        self._open()
        self.check()

    def cut_power(self) -> None:
        self.lives += 1
        for partition, promise in self._both("expires"):
            promise.expired_offset = max(promise.expired_offset, partition.log_start_offset)
        target = self.disk.root.with_name(f"life-{self.lives}")
        after = self.disk.cut(target, self.chance.choice((None, self.chance)))
        promised = {
            topic_id: [replace(one, batches=dict(one.batches)) for one in promises]
            for topic_id, promises in self.promises.items()
        }
        self.store.upkeep.close()
        crash(self.store)  # whatever it still does, it does to the old directory
        self.promises = promised
        self.disk.go_on_with(after)
        self._open()
        self.check()

    def stop_and_start(self) -> None:
        self.store.close()
        self._open()
        self.check()

    def _both(self, name: str) -> Iterator[tuple[Partition, Promise]]:
        topic = self.store.topics[name]
        return zip(topic.partitions, self.promises[topic.topic_id], strict=True)

    def check(self) -> None:
        for topic_id, promises in self.promises.items():
            topic = self.store.topics_by_id[topic_id]
            for partition, promise in zip(topic.partitions, promises, strict=True):
                print(
                    f"life {self.lives}: {partition}, promised {promise.start_offset}..{promise.end_offset}"
                )
                promise.check(partition, topic.name == "compacted", topic.name == "expires")
                self._forget_the_unpromised(partition, promise)

    @staticmethod
    def _forget_the_unpromised(partition: Partition, promise: Promise) -> None:
        """Expect what a start has found from now on, because consumers see it."""
        found = content(partition)
        position = 0
        for header in headers_of(found):
            promise.batches[header.base_offset] = found[position : position + header.size]
            position += header.size


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.log.durability.journal.FILE_BYTES", 16 * BLOCK)
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", kernel_writes=seed % 2 == 1).watch(monkeypatch)
    life = Life(disk, seed)
    try:
        life.work(300)
        assert disk.rounds > 20, "the journal was used"
    finally:
        life.store.close()
        disk.close()
