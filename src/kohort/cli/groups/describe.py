"""`kohort groups describe`: the state of groups, their members, and their partitions with offsets and lag."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.output import json_option, print_json, print_table, short_ids
from kohort.cli.groups.selection import check_selection, groups_argument, no_group, selected_groups
from kohort.client.admin import Admin
from kohort.client.admin_types import MemberDescription
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.insight.past import unread_since
from kohort.insight.samples import ClusterSample, GroupSample, PartitionSample, sample_cluster
from kohort.insight.trends import GroupTrend, Trends

Committed = dict[str, dict[TopicPartition, OffsetAndMetadata]]


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    """What the user wants to see."""

    offsets: bool
    members: bool
    state: bool
    verbose: bool
    rates: float | None
    as_json: bool


@click.command(epilog="Example: kohort groups describe orders --members --verbose")
@groups_argument
@click.option("--offsets", is_flag=True, help="Partitions with offsets, lag and owners. This is the default.")
@click.option("--members", is_flag=True, help="Members; with --verbose what each is assigned.")
@click.option("--state", is_flag=True, help="State, coordinator, assignor and number of members.")
@click.option("--verbose", is_flag=True, help="More columns.")
@click.option(
    "--rates",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Look twice, this long apart: rates, and how long until the group has caught up.",
)
@cluster_options
@json_option
def command(cluster: ClusterOptions, groups: tuple[str, ...], all_groups: bool, **given: Any) -> int:
    """Show state, members, and for each partition its owner, committed offset and lag, in records and seconds."""
    options = DescribeOptions(**given)
    check_selection(groups, all_groups)
    with cluster.connect() as admin:
        names = selected_groups(admin, groups, all_groups)
        sample, trends = _look(admin, names, options.rates)
        committed = _committed(admin, sample) if options.verbose and not options.as_json else {}
    for problem in sample.problems:
        if not problem.endswith("does not exist any more"):
            print(f"kohort: {problem}", file=sys.stderr)
    found = {name: sample.groups[name] for name in names if name in sample.groups}
    if options.as_json:
        shown = [_as_json(group, trends.group(name), options) for name, group in found.items()]
        if len(groups) != 1:
            print_json(shown)
        elif shown:
            print_json(shown[0])
    else:
        _show(found, trends, options, committed)
    if not all_groups and (missing := [name for name in names if name not in found]):
        raise no_group(*missing)
    return 0


def _look(admin: Admin, names: list[str], rates: float | None) -> tuple[ClusterSample, Trends]:
    """Samples the groups, with how old their first unread records are; twice if rates are wanted."""
    trends = Trends()
    if rates is not None:
        trends.add(sample_cluster(admin, _now_ms(), groups=names))
        time.sleep(rates)
    sample = sample_cluster(admin, _now_ms(), groups=names)
    trends.add(sample)
    for name, group in sample.groups.items():
        behind = {
            TopicPartition(each.topic, each.partition): each.committed
            for each in group.partitions
            if each.lag and each.committed is not None
        }
        if behind:
            trends.add_past(name, unread_since(admin, behind, sample.at_ms))
    return sample, trends


def _committed(admin: Admin, sample: ClusterSample) -> Committed:
    """What is committed, with leader epochs, which a sample does not have."""
    names = [group.group_id for group in sample.groups.values() if group.group_type != "share"]
    return admin.offsets_of_groups(*names, require_stable=False) if names else {}


def _now_ms() -> int:
    return int(time.time() * 1000)


# --- for people -------------------------------------------------------------------------------------------------


def _show(
    groups: dict[str, GroupSample], trends: Trends, options: DescribeOptions, committed: Committed
) -> None:
    if options.state:
        _show_states(list(groups.values()), options.verbose)
    if options.members:
        if options.state:
            print()
        _show_members(list(groups.values()), options.verbose)
    if options.offsets or not (options.state or options.members):
        if options.state or options.members:
            print()
        for number, (name, group) in enumerate(groups.items()):
            if number:
                print()
            _show_offsets(group, trends.group(name), options, committed.get(name, {}))


def _show_states(groups: list[GroupSample], verbose: bool) -> None:
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    rows = [
        [g.group_id, _place(g), g.protocol, g.state, len(g.members), g.group_type, g.protocol_type, g.lag,
         g.epoch, g.assignment_epoch]
        for g in groups
    ]  # fmt: skip
    if verbose:
        titles += ["TYPE", "PROTOCOL-TYPE", "LAG"]
        if any(g.epoch is not None for g in groups):
            titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
    print_table(titles, [row[: len(titles)] for row in rows])


def _show_members(groups: list[GroupSample], verbose: bool) -> None:
    titles = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        titles.append("CURRENT-ASSIGNMENT")
        if any(g.epoch is not None for g in groups):
            titles += ["CURRENT-EPOCH", "TARGET-ASSIGNMENT", "TARGET-EPOCH", "UPGRADED"]
    rows = [
        [g.group_id, m.member_id, m.group_instance_id, m.host, m.client_id, len(m.assignment),
         assignment_text(m.assignment), m.epoch, None if m.target is None else assignment_text(m.target),
         g.assignment_epoch, _upgraded(g, m)][: len(titles)]
        for g in groups
        for m in g.members
    ]  # fmt: skip
    if rows:
        print_table(titles, rows)
    for group in groups:
        if not group.members:
            print(_no_members(group))


def _upgraded(group: GroupSample, member: MemberDescription) -> str | None:
    """Whether a member of a consumer group has left the classic protocol behind, in the words of Kafka's tool."""
    if group.group_type != "consumer":
        return None
    return "false" if member.protocol == "classic" else "true"


