"""`kohort console`: serves the web console for any Kafka cluster."""

from __future__ import annotations

import logging
import sys

import click

from kohort.cli.console.line import console_line
from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.console.listening import (
    INSTALL,
    LOOPBACK,
    PORT,
    address_of,
    is_installed,
    is_open_to_others,
    listen_at,
    names_of,
    open_to_others,
    parse_address,
)
from kohort.console.tokens import new_token
from kohort.settings import SettingError


@click.command(epilog="Example: kohort console --bootstrap 127.0.0.1:9092 --listen 127.0.0.1:0")
@cluster_options
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    default=f"{LOOPBACK}:{PORT}",
    show_default=True,
    help="Where the console is. Port 0 takes a free one.",
)
@click.option("--read-only", is_flag=True, help="Turn off all changes: resets and deletions.")
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers reach the console, for example behind a proxy.",
)
@click.option(
    "--state", metavar="DIR", help="Where pipelines keep their state. Default: as `kohort pipeline`."
)
def command(
    cluster: ClusterOptions, listen: str, read_only: bool, allowed_hosts: tuple[str, ...], state: str | None
) -> int:
    """Serve the web console for a cluster until Ctrl-C.

    The address is printed, and the token that changes need. The cluster need not be there yet.
    """
    if not is_installed():
        raise SettingError(INSTALL)
    from kohort.cli.console.pipelines import pipelines_in
    from kohort.console.app import ConsoleOptions, create_app
    from kohort.console.server import ConsoleServer

    host, port = parse_address(listen, "--listen")
    settings = cluster.settings()
    logging.basicConfig(
        format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    with listen_at(host, port, "--listen") as listening:
        token = new_token()
        hosts = [*allowed_hosts, *names_of(host, listening)]
        options = ConsoleOptions(token, read_only, hosts, pipelines_in(state))
        server = ConsoleServer(create_app(settings, options), listening)
        print(console_line(address_of(listening), token, read_only), flush=True)
        if is_open_to_others(listening):
            print(f"kohort: {open_to_others(listening)}", file=sys.stderr)
        server.run()
    return 0
