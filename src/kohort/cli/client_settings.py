"""Writes the tables of settings in docs/ from the tables that the clients run on.

Call it as `python -m kohort.cli.client_settings docs/consumer.md docs/producer.md`.

A table stands between `<!-- settings: consumer -->` and `<!-- end of settings -->`; `consumer but client` leaves out
what all clients have in common.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from kohort.client.config import ADMIN, CONSUMER, PRODUCER, ClientConfig
from kohort.settings import Table, as_text

_COMMON = Table(ClientConfig, "client")
_TABLES: dict[str, Table[Any]] = {
    "client": _COMMON,
    "consumer": CONSUMER,
    "producer": PRODUCER,
    "admin": ADMIN,
}
_PLACE = re.compile(r"(<!-- settings: (\w+)( but client)? -->\n).*?(<!-- end of settings -->)", re.DOTALL)


def table(name: str, but_common: bool = False) -> str:
    """A table in Markdown, one row per setting, in the order of config.py."""
    lines = ["| name | default | meaning |", "|---|---|---|"]
    for setting in _TABLES[name].settings.values():
        if but_common and setting.name in _COMMON.settings:
            continue
        default = as_text(setting.default)
        shown = "–" if default is None else f"`{default}`" if default else "empty"
        lines.append(f"| `{setting.name}` | {shown} | {setting.doc} |")
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """The page with its tables brought up to date."""
    return _PLACE.sub(lambda found: found[1] + table(found[2], bool(found[3])) + found[4], page)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(filled(path.read_text("utf-8")), "utf-8")
