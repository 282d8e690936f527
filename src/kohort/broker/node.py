"""Starts a node: settings, address, store, server. Used by `kohort serve` and by brokers inside a process."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kohort.broker import configs
from kohort.broker.apis import TABLE, Row
from kohort.broker.broker import Broker
from kohort.broker.clock import Clock
from kohort.broker.config import BrokerConfig
from kohort.broker.server import Server
from kohort.broker.sessions import FetchSessions
from kohort.log.partition import Durability
from kohort.log.store import Store
from kohort.settings import SettingError


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @staticmethod
    def parse(text: str, what: str) -> Address:
        """`HOST:PORT`, `[::1]:PORT`; raises SettingError with an example."""
        host, colon, port = text.removeprefix("PLAINTEXT://").rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise SettingError(f"{what} {text!r} is not HOST:PORT, for example 127.0.0.1:9092")
        return Address(host.strip("[]") or "127.0.0.1", int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listening_socket(address: Address) -> socket.socket:
    """Bound, not yet listening. A busy port is a SettingError that says what to do."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        # Claims the port now: two brokers that both bound it must not find out later.
        sock.listen(1024)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(
                f"{address} is in use by another program; choose another port with --listen HOST:PORT, "
                f"or --listen {address.host}:0 for a free one"
            ) from None
        raise SettingError(f"cannot listen on {address}: {error.strerror}") from None
    except OverflowError:
        sock.close()
        raise SettingError(f"{address}: a port is between 0 and 65535") from None
    return sock


def _address(settings: Mapping[str, str], name: str, option: str | None, what: str) -> Address | None:
    if option:
        return Address.parse(option, what)
    first = settings.get(name, "").partition(",")[0].strip()
    return Address.parse(first, name) if first else None


async def start(
    settings: Mapping[str, str],
    *,
    directory: Path | None,
    listen: str | None = None,
    advertise: str | None = None,
    on_fatal: Callable[[str], None],
    clock: Clock | None = None,
    table: dict[int, Row] | None = None,
) -> Server:
    """A broker that serves when this returns. Raises SettingError for whatever a person can put right.

    `listen` and `advertise` beat the settings `listeners` and `advertised.listeners`, of which the first counts.
    A test may bring a clock that it moves, and a table of APIs that fails on purpose.
    """
    loop = asyncio.get_running_loop()
    clock = clock or Clock()
    told = _address(settings, "advertised.listeners", advertise, "--advertise")
    where = _address(settings, "listeners", listen, "--listen") or Address("127.0.0.1", 9092)
    sock = listening_socket(where)
    try:
        host, port = sock.getsockname()[:2]
        told = told or Address(host, port)
        config = BrokerConfig.parse(
            {
                **settings,
                "listeners": f"PLAINTEXT://{Address(host, port)}",
                "advertised.listeners": f"PLAINTEXT://{told}",
                **({"log.dirs": str(directory)} if directory else {}),
            }
        )
        store = Store.open(
            directory,
            durability=cast(Durability, config.durability),
            defaults=config.topic_defaults,
            node_id=config.node_id,
            now_ms=clock.now_ms(),
            call_soon=loop.call_soon_threadsafe,
            on_fatal=on_fatal,
            loop=loop,
        )
        config = configs.restore(config, store)
        broker = Broker(config, store, told.host, told.port, _sessions(config), clock)
        server = Server(broker, table or TABLE)
        await server.start(sock)
    except BaseException:
        sock.close()
        raise
    return server


async def start_again(stopped: Server) -> Server:
    """The node of a server that was stopped with `keep_store`: same address, same data; only memory is lost."""
    was = stopped.broker
    sock = listening_socket(Address.parse(was.config.listeners[0], "listeners"))
    try:
        broker = Broker(was.config, was.store, was.host, was.port, _sessions(was.config), was.clock)
        server = Server(broker, stopped.table)
        await server.start(sock)
    except BaseException:
        sock.close()
        raise
    return server


def _sessions(config: BrokerConfig) -> FetchSessions:
    slots = config.max_incremental_fetch_session_cache_slots
    return FetchSessions(slots, lambda: secrets.randbelow(2**31 - 1) + 1)
