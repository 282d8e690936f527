"""The producer's sender: order, sequence numbers, retries, expiry, splitting. In virtual time."""

from __future__ import annotations

import pytest

from kohort.client.core.cluster import Cluster, PartitionInfo, TopicInfo
from kohort.client.core.effects import FailureKind, Send
from kohort.client.errors import AuthenticationFailed, AuthorizationFailed, ClosedClient, TimedOut
from kohort.client.produce.batch import BatchMemberFailed
from kohort.client.types import RecordMetadata
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.init_producer_id import InitProducerIdResponse
from kohort.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceData,
    ProduceResponse,
)
from kohort.wire.records.batch import iter_records, read_header
from tests.client.producing import TOPIC_ID, Core, cluster, numbers, outcome, parts, produced, request, values


def started(**settings: object) -> Core:
    core = Core(**settings)  # type: ignore[arg-type]
    core.start()
    return core


def known(**settings: object) -> Core:
    """The broker has taken a first record, with sequence 0, so that it knows the producer."""
    core = started(**settings)
    core.send(b"0")
    core.written(core.tick()[0])
    return core


def five_in_flight(core: Core) -> list[Send]:
    sends: list[Send] = []
    for number in range(1, 6):
        core.send(b"%d" % number)
        sends += core.tick()
    assert [numbers(send)[2] for send in sends] == [1, 2, 3, 4, 5]
    return sends


def test_nothing_follows_the_first_batch_before_it_is_acknowledged() -> None:
    """A broker that does not know the producer takes any number: what the first one is split into would be refused."""
    core = started()
    core.send(b"a" * 100)
    core.send(b"b" * 100)
    (first,) = core.tick()
    core.send(b"c")
    assert core.tick() == []
    core.reply(first, ErrorCode.MESSAGE_TOO_LARGE)
    (part,) = core.tick()
    assert numbers(part)[2] == 0
    core.written(part)
    assert [numbers(send)[2] for send in core.tick()] == [1, 2]


def test_an_idempotent_producer_sends_nothing_before_it_has_an_id() -> None:
    core = Core()
    core.send(b"a")
    (ask,) = core.tick()
    assert ask.purpose == "sender.init_producer_id"
    core.lose(ask)
    assert core.tick() == []
    (again,) = core.tick(after_ms=200)
    core.answer(again, InitProducerIdResponse(producer_id=9, producer_epoch=3), 5)
    (send,) = core.tick()
    assert numbers(send) == (9, 3, 0)


def test_a_written_record_tells_its_offset_and_time() -> None:
    core = started()
    told: list[object] = []
    placed = [core.send(b"a", key=b"k"), core.send(None, callback=lambda *said: told.append(said))]
    (send,) = core.tick()
    core.written(send, offset=40)
    assert outcome(placed[0]) == RecordMetadata("orders", 0, 40, 77, 1, 1)
    assert outcome(placed[1]) == RecordMetadata("orders", 0, 41, 77, -1, -1)
    assert core.take_completed() == 1
    assert told == [(outcome(placed[1]), None)]
    assert core.sender.is_idle
    assert core.accumulator.used_bytes == 0


def test_append_time_of_the_broker_is_the_time_of_its_records() -> None:
    core = started()
    placed = core.send(b"a")
    core.written(core.tick()[0], 3, log_append_time_ms=123)
    assert outcome(placed).timestamp == 123


def test_records_carry_key_value_headers_and_time() -> None:
    core = started(compression_type="lz4")
    core.send(b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1234)
    core.send(None, key=None, timestamp=1233)
    (send,) = core.tick()
    (data,) = parts(send)
    first, second = iter_records(data.records)  # type: ignore[arg-type]
    assert (first.key, first.value, first.headers, first.timestamp) == (
        b"k",
        b"v",
        [("h", b"1"), ("n", None)],
        1234,
    )
    assert (second.key, second.value, second.headers, second.timestamp) == (None, None, [], 1233)


def test_sequence_numbers_go_on_with_the_records_of_each_partition() -> None:
    core = started(partitions=2, linger_ms=1000)
    core.send(b"a", 0)
    core.send(b"b", 0)
    core.send(b"c", 1)
    core.accumulator.flush()
    (send,) = core.tick()
    core.written(send)
    core.send(b"d", 0)
    core.send(b"e", 1)
    core.accumulator.flush()
    (second,) = core.tick()
    firsts = [produced_numbers[2] for produced_numbers in map(_numbers_of, parts(second))]
    assert firsts == [2, 1]


def _numbers_of(data: PartitionProduceData) -> tuple[int, int, int]:
    assert isinstance(data.records, bytes)
    header = read_header(data.records)
    return header.producer_id, header.producer_epoch, header.base_sequence


