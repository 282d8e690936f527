"""docs/spark.md: the examples of its first steps are run as they stand there."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import kohort.spark
from kohort.spark.sessions import PUSHDOWN, prepare
from tests.clients.process import BrokerProcess
from tests.test_readme import ROOT, blocks

PAGE = (ROOT / "docs" / "spark.md").read_text("utf-8")


def example(*words: str) -> str:
    (found,) = [text for text in blocks(PAGE, "python") if all(word in text for word in words)]
    return found


def test_the_first_example_reads_a_topic_into_files(
    spark: Any, broker: BrokerProcess, new_topic: Any, produce: Any, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    text = example("import kohort.spark", "orders = (")
    for word, here in {
        '"127.0.0.1:9092"': f'"{broker.bootstrap_servers}"',
        '"subscribe", "orders"': f'"subscribe", "{topic}"',
        '"orders-etl"': f'"{topic}-etl"',
        '"out"': f'"{tmp_path}/out"',
        '"checkpoint"': f'"{tmp_path}/checkpoint"',
    }.items():
        assert text.count(word) == 1, word
        text = text.replace(word, here)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", kohort.spark.advice.SparkSetupWarning)
        exec(text, names)
    query = names["query"]
    try:
        query.processAllAvailable()
        produce(topic, range(10))
        query.processAllAvailable()
        rows = spark.read.parquet(f"{tmp_path}/out")
        assert sorted(int(row.value) for row in rows.select("value").collect()) == list(range(10))
    finally:
        query.stop()


def test_the_ways_to_make_a_session_work(spark: Any) -> None:
    names: dict[str, Any] = {"kohort": kohort}
    with pytest.warns(
        kohort.spark.advice.SparkSetupWarning
    ):  # another master and memory than the one that runs
        exec(example("spark_driver_memory"), names)
    assert names["spark"].conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_table_names_everything_that_a_local_session_gets() -> None:
    environ = {"PATH": "/usr/bin:/bin"}
    settings = prepare("local[*]", {}, environ)
    settings.pop("spark.ui.showConsoleProgress")  # the bars that Spark draws over other output
    section = PAGE.partition("## The session")[2].partition("## From")[0]
    for name in [*settings, *environ]:
        assert f"`{name}`" in section or name == "PATH", name
    assert PUSHDOWN in settings
