"""`kohort groups why`: the last rebalances of a group."""

from __future__ import annotations

import sys

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option, print_json
from kohort.cli.groups.rebalance_text import rebalance_text
from kohort.insight.rebalances import rebalances_of


@click.command(epilog="Example: kohort groups why orders --json")
@click.argument("group", metavar="GROUP", shell_complete=complete_group)
@cluster_options
@json_option
def command(cluster: ClusterOptions, group: str, as_json: bool) -> int:
    """Show the last rebalances: when, how long, who and why.

    Kohort's coordinator keeps a history with reasons and times. On Apache Kafka, which keeps none, this shows what
    __consumer_offsets still has, and says what cannot be known from it.
    """
    with cluster.connect() as admin:
        found = rebalances_of(admin, cluster.settings(), group)
        described = admin.describe_groups(group)[group]
    for sentence in found.unknown:
        print(f"kohort: {sentence}", file=sys.stderr)
    if as_json:
        print_json([each.to_json() for each in found.rebalances])
        return 0
    print(f"{group}: {described.state}, {len(described.members)} members")
    if not found.rebalances:
        print("no rebalance is on record")
    for each in found.rebalances:
        print(rebalance_text(each))
    return 0
