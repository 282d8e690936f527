"""`spark.read.format("kohort")` on a real Spark: rows, schema, ranges, tasks, and what users are told."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Producer
from tests.clients.process import BrokerProcess

Read = Callable[..., Any]


def values(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_rows_and_schema(read: Read, new_topic: Any, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    now_ms = int(time.time() * 1000)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(
            topic, value=b"v", key=b"k", partition=1, timestamp_ms=now_ms, headers=[("h", b"1"), ("h", None)]
        )
        producer.send(topic, value=None, partition=0, timestamp_ms=now_ms)
    frame = read(subscribe=topic, includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema.fields)
    without, with_headers = frame.orderBy("partition").collect()
    assert (without.value, without.key, without.headers) == (None, None, None)
    assert (bytes(with_headers.value), bytes(with_headers.key), with_headers.topic) == (b"v", b"k", topic)
    assert [(h.key, h.value) for h in with_headers.headers] == [("h", b"1"), ("h", None)]
    ms = frame.selectExpr("unix_millis(timestamp) as ms").first().ms
    assert ms == now_ms
    assert isinstance(without.timestamp, datetime.datetime)
    assert "headers" not in read(subscribe=topic).columns


def test_a_user_schema_leaves_columns_out(read: Read, new_topic: Any, produce: Any) -> None:
    topic = new_topic()
    produce(topic, range(5))
    frame = read(schema="offset bigint, value binary", subscribe=topic)
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [(n, b"%d" % n) for n in range(5)]
    with pytest.raises(Exception, match="the column 'offset' of records is bigint, not string"):
        read(schema="offset string", subscribe=topic).collect()
    with pytest.raises(Exception, match="records have no column 'price'"):
        read(schema="price int", subscribe=topic).collect()


def test_the_end_is_looked_up_at_each_action(read: Read, new_topic: Any, produce: Any) -> None:
    topic = new_topic()
    frame = read(subscribe=topic)
    assert frame.count() == 0
    produce(topic, range(5))
    assert frame.count() == 5


def test_ranges(read: Read, new_topic: Any, produce: Any) -> None:
    topic = new_topic(partitions=2)
    produce(topic, range(10), partition=0)
    produce(topic, range(10, 13), partition=1)
    start, end = f'{{"{topic}":{{"0":8,"1":-2}}}}', f'{{"{topic}":{{"0":-1,"1":2}}}}'
    assert values(read(subscribe=topic, startingOffsets=start, endingOffsets=end)) == [8, 9, 10, 11]
    assert values(read(assign=f'{{"{topic}":[1]}}')) == [10, 11, 12]
    assert values(read(subscribePattern=topic[:-2])) == list(range(13))
    backwards = f'{{"{topic}":{{"0":3,"1":0}}}}'
    with pytest.raises(
        Exception, match=f"The specified start offset 8 is greater than the end offset 3 for topic {topic}"
    ):
        read(subscribe=topic, startingOffsets=start, endingOffsets=backwards).collect()


def test_tasks(read: Read, new_topic: Any, produce: Any) -> None:
    topic = new_topic(partitions=2)
    produce(topic, range(9), partition=0)
    assert read(subscribe=topic).rdd.getNumPartitions() == 2  # an empty partition is a task too
    split = read(subscribe=topic, minPartitions=3)
    assert split.rdd.getNumPartitions() == 3
    assert values(split) == list(range(9))
    assert read(subscribe=topic, maxRecordsPerPartition=2).rdd.getNumPartitions() == 5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingoffset .*did you mean startingOffsets?"),
        ({"kafka__enable__auto__commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"subscribe": "no-such-topic", "fetchOffset__retryIntervalMs": "10"}, "'no-such-topic'"),
    ],
)
def test_what_is_wrong_is_said(read: Read, new_topic: Any, given: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=text):
        read(**{"subscribe": "t", **given}).collect()


def test_a_million_bytes_of_a_compressed_topic(read: Read, new_topic: Any, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="lz4") as producer:
        for number in range(20_000):
            producer.send(topic, value=b"%050d" % number, key=b"%d" % number)
    row = (
        read(subscribe=topic)
        .selectExpr("count(*) n", "sum(length(value)) s", "sum(int(string(value))) v")
        .first()
    )
    assert (row.n, row.s, row.v) == (20_000, 1_000_000, sum(range(20_000)))
