"""The socket that the console listens on, and its address in words. Loads nothing of the console's packages."""

from __future__ import annotations

import errno
import socket
from importlib.util import find_spec
from ipaddress import ip_address

from kohort.settings import SettingError

LOOPBACK, PORT = "127.0.0.1", 9080
_BACKLOG = 128
INSTALL = 'the console needs two more packages: pip install "kohort[console]"'


def is_installed() -> bool:
    """Says whether the packages of the console are there, without loading them."""
    return find_spec("fastapi") is not None and find_spec("uvicorn") is not None


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Reads `9080` (on loopback), `HOST:9080` or `[::1]:9080`; port 0 takes a free one."""
    host, colon, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65_535 or (colon and not host):
        raise SettingError(
            f"{option} {text!r}: give a port, or HOST:PORT, for example {option} 127.0.0.1:{PORT}"
        )
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


def listen_at(host: str, port: int, option: str) -> socket.socket:
    """Opens the socket; SettingError, with what to do, if that is not possible."""
    try:
        family, kind, number, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, number)
    except OSError as error:
        raise SettingError(f"{option} {host}:{port}: {error.strerror or error}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        what = "the port is in use" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
        raise SettingError(
            f"{option} {host}:{port}: {what}; choose another one, or port 0 for a free one"
        ) from None
    return listening


def listen_somewhere(port: int) -> socket.socket:
    """Opens the socket on loopback, at this port or at a free one."""
    try:
        return listen_at(LOOPBACK, port, "--console")
    except SettingError:
        return listen_at(LOOPBACK, 0, "--console")


def address_of(listening: socket.socket) -> str:
    """Returns the address that a browser opens."""
    host, port = listening.getsockname()[:2]
    if ip_address(host.partition("%")[0]).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def is_open_to_others(listening: socket.socket) -> bool:
    """Says whether other machines may reach the socket."""
    return not ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def open_to_others(listening: socket.socket) -> str:
    """Says what is open to whom."""
    return (
        f"the console at {address_of(listening)} is open to every machine that reaches this one: who opens it can read "
        "all groups and messages without a password, and changes travel with their token unencrypted. Bind it to "
        "127.0.0.1 and use an SSH tunnel, or put a proxy with TLS and a password before it"
    )


def names_of(host: str, listening: socket.socket) -> list[str]:
    """Returns the names by which the console may be reached: as it was told, and this machine's if it is open."""
    names = [host]
    if is_open_to_others(listening):
        names += [socket.gethostname(), socket.getfqdn()]
    return names
