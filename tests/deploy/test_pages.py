"""docs/metrics.md and docs/deploy.md: what they show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_serve import Serve
from tests.test_readme import blocks
from tests.web import visit

ROOT = Path(__file__).parents[2]


def without_numbers(text: str) -> str:
    """Ports, times and paths differ from one run to the next."""
    return re.sub(r":\d+\b|\d+ ms|in \S+,", "…", text)


def test_the_page_of_metrics_shows_what_a_broker_says(tmp_path: Path) -> None:
    shown = [
        line
        for text in blocks((ROOT / "docs" / "metrics.md").read_text("utf-8"), "console")
        for line in text.splitlines()
    ]
    commands = [shlex.split(line[2:]) for line in shown if line.startswith("$ ")]
    answers = [line for line in shown if not line.startswith("$ ")]
    assert [words[0] for words in commands] == ["kohort", "curl", "curl"]
    said: list[str] = []
    with Serve(tmp_path, "--listen", "127.0.0.1:0", "--metrics", "0") as served:
        assert commands[0][1:] == ["serve", "./data", "--metrics", "9464"]
        assert served.process.stdout is not None
        said += [served.process.stdout.readline().strip() for _ in range(2)]
        base = said[1].split()[1].removesuffix("/metrics")
        for words in commands[1:]:
            address = next(word for word in words if word.startswith("http://127.0.0.1:9464"))
            with visit(address.replace("http://127.0.0.1:9464", base)) as answer:
                lines = answer.read().decode().splitlines()
            wanted = words[words.index("grep") + 1].lstrip("^") if "grep" in words else ""
            said += [line for line in lines if line.startswith(wanted)]
        assert served.stop()[0] == 0
    assert list(map(without_numbers, said)) == list(map(without_numbers, answers))


@pytest.mark.parametrize("page", ["metrics.md", "deploy.md", "serve.md"])
def test_what_a_page_links_to_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert target.startswith("https://") or (ROOT / "docs" / target).exists(), target


def test_the_unit_is_installed_from_where_it_is_to_where_it_looks() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    commands = [line[2:] for part in blocks(text, "console") for line in part.splitlines() if "sudo" in line]
    unit = (ROOT / "deploy" / "systemd" / "kohort.service").read_text("utf-8")
    assert any("deploy/systemd/kohort.service" in command for command in commands)
    for place in ("/opt/kohort", "/etc/kohort/server.properties"):
        assert place in unit
        assert any(place in command for command in commands)
