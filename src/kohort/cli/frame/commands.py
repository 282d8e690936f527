"""Groups of commands that load the module of a command only when that command is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from kohort.cli.frame.collector import collector_off


class Place(NamedTuple):
    """Where a command is, and its line in the list of commands, which is shown without loading it."""

    module: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands are named by `places`: each is the object `command` of its module."""

    def __init__(self, *arguments: Any, places: Mapping[str, Place] | None = None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names the commands in the order of the table, which is the order in which people meet them."""
        return [*self._places, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._places.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        return _loaded(place)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands from the table: `kohort --help` loads no command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in self._places.items()])


def _loaded(place: Place) -> click.Command:
    with collector_off():
        command = import_module(place.module).command
    assert isinstance(command, click.Command), place
    _keep_examples_whole(command)
    return command


def _keep_examples_whole(command: click.Command) -> None:
    """Makes click write the example below the help as one line, which can be copied."""
    if command.epilog and not command.epilog.startswith("\b"):
        command.epilog = f"\b\n{command.epilog}"
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _keep_examples_whole(inner)
