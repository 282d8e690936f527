"""`kohort pipeline list`: what is built in, and what was started."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from kohort.cli.frame.output import json_option, print_json, print_table
from kohort.cli.pipeline.settings import state_option
from kohort.spark.pipelines.state import DIED, PipelineStatus, known_pipelines, state_directory

_COLUMNS = ("PIPELINE", "STATE", "PID", "BATCH", "ROWS", "ROWS/S", "LAG", "GROUPS", "SINK", "ORIGIN")


@click.command(epilog="Example: kohort pipeline list")
@json_option
@state_option
def command(as_json: bool, state: str | None) -> int:
    """List what is built in, and what was started."""
    return _list(state_directory(state), as_json)


def _list(root: Path, as_json: bool) -> int:
    from kohort.spark.built_in import BUILT_IN

    known = known_pipelines(root)
    if as_json:
        built_in = [{"name": name, "description": text} for name, text in BUILT_IN.items()]
        print_json({"built_in": built_in, "pipelines": [asdict(each) for each in known]})
        return 0
    for name, text in BUILT_IN.items():
        print(f"built in: {name}: {text}")
    print()
    print_table(_COLUMNS, [_row(each) for each in known])
    if not known:
        print(f"(none was started with {root})")
    return 0


def _row(status: PipelineStatus) -> tuple[str, ...]:
    groups = ", ".join(f"{group} {seen['state']}" for group, seen in status.groups.items())
    lag = "–" if status.total_lag is None else f"{status.total_lag}"
    batch = "–" if status.batch is None else str(status.batch)
    pid = str(status.pid) if status.stopped_ms is None and status.state != DIED else "–"
    return (
        status.name, status.state, pid, batch, str(status.rows), f"{status.rows_per_second:.0f}", lag, groups or "–",
        status.sink or "–", status.origin,
    )  # fmt: skip
