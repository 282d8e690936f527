"""spec/consumer.md, "Fetching": fetch sessions (KIP-227) and topic ids (v13+)."""

from __future__ import annotations

import pytest

from kohort.client.consume.fetch_session import MAX_EPOCH, FetchSessionHandler
from kohort.client.core.effects import FailureKind
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import FetchResponse
from kohort.wire.struct import ZERO_UUID
from tests.client.fetching import (
    ORDERS_0,
    ORDERS_1,
    SESSION,
    World,
    batch,
    data,
    forgotten,
    offsets_asked,
    topic_id,
)

BOTH = {ORDERS_0: 1, ORDERS_1: 1}
EMPTY = {ORDERS_0: data(), ORDERS_1: data()}


def session_of(world: World, node: int = 1) -> tuple[int, int]:
    """Session id and epoch of the fetch that goes out now."""
    request = world.tick()[node]
    return request.session_id, request.session_epoch


def with_session() -> World:
    """Two partitions of one node, in a session, and no fetch under way."""
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(), ORDERS_1: data()})
    return world


def test_the_first_fetch_is_full_and_asks_for_a_session() -> None:
    world = World(BOTH)
    request = world.tick()[1]
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert offsets_asked(request) == {ORDERS_0: 0, ORDERS_1: 0}


def test_what_has_not_changed_is_not_said_again() -> None:
    world = with_session()
    request = world.tick()[1]
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert request.topics == []
    assert request.forgotten_topics_data == []
    world.answer({})
    assert session_of(world) == (SESSION, 2)


def test_what_has_changed_is_said() -> None:
    world = with_session()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    world.take()
    assert offsets_asked(world.tick()[1]) == {ORDERS_0: 3}
    world.answer({})
    world.epochs[ORDERS_1] = 5
    world.metadata.request_update("test")
    world.update_metadata()
    request = world.tick()[1]
    assert offsets_asked(request) == {ORDERS_1: 0}
    assert request.topics[0].partitions[0].current_leader_epoch == 5


def test_partitions_leave_and_enter_a_session() -> None:
    world = with_session()
    world.state(ORDERS_0).paused = True
    request = world.tick()[1]
    assert forgotten(request) == {ORDERS_0}
    assert offsets_asked(request) == {}
    world.answer({})
    world.state(ORDERS_0).paused = False
    request = world.tick()[1]
    assert offsets_asked(request) == {ORDERS_0: 0}
    assert forgotten(request) == set()


def test_forgotten_partitions_go_by_name_before_topic_ids() -> None:
    world = World(BOTH, version=12)
    world.tick()
    world.answer(EMPTY)
    world.state(ORDERS_0).paused = True
    assert forgotten(world.tick()[1]) == {ORDERS_0}


def test_a_broker_that_gives_no_session_gets_full_fetches() -> None:
    world = World(BOTH)
    for _ in range(2):
        request = world.tick()[1]
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert len(offsets_asked(request)) == 2
        world.answer(EMPTY, session_id=0)


def test_a_session_that_the_broker_ends_is_followed_by_a_full_fetch() -> None:
    world = with_session()
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 1))}, session_id=0)
    assert world.take() == {ORDERS_0: [0]}
    request = world.tick()[1]
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert offsets_asked(request) == {ORDERS_0: 1, ORDERS_1: 0}


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, SESSION),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, SESSION),
    ],
)
def test_a_lost_session_begins_again_at_once(error: ErrorCode, session_id: int) -> None:
    world = with_session()
    world.tick()
    world.answer({}, error=error)
    request = world.tick()[1]
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert offsets_asked(request) == {ORDERS_0: 0, ORDERS_1: 0}
    assert world.metadata.is_due == (error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)


