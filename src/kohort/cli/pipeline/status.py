"""`kohort pipeline status`: how a pipeline is doing."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from kohort.cli.frame.output import json_option, print_json
from kohort.cli.pipeline.known import known_status, state_of
from kohort.cli.pipeline.settings import state_option
from kohort.spark.pipelines.state import DIED, FAILED, PipelineState, PipelineStatus


@click.command(epilog="Example: kohort pipeline status orders")
@click.argument("pipeline", metavar="NAME")
@json_option
@state_option
def command(pipeline: str, as_json: bool, state: str | None) -> int:
    """Show how a pipeline is doing; ends with 1 if it failed or was killed."""
    return _status(state_of(pipeline, state), as_json)


def _status(state: PipelineState, as_json: bool) -> int:
    status = known_status(state)
    if as_json:
        print_json(asdict(status))
        return 0
    print(f"{status.name}: {status.state} ({status.origin})")
    lines = [
        ("process", str(status.pid)),
        ("started", _clock(status.started_ms)),
        ("stopped", _clock(status.stopped_ms) if status.stopped_ms is not None else ""),
        ("master", status.master),
        ("brokers", status.bootstrap),
        ("checkpoint", status.checkpoint),
        ("sink", status.sink),
        ("rows", f"{status.rows:,} in {status.batches} batches since the start"),
        ("last batch", _last_batch(status)),
        ("lag", "" if status.total_lag is None else f"{status.total_lag:,}"),
        ("metrics", status.metrics or ""),
        ("error", status.error or ""),
    ]
    lines += [
        ("group", f"{group}: {seen['state']}, {seen['members']} members")
        for group, seen in status.groups.items()
    ]
    for name, text in lines:
        if text:
            print(f"  {name:<11}{text}")
    if status.state == DIED:
        print("  it was killed; `kohort pipeline run` goes on from its checkpoint")
    return 1 if status.state in (DIED, FAILED) else 0


def _last_batch(status: PipelineStatus) -> str:
    if not status.batches:
        return ""
    seconds = status.batch_duration_ms / 1000
    return f"{status.batch_rows:,} rows in {seconds:.2f} s, {status.rows_per_second:,.0f} rows/s"


def _clock(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
