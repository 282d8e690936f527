"""Parses `listeners`, `advertised.listeners` and their kin: where a node listens, and what clients are told.

    parse({"listeners": "PLAINTEXT://127.0.0.1:9092,LAN://:9093", "listener.security.protocol.map": "…,LAN:PLAINTEXT"})

The rules are Kafka's. Each listener has a name, and its clients are told the address that is advertised under that
name. An empty host listens on all interfaces and is advertised as this machine's name. `0.0.0.0` and `::` listen on all
interfaces too, and are never advertised, because no client can connect to them. A listener that `advertised.listeners`
leaves out serves its clients, but tells them of no node.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from kohort.settings import SettingError

_PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = {name: name for name in (_PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
_NAMED = re.compile(r"([a-zA-Z0-9_.-]+)://(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str  # without brackets; empty for all interfaces
    port: int

    @staticmethod
    def parse(text: str, what: str) -> Address:
        """Parses `HOST:PORT`, `[::1]:PORT` or `:PORT`; SettingError shows an example."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
            raise SettingError(f"{what} {text!r} is not HOST:PORT, for example 127.0.0.1:9092 or [::1]:9092")
        return Address(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def is_everywhere(self) -> bool:
        """Whether it means all interfaces, in whatever spelling, so that no client can connect to it."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return self.host == "0"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of the node: its name, where it listens, what its clients are told."""

    name: str
    where: Address
    told: Address
    """The address that its clients are told. Port 0: the one that it listens on."""
    protocol: str = _PLAINTEXT
    """The security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    is_advertised: bool = True
    """Whether its clients are told an address at all. `told` is where it listens if they are not."""

    @property
    def advertised(self) -> Address | None:
        """What its clients are told; None if `advertised.listeners` leaves it out."""
        return self.told if self.is_advertised else None

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        try:
            return ip_address(self.where.host).is_loopback
        except ValueError:
            return self.where.host == "localhost"

    def at(self, port: int) -> Listener:
        """Returns the listener with the port that it was given."""
        told = self.told if self.told.port else replace(self.told, port=port)
        return replace(self, where=replace(self.where, port=port), told=told)


def parse(
    settings: Mapping[str, str], listen: str | None = None, advertise: str | None = None
) -> tuple[list[Listener], list[str]]:
    """Returns the listeners, at least one, and warnings. `listen` and `advertise` override the settings."""
    protocols = _protocols(settings)
    controllers = [name.upper() for name in _items(settings.get("controller.listener.names", ""))]
    found = {_PLAINTEXT: Address("127.0.0.1", 9092)}
    if listen:
        found = _endpoints(listen, "--listen", _PLAINTEXT)
    elif "listeners" in settings:
        found = _endpoints(settings["listeners"], "listeners", _PLAINTEXT)
    left_out = [name for name in found if name in controllers]
    found = {name: address for name, address in found.items() if name not in controllers}
    if not found:
        raise SettingError(
            "listeners has none that clients could use: all of them are in controller.listener.names"
        )
    of_listener = {name: _protocol_of(name, protocols) for name in found}
    first = next(iter(found))
    told: dict[str, Address] = {}
    if advertise:
        told = _endpoints(advertise, "--advertise", first)
    elif "advertised.listeners" in settings:
        told = _endpoints(settings["advertised.listeners"], "advertised.listeners", first)
        if listen:  # it replaces all listeners that the settings have
            told = {name: address for name, address in told.items() if name in found}
    strange = [name for name in told if name not in found and name not in controllers]
    if strange:
        raise SettingError(
            f"advertised.listeners names {', '.join(strange)}, but listeners has only {', '.join(found)}"
        )
    warnings = [f"listener {name} is left out: one node needs no controllers" for name in left_out]
    hidden = [name for name in found if told and name not in told]
    warnings += [
        f"listener {name} is not in advertised.listeners: its clients find no broker and no coordinator by it"
        for name in hidden
    ]
    listeners = [
        Listener(
            name,
            where,
            _own_address(where) if name in hidden else _told(name, where, told.get(name)),
            of_listener[name],
            name not in hidden,
        )
        for name, where in found.items()
    ]
    return listeners, warnings


def as_settings(listeners: Sequence[Listener]) -> dict[str, str]:
    """Returns the two settings as they are in force, for DescribeConfigs."""
    return {
        "listeners": ",".join(f"{each.name}://{each.where}" for each in listeners),
        "advertised.listeners": ",".join(
            f"{each.name}://{each.told}" for each in listeners if each.is_advertised
        ),
    }


def _endpoints(listed: str, what: str, unnamed: str) -> dict[str, Address]:
    """Returns the addresses by name. Kafka requires the name; an address alone belongs to the listener `unnamed`."""
    found: dict[str, Address] = {}
    for text in _items(listed):
        named = _NAMED.fullmatch(text)
        name, address = (named[1].upper(), named[2]) if named else (unnamed, text)
        if name in found:
            raise SettingError(
                f"{what}: each listener must have a different name, but two are {name}. Call one of them OTHER://…, "
                "and say listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
            )
        found[name] = Address.parse(address, what)
    if not found:
        raise SettingError(
            f"{what} is empty; say for example {what}=PLAINTEXT://127.0.0.1:9092, or take it out"
        )
    return found


def _protocols(settings: Mapping[str, str]) -> dict[str, str]:
    what = "listener.security.protocol.map"
    if what not in settings:
        return _PROTOCOLS
    protocols = {}
    for text in _items(settings[what]):
        name, colon, protocol = (part.strip().upper() for part in text.partition(":"))
        if not colon or protocol not in _PROTOCOLS:
            known = ", ".join(_PROTOCOLS)
            raise SettingError(f"{what}: {text!r} is not NAME:PROTOCOL with one of {known}")
        protocols[name] = protocol
    return protocols


def _protocol_of(name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise SettingError(
            f"No security protocol defined for listener {name}: "
            f"say listener.security.protocol.map=PLAINTEXT:PLAINTEXT,{name}:PLAINTEXT"
        )
    return protocol


def _told(name: str, where: Address, told: Address | None) -> Address:
    if told is not None and told.is_everywhere:
        raise SettingError(
            f"{name}: clients cannot connect to {told.host}, so it cannot be advertised; "
            "say a name or an address of this machine that they can reach"
        )
    if told is None and where.is_everywhere:
        raise SettingError(
            f"{name} listens on {where}, but clients have to be told an address that they can connect to: "
            f"say advertised.listeners={name}://HOST:{where.port} (or --advertise HOST:{where.port})"
        )
    return _own_address(told or where)


def _own_address(address: Address) -> Address:
    return address if address.host else replace(address, host=socket.getfqdn())


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


# --- limits of addresses ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def ip_overrides(text: str) -> dict[str, int]:
    """Returns the limits of `max.connections.per.ip.overrides` by address; SettingError if it is wrong."""
    limits: dict[str, int] = {}
    for item in _items(text):
        address = Address.parse(item, "max.connections.per.ip.overrides:")
        try:
            found = socket.getaddrinfo(address.host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise SettingError(f"max.connections.per.ip.overrides: there is no host {address.host}") from None
        limits |= {one_spelling(str(where[0])): address.port for *_, where in found}
    return limits


def one_spelling(address: str) -> str:
    """Returns an address as Python writes it, whoever wrote it."""
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def check_ip_overrides(text: object) -> str | None:
    """Tells what is wrong with the setting."""
    try:
        ip_overrides(str(text))
    except SettingError as error:
        return str(error)
    return None


# --- sockets -----------------------------------------------------------------------------------------------------


def listening_socket(address: Address, *, send_buffer: int = -1, receive_buffer: int = -1) -> socket.socket:
    """Returns a bound and listening socket; SettingError says what to do. -1: the system's buffer sizes."""
    sock: socket.socket | None = None
    try:
        family, where = bind_address(address)
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and ip_address(where[0].partition("%")[0]).is_unspecified:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # all interfaces, as Java's sockets
        # A connection inherits the buffer sizes of the listening socket.
        for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind(where)
        # Listening claims the port now: of two brokers that bound it, the second must fail here.
        sock.listen(1024)
    except (OSError, UnicodeError) as error:  # text that cannot be a host name is a UnicodeError
        if sock is not None:
            sock.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            free = replace(address, port=0)
            raise SettingError(
                f"{address} is in use by another program; choose another port with --listen HOST:PORT, "
                f"or --listen {free} for a free one"
            ) from None
        why = error.strerror if isinstance(error, OSError) else "this is not the name of a host"
        raise SettingError(f"cannot listen on {address}: {why}") from None
    return sock


def bind_address(address: Address) -> tuple[int, Any]:
    """Returns the address family and the address as `bind` takes it; OSError if the name is not known.

    IPv4 is preferred where a name has both, as `localhost` mostly does.
    """
    if not address.host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", address.port)
        return socket.AF_INET, ("0.0.0.0", address.port)
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, where
