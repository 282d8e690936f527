"""What the sink refuses before a row is written, in the words of spec/spark-connector.md, section Sink."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.spark.options import OptionError
from kohort.spark.sink import check_columns, read_sink_options, stream_writer, writer

BOOTSTRAP = {"kafka.bootstrap.servers": "127.0.0.1:1"}


HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TEXT_HEADER = StructType([StructField("key", StringType()), StructField("value", StringType())])
TYPES: dict[str, DataType] = {
    "int": IntegerType(),
    "long": LongType(),
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "ints": ArrayType(IntegerType()),
    "headers": ArrayType(HEADER),
    "text_headers": ArrayType(TEXT_HEADER),
    "map": MapType(StringType(), BinaryType()),
}


def schema(text: str) -> StructType:
    """`"value string, key binary"`, without a JVM that would read it."""
    named = [column.split() for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in named])


def test_the_columns_that_are_written_are_found_by_name_and_others_are_left_alone() -> None:
    found = check_columns(schema("id int, value string, key binary, partition int, topic string"), None)
    assert found == ("topic", "key", "value", "partition")
    assert check_columns(schema("value binary, timestamp timestamp, headers headers"), "t") == (
        "value",
        "headers",
    )


def test_the_topic_option_wins_over_the_column() -> None:
    assert check_columns(schema("value binary, topic string"), "t") == ("value",)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("key binary", "Required attribute 'value' not found"),
        ("VALUE binary", "Required attribute 'value' not found"),
        ("value int", "value attribute unsupported type int. value must be a(n) string or binary"),
        (
            "value ints",
            "value attribute unsupported type array<int>. value must be a(n) string or binary",
        ),
        (
            "value string, key long",
            "key attribute unsupported type bigint. key must be a(n) string or binary",
        ),
        ("value string, topic int", "topic attribute unsupported type int. topic must be a(n) string"),
        ("value string, topic binary", "topic attribute unsupported type binary. topic must be a(n) string"),
        (
            "value string, partition long",
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (
            "value string, headers map",
            "headers attribute unsupported type map<string,binary>. headers must be a(n) "
            "array<struct<key:string,value:binary>>",
        ),
        (
            "value string, headers text_headers",
            "headers attribute unsupported type array<struct<key:string,value:string>>. headers must be a(n) "
            "array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_columns_of_the_wrong_type_are_refused_in_the_connectors_words(columns: str, text: str) -> None:
    topic = None if "topic " in columns else "t"
    with pytest.raises(OptionError) as refused:
        check_columns(schema(columns), topic)
    assert str(refused.value) == text


def test_without_a_topic_option_there_must_be_a_topic_column() -> None:
    with pytest.raises(OptionError) as refused:
        check_columns(schema("value string"), None)
    assert str(refused.value) == (
        "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
    )


def test_option_names_ignore_case_and_kafka_settings_reach_the_producer() -> None:
    options = read_sink_options(
        {
            "TOPIC": "t",
            "Kafka.Bootstrap.Servers": "127.0.0.1:1",
            "kafka.linger.ms": "7",
            "checkpointLocation": "/c",
        }
    )
    assert options.topic == "t"
    assert options.kafka == {"bootstrap.servers": "127.0.0.1:1", "linger.ms": "7"}
    assert options.largest == 1_048_576


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "Kafka option bootstrap.servers is not set. Please make sure it is set and retry."),
        (
            {"kafka.key.serializer": "x"},
            "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer.",
        ),
        (
            {"kafka.value.serializer": "x"},
            "Kafka option 'value.serializer' is not supported as value are serialized with ByteArraySerializer.",
        ),
        ({**BOOTSTRAP, "topics": "t"}, "unknown option topics for the kohort sink; did you mean topic?"),
        (
            {**BOOTSTRAP, "linger.ms": "5"},
            "unknown option linger.ms: settings of Kafka are written as kafka.linger.ms",
        ),
        ({**BOOTSTRAP, "kafka.linger.m": "5"}, "settings of the producer: unknown setting linger.m"),
        (
            {**BOOTSTRAP, "kafka.acks": "1", "kafka.enable.idempotence": "true"},
            "enable.idempotence needs acks=all",
        ),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_sink_options(options)
    assert text in str(refused.value)


def test_a_batch_cannot_overwrite_a_topic_and_the_error_says_append() -> None:
    with pytest.raises(OptionError) as refused:
        writer({**BOOTSTRAP, "topic": "t"}, schema("value string"), overwrite=True)
    assert str(refused.value).startswith(
        "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and ErrorIfExists (default)."
    )
    assert 'mode("append")' in str(refused.value)


def test_a_stream_in_complete_mode_appends() -> None:
    made = stream_writer({**BOOTSTRAP, "topic": "t"}, schema("value string"), overwrite=True)
    assert made.columns == ("value",)
