"""What an executor makes of a range: rows as Spark's connector gives them, without a Spark."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer

import kohort.spark.executor.range_reader as range_reader
import kohort.spark.executor.rows as arrow_rows
from kohort import Admin, Producer, TopicPartition
from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.spark.executor.rows import schema_of
from kohort.spark.ranges import DataLoss
from kohort.wire.records.batch import BatchRecord, encode_batch, read_header
from kohort.wire.records.buffer_pool import BufferPool
from kohort.wire.records.columns import prefer
from tests.broker.peer import PATIENCE_S, fetch
from tests.spark.reading import PLAIN, fill, leader_of, options_for, range_of, rows_of


@pytest.fixture(scope="module")
def broker_here() -> Iterator[running]:
    with running() as broker:
        yield broker
        range_reader.close_sessions()


@pytest.fixture(scope="module")
def bootstrap(broker_here: running) -> str:
    return broker_here.bootstrap_servers


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as client:
        yield client


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest, counter: Iterator[int] = itertools.count()) -> str:  # noqa: B008
    name = f"t{next(counter)}"
    admin.create_topic(name, 1)
    return name


@pytest.fixture(params=["python", "numba"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways of decoding; the worker asks the environment."""
    monkeypatch.setenv("KOHORT_KERNEL", request.param)
    range_reader.close_sessions()
    yield request.param
    range_reader.close_sessions()
    prefer("")


def values(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["value"]) for row in rows]


# --- records ------------------------------------------------------------------------------------------


def test_all_columns(bootstrap: str, topic: str, kernel: str) -> None:
    now_ms = int(time.time() * 1000)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(
            topic, value=b"v", key=b"k", timestamp_ms=now_ms, headers=[("a", b"1"), ("", None), ("a", b"")]
        )
        producer.send(topic, value=b"", key=b"", timestamp_ms=now_ms + 1)
        producer.send(topic, value=None, timestamp_ms=now_ms + 2)
    rows = rows_of(options_for(bootstrap, topic), range_of(topic, 0, 3), (*PLAIN, "headers"))
    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b"v"), (b"", b""), (None, None)]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (topic, 0, n) for n in range(3)
    ]
    assert [int(row["timestamp"].timestamp() * 1000 + 0.5) - now_ms for row in rows] == [0, 1, 2]
    assert {row["timestampType"] for row in rows} == {0}
    pairs = [{"key": "a", "value": b"1"}, {"key": "", "value": None}, {"key": "a", "value": b""}]
    assert [row["headers"] for row in rows] == [pairs, None, None]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_what_is_committed_alone_is_read_and_counted(
    bootstrap: str, topic: str, kernel: str, level: str
) -> None:
    """Transactions of another client, every other one aborted; no control record is a row."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": topic}
    producer = ConfluentProducer(settings)
    producer.init_transactions(PATIENCE_S)
    committed: list[int] = []
    for number in range(6):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(topic, b"%d" % (10 * number + n), partition=0)
        producer.flush(PATIENCE_S)
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            committed += range(10 * number, 10 * number + 5)
    with BlockingConnection(bootstrap) as connection:
        end = fetch(connection, topic).high_watermark
    options = options_for(bootstrap, topic, kafka__isolation__level=level)
    wanted = range_of(topic, 0, end)
    got = values(rows_of(options, wanted))
    assert set(committed) <= set(got)
    assert (got == committed) == (level == "read_committed")
    reader = range_reader.RangeReader(
        range_reader.session_for(options), wanted, leader_of(options, wanted.partition), options
    )
    assert reader.count() == len(got)


WITHOUT_NUMPY = """
import sys

sys.modules.update(dict.fromkeys(("numpy", "numba")))
from kohort import Admin
from kohort.broker.running import running
from tests.spark.reading import fill, options_for, range_of, rows_of

with running() as broker:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
    fill(broker.bootstrap_servers, "t", range(3))
    rows = rows_of(options_for(broker.bootstrap_servers, "t"), range_of("t", 0, 3))
    print([row["value"] for row in rows])
"""


def test_bytes_are_read_without_numpy_and_numba() -> None:
    """As in a packed environment that leaves numba out, which is large (docs/spark-clusters.md)."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "[b'0', b'1', b'2']\n", done.stderr[-3000:]


