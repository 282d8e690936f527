"""Whatever happens before and between power cuts, what was acknowledged is there, at its offset, once.

And readers of what is committed get all of each transaction, or nothing.
"""

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
from kohort.log.topic import Topic
from kohort.wire.errors import ErrorCode
from kohort.wire.records.batch import (
    BatchRecord,
    ControlKind,
    check_batch,
    encode_batch,
    iter_records,
    read_header,
)
from tests.log.power import Disk
from tests.log.support import Inbox, content, headers_of
from tests.log.test_store import crash, do, open_store
from tests.log.test_transactions import check_transactions, read_committed

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
        check_transactions(partition)
        if compacted:
            self._check_keys(partition, found)
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

    def _check_keys(self, partition: Partition, found: bytes) -> None:
        """Checks that each key of no transaction is there, or a later record with it that a reader gets."""
        promised = {
            record.key: record
            for batch in self.batches.values()
            if not read_header(batch).is_transactional
            for record in iter_records(batch)
        }
        last: dict[bytes | None, BatchRecord] = {}
        visible, stable = read_committed(partition, 4_000), partition.last_stable_offset
        position = 0
        for header in headers_of(found):
            for record in iter_records(memoryview(found)[position : position + header.size]):
                if record.offset in visible or (record.offset >= stable and not header.is_transactional):
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
            (40, self.append),
            (20, self.append_in_transaction),
            (10, self.end_transaction),
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
        base_offset = topic.partitions[index].append(memoryview(batch), check_batch(batch), 0)
        self._promise(topic, index, base_offset, bytes(batch))

    def _promise(self, topic: Topic, index: int, base_offset: int, batch: bytes) -> None:
        promise = self.promises[topic.topic_id][index]

        def answered(code: ErrorCode) -> None:
            if code == ErrorCode.NONE:
                promise.batches[base_offset] = batch

        end_offset = base_offset + read_header(batch).last_offset_delta + 1
        topic.partitions[index].when_durable(end_offset, answered)

    def append_in_transaction(self) -> None:
        topic = self.chance.choice(list(self.store.topics.values()))
        index, producer_id = self.chance.randrange(PARTITIONS), self.chance.randrange(3)
        partition = topic.partitions[index]
        entry = next((e for e in partition.producers.entries() if e.producer_id == producer_id), None)
        epoch, sequence = (entry.producer_epoch, entry.last_sequence + 1) if entry is not None else (0, 0)
        key = b"%d" % self.chance.randrange(8)
        batch = encode_batch(
            [BatchRecord(0, 1000, key, self.chance.randbytes(self.chance.choice((5, 500))), [])],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        guard = partition.begin_verification(producer_id, epoch, sequence, adds=False, now_ms=0)
        assert partition.check(check_batch(batch), guard) is None
        base_offset = partition.append(memoryview(batch), check_batch(batch), 0)
        self._promise(topic, index, base_offset, bytes(batch))

    def end_transaction(self) -> None:
        topic = self.chance.choice(list(self.store.topics.values()))
        index = self.chance.randrange(PARTITIONS)
        partition = topic.partitions[index]
        entries = [e for e in partition.producers.entries() if e.current_txn_first_offset >= 0]
        if not entries:
            return
        entry, version = self.chance.choice(entries), self.chance.choice((1, 2))
        offset = partition.append_marker(
            self.chance.choice((ControlKind.COMMIT, ControlKind.ABORT)),
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch + version - 1,
            coordinator_epoch=0,
            transaction_version=version,
            now_ms=1000,
        )
        active = partition.segments[-1]
        self._promise(topic, index, offset, active.file.pread(active.last_position, 1 << 20))

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
