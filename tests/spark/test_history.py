"""`group-history` with a real Spark and a real broker: what groups did is in the tables and in the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, Consumer, Producer
from kohort.spark.history.extract import TABLES, group_history, read_table
from kohort.spark.history.report import file_name
from kohort.spark.pipelines.definition import STREAM
from tests.clients.process import BrokerProcess

PNG = b"\x89PNG"


class History:
    """The pipeline over what is there; each run goes on from the checkpoint."""

    def __init__(self, spark: Any, bootstrap: str, out: Path) -> None:
        self.spark, self.out = spark, out
        self._parameters = {"out": str(out), "bootstrap": bootstrap}
        self._pipeline = group_history()

    def run(self, *more_topics: str) -> None:
        pipeline, bootstrap = self._pipeline, self._parameters["bootstrap"]
        stream = (
            self.spark.readStream.format("kohort")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", ",".join((*pipeline.streams[STREAM], *more_topics)))
            .options(**pipeline.options)
            .load()
        )
        writer = pipeline.make({STREAM: stream}, self._parameters, bootstrap)
        query = (
            writer.option("checkpointLocation", str(self.out / "_checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    def finish(self) -> None:
        assert self._pipeline.finish is not None
        self._pipeline.finish(self.spark, self._parameters)

    def rows(self, name: str, group: str) -> list[Any]:
        found: list[Any] = read_table(self.spark, self.out, name).where(f"group_id = '{group}'").collect()
        return found


@pytest.fixture
def history(spark: Any, broker: BrokerProcess, tmp_path: Path) -> History:
    return History(spark, broker.bootstrap_servers, tmp_path / "history")


def consume(broker: BrokerProcess, group: str, topic: str, count: int, client_id: str) -> None:
    """One member that reads so many records, commits and leaves."""
    settings = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "client.id": client_id,
        "max.poll.records": count,
    }
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as consumer:
        consumer.subscribe([topic])
        left = count
        while left > 0:
            left -= sum(len(records) for records in consumer.poll(10, max_records=left).values())
        consumer.commit()


def test_what_groups_did_is_in_the_tables_and_in_the_report(
    spark: Any, broker: BrokerProcess, admin: Admin, new_topic: Callable[..., str], new_name: Callable[[str], str],
    produce: Callable[..., None], history: History,
) -> None:  # fmt: skip
    topic, group, gone = new_topic(partitions=2), new_name("group/ü"), new_name("gone")
    produce(topic, range(6), partition=0)
    produce(topic, range(4), partition=1)
    consume(broker, group, topic, 10, "first")
    produce(topic, range(5), partition=1)
    consume(broker, gone, topic, 3, "first")
    admin.delete_groups(gone)
    # A broker lets nobody write into its own topic: what is wrong in it comes from another.
    strange = new_topic()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(strange, value=b"\0\7nonsense", key=b"\0\1\0\3bad")
        producer.send(strange, value=b"\0\0of a share group", key=b"\0\x0b\0\1g")

    history.run(strange)
    history.finish()
    out = history.out
    tables = {name: history.rows(name, group) for name in TABLES}

    committed = {(row.topic, row.partition): row.committed_offset for row in tables["commits"]}
    assert committed == {(topic, 0): 6, (topic, 1): 4}
    assert any(row.is_deleted for row in history.rows("generations", gone))

    owned = {(row.topic, row.partition, row.client_id) for row in tables["memberships"]}
    assert owned == {(topic, 0, "first"), (topic, 1, "first")}
    assert all(row.from_at < row.until_at for row in tables["memberships"])  # the member has left

    first = min(tables["rebalances"], key=lambda row: row.generation)
    assert (first.generation, first.members, sorted(first.moved)) == (1, 1, [f"{topic}-0", f"{topic}-1"])
    assert first.join_ms is not None  # Kohort's own history knows it
    assert first.sync_ms is not None
    assert first.reason

    last = {row.partition: row for row in sorted(tables["lag"], key=lambda row: row.at)}
    assert (last[0].lag, last[0].log_end_offset) == (0, 6)
    assert (last[1].lag, last[1].log_end_offset) == (5, 9)

    aside = {(row.kind, row.key_version): row.problem for row in read_table(spark, out, "aside").collect()}
    assert ("bad", 1) in aside
    assert aside["unknown", 11] == "a record ShareGroupMetadata of a share group"

    report = out / "report"
    for kind in ("lag", "rebalances", "owners"):
        assert (report / f"{kind}-{file_name(group)}.png").read_bytes().startswith(PNG)
    page = (report / "index.html").read_text()
    assert group in page
    assert page.count("data:image/png;base64,") >= 3
    assert not re.search(r"(src|href)=[\"']?http", page)  # it opens offline

    # A second run goes on where the first ended, and what was there is there once.
    produce(topic, range(1), partition=0)
    consume(broker, group, topic, 1, "second")
    history.run(strange)
    again = history.rows("commits", group)
    assert len(again) == len({(row.log_partition, row.log_offset) for row in again}) > len(tables["commits"])


def test_a_cluster_without_groups_has_empty_tables_and_a_report(spark: Any, tmp_path: Path) -> None:
    from kohort.broker.running import running
    from kohort.spark.history.extract import derive
    from kohort.spark.history.report import write_report

    with running() as empty:
        derive(spark, tmp_path, {"bootstrap.servers": empty.bootstrap_servers})
    assert read_table(spark, tmp_path, "lag").count() == 0
    assert "0 groups" in write_report(tmp_path).read_text()
