"""Serves one client of a listener with SASL: only what the session's state allows, until it is authenticated."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kohort.broker.call import Call
from kohort.broker.error_answers import mirrored
from kohort.broker.listeners import Address
from kohort.broker.net.connection import Connection
from kohort.security.sasl import API_VERSIONS, AuthenticateAnswer, Gate, SaslOffer, SaslSession
from kohort.wire.errors import BadFrame, ErrorCode
from kohort.wire.frame import body_of, read_request_header

if TYPE_CHECKING:
    from kohort.broker.net.server import Server

log = logging.getLogger("kohort.broker")

AUTHENTICATE_WITHIN_S = 10.0
"""How long a client has for TLS and SASL together; Kafka has only connections.max.idle.ms."""

_serve = Connection._handle  # each frame goes through it, and `super()` takes a look-up more


class SaslConnection(Connection):
    """The connection of one client that has to say who it is."""

    def __init__(self, server: Server, told: Address, offer: SaslOffer) -> None:
        super().__init__(server, told)
        self.is_authenticated = False
        self.sasl = SaslSession(offer)
        self._is_open = False
        self._all_bytes = self._max_bytes
        self._max_bytes = min(self._max_bytes, self._broker.config.sasl_server_max_receive_size)

    def connection_made(self, transport: object) -> None:
        super().connection_made(transport)
        self._too_late = self.loop.call_later(AUTHENTICATE_WITHIN_S, self._close_if_unknown)

    def connection_lost(self, exc: Exception | None) -> None:
        self._too_late.cancel()
        super().connection_lost(exc)

    def _close_if_unknown(self) -> None:
        if not self.sasl.is_authenticated and self.sasl.principal is None:
            self.close_because(f"not authenticated within {AUTHENTICATE_WITHIN_S:.0f} s")

    def _handle(self, frame: memoryview) -> None:
        if self._is_open:  # nearly always; a look at the session would cost a tenth of a heartbeat
            _serve(self, frame)
            return
        self._is_open = self.sasl.is_open_for_ever
        if self.sasl.takes_raw_tokens:
            self._take_raw_token(frame)
            return
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        gate = self.sasl.gate(api_key, self._broker.now_ms())
        if gate is Gate.CLOSED:
            raise BadFrame(
                f"API key {api_key} is not taken before authentication, or the session has expired"
            )
        if gate is Gate.ILLEGAL:
            self._answer_illegal(frame)
            return
        super()._handle(frame)
        if api_key == API_VERSIONS and self._last_answer_has_no_error():
            self.sasl.versions_told()

    def _last_answer_has_no_error(self) -> bool:
        """Looks at the error code of an answer to ApiVersions, which is the first field behind the header."""
        chunks = self._calls[-1].chunks
        return chunks is not None and b"".join(chunks)[8:10] == b"\0\0"

    # --- what its handlers call -------------------------------------------------------------------

    def authenticated(self) -> None:
        """Serves everything from now on."""
        assert self.sasl.principal is not None
        self.principal = self.sasl.principal
        self.is_authenticated = True
        self._max_bytes = self._all_bytes
        self._too_late.cancel()

    def refuse(self, call: Call, answer: object, reason: str) -> None:
        """Sends an answer after a pause, so that nobody can try many passwords, and closes."""

        def end() -> None:
            if not self._closing:
                call.reply(answer)  # type: ignore[arg-type]
                self.close_because(reason)

        call.park()
        self._parked = call
        self.loop.call_later(self._broker.config.connection_failed_authentication_delay_ms / 1000, end)

    # --- tokens without headers, and what is out of place -----------------------------------------

    def _take_raw_token(self, frame: memoryview) -> None:
        """Answers a raw token by a raw one, as clients expect that know the handshake of version 0 alone."""
        answer = self.sasl.authenticate(bytes(frame), self._broker.now_ms())
        call = Call(self, self._rows[API_VERSIONS].codec(0), 0, None, None)
        self._calls.append(call)
        if answer.error is not ErrorCode.NONE:
            call.chunks = []
            self._pause_and_close(answer)
            return
        call.chunks = [len(answer.told).to_bytes(4, "big") + answer.told]
        if self.sasl.is_authenticated:
            self.authenticated()

    def _pause_and_close(self, answer: AuthenticateAnswer) -> None:
        self._pause()
        delay_s = self._broker.config.connection_failed_authentication_delay_ms / 1000
        self.loop.call_later(delay_s, self.close_because, answer.message or answer.error.name)

    def _answer_illegal(self, frame: memoryview) -> None:
        """Answers ILLEGAL_SASL_STATE in the form of the API that was called, and closes."""
        api_key, version, correlation_id, client_id, body = read_request_header(frame)
        row = self._rows.get(api_key)
        if row is None or not row.first <= version <= row.last:
            raise BadFrame(f"API key {api_key} between SaslHandshake and SaslAuthenticate")
        codec = row.codec(version)
        if codec.flexible:
            body = body_of(frame, body)
        call = Call(self, codec, correlation_id, client_id, codec.decode_request(frame, body, row.slack))
        self._calls.append(call)
        call.answer(mirrored(api_key, version, call.request, ErrorCode.ILLEGAL_SASL_STATE))
        self.close_because(f"{row.name} came between SaslHandshake and SaslAuthenticate")
