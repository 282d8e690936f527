"""`df.write.format("kohort")` and `df.writeStream.format("kohort")` with a real Spark and a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import udf

from kohort import Admin, Consumer, Record
from kohort.client.produce.partitioners import murmur2
from tests.clients.process import BrokerProcess

NewTopic = Callable[..., str]


@pytest.fixture
def records_of(broker: BrokerProcess, admin: Admin) -> Callable[[str], list[Record]]:
    """All records of a topic, by partition and offset."""

    def read(topic: str) -> list[Record]:
        with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            partitions = [(topic, p.partition) for p in admin.describe_topics(topic)[topic].partitions]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            left = sum(consumer.end_offsets(*partitions).values())
            found: list[Record] = []
            while len(found) < left:
                found += [record for records in consumer.poll(10).values() for record in records]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    return read


@pytest.fixture
def write(broker: BrokerProcess) -> Callable[..., None]:
    def save(frame: Any, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("kohort").mode(mode)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        writer.save()

    return save


def test_rows_arrive_with_key_headers_partition_and_topic_as_given(
    spark: Any, new_topic: NewTopic, write: Callable[..., None], records_of: Callable[[str], list[Record]]
) -> None:
    one, two = new_topic(partitions=3), new_topic()
    header = "array(named_struct('key', 'h', 'value', X'01'), named_struct('key', 'h', 'value', CAST(null AS BINARY)))"
    rows = spark.sql(f"""
        SELECT * FROM VALUES
          ('{one}', CAST('k' AS BINARY), 'text', {header}, 2, 'ignored'),
          ('{one}', null, null, null, 0, 'ignored'),
          ('{two}', CAST('' AS BINARY), '', array(), null, 'ignored')
        AS t(topic, key, value, headers, partition, other)""")
    write(rows.coalesce(1))
    first, second = records_of(one)
    assert (first.partition, first.key, first.value, first.headers) == (0, None, None, [])
    assert (second.partition, second.key, second.value) == (2, b"k", b"text")
    assert second.headers == [("h", b"\x01"), ("h", None)]
    (third,) = records_of(two)
    assert (third.key, third.value, third.headers) == (b"", b"", [])


def test_a_null_partition_is_chosen_by_murmur2_of_the_key_and_a_timestamp_column_is_ignored(
    spark: Any, new_topic: NewTopic, write: Callable[..., None], records_of: Callable[[str], list[Record]]
) -> None:
    topic = new_topic(partitions=3)
    rows = spark.range(3_000).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(CAST(id AS STRING) AS BINARY) AS value", "CAST(null AS INT) AS partition",
        "TIMESTAMP'2001-01-01' AS timestamp", "'no such topic' AS topic",
    )  # fmt: skip
    write(rows.repartition(4), topic=topic)
    found = records_of(topic)
    assert Counter(record.key for record in found) == Counter(b"%d" % number for number in range(3_000))
    assert all(record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 3 for record in found)
    assert min(record.timestamp for record in found) > 1_600_000_000_000


def test_an_empty_frame_writes_nothing(
    spark: Any, new_topic: NewTopic, write: Callable[..., None], records_of: Callable[[str], list[Record]]
) -> None:
    topic = new_topic()
    write(spark.range(0).selectExpr("CAST(id AS STRING) AS value"), topic=topic)
    assert records_of(topic) == []


def test_the_default_save_mode_is_refused_and_the_error_says_append(
    spark: Any, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match="Append"):
        write(rows, mode="errorifexists", topic=new_topic())
    with pytest.raises(Exception, match="Save mode Overwrite not allowed for Kafka"):
        write(rows, mode="overwrite", topic=new_topic())


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (
            ["'v' AS value", "if(id = 7, null, '{topic}') AS topic"],
            {},
            ["contains a null topic", "row 7 of task 0"],
        ),
        (
            ["'v' AS value", "if(id = 8, 9, 0) AS partition"],
            {"topic": "{topic}"},
            ["Partition 9 of topic {topic} with partition count 1 is not present", "row 8 of task 0"],
        ),
        (
            ["repeat('x', if(id IN (4, 6), 2000, 10)) AS value"],
            {"topic": "{topic}", "kafka.max.request.size": "1000"},
            ["MESSAGE_TOO_LARGE", "row 4 (and 1 more) of task 0", "kafka.max.request.size"],
        ),
        (
            ["'v' AS value"],
            {"topic": "not/a/name"},
            ["rows 0 to 9 of task 0, attempt 0 were not written", "not/a/name", "INVALID_TOPIC"],
        ),
    ],
)
def test_rows_that_cannot_be_written_fail_the_task_before_the_first_is_sent(
    spark: Any, new_topic: NewTopic, write: Callable[..., None], records_of: Callable[[str], list[Record]],
    columns: list[str], options: dict[str, str], said: list[str],
) -> None:  # fmt: skip
    topic = new_topic()
    rows = spark.range(10).selectExpr(*(column.format(topic=topic) for column in columns)).coalesce(1)
    with pytest.raises(Exception, match="RowsNotWritten") as failed:
        write(rows, **{name: value.format(topic=topic) for name, value in options.items()})
    for text in said:
        assert text.format(topic=topic) in str(failed.value)
    assert records_of(topic) == []


def test_a_record_that_the_broker_finds_too_large_fails_and_the_error_says_where(
    spark: Any, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic(max_message_bytes=2000)
    rows = spark.range(10).selectExpr("repeat('x', if(id = 5, 5000, 10)) AS value").coalesce(1)
    with pytest.raises(Exception, match="some or all of the rows 0 to 9 of task 0") as failed:
        write(rows, topic=topic)
    assert "MESSAGE_TOO_LARGE" in str(failed.value)
    assert topic in str(failed.value)


def test_a_broker_that_is_gone_fails_the_task_in_time(spark: Any, write: Callable[..., None]) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "300", "topic": "t"}
    with pytest.raises(Exception, match="rows 0 to 2 of task 0, attempt 0 were not written") as failed:
        rows.write.format("kohort").mode("append").options(**options).save()
    assert "127.0.0.1:1" in str(failed.value)


def test_a_task_that_fails_late_and_is_tried_again_leaves_no_gap(
    spark: Any, new_topic: NewTopic, write: Callable[..., None], records_of: Callable[[str], list[Record]],
    tmp_path: Path,
) -> None:  # fmt: skip
    """`local[2,3]` would retry; here the job is run again, as a streaming query does with its batch."""
    topic, flag = new_topic(partitions=2), tmp_path / "failed"

    def failing_once(number: int) -> str:
        if number == 1_500 and not flag.exists():
            flag.touch()
            raise RuntimeError("the first attempt dies in the middle")
        return str(number)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        value = udf(failing_once, "string", useArrow=False)("id").alias("value")
        rows = spark.range(0, 2_000, 1, 1).select(value)
        with pytest.raises(Exception, match="dies in the middle"):
            write(rows, topic=topic)
        write(rows, topic=topic)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = Counter(record.value for record in records_of(topic))
    assert set(found) == {b"%d" % number for number in range(2_000)}
    # The second attempt wrote each of its rows once, and only what the first had handed over can be there twice.
    assert all(found[b"%d" % number] == 1 for number in range(1_500, 2_000))
    assert all(found[b"%d" % number] <= 2 for number in range(1_500))


def test_a_stream_writes_every_row_once_across_a_stop(
    spark: Any,
    new_topic: NewTopic,
    records_of: Callable[[str], list[Record]],
    broker: BrokerProcess,
    tmp_path: Path,
) -> None:
    topic, folder = new_topic(partitions=2), tmp_path / "in"
    folder.mkdir()
    stream = spark.readStream.schema("id long").parquet(str(folder))
    writer = (
        stream.selectExpr("CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value")
        .writeStream.format("kohort")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    for start in (0, 100):
        spark.range(start, start + 100).write.mode("append").parquet(str(folder))
        assert writer.start().awaitTermination(240)
    found = {record.key: record.value for record in records_of(topic)}
    assert found == {b"%d" % number: b"%d" % (number * 2) for number in range(200)}
    assert len(records_of(topic)) == 200
