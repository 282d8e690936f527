"""Counting without reading: by headers always, by offsets where a user vouches for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort.spark
from kohort import Admin, Producer, TopicPartition
from kohort.broker.running import running
from kohort.spark.executor import range_reader
from kohort.spark.options import OptionError
from kohort.spark.ranges import DataLoss
from kohort.spark.source import KohortDataSource
from kohort.wire.records.batch import BatchRecord, ControlKind, encode_batch, encode_control_batch
from tests.clients.process import BrokerProcess
from tests.spark.reading import options_for

WAYS = ["headers", "offsets"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running() as broker:
        yield broker.bootstrap_servers
        range_reader.close_sessions()


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    """Three partitions of 300 records in batches of any size, the first 50 deleted in partition 2."""
    chance = random.Random(1)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("counted", 3)
        for codec in ("none", "lz4"):
            with Producer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=100) as producer:
                for n in range(450):
                    producer.send(
                        "counted", value=b"v" * chance.randrange(40), partition=n % 3, timestamp_ms=1000 + n
                    )
                    if chance.random() < 0.05:
                        producer.flush()
        admin.delete_records({TopicPartition("counted", 2): 50})
    return "counted"


def counted(bootstrap: str, topic: str, how: str, **given: Any) -> int:
    """What a job of Spark does, without a Spark."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "count": how}
    source = KohortDataSource({**options, **{name.lower(): str(value) for name, value in given.items()}})
    reader = source.reader(source.schema())
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]  # type: ignore[union-attr]
    return sum(row["records"] for row in rows)


@pytest.mark.parametrize("how", WAYS)
def test_all_and_parts(bootstrap: str, topic: str, how: str) -> None:
    assert counted(bootstrap, topic, how) == 850
    assert counted(bootstrap, topic, how, minPartitions=17) == 850
    assert counted(bootstrap, topic, how, where="partition < 2 and offset between 7 and 113") == 2 * 107
    assert counted(bootstrap, topic, how, where="offset in (3, 5, 60)") == 2 * 3 + 1
    start = f'{{"{topic}":{{"0":299,"1":0,"2":100}}}}'
    assert counted(bootstrap, topic, how, startingOffsets=start) == 1 + 300 + 200
    assert counted(bootstrap, topic, how, where="offset > 1000") == 0


def test_times_are_counted_record_by_record(bootstrap: str, topic: str) -> None:
    assert counted(bootstrap, topic, "headers", where="timestamp < 1003 and partition < 2") == 4
    with pytest.raises(OptionError, match="use count=headers"):
        counted(bootstrap, topic, "offsets", where="timestamp < 1003")


@pytest.mark.parametrize("how", WAYS)
def test_a_loss_is_one_for_counts_too(bootstrap: str, topic: str, how: str) -> None:
    start = f'{{"{topic}":{{"0":0,"1":0,"2":10}}}}'
    with pytest.raises(DataLoss, match=r"\[10, "):
        counted(bootstrap, topic, how, startingOffsets=start)


def test_options_that_do_not_go_with_it(bootstrap: str, topic: str) -> None:
    with pytest.raises(OptionError, match="count is headers or offsets, not 'guess'"):
        counted(bootstrap, topic, "guess")
    with pytest.raises(OptionError, match="count is for batches"):
        options_for(bootstrap, topic, streaming=True, count="headers")
    with pytest.raises(OptionError, match="write the condition as the option where"):
        counted(bootstrap, topic, "headers", filterPushdown=True)


def test_a_compacted_topic_is_not_counted_by_offsets(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("tables", 1, configs={"cleanup.policy": "compact,delete"})
    assert counted(bootstrap, "tables", "headers") == 0
    with pytest.raises(OptionError, match="topic 'tables' is compacted"):
        counted(bootstrap, "tables", "offsets")


def test_transactions_are_counted_by_headers_and_refused_by_offsets(tmp_path: Path) -> None:
    """A broker that starts with a log in which transactions of Kafka are."""
    with running(tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", value=b"0")
    (tmp_path / "clean-stop").unlink()  # so that the next start looks at what is there
    records = [BatchRecord(n, 1000, None, b"v", []) for n in range(4)]
    producer_of = {"producer_id": 1, "producer_epoch": 0}
    data = encode_batch(records) + encode_batch(
        [record._replace(offset=4 + record.offset) for record in records],
        base_offset=4,
        transactional=True,
        **producer_of,
    )
    data += encode_control_batch(ControlKind.COMMIT, timestamp=1000, base_offset=8, **producer_of)
    for file in (tmp_path / "orders-0").iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(data)
    with running(tmp_path) as broker:
        assert counted(broker.bootstrap_servers, "orders", "headers") == 8
        with pytest.raises(ValueError, match=r"orders-0 has offsets without records near 8.*count=headers"):
            counted(broker.bootstrap_servers, "orders", "offsets")
        range_reader.close_sessions()


def test_with_spark(spark: Any, read: Any, new_topic: Any, produce: Any, broker: BrokerProcess) -> None:
    topic = new_topic(partitions=2)
    produce(topic, range(30), partition=0)
    produce(topic, range(12), partition=1)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    assert kohort.spark.count(spark, options) == 42
    assert kohort.spark.count(spark, options, from_offsets=True) == 42
    frame = read(subscribe=topic, count="headers")
    assert sorted((row.topic, row.partition, row.records) for row in frame.collect()) == [
        (topic, 0, 30),
        (topic, 1, 12),
    ]
