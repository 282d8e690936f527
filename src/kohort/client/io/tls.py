"""Secures connections as security.protocol and the settings ssl.* say: TLS over a nonblocking socket, SASL, or both."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Generator, Mapping
from typing import Any

from kohort.client.config import ClientConfig
from kohort.client.core.effects import Failure, FailureKind
from kohort.client.io.sasl import Mechanism, authenticate, mechanism_for
from kohort.client.io.transport import Greeter, PlainTransport, Transport, first_bytes
from kohort.settings import SettingError
from kohort.wire.struct import Message


class TlsTransport:
    """Reads and writes through an SSLSocket; raises BlockingIOError for whatever TLS waits for."""

    __slots__ = ("sock", "_tls")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        self.sock: socket.socket = self._tls

    @property
    def holds_more(self) -> bool:
        return self._tls.pending() > 0

    def handshake(self) -> bool | None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            return True
        return None

    def receive(self, into: memoryview) -> int:
        try:
            return self._tls.recv_into(into)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, chunks: list[memoryview]) -> int:
        """Sends the first chunk, or several small ones as one record."""
        try:
            return self._tls.send(first_bytes(chunks))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def why(self, error: OSError) -> Failure:
        """Says what an error means: a handshake that failed will not succeed next time, one that was cut off may."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return Failure(
                FailureKind.AUTHENTICATION,
                f"the broker's certificate was not accepted: {error.verify_message} (see ssl.ca.location and "
                "ssl.endpoint.identification.algorithm)",
            )
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            reason = error.reason or str(error)
            hint = " (is this a TLS port? see security.protocol)" if reason == "WRONG_VERSION_NUMBER" else ""
            return Failure(FailureKind.AUTHENTICATION, f"the TLS handshake failed: {reason}{hint}")
        return Failure(FailureKind.DISCONNECTED, f"TLS: {error.strerror or error}")


class Secured:
    """What security.protocol asks for: TLS, SASL or both."""

    def __init__(self, context: ssl.SSLContext | None, mechanism: Mechanism | None) -> None:
        self._context, self._mechanism = context, mechanism

    def transport(self, sock: socket.socket, host: str) -> Transport:
        return PlainTransport(sock) if self._context is None else TlsTransport(sock, self._context, host)

    def authenticate(self, connection: Greeter) -> Generator[tuple[int, int, Message], Any, None]:
        if self._mechanism is not None:
            yield from authenticate(connection, self._mechanism)


def security_for(config: ClientConfig, objects: Mapping[str, Any] | None = None) -> Secured:
    """Reads the settings, and those of SECURITY_OBJECTS that were given; raises SettingError for what is missing."""
    given = objects or {}
    protocol = config.security_protocol
    context = None
    if protocol.endswith("SSL"):
        own = given.get("ssl.context")
        context = own if own is not None else tls_context(config)
    mechanism = mechanism_for(config, given) if protocol.startswith("SASL") else None
    return Secured(context, mechanism)


def tls_context(config: ClientConfig) -> ssl.SSLContext:
    """Makes a context from PEM files; raises SettingError, which names the setting, for a file that cannot be read."""
    context = ssl.create_default_context()
    if config.ssl_endpoint_identification_algorithm != "https":
        context.check_hostname = False  # the chain of the certificate is checked all the same
    if config.ssl_ca_location:
        try:
            context = _trusting(config)
        except OSError as error:
            raise SettingError(f"ssl.ca.location={config.ssl_ca_location}: {error}") from error
    if config.ssl_certificate_location:
        try:
            context.load_cert_chain(
                config.ssl_certificate_location,
                config.ssl_key_location or None,
                lambda: config.ssl_key_password,
            )
        except OSError as error:
            raise SettingError(
                f"ssl.certificate.location={config.ssl_certificate_location}, "
                f"ssl.key.location={config.ssl_key_location}: {error}"
            ) from error
    return context


def _trusting(config: ClientConfig) -> ssl.SSLContext:
    """Makes a context that trusts only the given authorities, not the system's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    context.load_verify_locations(config.ssl_ca_location)
    return context
