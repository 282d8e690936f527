"""InitProducerId and DescribeProducers."""

from __future__ import annotations

import pytest

from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.handlers import NOW_MS, Node


@pytest.fixture
def node():
    with Node() as started:
        yield started


def init(node, *, transactional_id: str | None = None, known: tuple[int, int] = (-1, -1), version: int = 5):
    answer = node.call(InitProducerIdRequest(transactional_id, 60_000, *known), version)
    return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_each_producer_gets_an_id_of_its_own(node, version):
    answers = [init(node, version=version) for _ in range(3)]
    assert {(code, epoch) for code, _, epoch in answers} == {(ErrorCode.NONE, 0)}
    assert len({producer_id for _, producer_id, _ in answers}) == 3


def test_ids_are_not_given_again_after_a_crash(tmp_path):
    given, directory = set(), tmp_path / "node"
    for _ in range(3):
        node = Node(directory)
        given |= {init(node)[1], init(node)[1]}
        directory = node.crash()
    assert len(given) == 6


def test_a_producer_that_has_an_id_gets_a_new_one(node):
    code, producer_id, epoch = init(node, known=(4711, 3))
    assert (code, epoch) == (ErrorCode.NONE, 0)
    assert producer_id != 4711


@pytest.mark.parametrize("known", [(4711, -1), (-1, 3)])
def test_an_id_without_an_epoch_is_refused(node, known):
    assert init(node, known=known) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("", ErrorCode.INVALID_REQUEST), ("payments", ErrorCode.NOT_COORDINATOR)],
)
def test_a_transactional_id_before_somebody_looked_for_its_coordinator(node, transactional_id, code):
    assert init(node, transactional_id=transactional_id) == (code, -1, -1)


def describe(node, topic: str, *partitions: int):
    answer = node.call(DescribeProducersRequest([TopicRequest(topic, list(partitions))]))
    assert [found.name for found in answer.topics] == [topic]
    return answer.topics[0].partitions


def test_active_producers_of_a_partition(node):
    node.create("t", 2)
    node.append("t", NOW_MS, NOW_MS + 1, producer_id=7, producer_epoch=2, base_sequence=0)
    node.append("t", NOW_MS)
    active, quiet = describe(node, "t", 0, 1)
    (producer,) = active.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 1)
    assert producer.last_timestamp == NOW_MS + 1
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert (quiet.error_code, quiet.active_producers) == (0, [])


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b d", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_producers_of_what_is_not_there(node, topic, index, code):
    node.create("t")
    (found,) = describe(node, topic, index)
    assert (found.partition_index, found.error_code, found.active_producers) == (index, code, [])
