"""The live picture of `kohort top` on a terminal, and its keys."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kohort.cli.top.looking import LookingThread
from kohort.cli.top.rows import SORTS, TITLES, GroupRow, RowChoice, sparkline
from kohort.insight.health import Health
from kohort.insight.samples import ClusterSample

_STYLES = {
    Health.OK: "green",
    Health.NOTFOUND: "dim",
    Health.WARN: "yellow",
    Health.REWIND: "magenta",
    Health.STALL: "bold red",
    Health.STOP: "bold red",
    Health.ERR: "bold red",
}
_RIGHT = {"MEMBERS", "LAG", "LAG AGE", "READ/S", "WRITTEN/S", "CAUGHT UP IN"}
_AROUND = 6
"""Lines of the screen that are not rows."""
_KEY_S = 0.2
_SEQUENCES = {"\x1b[A": "p", "\x1b[5~": "p", "\x1b[B": "n", "\x1b[6~": "n"}
"""What arrows and page keys send."""
Keys = Callable[[float], str]
"""Waits so many seconds for keys, and returns those that were pressed."""
_BACKSPACE = ("\x7f", "\x08")


class Screen:
    """Shows the groups, and does what the keys say."""

    def __init__(self, looking: LookingThread, choice: RowChoice, where: str) -> None:
        self._looking, self._where = looking, where
        self.choice = choice
        self.top = 0
        self.is_typing = self.is_over = False
        self._rows = 0

    def run(self, seconds: float | None) -> None:
        """Shows the groups until q is pressed or time is up."""
        end_s = time.monotonic() + (float("inf") if seconds is None else seconds)
        console = Console()
        with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            while not self.is_over and time.monotonic() < end_s:
                live.update(self.picture(console), refresh=True)
                for key in keys(min(_KEY_S, max(0.0, end_s - time.monotonic()))):
                    self.press(key)

    def press(self, key: str) -> None:
        """Does what a key says; while a search is typed, keys are its letters."""
        if self.is_typing:
            self._type(key)
        elif key in ("q", "\x1b"):
            self.is_over = True
        elif key in ("s", "S"):
            names, step = list(SORTS), 1 if key == "s" else -1
            following = names[(names.index(self.choice.sort) + step) % len(names)]
            self.choice = replace(self.choice, sort=following)
        elif key == "r":
            self.choice = replace(self.choice, reverse=not self.choice.reverse)
        elif key == "/":
            self.is_typing = True
        elif key in ("n", " "):
            self.top += max(1, self._rows)
        elif key == "p":
            self.top = max(0, self.top - max(1, self._rows))

    def _type(self, key: str) -> None:
        if key in ("\r", "\n", "\x1b"):
            self.is_typing = False
        elif key in _BACKSPACE:
            self.choice = replace(self.choice, search=self.choice.search[:-1])
        elif key.isprintable():
            self.choice = replace(self.choice, search=self.choice.search + key)
        self.top = 0

    def picture(self, console: Console) -> Group:
        """What is on the screen now."""
        with self._looking.lock:
            sample, rows = self._looking.trends.latest, self.choice.rows(self._looking.trends)
        self._rows = max(1, console.height - _AROUND)
        self.top = min(self.top, max(0, len(rows) - 1) // self._rows * self._rows)
        shown = rows[self.top : self.top + self._rows]
        table = self._table(shown, console)
        return Group(self._head(sample, len(rows)), table, self._foot(len(rows), len(shown)))

    def _head(self, sample: ClusterSample | None, count: int) -> Text:
        if sample is None:
            return Text(f"{self._where}: looking …")
        at = time.strftime("%H:%M:%S", time.localtime(sample.at_ms / 1000))
        nodes = len(sample.cluster.nodes)
        lag = sum(group.lag for group in sample.groups.values())
        text = Text(
            f"{at}  {self._where}  {nodes} {'node' if nodes == 1 else 'nodes'}, {len(sample.topics)} topics, "
            f"{len(sample.groups)} groups ({count} shown), lag {lag:,}"
        )
        if self._looking.away_since_s is not None:
            since = time.strftime("%H:%M:%S", time.localtime(self._looking.away_since_s))
            text.append(f"\nno answer since {since}, still trying: {self._looking.trouble}", style="bold red")
        elif sample.problems:
            more = f" (and {len(sample.problems) - 1} more)" if len(sample.problems) > 1 else ""
            text.append(f"\n{sample.problems[0]}{more}", style="yellow")
        return text

    def _table(self, rows: list[GroupRow], console: Console) -> Table:
        table = Table(box=None, expand=True, header_style="bold", pad_edge=False)
        for title in TITLES:
            table.add_column(
                title, justify="right" if title in _RIGHT else "left", no_wrap=True, overflow="ellipsis"
            )
        table.add_column("LAG OVER TIME", no_wrap=True)
        width = 20 if console.width >= 120 else 10
        plain = not console.encoding.lower().startswith("utf")
        for row in rows:
            cells: list[str | Text] = [Text(cell) for cell in row.cells()]
            cells[TITLES.index("HEALTH")] = Text(row.health, style=_STYLES[Health(row.health)])
            table.add_row(*cells, Text(sparkline(row.lag_series, width, plain=plain), style="cyan"))
        return table

    def _foot(self, count: int, shown: int) -> Text:
        if self.is_typing:
            return Text(f"search: {self.choice.search}▏  Enter ends", style="bold")
        order = f"sorted by {self.choice.sort}{', reversed' if self.choice.reverse else ''}"
        search = f", with “{self.choice.search}”" if self.choice.search else ""
        pages = f"  {self.top + 1}–{self.top + shown} of {count}, n next, p previous" if count > shown else ""
        return Text(f"{order}{search}   s sort  r reverse  / search  q quit{pages}", style="dim")


@contextmanager
def _keys() -> Iterator[Keys]:
    """Reads single keys while it lasts; none if stdin is no terminal."""
    if not sys.stdin.isatty():
        yield _no_keys
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield _read_keys
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read_keys(timeout_s: float) -> str:
    descriptor = sys.stdin.fileno()
    if not select.select([descriptor], [], [], timeout_s)[0]:
        return ""
    pressed = os.read(descriptor, 64).decode("utf-8", "replace")
    if len(pressed) > 1 and pressed[0] == "\x1b":
        return _SEQUENCES.get(pressed, "")
    return pressed


def _no_keys(timeout_s: float) -> str:
    time.sleep(timeout_s)
    return ""
