"""`kohort doctor [SUBJECT]`: names what can be checked; alone it checks the cluster."""

from __future__ import annotations

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.commands import LazyGroup, Place
from kohort.cli.frame.output import json_option

PLACES = {
    "cluster": Place(
        "kohort.cli.doctor.cluster",
        "Reachable, advertised addresses, clocks, partitions, groups that rebalance or stand still.",
    ),
    "settings": Place(
        "kohort.cli.doctor.settings",
        "A client's settings: unknown, contradictory, dangerous or without effect.",
    ),
    "broker": Place(
        "kohort.cli.doctor.broker",
        "This machine as a broker's home: disk, open files, directory, port, versions.",
    ),
    "spark": Place(
        "kohort.cli.doctor.spark",
        "Python, PySpark, Java, the workers' Python, and a session that reads from a broker of its own.",
    ),
}


@click.group(
    cls=LazyGroup, places=PLACES, invoke_without_command=True, epilog="Example: kohort doctor cluster --json"
)
@cluster_options
@json_option
@click.pass_context
def command(ctx: click.Context, cluster: ClusterOptions, as_json: bool) -> int:
    """Check one thing after the other, and say what to do where something is wrong; it ends with 1 then.

    Without a subject it checks the cluster.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from kohort.cli.doctor.cluster import check_cluster
    from kohort.cli.doctor.findings import report

    return report(check_cluster(cluster.settings()), as_json=as_json)