def test_a_broker_that_loses_sessions_again_and_again_is_not_asked_without_pause() -> None:
    world = with_session()
    for pause_ms in (0, 200, 400):
        world.tick()
        world.answer({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if pause_ms:
            assert world.tick(after_ms=pause_ms - 1) == {}
            assert world.fetcher.next_deadline_ms() == world.now_ms + 1
            world.now_ms += 1


def test_an_unknown_error_of_the_whole_answer_is_tried_again_later() -> None:
    world = with_session()
    world.tick()
    world.answer({}, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert world.tick(after_ms=99) == {}
    assert world.tick(after_ms=1)[1].session_epoch == 0


@pytest.mark.parametrize("kind", [FailureKind.DISCONNECTED, FailureKind.TIMED_OUT, FailureKind.BAD_ANSWER])
def test_after_a_failure_the_session_begins_again_with_backoff_and_metadata_is_asked_for(
    kind: FailureKind,
) -> None:
    world = with_session()
    world.tick()
    world.fail(kind)
    assert world.metadata.is_due
    assert world.fetcher.next_deadline_ms() == world.now_ms + 100
    assert world.tick(after_ms=99) == {}
    request = world.tick(after_ms=1)[1]
    assert (request.session_id, request.session_epoch) == (SESSION, 0), "the old one is given back"
    assert offsets_asked(request) == {ORDERS_0: 0, ORDERS_1: 0}
    world.fail(kind)
    assert world.tick(after_ms=199) == {}
    assert list(world.tick(after_ms=1)) == [1]


def test_a_throttled_client_waits() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({}, session_id=0, throttle_ms=300)
    assert world.fetcher.next_deadline_ms() == world.now_ms + 300
    assert world.tick(after_ms=299) == {}
    request = world.tick(after_ms=1)[1]
    assert (request.session_id, request.session_epoch) == (0, 0)
    world.answer(EMPTY, throttle_ms=50)
    assert world.tick(after_ms=49) == {}
    world.now_ms += 1
    assert session_of(world) == (SESSION, 1)


def test_a_full_answer_without_a_partition_is_not_believed() -> None:
    world = World(BOTH)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 1))})
    assert not world.has_data()
    world.now_ms += 100
    assert session_of(world) == (0, 0)


@pytest.mark.parametrize("version", [12, 18])
def test_an_answer_about_a_partition_that_was_not_asked_for_is_not_believed(version: int) -> None:
    world = World(BOTH, version=version)
    world.tick()
    world.answer(EMPTY)
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 1)), TopicPartition("other", 3): data()})
    assert not world.has_data()
    world.now_ms += 100
    assert session_of(world) == (SESSION, 0)


def test_topics_go_by_id_since_v13_and_by_name_before() -> None:
    by_id, by_name = World(version=13).tick()[1], World(version=12).tick()[1]
    assert (by_id.topics[0].topic, by_id.topics[0].topic_id) == ("", topic_id("orders"))
    assert (by_name.topics[0].topic, by_name.topics[0].topic_id) == ("orders", ZERO_UUID)


def test_a_topic_without_an_id_keeps_the_version_below_13_and_a_change_begins_a_new_session() -> None:
    world = World(BOTH)
    world.topic_ids["orders"] = ZERO_UUID
    world.metadata.request_update("test")
    world.update_metadata()
    request = world.tick()[1]
    assert request.topics[0].topic == "orders"
    world.answer(EMPTY)
    world.topic_ids["orders"] = topic_id("orders")
    world.metadata.request_update("test")
    world.update_metadata()
    request = world.tick()[1]
    assert (request.session_id, request.session_epoch) == (SESSION, 0)
    assert request.topics[0].topic_id == topic_id("orders")
    assert offsets_asked(request) == {ORDERS_0: 0, ORDERS_1: 0}


@pytest.mark.parametrize(("version", "by_id"), [(18, True), (12, False)])
def test_a_topic_that_was_made_again_replaces_the_old_one_in_the_session(version: int, by_id: bool) -> None:
    world = World(version=version)
    world.tick()
    world.answer({ORDERS_0: data()})
    old, world.topic_ids["orders"] = world.topic_ids["orders"], topic_id("made again")
    world.metadata.request_update("test")
    world.update_metadata()
    world.fetcher.tick(world.now_ms)
    request = world.request(world.out[0])
    assert [topic.topic_id for topic in request.forgotten_topics_data] == ([old] if by_id else [])
    assert [topic.topic_id for topic in request.topics] == [topic_id("made again") if by_id else ZERO_UUID]
    assert (request.session_id, request.session_epoch) == (SESSION, 1)


def test_epochs_begin_again_at_1() -> None:
    session = FetchSessionHandler(1, SESSION, MAX_EPOCH, {})
    plan = session.plan({})
    assert session.accept(plan, FetchResponse(session_id=SESSION), 18) == {}
    assert session.epoch == 1


def test_close_gives_the_sessions_back() -> None:
    world = World({ORDERS_0: 1, ORDERS_1: 2})
    world.tick()
    world.answer({ORDERS_0: data(batch(0, 3))})
    world.fetcher.close_sessions(world.now_ms)
    closing = world.out.copy()
    assert [(send.node_id, send.purpose) for send in closing] == [(1, "fetcher.close")]
    request = world.request(closing[0])
    assert (request.session_id, request.session_epoch, request.topics) == (SESSION, -1, [])
    world.out.clear()
    assert world.tick() == {}
    world.answer({ORDERS_1: data(batch(0, 3))}, node=2)
    assert not world.has_data()
    assert world.fetcher.next_deadline_ms() is None
