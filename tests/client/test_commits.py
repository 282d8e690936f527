"""spec/consumer.md, "Committing": what the user commits, and what comes back; the consumer's own: test_auto_commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.effects import FailureKind, Lane
from kohort.client.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    CommitFailed,
    FencedInstanceId,
    RebalanceInProgress,
    RetriableCommitFailed,
    TimedOut,
)
from kohort.client.offset_requests import Offsets
from kohort.client.operation import Operation
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.offset_commit import OffsetCommitResponse
from tests.client.offsets import COORDINATOR, ORDERS_0, ORDERS_1, Question, World, at, topic_id

TEN_SECONDS = 10_000


def member(versions: Mapping[int, int] | None = None, **settings: object) -> World:
    world = World(versions, enable_auto_commit=False, **settings)
    world.subscribe(ORDERS_0, ORDERS_1)
    world.returned(ORDERS_0, 7)
    world.returned(ORDERS_1, 7)
    return world


def commit(world: World, offset: int = 7) -> Operation[Offsets]:
    return world.commits.commit({ORDERS_0: at(offset)}, world.now_ms, world.now_ms + TEN_SECONDS, retry=True)


class Callbacks:
    """What the user's callbacks were told, in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[tuple[int, Exception | None]] = []

    def asynchronously(self, offset: int) -> None:
        self.world.commits.commit_async({ORDERS_0: at(offset)}, self.world.now_ms, self._tell)

    def _tell(self, offsets: Offsets, error: Exception | None) -> None:
        self.told.append((offsets[ORDERS_0].offset, error))

    def run(self) -> list[int]:
        for call in self.world.commits.take_callbacks():
            call()
        return [offset for offset, _ in self.told]


# --- what is sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_carries_metadata_and_leader_epoch_in_every_version(version: int) -> None:
    world = member({8: version})
    offsets = {ORDERS_0: at(7, 4, "half way"), ORDERS_1: at(0)}
    done = world.commits.commit(offsets, world.now_ms, None, retry=True)
    sent = world.take("commits.commit")
    assert (sent.send.node_id, sent.send.lane) == (COORDINATOR, Lane.GROUP)
    request = sent.request
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("shop", 5, "me-1")
    epoch = 4 if version >= 6 else None
    assert sent.offsets == {ORDERS_0: at(7, epoch, "half way"), ORDERS_1: at(0)}
    assert [t.topic_id for t in request.topics] == [topic_id("orders") if version == 10 else bytes(16)]
    sent.committed()
    assert done.value() == offsets


def test_topics_are_named_unless_all_their_ids_are_known() -> None:
    world = member()
    world.commits.commit({ORDERS_0: at(7), TopicPartition("other", 0): at(1)}, world.now_ms, None, retry=True)
    assert world.take("commits.commit").version == 9


def test_a_static_member_commits_with_its_instance() -> None:
    world = member()
    world.member.me = GroupMetadata("shop", 5, "me-1", "kiosk-3")
    commit(world)
    assert world.take("commits.commit").request.group_instance_id == "kiosk-3"


def test_assign_needs_no_group_and_commits_with_generation_minus_one() -> None:
    world = World(enable_auto_commit=False)
    world.subscription.assign([ORDERS_0])
    commit(world)
    request = world.take("commits.commit").request
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (
        -1,
        "",
        None,
    )


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_assign_in_a_group_that_has_members_says_what_is_wrong(code: ErrorCode) -> None:
    world = World(enable_auto_commit=False)
    world.subscription.assign([ORDERS_0])
    done = commit(world)
    world.take("commits.commit").committed(code)
    with pytest.raises(
        CommitFailed, match=r"uses assign\(\) needs a group.id that nobody uses with subscribe"
    ):
        done.value()
    assert world.member.resets == []


@pytest.mark.parametrize("wrong", [(("orders", 0), ("orders", 1)), ("orders", "0"), (" ", 0)])
def test_what_is_no_partition_is_refused_at_once(wrong: Any) -> None:
    world = member()
    with pytest.raises(ValueError, match=r"a partition is \(topic, number\)"):
        world.commits.commit({wrong: at(1)}, world.now_ms, None, retry=True)
    with pytest.raises(ValueError, match=r"a partition is \(topic, number\)"):
        world.commits.committed([wrong], world.now_ms, None)
    with pytest.raises(ValueError, match=r"a partition is \(topic, number\)"):
        world.positions.list_offsets({wrong: 1}, world.now_ms, world.now_ms)
    assert world.nothing_sent()


