"""Settings of a client that are given one by one on the command line."""

from __future__ import annotations

from collections.abc import Iterable

import click


def more_settings(given: Iterable[str]) -> dict[str, object]:
    """Reads `-X NAME=VALUE`; the client checks the names."""
    settings: dict[str, object] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise click.UsageError(f"-X {each}: write -X NAME=VALUE, as in -X client.id=me")
        settings[name] = value
    return settings
