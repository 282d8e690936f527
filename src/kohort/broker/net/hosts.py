"""The address of a client as Java prints it, which is what the host of an ACL is compared with."""

from __future__ import annotations

import socket
from struct import unpack
from typing import Any

_MAPPED = b"\0" * 10 + b"\xff\xff"


def host_of(peer: Any) -> str:
    """Returns the address in what `getpeername` told: all eight groups of an IPv6 address, a mapped IPv4 as IPv4."""
    if not peer:
        return ""
    text = str(peer[0])
    if ":" not in text:
        return text
    address, _, zone = text.partition("%")
    packed = socket.inet_pton(socket.AF_INET6, address)
    if packed.startswith(_MAPPED):
        return socket.inet_ntoa(packed[12:])
    groups = ":".join(f"{group:x}" for group in unpack(">8H", packed))
    scope = peer[3] if len(peer) > 3 else 0  # of a link-local address: the number of the interface
    return f"{groups}%{scope or zone}" if scope or zone else groups
