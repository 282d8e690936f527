"""Writes the map of files in ARCHITECTURE.md from the first docstring line of each module: `make map`.

The map stands between `<!-- map -->` and `<!-- end of map -->`. tests/test_architecture_map.py fails when it is stale.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
SOURCE = ROOT / "src" / "kohort"

# The packages stand in the order in which they build on each other; packages that are not named here follow.
_ORDER = ("wire", "log", "coordinator", "broker", "client", "serde", "spark", "testing", "sim", "cli")
# Folders that are one line each: no Python in them, or generated Python.
_ONE_LINE = {
    "wire/schema": "One text for each API with the layout of all its versions; see schema/README.md.",
    "wire/messages": "The classes that the codecs build; generated from schema/ by `make messages`.",
    "wire/codecs": "The codecs that a client needs at its start; generated too, so that a start compiles nothing.",
}
_WIDTH = 120
_PLACE = re.compile(r"(<!-- map -->\n).*?(<!-- end of map -->)", re.DOTALL)


def first_line(path: Path) -> str:
    """Returns the first line of a module's docstring; it fails for a module that has none."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert text, f"{path} needs a docstring whose first line says what the module is"
    return text.splitlines()[0]


def _packages_in(folder: Path) -> list[Path]:
    """Returns the packages and the one-line folders directly below a folder, in the order of the map."""

    def place(found: Path) -> tuple[int, str]:
        return (_ORDER.index(found.name) if found.name in _ORDER else len(_ORDER), found.name)

    found = [
        child
        for child in folder.iterdir()
        if (child / "__init__.py").exists() or child.relative_to(SOURCE).as_posix() in _ONE_LINE
    ]
    return sorted(found, key=place)


def _entries(folder: Path, depth: int) -> list[tuple[int, str, str]]:
    """Returns depth, name and description of what is in a package: first its modules, then its packages."""
    modules = (path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py")
    found = [(depth, path.name, first_line(path)) for path in modules]
    for package in _packages_in(folder):
        name = package.relative_to(SOURCE).as_posix()
        if name in _ONE_LINE:
            found.append((depth, f"{package.name}/", _ONE_LINE[name]))
        else:
            found.append((depth, f"{package.name}/", first_line(package / "__init__.py")))
            found += _entries(package, depth + 1)
    return found


def architecture_map() -> str:
    """Returns the map as a Markdown code block."""
    entries = [(0, "src/kohort/", first_line(SOURCE / "__init__.py")), *_entries(SOURCE, 1)]
    column = max(2 * depth + len(name) for depth, name, _ in entries) + 2
    lines = []
    for depth, name, about in entries:
        beginning = f"{'  ' * depth}{name}".ljust(column)
        lines += textwrap.wrap(
            about, _WIDTH, initial_indent=beginning, subsequent_indent=" " * column, break_on_hyphens=False
        )
    return "\n".join(["```", *lines, "```", ""])


def filled(page: str) -> str:
    """Returns the page with its map as it should be."""
    new, count = _PLACE.subn(lambda found: found[1] + architecture_map() + found[2], page)
    assert count == 1, "ARCHITECTURE.md must have one `<!-- map -->` and one `<!-- end of map -->` behind it"
    return new


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
