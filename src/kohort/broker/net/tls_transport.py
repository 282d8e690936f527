"""Serves connections with TLS: OpenSSL works on the socket itself, and the event loop waits.

A `TlsServerTransport` is to its connection what a transport of the event loop is: it reads into the connection's
buffer, pauses, and closes. The loops' own TLS transports were measured too and cost as much CPU, but they copy what is
sent into buffers of their own, so that nobody knows how much is waiting.

Nothing is allocated for TLS before the first byte of a client is there. That byte tells whether it speaks TLS: one
that does not gets an alert, because Kafka's clients explain what they read then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.broker.net.sasl_connection import AUTHENTICATE_WITHIN_S
from kohort.broker.net.tls_outbox import TlsOutbox
from kohort.broker.security.tls import ListenerTls

if TYPE_CHECKING:
    from kohort.broker.net.connection import Connection

log = logging.getLogger("kohort.broker")

_RECORD_BYTES = 16 * 1024  # the most that one record of TLS has
_HANDSHAKE = b"\x16"  # how each connection with TLS begins
_UNEXPECTED_MESSAGE = bytes.fromhex("1503030002020a")  # a fatal alert
_LINGER_S = 1.0  # how long a refused client has to read why
_WHAT_TO_DO = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by an authority in ssl.truststore",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "it sent no certificate, and ssl.client.auth is required; give the client a keystore"
    ),
    "TLSV1_ALERT_UNKNOWN_CA": (
        "the client does not trust our certificate; give it the certificate of our authority (ssl.truststore.location, "
        "ssl.ca.location)"
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": (
        "the client does not accept our certificate; its truststore lacks our authority, or the name in the "
        "certificate is not the one it connects to"
    ),
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept our certificate; is its name the one it connects to?",
    "UNSUPPORTED_PROTOCOL": "it offers no version of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "it offers no cipher suite that ssl.cipher.suites and our key allow",
}


class TlsServerTransport(asyncio.Transport):
    """The transport of one connection with TLS. Answers are written by its `TlsOutbox`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, tls: ListenerTls, connection: Connection
    ) -> None:
        super().__init__()
        self._loop, self._tls, self._connection = loop, tls, connection
        self._plain: socket.socket = sock
        self._sock: ssl.SSLSocket | None = None
        self._fd = sock.fileno()
        self._outbox: TlsOutbox | None = None
        self._on_readable: Callable[[], None] = self._take_first_byte
        self._is_reading = False
        self._is_closing = False
        self._at_end = False
        self._timer: asyncio.TimerHandle | None = None
        if not tls.is_before_sasl:  # a connection with SASL has one for both
            self._timer = loop.call_later(AUTHENTICATE_WITHIN_S, self._give_up)
        self.resume_reading()
        connection.connection_made(self)  # it may pause or close at once
        if not tls.is_before_sasl:
            connection.is_in_handshake()

    # --- what a connection uses of a transport ----------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "outbox_of":
            return self._make_outbox
        if name == "peername":
            try:
                return self._plain.getpeername()
            except OSError:  # gone already
                return default
        return self._plain if name == "socket" else default

    def _make_outbox(
        self, loop: asyncio.AbstractEventLoop, fd: int, drained: Callable[[], None]
    ) -> TlsOutbox:
        self._outbox = TlsOutbox(loop, fd, drained, self._tls.staging)
        return self._outbox

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing and not self._at_end:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)
            if self._sock is not None and self._sock.pending():
                self._loop.call_soon(self._read_on)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Tells the client that this is the end, and closes."""
        if self._sock is not None and not self._is_closing:
            with contextlib.suppress(OSError, ValueError):
                self._sock.unwrap()  # sends the alert; that of the client is not waited for
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lost)
        self._stop_timer()
        self.pause_reading()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _lost(self) -> None:
        self._loop.remove_writer(self._fd)  # a handshake may wait for it
        self._connection.connection_lost(None)
        (self._sock or self._plain).close()

    # --- the handshake ----------------------------------------------------------------------------

    def _take_first_byte(self) -> None:
        try:
            first = self._plain.recv(1, socket.MSG_PEEK)
            if first == _HANDSHAKE:
                self._sock = self._tls.context.wrap_socket(
                    self._plain, server_side=True, do_handshake_on_connect=False
                )
                self._plain = self._sock
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._went_away(error)
            return
        if not first:
            self.abort()
        elif self._sock is None:
            self._refuse_plain()
        else:
            self._continue_with(self._shake_hands)
            self._shake_hands()

    def _continue_with(self, on_readable: Callable[[], None]) -> None:
        self._on_readable = on_readable
        if self._is_reading:
            self._loop.add_reader(self._fd, on_readable)

    def _shake_hands(self) -> None:
        sock = self._sock
        assert sock is not None
        self._loop.remove_writer(self._fd)
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._shake_hands)
            return
        except ssl.SSLError as error:
            if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                self._went_away(error)
            else:
                self._refuse(f"the TLS handshake failed: {_explained(error)}")
            return
        except OSError as error:
            self._went_away(error)
            return
        self._handshake_done(sock)

    def _handshake_done(self, sock: ssl.SSLSocket) -> None:
        certificate = sock.getpeercert(binary_form=True)
        try:
            principal = self._tls.principal_of(certificate)
        except ValueError as error:  # a certificate that OpenSSL takes and we cannot read
            self._refuse(f"its certificate has a subject that cannot be read: {error}")
            return
        if principal is None:
            self._refuse(
                "no rule of ssl.principal.mapping.rules is for its certificate; add DEFAULT, or a rule"
            )
            return
        self._stop_timer()
        assert self._outbox is not None
        self._outbox.secured(sock)
        self._read_into: Callable[[int, memoryview], int] = sock.read  # type: ignore[assignment]
        self._connection.secured(principal)
        self._continue_with(self._read)
        self._read_on()

    # --- those who are not let in -----------------------------------------------------------------

    def _give_up(self) -> None:
        self._connection.complain(f"no TLS handshake within {AUTHENTICATE_WITHIN_S:.0f} s")
        self.abort()

    def _went_away(self, error: OSError) -> None:
        log.debug("%s went away: %s", self._connection.peer, error)
        self.abort()

    def _refuse_plain(self) -> None:
        with contextlib.suppress(OSError):
            self._plain.send(_UNEXPECTED_MESSAGE)
        self._refuse(
            f"it does not speak TLS, and the listener {self._tls.name} speaks nothing else. Set the client's "
            f"security.protocol to {'SASL_SSL' if self._tls.is_before_sasl else 'SSL'}"
        )

    def _refuse(self, reason: str) -> None:
        """Ends our half, and closes when the client has ended its own: a reset could overtake the alert."""
        self._connection.complain(reason)
        self._stop_timer()
        try:
            (self._sock or self._plain).shutdown(socket.SHUT_WR)  # from here on the socket is a plain one
        except OSError:
            self.abort()
            return
        self._timer = self._loop.call_later(_LINGER_S, self.abort)
        self._continue_with(self._pass_over)

    def _pass_over(self) -> None:
        try:
            data = socket.socket.recv(self._plain, _RECORD_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.abort()

    # --- requests ---------------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Reads what OpenSSL has already taken from the socket, of which the loop does not know.

        It reads once: others have their turn before the rest.
        """
        if self._sock is not None and self._is_reading and self._sock.pending():
            self._read()

    def _read(self) -> None:
        """Reads records as long as they are full, up to the size of the buffer, and hands them on together."""
        sock, connection, read_into = self._sock, self._connection, self._read_into
        assert sock is not None
        buffer = connection.get_buffer(-1)
        filled, size = 0, len(buffer)
        try:
            while filled < size:
                count = read_into(size - filled, buffer[filled:] if filled else buffer)
                if not count:
                    self._at_end = True
                    break
                filled += count
                if count < _RECORD_BYTES and not sock.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            self._went_away(error)
            return
        if filled:
            connection.buffer_updated(filled)
        if self._at_end:
            self._end_of_input()
        elif filled == size and self._is_reading and sock.pending():
            self._loop.call_soon(self._read_on)

    def _end_of_input(self) -> None:
        self.pause_reading()
        try:
            self._plain.getpeername()
        except OSError as error:  # OpenSSL does not tell a reset from an end
            self._went_away(error)
            return
        if not self._is_closing and not self._connection.eof_received():
            self.close()


def _explained(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    what = _WHAT_TO_DO.get(reason)
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"{what}: {error.verify_message}"
    return f"{reason.lower().replace('_', ' ')} ({what})" if what else reason.lower().replace("_", " ")


def begin_with_tls(
    loop: asyncio.AbstractEventLoop, tls: ListenerTls, connection: Connection, sock: socket.socket
) -> None:
    """Serves an accepted socket by a connection."""
    with contextlib.suppress(OSError):  # the client is gone already
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    TlsServerTransport(loop, sock, tls, connection)
