"""`kohort pipeline`: runs pipelines on Spark, lists them, shows their status and stops them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from kohort.cli.properties import read_properties
from kohort.settings import SettingError
from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.state import (
    DIED,
    FAILED,
    AlreadyRunning,
    PipelineState,
    PipelineStatus,
    known_pipelines,
    state_directory,
)
from kohort.spark.versions import UnsupportedPySpark, check_pyspark

_COLUMNS = ("PIPELINE", "STATE", "PID", "BATCH", "ROWS", "ROWS/S", "LAG", "GROUPS", "SINK", "ORIGIN")
ALREADY_RUNNING = 75
"""The exit code of a run that is refused because another one is under way: EX_TEMPFAIL, try again later."""


def pipeline(options: argparse.Namespace) -> int:
    if options.action == "test":
        from kohort.cli.pipeline_test import test

        return test(options)
    if options.action == "new":
        from kohort.cli.pipeline_new import new

        return new(options)
    root = state_directory(options.state)
    if options.action == "run":
        return _run(options, root)
    if options.action == "list":
        return _list(root, options.json)
    named = Path(options.pipeline)
    state = PipelineState(root, named.stem if named.suffix in (".py", ".sql") else options.pipeline)
    return _stop(state, options.seconds) if options.action == "stop" else _status(state, options.json)


# --- run ----------------------------------------------------------------------------------------------


@contextmanager
def spark_is_needed() -> Iterator[None]:
    """Turns a PySpark that is missing or too old into a PipelineError that says what to install."""
    try:
        check_pyspark()
        yield
    except UnsupportedPySpark as unsupported:
        raise PipelineError(str(unsupported)) from None
    except ImportError as missing:
        advice = 'pipelines run on Spark: pip install "kohort[spark]"'
        raise PipelineError(str(missing) if missing.name == "psutil" else advice) from None


def _run(options: argparse.Namespace, root: Path) -> int:
    with spark_is_needed():
        from kohort.spark.built_in import find_pipeline
        from kohort.spark.pipelines.progress import Terminal
        from kohort.spark.pipelines.run import DEFAULT_BOOTSTRAP, Run, run_pipeline, sort_settings
        from kohort.spark.pipelines.sinks import settings_of_spark

    found = find_pipeline(options.pipeline)
    given = pairs(options.settings)
    if options.out is not None:
        if "out" not in found.parameters:
            raise PipelineError(f"{found.name} has no parameter out; --out is for pipelines that have one")
        given["out"] = options.out
    source, parameters, spark = sort_settings(found, given)
    out = parameters.get("out", found.parameters.get("out", ""))
    # The tables of group-history hold what it has read: the checkpoint belongs beside them.
    beside = str(Path(out) / "_checkpoint") if found.origin == "built in" else None
    run = Run(
        PipelineState(root, options.name or found.name),
        options.bootstrap or found.bootstrap or DEFAULT_BOOTSTRAP,
        read_properties(Path(options.config)) if options.config else {},
        options.master,
        options.once,
        options.checkpoint or beside,
        options.metrics,
        source,
        parameters,
        {**settings_of_spark(found.sink), **found.spark_settings, **spark},
    )
    try:
        return run_pipeline(found, run, Terminal())
    except AlreadyRunning as refused:
        print(f"kohort: {refused}", file=sys.stderr)
        return ALREADY_RUNNING


def pairs(given: list[str]) -> dict[str, str]:
    """Reads what `--set` was given, each as NAME=VALUE."""
    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"--set {pair}: write it as NAME=VALUE")
        found[name.strip()] = value
    return found


# --- list, status, stop -------------------------------------------------------------------------------


def _list(root: Path, as_json: bool) -> int:
    from kohort.spark.built_in import BUILT_IN

    known = known_pipelines(root)
    if as_json:
        built_in = [{"name": name, "description": text} for name, text in BUILT_IN.items()]
        print(json.dumps({"built_in": built_in, "pipelines": [asdict(each) for each in known]}, indent=2))
        return 0
    for name, text in BUILT_IN.items():
        print(f"built in: {name}: {text}")
    print()
    rows = [_COLUMNS, *(_row(each) for each in known)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
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


def _status(state: PipelineState, as_json: bool) -> int:
    status = _known(state)
    if as_json:
        print(json.dumps(asdict(status), indent=2, ensure_ascii=False))
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


def _stop(state: PipelineState, seconds: float) -> int:
    status = _known(state)
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
    last = _known(state)
    print(f"{state.name}: {last.state}")
    return 1 if last.state == FAILED else 0


def _known(state: PipelineState) -> PipelineStatus:
    status = state.read()
    if status is None:
        raise PipelineError(
            f"no pipeline {state.name} was started with {state.folder.parent}; see `kohort pipeline list`, --state"
        )
    return status


def _clock(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
