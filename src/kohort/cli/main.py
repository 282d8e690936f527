"""The command `kohort`: reads the arguments and hands over to the command's module."""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from kohort import __version__
from kohort.cli.doctor import add_doctor
from kohort.cli.pipeline_arguments import add_pipeline
from kohort.wire.errors import KohortError


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="kohort",
        description="Kafka's consumer-group system in Python.",
        epilog="example: kohort serve ./data --listen 127.0.0.1:9092",
    )
    top.add_argument("--version", action="version", version=f"kohort {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        help="run a broker",
        description="Runs a broker with its data in DIR until SIGTERM or Ctrl-C.",
        epilog="example: kohort serve ./data --listen 127.0.0.1:0 --set num.partitions=3 --set durability=os",
    )
    serve.add_argument(
        "directory", nargs="?", metavar="DIR", help="default: the setting log.dirs, or ./kohort-data"
    )
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="port 0 takes a free one; default: the setting listeners, or 127.0.0.1:9092",
    )
    serve.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="what clients are told; default: the setting advertised.listeners, or where it listens",
    )
    serve.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="metrics for Prometheus at http://127.0.0.1:PORT/metrics; port 0 takes a free one",
    )
    serve.add_argument(
        "--config", metavar="FILE", help="settings as a properties file, as Kafka's server.properties"
    )
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="a setting by Kafka's name",
    )
    serve.add_argument("--log-format", choices=("text", "json"), default="text")
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")

    demo = commands.add_parser(
        "demo",
        help="a broker, a group whose members come and go, a pipeline on Spark; ends by itself",
        description="Shows all of it at work for about a minute: a broker, a producer of orders, a group whose members "
        "come, go and are killed, and a pipeline on Spark. Ends with tables and a picture.",
        epilog="example: kohort demo --out ./demo-out",
    )
    demo.add_argument("--seconds", type=float, default=40, help="how long orders are written; default: 40")
    demo.add_argument(
        "--out", default="demo-out", metavar="DIR", help="for picture and Parquet; default: ./demo-out"
    )

    verify = commands.add_parser(
        "verify",
        help="check every batch of a data directory",
        description="Reads all segments of a stopped broker's directory and reports damaged batches.",
        epilog="example: kohort verify ./data",
    )
    verify.add_argument("directory", metavar="DIR")
    _add_groups(commands)
    _add_sim(commands)
    add_pipeline(commands)
    add_doctor(commands)
    return top


def _add_sim(commands: Any) -> None:
    sim = commands.add_parser(
        "sim",
        help="group coordinator and consumers under virtual time, with faults",
        description="Runs the coordinator's own code, and with --consumers the client's too, with a network and a "
        "disk that fail.",
        epilog="example: kohort sim --seed 7 --members 20 --minutes 30 --faults lost,crash=0.01",
    )
    sim.add_argument("--seed", type=int, default=0, help="the first seed; a failure names its own")
    sim.add_argument("--members", type=int, default=12)
    sim.add_argument(
        "--consumers",
        action="store_true",
        help="members are consumers of the real client, with users, brokers and topics; 5 of them are enough",
    )
    sim.add_argument("--minutes", type=float, default=10, help="of virtual time, for each seed")
    sim.add_argument(
        "--faults", default="all", metavar="NAMES", help="all, none, or names with or without a rate"
    )
    sim.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    sim.add_argument("--rebalances", type=int, help="go on with further seeds until there were this many")


def _add_groups(commands: Any) -> None:
    groups = commands.add_parser(
        "groups",
        help="consumer groups: list, describe, why did it rebalance",
        epilog="example: kohort groups describe orders --bootstrap a:9092,b:9092 --config client.properties",
    )
    actions = groups.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text, example in (
        ("list", "the groups of the cluster, their types and states", "kohort groups list"),
        (
            "describe",
            "members, and for each partition its owner, committed offset and lag",
            "kohort groups describe orders --config client.properties",
        ),
        ("why", "the last rebalances: when, how long, who and why", "kohort groups why orders --json"),
        ("watch", "rebalances as they happen, until Ctrl-C", "kohort groups watch orders"),
    ):
        action = actions.add_parser(name, help=text, description=text, epilog=f"example: {example}")
        if name != "list":
            action.add_argument("group", metavar="GROUP")
        action.add_argument(
            "--bootstrap",
            metavar="HOST:PORT[,HOST:PORT…]",
            help="some brokers of the cluster; default: bootstrap.servers of the file, or 127.0.0.1:9092",
        )
        action.add_argument(
            "--config",
            metavar="FILE",
            help="settings as the properties file of a Kafka client: security.protocol, ssl.…, sasl.…",
        )
        action.add_argument("--json", action="store_true", help="for programs")
        if name == "watch":
            action.add_argument("--seconds", type=float, help="stop after this long")


def main(arguments: Sequence[str] | None = None) -> int:
    _show_what_can_be_shown()
    try:
        code = _run(parser().parse_args(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()  # here a closed pipe can still be distinguished from a fault
        return code
    except KohortError as error:
        print(f"kohort: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return _reader_is_gone()
    except OSError as error:
        print(f"kohort: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    # Each command is imported when it is used: `kohort --help` should not load the broker.
    if options.command == "serve":
        gc.disable()  # the collector would take a tenth of the start, looking for garbage in modules
        from kohort.cli.serve import serve

        gc.enable()
        return serve(options)
    if options.command == "verify":
        from kohort.cli.verify import verify

        return verify(options.directory)
    if options.command == "groups":
        from kohort.cli.groups import groups

        return groups(options)
    if options.command == "sim":
        from kohort.cli.sim import sim

        return sim(options)
    if options.command == "pipeline":
        from kohort.cli.pipeline import pipeline

        return pipeline(options)
    if options.command == "doctor":
        from kohort.cli.doctor import doctor

        return doctor(options)
    from kohort.cli.demo import demo

    return demo(options)


def _show_what_can_be_shown() -> None:
    """Shows a character that the terminal's encoding does not have as ?, instead of failing. stderr never fails."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _reader_is_gone() -> int:
    """Ends silently, as a program that SIGPIPE kills: the reader of our output has closed the pipe (`| head`).

    Python writes once more at its end what stdout holds; that goes to the null device.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
