"""`kohort groups why`: the last rebalances of a group."""

from __future__ import annotations

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option
from kohort.cli.groups.history import why


@click.command(epilog="Example: kohort groups why orders --json")
@click.argument("group", metavar="GROUP", shell_complete=complete_group)
@cluster_options
@json_option
def command(cluster: ClusterOptions, group: str, as_json: bool) -> int:
    """Show the last rebalances: when, how long, who and why."""
    with cluster.connect() as admin:
        return why(admin, cluster.settings(), group, as_json)
