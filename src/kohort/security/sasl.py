"""The server's side of a SASL connection, as Kafka's SaslServerAuthenticator: which requests it takes, and when.

    first -> versions told -> handshake done -> authenticated
                                  (version 0: raw tokens)

A session tells for each request whether it is served, and takes the handshake and the tokens. It knows nothing of
sockets; who owns it delays and closes as its answers say. Re-authentication (KIP-368) is a second handshake in a
session that has a lifetime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kohort.security.mechanism import (
    Challenge,
    LoginAccepted,
    LoginRefused,
    Outcome,
    ServerExchange,
    SlowStep,
)
from kohort.wire.errors import ErrorCode

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
_BETWEEN_RENEWALS_MS = 1_000
"""Kafka begins one re-authentication a second at most."""


class Gate(Enum):
    """What happens to a request."""

    SERVED = auto()
    CLOSED = auto()
    """The connection is closed at once, without an answer."""
    FAILED = auto()
    """The connection is closed without an answer, after the pause that follows a failed authentication."""
    ILLEGAL = auto()
    """It is answered by ILLEGAL_SASL_STATE after that pause, and the connection is closed."""


class _State(Enum):
    FIRST = auto()
    VERSIONS_TOLD = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    CHECKING = auto()
    AUTHENTICATED = auto()
    OTHER_MECHANISM = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class SaslOffer:
    """The mechanisms of a listener, each with a function that begins a login."""

    mechanisms: Mapping[str, Callable[[], ServerExchange]]
    max_reauth_ms: Mapping[str, int]
    """How long a session lasts, by mechanism; 0: for ever."""
    max_receive_bytes: int | None = None
    """The most bytes of a request before authentication; None: the limits of SaslSession."""


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    """The answer to SaslHandshake."""

    error: ErrorCode
    mechanisms: tuple[str, ...]
    closes: bool = False


@dataclass(frozen=True, slots=True)
class AuthenticateAnswer:
    """The answer to SaslAuthenticate, or to a raw token."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    told: bytes = b""
    session_lifetime_ms: int = 0
    closes: bool = False
    reason: str | None = None
    """Why it was refused, for the log."""


