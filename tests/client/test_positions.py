"""spec/consumer.md, "One poll" point 2: for assigned partitions without a position, the committed offset, else the
reset policy. A late answer for a position that was changed by `seek` is dropped. Validation is in test_validation."""

from __future__ import annotations

import pytest

from kohort.client.core.effects import Answer, FailureKind, Lane
from kohort.client.core.offset_reset import EARLIEST, EARLIEST_TIMESTAMP, LATEST, LATEST_TIMESTAMP
from kohort.client.core.operation import Operation
from kohort.client.errors import AuthorizationFailed, IllegalState, NoOffsetForPartition, TimedOut
from kohort.client.types import OffsetAndTimestamp, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.client.offsets import ORDERS_0, ORDERS_1, World, at

RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


def member(**settings: object) -> World:
    world = World(None, **settings)
    world.subscribe(ORDERS_0, ORDERS_1)
    return world


def without_commits(**settings: object) -> World:
    """A consumer of orders-0 alone, whose group has committed nothing."""
    world = World(None, **settings)
    world.subscribe(ORDERS_0)
    world.take("commits.committed").found({ORDERS_0: None})
    return world


def take_error(world: World) -> Exception:
    assert world.positions.has_error
    error = world.positions.take_error()
    assert error is not None
    return error


# --- the committed offset -------------------------------------------------------------------------------------


def test_a_position_is_the_committed_offset() -> None:
    world = member()
    world.take("commits.committed").found({ORDERS_0: at(7), ORDERS_1: at(3)})
    world.tick()
    assert (world.position(ORDERS_0), world.position(ORDERS_1)) == (7, 3)
    assert world.subscription.has_all_positions
    assert world.nothing_sent()


def test_the_position_remembers_who_led_when_it_was_found_out() -> None:
    world = member()
    world.take("commits.committed").found({ORDERS_0: at(7), ORDERS_1: at(3, 4)})
    world.tick()
    position = world.state(ORDERS_1).position
    assert position is not None
    assert (position.offset_epoch, position.leader_id, position.leader_epoch) == (4, 2, 4)


def test_partitions_that_have_a_position_are_not_asked_for() -> None:
    world = member()
    world.positions.seek(ORDERS_0, at(100), world.now_ms)
    question = world.take("commits.committed")
    assert question.request.groups[0].topics[0].partition_indexes == [1]


def test_a_seek_while_the_committed_offset_is_looked_up_wins() -> None:
    world = member()
    question = world.take("commits.committed")
    world.positions.seek(ORDERS_0, at(100), world.now_ms)
    question.found({ORDERS_0: at(7), ORDERS_1: at(3)})
    world.tick()
    assert (world.position(ORDERS_0), world.position(ORDERS_1)) == (100, 3)


def test_a_partition_that_went_and_came_back_is_looked_up_anew() -> None:
    world = member()
    late = world.take("commits.committed")
    world.subscription.assign_from_group([ORDERS_1])
    world.subscription.assign_from_group([ORDERS_0, ORDERS_1])
    world.subscription.assigned_callback_ran()
    late.found({ORDERS_0: at(7), ORDERS_1: at(3)})
    world.tick()
    assert world.position(ORDERS_0) is None, "somebody else may have committed in between"
    world.take("commits.committed").found({ORDERS_0: at(9), ORDERS_1: at(3)})
    world.tick()
    assert world.position(ORDERS_0) == 9


def test_new_partitions_wait_for_the_callback_which_may_seek() -> None:
    world = World()
    world.subscription.subscribe(["orders"])
    world.subscription.assign_from_group([ORDERS_0])
    assert world.nothing_sent()
    world.subscription.assigned_callback_ran()
    assert world.take("commits.committed")


def test_partitions_that_are_handed_back_need_no_position() -> None:
    world = member()
    for state in world.subscription.partitions.values():
        state.revoking = True
    assert world.nothing_sent()


