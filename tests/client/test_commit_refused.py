"""spec/consumer.md, "Committing": a stale member gets CommitFailed, a running rebalance RebalanceInProgress; both say
what it means for duplicates. And what no retry can mend."""

from __future__ import annotations

import pytest

from kohort.client.core.effects import FailureKind
from kohort.client.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    CommitFailed,
    FencedInstanceId,
    RebalanceInProgress,
)
from kohort.client.types import GroupMetadata
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.offset_commit import OffsetCommitResponse
from tests.client.offsets import ORDERS_0, ORDERS_1, at
from tests.client.test_commits import Callbacks, commit, member


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_stale_member_gets_commit_failed_which_says_what_it_means_for_duplicates(code: ErrorCode) -> None:
    world = member()
    done = commit(world)
    world.take("commits.commit").committed(code)
    with pytest.raises(CommitFailed) as failed:
        done.value()
    assert failed.value.code is code
    assert "orders-0 not committed: the group shop moved on" in str(failed.value)
    assert "may be processed twice" in str(failed.value)
    assert "call poll" in str(failed.value)
    [(_, keeps_member_id)] = world.member.resets
    assert keeps_member_id is (code is ErrorCode.ILLEGAL_GENERATION)


def test_commit_failed_says_that_poll_was_not_called_if_that_is_why() -> None:
    world = member()
    world.member.me = GroupMetadata("shop")
    world.member.may_commit = False
    world.member.left_because = "poll was not called for 312 s (max.poll.interval.ms is 300 s)"
    done = commit(world)
    assert world.nothing_sent(), "there is no generation to commit with"
    with pytest.raises(CommitFailed, match="moved on because poll was not called for 312 s") as failed:
        done.value()
    assert "lower max.poll.records" in str(failed.value)


def test_an_answer_for_an_older_generation_does_not_reset_the_current_one() -> None:
    world = member()
    done = commit(world)
    question = world.take("commits.commit")
    world.member.me = GroupMetadata("shop", 6, "me-1")
    question.committed(ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(done.error, CommitFailed)
    assert world.member.resets == []


def test_an_answer_for_an_older_generation_while_rebalancing_says_so() -> None:
    world = member()
    done = commit(world)
    question = world.take("commits.commit")
    world.member.me = GroupMetadata("shop", -1, "me-1")
    world.member.rebalance_in_progress = True
    question.committed(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(done.error, RebalanceInProgress)
    assert world.member.resets == []


def test_rebalance_running_gives_rebalance_in_progress_and_asks_for_a_rejoin() -> None:
    world = member()
    done = commit(world)
    world.take("commits.commit").committed(ErrorCode.REBALANCE_IN_PROGRESS)
    with pytest.raises(RebalanceInProgress, match=r"Call poll\(\) to finish it, then commit again") as failed:
        done.value()
    assert "may be processed twice" in str(failed.value)
    assert len(world.member.rejoins) == 1
    assert world.member.resets == []


def test_between_join_and_sync_nothing_is_sent() -> None:
    world = member()
    world.member.rebalance_in_progress, world.member.may_commit = True, False
    done = commit(world)
    assert world.nothing_sent()
    assert isinstance(done.error, RebalanceInProgress)


def test_a_consumer_that_left_does_not_commit_as_nobody() -> None:
    world = member()
    world.coordinator_is_found = False
    user = Callbacks(world)
    user.asynchronously(1)
    world.tick()
    world.subscription.unsubscribe()
    world.member.may_commit, world.coordinator_is_found = False, True
    world.tick(after_ms=500)
    assert world.nothing_sent()
    user.run()
    assert isinstance(user.told[0][1], CommitFailed)


def test_a_fenced_instance_is_told_and_remembered() -> None:
    world = member()
    user = Callbacks(world)
    user.asynchronously(1)
    world.take("commits.commit").committed(ErrorCode.FENCED_INSTANCE_ID)
    user.run()
    error = user.told[0][1]
    assert isinstance(error, FencedInstanceId)
    assert "group.instance.id of its own" in str(error)
    assert world.commits.fenced is error


# --- what no retry can mend ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, KafkaError, "orders-1 is too long: shorten it"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed, "topics orders: it needs READ"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationFailed, "commit in group shop"),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, KafkaError, "commit fewer partitions"),
    ],
)
def test_fatal_errors_name_what_they_are_about(code: ErrorCode, kind: type[KafkaError], words: str) -> None:
    world = member()
    done = world.commits.commit({ORDERS_0: at(7), ORDERS_1: at(1)}, world.now_ms, None, retry=True)
    world.take("commits.commit").committed({ORDERS_1: code})
    with pytest.raises(kind, match=words) as failed:
        done.value()
    assert failed.value.code is code
    assert world.nothing_sent()


def test_a_fatal_error_of_one_partition_wins_over_a_retriable_one_of_another() -> None:
    world = member()
    done = world.commits.commit({ORDERS_0: at(7), ORDERS_1: at(1)}, world.now_ms, None, retry=True)
    world.take("commits.commit").committed(
        {ORDERS_0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ORDERS_1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    )
    assert isinstance(done.error, KafkaError)
    assert done.error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_partition_without_an_answer_is_not_taken_for_committed() -> None:
    world = member()
    done = commit(world)
    world.take("commits.commit").answer(OffsetCommitResponse())
    assert isinstance(done.error, KafkaError)


def test_wrong_credentials_are_an_error_of_their_own() -> None:
    world = member()
    done = commit(world)
    world.take("commits.commit").fail(FailureKind.AUTHENTICATION)
    assert isinstance(done.error, AuthenticationFailed)


def test_a_coordinator_that_may_not_be_looked_up_fails_the_commit() -> None:
    world = member()
    world.coordinator.error = AuthorizationFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")
    world.coordinator._not_before_ms = world.now_ms + 1
    done = commit(world)
    world.tick()
    assert isinstance(done.error, AuthorizationFailed)
