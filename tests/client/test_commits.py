"""spec/consumer.md, "Committing": what the user commits, and what comes back; the consumer's own: test_auto_commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.core.effects import FailureKind, Lane
from kohort.client.core.operation import Operation
from kohort.client.errors import (
    CommitFailed,
    RetriableCommitFailed,
    TimedOut,
)
from kohort.client.offsets.offset_requests import Offsets
from kohort.client.types import GroupMetadata, TopicPartition
from kohort.wire.errors import ErrorCode
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
        while (call := self.world.commits.take_callback()) is not None:
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
    world.commits.call_on_commit(told.append)
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
