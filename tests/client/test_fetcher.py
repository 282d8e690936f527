"""spec/consumer.md, "Fetching" and points 3 and 4 of "One poll": what is asked for, what is handed out."""

from __future__ import annotations

import pytest

from kohort.client.core.offset_reset import EARLIEST
from kohort.client.offsets.subscription import Position
from kohort.client.types import TopicPartition
from kohort.wire.records.batch import iter_records, read_header, rebuild
from kohort.wire.records.compression import Compression
from tests.client.fetching import ORDERS_0, ORDERS_1, World, batch, data, offsets_asked

BOTH = {ORDERS_0: 1, ORDERS_1: 1}


# --- one fetch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12, 13, 15, 17, 18])
def test_a_fetch_and_its_records_in_every_version(version: int) -> None:
    world = World(
        version=version,
        client_rack="a",
        isolation_level="read_committed",
        fetch_max_wait_ms=321,
        fetch_min_bytes=7,
    )
    world.seek(ORDERS_0, 5)
    request = world.tick()[1]
    assert offsets_asked(request) == {ORDERS_0: 5}
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (321, 7, 50 << 20)
    assert request.replica_id == -1
    assert request.isolation_level == 1
    assert request.rack_id == ("a" if version >= 11 else "")
    part = request.topics[0].partitions[0]
    assert part.partition_max_bytes == 1 << 20
    assert part.current_leader_epoch == (4 if version >= 9 else -1)
    assert part.last_fetched_epoch == -1
    world.answer({ORDERS_0: data(batch(5, 3))}, session_id=0)
    assert world.take() == {ORDERS_0: [5, 6, 7]}
    assert world.state().position == Position(8, 4)


def test_nothing_is_asked_for_partitions_without_a_valid_position() -> None:
    world = World(BOTH)
    world.state(ORDERS_0).reset_to(EARLIEST)
    assert offsets_asked(world.tick()[1]) == {ORDERS_1: 0}


@pytest.mark.parametrize("flag", ["paused", "revoking", "assigning", "validating"])
def test_nothing_is_asked_for_partitions_that_are(flag: str) -> None:
    world = World(BOTH)
    setattr(world.state(ORDERS_0), flag, True)
    assert offsets_asked(world.tick()[1]) == {ORDERS_1: 0}


def test_each_node_is_asked_for_what_it_leads_one_fetch_at_a_time() -> None:
    world = World({ORDERS_0: 1, ORDERS_1: 2})
    sent = world.tick()
    assert {node: offsets_asked(request) for node, request in sent.items()} == {
        1: {ORDERS_0: 0},
        2: {ORDERS_1: 0},
    }
    assert world.tick(after_ms=5000) == {}
    world.answer({ORDERS_1: data()}, node=2)
    assert list(world.tick()) == [2]


def test_a_partition_without_a_leader_waits_for_metadata() -> None:
    world = World(BOTH)
    world.leaders[ORDERS_0] = -1
    world.metadata.request_update("test")
    world.update_metadata()
    assert offsets_asked(world.tick()[1]) == {ORDERS_1: 0}
    world.leaders[ORDERS_0] = 2
    world.update_metadata()  # which must be due
    assert offsets_asked(world.tick()[2]) == {ORDERS_0: 0}


def test_an_empty_answer_is_followed_by_the_same_fetch() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data()})
    assert not world.has_data()
    assert world.take() == {}
    assert 1 in world.tick()


def test_high_watermark_log_start_and_last_stable_offset_are_kept() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(high_watermark=90, log_start_offset=3, last_stable_offset=80)})
    state = world.state()
    assert (state.high_watermark, state.log_start_offset, state.last_stable_offset) == (90, 3, 80)
    assert state.end_offset_known_ms == world.now_ms


# --- prefetch -----------------------------------------------------------------------------------------


def test_the_next_fetch_goes_out_before_the_first_is_handed_out() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3) + batch(3, 4))})
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 7}
    assert world.offset() == 0
    world.answer({ORDERS_0: data(batch(7, 2))})
    assert world.tick() == {}, "one answer in use and one more are enough"
    assert world.take() == {ORDERS_0: [0, 1, 2, 3, 4, 5, 6]}
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 9}
    assert world.take() == {ORDERS_0: [7, 8]}


def test_fetching_ahead_knows_the_end_of_compressed_and_compacted_batches() -> None:
    world = World()
    world.tick()
    whole = batch(0, 30, compression=Compression.LZ4)
    compacted = rebuild(read_header(whole), list(iter_records(whole))[:20])
    world.answer({ORDERS_0: data(bytes(compacted))})
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 30}
    assert world.take() == {ORDERS_0: list(range(20))}
    assert world.offset() == 30


def test_no_more_than_twice_fetch_max_bytes_are_buffered() -> None:
    world = World(BOTH, fetch_max_bytes=1000)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 1, size=1000)), ORDERS_1: data()})
    assert world.fetcher.buffered_bytes > 1000
    assert world.tick() == {}, "there is no room"
    assert world.take() == {ORDERS_0: [0]}
    assert world.fetcher.buffered_bytes == 0
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 1}


def test_a_node_is_not_asked_while_one_of_its_partitions_has_no_room() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(batch(0)), ORDERS_1: data()})
    world.tick()
    world.answer({ORDERS_0: data(batch(1))})
    assert world.tick() == {}
    world.state(ORDERS_0).paused = True
    assert 1 in world.tick(), "a paused partition keeps nobody waiting"


# --- handing out ----------------------------------------------------------------------------------------


