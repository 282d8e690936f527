"""Runs promtool, Prometheus's own checker, which is in Debian's package `prometheus`."""

from __future__ import annotations

import subprocess

from benchmarks import outside


def run_promtool(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [outside.program("promtool"), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
