"""Runs simulator, property tests and SIGKILL cycles with new seeds until the time is up: `make soak MINUTES=60`.

Each round takes a new seed. A failure does not end the run: at the end every command that failed is printed, with its
seed, so that it can be repeated, and the exit code is 1. The output of what failed is kept in .cache/soak.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_KEPT = ROOT / ".cache" / "soak"
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Step:
    """A command with the seed in it, and the environment variables that it needs."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def as_typed(self) -> str:
        """Returns the command as a person types it in a shell."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(self.command)])


def property_tests() -> list[str]:
    """Returns the test files that use Hypothesis."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [
        str(path.relative_to(ROOT)) for path in files if "from hypothesis import" in path.read_text("utf-8")
    ]


def round_of(seed: int) -> list[Step]:
    """Returns the steps of one round, the longest one last; Hypothesis marks its own tests `hypothesis`."""
    sim = [sys.executable, "-m", "kohort.cli.main", "sim", "--seed", str(seed)]
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return [
        Step("coordinator in the simulator", [*sim, "--seeds", "10", "--members", "12", "--minutes", "20"]),
        Step(
            "consumers in the simulator",
            [*sim, "--consumers", "--seeds", "10", "--members", "5", "--minutes", "3"],
        ),
        Step(
            "groups of KIP-848 in the simulator",
            [*sim, "--consumer-groups", "--seeds", "40", "--members", "8", "--minutes", "10"],
        ),
        Step("share groups in the simulator", [*sim, "--shares", "--seeds", "40", "--minutes", "8"]),
        Step(
            "SIGKILL cycles",
            [*pytest, "-s", "-m", "chaos", "tests/chaos"],
            {"KOHORT_CHAOS_SEED": str(seed), "KOHORT_CHAOS_CYCLES": "25"},
        ),
        Step(
            "property tests",
            [
                *pytest,
                "-n",
                "2",
                "-m",
                "hypothesis and not chaos",
                f"--hypothesis-seed={seed}",
                *property_tests(),
            ],
            {"KOHORT_FRESH_EXAMPLES": "1"},
        ),
    ]


def run_step(step: Step, seconds: float, output: Path) -> int | None:
    """Returns the exit code of a step, or None if it was ended because its time was up."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env={**os.environ, **step.environment, "PYTHONUNBUFFERED": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that the brokers that a test starts end with it
        )
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def soak(
    minutes: float,
    steps_of: Callable[[int], list[Step]],
    kept: Path = _KEPT,
    clock: Callable[[], float] = time.monotonic,
) -> list[Step]:
    """Runs round after round until the time is up, and returns the steps that failed."""
    kept.mkdir(parents=True, exist_ok=True)
    end = clock() + minutes * 60
    failed: list[Step] = []
    rounds = 0
    while clock() < end:
        rounds += 1
        seed = secrets.randbelow(2**31)
        for step in steps_of(seed):
            began = clock()
            if began >= end:
                break
            print(f"round {rounds}, seed {seed}: {step.name} …", end=" ", flush=True)
            output = kept / f"{seed}-{step.name.replace(' ', '-')}.log"
            code = run_step(step, end - began, output)
            took = clock() - began
            if code is None:
                print(f"ended after {took:.0f} s: the time is up", flush=True)
            elif code == 0:
                print(f"passed in {took:.0f} s", flush=True)
            else:
                failed.append(step)
                print(f"FAILED in {took:.0f} s; the end of {output}:", flush=True)
                lines = output.read_text("utf-8", errors="replace").splitlines()
                print(*lines[-_LAST_LINES:], f"run it again: {step.as_typed()}", sep="\n", flush=True)
                continue
            output.unlink()
    return failed


def main(arguments: list[str]) -> int:
    """Soaks for the minutes on the command line; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    failed = soak(parser.parse_args(arguments).minutes, round_of)
    if failed:
        print(f"{len(failed)} failed:", *(step.as_typed() for step in failed), sep="\n  ")
        return 1
    print("nothing failed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
