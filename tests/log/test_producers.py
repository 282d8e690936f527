"""Idempotent producers: what Kafka answers for each sequence, and that a start restores their state."""

from __future__ import annotations

import pytest

from kohort.log.partition import Partition
from kohort.log.storage.files import Directory
from kohort.log.storage.producers import (
    MAX_SEQUENCE,
    Duplicate,
    ProducerStates,
    sequence_after,
    sequence_before,
)
from kohort.wire.errors import ErrorCode, KafkaError
from tests.log.support import make_batch, node_on

PID = 4000


def produce(
    partition: Partition, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = PID
) -> int | Duplicate | ErrorCode:
    """Check first, then append, as the broker does."""
    batch, header = make_batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    try:
        duplicate = partition.producers.check(header)
    except KafkaError as refused:
        return refused.code
    return duplicate if duplicate is not None else partition.append(batch, header, 0)


def test_the_last_five_batches_are_answered_again_and_not_appended(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open()
        for n in range(7):
            assert produce(partition, 2 * n, 2) == 2 * n
        for n in range(2, 7):
            assert produce(partition, 2 * n, 2) == Duplicate(2 * n, 2 * n + 1, 1001)
        assert produce(partition, 2, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "too old to be remembered"
        assert partition.log_end_offset == 14


def test_a_gap_and_a_batch_of_another_size_are_out_of_order(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open()
        assert produce(partition, 0, 3) == 0
        assert produce(partition, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(partition, 0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(partition, 3) == 3


def test_an_unknown_producer_may_begin_anywhere(directory: Directory) -> None:
    """Its records may have been deleted; Kafka accepts it since 2.5."""
    with node_on(directory) as node:
        partition = node.open()
        assert produce(partition, 17) == 0
        assert produce(partition, 18) == 1
        assert produce(partition, 20) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_epochs_of_a_producer(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open()
        assert produce(partition, 0, epoch=3) == 0
        assert produce(partition, 0, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert produce(partition, 1, epoch=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(partition, 0, epoch=4) == 1
        assert produce(partition, 0, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert produce(partition, 0, epoch=4) == Duplicate(1, 1, 1000)
        (entry,) = partition.producers.entries()
        assert (entry.producer_id, entry.producer_epoch, entry.last_sequence, entry.last_timestamp) == (
            PID,
            4,
            0,
            1000,
        )


def test_sequences_go_round(directory: Directory) -> None:
    with node_on(directory) as node:
        partition = node.open()
        assert produce(partition, MAX_SEQUENCE - 1, 4) == 0  # ..., 2^31-1, 0, 1
        assert produce(partition, MAX_SEQUENCE - 1, 4) == Duplicate(0, 3, 1003)
        assert produce(partition, 2) == 4
        partition.producers.update(make_batch(producer_id=9, base_sequence=MAX_SEQUENCE)[1], 5)
        assert produce(partition, 1, producer_id=9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(partition, 0, producer_id=9) == 5


def test_sequence_arithmetic_is_its_own_inverse() -> None:
    for first in (0, 1, 5, MAX_SEQUENCE - 2, MAX_SEQUENCE):
        for delta in (0, 1, 2, 7):
            last = sequence_after(first, delta)
            assert 0 <= last <= MAX_SEQUENCE
            assert sequence_before(last, delta) == first


def test_idle_producers_expire() -> None:
    states = ProducerStates()
    states.update(make_batch(producer_id=1, timestamp=1000)[1], 0)
    states.update(make_batch(producer_id=2, timestamp=5000)[1], 1)
    assert states.expire(now_ms=2999, expiration_ms=2000) == 0
    assert states.expire(now_ms=3000, expiration_ms=2000) == 1
    assert [entry.producer_id for entry in states.entries()] == [2]


@pytest.mark.parametrize("how", ["crash", "clean stop"])
def test_duplicates_are_known_after_a_start(directory: Directory, how: str) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        partition = node.open()
        for n in range(8):
            assert produce(partition, n) == n
        assert produce(partition, 0, producer_id=PID + 1, epoch=2) == 8
        assert len(partition.segments) == 3
        clean = partition.close() if how == "clean stop" else None
        again = node.crash().open(clean=clean)
        for n in range(3, 8):
            assert produce(again, n) == Duplicate(n, n, 1000)
        assert produce(again, 0, producer_id=PID + 1, epoch=2) == Duplicate(8, 8, 1000)
        assert produce(again, 0, producer_id=PID + 1, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert produce(again, 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(again, 8) == 9
