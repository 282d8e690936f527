"""`kohort pipeline stop`: ends a pipeline in order."""

from __future__ import annotations

import os
import signal
import time

import click

from kohort.cli.pipeline.known import known_status, state_of
from kohort.cli.pipeline.settings import state_option
from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.state import FAILED, PipelineState


@click.command(epilog="Example: kohort pipeline stop orders")
@click.argument("pipeline", metavar="NAME")
@click.option("--seconds", type=float, default=60, show_default=True, help="How long to wait for its end.")
@state_option
def command(pipeline: str, seconds: float, state: str | None) -> int:
    """End a pipeline in order: the last commit, leaving the group."""
    return _stop(state_of(pipeline, state), seconds)


def _stop(state: PipelineState, seconds: float) -> int:
    status = known_status(state)
    pid = state.pid()
    if not state.is_running() or pid is None:
        raise PipelineError(f"the pipeline {state.name} does not run; it is {status.state}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while state.is_running():
        if time.monotonic() >= deadline:
            raise PipelineError(
                f"the pipeline {state.name} (process {pid}) was told to stop, but still runs after {seconds:g} s: a "
                "batch may take longer than that; wait, or end the process"
            )
        time.sleep(0.1)
    last = known_status(state)
    print(f"{state.name}: {last.state}")
    return 1 if last.state == FAILED else 0
