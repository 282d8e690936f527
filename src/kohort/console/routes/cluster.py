"""The routes about the cluster: its state at a glance, its nodes, the pipelines, and the console's own health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query

from kohort import __version__
from kohort.console.answers import node_rows, setting_rows
from kohort.console.context import Context
from kohort.console.errors import ERRORS, RequestRefused
from kohort.console.models import (
    LARGEST_PARTITION,
    ClusterAnswer,
    HealthAnswer,
    NodeAnswer,
    NodesAnswer,
    PipelineGroup,
    PipelineRow,
    PipelinesAnswer,
)
from kohort.errors import KohortError

router = APIRouter(responses=ERRORS, tags=["cluster"])


@router.get("/healthz", tags=["console"])
def healthz() -> HealthAnswer:
    """Says that the console is alive."""
    return HealthAnswer(status="ok")


@router.get("/api/cluster")
def cluster(context: Context) -> ClusterAnswer:
    """Returns the cluster at a glance. It answers also while the cluster cannot be reached."""
    sampler = context.sampler
    snapshot = sampler.latest()
    sample = None if snapshot is None else snapshot.sample
    reachability = sampler.reachability
    topics = [] if sample is None else [each for each in sample.topics.values() if not each.is_internal]
    groups = {} if sample is None else sample.groups
    trends = {} if snapshot is None else snapshot.trends
    described = None if sample is None else sample.cluster
    controller = None if described is None else described.controller
    return ClusterAnswer(
        kohort_version=__version__,
        bootstrap=context.settings["bootstrap.servers"],
        cluster_id=None if described is None else described.cluster_id,
        reachable=reachability.reachable,
        since_ms=reachability.since_ms,
        problem=reachability.problem,
        problems=[] if sample is None else list(sample.problems[:20]),
        read_only=context.read_only,
        sampled_ms=None if sample is None else sample.at_ms,
        sample_period_ms=int(sampler.period_s * 1000),
        nodes=0 if described is None else len(described.nodes),
        controller=None if controller is None else controller.node_id,
        topics=len(topics),
        partitions=sum(len(each.partitions) for each in topics),
        groups=len(groups),
        groups_by_state=dict(Counter(each.state for each in groups.values())),
        groups_by_health=dict(Counter(each.health.value for each in trends.values())),
        lag=sum(each.lag for each in groups.values()),
    )


@router.get("/api/nodes")
def nodes(context: Context) -> NodesAnswer:
    """Returns all brokers."""
    sample = context.snapshot().sample
    return NodesAnswer(
        cluster_id=sample.cluster.cluster_id,
        sampled_ms=sample.at_ms,
        items=node_rows(sample.cluster, sample),
    )


@router.get("/api/node")
def node(
    context: Context,
    node: Annotated[int, Query(ge=0, le=LARGEST_PARTITION, description="The id of the broker.")],
) -> NodeAnswer:
    """Returns a broker with its settings."""
    sample = context.snapshot().sample
    row = next((each for each in node_rows(sample.cluster, sample) if each.id == node), None)
    if row is None:
        raise RequestRefused(404, f"there is no broker with the id {node}")
    settings = context.admin.broker_configs(node)[str(node)]
    return NodeAnswer(node=row, settings=setting_rows(settings.values()))


@router.get("/api/pipelines", tags=["pipelines"])
def pipelines(context: Context) -> PipelinesAnswer:
    """Returns the pipelines on Spark that were started on this machine by this user."""
    if context.pipelines is None:
        why = "this console was not told where pipelines keep their state"
        return PipelinesAnswer(available=False, why=why, items=[])
    try:
        known = context.pipelines()
    except (KohortError, OSError) as error:
        return PipelinesAnswer(available=False, why=str(error), items=[])
    return PipelinesAnswer(available=True, why=None, items=[_pipeline_row(each) for each in known])


def _pipeline_row(status: Mapping[str, Any]) -> PipelineRow:
    lag: Mapping[str, int] = status["lag"]
    groups = [
        PipelineGroup(group=group, state=str(seen.get("state", "")), members=int(seen.get("members", 0)))
        for group, seen in status["groups"].items()
    ]
    fields = {name: status[name] for name in PipelineRow.model_fields if name in status}
    return PipelineRow(**{**fields, "groups": groups, "total_lag": sum(lag.values()) if lag else None})
