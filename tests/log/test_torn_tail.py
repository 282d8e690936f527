"""A crash in the middle of a write: whole batches survive, a torn one is cut, nothing else is lost."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kohort.log.partition import Partition
from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.producers import Duplicate
from kohort.wire.errors import ErrorCode, KafkaError
from tests.log.support import Node, append, content, make_batch, node_on, told

LOG_NAME = "00000000000000000000.log"
BATCHES = 3


def produce(partition: Partition, sequence: int) -> int | Duplicate:
    batch, header = make_batch(2, producer_id=7, base_sequence=2 * sequence)
    return partition.producers.check(header) or partition.append(batch, header, 0)


def whole_log(node: Node) -> tuple[bytes, list[int]]:
    """The bytes of three batches, and where each ends."""
    partition = node.open()
    ends = []
    for n in range(BATCHES):
        produce(partition, n)
        ends.append(partition.size)
    return content(partition), ends


def survives(node: Node, log: bytes, whole: int, end: int) -> None:
    """Exactly `whole` batches are there, and the partition goes on after them."""
    partition = node.open()
    assert partition.log_end_offset == partition.high_watermark == 2 * whole
    assert content(partition) == log[:end]
    for n in range(whole):
        assert produce(partition, n) == Duplicate(2 * n, 2 * n + 1, 1001)
    if whole:
        with pytest.raises(KafkaError) as refused:
            produce(partition, whole + 1)
        assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(partition, whole) == 2 * whole
    again = node.open()
    assert again.log_end_offset == 2 * whole + 2


def put(directory: Directory, data: bytes) -> None:
    home = directory.child("t-0")
    home.remove()
    home.make()
    home.open(LOG_NAME, private=True).append(data)


def test_a_log_cut_at_every_byte(directory: Directory) -> None:
    with node_on(directory) as node:
        log, ends = whole_log(node)
        for length in range(len(log) + 1):
            put(directory, log[:length])
            whole = sum(end <= length for end in ends)
            survives(node, log, whole, [0, *ends][whole])


@pytest.mark.parametrize("garbage", [b"\0", b"\xff", b"\x01\x02\x03"], ids=["zeros", "ones", "noise"])
def test_a_log_with_a_tail_of_garbage_from_every_byte(directory: Directory, garbage: bytes) -> None:
    """The file system has extended the file but not written the data."""
    with node_on(directory) as node:
        log, ends = whole_log(node)
        for length in range(0, len(log), 3):
            tail = (garbage * len(log))[: len(log) - length + 40]
            put(directory, log[:length] + tail)
            # The garbage may happen to be what was missing.
            whole = sum((log[:length] + tail).startswith(log[:end]) for end in ends)
            survives(node, log, whole, [0, *ends][whole])


def test_one_wrong_bit_anywhere_in_the_last_batch_costs_only_that_batch(directory: Directory) -> None:
    """Length, magic and CRC cover everything but the leader epoch and the offset, which must not go back."""
    with node_on(directory) as node:
        log, ends = whole_log(node)
        start = ends[-2]
        for at in range(start + 16, len(log)):
            damaged = bytearray(log)
            damaged[at] ^= 0x10
            put(directory, bytes(damaged))
            assert node.open().log_end_offset == 2 * (BATCHES - 1), at


def test_a_batch_whose_offset_goes_back_is_cut(directory: Directory) -> None:
    with node_on(directory) as node:
        log, ends = whole_log(node)
        put(directory, log + log[: ends[0]])
        survives(node, log, BATCHES, len(log))


def test_the_epochs_of_what_was_cut_are_forgotten(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open()
        for epoch in (0, 1):
            partition.leader_epoch = epoch
            append(partition)
        size = partition.size
        partition.close()
        home = directory.child("t-0")
        file = home.open(LOG_NAME, private=True)
        file.truncate(size - 1)
        file.close()
        again = node.crash().open()
        assert again.log_end_offset == 1
        assert again.epochs.latest == 0


def test_what_was_cut_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = DiskDirectory(tmp_path)
    with node_on(directory) as node, caplog.at_level(logging.WARNING):
        log, ends = whole_log(node)
        put(directory, log[:-5])
        node.open()
    (line,) = told(caplog)
    assert "t-0" in line
    assert "offset 4" in line
    assert f"cut {len(log) - 5 - ends[1]} bytes" in line
    assert str(tmp_path / "t-0" / LOG_NAME) in line


def test_segments_after_a_torn_one_are_cut_too(directory: Directory) -> None:
    """Without a state file nothing says that the first was ever complete, and offsets must not have holes."""
    with node_on(directory, internal_segment_bytes=300) as node:
        partition = node.open()
        for _ in range(10):
            append(partition, 2)
        node.crash()
        home = directory.child("t-0")
        bases = [segment.base_offset for segment in partition.segments]
        assert len(bases) >= 3
        for name in home.names():
            if name.endswith(".state"):
                home.delete(name)
        first = home.open(LOG_NAME, private=True)
        first.truncate(first.size - 1)
        first.close()
        again = node.open()
        assert again.log_end_offset == bases[1] - 2
        assert [segment.base_offset for segment in again.segments] == [0]
        assert [name for name in home.names() if name.endswith(".log")] == [LOG_NAME]
        assert append(again, 1) == bases[1] - 2
