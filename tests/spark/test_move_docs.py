"""docs/move-from-spark-kafka.md and small examples of other pages about Spark: run as they stand there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kohort.spark.formats.format_options import READ_OPTIONS
from kohort.spark.option_table import SINK_OPTIONS, SOURCE_OPTIONS, SOURCE_TABLE
from kohort.spark.options import read_source_options
from tests.clients.process import BrokerProcess
from tests.docs.pages import ADDRESS, DOCS, blocks_of, tables_of

PAGE = DOCS / "move-from-spark-kafka.md"
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_the_examples_read_the_topic(
    spark: Any, broker: BrokerProcess, new_topic: Any, produce: Any, admin: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(topic, range(5))
    names: dict[str, Any] = {}
    for block in (each for each in blocks_of(PAGE) if each.language == "python"):
        text = block.text.replace(ADDRESS, broker.bootstrap_servers).replace('"orders"', f'"{topic}"')
        names = {"spark": spark}
        exec(text.replace("orders-etl", f"{topic}-etl"), names)
        assert names["orders"].columns == COLUMNS
    out, writer = (
        str(tmp_path / "out"),
        names["orders"].writeStream.format("parquet").trigger(availableNow=True),
    )
    assert writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(out).awaitTermination(300)
    assert spark.read.parquet(out).count() == 5
    assert [at.offset for at in admin.group_offsets(f"{topic}-etl").values()] == [5]


def test_every_option_of_the_table_is_there() -> None:
    (rows,) = [table[1:] for heading, table in tables_of(PAGE) if heading == "Options"]
    ours = {row[1].strip("`") for row in rows}
    assert {name for name in ours if not name.startswith("kafka.")} <= {*SOURCE_OPTIONS, *SINK_OPTIONS}
    named = {each.name for each in SOURCE_TABLE} - {"topic"}
    assert named <= ours, "an option of the source is missing on the page"


def test_defaults_of_the_tables_are_those_of_the_code() -> None:
    given = {"kafka.bootstrap.servers": ADDRESS, "subscribe": "orders"}
    plain = read_source_options(given, streaming=False)
    named = {each.name: each.default for each in SOURCE_TABLE}
    fixed = ("failOnDataLoss", "failOnCommitError", "includeHeaders", "groupIdPrefix", "maxTriggerDelay",
             "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
             "timestampsInOrder", "filterPushdown", "startingOffsetsByTimestampStrategy", "endingOffsets")  # fmt: skip
    assert read_source_options({**given, **{name: named[name] for name in fixed}}, streaming=False) == plain
    assert set(named) & set(READ_OPTIONS) == set()


def test_the_source_is_registered_as_for_databricks(spark: Any) -> None:
    (block,) = [each for each in blocks_of(DOCS / "spark-clusters.md") if "dataSource.register" in each.text]
    exec(block.text, {"spark": spark})


def test_the_function_of_an_idempotent_sink_is_python(spark: Any) -> None:
    """Its MERGE needs a table format; what is checked is that it hands the batch to SQL under the name that it uses."""
    (block,) = [each for each in blocks_of(DOCS / "spark.md") if "def upsert" in each.text]
    names: dict[str, Any] = {}
    exec(block.text.replace('"MERGE INTO orders USING new', '"SELECT 1 FROM new --'), names)
    names["upsert"](spark.range(3), 0)
    assert spark.sql("SELECT * FROM new").count() == 3
