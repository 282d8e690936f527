"""spec/consumer.md, "Fetching": errors of partitions, corrupt batches, leaders that move, preferred replicas."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kohort.client.core.effects import FailureKind
from kohort.client.core.offset_reset import LATEST
from kohort.client.errors import AuthenticationFailed, AuthorizationFailed, CorruptRecord, OffsetOutOfRange
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.fetch import NodeEndpoint
from tests.client.fetching import ORDERS_0, ORDERS_1, World, batch, data, offsets_asked

BOTH = {ORDERS_0: 1, ORDERS_1: 1}


def failed(error: ErrorCode, *, position: int = 0, **settings: Any) -> World:
    """One partition whose fetch at `position` was answered with an error."""
    world = World(**settings)
    world.seek(ORDERS_0, position)
    world.tick()
    world.answer({ORDERS_0: data(error=error, high_watermark=-1)})
    return world


def damaged(records: bytes) -> bytes:
    spoiled = bytearray(records)
    spoiled[-1] ^= 0xFF
    return bytes(spoiled)


# --- leaders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ],
)
def test_stale_metadata_is_asked_for_again_and_the_fetch_goes_on(error: ErrorCode) -> None:
    world = failed(error, position=7)
    assert world.metadata.is_due
    assert world.fetcher.take_error() is None
    assert world.fetcher.next_deadline_ms() == world.now_ms + 100
    assert world.tick(after_ms=99) == {}
    world.tick(after_ms=1)
    assert world.reads[1] == {ORDERS_0: 7}
    world.answer({ORDERS_0: data(batch(7))})
    assert world.take() == {ORDERS_0: [7]}


def test_a_partition_that_failed_does_not_keep_others_of_its_node_waiting() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), ORDERS_1: data(batch(0))})
    world.tick()
    assert world.reads[1] == {ORDERS_1: 1}
    assert world.take() == {ORDERS_1: [0]}


def test_the_new_leader_from_metadata_is_asked_without_waiting() -> None:
    world = World()
    world.tick(after_ms=5000)
    world.answer({ORDERS_0: data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)})
    assert world.tick() == {}
    world.leaders[ORDERS_0], world.epochs[ORDERS_0] = 2, 5
    world.update_metadata(after_ms=10)
    request = world.tick()[2]
    assert offsets_asked(request) == {ORDERS_0: 0}
    assert request.topics[0].partitions[0].current_leader_epoch == 5


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_leader_that_the_answer_names_is_asked_at_once_KIP_951(error: ErrorCode) -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(error=error, leader=(9, 6))}, nodes=[NodeEndpoint(9, "node9", 9092, "rack")])
    request = world.tick()[9]
    assert request.topics[0].partitions[0].current_leader_epoch == 6
    node = world.metadata.node(9)
    assert node is not None
    assert (node.host, node.port, node.rack) == ("node9", 9092, "rack")


def test_an_older_leader_in_an_answer_is_not_believed() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(2, 3))})
    assert world.metadata.cluster.leader_of(ORDERS_0) == 1


def test_an_error_of_fetching_ahead_is_told_when_the_user_gets_there() -> None:
    world = World(auto_offset_reset="none")
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 2))})
    world.tick()
    world.answer({ORDERS_0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert world.fetcher.take_error() is None
    assert world.tick() == {}, "not again while there is something to hand out"
    assert world.take() == {ORDERS_0: [0, 1]}
    assert world.tick() != {}
    world.answer({ORDERS_0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert isinstance(world.fetcher.take_error(), OffsetOutOfRange)


# --- out of range -------------------------------------------------------------------------------------------


def test_out_of_range_goes_to_where_the_reset_policy_says() -> None:
    world = failed(ErrorCode.OFFSET_OUT_OF_RANGE, position=50, auto_offset_reset="latest")
    assert world.state().reset == LATEST
    assert world.state().position is None
    assert world.fetcher.take_error() is None
    assert world.tick() == {}


def test_out_of_range_without_a_reset_policy_is_raised_and_a_seek_ends_it() -> None:
    world = failed(ErrorCode.OFFSET_OUT_OF_RANGE, position=50, auto_offset_reset="none")
    assert world.has_error()
    error = world.fetcher.take_error()
    assert isinstance(error, OffsetOutOfRange)
    assert error.partitions == {ORDERS_0: 50}
    assert "orders-0" in str(error)
    assert "seek" in str(error)
    assert world.offset() == 50
    world.seek(ORDERS_0, 3)
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 3}, "without waiting for the backoff"


def test_an_out_of_range_error_that_was_not_raised_yet_is_forgotten_after_a_seek() -> None:
    world = failed(ErrorCode.OFFSET_OUT_OF_RANGE, position=50, auto_offset_reset="none")
    world.seek(ORDERS_0, 3)
    assert not world.has_error()
    assert world.fetcher.take_error() is None


def test_out_of_range_after_a_seek_is_ignored() -> None:
    world = World(auto_offset_reset="latest")
    world.tick()
    world.seek(ORDERS_0, 3)
    world.answer({ORDERS_0: data(error=ErrorCode.OFFSET_OUT_OF_RANGE)})
    assert world.offset() == 3
    assert world.state().reset is None
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 3}


# --- told to the user ---------------------------------------------------------------------------------------


def test_a_topic_that_may_not_be_read_is_raised_once_per_answer() -> None:
    world = failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = world.fetcher.take_error()
    assert isinstance(error, AuthorizationFailed)
    assert "orders" in str(error)
    assert world.fetcher.take_error() is None
    world.tick(after_ms=100)
    world.answer({ORDERS_0: data(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    assert isinstance(world.fetcher.take_error(), AuthorizationFailed)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SERVER_ERROR, 3000])
def test_an_unknown_error_is_logged_and_tried_again(error: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kohort.client.fetcher"):
        world = failed(error)  # type: ignore[arg-type]
    assert "orders-0" in caplog.text
    assert world.fetcher.take_error() is None
    assert world.tick(after_ms=99) == {}
    assert 1 in world.tick(after_ms=1)


def test_failures_that_no_retry_mends_are_raised() -> None:
    world = World()
    world.tick()
    world.fail(FailureKind.AUTHENTICATION)
    assert world.has_error()
    assert isinstance(world.fetcher.take_error(), AuthenticationFailed)
    world.tick(after_ms=1000)
    world.fail(FailureKind.UNSUPPORTED_VERSION)
    error = world.fetcher.take_error()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert not world.has_error()


# --- corrupt ------------------------------------------------------------------------------------------------


def test_a_corrupt_batch_stops_its_partition_until_the_user_seeks() -> None:
    world = World(BOTH)
    world.tick()
    world.answer(
        {ORDERS_0: data(batch(0, 2) + damaged(batch(2, 3)) + batch(5, 1)), ORDERS_1: data(batch(0, 2))}
    )
    world.tick()
    assert world.fetcher.take_error() is None
    assert world.take() == {ORDERS_0: [0, 1], ORDERS_1: [0, 1]}, "what comes before it is returned"
    for _ in range(3):
        assert world.has_error()
        error = world.fetcher.take_error()
        assert isinstance(error, CorruptRecord)
        assert (error.partition, error.offset) == (ORDERS_0, 2)
        assert "orders-0" in str(error)
        assert "offset 2" in str(error)
    world.answer({ORDERS_0: data(batch(6, 1)), ORDERS_1: data(batch(2, 1))})
    world.tick()
    assert world.reads[1] == {ORDERS_1: 3}, "the others go on"
    assert world.take() == {ORDERS_1: [2]}
    assert world.offset(ORDERS_0) == 2
    world.seek(ORDERS_0, 5)
    assert not world.has_error()
    world.answer({})
    world.tick()
    assert world.reads[1] == {ORDERS_0: 5, ORDERS_1: 3}
    world.answer({ORDERS_0: data(batch(5, 1))})
    assert world.take() == {ORDERS_0: [5]}


def test_slices_before_a_corrupt_batch_are_returned_before_it_is_raised() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3) + damaged(batch(3, 1)))})
    assert world.take(2) == {ORDERS_0: [0, 1]}
    assert not world.has_error()
    assert world.take(2) == {ORDERS_0: [2]}
    assert world.has_error()


def test_a_corrupt_first_batch_is_raised_at_once() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(damaged(batch(0, 3)))})
    assert world.take() == {}
    assert isinstance(world.fetcher.take_error(), CorruptRecord)
    assert not world.has_data()


def test_a_paused_or_revoked_partition_raises_nothing() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(damaged(batch(0, 3)))})
    world.take()
    world.state().paused = True
    assert not world.has_error()
    world.state().paused = False
    assert world.has_error()
    world.subscription.assign([])
    assert world.fetcher.take_error() is None


def test_damage_is_not_looked_for_without_check_crcs() -> None:
    world = World(check_crcs=False)
    world.tick()
    spoiled = bytearray(batch(0, 1))
    spoiled[17] ^= 0xFF  # the CRC itself
    world.answer({ORDERS_0: data(bytes(spoiled))})
    assert world.take() == {ORDERS_0: [0]}


def test_damage_that_the_broker_found_is_raised_as_damage() -> None:
    world = failed(ErrorCode.CORRUPT_MESSAGE, position=7)
    error = world.fetcher.take_error()
    assert isinstance(error, CorruptRecord)
    assert (error.partition, error.offset) == (ORDERS_0, 7)
    assert world.tick() == {}


def test_nonsense_instead_of_a_header_is_damage() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 1) + b"\x00" * 70)})
    assert world.tick() == {}, "nobody knows where to read on"
    assert world.take() == {ORDERS_0: [0]}
    assert world.has_error()


def test_bytes_that_hold_no_whole_batch_are_damage() -> None:
    world = World()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 1)[:-1])})
    assert world.take() == {}
    assert isinstance(world.fetcher.take_error(), CorruptRecord)


def test_a_record_larger_than_max_partition_fetch_bytes_still_comes() -> None:
    world = World(max_partition_fetch_bytes=100)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 1, size=5000))})
    assert world.take() == {ORDERS_0: [0]}


# --- preferred replica (KIP-392) ----------------------------------------------------------------------------


def with_preferred() -> World:
    """The leader 1 says: read from 3."""
    world = World(client_rack="a", metadata_max_age_ms=10_000)
    world.tick()
    world.answer({ORDERS_0: data(preferred_read_replica=3)})
    return world


def test_the_preferred_replica_is_read_until_metadata_max_age() -> None:
    world = with_preferred()
    assert list(world.tick()) == [3]
    world.answer({ORDERS_0: data(batch(0, 1))}, node=3)
    assert world.take() == {ORDERS_0: [0]}
    assert list(world.tick(after_ms=9_999)) == [3]
    world.answer({}, node=3)
    assert list(world.tick(after_ms=1)) == [1]


@pytest.mark.parametrize("gone", ["from the cluster", "from the partition"])
def test_a_preferred_replica_that_is_offline_gives_way_to_the_leader(gone: str) -> None:
    world = with_preferred()
    if gone == "from the cluster":
        world.nodes.remove(3)
    else:
        world.offline[ORDERS_0] = [3]
    world.metadata.request_update("test")
    world.update_metadata()
    assert list(world.tick()) == [1]
    assert world.metadata.is_due


def test_a_preferred_replica_that_fails_gives_way_to_the_leader() -> None:
    world = with_preferred()
    world.tick()
    world.fail(node=3)
    assert list(world.tick()) == [1]


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_what_a_follower_does_not_have_the_leader_is_asked_for(error: ErrorCode) -> None:
    world = with_preferred()
    world.tick()
    world.answer({ORDERS_0: data(error=error)}, node=3)
    assert world.offset() == 0
    assert world.state().reset is None
    assert list(world.tick(after_ms=100)) == [1]
