"""`format("kohort")` beside Spark's own `format("kafka")`: the same answers, and one checkpoint for both."""

from __future__ import annotations

import itertools
import os
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks import outside, targets

from kohort import Admin, Producer
from kohort.spark.java import use_java
from tests.clients.process import eventually
from tests.interop.apache_kafka import ApacheKafka

pytestmark = pytest.mark.interop

FORMATS = ("kafka", "kohort")
NOW = {"availableNow": True}
CONFIGURATION = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}
FIRST_MS = 1_700_000_000_000
SIZES = (100, 37, 3)  # records of the partitions; one comes every second in each


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark with its own connector; ours it finds by itself."""
    jars = outside.connector_jars()
    use_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    end_java()
    builder = SparkSession.builder.master("local[2]").appName("kohort interop")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    session = builder.config("spark.jars", ",".join(map(str, jars))).getOrCreate()
    yield session
    end_java()


def end_java() -> None:
    """Ends the Java of this process, if a test before has started one: its class path has no connector."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def kohort_bootstrap(start_broker: Callable[..., targets.Target]) -> str:
    return start_broker("durability=os", "group.initial.rebalance.delay.ms=0").address


@pytest.fixture(params=["kohort", "kafka"])
def anywhere(request: pytest.FixtureRequest) -> str:
    """The address of a Kohort, and of an Apache Kafka."""
    if request.param == "kohort":
        return str(request.getfixturevalue("kohort_bootstrap"))
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap_servers


_names = itertools.count()


def new_topic(bootstrap: str, partitions: int, stem: str = "exchange") -> str:
    topic = f"{stem}-{uuid.uuid4().hex[:8]}-{next(_names)}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, partitions, configs={"retention.ms": -1})
    return topic


def produce(bootstrap: str, topic: str, numbers: range, partition: int) -> None:
    with Producer(bootstrap_servers=bootstrap, compression_type="lz4") as producer:
        for number in numbers:
            producer.send(topic, value=b"%d" % number, partition=partition)
        producer.flush()


# --- one checkpoint -----------------------------------------------------------------------------------


class Job:
    """A query from a topic into Parquet, which goes on with either format."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, folder: Path) -> None:
        self._spark, self._bootstrap, self._topic = spark, bootstrap, topic
        self._out, self.checkpoint = str(folder / "out"), folder / "checkpoint"

    def start(self, kind: str, trigger: dict[str, Any], **options: Any) -> Any:
        reader = self._spark.readStream.format(kind).option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.option("subscribe", self._topic).option("startingOffsets", "earliest")
        if kind == "kohort":
            reader = reader.option("kafka.group.id", f"{self._topic}-etl")
        for name, value in options.items():
            reader = reader.option(name, value)
        rows = reader.load().selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        writer = rows.writeStream.format("parquet").option("path", self._out)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def run(self, kind: str, **options: Any) -> None:
        query = self.start(kind, NOW, **options)
        assert query.awaitTermination(120)
        assert query.exception() is None

    def rows(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) was written."""
        frame = self._spark.read.parquet(self._out).select("partition", "offset")
        return Counter((row.partition, row.offset) for row in frame.collect())

    def offsets(self) -> list[str]:
        files = [path for path in (self.checkpoint / "offsets").iterdir() if path.name.isdigit()]
        return [path.read_text().splitlines()[2] for path in sorted(files, key=lambda path: int(path.name))]


def once(*sizes: int) -> Counter[tuple[int, int]]:
    return Counter({(partition, offset): 1 for partition, size in enumerate(sizes) for offset in range(size)})


@pytest.mark.parametrize("order", [("kafka", "kohort", "kafka"), ("kohort", "kafka", "kohort")])
def test_a_query_moves_from_one_format_to_the_other_and_back(
    spark: Any, anywhere: str, order: tuple[str, ...], tmp_path: Path
) -> None:
    topic = new_topic(anywhere, 2)
    job = Job(spark, anywhere, topic, tmp_path)
    sizes = [0, 0]
    for turn, kind in enumerate(order):
        for partition, more in enumerate((40, 7)):
            produce(anywhere, topic, range(sizes[partition], sizes[partition] + more), partition)
            sizes[partition] += more
        job.run(kind, maxOffsetsPerTrigger=30)
        assert job.rows() == once(*sizes), f"after {' then '.join(order[: turn + 1])}"
        assert job.offsets()[-1] == f'{{"{topic}":{{"0":{sizes[0]},"1":{sizes[1]}}}}}'
    batches = len(job.offsets())
    for kind in FORMATS:  # nothing is new: neither takes the other's offsets for a change
        job.run(kind)
    assert len(job.offsets()) == batches
    assert job.rows() == once(*sizes)


