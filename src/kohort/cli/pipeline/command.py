"""`kohort pipeline`: names its commands and loads the one that is used."""

from __future__ import annotations

import click

from kohort.cli.frame.commands import LazyGroup, Place

PLACES = {
    "new": Place(
        "kohort.cli.pipeline.new", "Write a pipeline: asks what to read, what to keep and where it goes."
    ),
    "test": Place(
        "kohort.cli.pipeline.test", "Run a pipeline once over records from a file, and show what comes out."
    ),
    "run": Place(
        "kohort.cli.pipeline.run", "Run a pipeline until Ctrl-C, SIGTERM or `kohort pipeline stop`."
    ),
    "list": Place("kohort.cli.pipeline.list", "What is built in, and what was started."),
    "status": Place("kohort.cli.pipeline.status", "How a pipeline is doing."),
    "stop": Place("kohort.cli.pipeline.stop", "End a pipeline in order: the last commit, leaving the group."),
}


@click.group(
    cls=LazyGroup, places=PLACES, epilog="Example: kohort pipeline run orders.py --bootstrap 127.0.0.1:9092"
)
def command() -> None:
    """Structured Streaming jobs on Spark."""
