"""`kohort groups list`: the groups of a cluster."""

from __future__ import annotations

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.output import json_option, print_json, print_table


@click.command(epilog="Example: kohort groups list")
@cluster_options
@json_option
def command(cluster: ClusterOptions, as_json: bool) -> int:
    """List the groups of the cluster, their types and states."""
    with cluster.connect() as admin:
        rows = [(g.group_id, g.group_type, g.protocol_type, g.state) for g in admin.list_groups()]
    if as_json:
        names = ("group", "type", "protocol_type", "state")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)
    return 0
