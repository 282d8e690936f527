"""Records in and out without a client."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode, KafkaError

HOUR_MS = 3_600_000


def test_values_in_all_forms(kafka: Kafka) -> None:
    offsets = kafka.produce(
        "orders",
        [
            "text",
            b"bytes",
            None,
            ("key", "of a pair"),
            (b"gone", None),
            {"value": "of a dict", "key": b"k", "headers": {"h": "1", "n": None}, "timestamp": 1_000},
            {"headers": [("twice", b"a"), ("twice", b"b")]},
        ],
    )
    assert offsets == [0, 1, 2, 3, 4, 5, 6]
    records = kafka.consume_all("orders")
    assert [(r.key, r.value) for r in records] == [
        (None, b"text"),
        (None, b"bytes"),
        (None, None),
        (b"key", b"of a pair"),
        (b"gone", None),
        (b"k", b"of a dict"),
        (None, None),
    ]
    assert (records[5].headers, records[5].timestamp) == ([("h", b"1"), ("n", None)], 1_000)
    assert records[6].headers == [("twice", b"a"), ("twice", b"b")]
    assert {(r.topic, r.partition) for r in records} == {("orders", 0)}
    assert kafka.end_offsets("orders") == {0: 7}


def test_one_value_need_not_be_in_a_list(kafka: Kafka) -> None:
    assert kafka.produce("orders", "one") == [0]
    assert kafka.produce("orders", b"two") == [1]
    assert kafka.produce("orders", []) == []


def test_records_are_spread_over_partitions(kafka: Kafka) -> None:
    kafka.create_topic("orders", partitions=3)
    assert kafka.produce("orders", ["a", "b", "c", "d"]) == [0, 0, 0, 1]
    assert kafka.produce("orders", [{"value": "e", "partition": 2}]) == [1]
    assert [(r.partition, r.value) for r in kafka.consume_all("orders")] == [
        (0, b"a"),
        (0, b"d"),
        (1, b"b"),
        (2, b"c"),
        (2, b"e"),
    ]


def test_keys_go_where_a_producer_would_send_them(kafka: Kafka) -> None:
    keys = [f"key-{n}" for n in range(40)] + ["", "ключ", "abc", "abcd", "abcde"]
    kafka.create_topic("ours", partitions=7)
    kafka.create_topic("theirs", partitions=7)
    kafka.produce("ours", [(key, "v") for key in keys])
    producer: Any = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        producer.produce("theirs", key=key, value="v")
    assert producer.flush(60) == 0
    ours, theirs = ({(r.key, r.partition) for r in kafka.consume_all(topic)} for topic in ("ours", "theirs"))
    assert ours == theirs


def test_settings_of_a_topic(kafka: Kafka) -> None:
    kafka.create_topic("small", max_message_bytes=100)
    with pytest.raises(KafkaError, match="small-0") as refused:
        kafka.produce("small", ["x" * 200])
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError, match=r"did you mean retention\.ms"):
        kafka.create_topic("wrong", retention_mss=1)
    with pytest.raises(KafkaError, match="already exists"):
        kafka.create_topic("small")


def test_time_expires_records_where_a_topic_says_so(kafka: Kafka) -> None:
    kafka.create_topic("for-an-hour", retention_ms=HOUR_MS)
    kafka.create_topic("for-ever")
    for topic in ("for-an-hour", "for-ever"):
        kafka.produce(topic, ["one", {"value": "of 1970", "timestamp": 1_000}])
    kafka.advance(HOUR_MS - 60_000)
    assert len(kafka.consume_all("for-an-hour")) == 2
    kafka.advance(60_001)
    assert kafka.consume_all("for-an-hour") == []
    assert kafka.end_offsets("for-an-hour") == {0: 2}
    assert len(kafka.consume_all("for-ever")) == 2


def test_a_record_after_the_clock_was_moved_is_of_that_time(kafka: Kafka) -> None:
    kafka.produce("orders", ["before"])
    kafka.advance(HOUR_MS)
    kafka.produce("orders", ["after"])
    before, after = kafka.consume_all("orders")
    assert HOUR_MS <= after.timestamp - before.timestamp < HOUR_MS + 60_000


def test_time_compacts(kafka: Kafka) -> None:
    kafka.create_topic("latest", cleanup_policy="compact", min_cleanable_dirty_ratio=0, segment_ms=HOUR_MS)
    kafka.produce("latest", [("a", "1"), ("b", "1"), ("a", "2")])
    kafka.advance(2 * HOUR_MS)
    kafka.produce("latest", [("c", "1")])  # begins a new segment: the last one is never compacted
    kafka.advance(1)
    assert [(r.key, r.value) for r in kafka.consume_all("latest")] == [
        (b"b", b"1"),
        (b"a", b"2"),
        (b"c", b"1"),
    ]


def test_what_is_no_record_is_told(kafka: Kafka) -> None:
    with pytest.raises(TypeError, match="7 is not a record: give bytes or str"):
        kafka.produce("orders", [7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="no 'vaule', only value, key"):
        kafka.produce("orders", [{"vaule": "x"}])
    with pytest.raises(TypeError, match="are numbers"):
        kafka.produce("orders", [{"value": "x", "partition": "0"}])
    with pytest.raises(KafkaError, match="orders-5"):
        kafka.produce("orders", [{"value": "x", "partition": 5}])
    with pytest.raises(ValueError, match="no topic 'order'; did you mean orders"):
        kafka.consume_all("order")
    with pytest.raises(ValueError, match="time goes forward only"):
        kafka.advance(-1)


@pytest.mark.kafka(auto_create_topics_enable=False)
def test_a_topic_is_not_created_where_that_is_off(kafka: Kafka) -> None:
    with pytest.raises(KafkaError, match="'orders' could not be created"):
        kafka.produce("orders", ["one"])
