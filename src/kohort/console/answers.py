"""Makes the answers of the API from samples and trends. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kohort.client.admin_types import ClusterDescription, ConfigEntry, MemberDescription
from kohort.console.models import (
    GroupListRow,
    GroupPartitionRow,
    LagPoint,
    MemberGone,
    MemberRow,
    NodeName,
    NodeRow,
    PartitionName,
    RebalanceRow,
    SettingRow,
    TopicGroupRow,
    TopicListRow,
    TopicPartitionRow,
)
from kohort.coordinator.history import Rebalance
from kohort.insight.health import Health
from kohort.insight.samples import ClusterSample, GroupSample, PartitionSample, TopicSample
from kohort.insight.series import Series
from kohort.insight.trends import COARSE_MS, GroupTrend, PartitionTrend

TREND_POINTS = 40
MOST_TOPICS = 10
MOST_ASSIGNED = 1_000
NO_GROUP_TREND = GroupTrend(Health.NOTFOUND, 0, None, None, None, None, {}, Series(1, COARSE_MS))
NO_PARTITION_TREND = PartitionTrend(Health.NOTFOUND, None, None, None, None, None, Series(2, COARSE_MS))
"""What is known of a group or a partition that no sample had yet."""


# --- groups -------------------------------------------------------------------------------------------


def group_row(group: GroupSample, trend: GroupTrend) -> GroupListRow:
    """Makes the row of a group."""
    topics = sorted({each.topic for each in group.partitions})
    return GroupListRow(
        group=group.group_id,
        state=group.state,
        type=group.group_type,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        coordinator=None if group.coordinator is None else group.coordinator.node_id,
        members=len(group.members),
        topics=topics[:MOST_TOPICS],
        topics_total=len(topics),
        partitions=len(group.partitions),
        lag=group.lag,
        lag_seconds=_rounded(trend.lag_seconds),
        consume_rate=_rounded(trend.consume_rate),
        produce_rate=_rounded(trend.produce_rate),
        caught_up_in_s=_rounded(trend.caught_up_in_s),
        health=trend.health.value,
        trend=thinned(trend.lag_series, TREND_POINTS),
    )


def thinned(points: Sequence[LagPoint], most: int) -> list[LagPoint]:
    """Leaves out points evenly, and keeps the last one."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(step * index)] for index in range(most)]


def node_name(group: GroupSample) -> NodeName | None:
    """Names the coordinator of a group."""
    at = group.coordinator
    return None if at is None else NodeName(id=at.node_id, host=at.host, port=at.port)


def member_rows(group: GroupSample) -> list[MemberRow]:
    """Makes the rows of a group's members, each with the lag of what it owns."""
    lag: Counter[str] = Counter()
    for each in group.partitions:
        for owner in each.owners:
            lag[owner] += each.lag or 0
    return [_member_row(member, lag[member.member_id]) for member in group.members]


def _member_row(member: MemberDescription, lag: int) -> MemberRow:
    return MemberRow(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.host,
        assignment=[
            PartitionName(topic=at.topic, partition=at.partition) for at in member.assignment[:MOST_ASSIGNED]
        ],
        assignment_total=len(member.assignment),
        lag=lag,
    )


def partition_row(each: PartitionSample, trend: PartitionTrend) -> GroupPartitionRow:
    """Makes the row of a partition that a group reads."""
    return GroupPartitionRow(
        topic=each.topic,
        partition=each.partition,
        committed=each.committed,
        metadata=each.metadata,
        begin=each.begin,
        end=each.end,
        lag=each.lag,
        lag_seconds=_rounded(trend.lag_seconds),
        consume_rate=_rounded(trend.consume_rate),
        produce_rate=_rounded(trend.produce_rate),
        health=trend.health.value,
        owners=list(each.owners),
    )


