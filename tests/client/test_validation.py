"""KIP-320: a position is checked against the log of a new leader before more is read from it."""

from __future__ import annotations

import pytest

from kohort.client.core.effects import FailureKind
from kohort.client.core.offset_reset import LATEST
from kohort.client.errors import AuthorizationFailed, LogTruncation
from kohort.wire.errors import ErrorCode
from tests.client.offsets import ORDERS_0, ORDERS_1, World, at


def reader(version: int = 4, **settings: object) -> World:
    """Reads orders-0 by hand and stands at offset 50, after a record of epoch 3; the leader is node 1 in epoch 4."""
    world = World({23: version}, enable_auto_commit=False, **settings)
    world.subscription.assign([ORDERS_0])
    world.returned(ORDERS_0, 50, epoch=3)
    world.tick()
    return world


def with_new_leader(version: int = 4, **settings: object) -> World:
    world = reader(version, **settings)
    world.lead(ORDERS_0, 2, 5)
    world.positions.maybe_validate(world.now_ms)
    return world


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_new_leader_is_asked_where_the_epoch_of_the_last_record_ended(version: int) -> None:
    world = with_new_leader(version)
    assert world.position() is None, "nothing is fetched meanwhile"
    assert not world.state().is_fetchable
    question = world.take("positions.validate")
    assert question.send.node_id == 2
    [[partition]] = [topic.partitions for topic in question.request.topics]
    assert (partition.partition, partition.current_leader_epoch, partition.leader_epoch) == (0, 5, 3)
    question.epoch_ended({ORDERS_0: (3, 50)})
    assert world.position() == 50
    assert world.nothing_sent()


def test_tick_sees_by_itself_that_metadata_has_changed() -> None:
    world = reader()
    world.lead(ORDERS_0, 1, 5)
    assert world.take("positions.validate").send.node_id == 1


def test_metadata_that_changes_nothing_for_the_partition_validates_nothing() -> None:
    world = reader()
    world.lead(ORDERS_1, 1, 9)
    assert world.nothing_sent()
    assert world.position() == 50


def test_while_there_is_no_leader_the_position_stays() -> None:
    world = reader()
    world.lead(ORDERS_0, -1, 5)
    assert world.nothing_sent()
    assert world.position() == 50


@pytest.mark.parametrize(("offset_epoch", "leader_epoch"), [(-1, 5), (3, -1)])
def test_without_both_epochs_there_is_nothing_to_compare(offset_epoch: int, leader_epoch: int) -> None:
    world = reader()
    world.returned(ORDERS_0, 50, epoch=offset_epoch)
    world.state().preferred_replica = 7
    world.lead(ORDERS_0, 2, leader_epoch)
    assert world.nothing_sent()
    assert world.position() == 50
    position = world.state().position
    assert position is not None
    assert (position.leader_id, position.leader_epoch) == (2, leader_epoch)
    assert world.state().preferred_replica == -1


# --- what the leader answers --------------------------------------------------------------------------------


def test_a_log_that_was_cut_back_moves_the_position_to_where_it_diverges() -> None:
    world = with_new_leader()
    seeks = world.state().seeks
    world.take("positions.validate").epoch_ended({ORDERS_0: (2, 40)})
    assert world.position() == 40
    position = world.state().position
    assert position is not None
    assert position.offset_epoch == 2
    assert world.state().seeks == seeks + 1, "fetches for the old position are late"


def test_an_epoch_that_the_leader_does_not_know_resets_the_position() -> None:
    world = with_new_leader(auto_offset_reset="latest")
    world.take("positions.validate").epoch_ended({ORDERS_0: (-1, -1)})
    assert world.state().reset == LATEST
    world.take("positions.reset").listed({ORDERS_0: 33})
    assert world.position() == 33


def test_without_a_reset_policy_truncation_is_an_error_with_the_divergent_offset() -> None:
    world = with_new_leader(auto_offset_reset="none")
    world.take("positions.validate").epoch_ended({ORDERS_0: (2, 40)})
    assert world.nothing_sent(), "nothing more until the user knows"
    error = world.positions.take_error()
    assert isinstance(error, LogTruncation)
    assert error.partitions == {ORDERS_0: 50}
    assert error.divergent == {ORDERS_0: at(40, 2)}
    assert "orders-0 at 50 (the logs agree up to 40)" in str(error)
    world.tick(after_ms=100)
    world.take("positions.validate").epoch_ended({ORDERS_0: (2, 40)})
    assert isinstance(world.positions.take_error(), LogTruncation), "again, until the user seeks"
    world.positions.seek(ORDERS_0, error.divergent[ORDERS_0], world.now_ms)
    world.take("positions.validate").epoch_ended({ORDERS_0: (2, 40)})
    assert world.position() == 40


