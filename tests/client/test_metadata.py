"""Metadata, sans-IO: when it asks, what it keeps of an answer, what it does without one."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.config import CONSUMER, read_config
from kohort.client.core.cluster import NO_NODE, Node
from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.types import TopicPartition
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER_ID = b"a" * 16, b"b" * 16
P0 = TopicPartition("orders", 0)


class Told:
    """A Metadata, its outbox and a clock that stands until it is moved."""

    def __init__(self, **settings: object) -> None:
        config, _ = read_config(CONSUMER, {"bootstrap.servers": "one:1,two:2"}, settings)
        self.out: Outbox = []
        self.metadata = Metadata(self.out, config, lambda: 0.5)
        self.now_ms = 1_000_000

    def want(self, *topics: str, **more: Any) -> None:
        self.metadata.want(frozenset(topics), now_ms=self.now_ms, **more)

    def asks(self) -> Send | None:
        self.metadata.tick(self.now_ms)
        self.metadata.tick(self.now_ms)  # again: nothing more
        assert len(self.out) <= 1
        return self.out.pop() if self.out else None

    def answer(self, *topics: MetadataResponseTopic, **more: Any) -> None:
        send = self.asks()
        assert send is not None, "it does not ask"
        self.give(send, *topics, **more)

    def give(
        self, send: Send, *topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2), **more: Any
    ) -> None:
        brokers = [MetadataResponseBroker(i, f"host{i}", 9092) for i in nodes]
        response = MetadataResponse(brokers=brokers, topics=list(topics), cluster_id="c", **more)
        send.on_answer(Answer(send, 13, response), self.now_ms)

    def fail(self, kind: FailureKind = FailureKind.DISCONNECTED) -> None:
        send = self.asks()
        assert send is not None, "it does not ask"
        send.on_answer(Answer(send, failure=Failure(kind, "gone")), self.now_ms)

    def asks_after(self, wait_ms: int) -> bool:
        """Not a millisecond before, and then it does."""
        self.now_ms += wait_ms - 1
        early = self.asks()
        self.now_ms += 1
        deadline_ms = self.metadata.next_deadline_ms()
        return early is None and deadline_ms == self.now_ms and self.asks() is not None


def topic(
    name: str = "orders", leader: int = 1, epoch: int = 5, topic_id: bytes = ID, **more: Any
) -> MetadataResponseTopic:
    made = MetadataResponseTopic(
        0, name, topic_id, False, [MetadataResponsePartition(0, 0, leader, epoch, [1, 2], [1])]
    )
    for field, value in more.items():
        setattr(made, field, value)
    return made


# --- asking --------------------------------------------------------------------------------------


def test_it_asks_any_node_at_once_and_then_when_the_metadata_is_old() -> None:
    told = Told(metadata_max_age_ms=60_000)
    told.want("orders")
    send = told.asks()
    assert send is not None
    assert (send.node_id, send.purpose) == (ANY_NODE, "metadata.update")
    assert told.metadata.next_deadline_ms() is None  # it waits for the answer
    told.give(send, topic())
    assert told.asks_after(60_000)


def test_a_new_topic_is_asked_for_at_once_and_a_dropped_one_is_forgotten() -> None:
    told = Told()
    told.want("orders")
    told.answer(topic())
    told.want("payments")
    assert "orders" not in told.metadata.cluster.topics
    told.answer(topic("payments"))
    told.want("payments", "orders")
    assert told.asks() is not None


def test_the_same_topics_again_or_fewer_are_no_reason_to_ask() -> None:
    told = Told()
    told.want("orders", "payments")
    told.answer(topic(), topic("payments"))
    told.want("payments", "orders")
    told.want("orders")
    assert told.asks() is None


def test_a_topic_that_is_wanted_while_a_request_is_under_way_is_asked_for_after_it() -> None:
    told = Told()
    told.want("orders")
    send = told.asks()
    assert send is not None
    told.want("orders", "payments")
    assert told.asks() is None  # one at a time
    told.give(send, topic())
    assert "orders" in told.metadata.cluster.topics
    second = told.asks()
    assert second is not None
    assert [t.name for t in second.make(12).topics] == ["orders", "payments"]  # type: ignore[attr-defined]


def test_request_update_asks_again_as_soon_as_the_backoff_allows() -> None:
    told = Told(retry_backoff_ms=100)
    told.answer()
    assert told.asks() is None
    told.metadata.request_update("somebody was not the leader")
    assert told.asks_after(100)


def test_request_update_while_an_answer_is_under_way_asks_once_more() -> None:
    told = Told(retry_backoff_ms=100)
    send = told.asks()
    assert send is not None
    told.metadata.request_update("the leader moved after the broker wrote its answer")
    told.give(send)
    assert told.asks_after(100)


@pytest.mark.parametrize("version", range(14))
def test_every_version_can_ask_for_topics_for_all_and_for_none(version: int) -> None:
    layout = codec(3, version)
    asked: dict[str, Any] = {}
    for name, wanted in (("some", frozenset({"orders"})), ("all", None), ("none", frozenset[str]())):
        told = Told()
        told.metadata.want(wanted, now_ms=told.now_ms)
        send = told.asks()
        assert send is not None
        message = layout.decode_request(memoryview(b"".join(layout.encode_request(send.make(version)))))
        asked[name] = message.topics if message.topics is None else [t.name for t in message.topics]  # type: ignore[attr-defined]
    # Version 0 has no null: an empty list is all topics there, and what is not wanted is ignored.
    assert asked == {"some": ["orders"], "all": [] if version == 0 else None, "none": []}


@pytest.mark.parametrize("allowed", [True, False])
def test_a_topic_is_created_only_where_that_was_allowed(allowed: bool) -> None:
    told = Told()
    told.want("orders", allow_auto_create=allowed)
    send = told.asks()
    assert send is not None
    assert send.make(4).allow_auto_topic_creation is allowed  # type: ignore[attr-defined]


# --- answers -------------------------------------------------------------------------------------


def test_an_answer_becomes_the_snapshot() -> None:
    told = Told()
    told.want("orders", "__consumer_offsets")
    before = told.metadata.cluster
    told.answer(topic(), topic("__consumer_offsets", topic_id=OTHER_ID, is_internal=True), controller_id=2)
    cluster = told.metadata.cluster
    assert before.version < cluster.version
    assert before.topics == {}  # a reader that holds the old one is not disturbed
    assert cluster.nodes == {1: Node(1, "host1", 9092), 2: Node(2, "host2", 9092)}
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 2)
    assert cluster.topics["__consumer_offsets"].is_internal
    info = cluster.partition(P0)
    assert info is not None
    assert (info.leader_id, info.leader_epoch, info.replicas, info.isr) == (1, 5, (1, 2), (1,))
    assert told.metadata.topic_name(ID) == "orders"
    assert told.metadata.topic_name(b"?" * 16) is None


def test_all_topics_are_kept_when_all_are_wanted_and_only_wanted_ones_otherwise() -> None:
    told = Told()
    told.metadata.want(None, now_ms=told.now_ms)
    told.answer(topic(), topic("payments", topic_id=OTHER_ID))
    assert set(told.metadata.cluster.topics) == {"orders", "payments"}
    told.want("orders")
    assert set(told.metadata.cluster.topics) == {"orders"}


def test_a_newer_leader_epoch_is_never_replaced_by_an_older_one() -> None:
    told = Told(retry_backoff_ms=0)
    told.want("orders")
    told.answer(topic(leader=2, epoch=7))
    told.metadata.request_update("test")
    told.answer(topic(leader=1, epoch=6))  # from a broker that lags behind
    assert told.metadata.cluster.leader_of(P0) == 2
    told.metadata.request_update("test")
    told.answer(topic(leader=1, epoch=8))
    assert told.metadata.cluster.leader_of(P0) == 1


def test_a_topic_that_was_deleted_and_made_again_begins_with_its_own_epochs() -> None:
    told = Told(retry_backoff_ms=0)
    told.want("orders")
    told.answer(topic(leader=2, epoch=7))
    told.metadata.request_update("test")
    told.answer(topic(leader=1, epoch=0, topic_id=OTHER_ID))
    info = told.metadata.cluster.partition(P0)
    assert info is not None
    assert (info.leader_id, info.leader_epoch) == (1, 0)
    assert told.metadata.topic_name(ID) == told.metadata.topic_name(OTHER_ID) == "orders"


def test_a_broker_too_old_for_epochs_is_believed() -> None:
    told = Told(retry_backoff_ms=0)
    told.want("orders")
    told.answer(topic(leader=2, epoch=7))
    told.metadata.request_update("test")
    told.answer(topic(leader=1, epoch=-1))
    assert told.metadata.cluster.leader_of(P0) == 1


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
def test_a_topic_that_is_not_there_yet_is_asked_for_again_with_growing_backoff(code: ErrorCode) -> None:
    told = Told(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    told.want("orders")
    told.answer(topic(error_code=code))
    assert told.metadata.cluster.errors == {"orders": code}
    told.now_ms += 100
    told.answer(topic(error_code=code))
    assert told.asks_after(200)


def test_a_partition_without_a_leader_is_asked_for_again() -> None:
    told = Told(retry_backoff_ms=100)
    told.want("orders")
    told.answer(topic(leader=NO_NODE))
    assert told.metadata.failures == 1
    told.now_ms += 100
    told.answer(topic())
    assert told.metadata.failures == 0
    assert told.asks() is None


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_an_error_that_asking_does_not_cure_is_kept_and_not_asked_again(code: ErrorCode) -> None:
    told = Told()
    told.want("orders", "payments")
    told.answer(topic(error_code=code), topic("payments"))
    assert told.metadata.cluster.errors == {"orders": code}
    assert set(told.metadata.cluster.topics) == {"payments"}
    told.now_ms += 10_000
    assert told.asks() is None


def test_a_leader_that_another_answer_named_is_taken_if_it_is_newer() -> None:
    told = Told()
    told.want("orders")
    told.answer(topic(leader=1, epoch=5))
    assert not told.metadata.update_leader(P0, 2, 5)
    assert not told.metadata.update_leader(P0, 2, 4)
    assert not told.metadata.update_leader(TopicPartition("payments", 0), 2, 9)
    assert told.metadata.cluster.leader_of(P0) == 1
    assert told.metadata.update_leader(P0, 3, 6, [Node(3, "host3", 9092)])
    assert told.metadata.cluster.leader_of(P0) == 3
    assert told.metadata.node(3) == Node(3, "host3", 9092)


def test_a_coordinator_outside_of_the_snapshot_is_known_until_the_snapshot_has_it() -> None:
    told = Told(retry_backoff_ms=0)
    told.answer()
    told.metadata.learn(Node(7, "seven", 9092))
    assert told.metadata.node(7) == Node(7, "seven", 9092)
    told.metadata.request_update("test")
    told.answer(nodes=(1, 7))
    assert told.metadata.node(7) == Node(7, "host7", 9092)
    assert told.metadata.node(2) is None


# --- no answers ----------------------------------------------------------------------------------


def test_after_a_failure_it_asks_again_with_growing_backoff_and_an_answer_ends_that() -> None:
    told = Told(retry_backoff_ms=100, retry_backoff_max_ms=150)
    told.fail()
    assert "gone" in told.metadata.last_failure
    told.now_ms += 100
    told.fail(FailureKind.TIMED_OUT)
    assert told.metadata.failures == 2
    told.now_ms += 149
    assert told.asks() is None
    told.now_ms += 1
    told.answer()
    assert told.metadata.failures == 0


def test_credentials_that_are_refused_are_an_error_for_the_user_until_they_are_accepted() -> None:
    told = Told(retry_backoff_ms=0)
    told.fail(FailureKind.AUTHENTICATION)
    assert str(told.metadata.take_error()) == "gone"
    assert told.metadata.take_error() is None
    told.fail(FailureKind.AUTHENTICATION)
    told.answer()
    assert told.metadata.take_error() is None


def test_a_late_answer_to_an_older_request_changes_nothing() -> None:
    told = Told(retry_backoff_ms=0)
    told.want("orders")
    first = told.asks()
    assert first is not None
    first.on_answer(Answer(first, failure=Failure(FailureKind.TIMED_OUT)), told.now_ms)
    told.answer(topic(leader=2))
    told.give(first, topic(leader=1))
    assert told.metadata.cluster.leader_of(P0) == 2


def test_an_answer_without_brokers_is_none() -> None:
    told = Told()
    told.want("orders")
    told.answer(topic(), nodes=())
    assert told.metadata.cluster.version == 0
    assert told.metadata.failures == 1


def test_a_broker_may_ask_to_begin_again_with_the_bootstrap_servers() -> None:
    told = Told(retry_backoff_ms=0)
    told.want("orders")
    told.answer(topic())
    told.metadata.request_update("test")
    told.answer(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    assert told.metadata.cluster.nodes == {}
    assert "orders" in told.metadata.cluster.topics
    assert told.asks() is not None


@pytest.mark.parametrize(("strategy", "forgotten"), [("rebootstrap", True), ("none", False)])
def test_when_no_broker_answers_for_long_the_nodes_are_forgotten(strategy: str, forgotten: bool) -> None:
    told = Told(
        retry_backoff_ms=0,
        metadata_recovery_strategy=strategy,
        metadata_recovery_rebootstrap_trigger_ms=60_000,
    )
    told.answer()
    told.metadata.request_update("test")
    told.fail()
    told.now_ms += 59_999
    told.fail()
    assert told.metadata.cluster.nodes
    told.now_ms += 1
    assert told.asks() is not None
    assert bool(told.metadata.cluster.nodes) is not forgotten
