"""spec/consumer.md, "Committing": `committed()` for any partitions; offset fetch asks for stable offsets."""

from __future__ import annotations

import pytest

from kohort.client.core.effects import Lane
from kohort.client.errors import TimedOut
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from tests.client.offsets import COORDINATOR, ORDERS_0, ORDERS_1, World, at


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
