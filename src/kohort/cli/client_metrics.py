"""Writes the tables of metrics in docs/client-metrics.md from the tables that the clients count by.

Call it as `python -m kohort.cli.client_metrics docs/client-metrics.md`. A table stands between
`<!-- metrics: consumer -->` and `<!-- end of metrics -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kohort.client.metrics import TABLES

_PLACE = re.compile(r"(<!-- metrics: ([\w-]+) -->\n).*?(<!-- end of metrics -->)", re.DOTALL)


def metric_rows(client: str) -> str:
    """A table in Markdown for a kind of client, one row per metric."""
    lines = ["| name | group | tags | meaning |", "|---|---|---|---|"]
    for table in TABLES[client]:
        group = table.group.format(client=client)
        tags = ", ".join(f"`{tag}`" for tag in ("client-id", *table.tags))
        lines += [f"| `{row.name}` | `{group}` | {tags} | {row.description} |" for row in table.rows]
    return "\n".join(lines) + "\n"


def with_metrics(page: str) -> str:
    """The page with its tables brought up to date."""
    return _PLACE.sub(lambda found: found[1] + metric_rows(found[2]) + found[3], page)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(with_metrics(path.read_text("utf-8")), "utf-8")
