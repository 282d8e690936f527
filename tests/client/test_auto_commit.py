"""spec/consumer.md, "Committing": auto-commit on the interval, before a rejoin, on close, on a change of assignment.
Only positions of records already returned."""

from __future__ import annotations

import logging

import pytest

from kohort.client.core.effects import FailureKind
from kohort.client.core.offset_reset import EARLIEST
from kohort.wire.errors import ErrorCode
from tests.client.offsets import ORDERS_0, ORDERS_1, World, at

INTERVAL = 5_000


def member(**settings: object) -> World:
    """Records up to 7 of orders-0 and up to 3 of orders-1 were returned; poll was called for the first time."""
    world = World(None, **settings)
    world.subscribe(ORDERS_0, ORDERS_1)
    world.returned(ORDERS_0, 7)
    world.returned(ORDERS_1, 3)
    poll(world)
    return world


def poll(world: World, after_ms: int = 0) -> None:
    world.tick(after_ms)
    world.commits.poll(world.now_ms)
    world.tick()


# --- on the interval ------------------------------------------------------------------------------------------


def test_a_poll_after_the_interval_commits_what_was_returned_before_it() -> None:
    world = member()
    assert world.commits.next_poll_ms() == world.now_ms + INTERVAL
    world.returned(ORDERS_0, 12)
    poll(world, after_ms=INTERVAL - 1)
    assert world.nothing_sent()
    poll(world, after_ms=1)
    question = world.take("commits.commit")
    assert question.offsets == {ORDERS_0: at(12, 4), ORDERS_1: at(3, 4)}
    assert question.request.generation_id_or_member_epoch == 5
    question.committed()
    poll(world, after_ms=INTERVAL)
    assert world.take("commits.commit")


def test_time_alone_commits_nothing_for_the_last_records_may_still_be_at_work() -> None:
    world = member()
    world.tick(after_ms=10 * INTERVAL)
    assert world.nothing_sent()


def test_partitions_without_a_good_position_are_left_out() -> None:
    world = member()
    world.state(ORDERS_0).reset_to(EARLIEST)
    world.state(ORDERS_1).validating = True
    world.commits.poll(world.now_ms + INTERVAL)
    assert world.commits.is_idle


def test_no_commit_on_the_interval_while_the_group_rebalances() -> None:
    world = member()
    world.member.may_commit_itself = False
    poll(world, after_ms=INTERVAL)
    assert world.nothing_sent()
    assert world.commits.next_poll_ms() is None
    world.member.may_commit_itself = True
    poll(world, after_ms=1)
    assert world.take("commits.commit")


def test_assigned_by_hand_with_a_group_id_commits_too() -> None:
    world = World()
    world.subscription.assign([ORDERS_0])
    world.returned(ORDERS_0, 7)
    poll(world)
    poll(world, after_ms=INTERVAL)
    question = world.take("commits.commit")
    assert question.request.generation_id_or_member_epoch == -1


@pytest.mark.parametrize("settings", [{"enable_auto_commit": False}, {"group_id": None}])
def test_without_auto_commit_or_group_nothing_is_committed(settings: dict[str, object]) -> None:
    world = World(None, **settings)
    world.subscription.assign([ORDERS_0])
    world.returned(ORDERS_0, 7)
    poll(world)
    poll(world, after_ms=INTERVAL)
    assert world.commits.commit_before_change(world.now_ms) is None
    assert world.commits.before_join(world.now_ms)
    assert world.nothing_sent()


def test_one_at_a_time() -> None:
    world = member()
    poll(world, after_ms=INTERVAL)
    question = world.take("commits.commit")
    poll(world, after_ms=INTERVAL)
    assert world.nothing_sent()
    assert world.commits.next_poll_ms() is None  # a time that is over would make a poll that waits spin
    question.committed()
    poll(world)
    assert world.take("commits.commit")


def test_a_retriable_failure_is_logged_and_tried_again_after_the_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = member()
    poll(world, after_ms=INTERVAL)
    with caplog.at_level(logging.WARNING, "kohort.client.commits"):
        world.take("commits.commit").fail(FailureKind.DISCONNECTED)
    assert "auto-commit failed" in caplog.text
    poll(world, after_ms=99)
    assert world.nothing_sent()
    poll(world, after_ms=1)
    assert world.take("commits.commit")


def test_a_failure_that_no_retry_mends_is_logged_and_waits_for_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = member()
    poll(world, after_ms=INTERVAL)
    with caplog.at_level(logging.WARNING, "kohort.client.commits"):
        world.take("commits.commit").committed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert "not allowed to commit offsets of the topics orders" in caplog.text
    poll(world, after_ms=INTERVAL - 1)
    assert world.nothing_sent()
    poll(world, after_ms=1)
    assert world.take("commits.commit")


# --- before a rejoin ------------------------------------------------------------------------------------------