def test_a_look_up_that_fails_for_good_is_raised_once_and_asked_again() -> None:
    world = member()
    world.take("commits.committed").found({}, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    world.tick()
    assert world.nothing_sent()
    assert isinstance(take_error(world), AuthorizationFailed)
    assert world.take("commits.committed")


# --- the reset policy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(("policy", "time"), [("earliest", EARLIEST_TIMESTAMP), ("latest", LATEST_TIMESTAMP)])
def test_without_a_committed_offset_the_policy_is_asked_of_the_leader(
    version: int, policy: str, time: int
) -> None:
    world = World({2: version}, auto_offset_reset=policy, isolation_level="read_committed")
    world.subscribe(ORDERS_0)
    world.take("commits.committed").found({ORDERS_0: None})
    question = world.take("positions.reset")
    assert question.send.node_id == 1
    assert question.times == {ORDERS_0: time}
    [[partition]] = [topic.partitions for topic in question.request.topics]
    assert partition.current_leader_epoch == (4 if version >= 4 else -1)
    assert question.request.replica_id == -1
    assert question.request.isolation_level == (1 if version >= 2 else 0)
    question.listed({ORDERS_0: 42})
    assert world.position() == 42
    assert world.nothing_sent()


def test_resets_go_to_each_leader_together() -> None:
    world = World(None, group_id=None)
    orders_2 = TopicPartition("orders", 2)
    world.lead(orders_2, 1, 4)
    world.subscription.assign([ORDERS_0, ORDERS_1, orders_2])
    asked = [world.take("positions.reset"), world.take("positions.reset")]
    assert {q.send.node_id: set(q.times) for q in asked} == {1: {ORDERS_0, orders_2}, 2: {ORDERS_1}}


def test_with_no_group_the_policy_decides_at_once() -> None:
    world = World(None, group_id=None, auto_offset_reset="earliest")
    world.subscription.assign([ORDERS_0])
    assert world.take("positions.reset").times == {ORDERS_0: EARLIEST_TIMESTAMP}


def test_none_is_an_error_that_names_the_partitions_and_says_what_to_do() -> None:
    world = member(auto_offset_reset="none")
    world.take("commits.committed").found({ORDERS_0: None, ORDERS_1: at(3)})
    world.tick()
    assert world.position(ORDERS_1) == 3
    assert world.nothing_sent(), "nothing more until the user knows"
    error = take_error(world)
    assert isinstance(error, NoOffsetForPartition)
    assert error.partitions == (ORDERS_0,)
    assert "group shop has no committed offset for orders-0" in str(error)
    assert "seek()" in str(error)
    world.take("commits.committed").found({ORDERS_0: None})
    world.tick()
    assert isinstance(take_error(world), NoOffsetForPartition), "and again, as long as it is so"
    world.positions.seek(ORDERS_0, at(0), world.now_ms)
    assert world.position() == 0


def test_by_duration_begins_with_the_first_record_that_is_young_enough() -> None:
    world = without_commits(auto_offset_reset="by_duration:PT10M")
    end = world.take("positions.reset")
    assert end.times == {ORDERS_0: LATEST_TIMESTAMP}
    end.listed({ORDERS_0: 100})
    by_time = world.take("positions.reset")
    assert by_time.times == {ORDERS_0: world.now_ms - 600_000}
    by_time.listed({ORDERS_0: 60})
    assert world.position() == 60


def test_by_duration_without_a_young_record_begins_where_the_log_ended_before_it_was_searched() -> None:
    world = without_commits(auto_offset_reset="by_duration:PT10M")
    world.take("positions.reset").listed({ORDERS_0: 100})
    world.take("positions.reset").listed({ORDERS_0: -1})
    assert world.position() == 100


def test_seek_to_beginning_and_end_are_resets_that_need_no_policy() -> None:
    world = without_commits(auto_offset_reset="none")
    world.state().reset_to(LATEST)
    world.take("positions.reset").listed({ORDERS_0: 100})
    assert world.position() == 100


def test_a_first_reset_goes_the_way_of_the_fetches_and_a_later_one_does_not_wait_behind_them() -> None:
    world = without_commits()
    first = world.take("positions.reset")
    assert first.send.lane is Lane.DATA
    first.listed({ORDERS_0: 42})
    world.state().reset_to(LATEST)
    assert world.take("positions.reset").send.lane is Lane.GROUP


@pytest.mark.parametrize("code", RETRIED)
def test_a_reset_is_repeated_after_a_backoff_and_with_new_metadata(code: ErrorCode) -> None:
    world = without_commits()
    question = world.take("positions.reset")
    world.forget_requested_update()
    question.listed({ORDERS_0: code})
    assert world.update_requested
    world.tick(after_ms=99)
    assert world.nothing_sent()
    assert world.positions.next_deadline_ms() == world.now_ms + 1
    world.lead(ORDERS_0, 2, 5)
    world.tick(after_ms=1)
    again = world.take("positions.reset")
    assert again.send.node_id == 2
    again.listed({ORDERS_0: 42})
    assert world.position() == 42


@pytest.mark.parametrize("kind", [FailureKind.DISCONNECTED, FailureKind.TIMED_OUT])
def test_a_reset_without_an_answer_is_repeated_too(kind: FailureKind) -> None:
    world = without_commits()
    world.take("positions.reset").fail(kind)
    assert world.update_requested
    world.tick(after_ms=100)
    world.take("positions.reset").listed({ORDERS_0: 42})
    assert world.position() == 42
    assert not world.positions.has_error


def test_a_partition_that_is_missing_in_the_answer_is_asked_for_again() -> None:
    world = without_commits()
    world.take("positions.reset").listed({})
    world.tick(after_ms=100)
    assert world.take("positions.reset")


def test_without_a_leader_metadata_is_asked_and_the_reset_follows() -> None:
    world = World()
    world.lead(ORDERS_0, -1, 4)
    world.subscribe(ORDERS_0)
    world.take("commits.committed").found({ORDERS_0: None})
    assert world.nothing_sent()
    assert world.update_requested
    world.lead(ORDERS_0, 2, 5)
    assert world.take("positions.reset").send.node_id == 2


def test_a_forbidden_topic_is_an_error_that_names_it() -> None:
    world = without_commits()
    world.take("positions.reset").listed({ORDERS_0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    error = take_error(world)
    assert isinstance(error, AuthorizationFailed)
    assert "topics orders" in str(error)
    world.tick(after_ms=100)
    assert world.take("positions.reset"), "it may be allowed by now"


def test_a_reset_that_was_overtaken_by_a_seek_is_dropped() -> None:
    world = without_commits()
    question = world.take("positions.reset")
    world.positions.seek(ORDERS_0, at(7), world.now_ms)
    question.listed({ORDERS_0: 42})
    assert world.position() == 7


def test_a_reset_that_was_overtaken_by_another_one_is_dropped() -> None:
    world = without_commits(auto_offset_reset="latest")
    late = world.take("positions.reset")
    world.state().reset_to(EARLIEST)
    newer = world.take("positions.reset")
    late.listed({ORDERS_0: 42})
    assert world.position() is None
    newer.listed({ORDERS_0: 0})
    assert world.position() == 0


def test_a_failed_reset_that_was_overtaken_neither_raises_nor_waits() -> None:
    world = without_commits()
    question = world.take("positions.reset")
    world.positions.seek(ORDERS_0, at(7), world.now_ms)
    question.fail(FailureKind.UNSUPPORTED_VERSION)
    assert not world.positions.has_error
    assert world.state().retry_at_ms == 0


def test_a_reset_of_a_partition_that_was_given_away_is_dropped() -> None:
    world = without_commits()
    question = world.take("positions.reset")
    world.subscription.assign_from_group([])
    question.listed({ORDERS_0: 42})
    assert world.subscription.partitions == {}


# --- seek -------------------------------------------------------------------------------------------------------


def test_seek_needs_an_assigned_partition_and_an_offset() -> None:
    world = member()
    with pytest.raises(IllegalState, match="other-0 is not assigned"):
        world.positions.seek(TopicPartition("other", 0), at(1), world.now_ms)
    with pytest.raises(ValueError, match="cannot be negative"):
        world.positions.seek(ORDERS_0, at(-1), world.now_ms)


# --- offsets_for_times, beginning_offsets, end_offsets ------------------------------------------------------------


def look_up(
    world: World, *partitions: TopicPartition, time: int = 500
) -> Operation[dict[TopicPartition, OffsetAndTimestamp | None]]:
    return world.positions.list_offsets(dict.fromkeys(partitions, time), world.now_ms, world.now_ms + 10_000)


def test_offsets_by_time_come_from_each_leader_and_none_means_no_record_so_young() -> None:
    world = World()
    done = look_up(world, ORDERS_0, ORDERS_1)
    first, second = world.take("positions.list"), world.take("positions.list")
    assert (first.send.node_id, first.times) == (1, {ORDERS_0: 500})
    first.listed({ORDERS_0: 42}, timestamp=512)
    assert not done.done
    second.listed({ORDERS_1: -1})
    assert done.value() == {ORDERS_0: OffsetAndTimestamp(42, 512, 4), ORDERS_1: None}


@pytest.mark.parametrize("code", RETRIED)
def test_look_ups_are_repeated_until_all_partitions_have_answered(code: ErrorCode) -> None:
    world = World()
    done = look_up(world, ORDERS_0, ORDERS_1)
    world.take("positions.list").listed({ORDERS_0: 42})
    world.take("positions.list").listed({ORDERS_1: code})
    assert world.update_requested
    assert world.nothing_sent()
    world.tick(after_ms=100)
    again = world.take("positions.list")
    assert again.times == {ORDERS_1: 500}, "the other one is known already"
    again.fail()
    world.tick(after_ms=200)
    world.take("positions.list").listed({ORDERS_1: 1})
    assert {p: found.offset for p, found in done.value().items() if found} == {ORDERS_0: 42, ORDERS_1: 1}


def test_the_end_of_an_assigned_log_is_remembered_for_its_lag() -> None:
    world = World()
    world.subscription.assign([ORDERS_0])
    world.returned(ORDERS_0, 7)
    look_up(world, ORDERS_0, time=LATEST_TIMESTAMP)
    world.take("positions.list").listed({ORDERS_0: 42})
    assert (world.state().high_watermark, world.state().end_offset_known_ms) == (42, world.now_ms)
    look_up(world, ORDERS_0, time=EARLIEST_TIMESTAMP)
    world.take("positions.list").listed({ORDERS_0: 1})
    assert world.state().high_watermark == 42


def test_a_forbidden_topic_fails_the_look_up() -> None:
    world = World()
    done = look_up(world, ORDERS_0)
    world.take("positions.list").listed({ORDERS_0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    with pytest.raises(AuthorizationFailed, match="topics orders"):
        done.value()


def test_a_broker_too_old_fails_the_look_up() -> None:
    world = World()
    done = look_up(world, ORDERS_0)
    world.take("positions.list").fail(FailureKind.UNSUPPORTED_VERSION)
    assert isinstance(done.error, KafkaError)


def test_a_topic_that_is_not_read_is_found_by_a_look_up_of_its_metadata() -> None:
    world = World()
    other = TopicPartition("other", 0)
    done = look_up(world, other)
    answer_metadata(
        world, MetadataResponseTopic(0, "other", bytes(16), False, [MetadataResponsePartition(0, 0, 2, 9)])
    )
    question = world.take("positions.list")
    assert question.send.node_id == 2
    question.listed({other: 5})
    assert done.value() == {other: OffsetAndTimestamp(5, -1, 4)}


def test_unknown_partitions_end_with_the_deadline_and_are_named() -> None:
    world = World()
    done = look_up(world, ORDERS_0, TopicPartition("nowhere", 3))
    world.take("positions.list").listed({ORDERS_0: 42})
    unknown = MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere")
    answer_metadata(world, unknown)
    assert world.nothing_sent()
    world.tick(after_ms=100)
    answer_metadata(world, unknown)
    world.tick(after_ms=10_000)
    with pytest.raises(
        TimedOut, match=r"offsets of nowhere-3 were not found in time: .*do these partitions exist\?"
    ):
        done.value()
    world.sent.clear()
    assert world.nothing_sent()


def test_a_look_up_does_not_queue_behind_fetches_that_wait_nor_behind_a_join() -> None:
    world = World()
    look_up(world, ORDERS_0)
    assert world.take("positions.list").send.lane is Lane.GROUP
    world.member.rebalance_in_progress = True
    look_up(world, ORDERS_0)
    assert world.take("positions.list").send.lane is Lane.DATA


def test_a_look_up_of_nothing_asks_nobody() -> None:
    world = World()
    assert look_up(world).value() == {}
    assert world.nothing_sent()


def answer_metadata(world: World, topic: MetadataResponseTopic) -> None:
    """To the look-up of a topic that the consumer does not read."""
    world.tick()
    world.metadata.tick(world.now_ms)
    world.tick()
    send = next(send for send in world.sent if send.purpose == "metadata.look_up")
    world.sent.clear()
    brokers = [MetadataResponseBroker(node, f"node{node}", 9092) for node in (1, 2)]
    send.on_answer(Answer(send, 12, MetadataResponse(0, brokers, "c", 1, [topic])), world.now_ms)
    world.tick()
