"""Starts a node: settings, address, store, server. Used by `kohort serve` and by brokers inside a process."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kohort.broker import listeners
from kohort.broker.api_row import Row
from kohort.broker.apis import configs
from kohort.broker.apis.table import TABLE
from kohort.broker.broker import Broker
from kohort.broker.clock import Clock
from kohort.broker.config import BrokerConfig
from kohort.broker.fetch_sessions import FetchSessions
from kohort.broker.listeners import Listener
from kohort.broker.net.server import Server
from kohort.log.partition import Durability
from kohort.log.store import Store

if TYPE_CHECKING:
    from kohort.broker.security.guard import BrokerGuard


async def start(
    settings: Mapping[str, str],
    *,
    directory: Path | None,
    listen: str | None = None,
    advertise: str | None = None,
    on_fatal: Callable[[str], None],
    clock: Clock | None = None,
    table: dict[int, Row] | None = None,
    is_metered: bool = False,
) -> Server:
    """Starts a broker; it serves when this returns. Raises SettingError for what a user can correct.

    `listen` and `advertise` override the settings `listeners` and `advertised.listeners`; `directory` is None for a
    broker in memory. A test may pass a clock that it moves, and a table of APIs that fails on purpose.
    A metered broker counts its requests, for `monitoring.serve_metrics`.
    """
    loop = asyncio.get_running_loop()
    clock = clock or Clock()
    wanted, warnings = listeners.parse(settings, listen, advertise)
    # Errors in the settings are reported before a port is taken.
    config = BrokerConfig.parse({**settings, **listeners.as_settings(wanted)})
    warnings += _check_security(config, wanted, settings)
    bound = _bind(wanted, config)
    store: Store | None = None
    try:
        config = BrokerConfig.parse(
            {
                **settings,
                **listeners.as_settings([listener for listener, _ in bound]),
                **({"log.dirs": str(directory)} if directory else {}),
            }
        )
        config = replace(config, warnings=(*warnings, *config.warnings))
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
        told = next((each.told for each, _ in bound if each.is_advertised), bound[0][0].told)
        broker = Broker(config, store, told.host, told.port, _sessions(config), clock)
        broker.guard = _guard(config, store, wanted, settings)
        broker.load_quotas()
        server = Server(broker, _metered(broker, table or TABLE) if is_metered else table or TABLE)
        await server.start(bound)
    except BaseException:
        _close(bound)
        if store is not None:
            store.close()
        raise
    return server


async def start_again(stopped: Server) -> Server:
    """Starts the node of a server again that was stopped with `keep_store`: same addresses and data, empty memory."""
    was = stopped.broker
    bound = _bind(stopped.listeners, was.config)
    try:
        broker = Broker(was.config, was.store, was.host, was.port, _sessions(was.config), was.clock)
        broker.guard = was.guard
        broker.meter = was.meter
        broker.load_quotas()
        server = Server(broker, stopped.table)
        await server.start(bound)
    except BaseException:
        _close(bound)
        raise
    return server


def _uses_security(config: BrokerConfig, wanted: Sequence[Listener], settings: Mapping[str, str]) -> bool:
    return (
        bool(config.authorizer_class_name)
        or any(listener.protocol != "PLAINTEXT" for listener in wanted)
        or any(name.startswith("listener.name.") for name in settings)
    )


def _check_security(
    config: BrokerConfig, wanted: Sequence[Listener], settings: Mapping[str, str]
) -> list[str]:
    """Returns warnings, and raises SettingError for what is wrong, before a port is taken."""
    warnings: list[str] = []
    with_certificates: list[str] = []
    if not config.authorizer_class_name:
        warnings += [
            f"{name} has no effect here: there is no authorizer.class.name, so everybody may do everything"
            for name in ("super.users", "allow.everyone.if.no.acl.found")
            if settings.get(name, "").strip()
        ]
    if any(name.startswith(("ssl.", "sasl.", "connections.max.reauth")) for name in settings):
        from kohort.broker.security.listener_settings import without_effect

        warnings += without_effect(wanted, settings)
    if _uses_security(config, wanted, settings):
        from kohort.broker.security.guard import authorizer_of, settings_of_listeners, warnings_of_listeners

        authorizer_of(config)
        of_listeners = settings_of_listeners(wanted, settings)
        warnings += warnings_of_listeners(of_listeners)
        with_certificates = [
            name for name, each in of_listeners.items() if each.values.get("ssl.client.auth") == "required"
        ]
    return warnings + [
        _open_to_all(listener)
        for listener in wanted
        if not listener.is_loopback and not listener.uses_sasl and listener.name not in with_certificates
    ]


def _open_to_all(listener: Listener) -> str:
    where = f"--listen 127.0.0.1:{listener.where.port}"
    return (
        f"listener {listener.name} ({listener.where}) is open: whoever reaches it may do everything. To close it, "
        f"make it SASL_SSL (docs/security.md), or listen on this machine alone ({where})"
    )


def _guard(
    config: BrokerConfig, store: Store, wanted: Sequence[Listener], settings: Mapping[str, str]
) -> BrokerGuard | None:
    """Returns the security of the node; None where there is none, and nothing of it is loaded."""
    if not _uses_security(config, wanted, settings):
        return None
    from kohort.broker.security.guard import BrokerGuard, settings_of_listeners, with_dynamic_settings

    settings = with_dynamic_settings(settings, config, [listener.name for listener in wanted])
    return BrokerGuard(config, store, settings_of_listeners(wanted, settings))


def _metered(broker: Broker, table: dict[int, Row]) -> dict[int, Row]:
    """Gives the broker a meter, and returns the table to serve from."""
    from kohort.broker.meter import BrokerMeter  # a start without metrics does not wait for it

    broker.meter = meter = BrokerMeter(table)
    broker.store.time_journal(meter.journal.add)
    return meter.requests.metered(table)


def _bind(wanted: Sequence[Listener], config: BrokerConfig) -> list[tuple[Listener, socket.socket]]:
    bound: list[tuple[Listener, socket.socket]] = []
    # Buffer sizes are set only if the user gave them: the system's own grow with what a connection needs.
    given = config.static_values
    send = config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in given else -1
    receive = config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in given else -1
    try:
        for listener in wanted:
            sock = listeners.listening_socket(listener.where, send_buffer=send, receive_buffer=receive)
            bound.append((listener.at(sock.getsockname()[1]), sock))
    except BaseException:
        _close(bound)
        raise
    return bound


def _close(bound: Sequence[tuple[Listener, socket.socket]]) -> None:
    for _, sock in bound:
        sock.close()


def _sessions(config: BrokerConfig) -> FetchSessions:
    slots = config.max_incremental_fetch_session_cache_slots
    return FetchSessions(slots, lambda: secrets.randbelow(2**31 - 1) + 1)
