"""`kohort serve`: runs a broker in the foreground."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kohort.broker.directory import data_directory
from kohort.broker.node import start
from kohort.broker.running import new_event_loop
from kohort.cli.frame.properties import read_properties
from kohort.log.storage.system_calls import check_system, raise_open_files_limit
from kohort.settings import SettingError

if TYPE_CHECKING:
    from kohort.broker.monitoring import Monitoring
    from kohort.broker.net.server import Server
    from kohort.cli.console.of_broker import BrokerConsole
    from kohort.cli.systemd import Systemd

log = logging.getLogger("kohort")

_MOST_FILES = 65_536
_DIRECTORY = "kohort-data"
_NO_CONSOLE = (
    "every listener asks for TLS or a password; `kohort console --config FILE` takes a client's settings"
)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the user said about the broker."""

    directory: str | None = None
    listen: str | None = None
    advertise: str | None = None
    metrics: str | None = None
    console: str | None = None
    no_console: bool = False
    config: str | None = None
    settings: tuple[str, ...] = ()
    log_format: str = "text"
    log_level: str = "info"


@click.command(
    epilog="Example: kohort serve ./data --listen 127.0.0.1:0 --set num.partitions=3 --set durability=os"
)
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Port 0 takes a free one. Default: the setting listeners, or 127.0.0.1:9092.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="What clients are told. Default: the setting advertised.listeners, or where it listens.",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Metrics for Prometheus at http://127.0.0.1:PORT/metrics; port 0 takes a free one.",
)
@click.option(
    "--console",
    metavar="[HOST:]PORT",
    help="Where the web console is. Default: 127.0.0.1:9080, or a free port if that is in use.",
)
@click.option("--no-console", is_flag=True, help="Serve no web console.")
@click.option("--config", metavar="FILE", help="Settings as a properties file, as Kafka's server.properties.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting by Kafka's name.")
@click.option("--log-format", type=click.Choice(("text", "json")), default="text")
@click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info")
def command(**given: Any) -> int:
    """Run a broker with its data in DIR until SIGTERM or Ctrl-C.

    Without DIR it takes the setting log.dirs, or ./kohort-data.
    """
    return serve(ServeOptions(**given))


class JsonLines(logging.Formatter):
    """Formats log records as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(log_format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    root = logging.getLogger("kohort")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())


def read_settings(options: ServeOptions) -> dict[str, str]:
    """The settings of the file, overridden by those of `--set`."""
    settings = read_properties(Path(options.config)) if options.config else {}
    for text in options.settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingError(f"--set {text!r} is not NAME=VALUE, for example --set num.partitions=3")
        settings[name.strip()] = value.strip()
    return settings


def serve(options: ServeOptions) -> int:
    """Runs a broker until it is told to stop; 1 if it had to stop by itself."""
    gc.freeze()  # modules are no garbage: the collector need not look through them, at the start or ever
    configure_logging(options.log_format, options.log_level)
    settings = read_settings(options)
    check_system()
    raise_open_files_limit(_MOST_FILES)
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_serve(options, settings))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _spare_the_collector() -> None:
    """Makes the garbage collector run seldom: requests make many short-lived objects, but no cycles.

    With the defaults it would run after every 700 of them, and now and then look through all groups and topics.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


async def _serve(options: ServeOptions, settings: dict[str, str]) -> int:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    end = asyncio.Event()
    failures: list[str] = []

    def on_fatal(reason: str) -> None:
        failures.append(reason)
        loop.call_soon_threadsafe(end.set)

    in_memory = settings.get("durability") == "memory"
    told = data_directory(settings, Path(options.directory) if options.directory else None)
    directory = None if in_memory else told or Path(_DIRECTORY)
    server = await start(
        settings,
        directory=directory,
        listen=options.listen,
        advertise=options.advertise,
        on_fatal=on_fatal,
        is_metered=options.metrics is not None,
    )
    try:
        metrics = _monitoring(server, options.metrics) if options.metrics is not None else None
        console = _open_console(options, settings, server)
    except SettingError:
        await server.stop()
        raise
    _spare_the_collector()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    # A script that starts us in its background sets SIGINT to be ignored, and it stays so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGINT, end.set)
    broker = server.broker
    where = "in memory" if directory is None else f"in {directory}"
    took = (time.perf_counter() - began) * 1000
    first, *others = sorted(server.listeners, key=lambda each: not each.is_advertised)
    ready = f"Kohort is ready: bootstrap.servers={first.told}"
    print(f"{ready} (data {where}, durability {broker.config.durability}, {took:.0f} ms)", flush=True)
    for listener in others:
        told_there = f"bootstrap.servers={listener.told}" if listener.is_advertised else "not advertised"
        print(f"listener {listener.name}: {told_there}", flush=True)
    if metrics is not None:
        print(f"metrics: {metrics.address}", flush=True)
    console.announce()
    for listener in server.listeners:
        if listener.where != listener.told:
            on = listener.where if listener.where.host else f"all interfaces, port {listener.where.port}"
            log.info("listener %s: listens on %s, clients are told %s", listener.name, on, listener.told)
    if in_memory and told is not None:
        log.warning("nothing is written to %s: durability is memory", told)
    for warning in broker.config.warnings:
        log.warning("%s", warning)
    systemd = _systemd(server) if "NOTIFY_SOCKET" in os.environ else None
    await end.wait()
    if systemd is not None:
        systemd.stopping(failures[0] if failures else "asked to stop")
    if failures:
        log.critical("the broker stops: %s", failures[0])
    else:
        log.info("stopping")
    await console.close()
    if metrics is not None:
        await metrics.close()
    await server.stop()
    log.info("stopped")
    return 1 if failures else 0


def _open_console(options: ServeOptions, settings: dict[str, str], server: Server) -> BrokerConsole:
    from kohort.cli.console.of_broker import BrokerConsole, open_console

    if options.no_console:
        return BrokerConsole()
    # A client goes where it is told: of several listeners, the one of this machine is sure to be reachable.
    # The console has no password: it takes a listener that asks for none.
    told = [each.told for each in server.listeners if each.protocol == "PLAINTEXT" and each.is_advertised]
    if not told:
        if options.console is not None:
            raise SettingError(f"--console: {_NO_CONSOLE}")
        log.info("no console: %s", _NO_CONSOLE)
        return BrokerConsole()
    nearest = next((each for each in told if each.host == "127.0.0.1"), told[0])
    any_port = (options.listen or settings.get("listeners", "")).endswith(":0")
    return open_console(options.console, str(nearest), any_port=any_port)


def _monitoring(server: Server, where: str) -> Monitoring:
    from kohort.broker.monitoring import Monitoring  # a start without metrics does not wait for it

    return Monitoring(server, where)


def _systemd(server: Server) -> Systemd:
    from kohort.cli.systemd import Systemd  # as above

    async def loaded() -> None:
        if server.broker.has_groups:
            await server.broker.groups.wait_until_loaded()
        if server.broker.has_transactions:
            await server.broker.transactions.wait_until_loaded()

    systemd = Systemd(server.loop)
    systemd.ready_after(loaded(), f"serves {server.listeners[0].told}")
    return systemd
