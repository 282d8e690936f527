"""docs/topics-and-records.md: every command is run, and prints what the page says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kohort.broker.running import running
from kohort.cli.bench.command import PLACES
from tests.cli.command_line import PATIENCE_S, run_kohort

PAGE = (Path(__file__).parents[2] / "docs" / "topics-and-records.md").read_text("utf-8")


def commands() -> list[tuple[str, str]]:
    """Each command of the page with the output below it."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def piped(command: str) -> str:
    """What a pipeline prints: `kohort` runs in this process, and all else in a shell."""
    data = b""
    for stage in command.split(" | "):
        program, *arguments = shlex.split(stage)
        if program == "kohort":
            ran = run_kohort(*arguments, stdin=data)
            assert (ran.code, ran.err) == (0, ""), command
            data = ran.out
        else:
            shell = subprocess.run(["sh", "-c", stage], capture_output=True, timeout=PATIENCE_S, check=True)
            data = shell.stdout
    return data.decode()


def test_every_command_prints_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    benches = set()
    with running(num_partitions=1) as broker:
        monkeypatch.setenv("KOHORT_BOOTSTRAP", broker.bootstrap_servers)
        for command, output in commands():
            printed = piped(command)
            if command.startswith("kohort bench"):
                benches.add(json.loads(printed)["bench"])
            else:
                lines = [line.rstrip() for line in printed.splitlines()]
                assert lines == [line.rstrip() for line in output.splitlines()], command
    assert benches == set(PLACES)