def test_batches_to_one_node_share_a_request_and_two_nodes_get_two() -> None:
    core = started(partitions=4, nodes=2, linger_ms=5)
    for partition in range(4):
        core.send(b"x", partition)
    assert core.tick() == []
    assert core.sender.next_deadline_ms() == core.now_ms + 5
    one, two = core.tick(after_ms=5)
    assert {one.node_id: [p.index for p in parts(one)], two.node_id: [p.index for p in parts(two)]} == {
        1: [0, 2],
        2: [1, 3],
    }


def test_a_request_does_not_outgrow_max_request_size() -> None:
    core = started(partitions=4, max_request_size=3000, linger_ms=5)
    for partition in range(4):
        core.send(b"x" * 1000, partition)
    sends = core.tick(after_ms=5)
    assert [len(parts(send)) for send in sends] == [2, 2]


def test_no_more_requests_than_max_in_flight_are_under_way_to_a_node() -> None:
    core = known(max_in_flight_requests_per_connection=2)
    core.send(b"a")
    core.tick()
    core.send(b"b")
    core.tick()
    core.send(b"c")
    assert core.tick() == []
    core.written(core.under_way[0])
    (send,) = core.tick()
    assert values(send) == [b"c"]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_order_is_kept_when_five_requests_in_flight_are_lost(order: list[int]) -> None:
    core = known()
    sends = five_in_flight(core)
    for index in order:
        core.lose(sends[index])
    core.send(b"6")
    for expected in range(1, 7):
        (send,) = core.tick(after_ms=2000)  # one at a time, the next only after the answer
        assert values(send) == [b"%d" % expected]
        assert numbers(send) == (7, 0, expected)
        assert core.tick() == []
        core.written(send, offset=expected)
    assert core.sender.is_idle


