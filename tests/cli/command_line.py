"""Runs `kohort` as a shell would, within this process or as one of its own."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import kohort
from kohort.cli.main import main

PATIENCE_S = 60.0


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def run_kohort(*arguments: str, stdin: bytes = b"") -> Ran:
    """Runs a command in this process, with pipes for stdin, stdout and stderr."""
    out, err = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(out, "utf-8", write_through=True)
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    try:
        with redirect_stdout(stdout), redirect_stderr(err):
            code = main(list(arguments))
        stdout.flush()
    finally:
        sys.stdin = before
    return Ran(code, out.getvalue(), err.getvalue())


def kohort_process(*arguments: str, **keywords: object) -> subprocess.Popen[bytes]:
    """Starts a command as a process of its own."""
    source = Path(kohort.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "kohort.cli.main", *arguments]
    return subprocess.Popen(command, env=environment, **keywords)  # type: ignore[call-overload, no-any-return]


def run_at_terminal(*arguments: str, typed: Iterable[tuple[str, str]], **keywords: object) -> Ran:
    """Runs a command whose stdin and stderr are a terminal, and answers each prompt; `err` is what it showed."""
    keyboard, terminal = pty.openpty()
    try:
        process = kohort_process(
            *arguments,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal,
            start_new_session=True,
            **keywords,
        )
        shown = b""
        for prompt, answer in typed:
            while not shown.endswith(prompt.encode()):
                shown += os.read(keyboard, 1000)
            os.write(keyboard, answer.encode() + b"\n")
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(terminal)
        os.close(keyboard)
    return Ran(process.returncode, out, shown.decode())
