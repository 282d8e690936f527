"""The hook for commit messages, and the configuration of all hooks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.commit_subject import complaint

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", "is empty"),
        ("# Please enter the commit message\n", "is empty"),
        (f"{'x' * 73}\n", "73 characters"),
        ("A subject\nthat goes on\n", "second line"),
    ],
)
def test_a_subject_that_does_not_fit_is_told(message: str, words: str) -> None:
    assert words in (complaint(message) or "")


@pytest.mark.parametrize(
    "message",
    ["x" * 72, "A subject\n\nA body\n", "A subject\n# a comment of git's\n", "Merge branch 'anywhere'\n"],
)
def test_a_good_message_passes(message: str) -> None:
    assert complaint(message) is None


def test_the_hook_fails_with_the_reason(tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("x" * 100)
    command = [sys.executable, "-m", "tests.commit_subject", str(message)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "100 characters" in done.stderr


def test_the_hooks_run_what_make_lint_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    entries = [hook["entry"] for hook in hooks]
    recipe = (ROOT / "Makefile").read_text("utf-8").split("\nlint:")[1].split("\n\n")[0]
    for line in recipe.splitlines()[1:]:
        tool = line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .")
        assert any(entry.startswith(tool) for entry in entries), tool
