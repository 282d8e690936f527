"""The pipeline `group-history`: turns `__consumer_offsets` of Kohort or Kafka into Parquet tables and a report.

    OUT/commits        one row per commit, or per commit that was deleted
    OUT/generations    one row per record of a group: its members and what they were assigned
    OUT/aside          records of other kinds of groups, and records that cannot be read, with what is wrong with them
    OUT/memberships    who had which partition from when until when
    OUT/rebalances     each new generation, who came and went, how long it took where that is known
    OUT/lag            how far groups were behind, at up to 60 times
    OUT/report         pictures, and index.html with all of them

The first three grow with every batch, in a folder of the batch's number that is replaced when a batch is repeated: so
each record is in them once. The others are derived from these and are written anew at the end.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.types import TopicPartition
from kohort.spark.history.tables import (
    BAD,
    COMMIT,
    COMMIT_DELETED,
    GENERATION,
    GROUP_DELETED,
    UNKNOWN,
    Generation,
    GroupMember,
    as_fields,
    commits_by_partition,
    decode_event,
    lag_rows,
    ownerships,
    rebalances,
    sample_times,
)
from kohort.spark.pipelines.definition import STREAM, Pipeline
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("kohort.spark.history")

NAME = "group-history"
OFFSETS_TOPIC = "__consumer_offsets"
HISTORY_TOPIC = "__kohort_group_history"
"""A topic of Kohort's: it has the reasons of rebalances and how long joins took. Kafka has no such topic."""
SAMPLES = 60
TABLES = ("commits", "generations", "aside", "memberships", "rebalances", "lag")
_FEW = 20_000  # rows that go into one file

MEMBER = (
    "struct<member_id:string,group_instance_id:string,client_id:string,client_host:string,rebalance_timeout_ms:int,"
    "session_timeout_ms:int,assigned:array<struct<topic:string,partition:int>>>"
)
EVENT = (
    "kind string, group_id string, topic string, partition int, committed_offset long, leader_epoch int, "
    "metadata string, committed_ms long, expires_ms long, protocol_type string, generation int, protocol string, "
    f"leader string, state_since_ms long, members array<{MEMBER}>, key_version int, problem string"
)
_WHERE = "written_at timestamp, log_partition int, log_offset long"
SCHEMAS = {
    "commits": (
        "group_id string, topic string, partition int, committed_offset long, leader_epoch int, metadata string, "
        f"committed_at timestamp, expires_at timestamp, is_deleted boolean, {_WHERE}"
    ),
    "generations": (
        "group_id string, generation int, protocol_type string, protocol string, leader string, state_since timestamp, "
        f"members array<{MEMBER}>, is_deleted boolean, {_WHERE}"
    ),
    "aside": f"kind string, problem string, key_version int, group_id string, key binary, value binary, {_WHERE}",
    "memberships": (
        "group_id string, member_id string, group_instance_id string, client_id string, client_host string, "
        "topic string, partition int, from_at timestamp, until_at timestamp, first_generation int, last_generation int"
    ),
    "rebalances": (
        "group_id string, generation_before int, generation int, completed_at timestamp, members int, "
        "came array<string>, went array<string>, moved array<string>, sync_ms long, join_ms long, reason string"
    ),
    "lag": (
        "group_id string, topic string, partition int, at timestamp, committed_offset long, log_end_offset long, "
        "lag long"
    ),
}


def group_history() -> Pipeline:
    """The pipeline. It reads without a group: a member's commits would go into the topic that it reads, for ever."""
    options = {
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "false",
    }
    return Pipeline(
        NAME,
        "built in",
        lambda streams, parameters, bootstrap: _writer(streams[STREAM], Path(parameters["out"])),
        {STREAM: (OFFSETS_TOPIC,)},
        None,
        options,
        {"out": "./group-history"},
        finish=finish,
    )


# --- what grows with every batch ----------------------------------------------------------------------


def _writer(stream: DataFrame, out: Path) -> Any:
    out.mkdir(parents=True, exist_ok=True)

    def write(frame: DataFrame, batch_id: int) -> None:
        write_batch(frame, batch_id, out)

    return stream.writeStream.trigger(processingTime="10 seconds").foreachBatch(write)


