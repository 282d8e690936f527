"""Commits and look-ups of a member whose epoch moves on by itself: the parts of a real consumer, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.config import CONSUMER, read_config
from kohort.client.consume.consumer_core import ConsumerCore
from kohort.client.core.effects import Answer, Send
from kohort.client.errors import CommitFailed, RetriableCommitFailed
from kohort.client.offsets.subscription import Position
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.client.offsets import ORDERS_0, ORDERS_1, at

ORDERS = b"orders".ljust(16, b".")
VERSIONS = {3: 12, 8: 10, 9: 10, 10: 6, 68: 1}


class Scene:
    """A consumer of `orders` with two partitions that has joined with epoch 5 and owns both."""

    def __init__(self, **settings: object) -> None:
        base = {"bootstrap.servers": "b:1", "group.id": "shop", "group.protocol": "consumer"}
        config, _ = read_config(CONSUMER, base, {"retry_backoff_ms": 100, **settings})
        self.core = ConsumerCore(config, lambda: 0.5, member_id="uuid-1")
        self.now_ms, self.sent = 0, list[Send]()
        assert self.core.membership is not None
        self.membership = self.core.membership
        self.core.subscription.subscribe(["orders"])
        self.core.want_metadata(0)
        self.poll()
        self.beat(5, 0, 1)
        self.called()
        self.beat(5)
        for state in self.core.subscription.partitions.values():
            state.seek(Position(7))
        self.poll()

    def poll(self) -> None:
        self.core.commits.poll(self.now_ms)
        self.membership.poll(self.now_ms)
        self.tick()

    def called(self) -> None:
        assert self.membership.callback is not None
        self.membership.called_back(None, self.now_ms)
        self.tick()

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        for _ in range(5):
            self.core.metadata.tick(self.now_ms)
            self.core.tick(self.now_ms)
            sends, self.core.out[:] = list(self.core.out), []
            for send in sends:
                if send.purpose == "metadata.update":
                    self.answer(send, self.metadata())
                elif send.purpose == "coordinator.find":
                    found = Coordinator("shop", 1, "b", 9092)
                    self.answer(send, FindCoordinatorResponse(coordinators=[found]))
                else:
                    self.sent.append(send)

    def metadata(self) -> MetadataResponse:
        partitions = [MetadataResponsePartition(0, i, 1, 0, [1], [1]) for i in range(2)]
        topic = MetadataResponseTopic(0, "orders", ORDERS, partitions=partitions)
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "b", 9092)], topics=[topic])

    def answer(self, send: Send, response: Any) -> None:
        send.on_answer(Answer(send, VERSIONS[send.api_key], response), self.now_ms)

    def take(self, purpose: str) -> tuple[Send, Any]:
        """The oldest request of this purpose, and what it says."""
        self.tick()
        send = next((send for send in self.sent if send.purpose == purpose), None)
        assert send is not None, f"no {purpose}, but {[send.purpose for send in self.sent]}"
        self.sent.remove(send)
        return send, send.make(VERSIONS[send.api_key])

    def waits(self, purpose: str) -> bool:
        self.tick()
        return any(send.purpose == purpose for send in self.sent)

    def beat(self, epoch: int, *partitions: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """The heartbeat that is under way is answered."""
        send, _ = self.take("membership.heartbeat")
        assignment = Assignment([TopicPartitions(ORDERS, list(partitions))]) if partitions else None
        response = ConsumerGroupHeartbeatResponse(0, error, None, "uuid-1", epoch, 5_000, assignment)
        self.answer(send, response)
        self.tick()

    def commit_is_answered(self, code: ErrorCode = ErrorCode.NONE) -> int:
        """Returns the epoch that the commit was sent with."""
        send, request = self.take("commits.commit")
        assert request.member_id == "uuid-1"
        topics = [
            OffsetCommitResponseTopic(
                "orders",
                ORDERS,
                [OffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions],
            )
            for t in request.topics
        ]
        self.answer(send, OffsetCommitResponse(topics=topics))
        self.tick()
        epoch: int = request.generation_id_or_member_epoch
        return epoch

    def commit(self, *partitions: TopicPartition) -> Any:
        operation = self.core.commits.commit(
            dict.fromkeys(partitions, at(7)), self.now_ms, self.now_ms + 10_000
        )
        self.tick()
        return operation


def test_a_commit_with_a_stale_epoch_is_sent_again_with_the_new_one() -> None:
    scene = Scene(enable_auto_commit=False)
    done = scene.commit(ORDERS_0)
    assert scene.commit_is_answered(ErrorCode.STALE_MEMBER_EPOCH) == 5
    scene.beat(6)  # asked at once, without waiting for the interval
    assert not done.done
    scene.tick(after_ms=100)
    assert scene.commit_is_answered() == 6
    assert done.value() == {ORDERS_0: at(7)}


def test_it_is_not_sent_again_for_partitions_that_are_gone() -> None:
    """The next owner may have read further: the new epoch would let the old offset through."""
    scene = Scene(enable_auto_commit=False)
    done = scene.commit(ORDERS_0, ORDERS_1)
    send, _ = scene.take("commits.commit")
    scene.tick(after_ms=5_000)
    scene.beat(5, 1)
    scene.called()  # revoked
    scene.called()  # assigned
    scene.beat(6)
    scene.sent.append(send)
    assert scene.commit_is_answered(ErrorCode.STALE_MEMBER_EPOCH) == 5
    with pytest.raises(CommitFailed, match="orders-0, orders-1 not committed: the group shop moved on"):
        done.value()


def test_it_is_not_sent_again_after_another_join() -> None:
    scene = Scene(enable_auto_commit=False)
    done = scene.commit(ORDERS_0)
    send, _ = scene.take("commits.commit")
    scene.tick(after_ms=5_000)
    scene.beat(0, error=ErrorCode.FENCED_MEMBER_EPOCH)
    scene.called()  # lost
    scene.beat(9, 0, 1)
    scene.called()
    scene.sent.append(send)
    scene.commit_is_answered(ErrorCode.STALE_MEMBER_EPOCH)
    with pytest.raises(CommitFailed):
        done.value()
    assert scene.membership.generation_id == 9, "an old answer says nothing about the present membership"


def test_an_asynchronous_commit_with_a_stale_epoch_may_be_made_again() -> None:
    scene = Scene(enable_auto_commit=False)
    done = scene.core.commits.commit_async({ORDERS_0: at(7)}, scene.now_ms)
    scene.commit_is_answered(ErrorCode.STALE_MEMBER_EPOCH)
    assert isinstance(done.error, RetriableCommitFailed)
    assert scene.waits("membership.heartbeat")


def test_an_unknown_member_is_asked_about_and_not_believed() -> None:
    """Only the answer to a heartbeat ends a membership."""
    scene = Scene(enable_auto_commit=False)
    done = scene.commit(ORDERS_0)
    scene.commit_is_answered(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(done.error, CommitFailed)
    assert scene.membership.generation_id == 5
    scene.beat(0, error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert scene.membership.generation_id == -1


def test_the_commit_before_a_revocation_follows_the_epoch() -> None:
    scene = Scene()
    scene.tick(after_ms=4_990)
    scene.poll()
    scene.tick(after_ms=10)
    scene.beat(5, 1)
    assert str(scene.membership.callback) == "None", "the commit comes first"
    assert scene.commit_is_answered(ErrorCode.STALE_MEMBER_EPOCH) == 5
    scene.beat(6)
    scene.tick(after_ms=100)
    assert scene.commit_is_answered() == 6
    assert str(scene.membership.callback) == "revoked orders-0"


def test_a_look_up_says_who_asks_and_follows_the_epoch() -> None:
    scene = Scene(enable_auto_commit=False)
    scene.sent.clear()
    scene.tick(after_ms=4_950)
    done = scene.core.commits.committed([ORDERS_0], scene.now_ms, scene.now_ms + 60_000)

    def refused(code: ErrorCode) -> tuple[str | None, int]:
        send, request = scene.take("commits.committed")
        scene.answer(send, OffsetFetchResponse(groups=[OffsetFetchResponseGroup("shop", [], code)]))
        assert not done.done
        return request.groups[0].member_id, request.groups[0].member_epoch

    assert refused(ErrorCode.STALE_MEMBER_EPOCH) == ("uuid-1", 5)
    scene.tick(after_ms=50)
    scene.beat(6)
    scene.tick(after_ms=50)
    assert refused(ErrorCode.UNKNOWN_MEMBER_ID) == ("uuid-1", 6)
    scene.tick(after_ms=4_900)
    scene.sent = [send for send in scene.sent if send.purpose != "commits.committed"]  # it goes unanswered
    scene.tick(after_ms=100)
    scene.beat(0, error=ErrorCode.FENCED_MEMBER_EPOCH)
    scene.core.commits.committed([ORDERS_1], scene.now_ms, scene.now_ms + 60_000)
    _, request = scene.take("commits.committed")
    assert (request.groups[0].member_id, request.groups[0].member_epoch) == (None, -1), "nobody in particular"
