"""Produce as Kafka does it, over real bytes."""

from __future__ import annotations

import struct

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records.batch import encode_batch, iter_batches, read_header
from kohort.wire.records.compression import Compression
from kohort.wire.records.payload import BatchRecord
from tests.broker.peer import batch_of, create_topic, fetch, produce, produce_request, records_of, values_in

NOW = 1_700_000_000_000


@pytest.fixture(scope="module", params=["memory", "os", "disk"])
def broker(request, tmp_path_factory):
    directory = None if request.param == "memory" else tmp_path_factory.mktemp("data")
    with running(directory, durability=request.param) as started:
        yield started


@pytest.fixture
def client(broker):
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def topic(client, request):
    name = f"t{abs(hash(request.node.name))}"
    create_topic(client, name, partitions=2)
    return name


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_answers_with_the_offset(client, topic, version):
    request = produce_request(topic, batch_of(b"a", b"b"))
    if version >= 13:
        request.topic_data[0].topic_id = topic_id_of(client, topic)
    answer = client.call(request, version=version).responses[0]
    outcome = answer.partition_responses[0]
    assert (outcome.error_code, outcome.base_offset, outcome.log_append_time_ms) == (0, 0, -1)
    assert produce(client, topic, batch_of(b"c")).base_offset == 2


def topic_id_of(client: BlockingConnection, name: str) -> bytes:
    return next(t.topic_id for t in client.call(MetadataRequest(None), version=12).topics if t.name == name)


def test_a_topic_id_that_is_not_known(client):
    data = TopicProduceData("", b"\1" * 16, [PartitionProduceData(0, batch_of(b"x"))])
    outcome = (
        client.call(ProduceRequest(None, -1, 1000, [data]), version=13).responses[0].partition_responses[0]
    )
    assert outcome.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("name", "partition"), [("no-such-topic", 0), (None, 2), (None, -1)])
def test_unknown_topics_and_partitions(client, topic, name, partition):
    outcome = produce(client, name or topic, batch_of(b"x"), partition)
    assert outcome.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome.base_offset == -1


