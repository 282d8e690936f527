"""`kohort groups watch`: the rebalances of a group as they happen."""

from __future__ import annotations

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option
from kohort.cli.groups.history import watch


@click.command(epilog="Example: kohort groups watch orders")
@click.argument("group", metavar="GROUP", shell_complete=complete_group)
@click.option("--seconds", type=float, help="Stop after this long.")
@cluster_options
@json_option
def command(cluster: ClusterOptions, group: str, as_json: bool, seconds: float | None) -> int:
    """Show rebalances as they happen, until Ctrl-C."""
    with cluster.connect() as admin:
        return watch(admin, cluster.settings(), group, as_json, seconds)
