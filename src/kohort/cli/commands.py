"""The commands of `kohort`: names them; each is loaded when it is used."""

from __future__ import annotations

import click

from kohort import __version__
from kohort.cli.frame.commands import LazyGroup, Place

PLACES = {
    "serve": Place("kohort.cli.serve", "Run a broker."),
    "demo": Place(
        "kohort.cli.demo.command",
        "A broker, a group whose members come and go, a pipeline on Spark; ends by itself.",
    ),
    "topics": Place("kohort.cli.topics", "List, create, describe, alter and delete topics."),
    "produce": Place("kohort.cli.records.produce", "Write records to a topic, from stdin or files."),
    "consume": Place("kohort.cli.records.consume", "Read records from topics, with a group or without."),
    "groups": Place(
        "kohort.cli.groups.command", "Groups: list, describe, reset, delete; why did it rebalance?"
    ),
    "users": Place("kohort.cli.security.users", "Who may log in: users and their passwords."),
    "acls": Place("kohort.cli.security.acls", "Who may do what to topics, groups and the cluster."),
    "quotas": Place("kohort.cli.security.quotas", "How much a user, a client id or an address may take."),
    "top": Place("kohort.cli.top.command", "A live view of groups, lag and rates."),
    "console": Place("kohort.cli.console.command", "The web console, for any Kafka cluster."),
    "doctor": Place(
        "kohort.cli.doctor.command",
        "What is wrong with a broker, a cluster, a client's settings, and what to do.",
    ),
    "pipeline": Place("kohort.cli.pipeline.command", "Structured Streaming jobs on Spark."),
    "bench": Place("kohort.cli.bench.command", "Measure a cluster: produce, consume, commits, rebalances."),
    "sim": Place("kohort.cli.sim", "Coordinator and consumers under virtual time, with faults."),
    "verify": Place("kohort.cli.verify", "Check every batch of a data directory."),
    "completion": Place("kohort.cli.frame.completion_command", "Print the completion script of a shell."),
}


@click.group(
    cls=LazyGroup,
    places=PLACES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: kohort serve ./data --listen 127.0.0.1:9092",
)
@click.version_option(__version__, prog_name="kohort", message="%(prog)s %(version)s")
def command() -> None:
    """Kafka's consumer-group system in Python."""