def test_the_types_are_those_that_spark_expects() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    from kohort.spark.source import TYPES

    expected = to_arrow_schema(
        StructType([StructField(name, kind) for name, kind in TYPES.items()]), timezone="UTC"
    )
    assert schema_of(tuple(TYPES)).equals(expected)


def test_log_append_time(bootstrap: str, admin: Admin) -> None:
    admin.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
    fill(bootstrap, "stamped", [1])
    rows = rows_of(
        options_for(bootstrap, "stamped"), range_of("stamped", 0, 1), ("timestamp", "timestampType")
    )
    assert rows[0]["timestampType"] == 1
    assert abs(rows[0]["timestamp"].timestamp() - time.time()) < 60


def test_columns_that_are_not_asked_for_are_not_there(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, range(3))
    assert rows_of(options_for(bootstrap, topic), range_of(topic, 0, 3), ("offset",)) == [
        {"offset": n} for n in range(3)
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(bootstrap: str, topic: str, compression: str) -> None:
    fill(bootstrap, topic, range(2000), compression_type=compression, batch_size=2000, max_request_size=2000)
    rows = rows_of(options_for(bootstrap, topic), range_of(topic, 700, 1500))
    assert [(row["offset"], int(row["value"])) for row in rows] == [(n, n) for n in range(700, 1500)]


def test_a_range_that_takes_many_fetches(bootstrap: str, topic: str, kernel: str) -> None:
    fill(
        bootstrap,
        topic,
        [b"x" * 3000 + b"%d" % n for n in range(2000)],
        batch_size=20_000,
        max_request_size=20_000,
    )
    options = options_for(bootstrap, topic, kafka__max__partition__fetch__bytes=100_000)
    rows = rows_of(options, range_of(topic, 1, 1999))
    assert [int(row["value"][3000:]) for row in rows] == list(range(1, 1999))


def test_a_batch_larger_than_a_fetch_comes_whole(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, [b"x" * 500_000, b"y"])
    options = options_for(bootstrap, topic, kafka__max__partition__fetch__bytes=1000)
    assert [len(row["value"]) for row in rows_of(options, range_of(topic, 0, 2))] == [500_000, 1]


def test_little_memory_for_much_data(bootstrap: str, topic: str) -> None:
    """What unpacks to more than a piece may hold comes as several Arrow batches."""
    fill(bootstrap, topic, [b"x" * 900_000] * 60, compression_type="lz4", max_request_size=2 << 20)
    options = options_for(bootstrap, topic)
    leader = _leader(options, topic)
    sizes = [
        batch.nbytes for batch in range_reader.read_range(range_of(topic, 0, 60), leader, options, ("value",))
    ]
    assert sum(sizes) > 50 << 20
    assert max(sizes) <= arrow_rows.LARGEST_PIECE + (2 << 20)


def test_pieces_of_all_sizes_are_gathered_in_memory_that_was_used_before(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = BufferPool(1 << 30)
    monkeypatch.setattr(arrow_rows, "_buffers", kept)
    values = [b"x" * (100_000 + 700 * n) for n in range(300)]
    fill(bootstrap, topic, values, compression_type="lz4", batch_size=500_000, max_request_size=500_000)
    options = options_for(bootstrap, topic)
    wanted, leader = range_of(topic, 0, len(values)), _leader(options, topic)
    sizes = [batch.nbytes for batch in range_reader.read_range(wanted, leader, options, ("value",))]
    assert len(set(sizes)) > 5
    assert len(kept._kept) <= 2


def test_an_empty_range(bootstrap: str, topic: str) -> None:
    assert rows_of(options_for(bootstrap, topic), range_of(topic, 0, 0)) == []


def test_gaps_and_control_batches_are_skipped(
    broker_here: running, bootstrap: str, topic: str, kernel: str
) -> None:
    """What compaction and transactions leave: offsets without a record, also at the end of the range."""

    def batch(*offsets: int, control: bool = False) -> bytearray:
        records = [BatchRecord(offset, 1, None, b"%d" % offset, []) for offset in offsets]
        return encode_batch(records, base_offset=offsets[0], control=control)

    async def append() -> None:
        partition = broker_here.server.broker.store.topics[topic].partitions[0]
        for each in (
            batch(0, 1),
            batch(5, 7, 8),
            batch(20, control=True),
            batch(30, 31),
            batch(40, control=True),
        ):
            partition.append_as_is(memoryview(each), read_header(each), 1)

    broker_here.call(append(), 60)
    options = options_for(bootstrap, topic)
    assert values(rows_of(options, range_of(topic, 0, 41))) == [0, 1, 5, 7, 8, 30, 31]
    assert values(rows_of(options, range_of(topic, 2, 31))) == [5, 7, 8, 30]
    assert rows_of(options, range_of(topic, 9, 30)) == []
    assert rows_of(options, range_of(topic, 35, 41)) == []


# --- loss ---------------------------------------------------------------------------------------------


def test_records_that_are_gone_fail_the_task(bootstrap: str, admin: Admin, topic: str) -> None:
    fill(bootstrap, topic, range(10))
    admin.delete_records({(topic, 0): 4})
    with pytest.raises(
        DataLoss, match=rf"Could not read records in offset \[1, 10\) for topic partition {topic}-0"
    ) as e:
        rows_of(options_for(bootstrap, topic), range_of(topic, 1, 10))
    assert str(e.value).startswith(
        "Some data may have been lost because they are not available in Kafka any more;"
    )


def test_or_what_is_left_is_read(bootstrap: str, admin: Admin, topic: str) -> None:
    fill(bootstrap, topic, range(10))
    admin.delete_records({(topic, 0): 4})
    options = options_for(bootstrap, topic, failOnDataLoss=False)
    assert values(rows_of(options, range_of(topic, 1, 8))) == [4, 5, 6, 7]
    assert rows_of(options, range_of(topic, 1, 3)) == []


def test_an_end_behind_the_log(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, range(10))
    options = options_for(bootstrap, topic, kafkaConsumer__pollTimeoutMs=50)
    with pytest.raises(
        DataLoss, match=r"Could not read records in offset \[10, 25\) .*; the log ends at offset 10"
    ):
        rows_of(options, range_of(topic, 5, 25))
    lenient = options_for(bootstrap, topic, kafkaConsumer__pollTimeoutMs=50, failOnDataLoss=False)
    assert values(rows_of(lenient, range_of(topic, 5, 25))) == [5, 6, 7, 8, 9]


def test_a_topic_made_anew_after_planning_is_not_mistaken_for_the_old_one(
    bootstrap: str, admin: Admin, topic: str
) -> None:
    fill(bootstrap, topic, range(10))
    options = options_for(bootstrap, topic)
    leader = _leader(options, topic)
    admin.delete_topics(topic)
    admin.create_topic(topic, 1)
    fill(bootstrap, topic, range(100, 110))
    with pytest.raises(DataLoss, match="the topic was deleted and made anew"):
        list(range_reader.read_range(range_of(topic, 0, 10), leader, options, PLAIN))


def _leader(options: Any, topic: str) -> Any:
    return leader_of(options, TopicPartition(topic, 0))


# --- brokers that go away -------------------------------------------------------------------------------


def test_connections_are_kept_for_the_next_task(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, range(3))
    options = options_for(bootstrap, topic)
    rows_of(options, range_of(topic, 0, 3))
    session = range_reader.session_for(options)
    rows_of(options, range_of(topic, 0, 3))
    assert range_reader.session_for(options) is session


def test_a_broker_that_restarts_in_the_middle(tmp_path: Any, fresh_port: Callable[[], int]) -> None:
    from tests.clients.process import BrokerProcess

    with BrokerProcess(tmp_path, "durability=disk", port=fresh_port()) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        fill(broker.bootstrap_servers, "t", [b"x" * 3000 + b"%d" % n for n in range(500)])
        options = options_for(broker.bootstrap_servers, "t", kafka__max__partition__fetch__bytes=50_000)
        batches = range_reader.read_range(range_of("t", 0, 500), _leader(options, "t"), options, ("value",))
        rows: list[pa.RecordBatch] = [next(batches)]
        broker.kill()
        broker.restart()
        rows += batches
        got = [int(value[3000:]) for batch in rows for value in batch.column(0).to_pylist()]
        assert got == list(range(500))