def write_batch(frame: DataFrame, batch_id: int, out: Path) -> None:
    """Writes the tables of one batch of records. A batch that is repeated replaces what it wrote before."""
    events = decoded(frame).persist()
    try:
        counts = {row["kind"]: row["count"] for row in events.groupBy("kind").count().collect()}
        for name, kinds in (
            ("commits", (COMMIT, COMMIT_DELETED)),
            ("generations", (GENERATION, GROUP_DELETED)),
            ("aside", (UNKNOWN, BAD)),
        ):
            rows = sum(counts.get(kind, 0) for kind in kinds)
            folder = out / name / f"batch={batch_id:08d}"
            if not rows:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            table = events.where(events["kind"].isin(*kinds)).selectExpr(*_COLUMNS[name])
            (table.coalesce(1) if rows <= _FEW else table).write.mode("overwrite").parquet(str(folder))
        if counts.get(BAD):
            log.warning(
                "batch %d: %d records cannot be read; they are in %s", batch_id, counts[BAD], out / "aside"
            )
    finally:
        events.unpersist()


_PLACE = ("written_at", "log_partition", "log_offset")
_COLUMNS = {
    "commits": (
        "group_id", "topic", "partition", "committed_offset", "leader_epoch", "metadata",
        "coalesce(timestamp_millis(committed_ms), written_at) AS committed_at",
        "timestamp_millis(expires_ms) AS expires_at", f"kind = '{COMMIT_DELETED}' AS is_deleted", *_PLACE,
    ),
    "generations": (
        "group_id", "generation", "protocol_type", "protocol", "leader",
        "timestamp_millis(state_since_ms) AS state_since", "members", f"kind = '{GROUP_DELETED}' AS is_deleted",
        *_PLACE,
    ),
    "aside": ("kind", "problem", "key_version", "group_id", "key", "value", *_PLACE),
}  # fmt: skip


def decoded(frame: DataFrame) -> DataFrame:
    """Records of the topic, with the fields that they decode to."""
    from pyspark.sql.functions import udf

    # Not by way of Arrow, which would need pandas.
    decode = udf(lambda key, value: as_fields(decode_event(key, value)), EVENT, useArrow=False)
    return frame.select(
        decode("key", "value").alias("said"), "key", "value", "timestamp", "partition", "offset"
    ).selectExpr(
        "said.*",
        "key",
        "value",
        "timestamp AS written_at",
        "partition AS log_partition",
        "offset AS log_offset",
    )


# --- derived tables -----------------------------------------------------------------------------------


def finish(spark: SparkSession, parameters: Mapping[str, str]) -> None:
    """Writes the derived tables and the report."""
    from kohort.spark.history.report import write_report

    out = Path(parameters["out"])
    kafka = {name[6:]: value for name, value in parameters.items() if name.startswith("kafka.")}
    settings = {"bootstrap.servers": parameters["bootstrap"], **kafka}
    derive(spark, out, settings)
    write_report(out)


def read_table(spark: SparkSession, out: Path, name: str) -> DataFrame:
    """One of the tables; empty if nothing was written to it yet."""
    folder = out / name
    if not any(folder.rglob("*.parquet")):
        return spark.createDataFrame([], SCHEMAS[name])
    return spark.read.schema(SCHEMAS[name]).parquet(str(folder))


def derive(spark: SparkSession, out: Path, settings: Mapping[str, str]) -> None:
    """Writes memberships, rebalances and lag, which follow from commits and generations."""
    generations = read_table(spark, out, "generations")
    _replace(_memberships(generations), out, "memberships")
    _replace(_with_reasons(spark, _rebalances(generations), settings), out, "rebalances")
    _replace(_lag(spark, read_table(spark, out, "commits"), settings), out, "lag")


def _replace(frame: DataFrame, out: Path, name: str) -> None:
    frame.coalesce(1).write.mode("overwrite").parquet(str(out / name))


