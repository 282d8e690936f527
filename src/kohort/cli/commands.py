"""The group of all commands of `kohort`, as click needs it."""

from __future__ import annotations

import click

from kohort import __version__
from kohort.cli.frame.commands import LazyGroup
from kohort.cli.main import PLACES


@click.group(
    cls=LazyGroup,
    places=PLACES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: kohort serve ./data --listen 127.0.0.1:9092",
)
@click.version_option(__version__, prog_name="kohort", message="%(prog)s %(version)s")
def command() -> None:
    """Kafka's consumer-group system in Python."""