def test_a_negative_offset_is_refused_at_once() -> None:
    world = member()
    with pytest.raises(ValueError, match="cannot be negative: -1 of orders-0"):
        commit(world, offset=-1)
    assert world.commits.is_idle


# --- order --------------------------------------------------------------------------------------------------


def test_async_commits_leave_at_once_and_their_callbacks_come_in_order() -> None:
    world = member()
    user = Callbacks(world)
    for offset in (1, 2, 3):
        user.asynchronously(offset)
    first, second, third = (world.take("commits.commit") for _ in range(3))
    third.committed()
    second.committed()
    assert user.run() == [], "the first is still under way"
    first.committed()
    assert user.run() == [1, 2, 3]
    assert user.run() == [1, 2, 3], "each is called once"


def test_a_sync_commit_waits_for_earlier_asyncs() -> None:
    world = member()
    user = Callbacks(world)
    user.asynchronously(1)
    done = commit(world, 2)
    earlier = world.take("commits.commit")
    assert world.nothing_sent()
    earlier.committed()
    assert user.run() == [1]
    later = world.take("commits.commit")
    assert later.offsets == {ORDERS_0: at(2)}
    later.committed()
    assert done.value() == {ORDERS_0: at(2)}


def test_a_sync_commit_of_nothing_waits_for_earlier_asyncs_too() -> None:
    world = member()
    Callbacks(world).asynchronously(1)
    done = world.commits.commit({}, world.now_ms, world.now_ms + TEN_SECONDS, retry=True)
    earlier = world.take("commits.commit")
    assert not done.done
    earlier.committed()
    world.tick()
    assert done.value() == {}


def test_an_older_offset_is_never_repeated_after_a_newer_one() -> None:
    world = member()
    commit(world, 1)
    Callbacks(world).asynchronously(2)
    world.take("commits.commit").fail()
    assert world.nothing_sent(), "the first is repeated after a backoff, the second waits for it"
    world.tick(after_ms=200)
    repeated = world.take("commits.commit")
    assert repeated.offsets == {ORDERS_0: at(1)}
    repeated.committed()
    assert world.take("commits.commit").offsets == {ORDERS_0: at(2)}


def test_the_on_commit_hook_is_told_of_successes_in_order() -> None:
    world = member()
    told: list[Offsets] = []
    world.commits.on_commit = told.append
    user = Callbacks(world)
    user.asynchronously(1)
    user.asynchronously(2)
    commit(world, 3)
    world.take("commits.commit").committed()
    world.take("commits.commit").committed(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    world.take("commits.commit").committed()
    assert told == [], "only in the user's thread"
    user.run()
    assert told == [{ORDERS_0: at(1)}, {ORDERS_0: at(3)}]


class Coming(Enum):
    ASYNC = "the user commits asynchronously"
    SYNC = "the user commits and waits"
    SUCCESS = "the oldest commit under way is answered"
    DISCONNECT = "it is lost with its connection"
    TIME = "a second passes"


@given(st.lists(st.sampled_from(Coming), max_size=40))
def test_whatever_comes_the_coordinator_never_sees_an_older_commit_after_a_newer_one(
    coming: list[Coming],
) -> None:
    world = member()
    user = Callbacks(world)
    issued = itertools.count()
    asynchronously: list[int] = []
    for event in [*coming, *[Coming.TIME, Coming.SUCCESS] * (2 * len(coming))]:
        if event is Coming.ASYNC:
            asynchronously.append(next(issued))
            user.asynchronously(asynchronously[-1])
        elif event is Coming.SYNC:
            world.commits.commit({ORDERS_0: at(next(issued))}, world.now_ms, None, retry=True)
        elif event is Coming.TIME:
            world.tick(after_ms=1_000)
        elif world.sent:
            question = world.take("commits.commit")
            question.committed() if event is Coming.SUCCESS else question.fail()
        world.tick()
    assert world.commits.is_idle
    seen = [Question(world, send).offsets[ORDERS_0].offset for send in world.history]
    assert seen == sorted(seen)
    assert set(seen) == set(range(next(issued))), "and none is forgotten"
    assert user.run() == asynchronously, "every callback, once, in order"


# --- what may be tried again --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "forgets"),
    [
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, False),
    ],
)
def test_a_sync_commit_is_repeated_after_a_backoff(code: ErrorCode, forgets: bool) -> None:
    world = member()
    done = commit(world)
    question = world.take("commits.commit")
    found = world.coordinator.changes
    question.committed(code)
    assert (world.coordinator.node_id is None) is forgets
    assert world.nothing_sent()
    world.tick(after_ms=99)
    assert world.nothing_sent()
    world.tick(after_ms=1)
    world.take("commits.commit").committed()
    assert done.value() == {ORDERS_0: at(7)}
    assert world.coordinator.changes == found + forgets


