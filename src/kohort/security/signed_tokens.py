"""Validates signed tokens of OAUTHBEARER with PyJWT, as Kafka's OAuthBearerValidatorCallbackHandler does.

PyJWT checks signature, issuer and audience; times are checked here, because the time is an argument. This module needs
the extra `oauth`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jwt

from kohort.security.oauthbearer import BadToken, TokenAccepted, TokenPending, scopes_of, seconds_of

_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512", "ES256K"),
    "OKP": ("EdDSA",),
}
"""By type of key. Keys of a secret (oct) are not taken: whoever may read a JWKS could sign with them."""
_UNCHECKED = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "require": ["exp", "iat"]}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One public key of a JWKS."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any


def parse_jwks(text: str | bytes) -> tuple[VerificationKey, ...]:
    """Returns the keys of a JWKS for signatures; ValueError says what is wrong."""
    try:
        whole = jwt.PyJWKSet.from_json(text.decode() if isinstance(text, bytes) else text)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a JWKS ({type(error).__name__})") from None
    found = []
    for each in whole.keys:
        algorithms = _ALGORITHMS.get(each.key_type or "", ())
        said = each._jwk_data.get("alg")
        if said is not None:
            algorithms = tuple(name for name in algorithms if name == said)
        if algorithms and each.public_key_use in (None, "sig"):
            found.append(VerificationKey(each.key_id, algorithms, each.key))
    if not found:
        raise ValueError("it has no public key for signatures")
    return tuple(found)


class KeySource(Protocol):
    """Where the keys come from."""

    where: str
    """Its URL."""

    def current(self) -> Sequence[VerificationKey]:
        """Returns the keys of now."""

    def fetch_if_due(self, now_ms: int, *, is_missing: bool) -> Callable[[], None] | None:
        """Returns what fetches them anew, on another thread; None if it is not time yet. `is_missing`: one lacks."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What a token must say."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    """One of them must be in the token. None: a token that names an audience is refused."""
    clock_skew_ms: int = 30_000
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class SignedTokens:
    """Validates tokens by the keys of a source."""

    def __init__(self, rules: ClaimRules, source: KeySource) -> None:
        self._rules, self._source = rules, source

    def __call__(self, token: str, now_ms: int) -> TokenAccepted | BadToken | TokenPending:
        try:
            key_id, algorithm = _head_of(token)
        except BadToken as refused:
            return refused
        fitting = self._fitting(key_id, algorithm)
        fetch = self._source.fetch_if_due(now_ms, is_missing=not fitting)
        if fetch is None:
            return self._check(token, fitting, now_ms)

        def then(later_ms: int) -> TokenAccepted | BadToken:
            return self._check(token, self._fitting(key_id, algorithm), later_ms)

        return TokenPending(fetch, then, self._source.where)

    def _fitting(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        return [
            each
            for each in self._source.current()
            if algorithm in each.algorithms and (key_id is None or each.key_id == key_id)
        ]

    def _check(self, token: str, keys: Sequence[VerificationKey], now_ms: int) -> TokenAccepted | BadToken:
        try:
            return self._accepted(self._claims(token, keys), now_ms)
        except BadToken as refused:
            return refused

    def _claims(self, token: str, keys: Sequence[VerificationKey]) -> Mapping[str, Any]:
        """Returns the claims of a token whose signature, issuer and audience are right."""
        why = "there is no key for the token's kid and alg"
        for each in keys:
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    key=each.key,
                    algorithms=list(each.algorithms),
                    audience=list(self._rules.audiences) or None,
                    issuer=self._rules.issuer,
                    options=_UNCHECKED,  # type: ignore[arg-type]
                )
                return claims
            except jwt.InvalidSignatureError:
                why = "the token's signature is wrong"
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
                raise BadToken(f"the token is not valid ({type(error).__name__})") from None
        raise BadToken(why)

    def _accepted(self, claims: Mapping[str, Any], now_ms: int) -> TokenAccepted:
        rules = self._rules
        expires_s = seconds_of(claims, "exp", needed=True)
        issued_s = seconds_of(claims, "iat", needed=True)
        starts_s = seconds_of(claims, "nbf", needed=False)
        assert expires_s is not None
        assert issued_s is not None
        if now_ms - rules.clock_skew_ms >= 1000 * expires_s:
            raise BadToken("the token has expired")
        if expires_s < issued_s or (starts_s is not None and expires_s < starts_s):
            raise BadToken("the token expires before it begins")
        if starts_s is not None and now_ms + rules.clock_skew_ms < 1000 * starts_s:
            raise BadToken("the token is not valid yet")
        scopes = scopes_of(claims, rules.scope_claim)
        if "" in scopes or len(set(scopes)) < len(scopes):
            raise BadToken(f"{rules.scope_claim} of the token has an empty scope, or one twice")
        name = claims.get(rules.subject_claim)
        if not isinstance(name, str) or not name.strip():
            raise BadToken(f"the token has no {rules.subject_claim}")
        return TokenAccepted(name.strip(), round(1000 * expires_s))


def _head_of(token: str) -> tuple[str | None, str]:
    """Returns the key id and the algorithm that a token says it was signed with."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise BadToken("the token is no signed JWS") from None
    key_id, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(algorithm, str) or algorithm.lower() == "none":
        raise BadToken("the token is not signed")
    return (key_id if isinstance(key_id, str) else None), algorithm
