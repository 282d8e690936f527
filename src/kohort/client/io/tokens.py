"""Where the tokens of OAUTHBEARER come from, and for how long they are used.

A TokenSource is a function that returns a BearerToken and may take its time: it is called on a thread of its own, never
by the thread that serves connections. `TokenStore` keeps the token for all connections of a client until most of its
life is over.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.client.config import ClientConfig
from kohort.client.core.arguments import shown
from kohort.client.core.effects import Failure, FailureKind
from kohort.client.core.security_settings import extensions_of, jaas_of, wrong_extension
from kohort.client.io.reactor import Reactor
from kohort.settings import SettingError

_log = logging.getLogger("kohort.client.network")

RETRY_MS = 10_000
"""If a new token cannot be had while the old one is still good, it is asked for again after this."""
Prepared = Callable[[Failure | None], None]


@dataclass(frozen=True, slots=True, repr=False)
class BearerToken:
    """A token, when it expires (ms since 1970; None: nobody knows) and what the broker is told besides."""

    value: str
    expires_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"BearerToken(expires_ms={self.expires_ms}, extensions={sorted(self.extensions)})"


TokenSource = Callable[[], BearerToken]


class TokenStore:
    """The token of a client. All methods are called by the thread that drives its connections."""

    def __init__(self, source: TokenSource, share: float) -> None:
        self._source, self._share = source, share
        self._token: BearerToken | None = None
        self._renew_ms = 0
        self._waiting: list[Prepared] = []

    @property
    def token(self) -> BearerToken:
        """The token that `prepare` brought."""
        assert self._token is not None, "prepare comes first"
        return self._token

    def prepare(self, reactor: Reactor, then: Prepared) -> None:
        """Calls `then` when there is a token that may be shown, or with the reason why there is none."""
        if self._token is not None and reactor.now_ms() < self._renew_ms:
            then(None)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            reactor.call_apart(
                "kohort-token", self._source, lambda *came: self._came(reactor.now_ms(), *came)
            )

    def _came(self, now_ms: int, token: BearerToken | None, error: BaseException | None) -> None:
        failure = None
        if token is not None and token.expires_ms is not None and token.expires_ms <= now_ms:
            error = TokenRefused(f"the token expired {now_ms - token.expires_ms} ms ago: is the clock right?")
        if error is None and token is not None:
            self._token = token
            # A token whose end nobody knows is asked for again for each login.
            life_ms = 0 if token.expires_ms is None else token.expires_ms - now_ms
            self._renew_ms = now_ms + int(life_ms * self._share)
        elif self._is_good(now_ms):
            _log.warning("no new token for OAUTHBEARER; the old one is used for now: %s", _words(error))
            self._renew_ms = now_ms + RETRY_MS
        else:
            failure = Failure(FailureKind.AUTHENTICATION, f"no token for OAUTHBEARER: {_words(error)}")
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(failure)

    def _is_good(self, now_ms: int) -> bool:
        expires_ms = None if self._token is None else self._token.expires_ms
        return expires_ms is not None and now_ms < expires_ms


def _words(error: BaseException | None) -> str:
    return str(error) if isinstance(error, TokenRefused) else f"the token callable raised {shown(error)}"


class TokenRefused(Exception):
    """A token cannot be had from a token endpoint or a file; the text says why, and names no secret."""


# --- sources ----------------------------------------------------------------------------------------------------------


def token_source(config: ClientConfig, objects: Mapping[str, Any]) -> TokenSource:
    """Returns where tokens come from: what the settings and objects name; SettingError if they name nothing."""
    extensions = extensions_of(config)
    given, callback = objects.get("sasl.oauthbearer.token"), objects.get("oauth_cb")
    if given is not None:
        return lambda: _token_of(
            given() if callable(given) else given, extensions, is_fixed=not callable(given)
        )
    if callback is not None:
        return lambda: _token_of(callback(config.sasl_oauthbearer_config), extensions)
    if config.sasl_oauthbearer_token_endpoint_url:
        from kohort.client.io.token_endpoint import endpoint_source  # urllib is for those who need it

        return endpoint_source(config, extensions)
    unsecured = _unsecured(config)
    if unsecured is not None:
        return unsecured
    raise SettingError(
        "sasl.mechanism=OAUTHBEARER needs to know where tokens come from: set sasl.oauthbearer.token to a function "
        "that returns one, or set sasl.oauthbearer.token.endpoint.url with "
        "sasl.oauthbearer.client.credentials.client.id and …client.secret"
    )


def _token_of(given: object, extensions: Mapping[str, str], *, is_fixed: bool = False) -> BearerToken:
    """Reads what a function returned: a token, or confluent-kafka's (token, expiry[, principal[, extensions]])."""
    parts = given if isinstance(given, tuple) else (given,)
    token, expiry, _, more = (*parts, *(None,) * 4)[:4]
    if not isinstance(token, str) or not token:
        raise TypeError(f"a token is a str, not {type(token).__name__}")
    if not is_bearer(token):
        raise ValueError("a token has no blanks and no control characters")
    if expiry is not None and (isinstance(expiry, bool) or not isinstance(expiry, int | float)):
        raise TypeError(f"the expiry of a token is in seconds since 1970, not {type(expiry).__name__}")
    told = {**extensions, **_checked_extensions(more)}
    if expiry is not None:
        return BearerToken(token, int(expiry * 1000), told)
    # A fixed token has no successor: the broker says when it is no good any more.
    return BearerToken(token, None if is_fixed else expiry_of(token), told)


