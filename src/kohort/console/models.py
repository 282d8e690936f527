"""What the API answers and takes, as models: they are also its description in OpenAPI.

Times end in `_ms` and are milliseconds since 1970, in UTC. What is not known is null.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LARGEST_PARTITION = (1 << 31) - 1
LARGEST_OFFSET = (1 << 63) - 1
LONGEST_NAME = 32_767

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
PartitionNumber = Annotated[int, Field(ge=0, le=LARGEST_PARTITION)]
OffsetNumber = Annotated[int, Field(ge=0, le=LARGEST_OFFSET)]


class ApiAnswer(BaseModel):
    """All answers are made here, so they are not checked twice."""

    model_config = ConfigDict(frozen=True)


class ApiQuestion(BaseModel):
    """A body that came from outside: a field that is not known is refused, so that none is ignored in silence."""

    model_config = ConfigDict(extra="forbid")


# --- errors -------------------------------------------------------------------------------------------


class ErrorText(ApiAnswer):
    """What went wrong."""

    code: str = Field(description="A word for programs, such as not_found, or the name of Kafka's error.")
    message: str = Field(description="What happened and what to do.")


class ErrorAnswer(ApiAnswer):
    """The form of every answer that is not a success."""

    error: ErrorText


# --- cluster and nodes --------------------------------------------------------------------------------


class ClusterAnswer(ApiAnswer):
    """The cluster at a glance, and whether it can be reached."""

    kohort_version: str = Field(description="The version of this console.")
    bootstrap: str = Field(description="The brokers that the console was told of.")
    cluster_id: str | None = Field(description="As the cluster says it.")
    reachable: bool = Field(description="Whether the last sample succeeded. False before the first one.")
    since_ms: int = Field(description="Since when `reachable` is as it is.")
    problem: str | None = Field(description="Why the cluster cannot be reached; null if it can.")
    problems: list[str] = Field(description="What the last sample could not find out, in words.")
    read_only: bool = Field(description="Whether changes are turned off altogether.")
    sampled_ms: int | None = Field(description="When the last sample was taken.")
    sample_period_ms: int = Field(description="How often samples are taken at present.")
    nodes: int = Field(description="How many brokers there are.")
    controller: int | None = Field(description="The id of the controller.")
    topics: int = Field(description="How many topics there are, without internal ones.")
    partitions: int = Field(description="How many partitions these topics have.")
    groups: int = Field(description="How many groups there are.")
    groups_by_state: dict[str, int] = Field(description="How many groups are in each state.")
    groups_by_health: dict[str, int] = Field(description="How many groups have each health.")
    lag: int = Field(description="The sum of the lag of all groups.")


class NodeRow(ApiAnswer):
    """A broker."""

    id: int = Field(description="The id of the broker.")
    host: str
    port: int
    rack: str | None
    controller: bool = Field(description="Whether it is the controller.")
    leaders: int = Field(description="How many partitions it leads.")
    replicas: int = Field(description="How many replicas it has.")
    out_of_sync: int = Field(description="How many of its replicas are not in sync.")
    groups: int = Field(description="How many groups it coordinates.")


class NodesAnswer(ApiAnswer):
    """All brokers of the cluster."""

    cluster_id: str | None
    sampled_ms: int = Field(description="When this was looked at.")
    items: list[NodeRow]


class SettingRow(ApiAnswer):
    """A setting of a topic or a broker."""

    name: str
    value: str | None = Field(description="Null if it is secret.")
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str


class NodeAnswer(ApiAnswer):
    """A broker with its settings."""

    node: NodeRow
    settings: list[SettingRow]


# --- groups -------------------------------------------------------------------------------------------

LagPoint = tuple[int, int]
"""at_ms, lag"""
LagSecondsPoint = tuple[int, int | None, float | None]
"""at_ms, lag, lag in seconds"""


class GroupListRow(ApiAnswer):
    """A group as the list shows it."""

    group: str = Field(description="The group.id.")
    state: str = Field(description="As DescribeGroups names it: Stable, Empty, PreparingRebalance …")
    type: str = Field(description="classic, consumer, share or streams.")
    protocol_type: str = Field(description="consumer, connect …; empty for a group that only has offsets.")
    protocol: str = Field(description="The assignor that was chosen.")
    coordinator: int | None = Field(description="The id of the broker that coordinates it.")
    members: int
    topics: list[str] = Field(
        description="The topics that it has offsets or partitions of; at most ten of them."
    )
    topics_total: int = Field(description="How many topics these are in all.")
    partitions: int = Field(description="How many partitions it has offsets of or owns.")
    lag: int = Field(description="The sum over its partitions, in records.")
    lag_seconds: float | None = Field(description="How old the oldest record is that it has not read.")
    consume_rate: float | None = Field(description="Records a second.")
    produce_rate: float | None = Field(description="Records a second that its topics get.")
    caught_up_in_s: float | None = Field(description="How long until the lag is gone at these rates.")
    health: str = Field(description="OK, WARN, ERR, STOP, STALL, REWIND or NOTFOUND.")
    trend: list[LagPoint] = Field(
        description="The last points of the lag, for a small picture: [at_ms, lag]."
    )


class GroupsAnswer(ApiAnswer):
    """One page of the list of groups."""

    items: list[GroupListRow]
    page: int = Field(description="The number of this page, from 1 on.")
    size: int = Field(description="How many groups a page has.")
    pages: int = Field(description="How many pages there are.")
    total: int = Field(description="How many groups match.")
    sampled_ms: int = Field(description="When the cluster was looked at.")


class PartitionName(ApiAnswer):
    """One partition of a topic."""

    topic: str
    partition: int


class MemberRow(ApiAnswer):
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: list[PartitionName] = Field(description="The partitions that it owns; at most 1,000 of them.")
    assignment_total: int = Field(description="How many it owns in all.")
    lag: int = Field(description="The sum over the partitions that it owns.")


class GroupPartitionRow(ApiAnswer):
    """A partition from a group's point of view."""

    topic: str
    partition: int
    committed: int | None = Field(description="The offset that the group goes on from.")
    metadata: str = Field(description="The text that was committed with it.")
    begin: int | None = Field(description="The first offset of the log.")
    end: int | None = Field(description="Where the next record will be written.")
    lag: int | None
    lag_seconds: float | None
    consume_rate: float | None
    produce_rate: float | None
    health: str
    owners: list[str] = Field(description="The ids of the members that own it.")


