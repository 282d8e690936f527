"""Serves one client of a listener with SASL: only what the session's state allows, until it is authenticated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from kohort.broker.api_row import TOO_MANY_BYTES
from kohort.broker.call import Call
from kohort.broker.error_answers import mirrored
from kohort.broker.listeners import Address
from kohort.broker.net.connection import Connection, WrongFrameSize
from kohort.security.mechanism import Outcome, SlowStep
from kohort.security.sasl import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    AuthenticateAnswer,
    Gate,
    SaslOffer,
    SaslSession,
)
from kohort.wire.errors import BadFrame, ErrorCode
from kohort.wire.frame import body_of, read_request_header
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.net.server import Server

log = logging.getLogger("kohort.broker")

AUTHENTICATE_WITHIN_S = 10.0
"""How long a client has for TLS and SASL together; Kafka has only connections.max.idle.ms."""
_LINGER_S = 0.05
"""How long a refused client has to read its answer: some take no answer that comes together with the end."""
_LOOK_AGAIN_S = 0.02
_LOOKS = 50
"""How often a refused re-authentication looks whether requests that came before it are answered."""

Authenticated = Callable[[AuthenticateAnswer], None]

_buffer_of = Connection.get_buffer  # each read asks for it, and `super()` takes a look-up more


class SaslConnection(Connection):
    """The connection of one client that has to say who it is."""

    def __init__(self, server: Server, told: Address | None, offer: SaslOffer) -> None:
        super().__init__(server, told)
        self.is_authenticated = False
        self.sasl = SaslSession(offer)
        self._all_bytes = self._max_bytes
        self._is_refused = False
        self._set_limit()

    def connection_made(self, transport: object) -> None:
        self._too_late = self._server.loop.call_later(AUTHENTICATE_WITHIN_S, self._close_if_unknown)
        super().connection_made(transport)
        if not self._closing:
            self._server.admission.is_unknown(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._too_late.cancel()
        super().connection_lost(exc)
        for way in ("_handle", "_is_blocked"):
            self.__dict__.pop(way, None)  # they refer to it: without them it is gone at once

    def secured(self, principal: str) -> None:
        """Takes no notice of a certificate: who the client is says SASL alone."""

    def _close_if_unknown(self) -> None:
        if self.sasl.principal is None and not self._closing:
            self.close_because(f"not authenticated within {AUTHENTICATE_WITHIN_S:.0f} s")

    # --- reading: little, before authentication ---------------------------------------------------

    def _set_limit(self) -> None:
        is_known = self.sasl.principal is not None
        self._max_bytes = self._all_bytes if is_known else min(self._all_bytes, self.sasl.max_receive_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._own is None and not self.is_authenticated:
            return self._server.scratch[: self._max_bytes + 4]
        return _buffer_of(self, sizehint)

    def _keep(self, data: memoryview) -> None:
        if not self._is_refused:  # what a refused client says besides is not read
            super()._keep(data)

    def _refuse_frame(self, error: BadFrame) -> None:
        if isinstance(error, WrongFrameSize) and self.sasl.principal is None:
            reason = f"{error}, before authentication"
            self._close_later(reason)
        else:
            super()._refuse_frame(error)

    def _handle(self, frame: memoryview) -> None:
        if self.sasl.is_open_for_ever:
            self._take_the_plain_ways()
        if self.sasl.takes_raw_tokens:
            self._take_raw_token(frame)
            return
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        match self.sasl.gate(api_key, self._broker.now_ms()):
            case Gate.CLOSED:
                is_known = self.sasl.principal is not None
                raise BadFrame(
                    "its session has expired, and it did not authenticate again"
                    if is_known
                    else f"API key {api_key} is not taken before authentication"
                )
            case Gate.FAILED:
                self._close_later("it began to authenticate again by another mechanism")
            case Gate.ILLEGAL:
                self._answer_illegal(frame)
            case Gate.SERVED:
                super()._handle(frame)
                if api_key == API_VERSIONS and self._last_answer_has_no_error():
                    self.sasl.versions_told()
                self._set_limit()

    def _take_the_plain_ways(self) -> None:
        """Serves from the next frame on as a connection without SASL does: a look at the session costs too much.

        A session that does not expire lets everything through, and never refuses its client again.
        """
        self._handle = MethodType(Connection._handle, self)  # type: ignore[method-assign]
        self._is_blocked = MethodType(Connection._is_blocked, self)  # type: ignore[method-assign]

    def _last_answer_has_no_error(self) -> bool:
        """Looks at the error code of an answer to ApiVersions, which is the first field behind the header."""
        chunks = self._calls[-1].chunks
        return chunks is not None and b"".join(chunks)[8:10] == b"\0\0"

    # --- what its handlers call -------------------------------------------------------------------

    def authenticate(self, token: bytes, then: Authenticated) -> None:
        """Takes a token, and calls `then` with the answer: at once, or when a thread has found it."""
        answer = self.sasl.authenticate(token, self._broker.now_ms())
        if not isinstance(answer, SlowStep):
            self._authenticated(answer, then)
            return

        def done(outcome: Outcome) -> None:
            if not self._closing:
                self._authenticated(self.sasl.conclude(outcome, self._broker.now_ms()), then)

        guard = self._broker.guard
        assert guard is not None, "a listener with SASL has a guard"
        guard.workers.run(answer, self.address, done, self.loop, self._broker.now_ms)

    def _authenticated(self, answer: AuthenticateAnswer, then: Authenticated) -> None:
        if self.sasl.is_authenticated and answer.error is ErrorCode.NONE:
            assert self.sasl.principal is not None
            self.principal = self.sasl.principal
            self.is_authenticated = True
            self._too_late.cancel()
            self._server.admission.is_known(self)
            self._set_limit()
        then(answer)

    def refuse(self, call: Call, answer: Message, reason: str) -> None:
        """Sends an answer after a pause, so that nobody can try many passwords, and closes."""
        call.park()
        self._parked = call

        def send() -> None:
            call.reply(answer)

        self._close_later(reason, send)

    def _close_later(self, reason: str, send: Callable[[], None] | None = None) -> None:
        """Reads nothing more, and closes after a pause. It grows with the failures of the address."""
        self._is_refused = True
        self._pause()
        first_ms = self._broker.config.connection_failed_authentication_delay_ms
        now_ms = self._broker.clock.steady_ms()
        pause_ms = self._server.admission.refusals.pause_ms(self.address, first_ms, now_ms)

        def end() -> None:
            if not self._closing:
                if send is not None:
                    send()
                self._end(reason, _LOOKS)

        self.loop.call_later(pause_ms / 1000, end)

    def _end(self, reason: str, looks: int) -> None:
        """Closes when what was asked before is answered, or took too long."""
        if self._closing:
            return
        self._flush()
        if looks and not self.is_idle:
            self.loop.call_later(_LOOK_AGAIN_S, self._end, reason, looks - 1)
        else:
            self.complain(reason)
            self.loop.call_later(_LINGER_S, self._close_after_answers)

    def _is_blocked(self) -> bool:
        return self._is_refused or super()._is_blocked()

    # --- tokens without headers, and what is out of place -----------------------------------------

    def _take_raw_token(self, frame: memoryview) -> None:
        """Answers a raw token by a raw one, as clients expect that know the handshake of version 0 alone."""
        call = Call(self, self._rows[SASL_AUTHENTICATE].codec(0), 0, None, None)
        self._calls.append(call)
        call.park()
        self._parked = call

        def answer(answer: AuthenticateAnswer) -> None:
            if answer.error is not ErrorCode.NONE:
                self._close_later(answer.reason or answer.error.name, call.reply_nothing)
                return
            call.chunks = [len(answer.told).to_bytes(4, "big") + answer.told]
            self.answered(call)

        self.authenticate(bytes(frame), answer)

    def _answer_illegal(self, frame: memoryview) -> None:
        """Answers ILLEGAL_SASL_STATE in the form of the API that was called, and closes."""
        api_key, version, correlation_id, client_id, body = read_request_header(frame)
        row = self._rows.get(api_key)
        if row is None:
            raise BadFrame(f"API key {api_key} between SaslHandshake and SaslAuthenticate")
        is_served = row.first <= version <= row.last
        if not is_served and api_key != API_VERSIONS:
            raise BadFrame(f"{row.name} version {version} between SaslHandshake and SaslAuthenticate")
        codec = row.codec(version if is_served else 0)  # a newer ApiVersions is answered in version 0
        request: Any = None
        if is_served:
            if codec.flexible:
                body = body_of(frame, body)
            request = codec.decode_request(frame, body, TOO_MANY_BYTES)
        call = Call(self, codec, correlation_id, client_id, request)
        self._calls.append(call)
        answer = mirrored(api_key, codec.version, request, ErrorCode.ILLEGAL_SASL_STATE)
        self.refuse(call, answer, f"{row.name} came between SaslHandshake and SaslAuthenticate")
