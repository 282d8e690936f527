"""`make docs`: the site builds without a warning and without the network, and loads nothing from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT

LOADING = {"src", "srcset", "poster", "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "the site"
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return folder


class Loads(HTMLParser):
    """What a page loads, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.loads += [value for name, value in given.items() if name in LOADING]
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(given.get("href", ""))
        if tag == "a":
            self.links.append(given.get("href", ""))


def test_no_page_loads_anything_from_outside(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        for loaded in Loads(page.read_text("utf-8")).loads:
            assert not re.match(r"(https?:)?//", loaded), f"{page.name} loads {loaded}"


def test_no_style_and_no_program_loads_anything_from_outside(site: Path) -> None:
    for style in site.rglob("*.css"):
        text = style.read_text("utf-8")
        assert not re.search(r"url\(\s*[\"']?(https?:)?//|@import\s+[\"'](https?:)?//", text), style.name
    for program in site.rglob("*.js"):
        if program.name != "search_index.js":
            text = program.read_text("utf-8")
            assert not re.search(r"unpkg|jsdelivr|cdnjs|googleapis|gstatic|polyfill\.io", text), program.name


def test_every_link_within_the_site_leads_to_a_file(site: Path) -> None:
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":
            continue
        for link in Loads(page.read_text("utf-8")).links:
            path = unquote(link.partition("#")[0])
            if path and not re.match(r"[a-z]+:", path):
                assert (page.parent / path).exists(), f"{page.name} links to {link}"


def test_a_link_works_in_the_repository_too() -> None:
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
            if not re.match(r"[a-z]+:", link):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_files_beside_docs_are_on_the_site(site: Path) -> None:
    assert "What is supported" in (site / "SUPPORTED.html").read_text("utf-8")
    assert (site / "examples" / "dead_letters.py").read_bytes() == (
        ROOT / "examples" / "dead_letters.py"
    ).read_bytes()
    results = (site / "benchmarks.html").read_text("utf-8")
    assert "start to first produce" in results
    assert 'src="benchmarks/results.png"' in results
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="kohort-states"' in (
        site / "inside.html"
    ).read_text("utf-8")


def test_every_page_is_in_the_navigation() -> None:

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    named: set[str] = set()
    todo = [nav]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            named.add(item)
        else:
            todo += item if isinstance(item, list) else item.values()
    missing = {path.name for path in DOCS.glob("*.md")} - named
    assert not missing, f"name them under `nav` in mkdocs.yml: {', '.join(sorted(missing))}"
