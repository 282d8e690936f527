"""Small appends with durability=disk: one synced write serves all partitions, and nothing acknowledged is lost."""

from __future__ import annotations

import logging
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.cli.verify import verify
from kohort.log.durability.journal import SMALL_BYTES
from kohort.log.durability.rounds import BLOCK, read_rounds, rounds_in
from kohort.log.journal_replay import DamagedJournal
from kohort.log.partition import Partition
from kohort.log.registry import TopicCreated, TopicDeleted
from kohort.log.storage.files import sync_path
from kohort.log.store import Store
from kohort.wire.errors import ErrorCode, KafkaError
from tests.log.power import Disk
from tests.log.support import Inbox, append, content, headers_of, told
from tests.log.test_store import A, B, crash, do, ends, open_store, running

FILE_BYTES = 16 * BLOCK


@pytest.fixture(params=[False, True], ids=["thread", "kernel"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Rounds are written by a thread, and by the kernel itself."""
    monkeypatch.setattr("kohort.log.durability.journal.FILE_BYTES", FILE_BYTES)
    (tmp_path / "data").mkdir()
    watched = Disk(tmp_path / "data", kernel_writes=request.param).watch(monkeypatch)
    yield watched
    watched.close()


class Running:
    """A store with its loop, and what it acknowledged."""

    def __init__(self, disk: Disk) -> None:
        self.inbox = Inbox()
        self.fatal: list[str] = []
        self.acknowledged: list[tuple[str, int]] = []
        self.answers: list[ErrorCode] = []
        loop = self.inbox if disk.kernel_writes else None
        self.store = open_store(
            disk.root, "disk", call_soon=self.inbox, on_fatal=self.fatal.append, loop=loop
        )

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        return self.store.topics[topic].partitions[index]

    def append(self, index: int = 0, count: int = 1, **batch: int) -> None:
        partition = self.partition(index)
        end = append(partition, count, **batch) + count
        partition.when_durable(end, self.answers.append)

    def settle(self) -> None:
        """Run the loop until everything is acknowledged."""
        self.inbox.run_until(
            lambda: bool(self.fatal) or all(p.high_watermark == p.log_end_offset for p in self.partitions())
        )
        assert self.fatal == []

    def partitions(self) -> list[Partition]:
        return [partition for topic in self.store.topics.values() for partition in topic.partitions]

    def warm_up(self, partitions: int = 3) -> None:
        """Partitions with a file on disk, and a journal that is ready."""
        do(self.store, TopicCreated("t", A, partitions))
        for index in range(partitions):
            self.append(index)
        self.settle()
        self.append()
        self.store._syncer.drain()  # the journal's file is made
        self.append()
        self.settle()


def offsets(store: Store, index: int = 0, topic: str = "t") -> list[int]:
    return [header.base_offset for header in headers_of(content(store.topics[topic].partitions[index]))]


def test_one_write_for_all_partitions(disk: Disk) -> None:
    node = Running(disk)
    node.warm_up(30)
    before, node.answers = (len(disk.synced_files), disk.rounds), []
    for index in range(30):
        node.append(index)
    assert node.answers == [], "nobody is told before it is on disk"
    node.settle()
    assert node.answers == [ErrorCode.NONE] * 30
    assert (len(disk.synced_files), disk.rounds) == (before[0], before[1] + 1)
    node.store.close()


def test_what_the_logs_have_lost_is_put_back(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    for turn in range(4):
        for index in range(3):
            node.append(index, turn + 1, producer_id=7, base_sequence=turn * (turn + 1) // 2)
        node.settle()
    was = [content(partition) for partition in node.partitions()]
    after = disk.cut(tmp_path / "after")
    lost = [(after / f"t-{index}" / f"{0:020d}.log").stat().st_size for index in range(3)]
    assert all(size < len(bytes_) for size, bytes_ in zip(lost, was, strict=True)), "else this shows nothing"
    crash(node.store)
    with running(after, "disk") as again:
        assert [content(partition) for partition in again.topics["t"].partitions] == was
        partition = again.topics["t"].partitions[0]
        (producer,) = partition.producers.entries()
        assert producer.batches[-1].last_offset == partition.log_end_offset - 1
        append(partition)
    with running(after, "disk") as again:
        assert ends(again)[0] == ends(node.store)[0] + 1


def test_putting_back_twice_changes_nothing(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    node.append(0, 3)
    node.settle()
    was = content(node.partition())
    after = disk.cut(tmp_path / "after")
    crash(node.store)
    for _ in range(2):
        store = open_store(after, "disk")
        assert content(store.topics["t"].partitions[0]) == was
        crash(store)


def test_a_journal_torn_at_every_byte(disk: Disk) -> None:
    """Whole rounds are read; a torn one, and what an earlier use of the file left behind it, are not."""
    node = Running(disk)
    node.warm_up()
    for index in (0, 1, 2):
        node.append(index)
        node.settle()
    journal = (disk.root / "appends-0.journal").read_bytes()
    whole = list(rounds_in(memoryview(journal)))
    assert len(whole) >= 3
    old = bytes(reversed(journal))
    end = len(whole) * BLOCK
    for length in range(end):
        for left in (bytes(len(journal)), old):
            torn = memoryview(journal[:length] + left[length:])
            found = [found.sequence for found in rounds_in(torn)]
            complete = sum(torn[at : at + BLOCK] == journal[at : at + BLOCK] for at in range(0, end, BLOCK))
            assert len(found) in (complete, complete + 1), (
                length
            )  # the rest of a round's last block says nothing
            assert found == [found.sequence for found in whole][: len(found)]
            if len(found) > complete:
                assert list(rounds_in(torn))[-1].entries == whole[len(found) - 1].entries
    node.store.close()


def test_rounds_of_an_earlier_lap_do_not_count(disk: Disk) -> None:
    node = Running(disk)
    node.warm_up(1)
    for _ in range(200):
        node.append()
        node.settle()
    node.store._syncer.drain()  # a file is free: what comes now goes by the journal
    node.append()
    node.settle()
    found = read_rounds(disk.root)
    numbers = [found.sequence for found in found.rounds]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert found.damage is None
    assert found.rounds[-1].entries[-1].base_offset == node.partition().log_end_offset - 1
    node.store.close()


def test_a_file_is_used_again_only_after_its_partitions_were_synced(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    for turn in range(150):
        node.append(turn % 3, size=200 + turn)
        node.settle()
        if turn % 10 == 0:
            after = disk.cut(tmp_path / f"after-{turn}")
            with running(after, "disk") as again:
                assert ends(again) == ends(node.store), turn
    assert 0 < len(list(disk.root.glob("appends-*"))) <= 4
    assert disk.rounds > 4 * FILE_BYTES // BLOCK, "every file had several lives"
    node.store.close()


def test_a_large_batch_goes_by_its_own_file_and_small_ones_behind_it_wait(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    disk.gate, node.answers = threading.Event(), []
    rounds = disk.rounds
    start = node.partition().log_end_offset
    node.append(size=SMALL_BYTES)
    node.append()
    node.append(1)
    node.inbox.run_until(lambda: disk.rounds > rounds and bool(node.answers))
    assert node.answers == [ErrorCode.NONE], "that of the other partition"
    assert node.partition().high_watermark == start
    after = disk.cut(tmp_path / "after")
    with running(after, "disk") as again:
        assert ends(again)[0] == start, "the small one is not put back without the large one before it"
    disk.gate.set()
    node.settle()
    assert node.answers == [ErrorCode.NONE] * 3
    after = disk.cut(tmp_path / "later")
    with running(after, "disk") as again:
        assert offsets(again) == list(range(start + 2))
    node.store.close()


def test_a_roll_between_small_appends(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    do(node.store, TopicCreated("t", A, 1, {"internal.segment.bytes": "300"}))
    for turn in range(40):
        node.append(count=1 + turn % 3)
        node.settle()
        if turn % 7 == 0:
            with running(disk.cut(tmp_path / f"after-{turn}"), "disk") as again:
                assert content(again.topics["t"].partitions[0]) == content(node.partition())
    node.store.close()


def test_the_end_of_a_segment_that_was_not_synced_when_the_next_began(disk: Disk, tmp_path: Path) -> None:
    """A log may end between two batches: only the journal knows that something is missing there."""
    node = Running(disk)
    node.warm_up()
    node.append(size=100)
    node.settle()
    promised = content(node.partition())
    disk.gate = threading.Event()
    node.partition().roll(0)
    node.append()
    after = disk.cut(tmp_path / "after", names_kept=True)
    disk.gate.set()
    end = node.partition().log_end_offset - 1
    logs = {path.name: path.stat().st_size for path in (after / "t-0").glob("*.log")}
    assert 0 < logs[f"{0:020d}.log"] < len(promised)
    assert f"{end:020d}.log" in logs
    with running(after, "disk") as again:
        assert content(again.topics["t"].partitions[0]) == promised
        assert append(again.topics["t"].partitions[0]) == end
    node.store.close()


def test_a_failed_write_of_the_journal_is_final(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    promised = ends(node.store)
    node.answers = []
    journal = node.store._syncer.journal
    assert journal is not None
    assert journal._file is not None
    full = os.open("/dev/full", os.O_WRONLY | os.O_DSYNC)
    os.dup2(full, journal._file.fd)
    os.close(full)
    for index in (0, 0, 1):
        node.append(index)
    node.inbox.run_until(lambda: bool(node.fatal))
    assert node.answers == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    (reason,) = node.fatal
    assert "journal" in reason
    assert "No space left" in reason
    with pytest.raises(KafkaError) as refused:
        node.append()
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [partition.high_watermark for partition in node.partitions()] == promised
    after = disk.cut(tmp_path / "after")
    crash(node.store)
    with running(after, "disk") as again:
        assert ends(again) == promised


def test_without_room_for_a_journal_partitions_are_synced_one_by_one(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Running(disk)
    (disk.root / "appends-0.journal").mkdir()
    with caplog.at_level(logging.WARNING):
        node.warm_up()
    (line,) = told(caplog)
    assert "appends-0.journal" in line
    assert "one by one" in line
    (disk.root / "appends-0.journal").rmdir()
    sync_path(str(disk.root))
    for index in range(3):
        node.append(index)
    node.settle()
    assert disk.rounds == 0
    with running(disk.cut(tmp_path / "after"), "disk") as again:
        assert ends(again) == ends(node.store)
    node.store.close()


def test_a_clean_stop_leaves_a_journal_that_says_nothing(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    node.append(2, 5)
    node.store.close()
    assert read_rounds(disk.root).rounds == []
    with running(disk.cut(tmp_path / "after"), "disk") as again:
        assert ends(again) == ends(node.store)
        assert again.leader_epoch == 0


def test_a_start_with_durability_os_puts_back_too_and_removes_the_journal(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    node.append(1, 5)
    node.settle()
    after = disk.cut(tmp_path / "after")
    with running(after, "os") as again:
        assert ends(again) == ends(node.store)
    assert list(after.glob("appends-*")) == []
    node.store.close()


def test_a_deleted_topic_stays_deleted(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    node.append(0, 5)
    node.settle()
    do(node.store, TopicDeleted(A), TopicCreated("t", B, 1))
    after = disk.cut(tmp_path / "after")
    with running(after, "disk") as again:
        assert ends(again) == [0]
    node.store.close()


def test_deleted_records_stay_deleted(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    for _ in range(5):
        node.append(0, 2)
    node.settle()
    start = node.partition().log_end_offset - 3
    assert node.partition().delete_records(start) == start
    with running(disk.cut(tmp_path / "after"), "disk") as again:
        partition = again.topics["t"].partitions[0]
        assert (partition.log_start_offset, partition.log_end_offset) == (start, start + 3)
    node.store.close()


def test_what_expired_does_not_come_back(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    do(node.store, TopicCreated("t", A, 1, {"retention.ms": "1000"}))
    for _ in range(5):
        node.append(0, 2)
        node.settle()
        node.store._syncer.drain()
    node.store.housekeeping(1_000_000)
    node.inbox.run_until(lambda: not node.store.upkeep.is_busy)
    assert node.partition().log_start_offset == 10
    with running(disk.cut(tmp_path / "after", names_kept=True), "disk") as again:
        partition = again.topics["t"].partitions[0]
        assert (partition.log_start_offset, partition.log_end_offset) == (10, 10)
        assert append(partition) == 10
    with running(disk.cut(tmp_path / "also"), "disk") as again:
        assert append(again.topics["t"].partitions[0]) == 10, "whether the disk remembers the deletion or not"
    node.store.close()


def test_a_partition_is_unloaded_after_its_file_was_synced(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    node.append(1, 5)
    node.settle()
    assert not node.partition(1).unload(), "the journal guards it; now it is synced"
    node.store._syncer.drain()
    assert node.partition(1).unload()
    for _ in range(300):  # the journal forgets
        node.append(0)
        node.settle()
    with running(disk.cut(tmp_path / "after"), "disk") as again:
        assert ends(again) == ends(node.store)
    node.store.close()


def test_damage_in_the_middle_is_told(disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Running(disk)
    node.warm_up(1)
    for turn in range(25):
        if turn == 10:
            node.store._syncer.drain()  # the second file is made, without which an append would wait for the gate
            assert (disk.root / "appends-1.journal").exists()
            disk.gate = threading.Event()  # the first file is needed as long as the log is not synced
        node.append()
        node.settle()
    after = disk.cut(tmp_path / "after")
    disk.gate.set()
    assert read_rounds(after).damage is None
    first = after / "appends-0.journal"
    data = bytearray(first.read_bytes())
    data[12 * BLOCK + 40] ^= 1
    first.write_bytes(data)
    assert "of the last" in (read_rounds(after).damage or "")
    with caplog.at_level(logging.WARNING), running(after, "disk") as again:
        assert 1 < ends(again)[0] < ends(node.store)[0], "as far as it goes without a gap"
    assert "rounds of the journal cannot be read" in caplog.text
    assert "t-0: the journal goes on at offset" in caplog.text
    node.store.close()


def test_a_log_that_cannot_be_written_keeps_the_journal(disk: Disk, tmp_path: Path) -> None:
    node = Running(disk)
    node.warm_up()
    node.append(1, 5, size=5000)
    node.settle()
    after = disk.cut(tmp_path / "after")
    crash(node.store)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(DamagedJournal, match=r"t-\d: .*File too large.* the journal is kept"):
            open_store(after, "disk")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with running(after, "disk") as again:
        assert ends(again) == ends(node.store)


def test_verify_tells_of_the_journal(disk: Disk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Running(disk)
    node.warm_up()
    after = disk.cut(tmp_path / "after")
    node.store.close()
    assert verify(str(after)) == 0
    assert "its next start puts back what logs miss of" in capsys.readouterr().out
    assert verify(str(disk.root)) == 0
    assert "journal" not in capsys.readouterr().out
