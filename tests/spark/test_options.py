"""Every option by its name, and what is said of wrong ones; the texts are those of spec/spark-connector.md."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.spark.options import (
    Assign,
    AtOffsets,
    AtTimes,
    Edge,
    GroupMode,
    OptionError,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    read_source_options,
)

T0 = TopicPartition("t", 0)


def options(streaming: bool = False, /, **given: Any) -> SourceOptions:
    texts = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}
    if {"subscribePattern", "assign"} & set(given):
        del texts["subscribe"]
    for name, value in given.items():
        texts[name.replace("__", ".")] = str(value)
    return read_source_options(texts, streaming=streaming)


def refused(streaming: bool = False, /, **given: Any) -> str:
    with pytest.raises(OptionError) as raised:
        options(streaming, **given)
    return str(raised.value)


# --- which records ------------------------------------------------------------------------------------


def test_subscribe_is_split_at_commas_and_trimmed() -> None:
    assert options(subscribe=" a , b,a").strategy == Subscribe(("a", "b"))


def test_subscribe_pattern_and_assign() -> None:
    assert options(subscribePattern="or.*").strategy == SubscribePattern("or.*")
    assert options(assign='{"t":[1,0]}').strategy == Assign((T0, TopicPartition("t", 1)))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": ""}, "No topics to subscribe to as specified value for option 'subscribe' is ''"),
        (
            {"subscribe": " , "},
            "No topics to subscribe to as specified value for option 'subscribe' is ' , '",
        ),
        (
            {"subscribePattern": ""},
            "Pattern to subscribe is empty as specified value for option 'subscribePattern' is ''",
        ),
        (
            {"assign": "nonsense"},
            "No topicpartitions to assign as specified value for option 'assign' is 'nonsense'",
        ),
        ({"assign": '{"t":"x"}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"t":"x"}'),
        ({"subscribePattern": "("}, "subscribePattern: '(' is no regular expression"),
        (
            {"startingOffsets": "{bad"},
            'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got {bad',
        ),
        (
            {"startingOffsetsByTimestamp": "{bad"},
            'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}, '
            "got {bad",
        ),
        ({"startingTimestamp": "yesterday"}, "Expected a single long value, got yesterday"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-3 for t-0 is no offset; -1 is latest, -2 is earliest"),
        ({"startingOffsetsByTimestampStrategy": "nearest"}, "No value found for 'NEAREST'"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"t":{"0":-1}}'},
            "startingOffsets for t-0 can't be latest for batch queries on Kafka",
        ),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"endingOffsets": '{"t":{"0":-2}}'},
            "ending offset for t-0 can't be earliest for batch queries on Kafka",
        ),
        ({"minPartitions": 0}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": 0}, "maxrecordsperpartition must be positive"),
        ({"maxOffsetsPerTrigger": 0}, "maxOffsetsPerTrigger must be positive"),
        ({"maxOffsetsPerTrigger": -5}, "maxOffsetsPerTrigger must be positive"),
        ({"minPartitions": "many"}, 'minPartitions: For input string: "many"'),
        ({"failOnDataLoss": "perhaps"}, 'failOnDataLoss: For input string: "perhaps"'),
        ({"maxTriggerDelay": "soon"}, "Failed to parse time string: soon"),
        (
            {"minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 5},
            "The value of minOffsetPerTrigger(10) is higher than the maxOffsetsPerTrigger(5).",
        ),
        ({"kafka__bootstrap__servers": " "}, "Option 'kafka.bootstrap.servers' must be specified"),
        ({"kafka__enable__auto__commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka__interceptor__classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        (
            {"kafka__auto__offset__reset": "latest"},
            "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets' to "
            "'earliest' or 'latest' to specify where to start.",
        ),
        (
            {"kafka__key__deserializer": "x"},
            "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
            "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys.",
        ),
        (
            {"kafka__value__deserializer": "x"},
            "Kafka option 'value.deserializer' is not supported as values are deserialized",
        ),
        (
            {"groupMode": "alone", "kafka__group__id": "g"},
            "groupMode is member, assign or shared, not 'alone'",
        ),
        ({"groupMode": "shared"}, "groupMode=shared needs kafka.group.id"),
        (
            {"kafka.group.id": "g", "kafka.partition.assignment.strategy": "roundrobin"},
            "kafka.partition.assignment.strategy means something with groupMode=shared only",
        ),
        (
            {"kafka.group.id": "g", "groupMode": "shared", "kafka.partition.assignment.strategy": "rang"},
            "kafka.partition.assignment.strategy: unknown assignor 'rang'",
        ),
        (
            {"groupMode": "shared", "kafka__group__id": "g", "assign": '{"t":[0]}'},
            "groupMode=shared cannot go with assign",
        ),
    ],
)
def test_a_wrong_option_is_refused(given: dict[str, Any], text: str) -> None:
    assert text in refused(**given)


def test_one_way_of_naming_topics_must_be_chosen() -> None:
    names = "subscribe, subscribepattern, assign. See the docs for more details."
    with pytest.raises(OptionError) as raised:
        read_source_options({"kafka.bootstrap.servers": "x:1"}, streaming=False)
    assert str(raised.value) == f"One of the following options must be specified for Kafka source: {names}"
    with pytest.raises(OptionError) as raised:
        read_source_options({"subscribe": "t", "assign": "{}"}, streaming=False)
    assert (
        str(raised.value) == f"Only one of the following options can be specified for Kafka source: {names}"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("endingOffsets", "ending offset not valid in streaming queries"),
        ("endingOffsetsByTimestamp", "ending timestamp not valid in streaming queries"),
        ("endingTimestamp", "ending timestamp not valid in streaming queries"),
    ],
)
def test_a_stream_has_no_end(name: str, text: str) -> None:
    assert text in refused(True, **{name: "latest"})


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribepatern", "subscribePattern"),
        ("group.id", "kafka.group.id"),
        ("kafka.fetch.max.wait", "fetch.max.wait.ms"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_right_one(name: str, right: str) -> None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", name: "1"}
    with pytest.raises(OptionError, match=right) as raised:
        read_source_options(given, streaming=False)
    assert name.lower() in str(raised.value).lower()


# --- what they mean -----------------------------------------------------------------------------------


def test_a_batch_reads_everything_and_a_stream_what_is_new() -> None:
    assert (options().starting, options().ending) == (Edge.EARLIEST, Edge.LATEST)
    assert options(True).starting is Edge.LATEST


def test_names_and_words_ignore_case() -> None:
    read = read_source_options(
        {
            "KAFKA.Bootstrap.Servers": "x:1",
            "SUBSCRIBE": "T",
            "StartingOFFSETS": "EARLIEST",
            "failondataloss": "FALSE",
        },
        streaming=True,
    )
    assert read.strategy == Subscribe(("T",))
    assert read.starting is Edge.EARLIEST
    assert not read.fail_on_data_loss


def test_one_time_goes_before_times_and_these_before_offsets() -> None:
    offsets, times = '{"t":{"0":5}}', '{"t":{"0":1700}}'
    assert options(startingOffsets=offsets).starting == AtOffsets({T0: 5})
    assert options(startingOffsets=offsets, startingOffsetsByTimestamp=times).starting == AtTimes(
        None, {T0: 1700}
    )
    both = options(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp=9)
    assert both.starting == AtTimes(9)
    assert options(endingOffsets=offsets, endingTimestamp=9).ending == AtTimes(9)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("10s", 10_000), ("500ms", 500), ("500", 500), ("2h", 7_200_000), ("1min", 60_000)],
)
def test_a_delay_as_spark_writes_it(text: str, ms: int) -> None:
    assert options(True, maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_the_group() -> None:
    assert options(True).group_mode is GroupMode.NONE
    assert options(True, kafka__group__id="g").group_mode is GroupMode.MEMBER
    assert options(True, kafka__group__id="g", groupMode="Shared").group_mode is GroupMode.SHARED
    assert options(True, kafka__group__id="g", groupMode="assign").group_id == "g"


def test_options_travel_to_executors() -> None:
    read = options(startingOffsets='{"t":{"0":5}}', kafka__isolation__level="read_committed")
    assert pickle.loads(pickle.dumps(read)) == read
