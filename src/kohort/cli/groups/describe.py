"""`kohort groups describe`: the members of a group, and its partitions."""

from __future__ import annotations

import sys
from typing import Any

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option, print_json, print_table, short_ids
from kohort.cli.groups.missing import no_group
from kohort.client.admin import Admin
from kohort.client.admin_types import GroupDescription
from kohort.client.errors import PartlyFailed
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.wire.errors import KafkaError


@click.command(epilog="Example: kohort groups describe orders --config client.properties")
@click.argument("group", metavar="GROUP", shell_complete=complete_group)
@cluster_options
@json_option
def command(cluster: ClusterOptions, group: str, as_json: bool) -> int:
    """Show members, and for each partition its owner, committed offset and lag."""
    with cluster.connect() as admin:
        return _describe(admin, group, as_json)


def _describe(admin: Admin, group_id: str, as_json: bool) -> int:
    described = admin.describe_groups(group_id)[group_id]
    if described.state == "Dead":
        raise no_group(group_id)
    partitions = _partitions(admin, described)
    if as_json:
        print_json(_as_json(described, partitions))
        return 0
    assignor = f", assignor {described.protocol}" if described.protocol else ""
    at = f", coordinator {described.coordinator}" if described.coordinator is not None else ""
    kind = described.group_type
    if described.protocol_type not in ("", "consumer", kind):
        kind += f" ({described.protocol_type})"
    print(f"{group_id}: {described.state}, {kind}{assignor}{at}")
    print()
    if described.members:
        print_table(
            ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"),
            [
                (m.member_id, m.group_instance_id, m.client_id, m.host, len(m.assignment))
                for m in described.members
            ],
        )
    elif described.group_type in ("classic", "consumer", "share"):
        print("no members")
    else:
        print(f"the members of a {described.group_type} group are not shown here")
    if partitions:
        print()
        print_table(
            ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER"),
            [
                (p["topic"], p["partition"], p["offset"], p["end"], p["lag"],
                 ", ".join(map(short_ids, p["members"])) or None)
                for p in partitions
            ],
        )  # fmt: skip
    return 0


def _as_json(described: GroupDescription, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    at = described.coordinator
    return {
        "group": described.group_id,
        "state": described.state,
        "type": described.group_type,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol,
        "coordinator": None if at is None else {"id": at.node_id, "host": at.host, "port": at.port},
        "members": [
            {
                "member_id": m.member_id,
                "group_instance_id": m.group_instance_id,
                "client_id": m.client_id,
                "host": m.host,
                "assignment": [{"topic": p.topic, "partition": p.partition} for p in m.assignment],
            }
            for m in described.members
        ],
        "offsets": partitions,
    }


def _partitions(admin: Admin, described: GroupDescription) -> list[dict[str, Any]]:
    """Partitions that are owned or committed: owners, committed offset, end of the log; None where there is none."""
    owners: dict[TopicPartition, list[str]] = {}
    for member in described.members:
        for partition in member.assignment:
            owners.setdefault(partition, []).append(member.member_id)
    committed: dict[TopicPartition, OffsetAndMetadata] = {}
    if described.group_type != "share":  # share groups keep no committed offsets
        committed = admin.group_offsets(described.group_id, require_stable=False)
    wanted = sorted({*owners, *committed})
    ends = _ends(admin, wanted)
    rows = []
    for partition in wanted:
        offset = committed[partition].offset if partition in committed else None
        end = ends.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "end": end,
                "lag": None if end is None or offset is None else max(end - offset, 0),
                "members": owners.get(partition, []),
            }
        )
    return rows


def _ends(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of the logs. Those that are not known (deleted topic, no leader) are left out and reported on stderr."""
    if not partitions:
        return {}
    try:
        return admin.end_offsets(*partitions)
    except PartlyFailed as partly:
        error, count, found = next(iter(partly.errors.values())), len(partly.errors), partly.results
    except KafkaError as only:
        error, count, found = only, 1, {}
    more = f", and {count - 1} more" if count > 1 else ""
    print(f"kohort: the end of a log is not known: {error}{more}", file=sys.stderr)
    return found
