"""docs/start.md, docs/serve.md and README: the first commands and the first program, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import Kafka
from tests.docs.pages import ADDRESS, DOCS, ROOT, Block, blocks_of

READY = re.compile(r"Kohort is ready: bootstrap\.servers=(\S+) ")
START = DOCS / "start.md"
PATIENCE_S = 60


class Enough(Exception):
    """Ends an example that would go on for ever."""


def typed(block: Block) -> list[str]:
    return [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]


def serving(path: Path) -> str:
    """The line of a page that starts a broker."""
    (line,) = [each for block in blocks_of(path) for each in typed(block) if "kohort serve" in each]
    return line


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, Any]:
    """How the commands of a page are run: `kohort` is the one of this environment, files go to a folder of the test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "kohort"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kohort.cli.main "$@"\n', "utf-8")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    return {"cwd": tmp_path, "env": environment, "text": True}


@contextmanager
def broker_of(line: str, shell: dict[str, Any]) -> Iterator[str]:
    """Runs the line with a free port instead of Kafka's, which another program may have."""
    line = line.replace(".venv/bin/", "").replace(f" --listen {ADDRESS}", "")
    with subprocess.Popen(
        ["sh", "-c", f"exec {line} --listen 127.0.0.1:0"], stdout=subprocess.PIPE, **shell
    ) as process:
        try:
            assert process.stdout is not None
            found = READY.match(process.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.mark.parametrize("path", [ROOT / "README.md", DOCS / "serve.md"], ids=lambda path: path.name)
def test_the_broker_of_the_page_is_ready(path: Path, shell: dict[str, Any]) -> None:
    with broker_of(serving(path), shell) as address:
        assert address.startswith("127.0.0.1:")


def test_the_page_from_the_first_to_the_last_command(shell: dict[str, Any]) -> None:
    lines = [
        line
        for block in blocks_of(START)
        if block.language == "console" and block.run_by
        for line in typed(block)
    ]
    serve, *others = lines
    said: dict[str, str] = {}
    with broker_of(f"{serve} --set group.initial.rebalance.delay.ms=0", shell) as address:
        shell["env"]["KOHORT_BOOTSTRAP"] = address
        for line in others:
            ran = subprocess.run(["sh", "-c", line], capture_output=True, timeout=PATIENCE_S, **shell)
            assert ran.returncode == 0, (line, ran.stderr)
            said[line] = ran.stdout
    assert sorted((shell["cwd"] / "orders.txt").read_text().split(), key=int) == [
        str(n) for n in range(1, 1001)
    ]
    assert "billing" in said["kohort groups list"]
    assert re.search(r"\borders\s+[012]\s+\d+\s+\d+\s+0\b", said["kohort groups describe billing"])
    assert "joined" in said["kohort groups why billing"]


def test_the_program_of_the_page_reads_what_it_wrote(kafka: Kafka) -> None:
    (block,) = [each for each in blocks_of(START) if each.language == "python"]
    printed: list[tuple[Any, ...]] = []

    def show(*things: Any) -> None:
        printed.append(things)
        raise Enough

    with pytest.raises(Enough):
        exec(block.text.replace(ADDRESS, kafka.bootstrap_servers), {"print": show})
    assert printed == [(b"42", b"two apples")]
