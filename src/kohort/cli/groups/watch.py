"""`kohort groups watch`: the rebalances of a group as they happen."""

from __future__ import annotations

import json
import sys
import time

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option
from kohort.cli.groups.rebalance_text import rebalance_text
from kohort.coordinator.history import Rebalance
from kohort.insight.rebalances import RebalanceFeed

_POLL_S = 1.0


@click.command(epilog="Example: kohort groups watch orders")
@click.argument("group", metavar="GROUP", shell_complete=complete_group)
@click.option("--seconds", type=float, help="Stop after this long.")
@cluster_options
@json_option
def command(cluster: ClusterOptions, group: str, as_json: bool, seconds: float | None) -> int:
    """Show rebalances as they happen, until Ctrl-C; with --json one object per line."""
    deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
    with cluster.connect() as admin, RebalanceFeed(admin, cluster.settings(), group) as feed:
        waits = " (there is no such group yet)" if admin.describe_groups(group)[group].state == "Dead" else ""
        print(f"rebalances of {group}{waits}; Ctrl-C ends", file=sys.stderr)
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                for _, each in feed.poll(min(_POLL_S, left_s)):
                    _tell(each, as_json)
        except KeyboardInterrupt:
            pass
    return 0


def _tell(each: Rebalance, as_json: bool) -> None:
    print(json.dumps(each.to_json(), ensure_ascii=False) if as_json else rebalance_text(each), flush=True)