def test_before_a_rejoin_the_member_commits_and_waits_for_the_answer() -> None:
    world = member()
    assert not world.commits.before_join(world.now_ms)
    question = world.take("commits.commit")
    assert question.offsets == {ORDERS_0: at(7, 4), ORDERS_1: at(3, 4)}
    assert not world.commits.before_join(world.now_ms)
    assert world.nothing_sent(), "asked again, it commits only once"
    question.committed()
    assert world.commits.before_join(world.now_ms)


def test_before_a_rejoin_records_that_are_still_at_work_are_not_committed() -> None:
    world = member()
    world.returned(ORDERS_0, 500)  # by the last poll; the user has not called the next one
    world.commits.before_join(world.now_ms)
    assert world.take("commits.commit").offsets[ORDERS_0] == at(7, 4)


def test_before_a_rejoin_a_seek_back_is_heeded_and_partitions_that_are_gone_are_not_committed() -> None:
    world = member()
    world.returned(ORDERS_0, 2)
    world.subscription.assign_from_group([ORDERS_0])
    world.commits.before_join(world.now_ms)
    assert world.take("commits.commit").offsets == {ORDERS_0: at(2, 4)}


def test_the_commit_before_a_rejoin_is_repeated_but_bounded(caplog: pytest.LogCaptureFixture) -> None:
    world = member(max_poll_interval_ms=60_000)
    assert not world.commits.before_join(world.now_ms)
    world.take("commits.commit").committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert not world.commits.before_join(world.now_ms)
    world.tick(after_ms=100)
    assert world.take("commits.commit")
    world.tick(after_ms=59_899)
    assert not world.commits.before_join(world.now_ms)
    world.tick(after_ms=1)
    assert world.commits.before_join(world.now_ms)
    assert "the commit before the rebalance failed" in caplog.text


def test_the_commit_before_a_rejoin_that_was_given_up_is_not_that_of_the_next_one() -> None:
    """Found by the simulator: the next rejoin took it for its own, and gave partitions away without a commit."""
    world = member()
    assert not world.commits.before_join(world.now_ms)
    old = world.take("commits.commit")
    world.member.me = world.member.me._replace(generation_id=6)  # removed meanwhile, and joined again
    old.committed()
    world.returned(ORDERS_0, 9)
    poll(world)
    assert not world.commits.before_join(world.now_ms)
    assert world.take("commits.commit").offsets == {ORDERS_0: at(9, 4), ORDERS_1: at(3, 4)}


def test_a_commit_of_an_older_generation_is_not_repeated_in_the_name_of_the_new_one() -> None:
    """Its partitions may be others' by now, who are further."""
    world = member()
    assert not world.commits.before_join(world.now_ms)
    old = world.take("commits.commit")
    world.member.me = world.member.me._replace(generation_id=6)
    old.fail()
    world.tick(after_ms=1_000)
    assert world.nothing_sent()


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.REBALANCE_IN_PROGRESS],
)
def test_a_deleted_topic_or_a_stale_member_does_not_hold_up_the_rejoin(code: ErrorCode) -> None:
    world = member()
    world.commits.before_join(world.now_ms)
    world.take("commits.commit").committed(code)
    assert world.commits.before_join(world.now_ms)


def test_with_nothing_returned_yet_the_rejoin_waits_for_nothing() -> None:
    world = World()
    world.subscribe(ORDERS_0)
    poll(world)
    assert world.commits.before_join(world.now_ms)


# --- on close and on a change -------------------------------------------------------------------------------------


def test_close_commits_what_was_returned_by_the_last_poll_too() -> None:
    world = member()
    world.returned(ORDERS_0, 12)
    closed = world.commits.commit_on_close(world.now_ms, world.now_ms + 1_000)
    question = world.take("commits.commit")
    assert question.offsets == {ORDERS_0: at(12, 4), ORDERS_1: at(3, 4)}
    question.committed()
    assert closed.done


def test_close_waits_for_earlier_asyncs_even_without_auto_commit() -> None:
    world = member(enable_auto_commit=False)
    world.commits.commit_async({ORDERS_0: at(1)}, world.now_ms)
    closed = world.commits.commit_on_close(world.now_ms, world.now_ms + 1_000)
    question = world.take("commits.commit")
    assert not closed.done
    question.committed()
    world.tick()
    assert closed.done


def test_the_last_commit_never_fails_the_close(caplog: pytest.LogCaptureFixture) -> None:
    world = member()
    closed = world.commits.commit_on_close(world.now_ms, world.now_ms + 1_000)
    world.take("commits.commit").committed(ErrorCode.UNKNOWN_MEMBER_ID)
    assert closed.value() == {}
    assert "the last commit failed" in caplog.text
    late = world.commits.commit_on_close(world.now_ms, world.now_ms + 1_000)
    world.tick(after_ms=1_000)
    assert late.value() == {}


def test_a_change_of_manual_assignment_commits_first() -> None:
    world = World()
    world.subscription.assign([ORDERS_0])
    world.returned(ORDERS_0, 7)
    world.commits.commit_before_change(world.now_ms)
    world.subscription.assign([ORDERS_1])
    question = world.take("commits.commit")
    assert question.offsets == {ORDERS_0: at(7, 4)}
    assert question.request.generation_id_or_member_epoch == -1
