"""Group commit: an append is acknowledged after a sync that began after it, and never otherwise."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kohort.log.partition import Durability
from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.recovery import CleanState
from kohort.wire.errors import ErrorCode, KafkaError
from tests.log.faulty import Faults, FaultyDirectory
from tests.log.support import PATIENCE_S, Node, append, content, headers_of, node_on

FRESH = CleanState()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def faulty(directory: Directory, faults: Faults) -> Directory:
    return FaultyDirectory(directory, faults)  # type: ignore[return-value]


def test_disk_answers_after_the_sync(faulty: Directory, faults: Faults) -> None:
    faults.gate = threading.Event()
    with node_on(faulty, "disk") as node:
        partition = node.open(clean=FRESH)
        answers: list[ErrorCode] = []
        heard: list[int] = []
        partition.add_waiter(lambda: heard.append(partition.high_watermark))
        append(partition, 3)
        partition.when_durable(3, answers.append)
        assert faults.entered.wait(PATIENCE_S), "a lone append is synced at once"
        assert (partition.high_watermark, partition.log_end_offset, answers, heard) == (0, 3, [], [])
        assert len(partition.read(0, 1000, at_least_one=True)) == 0, (
            "nobody sees what a crash could take back"
        )
        faults.gate.set()
        node.inbox.run_until(lambda: bool(answers))
        assert (partition.high_watermark, answers, heard) == (3, [ErrorCode.NONE], [3])
        assert len(headers_of(content(partition))) == 1


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_others_answer_at_once(directory: Directory, durability: Durability) -> None:
    with node_on(directory, durability) as node:
        partition = node.open(clean=FRESH)
        append(partition)
        answers: list[ErrorCode] = []
        partition.when_durable(1, answers.append)
        assert answers == [ErrorCode.NONE]


def test_one_sync_serves_all_who_came_during_the_one_before(faulty: Directory, faults: Faults) -> None:
    faults.gate = threading.Event()
    with node_on(faulty, "disk") as node:
        partition = node.open(clean=FRESH)
        answers: list[int] = []
        for n in range(50):
            append(partition)
            partition.when_durable(n + 1, lambda code, n=n: answers.append(n))
        assert faults.entered.wait(PATIENCE_S)
        faults.gate.set()
        node.inbox.run_until(lambda: len(answers) == 50)
        assert answers == list(range(50)), "in the order of their appends"
        assert len(faults.syncs) == 2


def test_high_watermark_in_between_is_where_the_sync_began(faulty: Directory, faults: Faults) -> None:
    faults.gate = threading.Event()
    with node_on(faulty, "disk", internal_segment_bytes=300) as node:
        partition = node.open(clean=FRESH)
        append(partition, 2)
        assert faults.entered.wait(PATIENCE_S)
        faults.entered.clear()
        gate, faults.gate = faults.gate, threading.Event()
        for _ in range(6):
            append(partition, 2, timestamp=5000)
        assert len(partition.segments) > 2
        gate.set()
        node.inbox.run_until(lambda: partition.high_watermark > 0)
        assert partition.high_watermark == 2
        assert [header.last_offset for header in headers_of(content(partition))] == [1]
        assert partition.find_time(0) == (1000, 0)
        assert partition.find_time(4000) is None, "nobody may learn of that record yet"
        assert partition.max_timestamp() is None
        faults.gate.set()
        node.inbox.run_until(lambda: partition.high_watermark == 14)
        assert len(headers_of(content(partition))) == 7
        assert partition.find_time(4000) == (5000, 2)


def test_a_roll_in_between_syncs_both_files(faulty: Directory, faults: Faults) -> None:
    faults.gate = threading.Event()
    with node_on(faulty, "disk", internal_segment_bytes=150) as node:
        partition = node.open(clean=FRESH)
        for _ in range(3):
            append(partition, 2)
        assert len(partition.segments) == 3
        faults.gate.set()
        node.inbox.run_until(lambda: partition.high_watermark == 6)
        logs = [f"{base:020d}.log" for base in (0, 2, 4)]
        assert faults.syncs == [logs[0], *logs], "the first alone, then all that came meanwhile"


def test_many_partitions_share_the_workers(faulty: Directory, faults: Faults) -> None:
    faults.gate = threading.Event()
    with node_on(faulty, "disk") as node:
        partitions = [node.open(n, clean=FRESH) for n in range(30)]
        for _ in range(5):
            for partition in partitions:
                append(partition)
        faults.gate.set()
        node.inbox.run_until(lambda: all(partition.high_watermark == 5 for partition in partitions))
        # Four began with one batch each and need a second turn; the others waited and need one.
        assert len(faults.syncs) == 30 + 4


def test_a_failed_sync_is_final(faulty: Directory, faults: Faults) -> None:
    with node_on(faulty, "disk") as node:
        partition = node.open(clean=FRESH)
        append(partition, 2)
        node.inbox.run_until(lambda: partition.high_watermark == 2)
        faults.fail_sync = True
        answers: list[ErrorCode] = []
        woken: list[str | None] = []
        partition.add_waiter(lambda: woken.append(partition.stopped))
        for n in range(3):
            append(partition)
            partition.when_durable(3 + n, answers.append)
        node.inbox.run_until(lambda: bool(node.fatal))
        assert answers == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
        assert "a sync failed" in node.fatal[0]
        assert "t-0" in node.fatal[0]
        assert partition.stopped in woken
        faults.fail_sync = False
        with pytest.raises(KafkaError) as refused:
            append(partition)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        partition.when_durable(3, answers.append)
        assert answers[3] == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == 2
        assert len(headers_of(content(partition))) == 1, "what was durable is still served"
        assert len(node.fatal) == 1


def test_a_deleted_partition_lets_its_producers_go(faulty: Directory, faults: Faults) -> None:
    faults.gate = threading.Event()
    with node_on(faulty, "disk") as node:
        partition = node.open(clean=FRESH)
        append(partition)
        answers: list[ErrorCode] = []
        partition.when_durable(1, answers.append)
        partition.delete()
        faults.gate.set()
        node.inbox.run_until(lambda: bool(answers))
        assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert node.fatal == []


def test_new_names_are_durable_before_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory and its parent are synced with the first append, the directory with each new segment."""
    synced: list[str] = []
    directory = DiskDirectory(tmp_path)
    monkeypatch.setattr("kohort.log.storage.files.sync_path", lambda path: synced.append(str(path)))
    with node_on(directory, "disk") as node:
        partition = node.open(clean=FRESH)
        append(partition)
        node.inbox.run_until(lambda: partition.high_watermark == 1)
        assert set(synced) == {str(tmp_path / "t-0"), str(tmp_path)}
        synced.clear()
        append(partition)
        node.inbox.run_until(lambda: partition.high_watermark == 2)
        assert synced == []


def test_close_makes_the_rest_durable_without_the_loop(faulty: Directory, faults: Faults) -> None:
    node = Node(faulty, "disk")
    partition = node.open(clean=FRESH)
    for _ in range(10):
        append(partition)
    clean = partition.close()
    node.syncer.close()
    assert clean.log_end_offset == 10
    assert partition.high_watermark == 10
    assert faults.syncs
    assert node.open(clean=clean).log_end_offset == 10


def test_background_work_does_not_wait_and_a_failure_is_only_logged(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    with node_on(directory) as node:
        done: list[int] = []

        def fail() -> None:
            raise OSError("cannot")

        node.syncer.background(fail)
        node.syncer.background(lambda: done.append(1))
        node.syncer.drain()
        assert done == [1]
        assert "cannot" in caplog.text
        assert node.fatal == []