def test_without_a_reset_policy_an_unknown_epoch_is_an_error_without_a_divergent_offset() -> None:
    world = with_new_leader(auto_offset_reset="none")
    world.take("positions.validate").epoch_ended({ORDERS_0: (-1, -1)})
    error = world.positions.take_error()
    assert isinstance(error, LogTruncation)
    assert (error.partitions, error.divergent) == ({ORDERS_0: 50}, {})


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
)
def test_a_validation_is_repeated_after_a_backoff_and_with_new_metadata(code: ErrorCode) -> None:
    world = with_new_leader()
    question = world.take("positions.validate")
    world.forget_requested_update()
    question.epoch_ended({ORDERS_0: code})
    assert world.update_requested
    world.tick(after_ms=99)
    assert world.nothing_sent()
    world.tick(after_ms=1)
    world.take("positions.validate").epoch_ended({ORDERS_0: (3, 50)})
    assert world.position() == 50


def test_a_validation_without_an_answer_is_repeated_too() -> None:
    world = with_new_leader()
    world.take("positions.validate").fail()
    world.tick(after_ms=100)
    assert world.take("positions.validate")
    assert not world.positions.has_error


def test_a_broker_too_old_is_not_asked_again() -> None:
    world = with_new_leader()
    world.take("positions.validate").fail(FailureKind.UNSUPPORTED_VERSION)
    assert world.position() == 50
    assert world.nothing_sent()


def test_a_forbidden_topic_is_an_error_that_names_it() -> None:
    world = with_new_leader()
    world.take("positions.validate").epoch_ended({ORDERS_0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    error = world.positions.take_error()
    assert isinstance(error, AuthorizationFailed)
    assert "topics orders" in str(error)


# --- overtaken ------------------------------------------------------------------------------------------------


def test_a_validation_that_was_overtaken_by_a_seek_is_dropped() -> None:
    world = with_new_leader()
    question = world.take("positions.validate")
    world.positions.seek(ORDERS_0, at(60), world.now_ms)
    question.epoch_ended({ORDERS_0: (2, 40)})
    assert world.position() == 60


def test_a_seek_to_the_very_same_place_is_validated_anew() -> None:
    world = with_new_leader()
    late = world.take("positions.validate")
    world.positions.seek(ORDERS_0, at(50, 3), world.now_ms)
    late.epoch_ended({ORDERS_0: (2, 40)})
    assert world.position() is None
    world.take("positions.validate").epoch_ended({ORDERS_0: (3, 50)})
    assert world.position() == 50


def test_an_answer_of_the_leader_before_the_last_is_dropped() -> None:
    world = with_new_leader()
    late = world.take("positions.validate")
    world.lead(ORDERS_0, 1, 6)
    newer = world.take("positions.validate")
    assert newer.send.node_id == 1
    late.epoch_ended({ORDERS_0: (2, 40)})
    assert world.position() is None
    newer.epoch_ended({ORDERS_0: (3, 50)})
    assert world.position() == 50


def test_a_validation_of_a_partition_that_was_given_away_is_dropped() -> None:
    world = with_new_leader()
    question = world.take("positions.validate")
    world.subscription.unsubscribe()
    question.epoch_ended({ORDERS_0: (2, 40)})
    assert world.subscription.partitions == {}


# --- offsets that come with an epoch ------------------------------------------------------------------------------


def test_a_seek_with_a_leader_epoch_is_validated() -> None:
    world = reader()
    world.positions.seek(ORDERS_0, at(45, 3), world.now_ms)
    assert world.position() is None
    world.take("positions.validate").epoch_ended({ORDERS_0: (3, 48)})
    assert world.position() == 45


def test_a_committed_offset_of_an_older_epoch_is_validated() -> None:
    world = World()
    world.subscribe(ORDERS_0)
    world.take("commits.committed").found({ORDERS_0: at(45, 3)})
    world.take("positions.validate").epoch_ended({ORDERS_0: (3, 48)})
    assert world.position() == 45


def test_a_committed_offset_of_the_leaders_own_epoch_needs_no_question() -> None:
    world = World()
    world.subscribe(ORDERS_0)
    world.take("commits.committed").found({ORDERS_0: at(45, 4)})
    assert world.nothing_sent()
    assert world.position() == 45


def test_an_epoch_newer_than_metadata_asks_for_metadata_first() -> None:
    world = reader()
    world.forget_requested_update()
    world.positions.seek(ORDERS_0, at(45, 6), world.now_ms)
    assert world.nothing_sent()
    assert world.update_requested
    world.lead(ORDERS_0, 2, 6)
    question = world.take("positions.validate")
    assert question.send.node_id == 2
    question.epoch_ended({ORDERS_0: (6, 50)})
    assert world.position() == 45


def test_an_epoch_that_nobody_has_heard_of_is_asked_of_the_leader_in_the_end() -> None:
    world = reader(auto_offset_reset="earliest")
    world.positions.seek(ORDERS_0, at(45, 99), world.now_ms)
    assert world.nothing_sent()
    world.tick(after_ms=1_000)
    world.take("positions.validate").epoch_ended({ORDERS_0: (-1, -1)})
    world.take("positions.reset").listed({ORDERS_0: 0})
    assert world.position() == 0