class GroupAnswer(ApiAnswer):
    """One group with its members and partitions."""

    group: str
    state: str
    type: str
    protocol_type: str
    protocol: str
    coordinator: NodeName | None
    health: str
    lag: int
    lag_seconds: float | None
    consume_rate: float | None
    produce_rate: float | None
    caught_up_in_s: float | None
    sampled_ms: int = Field(description="When the group was looked at.")
    members: list[MemberRow] = Field(description="At most 1,000 of them.")
    members_total: int
    partitions: list[GroupPartitionRow] = Field(description="One page of its partitions.")
    partitions_total: int
    page: int
    size: int
    pages: int


class NodeName(ApiAnswer):
    """Which broker, and where it is."""

    id: int
    host: str
    port: int


class PartitionLagRow(ApiAnswer):
    """The lag of one partition over time."""

    topic: str
    partition: int
    points: list[LagSecondsPoint] = Field(description="[at_ms, lag, lag in seconds], oldest first.")


class GroupLagAnswer(ApiAnswer):
    """The lag of a group over time, as far as this console has looked."""

    group: str
    total: list[LagSecondsPoint] = Field(
        description="[at_ms, lag, lag in seconds] of the whole group: the sum, and the longest."
    )
    partitions: list[PartitionLagRow] = Field(description="Those with the most lag come first.")
    partitions_total: int = Field(
        description="How many partitions have a series; at most 100 are in the answer."
    )


class MemberGone(ApiAnswer):
    """A member that went, and why."""

    member_id: str
    reason: str


class RebalanceRow(ApiAnswer):
    """One rebalance: what caused it, how it went, what it changed."""

    number: int = Field(description="Counts the rebalances of the group.")
    began_ms: int
    generation_before: int
    generation_after: int | None
    member_id: str = Field(description="The member that caused it; empty if no single member did.")
    reason: str
    outcome: str = Field(description="running, Stable, Empty, interrupted by the next, cut off by a restart.")
    join_ms: int | None = Field(description="How long until all had joined or were given up.")
    sync_ms: int | None = Field(description="How long from there until the assignment was there.")
    duration_ms: int | None = Field(description="The sum of the two, as far as they are known.")
    last_to_join: str
    last_to_sync: str
    size: int = Field(description="How many members the group had afterwards.")
    came: list[str]
    went: list[MemberGone]
    moved: list[str] = Field(description="Members whose assignment has changed.")
    sentence: str = Field(description="All of it in one line, for people.")


