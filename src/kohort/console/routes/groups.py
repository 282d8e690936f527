"""The routes that show groups: the list, one group, its lag over time, its rebalances, its state machine."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query

from kohort.client.types import TopicPartition
from kohort.console.answers import (
    NO_GROUP_TREND,
    NO_PARTITION_TREND,
    group_row,
    lag_at,
    member_rows,
    node_name,
    partition_row,
    rebalance_row,
)
from kohort.console.context import ConsoleContext, Context
from kohort.console.errors import ERRORS, RequestRefused
from kohort.console.lag_series import lag_points, total_points, within
from kohort.console.models import (
    LARGEST_OFFSET,
    GroupAnswer,
    GroupLagAnswer,
    GroupsAnswer,
    Name,
    PartitionLagRow,
    RebalancesAnswer,
    StateRow,
    StatesAnswer,
    TransitionRow,
)
from kohort.console.paging import Order, PageNumber, PageSize, Search, pages_of, part_of
from kohort.coordinator.classic.state import ANSWERS, TRANSITIONS
from kohort.insight.rebalances import rebalances_of
from kohort.insight.samples import ClusterSample, GroupSample, sample_cluster
from kohort.insight.state_diagram import state_diagram_svg
from kohort.insight.trends import GroupTrend

router = APIRouter(responses=ERRORS, tags=["groups"])

FRESH_MS = 1_500
"""A sample of this age is shown as it is; an older one is taken anew for one group."""
MOST_SERIES = 100
MOST_MEMBERS = 1_000
CLASSIC = "classic"
DEAD = "Dead"

GroupName = Annotated[Name, Query(description="The group.id.")]


class GroupSort(StrEnum):
    """By what the list of groups is sorted."""

    GROUP = "group"
    STATE = "state"
    HEALTH = "health"
    MEMBERS = "members"
    PARTITIONS = "partitions"
    LAG = "lag"
    LAG_SECONDS = "lag_seconds"
    CONSUME_RATE = "consume_rate"
    PRODUCE_RATE = "produce_rate"
    CAUGHT_UP_IN_S = "caught_up_in_s"


_WORST_FIRST = ("ERR", "STOP", "STALL", "REWIND", "WARN", "NOTFOUND", "OK")


@router.get("/api/groups")
def groups(
    context: Context,
    search: Search = "",
    state: Annotated[
        str, Query(max_length=100, description="Only groups in this state: Stable, Empty …")
    ] = "",
    health: Annotated[str, Query(max_length=100, description="Only groups of this health: OK, WARN …")] = "",
    sort: GroupSort = GroupSort.GROUP,
    order: Order = Order.ASC,
    page: PageNumber = 1,
    size: PageSize = 50,
) -> GroupsAnswer:
    """Returns one page of the groups. Groups without the value that they are sorted by come last."""
    snapshot = context.snapshot()
    part = search.casefold()
    every = [
        (each, snapshot.trends.get(each.group_id, NO_GROUP_TREND)) for each in snapshot.sample.groups.values()
    ]
    chosen = [
        (each, trend)
        for each, trend in every
        if part in each.group_id.casefold()
        and (not state or each.state.lower() == state.lower())
        and (not health or trend.health.value.lower() == health.lower())
    ]
    chosen.sort(key=lambda pair: pair[0].group_id)
    value = _SORT_VALUES[sort]
    known = [pair for pair in chosen if value(*pair) is not None]
    unknown = [pair for pair in chosen if value(*pair) is None]
    known.sort(key=lambda pair: value(*pair), reverse=order is Order.DESC)
    with context.sampler.lock:
        rows = [group_row(*pair) for pair in part_of([*known, *unknown], page, size)]
    return GroupsAnswer(
        items=rows,
        page=page,
        size=size,
        pages=pages_of(len(chosen), size),
        total=len(chosen),
        sampled_ms=snapshot.sample.at_ms,
    )


_SORT_VALUES: dict[GroupSort, Callable[[GroupSample, GroupTrend], Any]] = {
    GroupSort.GROUP: lambda group, trend: group.group_id,
    GroupSort.STATE: lambda group, trend: group.state,
    GroupSort.HEALTH: lambda group, trend: _WORST_FIRST.index(trend.health.value),
    GroupSort.MEMBERS: lambda group, trend: len(group.members),
    GroupSort.PARTITIONS: lambda group, trend: len(group.partitions),
    GroupSort.LAG: lambda group, trend: group.lag,
    GroupSort.LAG_SECONDS: lambda group, trend: trend.lag_seconds,
    GroupSort.CONSUME_RATE: lambda group, trend: trend.consume_rate,
    GroupSort.PRODUCE_RATE: lambda group, trend: trend.produce_rate,
    GroupSort.CAUGHT_UP_IN_S: lambda group, trend: trend.caught_up_in_s,
}


# --- one group ----------------------------------------------------------------------------------------


def no_group(group_id: str) -> RequestRefused:
    """Makes the answer for a group that is not there, or not any more."""
    return RequestRefused(
        404, f"there is no group {group_id}: it was deleted or has expired, or never was", "not_found"
    )


def _looked_at(context: ConsoleContext, group_id: str) -> tuple[ClusterSample, GroupSample]:
    """Returns a group as it is now: from the last sample, or from one of its own if that is old."""
    snapshot, now_ms = context.sampler.snapshot, context.sampler.now_ms()
    sample = None if snapshot is None else snapshot.sample
    oldest_ms = max(now_ms - FRESH_MS, context.sampler.changed_ms + 1)
    if sample is None or sample.at_ms < oldest_ms or group_id not in sample.groups:
        sample = sample_cluster(context.admin, now_ms, groups=[group_id])
    group = sample.groups.get(group_id)
    if group is None or group.state == DEAD:
        raise no_group(group_id)
    return sample, group


def _trend_of(context: ConsoleContext, group_id: str) -> GroupTrend | None:
    snapshot = context.sampler.snapshot
    return None if snapshot is None else snapshot.trends.get(group_id)


@router.get("/api/group")
def group(context: Context, group: GroupName, page: PageNumber = 1, size: PageSize = 500) -> GroupAnswer:
    """Returns one group with its members, and one page of its partitions."""
    sample, looked_at = _looked_at(context, group)
    context.sampler.group_looked_at()
    context.past.learn(group)
    trend = _trend_of(context, group) or NO_GROUP_TREND
    partitions = sorted(looked_at.partitions, key=lambda each: (each.topic, each.partition))
    return GroupAnswer(
        group=group,
        state=looked_at.state,
        type=looked_at.group_type,
        protocol_type=looked_at.protocol_type,
        protocol=looked_at.protocol,
        coordinator=node_name(looked_at),
        health=trend.health.value,
        lag=looked_at.lag,
        lag_seconds=trend.lag_seconds,
        consume_rate=trend.consume_rate,
        produce_rate=trend.produce_rate,
        caught_up_in_s=trend.caught_up_in_s,
        sampled_ms=sample.at_ms,
        members=member_rows(looked_at)[:MOST_MEMBERS],
        members_total=len(looked_at.members),
        partitions=[
            partition_row(
                each, trend.partitions.get(TopicPartition(each.topic, each.partition), NO_PARTITION_TREND)
            )
            for each in part_of(partitions, page, size)
        ],
        partitions_total=len(partitions),
        page=page,
        size=size,
        pages=pages_of(len(partitions), size),
    )


@router.get("/api/group/lag")
def lag(
    context: Context,
    group: GroupName,
    from_ms: Annotated[int, Query(ge=0, le=LARGEST_OFFSET, description="Points before are left out.")] = 0,
    to_ms: Annotated[
        int, Query(ge=0, le=LARGEST_OFFSET, description="Points after are left out.")
    ] = LARGEST_OFFSET,
) -> GroupLagAnswer:
    """Returns the lag of a group over time, as far as this console has looked."""
    context.snapshot()
    context.past.learn(group)
    trend = _trend_of(context, group)
    if trend is None:
        raise no_group(group)
    most_first = sorted(trend.partitions.items(), key=lambda pair: lag_at(pair[1]), reverse=True)
    with context.sampler.lock:
        totals = trend.lag_series
        past = [(at, each.series) for at, each in most_first[:MOST_SERIES]]
    series = [(at, lag_points(points)) for at, points in past]
    return GroupLagAnswer(
        group=group,
        total=within(total_points(totals, [points for _, points in series]), from_ms, to_ms),
        partitions=[
            PartitionLagRow(topic=at.topic, partition=at.partition, points=within(points, from_ms, to_ms))
            for at, points in series
        ],
        partitions_total=len(trend.partitions),
    )


@router.get("/api/group/rebalances")
def rebalances(context: Context, group: GroupName) -> RebalancesAnswer:
    """Returns the last rebalances of a group and their reasons, newest first."""
    found = rebalances_of(context.admin, context.settings, group)
    return RebalancesAnswer(
        group=group,
        source=found.source,
        unknown=list(found.unknown),
        rebalances=[rebalance_row(each) for each in reversed(found.rebalances)],
    )


@router.get("/api/group/states")
def states(context: Context, group: GroupName) -> StatesAnswer:
    """Returns the state machine of classic groups and where the group is in it."""
    _, looked_at = _looked_at(context, group)
    current = looked_at.state if looked_at.group_type == CLASSIC else None
    return StatesAnswer(
        group=group,
        current=current,
        states=[
            StateRow(
                name=state.value,
                sync=getattr(answers.sync, "name", str(answers.sync)),
                heartbeat=answers.heartbeat.name,
                commit=answers.commit.name,
            )
            for state, answers in ANSWERS.items()
        ],
        transitions=[
            TransitionRow(source=source.value, target=target.value, why=why)
            for (source, target), why in TRANSITIONS.items()
        ],
        svg=state_diagram_svg(current),
    )
