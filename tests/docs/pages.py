"""Reads pages of Markdown for the tests: code blocks with the marks above them, and tables.

A mark is a comment, which a reader of the page does not see:

    <!-- run: tests/cli/test_demo.py::test_name -->        this test runs the block that follows
    <!-- run console: tests/cli/test_demo.py::test_name -->  this test runs all blocks of that language on the page
    <!-- shown: output of the command above -->            the block that follows is not run, for this reason
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ADDRESS = "127.0.0.1:9092"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)``` *$", re.DOTALL | re.MULTILINE
)
_MARK = re.compile(r"<!-- (run|shown): (.+?) -->[ \t]*\n[ \t]*\Z")
_MARK_OF_PAGE = re.compile(r"<!-- run (\w+): (\S+) -->")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code on a page."""

    page: str
    line: int
    language: str
    text: str
    heading: str
    run_by: str | None
    """The test that runs it, as pytest names tests."""
    shown_because: str | None
    """Why nothing runs it."""

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def blocks_of(path: Path) -> tuple[Block, ...]:
    return tuple(_blocks(path.name if path.parent == ROOT else f"docs/{path.name}", path.read_text("utf-8")))


def _blocks(page: str, text: str) -> Iterator[Block]:
    of_page = dict(_MARK_OF_PAGE.findall(text))
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        mark = _MARK.search(before)
        headings = re.findall(r"^#+ (.+)$", re.sub(_FENCE, "", before), re.MULTILINE)
        kind, said = (mark[1], mark[2]) if mark else ("", "")
        yield Block(
            page,
            before.count("\n") + 1,
            found["language"],
            textwrap.dedent(found["text"]),
            headings[-1] if headings else "",
            said if kind == "run" else None if kind else of_page.get(found["language"]),
            said if kind == "shown" else None,
        )


def tables_of(path: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """Each table of a page: the heading above it, and its rows with their cells; the first row is the head."""
    heading, rows = "", list[list[str]]()
    for line in [*path.read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if rows:
            yield heading, [rows[0], *rows[2:]]
            rows = []
        if line.startswith("#"):
            heading = line.lstrip("# ")