def test_one_bad_partition_does_not_harm_the_others_of_the_request(client, topic):
    good, bad = PartitionProduceData(0, batch_of(b"x")), PartitionProduceData(9, batch_of(b"x"))
    answer = client.call(
        ProduceRequest(None, -1, 1000, [TopicProduceData(topic, partition_data=[bad, good])]), version=9
    )
    codes = [part.error_code for part in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_acks_0_gets_no_answer_and_the_record_is_there(client, topic):
    client.send(produce_request(topic, batch_of(b"quiet"), acks=0), version=7, answered=False)
    assert produce(client, topic, batch_of(b"loud")).base_offset == 1
    assert values_in(fetch(client, topic)) == [b"quiet", b"loud"]


def test_acks_0_that_fails_closes_the_connection_so_that_the_client_notices(broker):
    with BlockingConnection(broker.bootstrap_servers) as client:
        client.send(produce_request("no-such-topic", batch_of(b"x"), acks=0), version=7, answered=False)
        with pytest.raises((ConnectionError, struct.error)):
            client.receive_frame()


def test_acks_1_is_answered_when_written(client, topic):
    outcome = client.call(produce_request(topic, batch_of(b"x"), acks=1), version=7).responses[0]
    assert outcome.partition_responses[0].error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(client, topic, acks):
    outcome = client.call(produce_request(topic, batch_of(b"x"), acks=acks), version=7).responses[0]
    assert outcome.partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_batch_above_max_message_bytes_is_too_large(client):
    create_topic(client, "small", max_message_bytes=1000)
    assert produce(client, "small", batch_of(b"x" * 900)).error_code == 0
    assert produce(client, "small", batch_of(b"x" * 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_refuses_records_without_a_key_and_says_which(client):
    create_topic(client, "compacted", cleanup_policy="compact")
    keyless = [
        BatchRecord(0, NOW, b"k", b"1", []),
        BatchRecord(1, NOW, None, b"2", []),
        BatchRecord(2, NOW, None, b"3", []),
    ]
    outcome = produce(client, "compacted", bytes(encode_batch(keyless)))
    assert outcome.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in outcome.record_errors] == [1, 2]
    assert produce(client, "compacted", batch_of(b"x", key=b"k")).base_offset == 0


@pytest.mark.parametrize("damage", ["crc", "short", "two batches", "empty", "null", "magic 1", "garbage"])
def test_damaged_batches_are_refused_and_nothing_is_appended(client, topic, damage):
    good = batch_of(b"x")
    batch, code = {
        "crc": (good[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        "short": (good[:40], None),
        "two batches": (good + good, ErrorCode.INVALID_RECORD),
        "empty": (b"", ErrorCode.INVALID_RECORD),
        "null": (None, ErrorCode.INVALID_RECORD),
        "magic 1": (good[:16] + b"\1" + good[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        "garbage": (b"\x7f" * 100, None),
    }[damage]
    outcome = produce(client, topic, batch)
    assert outcome.error_code == code if code else outcome.error_code
    assert produce(client, topic, good).base_offset == 0


def test_create_time_is_kept_and_append_time_is_the_brokers(client, topic):
    assert produce(client, topic, batch_of(b"x", timestamp=NOW)).log_append_time_ms == -1
    assert header_of(fetch(client, topic)).max_timestamp == NOW
    create_topic(client, "stamped", message_timestamp_type="LogAppendTime")
    outcome = produce(client, "stamped", batch_of(b"x", timestamp=5))
    assert outcome.log_append_time_ms > NOW
    header = header_of(fetch(client, "stamped"))
    assert header.max_timestamp == outcome.log_append_time_ms
    assert header.uses_append_time


def header_of(data):
    ((_, header),) = list(iter_batches(memoryview(data.records)))
    return header


def test_timestamps_too_far_from_now_are_refused(client):
    create_topic(
        client, "times", message_timestamp_before_max_ms=3_600_000, message_timestamp_after_max_ms=1000
    )
    assert produce(client, "times", batch_of(b"x", timestamp=NOW)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert produce(client, "times", batch_of(b"x", timestamp=2**45)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert produce(client, "times", batch_of(b"x")).error_code == 0


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_each_record_is_held_to_the_limits_of_time_and_the_answer_says_which_failed(client, compression):
    name = f"each-time-{compression.name}"
    create_topic(
        client, name, message_timestamp_before_max_ms=3_600_000, message_timestamp_after_max_ms=3_600_000
    )
    (now,) = records_of(b"now")
    times = [now.timestamp, now.timestamp - 7_200_000, now.timestamp, now.timestamp + 7_200_000]
    mixed = [BatchRecord(i, time_ms, b"k", b"v", []) for i, time_ms in enumerate(times)]
    outcome = produce(client, name, bytes(encode_batch(mixed, compression=compression)))
    assert outcome.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in outcome.record_errors] == [1, 3]
    assert produce(client, name, bytes(encode_batch(mixed[:1], compression=compression))).base_offset == 0


def test_a_record_without_a_time_is_not_too_old(client):
    create_topic(client, "no-times", message_timestamp_before_max_ms=60_000)
    assert produce(client, "no-times", batch_of(b"x", timestamp=-1)).error_code == 0


@pytest.mark.parametrize("version", range(3, 13))
def test_less_than_a_header_is_no_batch_in_any_version(client, topic, version):
    assert produce(client, topic, batch_of(b"x")[:30], version=version).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("kind", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_recompresses_what_comes_otherwise(client, kind):
    create_topic(client, f"c-{kind}", compression_type=kind)
    for codec in (Compression.NONE, Compression.GZIP, Compression.ZSTD):
        assert produce(client, f"c-{kind}", batch_of(b"v" * 500, compression=codec)).error_code == 0
    data = fetch(client, f"c-{kind}")
    assert values_in(data) == [b"v" * 500] * 3
    codecs = {header.compression for _, header in iter_batches(memoryview(data.records))}
    assert codecs == {Compression[kind.upper()] if kind != "uncompressed" else Compression.NONE}


def test_zstd_needs_produce_7(client, topic):
    batch = batch_of(b"x" * 100, compression=Compression.ZSTD)
    assert produce(client, topic, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, batch, version=7).error_code == 0


def test_stored_bytes_are_the_producers_but_for_offset_and_leader_epoch(client, topic):
    produce(client, topic, batch_of(b"first"))
    sent = batch_of(b"second", compression=Compression.LZ4)
    produce(client, topic, sent)
    stored = bytes(fetch(client, topic, 1).records)
    assert stored[8:12] == sent[8:12]
    assert stored[16:] == sent[16:]
    assert read_header(stored).base_offset == 1


def test_a_client_may_not_write_to_internal_topics(client):
    from kohort.wire.messages.find_coordinator import FindCoordinatorRequest

    client.call(FindCoordinatorRequest("g"), version=2)
    assert (
        produce(client, "__consumer_offsets", batch_of(b"x")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    )


# Idempotent producers


def idempotent(client: BlockingConnection, topic: str, sequence: int, *values: bytes, producer=None):
    batch = encode_batch(
        records_of(*values), producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence
    )
    return produce(client, topic, bytes(batch))


@pytest.fixture
def producer(client):
    answer = client.call(InitProducerIdRequest(None, 1000), version=4)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def test_a_retry_gets_the_first_answer_again_for_the_last_five_batches(client, topic, producer):
    for sequence in range(6):
        assert idempotent(client, topic, sequence, b"v", producer=producer).base_offset == sequence
    for sequence in range(1, 6):
        retried = idempotent(client, topic, sequence, b"v", producer=producer)
        assert (retried.error_code, retried.base_offset) == (0, sequence)
    assert fetch(client, topic).high_watermark == 6
    too_old = idempotent(client, topic, 0, b"v", producer=producer)
    assert too_old.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_out_of_order(client, topic, producer):
    assert idempotent(client, topic, 0, b"v", producer=producer).error_code == 0
    assert (
        idempotent(client, topic, 2, b"v", producer=producer).error_code
        == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert idempotent(client, topic, 1, b"v", producer=producer).base_offset == 1


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_0(client, topic, producer):
    newer = (producer[0], producer[1] + 1)
    assert idempotent(client, topic, 0, b"v", producer=producer).error_code == 0
    assert (
        idempotent(client, topic, 5, b"v", producer=newer).error_code
        == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert idempotent(client, topic, 0, b"v", producer=newer).base_offset == 1
    assert (
        idempotent(client, topic, 1, b"v", producer=producer).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_sequences_are_remembered_over_a_restart(tmp_path):
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        answer = client.call(InitProducerIdRequest(None, 1000), version=4)
        producer = (answer.producer_id, answer.producer_epoch)
        for sequence in range(5):
            idempotent(client, "t", sequence, b"v", producer=producer)
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        assert idempotent(client, "t", 2, b"v", producer=producer).base_offset == 2
        assert idempotent(client, "t", 5, b"v", producer=producer).base_offset == 5
        assert client.call(InitProducerIdRequest(None, 1000), version=4).producer_id > producer[0]