def test_a_disconnect_forgets_the_coordinator_and_a_sync_commit_goes_to_the_new_one() -> None:
    world = member()
    done = commit(world)
    world.take("commits.commit").fail()
    assert world.coordinator.node_id is None
    world.tick(after_ms=200)
    world.take("commits.commit").committed()
    assert done.value()


def test_a_late_failure_of_an_old_coordinator_leaves_the_new_one_alone() -> None:
    world = member()
    Callbacks(world).asynchronously(1)
    question = world.take("commits.commit")
    world.coordinator.node_id = 2
    question.fail()
    assert world.coordinator.node_id == 2


def test_a_sync_commit_ends_with_the_callers_deadline_and_says_what_was_in_the_way() -> None:
    world = member()
    done = commit(world)
    world.take("commits.commit").committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert world.commits.next_deadline_ms() == world.now_ms + 100
    world.tick(after_ms=TEN_SECONDS)
    with pytest.raises(TimedOut, match=r"orders-0 .*may or may not have happened.*was the topic deleted\?"):
        done.value()
    assert world.nothing_sent()
    assert world.commits.is_idle


def test_a_sync_commit_without_a_coordinator_ends_too() -> None:
    world = member()
    world.coordinator_is_found = False
    done = commit(world)
    world.tick()
    world.tick(after_ms=TEN_SECONDS)
    with pytest.raises(TimedOut, match="could not be sent in time: FindCoordinator disconnected"):
        done.value()


