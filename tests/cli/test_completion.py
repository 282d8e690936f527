"""Completion in a real bash: commands, options, and the topics and groups of a running broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kohort import Admin
from kohort.cli.main import main
from kohort.testing import Kafka


class Shell:
    """A bash that has loaded our script."""

    def __init__(self, folder: Path, script: str, bootstrap: str) -> None:
        self._folder = folder
        (folder / "completion.bash").write_text(script, "utf-8")
        kohort = folder / "kohort"
        kohort.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kohort.cli.main "$@"\n')
        kohort.chmod(0o755)
        self._environment = {
            **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KOHORT_BOOTSTRAP": bootstrap,
        }  # fmt: skip

    def complete(self, line: str) -> set[str]:
        """Returns what bash offers when Tab is pressed at the end of the line."""
        words = line.split(" ")
        program = (
            'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            '_kohort_completion kohort; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", program, str(self._folder / "completion.bash"), *words],
            env=self._environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        return set(done.stdout.split())


@pytest.fixture
def shell(kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    kafka.create_topic("orders", partitions=1)
    kafka.create_topic("returns", partitions=1)
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        for group in ("billing", "audit"):
            admin.alter_group_offsets(group, {("orders", 0): 0})
    assert main(["completion", "bash"]) == 0
    return Shell(tmp_path, capsys.readouterr().out, kafka.bootstrap_servers)


def test_bash_completes_commands_options_topics_and_groups(shell: Shell) -> None:
    assert shell.complete("kohort gr") == {"groups"}
    assert shell.complete("kohort groups de") == {"describe", "delete", "delete-offsets"}
    assert "--to-earliest" in shell.complete("kohort groups reset --to-")
    assert shell.complete("kohort groups describe b") == {"billing"}
    assert shell.complete("kohort groups describe ") == {"audit", "billing"}
    assert shell.complete("kohort groups reset billing --topic ") == {"orders", "returns"}


def test_a_cluster_that_is_not_there_has_nothing_to_complete(shell: Shell) -> None:
    assert shell.complete("kohort groups describe --bootstrap 127.0.0.1:1 ") == set()


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell_name]) == 0
    assert "_KOHORT_COMPLETE" in capsys.readouterr().out


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of" in capsys.readouterr().err
