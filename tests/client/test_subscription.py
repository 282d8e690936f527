"""spec/consumer.md, "Subscriptions": what a consumer reads, and where it stands."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from kohort.client.core.offset_reset import EARLIEST, LATEST, AutoOffsetResetStrategy
from kohort.client.errors import IllegalState
from kohort.client.offsets.subscription import Mode, Position, SubscriptionState
from kohort.client.types import OffsetAndMetadata, TopicPartition

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BILLS_0 = TopicPartition("bills", 0)

WAYS: dict[Mode, Callable[[SubscriptionState], Any]] = {
    Mode.TOPICS: lambda s: s.subscribe(["orders"]),
    Mode.PATTERN: lambda s: s.subscribe_pattern(re.compile("orders.*")),
    Mode.ASSIGNED: lambda s: s.assign([ORDERS_0]),
}


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(WAYS, 2)))
def test_topics_pattern_and_assign_exclude_each_other(first: Mode, second: Mode) -> None:
    subscription = SubscriptionState()
    WAYS[first](subscription)
    with pytest.raises(IllegalState, match=f"uses {first.value}; call unsubscribe"):
        WAYS[second](subscription)
    assert subscription.mode is first
    subscription.unsubscribe()
    WAYS[second](subscription)
    assert subscription.mode is second


@pytest.mark.parametrize("topic", ["", "  ", None])
def test_null_or_blank_topics_are_refused(topic: str | None) -> None:
    subscription = SubscriptionState()
    with pytest.raises(ValueError, match="must have a name"):
        subscription.subscribe(["orders", topic])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="must have a name"):
        subscription.assign([(topic, 0)])  # type: ignore[list-item]
    assert subscription.mode is Mode.NONE, "and nothing has changed"


def test_a_partition_has_a_number() -> None:
    with pytest.raises(ValueError, match="cannot be negative: orders--1"):
        SubscriptionState().assign([TopicPartition("orders", -1)])


def test_subscribing_again_replaces_the_topics_and_says_whether_that_is_a_change() -> None:
    subscription = SubscriptionState()
    assert subscription.subscribe(["orders", "bills"])
    assert not subscription.subscribe(["bills", "orders"])
    assert subscription.subscribe(["bills"])
    assert subscription.topics == {"bills"}


def test_a_pattern_is_matched_again_and_new_topics_join_the_subscription() -> None:
    subscription = SubscriptionState()
    subscription.subscribe_pattern(re.compile("orders-.*"))
    assert subscription.match(["orders-eu", "bills"])
    assert not subscription.match(["bills", "orders-eu"])
    assert subscription.match(["orders-eu", "orders-us", "bills"])
    assert subscription.topics == {"orders-eu", "orders-us"}


def test_a_pattern_matches_whole_names_as_in_kafka() -> None:
    subscription = SubscriptionState()
    subscription.subscribe_pattern(re.compile("orders"))
    subscription.match(["orders", "old-orders", "orders-eu"])
    assert subscription.topics == {"orders"}


def test_unsubscribe_forgets_everything() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["orders"])
    subscription.assign_from_group([ORDERS_0])
    subscription.unsubscribe()
    assert (subscription.mode, subscription.topics, subscription.partitions) == (Mode.NONE, frozenset(), {})


def test_partitions_that_stay_keep_their_positions() -> None:
    subscription = SubscriptionState()
    assert subscription.assign([ORDERS_0, ORDERS_1])
    subscription.state(ORDERS_0).seek(Position(7))
    assert not subscription.assign([ORDERS_1, ORDERS_0])
    assert subscription.assign([ORDERS_0, BILLS_0])
    assert subscription.state(ORDERS_0).position == Position(7)
    assert subscription.state(BILLS_0).position is None


def test_a_partition_that_was_given_away_and_comes_back_starts_anew() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["orders"])
    subscription.assign_from_group([ORDERS_0])
    subscription.state(ORDERS_0).seek(Position(7))
    subscription.assign_from_group([])
    subscription.assign_from_group([ORDERS_0])
    assert subscription.state(ORDERS_0).position is None


def test_what_the_group_gives_is_not_fetched_before_the_callback_ran() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["orders"])
    subscription.assign_from_group([ORDERS_0])
    subscription.assigned_callback_ran()
    subscription.assign_from_group([ORDERS_0, ORDERS_1])
    for state in subscription.partitions.values():
        state.seek(Position(0))
    assert [p for p, _ in subscription.fetchable()] == [ORDERS_0], "what was ours before goes on"
    subscription.assigned_callback_ran()
    assert [p for p, _ in subscription.fetchable()] == [ORDERS_0, ORDERS_1]


def test_partitions_of_a_topic_that_was_unsubscribed_from_are_not_read_until_the_group_takes_them() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["orders", "bills"])
    subscription.assign_from_group([ORDERS_0, BILLS_0])
    subscription.assigned_callback_ran()
    for state in subscription.partitions.values():
        state.seek(Position(0))
    subscription.subscribe(["orders"])
    assert [p for p, _ in subscription.fetchable()] == [ORDERS_0]
    assert set(subscription.consumed()) == {ORDERS_0, BILLS_0}, "but what was read can still be committed"


@pytest.mark.parametrize("mark", ["paused", "revoking", "validating"])
def test_some_partitions_are_not_to_be_fetched(mark: str) -> None:
    subscription = SubscriptionState()
    subscription.assign([ORDERS_0, ORDERS_1])
    for state in subscription.partitions.values():
        state.seek(Position(0))
    setattr(subscription.state(ORDERS_0), mark, True)
    assert [p for p, _ in subscription.fetchable()] == [ORDERS_1]


def test_a_call_about_a_partition_that_is_not_assigned_says_so() -> None:
    with pytest.raises(IllegalState, match=r"orders-0 is not assigned .* assignment\(\) says what is"):
        SubscriptionState().state(ORDERS_0)


def test_what_may_be_committed_are_good_positions_with_their_epochs() -> None:
    subscription = SubscriptionState()
    subscription.assign([ORDERS_0, ORDERS_1, BILLS_0])
    subscription.state(ORDERS_0).seek(Position(7, 4))
    subscription.state(ORDERS_1).seek(Position(3))
    assert not subscription.has_all_positions
    assert subscription.consumed() == {
        ORDERS_0: OffsetAndMetadata(7, "", 4),
        ORDERS_1: OffsetAndMetadata(3, "", None),
    }
    subscription.state(ORDERS_0).reset_to(EARLIEST)
    subscription.state(ORDERS_1).validating = True
    assert subscription.consumed() == {}


def test_whoever_moves_a_position_makes_older_answers_late() -> None:
    subscription = SubscriptionState()
    subscription.assign([ORDERS_0])
    state = subscription.state(ORDERS_0)
    state.error, state.preferred_replica, state.retry_at_ms = ValueError("corrupt"), 3, 99
    state.seek(Position(7))
    assert (state.seeks, state.preferred_replica, state.retry_at_ms) == (1, -1, 0)
    assert state.is_fetchable, "the error is gone"
    state.reset_to(LATEST)
    assert (state.seeks, state.position, state.reset) == (2, None, LATEST)
    state.seek(Position(0))
    assert (state.seeks, state.reset) == (3, None)


def test_by_duration_is_counted_from_now_and_never_before_1970() -> None:
    reset = AutoOffsetResetStrategy("by_duration:PT1H", None, 3_600_000)
    assert reset.timestamp_at(10_000_000) == 6_400_000
    assert reset.timestamp_at(1_000) == 0
    assert EARLIEST.timestamp_at(10) == -2
