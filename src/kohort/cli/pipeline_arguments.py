"""The arguments of `kohort pipeline`, apart from the command, so that `kohort --help` loads nothing else."""

from __future__ import annotations

import argparse
from typing import Any


def add_pipeline(commands: Any) -> None:
    """Adds the command to the parser."""
    top = commands.add_parser(
        "pipeline",
        help="Structured Streaming jobs on Spark: run, list, status, stop",
        epilog="example: kohort pipeline run orders.py --bootstrap 127.0.0.1:9092",
    )
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser(
        "run",
        help="run a pipeline until Ctrl-C, SIGTERM or `kohort pipeline stop`",
        description="Runs FILE.py, FILE.sql or a pipeline that is built in; goes on from its checkpoint.",
        epilog="example: kohort pipeline run orders.py --once --set maxOffsetsPerTrigger=10000 --set out=./orders",
    )
    run.add_argument("pipeline", metavar="FILE|NAME")
    run.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="default: what the file says, or 127.0.0.1:9092"
    )
    run.add_argument("--config", metavar="FILE", help="settings of Kafka (security) as a properties file")
    run.add_argument("--master", default="local[*]", help="of Spark; default: local[*]")
    run.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="a parameter of the pipeline, an option of the source, or a setting of Spark (spark.…)",
    )  # fmt: skip
    run.add_argument("--checkpoint", metavar="DIR", help="default: in the state directory")
    run.add_argument("--once", action="store_true", help="read what is there, and end")
    run.add_argument("--out", metavar="DIR", help="for group-history: where tables and report go")
    run.add_argument("--name", help="default: the name of the file")
    run.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Prometheus text at /metrics, on 127.0.0.1; 0 takes a free port",
    )
    _add_state(run)
    for name, text in (
        ("list", "what is built in, and what was started"),
        ("status", "how a pipeline is doing"),
        ("stop", "end a pipeline in order: the last commit, leaving the group"),
    ):
        action = actions.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example: kohort pipeline {name}{'' if name == 'list' else ' orders'}",
        )
        if name != "list":
            action.add_argument("pipeline", metavar="NAME")
        if name == "stop":
            action.add_argument(
                "--seconds", type=float, default=60, help="how long to wait for its end; default: 60"
            )
        else:
            action.add_argument("--json", action="store_true", help="for programs")
        _add_state(action)


def _add_state(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--state",
        metavar="DIR",
        help="default: the user's directory for state, ~/.local/state/kohort/pipelines on Linux",
    )