def test_a_query_that_was_stopped_under_load_goes_on_with_the_other_format(
    spark: Any, kohort_bootstrap: str, tmp_path: Path
) -> None:
    topic = new_topic(kohort_bootstrap, 2)
    for partition in range(2):
        produce(kohort_bootstrap, topic, range(1500), partition)
    job = Job(spark, kohort_bootstrap, topic, tmp_path)
    for turn in range(6):
        before = len(job.offsets()) if turn else 0
        query = job.start(FORMATS[turn % 2], {"processingTime": "0 seconds"}, maxOffsetsPerTrigger=100)

        def has_moved(before: int = before, query: Any = query) -> bool:
            assert query.exception() is None
            return (job.checkpoint / "offsets").exists() and len(job.offsets()) > before + 1

        eventually(has_moved, "some batches are begun", 60)
        query.stop()  # in the middle of one, most likely
    job.run("kohort")
    assert job.rows() == once(1500, 1500)


def test_partitions_that_appear_between_the_two(spark: Any, kohort_bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(kohort_bootstrap, 1)
    job = Job(spark, kohort_bootstrap, topic, tmp_path)
    produce(kohort_bootstrap, topic, range(5), 0)
    job.run("kafka")
    with Admin(bootstrap_servers=kohort_bootstrap) as admin:
        admin.create_partitions({topic: 3})
    produce(kohort_bootstrap, topic, range(4), 1)
    job.run("kohort")
    produce(kohort_bootstrap, topic, range(3), 2)
    job.run("kafka")
    assert job.rows() == once(5, 4, 3)


# --- the same answers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled() -> dict[str, str]:
    """By address: a topic with records of many kinds."""
    return {}


def topic_with_records(bootstrap: str, filled: dict[str, str]) -> str:
    if bootstrap in filled:
        return filled[bootstrap]
    filled[bootstrap] = topic = new_topic(bootstrap, len(SIZES), "answers")
    with Producer(bootstrap_servers=bootstrap, compression_type="zstd") as producer:
        for partition, size in enumerate(SIZES):
            for number in range(size):
                producer.send(
                    topic,
                    value=None if number % 7 == 3 else b"v%d" % number,
                    key=(None, b"", b"k%d" % number)[number % 3],
                    partition=partition,
                    timestamp_ms=FIRST_MS + number * 1000,
                    headers=[("a", b"1"), ("a", None), ("", b"")][: number % 4],
                )
        producer.flush()
    return topic


def at(topic: str, *values: int) -> str:
    inside = ",".join(f'"{partition}":{value}' for partition, value in enumerate(values))
    return f'{{"{topic}":{{{inside}}}}}'


CASES: dict[str, Callable[[str], dict[str, Any]]] = {
    "everything": lambda topic: {"subscribe": topic},
    "offsets": lambda topic: {
        "subscribe": topic,
        "startingOffsets": at(topic, 10, -2, 3),
        "endingOffsets": at(topic, 60, 20, -1),
    },
    "a pattern": lambda topic: {"subscribePattern": topic[3:]},
    "no topic matches": lambda topic: {"subscribePattern": "^" + topic[3:]},
    "some partitions": lambda topic: {"assign": f'{{"{topic}":[0,2]}}'},
    "one time": lambda topic: {
        "subscribe": topic,
        "startingTimestamp": FIRST_MS + 1500,
        "endingTimestamp": FIRST_MS + 30_000,
    },
    "times of partitions": lambda topic: {
        "subscribe": topic,
        "startingOffsetsByTimestamp": at(topic, FIRST_MS + 50_000, FIRST_MS + 5_000, FIRST_MS),
        "endingOffsetsByTimestamp": at(topic, FIRST_MS + 70_000, FIRST_MS + 9_000_000, FIRST_MS + 1),
    },
    "later than all": lambda topic: {
        "subscribe": topic,
        "startingTimestamp": FIRST_MS + 20_000,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "five tasks": lambda topic: {"subscribe": topic, "minPartitions": 5},
    "twenty tasks": lambda topic: {"subscribe": topic, "minPartitions": 20},
    "small tasks": lambda topic: {"subscribe": topic, "minPartitions": 4, "maxRecordsPerPartition": 30},
    "nothing": lambda topic: {
        "subscribe": topic,
        "startingOffsets": at(topic, 5, 5, 3),
        "endingOffsets": at(topic, 5, 5, 3),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_both_formats_give_the_same_rows_in_the_same_tasks(
    spark: Any, anywhere: str, filled: dict[str, str], case: str
) -> None:
    options = CASES[case](topic_with_records(anywhere, filled))
    answers = []
    for kind in FORMATS:
        reader = spark.read.format(kind).option("kafka.bootstrap.servers", anywhere)
        reader = reader.option("includeHeaders", "true")
        for name, value in options.items():
            reader = reader.option(name, value)
        frame = reader.load()
        rows = sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))
        answers.append((frame.schema, frame.rdd.getNumPartitions(), rows))
    (schema, tasks, rows), (our_schema, our_tasks, our_rows) = answers
    assert our_schema == schema
    assert our_rows == rows
    assert our_tasks == max(tasks, 1)  # Spark gives a Python source one task that reads nothing


@pytest.fixture(scope="module")
def with_transactions(apache_kafka: ApacheKafka) -> str:
    """A topic with transactions that were committed and aborted, one after the other and at the same time."""
    from confluent_kafka import Producer as Transactional

    topic = new_topic(apache_kafka.bootstrap_servers, 1, "transactions")
    producers = [
        Transactional(
            {"bootstrap.servers": apache_kafka.bootstrap_servers, "transactional.id": f"{topic}-{name}"}
        )
        for name in "ab"
    ]
    for producer in producers:
        producer.init_transactions(30)

    def write(number: int, producer: Any) -> None:
        for each in range(20):
            producer.produce(topic, b"%d-%d" % (number, each), partition=0)
        producer.flush(30)

    for number in range(6):
        first, second = producers
        first.begin_transaction()
        second.begin_transaction()
        write(number, first)
        write(number + 100, second)
        write(number, first)
        for producer, commits in ((first, number % 2), (second, number % 3)):
            (producer.commit_transaction if commits else producer.abort_transaction)(30)
    return topic


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_formats_see_the_same_of_transactions(
    spark: Any, apache_kafka: ApacheKafka, with_transactions: str, isolation: str, tmp_path: Path
) -> None:
    answers = []
    for kind in FORMATS:
        options = {
            "kafka.bootstrap.servers": apache_kafka.bootstrap_servers,
            "subscribe": with_transactions,
            "kafka.isolation.level": isolation,
        }
        batch = spark.read.format(kind).options(**options).load().select("offset", "value")
        stream = spark.readStream.format(kind).options(**options).option("startingOffsets", "earliest")
        into = str(tmp_path / kind)
        writer = stream.option("maxOffsetsPerTrigger", 37).load().select("offset", "value").writeStream
        query = writer.format("parquet").option("checkpointLocation", f"{into}-checkpoint")
        query.trigger(**NOW).start(into).awaitTermination(120)
        answers.append([sorted(map(tuple, frame.collect())) for frame in (batch, spark.read.parquet(into))])
    assert answers[0] == answers[1]
    batch, streamed = answers[1]
    assert batch == streamed
    committed = 3 * 40 + 4 * 20
    assert len(batch) == (committed if isolation == "read_committed" else 6 * 60)


REFUSED: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    "too few offsets": (
        lambda topic: {"subscribe": topic, "startingOffsets": at(topic, 1)},
        "don't match what are assigned",
    ),
    "end before start": (
        lambda topic: {
            "subscribe": topic,
            "startingOffsets": at(topic, 8, 0, 0),
            "endingOffsets": at(topic, 3, 1, 1),
        },
        "The specified start offset 8 is greater than the end offset 3 for topic",
    ),
    "latest as the start": (
        lambda topic: {"subscribe": topic, "startingOffsets": "latest"},
        "starting offset can't be latest for batch queries on Kafka",
    ),
    "two ways to say it": (
        lambda topic: {"subscribe": topic, "subscribePattern": topic},
        "Only one of the following options can be specified for Kafka source",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("kind", FORMATS)
def test_both_formats_refuse_with_the_same_words(
    spark: Any, kohort_bootstrap: str, filled: dict[str, str], kind: str, case: str
) -> None:
    options, words = REFUSED[case]
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", kohort_bootstrap)
    for name, value in options(topic_with_records(kohort_bootstrap, filled)).items():
        reader = reader.option(name, value)
    with pytest.raises(Exception) as refused:  # noqa: PT011 the class depends on where Spark notices it
        reader.load().collect()
    assert words in str(refused.value)


def test_both_sinks_put_a_key_into_the_same_partition(spark: Any, anywhere: str) -> None:
    found = []
    for kind in FORMATS:
        topic = new_topic(anywhere, 5, "sink")
        rows = spark.range(200).selectExpr(
            "CAST(id AS STRING) AS key",
            "IF(id % 9 = 0, NULL, concat('value ', id)) AS value",
            "IF(id % 3 = 0, NULL, array(named_struct('key', 'h', 'value', CAST('x' AS BINARY)))) AS headers",
        )
        writer = rows.write.format(kind).mode("append").option("kafka.bootstrap.servers", anywhere)
        writer.option("topic", topic).save()
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", anywhere)
        frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        found.append(sorted(map(str, frame.select("key", "value", "partition", "headers").collect())))
    assert len(found[0]) == 200
    assert found[0] == found[1]
