"""Writes SUPPORTED.md from the tables that the broker runs on: `make supported`."""

from __future__ import annotations

import sys
from importlib.resources import files

from kohort.broker.apis.table import TABLE
from kohort.broker.config import BROKER_SETTINGS
from kohort.log.config import TOPIC_SETTINGS
from kohort.settings import as_text
from kohort.wire.compiler.notation import all_apis


def page() -> str:
    """The whole page; a test compares it with the file in the repository."""
    lines = [
        "# What is supported",
        "",
        "Written by `make supported` from the tables that the code runs on; `make test` says when it is stale.",
        "",
        "## APIs",
        "",
        "| key | API | versions | flexible from | what it is for |",
        "|---|---|---|---|---|",
    ]
    apis = all_apis()
    for key, row in sorted(TABLE.items()):
        spec = apis[key]
        flexible = str(spec.flexible.first) if spec.flexible.first <= row.last else "–"
        note = f" ({row.note})" if row.note else ""
        lines.append(f"| {key} | {row.name} | {row.first}–{row.last} | {flexible} | {spec.purpose}{note} |")
    for title, table in (("Broker settings", BROKER_SETTINGS), ("Topic settings", TOPIC_SETTINGS)):
        lines += ["", f"## {title}", "", "| name | default | meaning |", "|---|---|---|"]
        for setting in sorted(table, key=lambda s: s.name):
            if not setting.internal:
                default = as_text(setting.default)
                shown = "–" if default is None else f"`{default}`" if default else "empty"
                lines.append(f"| `{setting.name}` | {shown} | {setting.doc} |")
    behaviours = files("kohort.cli").joinpath("supported.md").read_text("utf-8")
    return "\n".join(lines) + "\n\n" + behaviours


if __name__ == "__main__":
    sys.stdout.write(page())
