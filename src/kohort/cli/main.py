"""`kohort`: reads the arguments and hands over to the command's module."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kohort import __version__
from kohort.settings import SettingError
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
        "directory", nargs="?", default="kohort-data", metavar="DIR", help="default: ./kohort-data"
    )
    serve.add_argument(
        "--listen", default="127.0.0.1:9092", metavar="HOST:PORT", help="port 0 takes a free one"
    )
    serve.add_argument(
        "--advertise", metavar="HOST:PORT", help="what clients are told; default: where it listens"
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

    commands.add_parser(
        "demo",
        help="a broker, a producer and a fetching client in one process; ends by itself",
        epilog="example: kohort demo",
    )

    verify = commands.add_parser(
        "verify",
        help="check every batch of a data directory",
        description="Reads all segments of a stopped broker's directory and reports damaged batches.",
        epilog="example: kohort verify ./data",
    )
    verify.add_argument("directory", metavar="DIR")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        # Each command is imported when it is used: `kohort --help` should not load the broker.
        if options.command == "serve":
            from kohort.cli.serve import serve

            return serve(options)
        if options.command == "verify":
            from kohort.cli.verify import verify

            return verify(options.directory)
        from kohort.cli.demo import demo

        return demo()
    except (KohortError, SettingError) as error:
        print(f"kohort: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
