"""Where a command is; apart from click, so that the table of commands is there before click is loaded."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where a command is, and its line in the list of commands, which is shown without loading it."""

    module: str
    help: str