def rebalance_row(each: Rebalance) -> RebalanceRow:
    """Makes the row of a rebalance."""
    known = [took for took in (each.join_ms, each.sync_ms) if took is not None]
    return RebalanceRow(
        number=each.number,
        began_ms=each.began_ms,
        generation_before=each.generation_before,
        generation_after=each.generation_after,
        member_id=each.member_id,
        reason=each.reason,
        outcome=each.outcome,
        join_ms=each.join_ms,
        sync_ms=each.sync_ms,
        duration_ms=sum(known) if known else None,
        last_to_join=each.last_to_join,
        last_to_sync=each.last_to_sync,
        size=each.size,
        came=list(each.came),
        went=[MemberGone(member_id=member_id, reason=why) for member_id, why in each.went],
        moved=list(each.moved),
        sentence=each.sentence(),
    )


# --- topics -------------------------------------------------------------------------------------------


def records_of(topic: TopicSample) -> int | None:
    """Returns how many offsets the logs of a topic span; None if no log is known."""
    known = [topic.ends[each] - begin for each, begin in topic.begins.items() if each in topic.ends]
    return sum(known) if known else None


def readers_of(sample: ClusterSample) -> dict[str, list[GroupSample]]:
    """Returns the groups that read each topic."""
    readers: dict[str, list[GroupSample]] = {}
    for group in sample.groups.values():
        for topic in {each.topic for each in group.partitions}:
            readers.setdefault(topic, []).append(group)
    return readers


def topic_row(topic: TopicSample, groups: int, produce_rate: float | None) -> TopicListRow:
    """Makes the row of a topic."""
    return TopicListRow(
        topic=topic.name,
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=len(topic.partitions),
        replication=max((len(each.replicas) for each in topic.partitions), default=0),
        out_of_sync=sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        leaderless=sum(each.leader < 0 for each in topic.partitions),
        records=records_of(topic),
        produce_rate=_rounded(produce_rate),
        groups=groups,
    )


def topic_partition_rows(topic: TopicSample) -> list[TopicPartitionRow]:
    """Makes the rows of a topic's partitions."""
    rows = []
    for each in topic.partitions:
        begin, end = topic.begins.get(each.partition), topic.ends.get(each.partition)
        rows.append(
            TopicPartitionRow(
                partition=each.partition,
                leader=each.leader,
                leader_epoch=each.leader_epoch,
                replicas=list(each.replicas),
                isr=list(each.isr),
                begin=begin,
                end=end,
                records=None if begin is None or end is None else end - begin,
            )
        )
    return rows


def topic_group_row(topic: str, group: GroupSample, trend: GroupTrend) -> TopicGroupRow:
    """Makes the row of a group that reads a topic, with its lag there."""
    return TopicGroupRow(
        group=group.group_id,
        state=group.state,
        members=len(group.members),
        lag=sum(each.lag or 0 for each in group.partitions if each.topic == topic),
        health=trend.health.value,
    )


def setting_rows(entries: Iterable[ConfigEntry]) -> list[SettingRow]:
    """Makes the rows of settings, by name."""
    return [
        SettingRow(
            name=each.name,
            value=None if each.is_sensitive else each.value,
            is_default=each.is_default,
            is_read_only=each.is_read_only,
            is_sensitive=each.is_sensitive,
            documentation=each.documentation,
        )
        for each in sorted(entries, key=lambda each: each.name)
    ]


# --- nodes --------------------------------------------------------------------------------------------


def node_rows(cluster: ClusterDescription, sample: ClusterSample) -> list[NodeRow]:
    """Makes the rows of the brokers."""
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in sample.topics.values():
        for each in topic.partitions:
            leaders[each.leader] += 1
            replicas.update(each.replicas)
            behind.update(set(each.replicas) - set(each.isr))
    groups = Counter(
        each.coordinator.node_id for each in sample.groups.values() if each.coordinator is not None
    )
    controller = None if cluster.controller is None else cluster.controller.node_id
    return [
        NodeRow(
            id=node.node_id,
            host=node.host,
            port=node.port,
            rack=node.rack,
            controller=node.node_id == controller,
            leaders=leaders[node.node_id],
            replicas=replicas[node.node_id],
            out_of_sync=behind[node.node_id],
            groups=groups[node.node_id],
        )
        for node in cluster.nodes
    ]


def lag_at(trend: PartitionTrend) -> int:
    """Returns the lag for sorting: the unknown is the least."""
    return -1 if trend.lag is None else trend.lag


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)
