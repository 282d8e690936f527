"""The fragments in changes/ are named and written so that towncrier can make release notes of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in SETTINGS["type"]]
FRAGMENT = re.compile(rf"(\d+|\+[\w-]+)\.({'|'.join(KINDS)})(\.\d+)?\.md")


def complaints(name: str, text: str) -> list[str]:
    """Returns what is wrong with a fragment, one sentence each."""
    found = []
    if not FRAGMENT.fullmatch(name):
        found.append(f"changes/{name}: call it <issue>.<kind>.md; kinds are {', '.join(KINDS)}")
    if not text.strip().endswith("."):
        found.append(f"changes/{name}: write one or two whole sentences")
    if any(len(line) > 120 for line in text.splitlines()):
        found.append(f"changes/{name}: wrap its lines at 120 columns")
    return found


def test_every_fragment_is_well_formed() -> None:
    paths = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert [complaint for path in paths for complaint in complaints(path.name, path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("13.bug.md", "It works.", "kinds are feature"),
        ("fix.md", "It works.", "call it"),
        ("13.fix.txt", "It works.", "call it"),
        ("13.fix.md", "", "whole sentences"),
        ("13.fix.md", f"{'x' * 121}.", "120 columns"),
    ],
)
def test_a_fragment_that_is_not_is_told(name: str, text: str, words: str) -> None:
    (found,) = complaints(name, text)
    assert words in found


@pytest.mark.parametrize("name", ["13.fix.md", "13.fix.2.md", "+later-wakeup.feature.md"])
def test_a_good_fragment_passes(name: str) -> None:
    assert complaints(name, "A wakeup reaches a poll that has just begun.\n") == []


def test_release_notes_are_made_of_them(tmp_path: Path) -> None:
    """Towncrier, with the settings of this project, in a copy with two fragments."""
    version = "9.8.7"
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    (tmp_path / "CHANGELOG.md").write_text((ROOT / "CHANGELOG.md").read_text("utf-8"))
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text((ROOT / "changes" / "README.md").read_text("utf-8"))
    (tmp_path / "changes" / "12.feature.md").write_text("Members can be counted.\n")
    (tmp_path / "changes" / "13.fix.md").write_text("A wakeup is not lost.\n")
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--keep",
        "--version",
        version,
        "--date",
        "2026-11-16",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    new = page[: page.index("## 0.1.0")]
    assert f"## {version} (2026-11-16)" in new
    assert "### New\n\n- Members can be counted. (#12)" in new
    assert "### Fixed\n\n- A wakeup is not lost. (#13)" in new
