"""The map of files in ARCHITECTURE.md is written from the modules; this test fails when it is stale."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture_map import PAGE, ROOT, SOURCE, architecture_map, filled, first_line


def test_the_map_is_what_the_modules_say() -> None:
    page = PAGE.read_text("utf-8")
    assert filled(page) == page, "run `make map`"


def test_every_module_is_in_the_map() -> None:
    generated = (SOURCE / "wire" / "messages", SOURCE / "wire" / "codecs")
    modules = Counter(
        path.name
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py" and path.parent not in generated
    )
    named = Counter(re.findall(r"^ +(\w+\.py) ", architecture_map(), re.MULTILINE))
    assert named == modules


def test_a_module_without_a_docstring_is_named(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("x = 1\n")
    with pytest.raises(AssertionError, match=r"bare\.py needs a docstring"):
        first_line(tmp_path / "bare.py")


def test_the_place_of_the_map_must_be_there() -> None:
    with pytest.raises(AssertionError, match="must have one"):
        filled("# A page without a map\n")


def test_every_path_in_the_page_leads_somewhere() -> None:
    """Paths are given from src/kohort (`log/partition.py`) or from the root of the repository (`docs/groups.md`)."""
    prose = PAGE.read_text("utf-8").split("<!-- map -->")[0]
    paths = set(re.findall(r"\b[a-z_]+(?:/[a-z_]+)+(?:\.(?:py|md)\b|/)", prose))
    assert len(paths) > 20
    missing = [path for path in sorted(paths) if not (SOURCE / path).exists() and not (ROOT / path).exists()]
    assert not missing, f"ARCHITECTURE.md names {missing}"