def assignment_text(partitions: tuple[TopicPartition, ...]) -> str:
    """Writes an assignment as Kafka's tool does: `orders:0,1;audit:0`."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return ";".join(f"{topic}:{','.join(map(str, own))}" for topic, own in topics.items())


def _show_offsets(
    group: GroupSample,
    trend: GroupTrend | None,
    options: DescribeOptions,
    committed: dict[TopicPartition, OffsetAndMetadata],
) -> None:
    print(f"{group.group_id}: {_sentence(group, trend, options)}")
    rows = _offset_rows(group, trend, options, committed)
    if rows:
        print()
        titles = ["GROUP", "TOPIC", "PARTITION"]
        titles += ["LEADER-EPOCH"] if options.verbose else []
        titles += [
            "START-OFFSET" if group.group_type == "share" else "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "LAG-SECONDS",
        ]
        titles += ["CONSUMED/S", "PRODUCED/S", "CAUGHT-UP-IN"] if options.rates else []
        titles += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
        titles += ["LOG-START-OFFSET", "METADATA"] if options.verbose else []
        print_table(titles, rows)


def _sentence(group: GroupSample, trend: GroupTrend | None, options: DescribeOptions) -> str:
    kind = group.group_type
    if group.protocol_type not in ("", "consumer", kind):
        kind += f" ({group.protocol_type})"
    parts = [group.state, kind]
    if group.protocol:
        parts.append(f"assignor {group.protocol}")
    if group.coordinator is not None:
        parts.append(f"coordinator {group.coordinator}")
    parts.append(_count(group) if group.members else _no_members(group))
    if options.rates and trend is not None and group.lag:
        left_s = trend.caught_up_in_s
        parts.append(
            "does not catch up at these rates" if left_s is None else f"caught up in {_seconds(left_s)} s"
        )
    return ", ".join(parts)


def _count(group: GroupSample) -> str:
    return "1 member" if len(group.members) == 1 else f"{len(group.members)} members"


def _no_members(group: GroupSample) -> str:
    if group.group_type in ("classic", "consumer", "share"):
        return "no members"
    return f"the members of a {group.group_type} group are not shown here"


def _offset_rows(
    group: GroupSample,
    trend: GroupTrend | None,
    options: DescribeOptions,
    committed: dict[TopicPartition, OffsetAndMetadata],
) -> list[list[Any]]:
    members = {each.member_id: each for each in group.members}
    rows = []
    for each in group.partitions:
        at = TopicPartition(each.topic, each.partition)
        how = None if trend is None else trend.partitions.get(at)
        epoch = committed[at].leader_epoch if at in committed else None
        owners = [members[owner] for owner in each.owners if owner in members]
        rates = (
            []
            if how is None
            else [_rate(how.consume_rate), _rate(how.produce_rate), _seconds(how.caught_up_in_s)]
        )
        rows.append([
            group.group_id, each.topic, each.partition, *([epoch] if options.verbose else []),
            each.committed, each.end, each.lag, _lag_seconds(each, trend),
            *((rates or [None] * 3) if options.rates else []),
            ", ".join(short_ids(owner.member_id) for owner in owners),
            ", ".join(dict.fromkeys(owner.host for owner in owners)),
            ", ".join(dict.fromkeys(owner.client_id for owner in owners)),
            *([each.begin, each.metadata] if options.verbose else []),
        ])  # fmt: skip
    blank = [None] * (4 + (1 if options.verbose else 0) + (3 if options.rates else 0))
    rows += [
        [group.group_id, None, None, *blank, short_ids(m.member_id), m.host, m.client_id,
         *([None, None] if options.verbose else [])]
        for m in group.members
        if not m.assignment
    ]  # fmt: skip
    return rows


def _lag_seconds(each: PartitionSample, trend: GroupTrend | None) -> str | None:
    how = None if trend is None else trend.partitions.get(TopicPartition(each.topic, each.partition))
    return None if how is None else _seconds(how.lag_seconds)


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.0f}" if seconds >= 10 or not seconds else f"{seconds:.1f}"


def _rate(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.1f}"


def _place(group: GroupSample) -> str | None:
    at = group.coordinator
    return None if at is None else f"{at.host}:{at.port} ({at.node_id})"


# --- for programs -----------------------------------------------------------------------------------------------


def _as_json(group: GroupSample, trend: GroupTrend | None, options: DescribeOptions) -> dict[str, Any]:
    at = group.coordinator
    shown: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": None if at is None else {"id": at.node_id, "host": at.host, "port": at.port},
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "lag": group.lag,
        "lag_seconds": None if trend is None else trend.lag_seconds,
        "members": [
            {
                "member_id": m.member_id,
                "group_instance_id": m.group_instance_id,
                "client_id": m.client_id,
                "host": m.host,
                "protocol": m.protocol,
                "epoch": m.epoch,
                "assignment": _partitions_as_json(m.assignment),
                "target": None if m.target is None else _partitions_as_json(m.target),
            }
            for m in group.members
        ],
        "offsets": [_partition_as_json(each, trend, options) for each in group.partitions],
    }
    if options.rates:
        shown |= {
            "consume_rate": None if trend is None else trend.consume_rate,
            "produce_rate": None if trend is None else trend.produce_rate,
            "caught_up_in_s": None if trend is None else trend.caught_up_in_s,
        }
    return shown


def _partitions_as_json(partitions: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    return [{"topic": p.topic, "partition": p.partition} for p in partitions]


def _partition_as_json(
    each: PartitionSample, trend: GroupTrend | None, options: DescribeOptions
) -> dict[str, Any]:
    how = None if trend is None else trend.partitions.get(TopicPartition(each.topic, each.partition))
    shown: dict[str, Any] = {
        "topic": each.topic,
        "partition": each.partition,
        "offset": each.committed,
        "metadata": each.metadata,
        "begin": each.begin,
        "end": each.end,
        "lag": each.lag,
        "lag_seconds": None if how is None else how.lag_seconds,
        "members": list(each.owners),
    }
    if options.rates:
        shown |= {
            "consume_rate": None if how is None else how.consume_rate,
            "produce_rate": None if how is None else how.produce_rate,
            "caught_up_in_s": None if how is None else how.caught_up_in_s,
        }
    return shown
