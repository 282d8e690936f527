"""Finds the state of a pipeline that was started."""

from __future__ import annotations

from pathlib import Path

from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.state import PipelineState, PipelineStatus, state_directory


def state_of(name: str, directory: str | None) -> PipelineState:
    """Returns the state of a pipeline by its name, or by the file that it was started from."""
    named = Path(name)
    return PipelineState(state_directory(directory), named.stem if named.suffix in (".py", ".sql") else name)


def known_status(state: PipelineState) -> PipelineStatus:
    """Returns the status; raises if no such pipeline was started."""
    status = state.read()
    if status is None:
        raise PipelineError(
            f"no pipeline {state.name} was started with {state.folder.parent}; see `kohort pipeline list`, --state"
        )
    return status
