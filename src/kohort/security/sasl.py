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

from kohort.security.mechanism import Challenge, LoginAccepted, LoginRefused, ServerExchange
from kohort.wire.errors import ErrorCode

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
_REAUTHENTICATE_AFTER_MS = 1_000
"""A session that has just begun is not renewed: Kafka takes one re-authentication a second."""


class Gate(Enum):
    """What happens to a request."""

    SERVED = auto()
    CLOSED = auto()
    """The connection is closed without an answer."""
    ILLEGAL = auto()
    """It is answered by ILLEGAL_SASL_STATE, and the connection is closed."""


class _State(Enum):
    FIRST = auto()
    VERSIONS_TOLD = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class SaslOffer:
    """The mechanisms of a listener, each with a function that begins a login."""

    mechanisms: Mapping[str, Callable[[], ServerExchange]]
    max_reauth_ms: Mapping[str, int]
    """How long a session lasts, by mechanism; 0: for ever."""


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


class SaslSession:
    """How far one connection has come. `principal` is None until it is authenticated."""

    def __init__(self, offer: SaslOffer) -> None:
        self._offer = offer
        self._state = _State.FIRST
        self._mechanism: str | None = None
        self._exchange: ServerExchange | None = None
        self._expires_ms: int | None = None
        self._began_ms = 0
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

    def gate(self, api_key: int, now_ms: int) -> Gate:
        """Tells whether a request is served now."""
        match self._state:
            case _State.AUTHENTICATED:
                expired = self._expires_ms is not None and now_ms >= self._expires_ms
                return Gate.CLOSED if expired and api_key != SASL_HANDSHAKE else Gate.SERVED
            case _State.FIRST:
                return Gate.SERVED if api_key in (API_VERSIONS, SASL_HANDSHAKE) else Gate.CLOSED
            case _State.VERSIONS_TOLD:
                return Gate.SERVED if api_key == SASL_HANDSHAKE else Gate.CLOSED
            case _State.TOKENS:
                return Gate.SERVED if api_key == SASL_AUTHENTICATE else Gate.ILLEGAL
        return Gate.CLOSED

    def versions_told(self) -> None:
        """Says that ApiVersions was answered without an error."""
        if self._state is _State.FIRST:
            self._state = _State.VERSIONS_TOLD

    def handshake(self, mechanism: str, version: int, now_ms: int) -> HandshakeAnswer:
        """Takes a SaslHandshake that `gate` let through."""
        offered = tuple(self._offer.mechanisms)
        if self._state is _State.AUTHENTICATED:
            may_renew = self._expires_ms is not None and now_ms - self._began_ms >= _REAUTHENTICATE_AFTER_MS
            if not may_renew:
                return HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, ())
        begin = self._offer.mechanisms.get(mechanism)
        if begin is None:
            self._state = _State.FAILED
            return HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered, closes=True)
        if self._mechanism not in (None, mechanism):
            self._exchange = None  # another mechanism: the next frame closes
        else:
            self._mechanism, self._exchange = mechanism, begin()
        self._state = _State.TOKENS if version else _State.RAW_TOKENS
        return HandshakeAnswer(ErrorCode.NONE, offered)

    def authenticate(self, token: bytes, now_ms: int) -> AuthenticateAnswer:
        """Takes a token."""
        if self._state not in (_State.TOKENS, _State.RAW_TOKENS):
            return AuthenticateAnswer(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication"
                if self.is_authenticated
                else "SaslAuthenticate request received before a SaslHandshake",
                closes=not self.is_authenticated,
            )
        if self._exchange is None:
            self._state = _State.FAILED
            return AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, closes=True)
        outcome = self._exchange.step(token, now_ms)
        if isinstance(outcome, Challenge):
            return AuthenticateAnswer(told=outcome.told)
        if isinstance(outcome, LoginAccepted) and self.principal not in (None, outcome.principal):
            outcome = LoginRefused("Cannot change principals during re-authentication")
        if isinstance(outcome, LoginRefused):
            return self._refused(outcome)
        return self._accepted(outcome, now_ms)

    def _refused(self, outcome: LoginRefused) -> AuthenticateAnswer:
        self._state = _State.FAILED
        when = "authentication" if self.principal is None else "re-authentication"
        told = f"Authentication failed during {when} due to invalid credentials with SASL mechanism {self._mechanism}"
        error = ErrorCode.SASL_AUTHENTICATION_FAILED
        return AuthenticateAnswer(error, outcome.message or told, closes=True)

    def _accepted(self, outcome: LoginAccepted, now_ms: int) -> AuthenticateAnswer:
        assert self._mechanism is not None
        self.principal, self._exchange = outcome.principal, None
        self._state, self._began_ms = _State.AUTHENTICATED, now_ms
        limits = [outcome.expires_ms - now_ms] if outcome.expires_ms is not None else []
        if (most := self._offer.max_reauth_ms.get(self._mechanism, 0)) > 0:
            limits.append(most)
        lifetime_ms = max(min(limits), 0) if limits else 0
        self._expires_ms = now_ms + lifetime_ms if limits else None
        return AuthenticateAnswer(told=outcome.told, session_lifetime_ms=lifetime_ms)