class SaslSession:
    """How far one connection has come. `principal` is None until it is authenticated."""

    MAX_RECEIVE_BYTES = 16 * 1024
    """The most bytes of a request before authentication."""
    MAX_TOKEN_BYTES = 64 * 1024 - 4
    """The same once OAUTHBEARER was chosen: tokens may be long. With its length it fills a buffer of 64 KB."""

    def __init__(self, offer: SaslOffer) -> None:
        self._offer = offer
        self._state = _State.FIRST
        self._mechanism: str | None = None
        self._exchange: ServerExchange | None = None
        self._expires_ms: int | None = None
        self._renewal_began_ms: int | None = None
        self._is_raw = False
        self.principal: str | None = None

    @property
    def is_authenticated(self) -> bool:
        return self._state is _State.AUTHENTICATED

    @property
    def is_open_for_ever(self) -> bool:
        """Whether `gate` lets everything through from now on: who it is is known, and the session does not expire."""
        return self._state is _State.AUTHENTICATED and self._expires_ms is None

    @property
    def takes_raw_tokens(self) -> bool:
        """Whether the next frame is a token without a header: after a handshake of version 0."""
        return self._state is _State.RAW_TOKENS

    @property
    def max_receive_bytes(self) -> int:
        """The most bytes that a request may have before authentication."""
        if self._offer.max_receive_bytes is not None:
            return self._offer.max_receive_bytes
        is_long = self._mechanism == "OAUTHBEARER"
        return self.MAX_TOKEN_BYTES if is_long else self.MAX_RECEIVE_BYTES

    def gate(self, api_key: int, now_ms: int) -> Gate:
        """Tells whether a request is served now."""
        match self._state:
            case _State.AUTHENTICATED:
                is_over = self._expires_ms is not None and now_ms >= self._expires_ms
                is_renewal = api_key == SASL_HANDSHAKE and self._may_renew(now_ms)
                return Gate.CLOSED if is_over and not is_renewal else Gate.SERVED
            case _State.FIRST:
                return Gate.SERVED if api_key in (API_VERSIONS, SASL_HANDSHAKE) else Gate.CLOSED
            case _State.VERSIONS_TOLD:
                return Gate.SERVED if api_key == SASL_HANDSHAKE else Gate.CLOSED
            case _State.TOKENS:
                if api_key == SASL_AUTHENTICATE:
                    return Gate.SERVED
                self._state = _State.FAILED
                return Gate.ILLEGAL
            case _State.OTHER_MECHANISM:
                self._state = _State.FAILED
                return Gate.FAILED
        return Gate.CLOSED

    def versions_told(self) -> None:
        """Says that ApiVersions was answered without an error."""
        if self._state is _State.FIRST:
            self._state = _State.VERSIONS_TOLD

    def handshake(self, mechanism: str, version: int, now_ms: int) -> HandshakeAnswer:
        """Takes a SaslHandshake that `gate` let through."""
        offered = tuple(self._offer.mechanisms)
        if self._state is _State.AUTHENTICATED:
            if not self._may_renew(now_ms):
                return HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, ())
            self._renewal_began_ms = now_ms
        begin = self._offer.mechanisms.get(mechanism)
        if begin is None:
            self._state = _State.FAILED
            return HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered, closes=True)
        if self._mechanism not in (None, mechanism):
            self._state = _State.OTHER_MECHANISM  # the next frame closes
            return HandshakeAnswer(ErrorCode.NONE, offered)
        self._mechanism, self._exchange, self._is_raw = mechanism, begin(), version == 0
        self._state = self._tokens_state
        return HandshakeAnswer(ErrorCode.NONE, offered)

    @property
    def _tokens_state(self) -> _State:
        return _State.RAW_TOKENS if self._is_raw else _State.TOKENS

    def _may_renew(self, now_ms: int) -> bool:
        began_ms = self._renewal_began_ms
        is_due = began_ms is None or now_ms - began_ms >= _BETWEEN_RENEWALS_MS
        return self._expires_ms is not None and is_due

    def authenticate(self, token: bytes, now_ms: int) -> AuthenticateAnswer | SlowStep:
        """Takes a token. After a SlowStep, `conclude` takes its outcome; nothing is served until then."""
        if self._state not in (_State.TOKENS, _State.RAW_TOKENS):
            return AuthenticateAnswer(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication"
                if self.is_authenticated
                else "SaslAuthenticate request received before a SaslHandshake",
                closes=not self.is_authenticated,
            )
        assert self._exchange is not None
        outcome = self._exchange.step(token, now_ms)
        if isinstance(outcome, SlowStep):
            self._state = _State.CHECKING
            return outcome
        return self.conclude(outcome, now_ms)

    def conclude(self, outcome: Outcome, now_ms: int) -> AuthenticateAnswer:
        """Takes the outcome of a step of the exchange."""
        if isinstance(outcome, Challenge):
            self._state = self._tokens_state
            return AuthenticateAnswer(told=outcome.told)
        if isinstance(outcome, LoginAccepted) and self.principal not in (None, outcome.principal):
            was, wanted = (name.replace(":", ".", 1) for name in (self.principal or "", outcome.principal))
            outcome = LoginRefused(
                f"Cannot change principals during re-authentication from {was}: {wanted}",
                reason="it wanted to become another principal during re-authentication",
            )
        if isinstance(outcome, LoginRefused):
            return self._refused(outcome)
        return self._accepted(outcome, now_ms)

    def _refused(self, outcome: LoginRefused) -> AuthenticateAnswer:
        self._state, self._exchange = _State.FAILED, None
        when = "authentication" if self.principal is None else "re-authentication"
        told = f"Authentication failed during {when} due to invalid credentials with SASL mechanism {self._mechanism}"
        message = outcome.message or told
        return AuthenticateAnswer(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            message,
            closes=True,
            reason=f"{self._mechanism}: {outcome.reason or message}",
        )

    def _accepted(self, outcome: LoginAccepted, now_ms: int) -> AuthenticateAnswer:
        assert self._mechanism is not None
        self.principal, self._exchange = outcome.principal, None
        self._state = _State.AUTHENTICATED
        limits = [outcome.expires_ms - now_ms] if outcome.expires_ms is not None else []
        if (most := self._offer.max_reauth_ms.get(self._mechanism, 0)) > 0:
            limits.append(most)
        lifetime_ms = max(min(limits), 0) if limits else 0
        self._expires_ms = now_ms + lifetime_ms if limits else None
        return AuthenticateAnswer(told=outcome.told, session_lifetime_ms=lifetime_ms)
