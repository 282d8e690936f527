"""Typed records on a real Spark: batches and streams, bad records, fewer fields, and what users are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort import Producer
from tests.clients.process import BrokerProcess

Read = Callable[..., Any]


@pytest.fixture
def send(broker: BrokerProcess) -> Callable[..., None]:
    """`send(topic, values, keys=…)` writes bytes."""

    def write(topic: str, values: list[bytes | None], keys: list[bytes | None] | None = None) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number, value in enumerate(values):
                producer.send(topic, value=value, key=None if keys is None else keys[number])

    return write


def test_json_values_and_string_keys(read: Read, new_topic: Any, send: Any) -> None:
    topic = new_topic()
    send(
        topic, [b'{"id":%d,"name":"n%d","in":{"x":1.5}}' % (n, n) for n in range(200)] + [None], [b"k"] * 201
    )
    frame = read(
        subscribe=topic,
        valueFormat="json",
        valueSchema="id bigint, name string, in struct<x:double>",
        keyFormat="string",
    )
    assert frame.schema.simpleString() == (
        "struct<key:string,value:struct<id:bigint,name:string,in:struct<x:double>>,topic:string,partition:int,"
        "offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    total = frame.selectExpr(
        "sum(value.id)", "count(value)", "count(*)", "sum(value.in.x)", "max(value.name)", "max(key)"
    )
    assert tuple(total.first()) == (sum(range(200)), 200, 201, 300.0, "n99", "k")


def test_the_words_of_a_bad_record(read: Read, new_topic: Any, send: Any) -> None:
    topic = new_topic()
    send(topic, [b'{"id":1}', b'{"id":"x"}', b'{"id":3}', b"{"])
    given = {"subscribe": topic, "valueFormat": "json", "valueSchema": "id bigint"}
    with pytest.raises(
        Exception, match=rf'{topic}-0@1: the value does not fit valueFormat=json: field id: "x" is no integer'
    ):
        read(**given).collect()
    frame = read(**given, mode="PERMISSIVE")
    found = [
        (row.offset, row.value and row.value.id, row._corrupt and row._corrupt.value)
        for row in frame.collect()
    ]
    assert found == [(0, 1, None), (1, None, b'{"id":"x"}'), (2, 3, None), (3, None, b"{")]
    assert 'field id: "x" is no integer' in frame.where("offset = 1").first()._corrupt.reason
    assert [row.value.id for row in read(**given, mode="dropmalformed").collect()] == [1, 3]


def test_fewer_fields_by_the_schema_of_the_reader(read: Read, new_topic: Any, send: Any) -> None:
    topic = new_topic()
    send(topic, [b'{"id":7,"name":"seven","more":{"a":1,"b":2}}'])
    frame = read(
        schema="value struct<more:struct<b:int>,id:bigint>, offset bigint",
        subscribe=topic,
        valueFormat="json",
    )
    assert frame.collect() == [((((2,), 7)), 0)]
    whole = "id bigint, name string, more struct<a:int,b:int>"
    same = read(
        schema="value struct<more:struct<b:int>,id:bigint>",
        subscribe=topic,
        valueFormat="json",
        valueSchema=whole,
    )
    assert same.first().value.asDict(recursive=True) == {"more": {"b": 2}, "id": 7}
    with pytest.raises(Exception, match="value has no field 'price'; it has id, name, more"):
        read(
            schema="value struct<price:int>", subscribe=topic, valueFormat="json", valueSchema=whole
        ).collect()


def test_from_json_gives_the_same(spark: Any, read: Read, new_topic: Any, send: Any) -> None:
    """For what both take; docs/spark-formats.md has the differences."""
    ddl = "i int, d double, s string, b boolean, m decimal(6,2), t timestamp, day date, a array<int>, o map<string,int>"
    documents = [
        {
            "i": 1,
            "d": 1,
            "s": "x",
            "b": True,
            "m": 1.25,
            "t": "2024-05-17T12:00:00Z",
            "day": "2024-05-17",
            "a": [1, None],
        },
        {"i": None, "s": 5, "o": {"k": 1, "l": None}},
        {"s": {"a": [1, "x"]}},
        {"s": True, "d": "NaN"},
        {"other": 1},
        {},
        {"m": "3.14159", "t": "2024-05-17 12:00:00.5+02:00", "d": 1e300},
        {"t": 1700000000, "m": 7},
    ]
    texts = [json.dumps(each).encode() for each in documents] + [b"", b"null", b'{"i":1,"i":2}', b'{"d":NaN}']
    topic = new_topic()
    send(topic, texts)
    ours = read(subscribe=topic, valueFormat="json", valueSchema=ddl).orderBy("offset").select("value.*")
    theirs = (
        read(subscribe=topic)
        .orderBy("offset")
        .selectExpr(f"from_json(string(value), '{ddl}') AS value")
        .select("value.*")
    )
    assert ours.schema == theirs.schema
    assert list(map(str, ours.collect())) == list(map(str, theirs.collect()))


def test_a_stream_goes_on_where_it_stopped(
    spark: Any, broker: BrokerProcess, new_topic: Any, send: Any, tmp_path: Path
) -> None:
    topic = new_topic()

    def run() -> list[int]:
        stream = spark.readStream.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        stream = (
            stream.option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("kafka.group.id", topic)
        )
        stream = stream.option("valueFormat", "json").option("schema", "id bigint").load()
        writer = stream.select("value.id").writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect())

    send(topic, [b'{"id":%d}' % n for n in range(100)])
    assert run() == list(range(100))
    send(topic, [b'{"id":%d}' % n for n in range(100, 130)])
    assert run() == list(range(130))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"valueFormat": "xml"}, "valueFormat is binary, string, json, avro or protobuf, not 'xml'"),
        ({"valueFormat": "json"}, "valueFormat=json needs to know the fields: give valueSchema"),
        (
            {"valueFormat": "json", "valueSchema": "id bigintt"},
            "valueSchema: 'bigintt' is no type; types are boolean",
        ),
        ({"valueSchema": "id bigint"}, "valueSchema means nothing with valueFormat=binary"),
        (
            {"valueFormat": "json", "valueSchema": "id int", "mode": "FAST"},
            "mode is FAILFAST, PERMISSIVE, DROPMALFORMED, not 'FAST'",
        ),
        ({"valueFormatt": "json"}, "unknown option valueformatt .*did you mean valueFormat?"),
    ],
)
def test_what_is_wrong_is_said(read: Read, given: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=text):
        read(**{"subscribe": "t", **given}).collect()
