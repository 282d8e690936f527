"""The name of a process: who has it, for how long, and who started whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.spark.driver.process_identity import is_below, process_lives, process_of, this_process

NAMES_ITSELF = """
from kohort.spark.driver.process_identity import this_process
print(this_process(), flush=True)
input()
"""


def test_this_process_lives_and_has_one_name() -> None:
    assert this_process() == this_process()
    assert process_lives(this_process())
    assert is_below(this_process())


def test_the_name_is_the_one_that_older_versions_read_from_proc() -> None:
    fields = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    _, pid, started = this_process().split(".")
    assert (int(pid), started) == (os.getpid(), fields[19])


def test_a_child_lives_below_this_process_until_it_ends() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", NAMES_ITSELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert process_lives(name)
        assert is_below(name)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not process_lives(name)  # it has ended, though nobody has asked how
    assert not process_lives(name)
    assert not is_below(name)


def test_another_process_of_the_same_number_is_not_taken_for_it() -> None:
    machine, pid, started = this_process().split(".")
    assert not process_lives(f"{machine}.{pid}.{int(started) - 1}")
    assert not process_lives(f"{'0' * len(machine)}.{pid}.{started}")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a", ".1.2", "M", "M.", "M.1", "M.1.", "M.b.1", "M.².1", f"M.{10**30}.1"]
)
def test_what_is_no_name_lives_nowhere(name: str) -> None:
    name = name.replace("M", this_process().split(".")[0])
    assert not process_lives(name)
    assert not is_below(name)


def test_a_client_id_ends_with_the_process() -> None:
    assert process_of(f"spark-kafka-source@{this_process()}") == this_process()
    assert not process_lives(process_of("a plain consumer"))