def _checked_extensions(given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(
        isinstance(part, str) for pair in given.items() for part in pair
    ):
        raise TypeError("the extensions of a token are a dict of str")
    extensions = dict(given)
    wrong = wrong_extension(extensions)
    if wrong is not None:
        raise ValueError(wrong)
    return extensions


def is_bearer(token: str) -> bool:
    """Whether a token is made of what RFC 6750 allows, or nearly so: nothing that would end the message."""
    return token.isascii() and token.isprintable() and " " not in token


def expiry_of(token: str) -> int | None:
    """Returns when a JWT expires, in ms since 1970; None if it does not say, or is none. Nothing is verified."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(expiry, bool) or not isinstance(expiry, int | float):
        return None
    return int(expiry * 1000)


# --- tokens that nobody signed, for tests -----------------------------------------------------------------------------

_LOGIN = "unsecuredLogin"


def _unsecured(config: ClientConfig) -> TokenSource | None:
    """Returns what makes unsecured tokens, if JAAS or librdkafka's settings ask for them, else None."""
    if config.enable_sasl_oauthbearer_unsecure_jwt:
        return _unsecured_by_config(config)
    entry = jaas_of(config)
    options = {} if entry is None else entry.options
    if not any(name.startswith(_LOGIN) for name in options):
        return None
    claims: dict[str, Any] = {}
    extensions = dict(extensions_of(config))
    for name, value in options.items():
        kind, _, claim = name.removeprefix(_LOGIN).partition("_")
        if kind == "StringClaim":
            claims[claim] = value
        elif kind == "NumberClaim":
            claims[claim] = _number(value, name)
        elif kind == "ListClaim":
            claims[claim] = value[1:].split(value[0]) if value else []  # its first character divides it
        elif kind == "Extension":
            extensions[claim] = value
    life_s = _number(options.get(f"{_LOGIN}LifetimeSeconds", "3600"), f"{_LOGIN}LifetimeSeconds")
    principal = options.get(f"{_LOGIN}PrincipalClaimName", "sub")
    if not claims.get(principal):
        raise SettingError(
            f'sasl.jaas.config: an unsecured token needs {_LOGIN}StringClaim_{principal}="NAME"'
        )
    return lambda: unsecured_token(claims, life_s, extensions)


def _unsecured_by_config(config: ClientConfig) -> TokenSource:
    what = "sasl.oauthbearer.config"
    given = dict(re.findall(r"(\w+)=(\S*)", config.sasl_oauthbearer_config))
    known = {"principalClaimName", "principal", "scopeClaimName", "scope", "lifeSeconds"}
    unknown = sorted(name for name in given if name not in known and not name.startswith("extension_"))
    if unknown:
        raise SettingError(f"{what}: {unknown[0]} is not one of {', '.join(sorted(known))}, extension_NAME")
    if not given.get("principal"):
        raise SettingError(f"{what} needs principal=NAME, for enable.sasl.oauthbearer.unsecure.jwt=true")
    claims: dict[str, Any] = {given.get("principalClaimName", "sub"): given["principal"]}
    if given.get("scope"):
        claims[given.get("scopeClaimName", "scope")] = given["scope"].split(",")
    named = {name.removeprefix("extension_"): v for name, v in given.items() if name.startswith("extension_")}
    extensions = {**extensions_of(config), **named}
    life_s = _number(given.get("lifeSeconds", "3600"), f"{what}: lifeSeconds")
    return lambda: unsecured_token(claims, life_s, extensions)


def _number(text: str, what: str) -> float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise SettingError(f"{what}: {text!r} is no number") from None


def unsecured_token(claims: Mapping[str, Any], life_s: float, extensions: Mapping[str, str]) -> BearerToken:
    """Makes a token that nobody signed (alg none), which is good for tests alone."""
    now_s = time.time()
    payload = {**claims, "iat": now_s, "exp": now_s + life_s}
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, payload))
    text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
    return BearerToken(text, int(payload["exp"] * 1000), extensions)
