"""Settings of a client that are given one by one on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.cli.frame.pairs import name_value_pairs


def more_settings(given: Iterable[str]) -> dict[str, object]:
    """Reads `-X NAME=VALUE`; the client checks the names."""
    return {**name_value_pairs(given, "-X", "client.id=me")}
