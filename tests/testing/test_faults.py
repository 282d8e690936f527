"""Faults by API, at the level of the wire: what a client of any library meets."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.testing import Kafka
from kohort.testing.waiting import wait_until
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records.batch import encode_batch
from kohort.wire.records.payload import BatchRecord


def commit(group: str = "g", topic: str = "orders", offset: int = 1) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(0, offset, -1, "")
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=[part])])


def code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def batch(*values: bytes) -> bytearray:
    return encode_batch([BatchRecord(number, 1_000, None, value, []) for number, value in enumerate(values)])


def produce(*values: bytes, acks: int = -1) -> ProduceRequest:
    part = PartitionProduceData(0, batch(*values))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData("orders", partition_data=[part])]
    )


@pytest.fixture
def broker(kafka: Kafka) -> Any:
    """A connection to a broker that has the topic `orders` and a coordinator."""
    kafka.create_topic("orders")
    with BlockingConnection(kafka.bootstrap_servers, client_id="app", timeout_s=60) as connection:
        connection.call(FindCoordinatorRequest("g"), 3)
        yield connection


def test_commits_take_the_short_way_and_are_seen_all_the_same(kafka: Kafka, broker: Any) -> None:
    """As in production, a commit like the one before it is written without an event, which would take a token."""

    def tokens() -> int:
        return kafka.on_broker(lambda node: sum(shard.next_token for shard in node.groups.runtime.shards))

    codes = [code_of(broker.call(commit(offset=n), 8)) for n in range(1, 4)]
    before = tokens()
    codes += [code_of(broker.call(commit(offset=n), 8)) for n in range(4, 7)]
    assert tokens() == before
    kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR")
    codes.append(code_of(broker.call(commit(offset=7), 8)))
    assert codes == [ErrorCode.NONE] * 6 + [ErrorCode.NOT_COORDINATOR]
    seen = [request.message for request in kafka.requests("OffsetCommit")]
    assert [message.topics[0].partitions[0].committed_offset for message in seen] == [1, 2, 3, 4, 5, 6, 7]
    assert kafka.committed("g", "orders") == {0: 6}


def test_a_fault_happens_so_many_times_and_nothing_is_done_meanwhile(kafka: Kafka, broker: Any) -> None:
    fault = kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=3)
    codes = [code_of(broker.call(commit(offset=n), 8)) for n in range(1, 4)]
    assert codes == [ErrorCode.NOT_COORDINATOR] * 3
    assert kafka.committed("g", "orders") == {}
    assert code_of(broker.call(commit(offset=4), 8)) is ErrorCode.NONE
    assert kafka.committed("g", "orders") == {0: 4}
    assert fault.hits == 3


def test_an_error_is_named_by_name_number_or_code(kafka: Kafka, broker: Any) -> None:
    for named in ("REBALANCE_IN_PROGRESS", 27, ErrorCode.REBALANCE_IN_PROGRESS):
        kafka.fail("OffsetCommit", with_error=named)
        assert code_of(broker.call(commit(), 8)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_fault_without_end_is_removed(kafka: Kafka, broker: Any) -> None:
    fault = kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=None)
    for _ in range(5):
        assert code_of(broker.call(commit(), 8)) is ErrorCode.NOT_COORDINATOR
    fault.remove()
    assert code_of(broker.call(commit(), 8)) is ErrorCode.NONE
    assert fault.hits == 5


def test_a_with_removes_its_fault(kafka: Kafka, broker: Any) -> None:
    with kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=None) as fault:
        assert code_of(broker.call(commit(), 8)) is ErrorCode.NOT_COORDINATOR
    assert code_of(broker.call(commit(), 8)) is ErrorCode.NONE
    assert fault.hits == 1


def test_all_faults_are_removed_at_once(kafka: Kafka, broker: Any) -> None:
    kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=None)
    kafka.disconnect("Heartbeat", times=None)
    kafka.remove_faults()
    assert code_of(broker.call(commit(), 8)) is ErrorCode.NONE
    assert broker.call(HeartbeatRequest("g", 1, "m"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("only", "passes"),
    [
        ({"group": "g"}, commit(group="h")),
        ({"topic": "orders"}, commit(topic="payments")),
    ],
)
def test_a_fault_is_for_one_group_or_topic(
    kafka: Kafka, broker: Any, only: dict[str, str], passes: OffsetCommitRequest
) -> None:
    kafka.create_topic("payments")
    fault = kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=None, **only)  # type: ignore[arg-type]
    assert code_of(broker.call(passes, 8)) is ErrorCode.NONE
    assert code_of(broker.call(commit(), 8)) is ErrorCode.NOT_COORDINATOR
    assert fault.hits == 1


def test_a_fault_is_for_one_client(kafka: Kafka, broker: Any) -> None:
    kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=None, client_id="app")
    with BlockingConnection(kafka.bootstrap_servers, client_id="other") as other:
        assert code_of(other.call(commit(), 8)) is ErrorCode.NONE
    assert code_of(broker.call(commit(), 8)) is ErrorCode.NOT_COORDINATOR


def test_topics_are_known_by_their_ids_too(kafka: Kafka, broker: Any) -> None:
    topic_id = broker.call(MetadataRequest(None), 12).topics[0].topic_id
    request = commit(topic="")
    request.topics[0].topic_id = topic_id
    kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", topic="orders")
    assert code_of(broker.call(request, 10)) is ErrorCode.NOT_COORDINATOR


def test_a_delayed_request_is_carried_out_later(kafka: Kafka, broker: Any) -> None:
    fault = kafka.delay("OffsetCommit", ms=150, times=1)
    began = time.perf_counter()
    assert code_of(broker.call(commit(offset=7), 8)) is ErrorCode.NONE
    assert time.perf_counter() - began >= 0.14
    assert kafka.committed("g", "orders") == {0: 7}
    assert fault.hits == 1


def test_a_delayed_produce_keeps_its_records(kafka: Kafka, broker: Any) -> None:
    """Records are views of a buffer that the next request of any connection overwrites."""
    kafka.delay("Produce", ms=100, times=1)
    broker.send(produce(b"late"), 9)
    with BlockingConnection(kafka.bootstrap_servers) as other:
        for _ in range(20):
            other.call(produce(b"x" * 100), 9)
    assert broker.receive().responses[0].partition_responses[0].error_code == 0
    assert Counter(record.value for record in kafka.consume_all("orders")) == {b"x" * 100: 20, b"late": 1}


def test_a_delay_of_a_call_that_waits_for_the_disk(kafka: Kafka, broker: Any) -> None:
    kafka.delay("CreateTopics", ms=100, times=1)
    began = time.perf_counter()
    answer = broker.call(CreateTopicsRequest([CreatableTopic("new", 1, 1)]), 7)
    assert answer.topics[0].error_code == 0
    assert time.perf_counter() - began >= 0.09


def test_a_client_that_leaves_during_a_delay_is_forgotten(kafka: Kafka, broker: Any) -> None:
    server = kafka._broker_thread().server
    for ms in (50, 500, 5_000, 20_000):  # until it is gone before that time is over, on a slow machine too
        began = time.monotonic()
        with (
            kafka.delay("OffsetCommit", ms=ms) as fault,
            BlockingConnection(kafka.bootstrap_servers) as leaver,
        ):
            leaver.send(commit(f"g{ms}", offset=9), 8)
            fault.wait()
        wait_until(lambda: server.connection_count == 1, 60, lambda: "the broker has not noticed")
        if time.monotonic() - began < ms / 1000:
            break
    else:
        pytest.fail("the machine is too slow for this test")
    kafka.delay("Heartbeat", ms=ms + 100)
    broker.call(HeartbeatRequest("g", 1, "m"), 4)  # longer than the other's delay
    assert kafka.committed(f"g{ms}", "orders") == {}


def test_delays_add_up_with_an_error(kafka: Kafka, broker: Any) -> None:
    kafka.delay("OffsetCommit", ms=60, times=1)
    kafka.delay("OffsetCommit", ms=60, times=1)
    kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR")
    began = time.perf_counter()
    assert code_of(broker.call(commit(), 8)) is ErrorCode.NOT_COORDINATOR
    assert time.perf_counter() - began >= 0.11


@pytest.mark.parametrize("after_handling", [False, True])
def test_a_disconnect_loses_the_answer_and_perhaps_the_work(
    kafka: Kafka, broker: Any, after_handling: bool
) -> None:
    fault = kafka.disconnect("OffsetCommit", after_handling=after_handling)
    with pytest.raises(ConnectionError):
        broker.call(commit(offset=5), 8)
    assert fault.hits == 1
    assert kafka.committed("g", "orders") == ({0: 5} if after_handling else {})
    with BlockingConnection(kafka.bootstrap_servers) as again:
        assert code_of(again.call(commit(), 8)) is ErrorCode.NONE


@pytest.mark.parametrize("after_handling", [False, True])
def test_a_disconnect_in_a_call_that_waits_for_the_disk(
    kafka: Kafka, broker: Any, after_handling: bool
) -> None:
    kafka.disconnect("CreateTopics", after_handling=after_handling)
    with pytest.raises(ConnectionError):
        broker.call(CreateTopicsRequest([CreatableTopic("new", 1, 1)]), 7)
    names = kafka.on_broker(lambda node: set(node.store.topics))
    assert ("new" in names) is after_handling


def test_what_was_answered_before_a_disconnect_still_arrives(kafka: Kafka, broker: Any) -> None:
    kafka.disconnect("OffsetCommit")
    for request, version in ((produce(b"one"), 9), (commit(), 8), (produce(b"two"), 9)):
        broker.send(request, version)
    assert broker.receive().responses[0].partition_responses[0].base_offset == 0
    with pytest.raises(ConnectionError):
        broker.receive()
    assert [record.value for record in kafka.consume_all("orders")] == [b"one"]


def test_a_failed_produce_without_acks_closes_the_connection(kafka: Kafka, broker: Any) -> None:
    kafka.fail("Produce", with_error="NOT_LEADER_OR_FOLLOWER")
    broker.send(produce(b"one", acks=0), 9, answered=False)
    broker.send(MetadataRequest(None), 12)
    with pytest.raises(ConnectionError):
        broker.receive()
    assert kafka.consume_all("orders") == []


def test_requests_are_remembered_as_they_came(kafka: Kafka, broker: Any) -> None:
    kafka.clear()
    broker.call(produce(b"one"), 9)
    broker.call(commit(offset=3), 8)
    kafka.produce("orders", ["of the kit itself, which is not a client"])
    assert [(r.api, r.version, r.client_id) for r in kafka.requests()] == [
        ("Produce", 9, "app"),
        ("OffsetCommit", 8, "app"),
    ]
    (sent,) = kafka.requests("Produce")
    assert bytes(sent.message.topic_data[0].partition_data[0].records) == batch(b"one")
    (committed,) = kafka.requests("offset_commit")
    assert committed.message == commit(offset=3)
    kafka.clear()
    assert kafka.requests() == []


def test_memory_for_remembered_records_is_bounded(kafka: Kafka, broker: Any) -> None:
    kafka.clear()
    value = b"x" * 900_000
    for _ in range(80):
        broker.call(produce(value), 9)
    kept = len(kafka.requests("Produce"))
    assert 70 <= kept < 80  # 64 MiB


def test_the_kits_own_calls_do_not_meet_faults(kafka: Kafka) -> None:
    kafka.fail("Produce", with_error="NOT_LEADER_OR_FOLLOWER", times=None)
    kafka.fail("CreateTopics", with_error="POLICY_VIOLATION", times=None)
    kafka.fail("Metadata", with_error="LEADER_NOT_AVAILABLE", times=None)
    kafka.create_topic("orders")
    assert kafka.produce("orders", ["one"]) == [0]
    assert kafka.produce("made-by-producing", ["one"]) == [0]


def test_faults_outlive_a_restart(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.fail("Metadata", with_error="LEADER_NOT_AVAILABLE")
    kafka.restart()
    with BlockingConnection(kafka.bootstrap_servers) as again:
        assert again.call(MetadataRequest(None), 12).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_wrong_names_are_told_with_the_right_ones(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match=r"no API 'OffsetComit'.*did you mean OffsetCommit"):
        kafka.fail("OffsetComit", with_error="NOT_COORDINATOR")
    with pytest.raises(ValueError, match=r"no error 'NOT_CORDINATOR'.*did you mean NOT_COORDINATOR"):
        kafka.fail("OffsetCommit", with_error="NOT_CORDINATOR")
    with pytest.raises(ValueError, match="no error with the code 9999"):
        kafka.fail("OffsetCommit", with_error=9999)
    with pytest.raises(ValueError, match="NONE is not an error"):
        kafka.fail("OffsetCommit", with_error="NONE")
    with pytest.raises(ValueError, match="at least once"):
        kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=0)
    with pytest.raises(ValueError, match="longer than 0 ms"):
        kafka.delay("Fetch", ms=0)
    with pytest.raises(ValueError, match="did you mean Fetch"):
        kafka.requests("Fetsh")


def test_waiting_for_a_fault_that_does_not_come_ends(kafka: Kafka) -> None:
    fault = kafka.disconnect("JoinGroup")
    with pytest.raises(TimeoutError, match=r"JoinGroup.*has not happened 1 times"):
        fault.wait(timeout=0.05)
