"""`kohort groups`: names its commands and loads the one that is used."""

from __future__ import annotations

import click

from kohort.cli.frame.commands import LazyGroup, Place

PLACES = {
    "list": Place("kohort.cli.groups.list", "The groups of the cluster, their types and states."),
    "describe": Place(
        "kohort.cli.groups.describe", "State, members, and for each partition owner, offset and lag."
    ),
    "settings": Place("kohort.cli.groups.settings", "The settings of a group; show or change them."),
    "reset": Place("kohort.cli.groups.reset", "Set committed offsets; shows what would change first."),
    "delete": Place("kohort.cli.groups.delete", "Delete groups with all their offsets."),
    "delete-offsets": Place("kohort.cli.groups.delete_offsets", "Forget what is committed for topics."),
    "remove-members": Place("kohort.cli.groups.remove_members", "Make members leave a group."),
    "why": Place("kohort.cli.groups.why", "The last rebalances: when, how long, who and why."),
    "watch": Place("kohort.cli.groups.watch", "Rebalances as they happen, until Ctrl-C."),
}


@click.group(
    cls=LazyGroup, places=PLACES, epilog="Example: kohort groups describe orders --bootstrap a:9092,b:9092"
)
def command() -> None:
    """Consumer groups: what they do, where they are, and why they rebalanced."""
