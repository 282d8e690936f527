"""`exactlyOnce` of the sink: a task that fails or a driver that loses its commit writes no row twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kohort import Consumer
from kohort.spark.exactly_once import RowsHash
from kohort.spark.options import OptionError
from kohort.spark.sink import RowsNotWritten, StreamTask, read_sink_options, write_rows_once
from tests.clients.process import BrokerProcess

COLUMNS = ("key", "value")


def committed(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        found: list[bytes | None] = []
        with Consumer(bootstrap_servers=broker.bootstrap_servers) as other:
            ends = other.end_offsets(partitions)
        for _ in range(120):
            if all(consumer.position(p) >= ends[p] for p in partitions):
                break
            found += [record.value for records in consumer.poll(0.5).values() for record in records]
        assert all(consumer.position(p) >= ends[p] for p in partitions), "a transaction stays open"
    return sorted(found)


def options(broker: BrokerProcess, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": topic,
        "exactlyOnce": "true",
        **more,
    }


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array(values, pa.binary()), "value": pa.array(values, pa.binary())})


def test_a_stream_writes_each_row_once_though_its_commits_are_forgotten(
    spark: Any,
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    """What a driver leaves that dies before it notes that a batch is done: the batch is repeated."""
    source, target = new_topic(partitions=2), new_topic(partitions=2)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        frame = (
            spark.readStream.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", source).option("startingOffsets", "earliest").load().select("key", "value")
        )  # fmt: skip
        writer = frame.writeStream.format("kohort").option("checkpointLocation", str(checkpoint))
        for name, value in options(broker, target).items():
            writer = writer.option(name, value)
        writer.trigger(availableNow=True).start().awaitTermination()

    for numbers in (range(20), range(20, 40)):
        produce(source, numbers, partition=numbers.start % 2)
        run()
        shutil.rmtree(checkpoint / "commits")  # all batches count as not done, and the last one is repeated
        run()
    assert committed(broker, target) == sorted(b"%d" % number for number in range(40))


def test_an_attempt_that_is_given_up_leaves_nothing_and_a_repeated_one_writes_nothing(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[[str], str]
) -> None:
    topic = new_topic()
    read = read_sink_options(options(broker, topic))
    task = StreamTask(new_name("query"), 7, 0)

    def dies() -> Any:
        yield rows(b"a", b"b")
        raise OSError("the executor is lost")

    with pytest.raises(OSError, match="lost"):
        write_rows_once(read, COLUMNS, dies(), "task 0", task)
    assert write_rows_once(read, COLUMNS, iter([rows(b"a", b"b"), rows(b"c")]), "task 0", task) == 3
    assert (
        write_rows_once(read, COLUMNS, iter([rows(b"a"), rows(b"b", b"c")]), "task 0", task) == 3
    )  # cut otherwise
    with pytest.raises(RowsNotWritten, match="other ones: with exactlyOnce a batch must have the same rows"):
        write_rows_once(read, COLUMNS, iter([rows(b"a", b"b", b"x")]), "task 0", task)
    with pytest.raises(RowsNotWritten, match="its checkpoint is older"):
        write_rows_once(read, COLUMNS, iter([]), "task 0", StreamTask(task.query, 6, 0))
    later = StreamTask(task.query, 8, 0)
    assert write_rows_once(read, COLUMNS, iter([rows(b"d")]), "task 0", later) == 1
    assert committed(broker, topic) == [b"a", b"b", b"c", b"d"]


def test_a_hash_knows_nulls_from_nothing_and_where_a_value_ends() -> None:
    def digest(*batches: pa.RecordBatch) -> str:
        seen = RowsHash()
        for batch in batches:
            seen.add(batch)
        return seen.hexdigest()

    def values(*given: bytes | None) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array(given, pa.binary())})

    assert digest(values(b"a", b"b")) == digest(values(b"a"), values(b"b"))
    different = [
        values(b"ab", b""),
        values(b"a", b"b"),
        values(b"b", b"a"),
        values(b"ab", None),
        values(b"ab"),
    ]
    assert len({digest(each) for each in different}) == len(different)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"exactlyOnce": "yes"}, "exactlyOnce is true or false"),
        ({"exactlyOnce": "true", "ledgerTopic": "t"}, "must be another topic"),
        ({"exactlyOnce": "true", "transactionalIdPrefix": " "}, "must not be empty"),
        ({"ledgerTopic": "l"}, "no meaning without exactlyOnce=true"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "needs enable.idempotence=true"),
        ({"kafka.transactional.id": "x"}, "transactionalIdPrefix"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **given})


def test_a_batch_is_refused(spark: Any, broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    writer = spark.range(1).selectExpr("string(id) value").write.format("kohort").mode("append")
    for name, value in options(broker, new_topic()).items():
        writer = writer.option(name, value)
    with pytest.raises(Exception, match="exactlyOnce is for writeStream"):
        writer.save()
