"""spec/consumer.md, "Fetching": read_committed; and the same records as Arrow."""

from __future__ import annotations

import pytest

from kohort.client.consume.fetch_buffer import Piece
from kohort.client.offsets.subscription import PartitionState, Position
from kohort.wire.records.batch import ControlKind, encode_control_batch
from tests.client.fetching import ORDERS_0, ORDERS_1, World, batch, data, offsets_asked

BOTH = {ORDERS_0: 1, ORDERS_1: 1}


# --- transactions -----------------------------------------------------------------------------------------


def transactional(first: int, count: int, producer_id: int) -> bytes:
    return batch(first, count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, kind: ControlKind, producer_id: int) -> bytes:
    return bytes(
        encode_control_batch(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=1,
            base_offset=offset,
            partition_leader_epoch=4,
        )
    )


def test_read_committed_returns_no_aborted_records_and_moves_past_them() -> None:
    world = World(isolation_level="read_committed")
    world.tick()
    log = transactional(0, 2, 9) + batch(2, 1) + marker(3, ControlKind.ABORT, 9) + transactional(4, 1, 9)
    world.answer({ORDERS_0: data(log, aborted=[(9, 0)], last_stable_offset=4)})
    assert world.take() == {ORDERS_0: [2, 4]}
    assert world.offset() == 5


def test_a_position_moves_past_an_answer_that_holds_nothing_for_users() -> None:
    world = World(isolation_level="read_committed")
    world.tick()
    log = transactional(0, 2, 9) + marker(2, ControlKind.ABORT, 9)
    world.answer({ORDERS_0: data(log, aborted=[(9, 0)])})
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 3}
    assert world.has_data(), "somebody must move the position"
    assert world.take() == {}
    assert world.state().position == Position(3, 4)
    assert not world.has_data()
    world.answer({ORDERS_0: data(batch(3, 1))})
    assert world.take() == {ORDERS_0: [3]}


def test_after_an_answer_without_records_the_next_one_is_handed_out_at_once() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(marker(0, ControlKind.COMMIT, 9))})
    world.tick()
    world.answer({ORDERS_0: data(batch(1, 2))})
    assert world.take() == {ORDERS_0: [1, 2]}


def test_control_batches_at_the_end_do_not_hold_the_position_back() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(transactional(0, 2, 9) + marker(2, ControlKind.COMMIT, 9))})
    assert world.take(1) == {ORDERS_0: [0]}
    assert world.offset() == 1
    assert world.take(1) == {ORDERS_0: [1]}
    assert world.offset() == 3


def test_read_uncommitted_returns_aborted_records_but_no_control_records() -> None:
    world = World()
    world.tick()
    log = transactional(0, 2, 9) + marker(2, ControlKind.ABORT, 9) + batch(3)
    world.answer({ORDERS_0: data(log, aborted=[(9, 0)])})
    assert world.take() == {ORDERS_0: [0, 1, 3]}


def test_an_answer_that_unpacks_to_very_much_is_decoded_in_steps() -> None:
    log = transactional(0, 2, 9) + batch(2, 3) + marker(5, ControlKind.ABORT, 9) + transactional(6, 2, 9)
    piece = Piece(PartitionState(), 0, 0, memoryview(log), [(9, 0)], len(log), 8, 4)
    cuts = []
    while (columns := piece.cut(2, check_crcs=True, max_bytes=1)) is not None:
        cuts.append((columns.offsets.tolist(), piece.next_offset, piece.is_used_up))
    assert cuts == [([2, 3], 4, False), ([4], 5, False), ([6, 7], 8, True)]
    assert piece.error is None


def test_what_stands_before_another_message_format_comes_in_steps_too() -> None:
    old_format = bytearray(batch(4))
    old_format[16] = 1
    log = batch(0, 2) + batch(2, 2) + old_format + batch(5)
    piece = Piece(PartitionState(), 0, 0, memoryview(log), None, len(log), None, -1)
    cuts = []
    while (columns := piece.cut(500, check_crcs=True, max_bytes=1)) is not None:
        cuts.append((columns.offsets.tolist(), piece.next_offset, piece.error))
    assert cuts == [([0, 1], 2, None), ([2, 3], 4, None)]
    assert piece.next_offset == 4
    assert "at offset 4" in str(piece.error)


# --- Arrow --------------------------------------------------------------------------------------------------


def test_arrow_takes_all_that_is_buffered_and_moves_the_same_positions() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3)), ORDERS_1: data(batch(0, 2))})
    world.tick()
    world.answer({ORDERS_0: data(batch(3, 2))})
    taken = world.fetcher.take_arrow(None, ("partition", "offset"), world.now_ms)
    assert taken.column_names == ["partition", "offset"]
    rows = sorted(zip(taken["partition"].to_pylist(), taken["offset"].to_pylist(), strict=True))
    assert rows == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1)]
    assert (world.offset(ORDERS_0), world.offset(ORDERS_1)) == (5, 2)
    assert world.fetcher.take_arrow(None, None, world.now_ms) is None


@pytest.mark.parametrize(
    ("setting", "asked"),
    [({}, [1 << 20, 8 << 20, 1 << 20, 3 << 20]), ({"max_partition_fetch_bytes": 5000}, [5000] * 4)],
)
def test_a_partition_is_asked_for_what_one_poll_returns(setting: dict[str, int], asked: list[int]) -> None:
    world, sizes = World(version=12, **setting), []
    for first, most in ((0, None), (1, 500), (2, 3 * 1024), (3, 1)):
        sizes += [topic.partitions[0].partition_max_bytes for topic in world.tick()[1].topics]
        one = batch(first)
        world.answer(
            {ORDERS_0: data(batch(first, size=1024 + 8 - len(one)))}, session_id=0
        )  # a record takes 1 KB
        if most is None:
            world.fetcher.take_arrow(None, None, world.now_ms)
        else:
            world.fetcher.take(most, world.now_ms)
    assert sizes == asked


def test_arrow_is_bounded_by_max_records() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 5))})
    assert world.fetcher.take_arrow(3, ("offset",), world.now_ms)["offset"].to_pylist() == [0, 1, 2]
    assert world.take() == {ORDERS_0: [3, 4]}


def test_a_wrong_column_costs_no_records() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 5))})
    with pytest.raises(ValueError, match="valeu"):
        world.fetcher.take_arrow(None, ("valeu",), world.now_ms)
    assert world.offset() == 0