def _by_group(generations: DataFrame) -> DataFrame:
    """The records of each group in their order: all of them are in one partition of the topic."""
    return generations.selectExpr(
        "group_id",
        "struct(log_offset, unix_millis(written_at) AS written_ms, generation, protocol, leader, "
        "unix_millis(state_since) AS state_since_ms, members) AS record",
    ).groupBy("group_id").agg({"record": "collect_list"}).selectExpr(
        "group_id", "array_sort(`collect_list(record)`) AS records"
    )  # fmt: skip


def _memberships(generations: DataFrame) -> DataFrame:
    from pyspark.sql.functions import explode, udf

    kind = (
        "array<struct<member_id:string,group_instance_id:string,client_id:string,client_host:string,topic:string,"
        "partition:int,from_ms:long,until_ms:long,first_generation:int,last_generation:int>>"
    )
    told = udf(_owned, kind, useArrow=False)
    rows = _by_group(generations).select("group_id", explode(told("records")).alias("own"))
    return rows.selectExpr(
        "group_id", "own.member_id", "own.group_instance_id", "own.client_id", "own.client_host", "own.topic",
        "own.partition", "timestamp_millis(own.from_ms) AS from_at", "timestamp_millis(own.until_ms) AS until_at",
        "own.first_generation", "own.last_generation",
    )  # fmt: skip


def _rebalances(generations: DataFrame) -> DataFrame:
    from pyspark.sql.functions import explode, udf

    kind = (
        "array<struct<generation_before:int,generation:int,completed_ms:long,members:int,came:array<string>,"
        "went:array<string>,moved:array<string>,sync_ms:long>>"
    )
    told = udf(_changed, kind, useArrow=False)
    rows = _by_group(generations).select("group_id", explode(told("records")).alias("one"))
    return rows.selectExpr(
        "group_id", "one.generation_before", "one.generation", "timestamp_millis(one.completed_ms) AS completed_at",
        "one.members", "one.came", "one.went", "one.moved", "one.sync_ms",
    )  # fmt: skip


def _owned(records: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            own.member.member_id, own.member.group_instance_id, own.member.client_id, own.member.client_host,
            own.partition.topic if own.partition else None, own.partition.partition if own.partition else None,
            own.from_ms, own.until_ms, own.first_generation, own.last_generation,
        )
        for own in ownerships(_generations(records))
    ]  # fmt: skip


def _changed(records: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            each.generation_before, each.generation, each.completed_ms, each.members, list(each.came), list(each.went),
            [str(partition) for partition in each.moved], each.sync_ms,
        )
        for each in rebalances(_generations(records))
    ]  # fmt: skip


def _generations(records: list[Any]) -> list[Generation]:
    return [
        Generation(
            row["written_ms"], row["generation"], row["protocol"], row["leader"], row["state_since_ms"],
            tuple(_member(each) for each in row["members"] or ()),
        )
        for row in records
    ]  # fmt: skip


def _member(row: Any) -> GroupMember:
    assigned = tuple(TopicPartition(each["topic"], each["partition"]) for each in row["assigned"] or ())
    return GroupMember(
        row["member_id"], row["group_instance_id"], row["client_id"], row["client_host"], row["rebalance_timeout_ms"],
        row["session_timeout_ms"], assigned,
    )  # fmt: skip


# --- what only the cluster knows ----------------------------------------------------------------------


