"""The arguments of `kohort pipeline`, apart from the command, so that `kohort --help` loads nothing else."""

from __future__ import annotations

import argparse
from typing import Any


def add_pipeline(commands: Any) -> None:
    """Adds the command to the parser."""
    top = commands.add_parser(
        "pipeline",
        help="Structured Streaming jobs on Spark: new, test, run, list, status, stop",
        epilog="example: kohort pipeline run orders.py --bootstrap 127.0.0.1:9092",
    )
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_new(actions)
    _add_test(actions)
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


def _add_new(actions: Any) -> None:
    new = actions.add_parser(
        "new",
        help="write a pipeline: asks what to read, what to keep and where it goes",
        description="Asks on a terminal for what is not given as an option, and writes FILE, which is .sql or .py. "
        "Without a terminal, or with --yes, it takes the defaults.",
        epilog="example: kohort pipeline new orders.sql --topic orders --format json --sink parquet:./out --yes",
    )
    new.add_argument("file", nargs="?", metavar="FILE", help="default: TOPIC.sql")
    new.add_argument("--bootstrap", metavar="HOST:PORT", help="default: 127.0.0.1:9092")
    new.add_argument("--config", metavar="FILE", help="settings of Kafka (security) as a properties file")
    new.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC", help="may be given several times"
    )
    new.add_argument("--group", help="default: the name of the file")
    new.add_argument(
        "--format",
        choices=("json", "text", "binary"),
        help="of the values; default: what records of the topic show",
    )
    new.add_argument("--schema", metavar="DDL", help="fields of the JSON, as in 'id BIGINT, name STRING'")
    new.add_argument("--select", metavar="SQL", help="columns to keep; default: all fields")
    new.add_argument("--where", metavar="SQL", help="which rows to keep; default: all")
    new.add_argument(
        "--sink", metavar="SINK:TARGET", help="as in parquet:./out, postgresql:orders, kohort:TOPIC"
    )
    new.add_argument(
        "--sink-option", action="append", default=[], metavar="NAME=VALUE", help="an option of the sink"
    )
    new.add_argument(
        "--start", choices=("earliest", "latest"), help="where the first start begins; default: earliest"
    )
    new.add_argument("--trigger", metavar="TIME", help="as in '10 seconds'; default: as fast as it can")
    new.add_argument(
        "--save-records",
        metavar="FILE",
        help="write the records that were looked at, for `kohort pipeline test`",
    )
    new.add_argument("--yes", action="store_true", help="ask nothing, take the defaults")
    new.add_argument("--force", action="store_true", help="overwrite FILE")


def _add_test(actions: Any) -> None:
    test = actions.add_parser(
        "test",
        help="run a pipeline once over records from a file, and show what comes out",
        description="Starts a broker in memory, writes the records, runs the pipeline once with its sink replaced, and "
        "shows the rows. Ends with 1 if it fails, or if other rows come out than --expect says.",
        epilog="example: kohort pipeline test orders.sql --records orders.jsonl --expect expected.jsonl",
    )
    test.add_argument("pipeline", metavar="FILE")
    test.add_argument(
        "--records", action="append", default=[], metavar="[TOPIC=]FILE", required=True,
        help=".jsonl, .csv or .txt, or a folder with TOPIC.jsonl; may be given several times",
    )  # fmt: skip
    test.add_argument(
        "--values", action="store_true", help="each line of JSON is a value, also one with `value`"
    )
    test.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="a parameter of the pipeline, an option of the source, or a setting of Spark (spark.…)",
    )  # fmt: skip
    test.add_argument(
        "--expect", metavar="FILE", help="rows that must come out, .jsonl or .csv, in any order"
    )
    test.add_argument("--ordered", action="store_true", help="in this order")
    test.add_argument(
        "--ignore", action="append", default=[], metavar="COLUMN", help="do not compare this column"
    )
    test.add_argument(
        "--update", action="store_true", help="write the rows that come out into the file of --expect"
    )
    test.add_argument("--json", action="store_true", help="for programs: one object with all rows")
    test.add_argument("--rows", type=int, default=20, help="how many are shown; default: 20")
    test.add_argument(
        "--call-functions", action="store_true", help="call the function of foreachBatch too, which may write"
    )


def _add_state(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--state",
        metavar="DIR",
        help="default: the user's directory for state, ~/.local/state/kohort/pipelines on Linux",
    )
