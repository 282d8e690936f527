"""`kohort bench`: names its commands."""

from __future__ import annotations

import click

from kohort.cli.frame.commands import LazyGroup, Place

PLACES = {
    "produce": Place(
        "kohort.cli.bench.produce", "How fast records are written, and how long each one takes."
    ),
    "consume": Place("kohort.cli.bench.consume", "How fast records are read."),
    "commit": Place("kohort.cli.bench.commit", "How fast a group's offsets are committed."),
    "rebalance": Place("kohort.cli.bench.rebalance", "How long a group takes when a member comes or goes."),
}


@click.group(
    cls=LazyGroup,
    places=PLACES,
    epilog="Example: kohort bench produce --records 100000 --size 100",
    short_help="Measure a cluster: produce, consume, commits, rebalances.",
)
def command() -> None:
    """Measures a cluster, with topics and groups of its own, kohort-bench-…, which it deletes at the end.

    It asks nothing, and measures what this one client gets: on the same machine as the broker they share its cores.
    """
