"""The web console beside the demo, where its packages are installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kohort.console.listening import is_installed

_END_S = 10.0


@contextmanager
def console_beside(bootstrap: str) -> Iterator[None]:
    """Serves the console while the demo runs, in a process of its own, and says where it is."""
    if not is_installed():
        yield
        return
    command = [sys.executable, "-m", "kohort.cli.main", "console", "--read-only"]
    with subprocess.Popen(
        [*command, "--bootstrap", bootstrap, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            print(process.stdout.readline().strip(), flush=True)
            yield
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