class RebalancesAnswer(ApiAnswer):
    """The last rebalances of a group, newest first."""

    group: str
    source: str = Field(description="Where they are from: kohort or __consumer_offsets.")
    unknown: list[str] = Field(description="What cannot be known on this cluster, in words.")
    rebalances: list[RebalanceRow]


class StateRow(ApiAnswer):
    """A state of the state machine, and what it answers to a member."""

    name: str
    sync: str
    heartbeat: str
    commit: str


class TransitionRow(ApiAnswer):
    """One transition of the state machine."""

    source: str
    target: str
    why: str


class StatesAnswer(ApiAnswer):
    """The state machine of classic groups, from the table that Kohort's coordinator runs on."""

    group: str
    current: str | None = Field(description="The state of the group; null if its type has another machine.")
    states: list[StateRow]
    transitions: list[TransitionRow]
    svg: str = Field(
        description="The drawing, with the current state lit; colours are left to the page's CSS."
    )


# --- changes ------------------------------------------------------------------------------------------


class TopicChoice(ApiQuestion):
    """A topic, or some of its partitions."""

    topic: Name
    partitions: list[PartitionNumber] | None = Field(
        default=None, max_length=10_000, description="Null: all partitions."
    )


class ExplicitOffset(ApiQuestion):
    """An offset for one partition."""

    topic: Name
    partition: PartitionNumber
    offset: OffsetNumber


class ResetQuestion(ApiQuestion):
    """Which offsets to reset, and where to."""

    group: Name
    to: str | None = Field(
        default=None,
        max_length=100,
        description="earliest, latest, current, offset:42, shift:-10, datetime:2026-01-31T12:00:00Z, duration:PT1H.",
    )
    topics: list[TopicChoice] | None = Field(
        default=None, max_length=1_000, description="Null: all that the group has committed."
    )
    offsets: list[ExplicitOffset] | None = Field(
        default=None, max_length=10_000, description="Explicit offsets, instead of `to` and `topics`."
    )
    dry_run: bool = Field(default=True, description="False carries the plan out; else it is only shown.")


class ResetRow(ApiAnswer):
    """What a reset does to one partition."""

    topic: str
    partition: int
    old: int | None = Field(description="What is committed now.")
    new: int = Field(description="What will be committed.")
    begin: int
    end: int
    skipped: int = Field(description="How many records the group will not read.")
    again: int = Field(description="How many records the group will read again.")
    changes: bool
    note: str = Field(description="Why it is not what was asked for; empty if it is.")


class ResetAnswer(ApiAnswer):
    """The plan of a reset, and whether it was carried out."""

    group: str
    executed: bool = Field(description="Whether the offsets are committed now.")
    obstacle: str | None = Field(description="Why it cannot be carried out at present; null if it can.")
    skipped: int
    again: int
    partitions: list[ResetRow]


class DeleteGroupQuestion(ApiQuestion):
    """Which group to delete."""

    group: Name


class DeletedAnswer(ApiAnswer):
    """What was deleted."""

    group: str
    partitions: list[PartitionName] = Field(
        description="The partitions whose offsets are gone; of a whole group: none are named."
    )


class DeleteOffsetsQuestion(ApiQuestion):
    """Which offsets of a group to delete."""

    group: Name
    topics: list[TopicChoice] = Field(min_length=1, max_length=1_000)


# --- topics and messages ------------------------------------------------------------------------------


class TopicListRow(ApiAnswer):
    """A topic as the list shows it."""

    topic: str
    topic_id: str
    internal: bool
    partitions: int
    replication: int = Field(description="How many replicas its partitions have; the largest number counts.")
    out_of_sync: int = Field(description="How many partitions have replicas that are not in sync.")
    leaderless: int = Field(description="How many partitions have no leader now.")
    records: int | None = Field(
        description="How many offsets its logs span; compacted ones have fewer records."
    )
    produce_rate: float | None = Field(description="Records a second.")
    groups: int = Field(description="How many groups read it.")


