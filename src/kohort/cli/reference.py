"""Writes the tables of settings, options and errors in docs/ from the tables that the code runs on: `make supported`.

Call it as `python -m kohort.cli.reference docs/*.md`. A generated part of a page stands between two comments:

    <!-- settings: consumer -->       broker, topic, client, consumer, share consumer, producer, admin, registry;
    <!-- end of settings -->          `consumer but client` leaves out what all clients have in common
    <!-- options: source -->          source, source formats, sink, sink formats, pipeline module, pipeline header
    <!-- end of options -->
    <!-- errors: codes -->            codes, or the exceptions of a package: client, serde, spark, broker, tools
    <!-- end of errors -->
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kohort.broker.config import BROKER_SETTINGS
from kohort.cli.error_reference import error_codes, exceptions_of
from kohort.client.config import ADMIN, CONSUMER, PRODUCER, SHARE_CONSUMER, ClientConfig
from kohort.log.config import TOPIC_SETTINGS
from kohort.serde.registry_settings import REGISTRY
from kohort.settings import Setting, Table, as_text
from kohort.spark.formats.format_options import READ_TABLE, WRITE_TABLE, SparkOption
from kohort.spark.option_table import SINK_TABLE, SOURCE_TABLE
from kohort.spark.pipelines.definition import HEADER_WORDS, HEADER_WORDS_WITH_NAME, MODULE_SETTINGS

_COMMON = Table(ClientConfig, "client")
_CLIENTS: dict[str, Table[Any]] = {
    "client": _COMMON,
    "consumer": CONSUMER,
    "share consumer": SHARE_CONSUMER,
    "producer": PRODUCER,
    "admin": ADMIN,
    "registry": REGISTRY,
}
_SORTED: dict[str, Iterable[Setting]] = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS}
_PLACE = re.compile(
    r"(<!-- (settings|options|errors): ([\w ]+) -->\n).*?(<!-- end of \2 -->)",
    re.DOTALL,
)


def settings(name: str) -> str:
    """A table of settings in Markdown: of clients in the order of config.py, of others by name."""
    name, _, but = name.partition(" but ")
    rows = _CLIENTS[name].settings.values() if name in _CLIENTS else sorted(_SORTED[name], key=_by_name)
    left_out = _CLIENTS[but].settings if but else {}
    return table(
        ("name", "default", "meaning"),
        (
            (f"`{row.name}`", _shown(as_text(row.default)), row.doc)
            for row in rows
            if not row.internal and row.name not in left_out
        ),
    )


def _by_name(row: Setting) -> str:
    return row.name


def _shown(default: str | None) -> str:
    return "–" if default is None else f"`{default}`" if default else "empty"


def options(name: str) -> str:
    """A table of the options of the source or the sink, or of what a pipeline says of itself."""
    tables: Mapping[str, tuple[SparkOption, ...]] = {
        "source": SOURCE_TABLE,
        "source formats": READ_TABLE,
        "sink": SINK_TABLE,
        "sink formats": WRITE_TABLE,
    }
    if name in tables:
        rows = ((f"`{each.name}`", _default(each.default), each.meaning) for each in tables[name])
        return table(("option", "default", "meaning"), rows)
    if name == "pipeline module":
        return table(("name", "meaning"), ((f"`{each}`", said) for each, said in MODULE_SETTINGS.items()))
    said = [(f"`-- {each}: …`", meaning) for each, meaning in HEADER_WORDS.items()]
    said += [(f"`-- {each} NAME: …`", meaning) for each, meaning in HEADER_WORDS_WITH_NAME.items()]
    assert name == "pipeline header", name
    return table(("line", "meaning"), said)


def _default(text: str) -> str:
    return f"`{text}`" if text and " " not in text else text


def errors(name: str) -> str:
    """Sections for the error codes, or for the exceptions of a package."""
    return error_codes() if name == "codes" else exceptions_of(name)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """The page with its generated parts brought up to date."""
    makers = {"settings": settings, "options": options, "errors": errors}
    return _PLACE.sub(lambda found: found[1] + makers[found[2]](found[3]) + found[4], page)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        before = path.read_text("utf-8")
        if (after := filled(before)) != before:
            path.write_text(after, "utf-8")