def test_an_answer_after_the_deadline_disturbs_nothing() -> None:
    world = member()
    done = commit(world, 1)
    late = world.take("commits.commit")
    world.tick(after_ms=TEN_SECONDS)
    again = commit(world, 2)
    late.committed()
    assert isinstance(done.error, TimedOut)
    assert not again.done
    world.take("commits.commit").committed()
    assert again.value()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (lambda question: question.fail(), ErrorCode.NETWORK_EXCEPTION),
        (lambda question: question.fail(FailureKind.TIMED_OUT), ErrorCode.REQUEST_TIMED_OUT),
        (lambda question: question.committed(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_an_async_commit_is_not_repeated(answer: Callable[..., None], code: ErrorCode) -> None:
    world = member()
    user = Callbacks(world)
    user.asynchronously(1)
    answer(world.take("commits.commit"))
    user.run()
    [(_, error)] = user.told
    assert isinstance(error, RetriableCommitFailed)
    assert error.code is code
    assert "commit again" in str(error)
    world.tick(after_ms=5_000)
    assert world.nothing_sent()


def test_an_async_commit_waits_for_a_coordinator_no_longer_than_a_request() -> None:
    world = member(request_timeout_ms=30_000)
    world.coordinator_is_found = False
    user = Callbacks(world)
    user.asynchronously(1)
    world.tick(after_ms=29_999)
    assert user.run() == []
    world.tick(after_ms=1)
    user.run()
    assert isinstance(user.told[0][1], RetriableCommitFailed)


# --- the group has moved on -----------------------------------------------------------------------------------


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


# --- committed() ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 11))
def test_committed_answers_for_any_partitions_in_every_version(version: int) -> None:
    world = World({9: version})
    done = world.commits.committed([ORDERS_0, ORDERS_1], world.now_ms, None)
    question = world.take("commits.committed")
    assert (question.send.node_id, question.send.lane) == (COORDINATOR, Lane.GROUP)
    request = question.request
    assert request.require_stable is (version >= 7)
    group_id = request.groups[0].group_id if version >= 8 else request.group_id
    topics = request.groups[0].topics if version >= 8 else request.topics
    assert group_id == "shop"
    assert [topic.partition_indexes for topic in topics] == [[0, 1]]
    question.found({ORDERS_0: at(7, 4, "half way"), ORDERS_1: None})
    assert done.value() == {ORDERS_0: at(7, 4 if version >= 5 else None, "half way"), ORDERS_1: None}


def test_committed_names_topics_unless_all_their_ids_are_known() -> None:
    world = World()
    world.commits.committed([ORDERS_0, TopicPartition("other", 0)], world.now_ms, None)
    question = world.take("commits.committed")
    assert question.version == 9
    assert [topic.name for topic in question.request.groups[0].topics] == ["orders", "other"]


def test_committed_asks_for_stable_offsets_and_waits_for_them() -> None:
    world = World()
    done = world.commits.committed([ORDERS_0, ORDERS_1], world.now_ms, None)
    world.take("commits.committed").found({ORDERS_0: at(7), ORDERS_1: ErrorCode.UNSTABLE_OFFSET_COMMIT})
    assert world.nothing_sent()
    world.tick(after_ms=100)
    world.take("commits.committed").found({ORDERS_0: at(7), ORDERS_1: at(3)})
    assert done.value() == {ORDERS_0: at(7), ORDERS_1: at(3)}


@pytest.mark.parametrize("version", [1, 7, 10])
def test_committed_looks_the_coordinator_up_again(version: int) -> None:
    world = World({9: version})
    done = world.commits.committed([ORDERS_0], world.now_ms, None)
    code = ErrorCode.NOT_COORDINATOR
    world.take("commits.committed").found({ORDERS_0: code} if version == 1 else {}, error=code)
    assert world.coordinator.node_id is None
    world.tick(after_ms=200)
    world.take("commits.committed").found({ORDERS_0: None})
    assert done.value() == {ORDERS_0: None}


def test_several_look_ups_at_once_have_answers_of_their_own() -> None:
    world = World()
    one = world.commits.committed([ORDERS_0], world.now_ms, None)
    other = world.commits.committed([ORDERS_1], world.now_ms, None)
    first, second = world.take("commits.committed"), world.take("commits.committed")
    second.found({ORDERS_1: at(2)})
    first.found({ORDERS_0: at(1)})
    assert (one.value(), other.value()) == ({ORDERS_0: at(1)}, {ORDERS_1: at(2)})


@pytest.mark.parametrize(
    ("partition", "group", "words"),
    [
        (None, ErrorCode.GROUP_AUTHORIZATION_FAILED, "offsets of group shop: it needs DESCRIBE"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE, "topics orders"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE, "orders-0 does not exist"),
    ],
)
def test_committed_fails_with_what_it_is_about(
    partition: ErrorCode | OffsetAndMetadata | None, group: ErrorCode, words: str
) -> None:
    world = World()
    done = world.commits.committed([ORDERS_0], world.now_ms, None)
    world.take("commits.committed").found({ORDERS_0: partition}, error=group)
    with pytest.raises(KafkaError, match=words):
        done.value()


def test_committed_ends_with_the_callers_deadline() -> None:
    world = World()
    done = world.commits.committed([ORDERS_0], world.now_ms, world.now_ms + 1_000)
    world.take("commits.committed").fail()
    assert world.commits.next_deadline_ms() is not None
    world.tick(after_ms=1_000)
    with pytest.raises(TimedOut, match=r"committed offsets of orders-0 in group shop .*the cable was cut"):
        done.value()


def test_committed_does_not_queue_behind_a_join_that_waits_for_the_others() -> None:
    world = World()
    world.member.rebalance_in_progress = True
    world.commits.committed([ORDERS_0], world.now_ms, None)
    assert world.take("commits.committed").send.lane is Lane.DATA


def test_committed_of_nothing_asks_nobody() -> None:
    world = World()
    assert world.commits.committed([], world.now_ms, None).value() == {}
    assert world.nothing_sent()