class TopicsAnswer(ApiAnswer):
    """One page of the list of topics."""

    items: list[TopicListRow]
    page: int
    size: int
    pages: int
    total: int
    sampled_ms: int


class TopicPartitionRow(ApiAnswer):
    """A partition of a topic."""

    partition: int
    leader: int = Field(description="-1 while there is none.")
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    begin: int | None
    end: int | None
    records: int | None


class TopicGroupRow(ApiAnswer):
    """A group that reads a topic."""

    group: str
    state: str
    members: int
    lag: int = Field(description="In this topic alone.")
    health: str


class TopicAnswer(ApiAnswer):
    """One topic with its partitions, settings and readers."""

    topic: str
    topic_id: str
    internal: bool
    records: int | None
    sampled_ms: int
    partitions: list[TopicPartitionRow] = Field(description="One page of its partitions.")
    partitions_total: int
    page: int
    size: int
    pages: int
    settings: list[SettingRow]
    groups: list[TopicGroupRow]


class Payload(ApiAnswer):
    """A key, a value or the value of a header."""

    text: str = Field(description="The beginning of it, in `encoding`.")
    encoding: Literal["utf-8", "base64"]
    size: int = Field(description="Its size in bytes, all of it.")
    truncated: bool = Field(description="Whether `text` is only the beginning.")


class HeaderRow(ApiAnswer):
    """A header of a message."""

    name: str
    value: Payload | None


class MessageRow(ApiAnswer):
    """One message."""

    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: Literal["CreateTime", "LogAppendTime"] | None
    key: Payload | None
    value: Payload | None
    headers: list[HeaderRow] = Field(description="At most 100 of them.")
    headers_total: int


class MessageRange(ApiAnswer):
    """What was looked at in one partition."""

    partition: int
    begin: int = Field(description="The first offset of the log.")
    end: int = Field(description="Where the next record will be written.")
    first: int = Field(description="The first offset that was looked at.")
    next: int = Field(description="The offset behind the last one that was looked at.")


class MessagesAnswer(ApiAnswer):
    """Messages of a topic, oldest first."""

    topic: str
    messages: list[MessageRow]
    ranges: list[MessageRange]
    partitions_left_out: int = Field(
        description="How many partitions were not read, because there are so many."
    )
    scanned: int = Field(description="How many messages were looked at.")
    complete: bool = Field(description="False if there is more to read in the direction that was asked for.")
    next: str | None = Field(description="The `cursor` for what follows; null at the end.")
    previous: str | None = Field(description="The `cursor` for what is before; null at the beginning.")


class MessageAnswer(ApiAnswer):
    """One message, with up to a megabyte of its key and value."""

    topic: str
    message: MessageRow


# --- pipelines ----------------------------------------------------------------------------------------


class PipelineGroup(ApiAnswer):
    """A group that a pipeline is a member of."""

    group: str
    state: str
    members: int


class PipelineRow(ApiAnswer):
    """A pipeline on Spark, as it wrote its status the last time."""

    name: str
    origin: str = Field(description="The file that defines it, or built in.")
    state: str = Field(description="starting, running, stopping, stopped, failed, died.")
    pid: int
    master: str
    bootstrap: str
    checkpoint: str
    sink: str
    started_ms: int
    updated_ms: int
    stopped_ms: int | None
    batch: int | None
    batches: int = Field(description="Since this start.")
    rows: int = Field(description="Since this start.")
    batch_rows: int
    batch_duration_ms: int
    rows_per_second: float
    lag: dict[str, int] = Field(description="By partition, as in orders-0.")
    total_lag: int | None
    groups: list[PipelineGroup]
    metrics: str | None
    error: str | None


class PipelinesAnswer(ApiAnswer):
    """The pipelines that were started on this machine by this user."""

    available: bool = Field(description="Whether this console knows where pipelines keep their state.")
    why: str | None = Field(description="Why not; null if it does.")
    items: list[PipelineRow]


class HealthAnswer(ApiAnswer):
    """That the console is alive; whether the cluster is, says /api/cluster."""

    status: Literal["ok"]
