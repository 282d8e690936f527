"""The version stands in one place, src/kohort/__init__.py; tests/test_readme.py looks at that of a wheel."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import kohort
from kohort.cli.main import main

ROOT = Path(__file__).resolve().parent.parent


def test_the_build_takes_it_from_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "version" not in settings["project"]
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["hatch"]["version"]["path"] == "src/kohort/__init__.py"


def test_the_command_line_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kohort {kohort.__version__}\n"


def test_the_changelog_begins_with_it() -> None:
    found = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    assert found[1] == kohort.__version__


def test_no_page_repeats_it() -> None:
    """A page that names a version is wrong after the next release."""
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert f"kohort-{kohort.__version__}" not in path.read_text("utf-8"), path
