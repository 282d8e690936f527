"""Secures connections as security.protocol says: TLS over a nonblocking socket, SASL, or both."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

from kohort.client.config import ClientConfig
from kohort.client.core.effects import Failure, FailureKind
from kohort.client.core.sasl_login import LoginRequests, login
from kohort.client.io.reactor import Reactor
from kohort.client.io.sasl import SaslMechanism, mechanism_for
from kohort.client.io.tls_context import tls_context
from kohort.client.io.tokens import Prepared
from kohort.client.io.transport import NO_TLS_PORT, PlainTransport, Transport, first_bytes

_REASONS = {
    "WRONG_VERSION_NUMBER": NO_TLS_PORT,
    "UNKNOWN_PROTOCOL": NO_TLS_PORT,
    "HTTP_REQUEST": "this is a port for HTTP",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants to see our certificate: set ssl.keystore.location, or "
    "ssl.certificate.location and ssl.key.location",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the authority that signed our certificate: have it added to "
    "the broker's ssl.truststore",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker does not accept our certificate, or wants one: see "
    "ssl.keystore.location",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired: renew what ssl.keystore.location or "
    "ssl.certificate.location has",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept our certificate: see ssl.keystore.location",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker speaks no version of TLS that ssl.enabled.protocols allows",
    "UNSUPPORTED_PROTOCOL": "the broker speaks no version of TLS that ssl.enabled.protocols allows",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "no cipher in common (see ssl.cipher.suites), or the broker wants to see our "
    "certificate (see ssl.keystore.location)",
}
_MISMATCHES = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and …_IP_ADDRESS_MISMATCH
_NOT_YET_VALID, _EXPIRED = 9, 10


class TlsTransport:
    """Reads and writes through an SSLSocket; raises BlockingIOError for whatever TLS waits for."""

    __slots__ = ("sock", "_tls", "_host", "_has_spoken")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        self.sock: socket.socket = self._tls
        self._host = host
        self._has_spoken = False

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
            received = self._tls.recv_into(into)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        self._has_spoken = True
        return received

    def send(self, chunks: list[memoryview]) -> int:
        """Sends the first chunk, or several small ones as one record."""
        try:
            return self._tls.send(first_bytes(chunks))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def why(self, error: OSError) -> Failure:
        """Says what an error means: a handshake that failed will not succeed next time, one that was cut off may.

        In TLS 1.3 a broker that refuses our certificate says so after the handshake, before anything else.
        """
        if self._has_spoken:
            return Failure(FailureKind.DISCONNECTED, f"TLS: {error.strerror or error}")
        if isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError):
            return Failure(
                FailureKind.DISCONNECTED,
                "the broker closed the connection in the TLS handshake; a port without TLS does that "
                f"(see security.protocol): {error.strerror or error}",
            )
        return Failure(FailureKind.AUTHENTICATION, handshake_failure(error, self._host))


class Secured:
    """What security.protocol asks for: TLS, SASL or both."""

    def __init__(self, context: ssl.SSLContext | None, mechanism: SaslMechanism | None) -> None:
        self._context, self._mechanism = context, mechanism

    def prepare(self, reactor: Reactor, then: Prepared) -> None:
        if self._mechanism is None:
            then(None)
        else:
            self._mechanism.prepare(reactor, then)

    def transport(self, sock: socket.socket, host: str) -> Transport:
        return PlainTransport(sock) if self._context is None else TlsTransport(sock, self._context, host)

    def login(self, versions: Mapping[int, tuple[int, int]]) -> LoginRequests:
        if self._mechanism is None:
            return 0
        return (yield from login(self._mechanism.credentials, versions))


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


def handshake_failure(error: ssl.SSLError, host: str) -> str:
    """Says why TLS failed and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate was not accepted: {error.verify_message} ({_certificate_hint(error, host)})"
    reason = getattr(error, "reason", None) or str(error)
    hint = _REASONS.get(reason)
    return f"the TLS handshake failed: {reason}" + (f" ({hint})" if hint else "")


def _certificate_hint(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in _MISMATCHES:
        return (
            f"it is for another name: connect by a name that it has, or have {host} added to it; "
            "ssl.endpoint.identification.algorithm=none switches the check off"
        )
    if error.verify_code == _EXPIRED:
        return "have the broker's certificate renewed, or look at the clock of this machine"
    if error.verify_code == _NOT_YET_VALID:
        return "look at the clocks of this machine and of the broker"
    return "set ssl.ca.location, or ssl.truststore.location, to the authority that signed it"
