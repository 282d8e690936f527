"""A blocking connection over TLS, and ways to end it that only TLS has."""

from __future__ import annotations

import contextlib
import socket
import ssl

from kohort.client.io.blocking_connection import BlockingConnection


class TlsPeer(BlockingConnection):
    """As `BlockingConnection`, over TLS: `TlsPeer(broker.bootstrap_servers, certificates.context())`."""

    def __init__(self, address: str, context: ssl.SSLContext, *, timeout_s: float = 30.0) -> None:
        super().__init__(address, timeout_s=timeout_s)
        try:
            self._socket = self.tls = context.wrap_socket(self._socket, server_hostname="localhost")
        except BaseException:
            self._socket.close()
            raise

    def says_goodbye(self) -> None:
        """Sends the alert that ends our half of the connection, and reads on."""
        self.tls.setblocking(False)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self.tls.settimeout(30.0)

    def sends_no_more(self) -> None:
        """Ends our half of the TCP connection without the alert, as some clients do."""
        socket.socket.shutdown(self.tls, socket.SHUT_WR)


def connect(address: str) -> socket.socket:
    """A plain connection to a port."""
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 30)


def until_closed(sock: socket.socket) -> bytes:
    """All that comes until the broker closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(4096):
            received += data
    return received