def test_max_poll_records_slices_without_dropping() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 4, epoch=2) + batch(4, 3, epoch=4))})
    assert world.take(3) == {ORDERS_0: [0, 1, 2]}
    assert world.state().position == Position(3, 2)
    assert world.has_data()
    assert world.take(3) == {ORDERS_0: [3, 4, 5]}
    assert world.state().position == Position(6, 4)
    assert world.take(3) == {ORDERS_0: [6]}
    assert not world.has_data()
    assert world.take(3) == {}


def test_one_take_is_bounded_over_all_partitions() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 4)), ORDERS_1: data(batch(0, 4))})
    assert world.take(6) == {ORDERS_0: [0, 1, 2, 3], ORDERS_1: [0, 1]}
    assert world.take(6) == {ORDERS_1: [2, 3]}


def test_partitions_take_turns_so_that_none_starves() -> None:
    world = World(BOTH)
    seen: list[TopicPartition] = []
    at = dict.fromkeys(BOTH, 0)
    for _ in range(6):
        if world.tick():
            world.answer({p: data(batch(offset, 2)) for p, offset in world.reads[1].items()})
        for partition, offsets in world.take(2).items():
            assert offsets == [at[partition], at[partition] + 1]
            at[partition] += 2
            seen.append(partition)
    assert seen == [ORDERS_0, ORDERS_1] * 3


def test_without_sessions_who_was_served_last_is_asked_last() -> None:
    world = World(BOTH, version=6)
    world.tick()
    world.answer({ORDERS_0: data(batch(0)), ORDERS_1: data()}, session_id=0)
    assert list(offsets_asked(world.tick()[1])) == [ORDERS_1, ORDERS_0]


def test_records_before_the_position_are_not_handed_out() -> None:
    world = World()
    world.seek(ORDERS_0, 2)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 5))})
    assert world.take() == {ORDERS_0: [2, 3, 4]}


def test_a_batch_cut_short_at_the_end_is_left_for_the_next_fetch() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 5) + batch(5, 5)[:-1])})
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 5}
    assert world.take() == {ORDERS_0: [0, 1, 2, 3, 4]}


# --- seek, pause, revoke ----------------------------------------------------------------------------------


def test_a_late_answer_for_a_position_changed_by_seek_is_dropped() -> None:
    world = World()
    world.tick()
    world.seek(ORDERS_0, 40)
    world.answer({ORDERS_0: data(batch(0, 3))})
    assert not world.has_data()
    assert world.take() == {}
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 40}


def test_an_answer_from_before_a_seek_to_the_same_offset_is_late_too() -> None:
    world = World()
    world.tick()
    world.seek(ORDERS_0, 0)
    world.answer({ORDERS_0: data(batch(0, 3))})
    assert world.take() == {}


def test_a_seek_drops_what_is_buffered_and_what_is_under_way() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    world.tick()
    assert world.take(1) == {ORDERS_0: [0]}
    world.seek(ORDERS_0, 1)
    assert not world.has_data()
    world.answer({ORDERS_0: data(batch(3, 3))})
    assert world.take() == {}
    assert world.fetcher.buffered_bytes == 0
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 1}


def test_pause_keeps_buffered_data_for_resume() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3)), ORDERS_1: data(batch(0, 1))})
    world.take(1)
    world.state(ORDERS_0).paused = True
    assert world.take() == {ORDERS_1: [0]}
    assert not world.has_data()
    world.state(ORDERS_0).paused = False
    assert world.has_data()
    assert world.take() == {ORDERS_0: [1, 2]}


def test_an_answer_that_comes_while_paused_is_kept_too() -> None:
    world = World()
    world.tick()
    world.state().paused = True
    world.answer({ORDERS_0: data(batch(0, 3))})
    assert world.take() == {}
    world.state().paused = False
    assert world.take() == {ORDERS_0: [0, 1, 2]}


def test_pause_then_seek_drops_buffered_data() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    world.state().paused = True
    world.seek(ORDERS_0, 2)
    world.state().paused = False
    assert world.take() == {}


@pytest.mark.parametrize("flag", ["revoking", "assigning"])
def test_partitions_between_two_assignments_return_nothing(flag: str) -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    setattr(world.state(), flag, True)
    assert not world.has_data()
    assert world.take() == {}
    assert world.offset() == 0


def test_data_of_a_revoked_partition_is_dropped_even_if_it_comes_back() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3)), ORDERS_1: data()})
    world.tick()
    world.subscription.assign([ORDERS_1])
    assert not world.has_data()
    world.subscription.assign([ORDERS_0, ORDERS_1])
    world.seek(ORDERS_0, 0)
    world.answer({ORDERS_0: data(batch(3, 3))})
    assert world.take() == {}


def test_an_answer_from_before_a_revoke_is_late_after_it() -> None:
    world = World()
    world.tick()
    world.subscription.assign([])
    world.subscription.assign([ORDERS_0])
    world.seek(ORDERS_0, 0)
    world.answer({ORDERS_0: data(batch(0, 3))})
    assert world.fetcher.buffered_bytes == 0
    assert world.take() == {}


def test_what_was_fetched_ahead_of_dropped_data_is_dropped_too() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    world.tick()
    world.state().validating = True
    assert world.take() == {}
    world.state().validating = False
    world.answer({ORDERS_0: data(batch(3, 3))})
    assert world.fetcher.buffered_bytes == 0


def test_only_data_that_begins_at_the_position_is_handed_out() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    world.state().position = Position(1)
    assert world.take() == {}


def test_data_is_not_trusted_while_its_position_is_compared_with_a_new_leader() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    world.state().validating = True
    assert world.take() == {}
    world.state().validating = False
    assert world.take() == {}
    world.tick()
    assert world.reads[1] == {ORDERS_0: 0}
