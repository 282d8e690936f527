"""Reads options that are given as NAME=VALUE, any number of times."""

from __future__ import annotations

from collections.abc import Iterable

import click


def name_value_pairs(given: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Returns the values by name; UsageError shows the option with an example."""
    pairs: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{option} {each}: write {option} NAME=VALUE, as in {option} {example}")
        pairs[name] = value
    return pairs
