"""docs/doctor.md, docs/lag-and-health.md, docs/why-did-it-rebalance.md: every command and every program is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kohort import Admin
from kohort.cli.main import main
from kohort.insight.health import Health
from kohort.testing import Kafka
from tests.insight.groups import member, settle
from tests.test_readme import blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("doctor.md", "lag-and-health.md", "why-did-it-rebalance.md")
ADDRESS = "127.0.0.1:9092"


def commands() -> list[tuple[str, str]]:
    """Each command of the pages, and what the page shows below it."""
    found = []
    for page in PAGES:
        for block in blocks((DOCS / page).read_text("utf-8"), "console"):
            for part in block.split("$ ")[1:]:
                typed, _, shown = part.partition("\n")
                found.append((typed, shown))
    return found


@pytest.fixture
def billing(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka.create_topic("orders", partitions=2)
    with member(kafka.bootstrap_servers, "billing", "orders") as consumer:
        settle(consumer, partitions=2)
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={ADDRESS}\ngroup.id=billing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOHORT_BOOTSTRAP", kafka.bootstrap_servers)
    return kafka


def general(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    return re.sub(r"\d+", "N", text).splitlines()


@pytest.mark.parametrize(("typed", "shown"), commands())
def test_every_command_works_and_prints_what_is_shown(
    billing: Kafka, typed: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *arguments = shlex.split(typed)
    assert program == "kohort"
    ends_by_itself = arguments[0] != "top" or "--once" in arguments
    assert main(arguments if ends_by_itself else [*arguments, "--seconds", "0.5"]) == 0
    if shown:
        assert general(capsys.readouterr().out) == general(shown)


@pytest.mark.parametrize("page", PAGES[1:])
def test_every_program_works(billing: Kafka, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks((DOCS / page).read_text("utf-8"), "python")
    with Admin(bootstrap_servers=billing.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {("orders", 0): 0})
    exec(compile(program.replace(ADDRESS, billing.bootstrap_servers), page, "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out.splitlines()
    expected = "billing OK 0 0.0 0.0" if page == "lag-and-health.md" else "kohort"
    assert printed[0] == expected


def test_every_health_is_explained() -> None:
    page = (DOCS / "lag-and-health.md").read_text("utf-8")
    assert all(f"{health.value}" in page for health in Health)


def test_the_settings_and_words_that_the_page_names_exist() -> None:
    """The words of rebalances are those of the code."""
    page = (DOCS / "why-did-it-rebalance.md").read_text("utf-8")
    sources = [
        path.read_text("utf-8")
        for package in ("coordinator", "client")
        for path in (DOCS.parent / "src" / "kohort" / package).rglob("*.py")
    ]
    table = page.partition("| it says |")[2].partition("\n\n")[0]
    words = [
        part.strip()
        for row in table.splitlines()[2:]
        for quoted in re.findall(r"`([^`]+)`", row.split("|")[1])
        for part in re.split("…|left: ", quoted)
        if part.strip()
    ]
    assert len(words) > 7
    for word in words:
        assert any(word in source for source in sources), word