def _with_reasons(spark: SparkSession, table: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Adds the reason of each rebalance and how long its join took, where the cluster is Kohort and has kept it."""
    from pyspark.sql.functions import expr

    if not _has_topic(HISTORY_TOPIC, settings):
        return table.withColumns(
            {"join_ms": expr("CAST(null AS LONG)"), "reason": expr("CAST(null AS STRING)")}
        )
    kept = "generation_after int, join_ms long, sync_ms long, reason string, number long"
    options = {f"kafka.{name}": value for name, value in settings.items()}
    told = spark.read.format("kohort").options(**options).option("subscribe", HISTORY_TOPIC).load()
    told = told.selectExpr(
        "substring_index(CAST(key AS STRING), '\\0', 1) AS group_id",
        f"from_json(CAST(value AS STRING), '{kept}') AS said",
    ).where("said.generation_after IS NOT NULL")
    last = told.groupBy("group_id", "said.generation_after").agg(expr("max_by(said, said.number) AS said"))
    known = last.selectExpr(
        "group_id",
        "generation_after AS generation",
        "said.join_ms",
        "said.sync_ms AS told_sync_ms",
        "said.reason",
    )
    return (
        table.join(known, ["group_id", "generation"], "left")
        .withColumn("sync_ms", expr("coalesce(told_sync_ms, sync_ms)"))
        .selectExpr(*(each.split()[0] for each in SCHEMAS["rebalances"].split(", ")))
    )


def _has_topic(topic: str, settings: Mapping[str, str]) -> bool:
    try:
        with Admin({**settings}) as admin:
            return topic in admin.describe_topics(topic)
    except KohortError:
        return False


def _lag(spark: SparkSession, commits: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """The lag over time. A log ended at a time where its first younger record is, which the cluster looks up."""
    span = commits.selectExpr(
        "unix_millis(min(committed_at)) AS first", "unix_millis(max(committed_at)) AS last"
    ).first()
    if span is None or span["first"] is None:
        return spark.createDataFrame([], SCHEMAS["lag"])
    times = sample_times(span["first"], span["last"], SAMPLES)
    step_ms = max(1, (span["last"] - span["first"]) // SAMPLES)
    # The last commit between two times is enough, so that little is collected.
    slots = commits.selectExpr(
        "group_id", "topic", "partition", f"(unix_millis(committed_at) - {span['first']}) div {step_ms} AS slot",
        "struct(log_offset, unix_millis(committed_at) AS at_ms, if(is_deleted, null, committed_offset) AS offset) "
        "AS one",
    )  # fmt: skip
    found = slots.groupBy("group_id", "topic", "partition", "slot").agg({"one": "max"}).selectExpr(
        "group_id", "topic", "partition", "`max(one)`.log_offset", "`max(one)`.at_ms", "`max(one)`.offset"
    )  # fmt: skip
    rows_in_order = sorted(found.collect(), key=lambda row: row["log_offset"])
    by_partition = commits_by_partition(
        (row["group_id"], row["topic"], row["partition"], row["at_ms"], row["offset"])
        for row in rows_in_order
    )
    ends = log_ends({partition for _, partition in by_partition}, times, settings)
    made = [
        (row.group_id, *row.partition, row.at_ms, row.committed_offset, row.log_end_offset, row.lag)
        for row in lag_rows(by_partition, ends)
    ]
    # Spark's own conversion would take a datetime for local time.
    columns = SCHEMAS["lag"].replace("at timestamp", "at_ms long")
    return spark.createDataFrame(made, columns).selectExpr(
        "group_id", "topic", "partition", "timestamp_millis(at_ms) AS at", "committed_offset", "log_end_offset", "lag"
    )  # fmt: skip


def log_ends(
    partitions: set[TopicPartition], times: list[int], settings: Mapping[str, str]
) -> dict[int, dict[TopicPartition, int]]:
    """Where each log ended at each time, by the timestamps of its records. Deleted topics are left out."""
    with Admin({**settings}) as admin:
        there = _partitions_there(admin, {partition.topic for partition in partitions})
    asked = sorted(partitions & there)
    if not asked:
        return {}
    found: dict[int, dict[TopicPartition, int]] = {}
    with Consumer({**settings, "client.id": "kohort-group-history", "enable.auto.commit": False}) as consumer:
        ends = consumer.end_offsets(*asked)
        for at_ms in times:
            answer = consumer.offsets_for_times(dict.fromkeys(asked, at_ms + 1))
            found[at_ms] = {p: ends[p] if at is None else at.offset for p, at in answer.items()}
    return found


def _partitions_there(admin: Admin, topics: set[str]) -> set[TopicPartition]:
    there: set[TopicPartition] = set()
    for topic in topics:
        try:
            described = admin.describe_topics(topic)[topic]
        except KohortError as error:
            log.info("the lag of %s is not known: %s", topic, error)
            continue
        there |= {TopicPartition(topic, each.partition) for each in described.partitions}
    return there
