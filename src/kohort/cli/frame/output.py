"""Prints tables for people, and JSON for programs; asks a person before something is gone."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NARROWEST = 8
"""No column is cut to fewer characters than this."""
_GAP = "  "


def json_option(command: F) -> F:
    """Adds `--json`, which a command takes as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def print_json(value: object) -> None:
    """Prints a value as JSON; what JSON does not have is shown as its text."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table. A cell that is None or empty is shown as -, as Kafka's tools show it.

    On a terminal it fits: the widest columns are cut, and … shows where. Elsewhere nothing is cut.
    """
    texts = [
        tuple(titles),
        *(tuple("-" if cell in (None, "") else str(cell) for cell in row) for row in rows),
    ]
    widths = [max(len(row[column]) for row in texts) for column in range(len(titles))]
    if sys.stdout.isatty():
        widths = _fitting(widths, shutil.get_terminal_size().columns)
    for row in texts:
        cells = (_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True))
        print(_GAP.join(cells).rstrip())


def ask(question: str, yes: bool) -> None:
    """Ends the command unless somebody agrees; `yes` agrees beforehand."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: say --yes")
    click.confirm(question, abort=True, err=True)


def short_ids(text: str) -> str:
    """Shortens the uuid at the end of member ids: eight characters tell two apart. `--json` has them whole."""
    return _UUID.sub(r"\1…", text)


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"


def _fitting(widths: list[int], columns: int) -> list[int]:
    """Takes from the widest column until the table fits, or all that may be cut are cut."""
    fitting = list(widths)
    excess = sum(fitting) + len(_GAP) * (len(fitting) - 1) - columns
    while excess > 0:
        widest = max(range(len(fitting)), key=fitting.__getitem__)
        if fitting[widest] <= _NARROWEST:
            break
        fitting[widest] -= 1
        excess -= 1
    return fitting
