"""Handles SaslHandshake and SaslAuthenticate; the session of the connection decides."""

from __future__ import annotations

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.security.sasl import AuthenticateAnswer
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def sasl_handshake(broker: Broker, call: Call) -> SaslHandshakeResponse | None:
    request: SaslHandshakeRequest = call.request
    session = getattr(call.connection, "sasl", None)
    if session is None:  # a listener without SASL
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    answer = session.handshake(request.mechanism, call.version, broker.now_ms())
    response = SaslHandshakeResponse(answer.error, list(answer.mechanisms))
    if not answer.closes:
        return response
    reason = f"SASL mechanism {request.mechanism[:40]!r} is not enabled"
    call.connection.refuse(call, response, reason)  # type: ignore[attr-defined]
    return None


def sasl_authenticate(broker: Broker, call: Call) -> SaslAuthenticateResponse | None:
    request: SaslAuthenticateRequest = call.request
    connection = call.connection
    if getattr(connection, "sasl", None) is None:
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received on a listener without SASL"
        )

    def then(answer: AuthenticateAnswer) -> None:
        response = SaslAuthenticateResponse(
            answer.error, answer.message, answer.told, session_lifetime_ms=answer.session_lifetime_ms
        )
        if answer.closes:
            reason = answer.reason or answer.message or answer.error.name
            connection.refuse(call, response, reason)  # type: ignore[attr-defined]
        else:
            call.reply(response)

    call.park()
    connection.authenticate(bytes(request.auth_bytes), then)  # type: ignore[attr-defined]
    return None
