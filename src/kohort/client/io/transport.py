"""Carries the bytes of a connection: the protocol of transports and of security, and the one without TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from kohort.client.core.effects import Failure, FailureKind
from kohort.client.core.sasl_login import LoginRequests
from kohort.client.io.reactor import Reactor
from kohort.portable import PORTABLE

JOINED_BYTES = 16 << 10
"""A chunk of this size is sent by itself; TLS cuts what it sends into records of this size."""


NO_TLS_PORT = (
    "this is no TLS port: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or take a port with TLS"
)


class Transport(Protocol):
    """A socket or TLS over it; `receive` and `send` raise BlockingIOError when they would wait."""

    @property
    def sock(self) -> socket.socket: ...
    @property
    def holds_more(self) -> bool:
        """Whether bytes were taken from the socket that `receive` has not given yet: no event will tell."""

    def handshake(self) -> bool | None:
        """Goes on with the handshake; returns None when it is done, True to wait for writing, False for reading.

        Raises OSError if it failed.
        """

    def receive(self, into: memoryview) -> int: ...
    def send(self, chunks: list[memoryview]) -> int: ...
    def why(self, error: OSError) -> Failure: ...


def first_bytes(chunks: list[memoryview]) -> memoryview:
    """Returns the first chunk, or several small ones joined, where a system cannot send many at once."""
    first = chunks[0]
    if len(first) < JOINED_BYTES and len(chunks) > 1:
        return memoryview(b"".join(chunks[:16])[: 4 * JOINED_BYTES])
    return first


class PlainTransport:
    """The socket itself, without TLS."""

    __slots__ = ("sock", "receive")
    holds_more = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.receive = sock.recv_into

    def handshake(self) -> None:
        return None

    def send(self, chunks: list[memoryview]) -> int:
        if len(chunks) == 1:
            return self.sock.send(chunks[0])
        return self.sock.send(first_bytes(chunks)) if PORTABLE else self.sock.sendmsg(chunks)

    def why(self, error: OSError) -> Failure:
        return Failure(FailureKind.DISCONNECTED, error.strerror or str(error))


class Security(Protocol):
    """What security.protocol asks for: how a connection is wrapped, and what is said before the first request."""

    def prepare(self, reactor: Reactor, then: Callable[[Failure | None], None]) -> None:
        """Calls `then` when `login` can begin, at once or later (a token must come first), or why it cannot."""

    def transport(self, sock: socket.socket, host: str) -> Transport: ...
    def login(self, versions: Mapping[int, tuple[int, int]]) -> LoginRequests:
        """Says who we are, on a new connection or to renew its session; nothing is said without SASL."""
