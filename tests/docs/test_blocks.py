"""Every block of code in README and docs is run by a test, or says why not; tests/docs/pages.py has the marks."""

from __future__ import annotations

import contextlib
import re
import shlex
from typing import Any

import click
import pytest

from kohort.broker.config import BROKER_SETTINGS
from kohort.broker.security.listener_settings import is_security_setting
from kohort.cli.frame.properties import read_properties
from kohort.client.config import ADMIN, CONSUMER, PRODUCER
from kohort.testing import Kafka
from tests.cli.commands import parse
from tests.docs.pages import ADDRESS, PAGES, ROOT, Block, blocks_of

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PLAIN = [b for b in BLOCKS if b.language == "python" and not b.run_by and not b.shown_because]
HOW = (
    "write `<!-- run: tests/FILE.py::test_name -->` above the block, with the test that runs it, or "
    "`<!-- shown: WHY -->` if nothing can (tests/docs/pages.py)"
)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.id)
def test_a_test_runs_the_block_or_it_says_why_not(block: Block) -> None:
    if block.shown_because is not None:
        assert len(block.shown_because.split()) >= 4, f"{block.id}: say why it is not run"
    elif block.run_by is not None:
        path, _, name = block.run_by.partition("::")
        assert (ROOT / path).is_file(), f"{block.id}: there is no {path}"
        tests = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(async )?def {name}\(", tests, re.MULTILINE), f"{block.id}: {path} has no {name}"
    else:
        assert block.language == "python", f"{block.id}: {HOW}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("block", PLAIN, ids=lambda block: block.id)
def test_a_plain_block_of_python_runs(kafka: Kafka, block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """Against a broker with nothing in it: the way for examples that need no more, and need no mark."""
    source = block.text.replace(ADDRESS, kafka.bootstrap_servers)
    assert source != block.text, f"{block.id}: it names no broker at {ADDRESS}; {HOW}"
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(source, block.id, "exec", dont_inherit=True), names)
    assert capsys.readouterr().out, f"{block.id}: it prints nothing, so nobody can see that it works"


def commands_in(block: Block) -> list[list[str]]:
    """The commands of `kohort` in a block: lines with a dollar, or all lines where none has one; also behind a pipe."""
    lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")] or (lines if not block.language else [])
    found = []
    for line in typed:
        words = shlex.split(line, comments=True)
        while words:
            end = next(
                (n for n, word in enumerate(words) if word in ("|", "&&", ";", "&", ">", ">>", "<")),
                len(words),
            )
            if words[0].rpartition("/")[2] == "kohort":
                found.append(words[1:end])
            is_file = end < len(words) and words[end] in (">", ">>", "<")
            words = words[end + 1 + is_file :]
    return found


@pytest.mark.parametrize(
    "block",
    [b for b in BLOCKS if b.language in ("console", "") and commands_in(b)],
    ids=lambda block: block.id,
)
def test_every_command_that_is_shown_can_be_called(block: Block) -> None:
    for words in commands_in(block):
        with contextlib.suppress(click.exceptions.Exit):  # --help
            parse(words)


def test_settings_that_are_shown_can_be_read(tmp_path: Any) -> None:
    shown = [block for block in BLOCKS if block.language == "properties"]
    assert shown
    known = {*BROKER_SETTINGS.settings, *CONSUMER.settings, *PRODUCER.settings, *ADMIN.settings}
    for block in shown:
        file = tmp_path / "shown.properties"
        file.write_text(block.text, "utf-8")
        for name in read_properties(file):
            assert name in known or is_security_setting(name), f"{block.id}: {name}"