def test_order_is_kept_when_the_first_of_five_fails_and_the_others_come_too_early() -> None:
    core = known()
    sends = five_in_flight(core)
    core.reply(sends[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    for send in sends[1:]:
        core.reply(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for expected in range(1, 6):
        (send,) = core.tick(after_ms=2000)
        assert numbers(send) == (7, 0, expected)
        core.written(send, offset=expected)
    assert core.sender.is_idle


def test_a_batch_that_was_written_before_its_answer_was_lost_is_sent_again_with_the_same_numbers() -> None:
    core = started()
    placed = core.send(b"a")
    (send,) = core.tick()
    core.lose(send, FailureKind.TIMED_OUT)
    (again,) = core.tick(after_ms=200)
    assert parts(again) == parts(send)
    core.reply(again, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert outcome(placed) == RecordMetadata("orders", 0, -1, 77, -1, 1)


def test_retries_back_off_and_go_at_once_to_a_new_leader() -> None:
    core = Core(partitions=1, nodes=2)
    core.start()
    core.send(b"a")
    (send,) = core.tick()
    node = NodeEndpoint(2, "127.0.0.1", 9093)
    core.reply(send, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(2, 6), nodes=[node])
    assert core.metadata.is_due
    (again,) = core.tick()
    assert again.node_id == 2
    core.reply(again, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert core.tick() == []
    due_ms = core.sender.next_deadline_ms()
    assert due_ms is not None
    assert core.tick(after_ms=due_ms - core.now_ms - 1) == []
    assert len(core.tick(after_ms=1)) == 1


def test_an_older_leader_epoch_in_an_answer_changes_nothing() -> None:
    core = Core(nodes=2)
    core.start()
    core.send(b"a")
    core.reply(core.tick()[0], ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(2, 4))
    assert core.tick() == []
    (again,) = core.tick(after_ms=200)
    assert again.node_id == 1


def test_a_partition_without_a_leader_waits_and_asks_for_metadata() -> None:
    core = started()
    known = core.metadata.cluster
    core.send(b"a", 0)
    core.metadata.cluster = Cluster("c", 1, known.nodes, {"orders": _leaderless()}, {}, 9)
    core.metadata._due = False
    assert core.tick() == []
    assert core.metadata.is_due
    core.metadata.cluster = cluster(version=10)
    assert len(core.tick()) == 1


def _leaderless() -> TopicInfo:
    return TopicInfo("orders", TOPIC_ID, {0: PartitionInfo()})


def test_a_broker_that_forgot_the_producer_gets_the_batches_with_a_new_epoch_from_0() -> None:
    core = started()
    core.send(b"a")
    core.written(core.tick()[0], 10)
    sends = []
    for value in (b"b", b"c"):
        core.send(value)
        sends += core.tick()
    for send in sends:
        core.reply(send, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=0)
    (again,) = core.tick(after_ms=200)
    assert (values(again), numbers(again)) == ([b"b"], (7, 1, 0))
    core.written(again, 11)
    (again,) = core.tick(after_ms=200)
    assert (values(again), numbers(again)) == ([b"c"], (7, 1, 1))


def test_a_gap_in_the_sequence_raises_the_epoch_and_goes_on() -> None:
    core = started()
    core.send(b"a")
    (send,) = core.tick()
    core.reply(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (again,) = core.tick(after_ms=200)
    assert numbers(again) == (7, 1, 0)
    core.written(again)
    assert core.sender.is_idle


def test_other_partitions_take_the_new_epoch_when_their_batches_are_done() -> None:
    core = started(partitions=2)
    core.send(b"a", 0)
    (first,) = core.tick()
    core.send(b"b", 1)
    (other,) = core.tick()
    core.reply(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.send(b"c", 1)
    (again,) = core.tick(after_ms=200)
    assert numbers(again) == (7, 1, 0)  # partition 0; partition 1 still has one of epoch 0 under way
    core.written(other)
    (third,) = core.tick()
    assert (values(third), numbers(third)) == ([b"c"], (7, 1, 0))


def test_a_refused_batch_fails_alone_and_the_next_ones_are_numbered_anew() -> None:
    core = known()
    bad = core.send(b"bad")
    (first,) = core.tick()
    good = core.send(b"good")
    (second,) = core.tick()
    core.reply(first, ErrorCode.INVALID_TIMESTAMP, error_message="too old")
    core.reply(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(outcome(bad), KafkaError)
    assert "message.timestamp.before.max.ms" in str(outcome(bad))
    assert "too old" in str(outcome(bad))
    (again,) = core.tick(after_ms=200)
    assert (values(again), numbers(again)) == ([b"good"], (7, 1, 0))
    core.written(again, 0)
    assert outcome(good).offset == 0


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    core = Core()
    core.start(epoch=0x7FFF)
    core.send(b"a")
    core.reply(core.tick()[0], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (ask,) = core.tick(after_ms=200)
    assert ask.purpose == "sender.init_producer_id"
    core.answer(ask, InitProducerIdResponse(producer_id=8, producer_epoch=0), 5)
    assert numbers(core.tick(after_ms=200)[0]) == (8, 0, 0)


def test_a_batch_that_was_never_sent_expires_and_says_why() -> None:
    core = Core(delivery_timeout_ms=40_000)
    placed = core.send(b"a")
    core.tick()
    assert core.sender.next_deadline_ms() == core.now_ms + 40_000
    core.tick(after_ms=40_000)
    error = outcome(placed)
    assert isinstance(error, TimedOut)
    assert "delivery.timeout.ms is 40000" in str(error)
    assert "no broker has given a producer id" in str(error)
    assert core.accumulator.used_bytes == 0


def test_after_a_batch_expired_unanswered_nothing_new_goes_out_until_its_fate_is_known() -> None:
    core = known(delivery_timeout_ms=40_000)
    first = core.send(b"a")
    (lost,) = core.tick()
    core.now_ms += 30_000
    core.send(b"b")
    (second,) = core.tick()
    core.tick(after_ms=10_000)
    assert isinstance(outcome(first), TimedOut)
    core.send(b"c")
    assert core.tick() == []
    core.written(second, 2)  # with sequence 2, so the first was written as well
    (third,) = core.tick()
    assert numbers(third) == (7, 0, 3)
    core.written(lost, 1)
    assert isinstance(outcome(first), TimedOut)


def test_an_expired_batch_that_was_perhaps_not_written_costs_an_epoch() -> None:
    core = started(delivery_timeout_ms=40_000)
    core.send(b"a")
    (lost,) = core.tick()
    core.tick(after_ms=40_000)
    core.lose(lost)
    core.send(b"b")
    (send,) = core.tick()
    assert numbers(send) == (7, 1, 0)


def test_a_batch_too_large_for_the_broker_is_split_and_keeps_order_numbers_and_deliveries() -> None:
    core = started(batch_size=100_000, linger_ms=5)
    told: list[int] = []
    placed = [
        core.send(b"%03d" % n * 300, callback=lambda said, error, n=n: told.append(n)) for n in range(8)
    ]
    (send,) = core.tick(after_ms=5)
    core.reply(send, ErrorCode.MESSAGE_TOO_LARGE)
    offset, sizes = 0, []
    while not core.sender.is_idle:
        (part,) = core.tick()
        header, got = produced(part)
        assert header.base_sequence == offset
        if len(got) > 2:
            core.reply(part, ErrorCode.MESSAGE_TOO_LARGE)
            continue
        core.written(part, offset)
        offset += len(got)
        sizes.append(len(got))
    core.take_completed()
    assert sum(sizes) == 8
    assert max(sizes) <= 2
    assert [outcome(p).offset for p in placed] == list(range(8))
    assert told == list(range(8))
    assert core.accumulator.used_bytes == 0


def test_a_single_record_that_is_too_large_names_sizes_and_settings() -> None:
    core = started()
    placed = core.send(b"x" * 5000)
    core.reply(core.tick()[0], ErrorCode.MESSAGE_TOO_LARGE)
    error = outcome(placed)
    assert isinstance(error, KafkaError)
    for word in ("50", "max.message.bytes", "message.max.bytes", "max.request.size"):
        assert word in str(error)


def test_bad_records_of_a_batch_are_told_apart_from_good_ones() -> None:
    core = started(linger_ms=5)
    placed = [core.send(b"%d" % n) for n in range(3)]
    (send,) = core.tick(after_ms=5)
    bad = [BatchIndexAndErrorMessage(1, "a compacted topic needs keys")]
    core.reply(send, ErrorCode.INVALID_RECORD, record_errors=bad)
    assert "needs keys" in str(outcome(placed[1]))
    assert isinstance(outcome(placed[0]), BatchMemberFailed)
    assert isinstance(outcome(placed[2]), BatchMemberFailed)


def test_without_idempotence_batches_carry_no_numbers_and_one_in_flight_keeps_the_order() -> None:
    core = Core(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    core.send(b"a")
    (first,) = core.tick()
    core.send(b"b")
    assert numbers(first) == (-1, -1, -1)
    assert core.tick() == []
    core.lose(first)
    (again,) = core.tick(after_ms=200)
    assert values(again) == [b"a"]
    core.written(again)
    assert values(core.tick()[0]) == [b"b"]


def test_retries_0_gives_up_at_the_first_error() -> None:
    core = Core(enable_idempotence=False, retries=0)
    placed = core.send(b"a")
    core.lose(core.tick()[0])
    assert isinstance(outcome(placed), KafkaError)
    assert outcome(placed).code is ErrorCode.NETWORK_EXCEPTION


def test_acks_0_is_done_when_the_bytes_are_handed_over() -> None:
    core = Core(enable_idempotence=False, acks=0)
    placed = core.send(b"a")
    (send,) = core.tick()
    assert not send.answered
    assert request(send).acks == 0
    core.answer(send, None)
    assert outcome(placed).offset == -1


def test_topic_ids_are_used_from_version_13_on_and_names_without_an_id() -> None:
    core = started()
    placed = core.send(b"a")
    (send,) = core.tick()
    assert send.max_version is None
    core.written(send, 4, version=13)
    assert outcome(placed).offset == 4
    nameless = Core()
    nameless.metadata.cluster = cluster(topic_id=bytes(16))
    nameless.start()
    nameless.send(b"a")
    (send,) = nameless.tick()
    assert send.max_version == 12


def test_authorization_and_authentication_fail_the_records() -> None:
    core = started()
    refused, unknown = core.send(b"a"), None
    core.reply(core.tick()[0], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(outcome(refused), AuthorizationFailed)
    unknown = core.send(b"b")
    core.lose(core.tick()[0], FailureKind.AUTHENTICATION)
    assert isinstance(outcome(unknown), AuthenticationFailed)


def test_a_fatal_error_ends_everything() -> None:
    core = started()
    first = core.send(b"a")
    (send,) = core.tick()
    second = core.send(b"b")
    core.lose(send, FailureKind.UNSUPPORTED_VERSION)
    core.tick()
    assert core.sender.fatal is outcome(first)
    assert outcome(second) is outcome(first)


def test_no_id_for_want_of_rights_fails_what_waits() -> None:
    core = Core()
    placed = core.send(b"a")
    (ask,) = core.tick()
    core.answer(ask, InitProducerIdResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)), 5)
    assert isinstance(outcome(placed), AuthorizationFailed)
    assert "enable.idempotence=false" in str(outcome(placed))


def test_closing_at_once_fails_what_is_not_written() -> None:
    core = started()
    sent = core.send(b"a")
    (send,) = core.tick()
    waiting = core.send(b"b")
    core.accumulator.shut()
    core.sender.close_now()
    assert isinstance(outcome(sent), ClosedClient)
    assert isinstance(outcome(waiting), ClosedClient)
    core.written(send)
    assert core.sender.is_idle


def test_an_answer_that_leaves_a_partition_out_is_an_error() -> None:
    core = started()
    placed = core.send(b"a")
    core.answer(core.tick()[0], ProduceResponse())
    assert outcome(placed).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_sequence_numbers_wrap() -> None:
    core = started()
    core.send(b"a")
    core.written(core.tick()[0])
    queue = core.accumulator.topics["orders"].queues[0]
    queue.next_sequence, queue.last_acked_sequence = 0x7FFF_FFFF, 0x7FFF_FFFE
    for expected in (0x7FFF_FFFF, 0, 1):
        core.send(b"b")
        (send,) = core.tick()
        assert numbers(send)[2] == expected
        core.written(send)
    assert queue.last_acked_sequence == 1
