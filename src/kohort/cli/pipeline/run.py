"""`kohort pipeline run`: runs a pipeline on Spark until it is told to stop."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kohort.cli.frame.properties import read_properties
from kohort.cli.pipeline.settings import pairs, set_option, spark_is_needed, state_option
from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.state import AlreadyRunning, PipelineState, state_directory

ALREADY_RUNNING = 75
"""The exit code of a run that is refused because another one is under way: EX_TEMPFAIL, try again later."""


@dataclass(frozen=True, slots=True)
class PipelineRunOptions:
    """What the user said about the run."""

    pipeline: str
    bootstrap: str | None
    config: str | None
    master: str
    settings: tuple[str, ...]
    checkpoint: str | None
    once: bool
    out: str | None
    name: str | None
    metrics: str | None
    state: str | None


@click.command(
    epilog="Example: kohort pipeline run orders.py --once --set maxOffsetsPerTrigger=10000 --set out=./orders"
)
@click.argument("pipeline", metavar="FILE|NAME")
@click.option("--bootstrap", metavar="HOST:PORT", help="Default: what the file says, or 127.0.0.1:9092.")
@click.option("--config", metavar="FILE", help="Settings of Kafka (security) as a properties file.")
@click.option("--master", default="local[*]", show_default=True, help="Of Spark.")
@set_option
@click.option("--checkpoint", metavar="DIR", help="Default: in the state directory.")
@click.option("--once", is_flag=True, help="Read what is there, and end.")
@click.option("--out", metavar="DIR", help="For group-history: where tables and report go.")
@click.option("--name", help="Default: the name of the file.")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Prometheus text at /metrics, on 127.0.0.1; 0 takes a free port.",
)
@state_option
def command(**given: Any) -> int:
    """Run FILE.py, FILE.sql or a pipeline that is built in, until Ctrl-C, SIGTERM or `kohort pipeline stop`.

    It goes on from its checkpoint.
    """
    options = PipelineRunOptions(**given)
    return _run(options, state_directory(options.state))


def _run(options: PipelineRunOptions, root: Path) -> int:
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
