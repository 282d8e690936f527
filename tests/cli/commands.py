"""Walks the commands of `kohort`, and parses a command line without running it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kohort.cli.commands import command as kohort


def parse(arguments: list[str]) -> click.Context:
    """Parses a command line down to its last command; raises click's UsageError if it is wrong."""
    context = kohort.make_context("kohort", list(arguments))
    while isinstance(context.command, click.Group):
        words = [*context._protected_args, *context.args]
        if not words and context.command.invoke_without_command:
            break
        name, inner, rest = context.command.resolve_command(context, words)
        assert inner is not None, words
        context = inner.make_context(name, rest, parent=context)
    return context


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yields each command and group of commands with its words, `groups describe`."""
    yield from _below("", kohort, click.Context(kohort, info_name="kohort"))


def _below(words: str, command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if words:
        yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            inside = click.Context(inner, info_name=name, parent=context)
            yield from _below(f"{words} {name}".strip(), inner, inside)
