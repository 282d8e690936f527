"""The hook of mkdocs that puts the files beside docs/ on the site, so that one link works here and in a repository.

A page links to files by their place in the repository (`../SUPPORTED.md`, `../examples/dead_letters.py`). On the site
each file that is linked is there too: Markdown as a page, everything else as it is. README.md is the home page.

`<!-- include: ../benchmarks/RESULTS.md -->` stands for that file; in a repository browser one sees the text around it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HOME = "README.md"
# Pages of the site that stand for a file of the repository: the home page, and one that includes the file.
_STANDS_FOR = {HOME: "index.md", "benchmarks/RESULTS.md": "benchmarks.md"}
_FENCED = re.compile(r"(^ *```.*?^ *```[ \t]*$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)\s#]+)([^)]*\))|(<source [^>]*srcset=\"|<img [^>]*src=\")([^\"]+)(\")")
_DRAWN = re.compile(r'<p><img alt="([^"]*)" src="(?:[^"]*/)?(images/[\w-]+\.svg)" ?/?></p>')
_INCLUDE = re.compile(r"^<!-- include: (\S+) -->$", re.MULTILINE)
_OUTSIDE = re.compile(r"[a-z]+:|/")
# The theme would load this one from outside for a page with a Mermaid diagram. Our diagrams are SVG.
_SHIM = re.compile(r'<script src="https://unpkg\.com/[^"]*"></script>')
_LOADED = re.compile(r"https://unpkg\.com/[^\"'`]*")


# --- places -------------------------------------------------------------------------------------------


def site_path(path: str) -> str:
    """Where a file of the repository is on the site: `docs/spark.md` is `spark.md`, README.md is the home page."""
    return _STANDS_FOR.get(path) or path.removeprefix("docs/")


def repository_path(uri: str, root: Path) -> str:
    """Where a page of the site is in the repository."""
    if uri == "index.md":
        return HOME
    return f"docs/{uri}" if (root / "docs" / uri).is_file() else uri


def _target(page: str, link: str) -> str:
    """The path in the repository that a link on a page of the repository means."""
    return os.path.normpath(str(PurePosixPath(page).parent / link))


def _each_link(text: str, change: Callable[[str], str]) -> str:
    """The text with the address of each link changed, but not in code."""

    def changed(found: re.Match[str]) -> str:
        before, address, after = (part for part in found.groups() if part is not None)
        return before + (address if _OUTSIDE.match(address) else change(address)) + after

    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(changed, part) for part in parts[::2]]
    return "".join(parts)


def linked(page: str, root: Path) -> set[str]:
    """The files of the repository that a page links to or includes."""
    text = (root / page).read_text("utf-8")
    found = {_target(page, name) for name in _INCLUDE.findall(text)}

    def keep(address: str) -> str:
        found.add(_target(page, address))
        return address

    _each_link(text, keep)
    return {path for path in found if (root / path).is_file()}


def all_linked(root: Path) -> set[str]:
    """The files that can be reached from the home page and from docs/, over any number of links."""
    todo = [HOME, *(f"docs/{path.name}" for path in (root / "docs").glob("*.md"))]
    seen = set(todo)
    while todo:
        page = todo.pop()
        if page.endswith(".md"):
            new = linked(page, root) - seen
            seen |= new
            todo += sorted(new)
    return seen


def for_site(text: str, page: str, at: str) -> str:
    """The text of the file `page` of the repository, as it must stand in the page `at` of the site."""
    folder = str(PurePosixPath(at).parent)

    def moved(address: str) -> str:
        return os.path.relpath(site_path(_target(page, address)), folder)

    return _each_link(text, moved)


# --- what mkdocs calls --------------------------------------------------------------------------------


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Adds the files beside docs/ that are linked."""
    root = _root(config)
    for path in sorted(all_linked(root)):
        if not path.startswith("docs/") and files.get_file_from_path(site_path(path)) is None:
            files.append(File.generated(config, site_path(path), abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Moves the links of the page, and fills in what it includes."""
    root, at = _root(config), page.file.src_uri
    path = repository_path(at, root)

    def included(found: re.Match[str]) -> str:
        other = _target(path, found[1])
        if not (root / other).is_file():
            raise PluginError(f"{path} includes {found[1]}, which is not there")
        return for_site((root / other).read_text("utf-8"), other, at)

    return _INCLUDE.sub(included, for_site(markdown, path, at))


def on_page_content(html: str, config: MkDocsConfig, **_: Any) -> str:
    """Puts drawings into the page itself, where they have the colours of its text in light and in dark."""

    def drawn(found: re.Match[str]) -> str:
        return f'<div class="drawing">{(Path(config.docs_dir) / found[2]).read_text("utf-8")}</div>'

    return _DRAWN.sub(drawn, html)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Takes out what would be loaded from outside: Mermaid, and a script for searches in pages opened as files."""
    for path in (Path(config.site_dir) / "assets" / "javascripts").glob("bundle.*.min.js"):
        path.write_text(_LOADED.sub("about:blank", path.read_text("utf-8")), "utf-8")
    for path in Path(config.site_dir).rglob("*.html"):
        path.write_text(_SHIM.sub("", path.read_text("utf-8")), "utf-8")
