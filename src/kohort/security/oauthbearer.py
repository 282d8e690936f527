"""SASL OAUTHBEARER (RFC 7628), the server's side: the exchange, and Kafka's validator for tokens without signatures.

A token that is not good is answered without an error, by a JSON text; the client's next message ends the exchange.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.security.mechanism import Challenge, LoginAccepted, LoginRefused, Outcome, SlowStep
from kohort.settings import SettingError

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"bearer +(?P<token>[-_.a-zA-Z0-9]+)", re.IGNORECASE)
_LAST = (b"\x01", rb"\x01")
"""What clients say after an error: ^A, and sarama the four characters of its escape."""
_MOST_SECONDS = 1e12


@dataclass(frozen=True, slots=True)
class TokenAccepted:
    """A token is good: whose it is, and until when."""

    name: str
    expires_ms: int


@dataclass(eq=False)
class BadToken(Exception):
    """A token is not good: why, for the log, and the scope that it should have had."""

    why: str
    scope: str | None = None

    def as_json(self) -> str:
        """Returns what the client is told, as Kafka writes it."""
        if self.scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":"{self.scope}"}}'


@dataclass(frozen=True, slots=True)
class TokenPending:
    """The keys for a token have to be fetched: `fetch` does it, on another thread, and `then` validates."""

    fetch: Callable[[], None]
    then: Callable[[int], TokenAccepted | BadToken]
    """Takes the time in milliseconds."""
    where: str


Validate = Callable[[str, int], TokenAccepted | BadToken | TokenPending]
"""Takes a token and the time in milliseconds."""


class OAuthBearerExchange:
    """One login: the token, and after a bad one a message that ends it."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._error: BadToken | None = None

    def step(self, said: bytes, now_ms: int) -> Outcome | SlowStep:
        """Takes what the client said."""
        if self._error is not None:
            told = self._error.as_json() if said in _LAST else None
            return LoginRefused(told, reason=self._error.why)
        try:
            name, token = _parse(said)
        except ValueError as error:
            return LoginRefused(reason=str(error))
        found = self._validate(token, now_ms)
        if isinstance(found, TokenPending):
            pending = found

            def then(_: None, later_ms: int) -> Outcome:
                return self._outcome(pending.then(later_ms), name)

            # Another listener may have keys of its own from the same place.
            key = f"{id(self._validate)} {pending.where}".encode()
            return SlowStep(pending.fetch, then, key, waits_for_network=True)
        return self._outcome(found, name)

    def _outcome(self, found: TokenAccepted | BadToken, name: str | None) -> Outcome:
        if isinstance(found, BadToken):
            self._error = found
            return Challenge(found.as_json().encode())
        if name not in (None, found.name):
            return LoginRefused(
                f"Authentication failed: Client requested an authorization id ({name}) that is different from the "
                f"token's principal name ({found.name})",
                reason="the authorization id is not the principal of the token",
            )
        return LoginAccepted(f"User:{found.name}", expires_ms=found.expires_ms)


def _parse(said: bytes) -> tuple[str | None, str]:
    """Returns the authorization id and the token of a client's first message; ValueError if it is not one."""
    try:
        found = _FIRST.fullmatch(said.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise ValueError("malformed OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise ValueError("OAUTHBEARER message without a bearer token")
    return found["authzid"], auth["token"]


# --- claims ------------------------------------------------------------------------------------------------------


def seconds_of(claims: Mapping[str, Any], name: str, *, needed: bool) -> float | None:
    """Returns a claim that is a time; BadToken if it is not one, or is needed and missing."""
    value = claims.get(name)
    if value is None:
        if needed:
            raise BadToken(f"the token has no {name}")
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadToken(f"{name} of the token is not a number")
    if not math.isfinite(value) or not 0 <= value <= _MOST_SECONDS:
        raise BadToken(f"{name} of the token is no time")
    return float(value)


def scopes_of(claims: Mapping[str, Any], name: str) -> list[str]:
    """Returns the scopes of a token: a text is one scope, as in Kafka, a list is several."""
    value = claims.get(name)
    items = value if isinstance(value, list) else [] if value is None else [value]
    return [item.strip() for item in items if isinstance(item, str)]


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Validates tokens without signatures: anybody can write one, so they are for tests only."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @staticmethod
    def of(options: Mapping[str, str], what: str) -> UnsecuredTokens:
        """Reads the options `unsecuredValidator…` of a JAAS entry; SettingError says what is wrong."""

        def option(name: str) -> str:
            return options.get(f"unsecuredValidator{name}", "").strip()

        skew = option("AllowableClockSkewMs") or "0"
        if not skew.isascii() or not skew.isdecimal():
            raise SettingError(
                f"{what}: unsecuredValidatorAllowableClockSkewMs must be a number of milliseconds, 0 or more"
            )
        return UnsecuredTokens(
            option("PrincipalClaimName") or "sub",
            option("ScopeClaimName") or "scope",
            tuple(option("RequiredScope").split()),
            int(skew),
        )

    def __call__(self, token: str, now_ms: int) -> TokenAccepted | BadToken:
        try:
            return self._validate(token, now_ms)
        except BadToken as refused:
            return refused

    def _validate(self, token: str, now_ms: int) -> TokenAccepted:
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise BadToken("the token is no unsecured JWS, which has three parts of which the last is empty")
        header, claims = (_json_of(part) for part in parts[:2])
        if header.get("alg") != "none":
            raise BadToken("the token has an alg other than none")
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise BadToken(f"the token has no {self.principal_claim}")
        expires_s = seconds_of(claims, "exp", needed=True)
        issued_s = seconds_of(claims, "iat", needed=False)
        assert expires_s is not None
        if issued_s is not None and 1000 * issued_s > now_ms + self.clock_skew_ms:
            raise BadToken("the token was issued in the future")
        if now_ms - self.clock_skew_ms >= 1000 * expires_s:
            raise BadToken("the token has expired")
        if issued_s is not None and expires_s <= issued_s:
            raise BadToken("the token expires before it was issued")
        scopes = scopes_of(claims, self.scope_claim)
        if any(scope not in scopes for scope in self.required_scope):
            raise BadToken("the token lacks a required scope", f"[{', '.join(self.required_scope)}]")
        return TokenAccepted(name, round(1000 * expires_s))


def _json_of(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadToken("the token is not JSON in base64")
    return found
