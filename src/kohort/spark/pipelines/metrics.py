"""The metrics of a pipeline for Prometheus. Those of groups have the names that dashboards already know."""

from __future__ import annotations

from typing import Final

from kohort.exposition import HealthReport, MetricSpec, Samples
from kohort.spark.pipelines.state import RUNNING, PipelineStatus

_OF = ("pipeline",)

UP = MetricSpec("kohort_pipeline_up", "gauge", "1 while the query runs.", _OF)
BATCH_ROWS = MetricSpec("kohort_pipeline_batch_rows", "gauge", "Rows of the last batch.", _OF)
BATCH_TIME = MetricSpec(
    "kohort_pipeline_batch_duration_seconds", "gauge", "How long the last batch took.", _OF
)
SPEED = MetricSpec("kohort_pipeline_rows_per_second", "gauge", "Rows a second in the last batch.", _OF)
UPTIME = MetricSpec("kohort_pipeline_uptime_seconds", "gauge", "Time since the start.", _OF)
ROWS = MetricSpec("kohort_pipeline_rows_total", "counter", "Rows read since the start.", _OF)
BATCHES = MetricSpec("kohort_pipeline_batches_total", "counter", "Batches with rows since the start.", _OF)
PIPELINE_LAG = MetricSpec(
    "kohort_pipeline_lag",
    "gauge",
    "Offsets that were not read at the last progress.",
    ("pipeline", "topic", "partition"),
)
MEMBERS = MetricSpec(
    "kafka_consumergroup_members",
    "gauge",
    "Members of the groups that the pipeline reads as.",
    ("consumergroup",),
)
LAG = MetricSpec(
    "kafka_consumergroup_lag",
    "gauge",
    "Offsets of a partition that were not read at the last progress, if the pipeline reads as one group.",
    ("consumergroup", "topic", "partition"),
)
# Untyped, because `promtool check metrics` takes a gauge of this name for a part of a histogram.
LAG_SUM = MetricSpec(
    "kafka_consumergroup_lag_sum",
    "untyped",
    "The same of all partitions of a topic together.",
    ("consumergroup", "topic"),
)

PIPELINE_METRICS: Final = (
    UP, BATCH_ROWS, BATCH_TIME, SPEED, UPTIME, ROWS, BATCHES, PIPELINE_LAG, MEMBERS, LAG, LAG_SUM,
)  # fmt: skip


def pipeline_samples(status: PipelineStatus, now_ms: int) -> Samples:
    """Returns the values of this moment."""
    of = (status.name,)
    taken: Samples = {
        UP: [(of, float(status.state == RUNNING))],
        BATCH_ROWS: [(of, status.batch_rows)],
        BATCH_TIME: [(of, status.batch_duration_ms / 1000)],
        SPEED: [(of, round(status.rows_per_second, 3))],
        UPTIME: [(of, max(0, now_ms - status.started_ms) / 1000)],
        ROWS: [(of, status.rows)],
        BATCHES: [(of, status.batches)],
        PIPELINE_LAG: [],
        MEMBERS: [],
        LAG: [],
        LAG_SUM: [],
    }
    groups = status.groups
    only = next(iter(groups)) if len(groups) == 1 else None
    sums: dict[str, int] = {}
    for name, behind in status.lag.items():
        topic, _, partition = name.rpartition("-")
        sums[topic] = sums.get(topic, 0) + behind
        taken[PIPELINE_LAG].append(((status.name, topic, partition), behind))
        if only is not None:
            taken[LAG].append(((only, topic, partition), behind))
    if only is not None:
        taken[LAG_SUM] += [((only, topic), behind) for topic, behind in sums.items()]
    taken[MEMBERS] += [
        ((group,), seen["members"]) for group, seen in groups.items() if seen.get("members") is not None
    ]
    return taken


def pipeline_health(status: PipelineStatus) -> HealthReport:
    """Tells whether the query runs, for /readyz."""
    problems = () if status.state == RUNNING else (f"the query does not run: its state is {status.state}",)
    return HealthReport(problems, {"pipeline": status.name, "state": status.state})
