"""What carries the bytes of a connection: the socket itself, or TLS over it."""

from __future__ import annotations

import socket
from collections.abc import Generator
from typing import Any, Protocol

from kohort.client.core.effects import Failure, FailureKind
from kohort.wire.struct import Message


class Rejected(Exception):
    """The node cannot be used; why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Transport(Protocol):
    """Nonblocking: `receive` and `send` raise BlockingIOError when they would wait."""

    @property
    def sock(self) -> socket.socket: ...
    @property
    def holds_more(self) -> bool:
        """Bytes were taken from the socket that `receive` has not given yet: no event will tell."""

    def handshake(self) -> bool | None:
        """Goes on with it. None: done; True: waits to write; False: waits to read. OSError: it failed."""

    def receive(self, into: memoryview) -> int: ...
    def send(self, chunks: list[memoryview]) -> int: ...
    def why(self, error: OSError) -> Failure: ...


class PlainTransport:
    """No TLS."""

    __slots__ = ("sock", "receive")
    holds_more = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.receive = sock.recv_into

    def handshake(self) -> None:
        return None

    def send(self, chunks: list[memoryview]) -> int:
        return self.sock.send(chunks[0]) if len(chunks) == 1 else self.sock.sendmsg(chunks)

    def why(self, error: OSError) -> Failure:
        return Failure(FailureKind.DISCONNECTED, error.strerror or str(error))


class Greeter(Protocol):
    """The connection, as far as authentication needs it."""

    host: str
    port: int
    versions: dict[int, tuple[int, int]]
    expires_ms: int | None

    @property
    def reactor(self) -> Any: ...


class Security(Protocol):
    """security.protocol: how a connection is wrapped, and what is said before the first request."""

    def transport(self, sock: socket.socket, host: str) -> Transport: ...
    def authenticate(self, connection: Greeter) -> Generator[tuple[int, int, Message], Any, None]: ...
