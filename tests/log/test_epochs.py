"""Leader epochs: the cases of OffsetForLeaderEpoch, and Kafka's file."""

from __future__ import annotations

from kohort.log.storage.epochs import FILE_NAME, Epochs
from kohort.log.storage.files import Directory
from tests.log.support import append, node_on


def epochs(*entries: tuple[int, int]) -> Epochs:
    found = Epochs()
    for epoch, start in entries:
        found.assign(epoch, start)
    return found


def rows(found: Epochs) -> list[tuple[int, int]]:
    return list(zip(found.epochs, found.starts, strict=True))


def test_end_of_an_epoch() -> None:
    found = epochs((2, 10), (4, 20), (7, 30))
    assert found.end_of(7, 99) == (7, 99), "the current one ends where the log ends"
    assert found.end_of(8, 99) == (-1, -1), "one from the future"
    assert found.end_of(4, 99) == (4, 30)
    assert found.end_of(6, 99) == (4, 30), "one that wrote nothing: the one before it"
    assert found.end_of(2, 99) == (2, 20)
    assert found.end_of(1, 99) == (1, 10), "older than all: where the log begins"
    assert found.end_of(-1, 99) == (-1, -1)
    assert Epochs().end_of(0, 0) == (-1, -1)
    assert found.end_of(8, 99, leader_epoch=9) == (8, 99), "it led, and wrote nothing"
    assert found.end_of(10, 99, leader_epoch=9) == (-1, -1)
    assert Epochs().end_of(0, 0, leader_epoch=0) == (0, 0)


def test_assign_takes_contradictions_away() -> None:
    assert rows(epochs((1, 0), (2, 10), (3, 20), (2, 15))) == [(1, 0), (2, 15)]
    assert rows(epochs((1, 0), (2, 10), (3, 10))) == [(1, 0), (3, 10)]
    assert rows(epochs((1, 0), (1, 5))) == [(1, 0)]


def test_truncation_at_both_ends() -> None:
    found = epochs((1, 0), (2, 10), (3, 20))
    assert found.truncate_from_end(20)
    assert rows(found) == [(1, 0), (2, 10)]
    assert not found.truncate_from_end(20)
    assert found.truncate_from_start(12)
    assert rows(found) == [(2, 12)]
    assert not found.truncate_from_start(12)
    assert not found.truncate_from_start(5)


def test_the_file_is_kafkas(directory: Directory) -> None:
    found = epochs((0, 0), (3, 17))
    found.save(directory)
    assert directory.read(FILE_NAME) == b"0\n2\n0 0\n3 17\n"
    assert rows(Epochs.load(directory)) == rows(found)


def test_a_damaged_file_counts_as_none(directory: Directory) -> None:
    for damaged in (b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"\xff"):
        directory.replace(FILE_NAME, damaged)
        assert rows(Epochs.load(directory)) == []


def test_appends_under_a_new_leader_epoch_are_known_after_crash_and_clean_stop(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open()
        for epoch in (0, 1, 4):
            partition.leader_epoch = epoch
            append(partition, 5)
        expected = [(0, 0), (1, 5), (4, 10)]
        assert rows(partition.epochs) == expected
        assert partition.end_of_epoch(1) == (1, 10)
        assert partition.end_of_epoch(4) == (4, 15)
        after_crash = node.crash().open()
        assert rows(after_crash.epochs) == expected
        after_stop = node.crash().open(clean=after_crash.close())
        assert rows(after_stop.epochs) == expected
