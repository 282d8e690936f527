"""`kohort doctor SUBJECT`: names what can be checked."""

from __future__ import annotations

import click

from kohort.cli.frame.commands import LazyGroup, Place

PLACES = {
    "spark": Place(
        "kohort.cli.doctor.spark",
        "Python, PySpark, Java, the workers' Python, and a session that reads from a broker of its own.",
    ),
}


@click.group(cls=LazyGroup, places=PLACES, epilog="Example: kohort doctor spark")
def command() -> None:
    """Check one thing after the other, and say what to do where something is wrong; it ends with 1 then."""
