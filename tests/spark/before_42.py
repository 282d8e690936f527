"""What is different with PySpark 4.0 and 4.1: limits, AvailableNow, lag. `make interop` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin
from kohort.spark import lag
from kohort.spark.driver.query_lag import LagUnknown
from kohort.spark.pyspark_api import session_settings
from tests.spark.test_streams import (
    LONG_SESSION,
    NOW,
    Sink,
    arrives,
    committed,
    ended,
    is_left,
    offsets_in,
    stream,
)

__all__ = ["stream"]  # the fixture

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@pytest.fixture
def wrapper(spark: Any) -> Iterator[None]:
    """As in a session with the settings that Kohort gives it, and as docs/spark-versions.md says."""
    assert session_settings()[WRAPPER] == "true"
    page = (Path(__file__).parents[2] / "docs" / "spark-versions.md").read_text("utf-8")
    (line,) = [line.strip() for line in page.splitlines() if WRAPPER in line and "conf.set" in line]
    exec(line, {"spark": spark})
    assert spark.conf.get(WRAPPER) == "true"
    yield
    spark.conf.unset(WRAPPER)


@pytest.mark.usefixtures("wrapper")
def test_available_now_reads_what_is_there_and_commits_it(
    stream: Any, new_topic: Any, produce: Any, checkpoint: str, admin: Admin, new_name: Any
) -> None:
    topic, group, sink = new_topic(partitions=2), new_name("group"), Sink()
    produce(topic, range(12), partition=0)
    produce(topic, range(12, 15), partition=1)
    given = {"subscribe": topic, "kafka__group__id": group, "startingOffsets": "earliest", **LONG_SESSION}
    ended(stream(sink, NOW, **given))
    assert sink.all == list(range(15))
    is_left(admin, group)
    assert committed(admin, group) == {0: 12, 1: 3}
    produce(topic, range(15, 20), partition=1)
    ended(stream(sink, NOW, **{**given, "startingOffsets": "latest"}))
    assert sink.all == list(range(20))
    is_left(admin, group)
    assert committed(admin, group) == {0: 12, 1: 8}
    ended(stream(sink, NOW, **given))
    assert len(offsets_in(checkpoint)) == 2  # a query with nothing to read writes nothing


def test_without_the_wrapper_the_next_run_commits(
    stream: Any, new_topic: Any, produce: Any, admin: Admin, new_name: Any
) -> None:
    topic, group, sink = new_topic(), new_name("group"), Sink()
    produce(topic, range(15))
    given = {"subscribe": topic, "kafka__group__id": group, "startingOffsets": "earliest", **LONG_SESSION}
    ended(stream(sink, NOW, maxOffsetsPerTrigger=10, **given))
    assert sink.sizes == [10]  # one micro-batch, with the limit that was given
    is_left(admin, group)
    assert committed(admin, group) == {0: 0}
    ended(stream(sink, NOW, **given))
    assert sink.sizes == [10, 5]
    is_left(admin, group)
    assert committed(admin, group) == {0: 10}
    ended(stream(sink, {"once": True}, **given))
    assert sink.all == list(range(15))
    is_left(admin, group)
    assert committed(admin, group) == {0: 15}


def test_a_running_query_keeps_to_its_limit(
    stream: Any, new_topic: Any, produce: Any, checkpoint: str, admin: Admin, new_name: Any
) -> None:
    topic, group, sink = new_topic(), new_name("group"), Sink()
    produce(topic, range(25))
    given = {"subscribe": topic, "kafka__group__id": group, "startingOffsets": "earliest", **LONG_SESSION}
    query = stream(sink, maxOffsetsPerTrigger=10, **given)
    arrives(query, lambda: committed(admin, group) == {0: 25}, "everything is read and committed")
    query.stop()
    is_left(admin, group)
    produce(topic, range(25, 40))
    query = stream(sink, maxOffsetsPerTrigger=10, **given)
    arrives(query, lambda: committed(admin, group) == {0: 40}, "the next run goes on")
    assert sink.sizes == [10, 10, 5, 10, 5]
    assert sink.all == list(range(40))
    assert offsets_in(checkpoint)[-1] == f'{{"{topic}":{{"0":40}}}}'
    with pytest.raises(LagUnknown, match=r"PySpark 4\.[01]\.\d+ does not report"):
        lag(query)
