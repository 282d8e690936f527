"""Replays a transcript of a SASL connection: what the client says (`>`) and what the session does (`<`).

offers PLAIN SCRAM-SHA-256 reauth=5000   the listener; its users are alice (secret) and al,i=ce (secret)
> ApiVersions                            a request; ApiVersions! is one that is answered by an error
> SaslHandshake v1 PLAIN
> token \\0alice\\0secret                  in SaslAuthenticate, or raw after a handshake of version 0
> scram-first alice | scram-final secret a client that computes as RFC 5802 says; `scram-first alice m=x` has m=
> jwt sub=alice exp=+60                  an unsecured token; its times are seconds from now
wait 1000                                milliseconds pass
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from functools import partial

from kohort.security.credentials_file import PasswordHash
from kohort.security.mechanism import ServerExchange, SlowStep
from kohort.security.oauthbearer import OAuthBearerExchange, UnsecuredTokens
from kohort.security.plain import PlainExchange, PlainPasswords
from kohort.security.sasl import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    AuthenticateAnswer,
    Gate,
    SaslOffer,
    SaslSession,
)
from kohort.security.scram import ScramCredential, ScramExchange, ScramMechanism, salted_password
from kohort.wire.errors import ErrorCode

KEYS = {"ApiVersions": API_VERSIONS, "SaslHandshake": SASL_HANDSHAKE, "Metadata": 3, "Fetch": 1}
SECRET = b"0123456789abcdef0123456789abcdef"
PASSWORD = "secret"
BEGIN_MS = 1_700_000_000_000
ITERATIONS = 4096
HASH = PasswordHash.of(PASSWORD, b"0123456789abcdef", 10)


def credential(mechanism: ScramMechanism, password: str = PASSWORD) -> ScramCredential:
    salt = b"salt of a user"
    return ScramCredential.of(
        mechanism, salted_password(mechanism, password, salt, ITERATIONS), salt, ITERATIONS
    )


def begin(mechanism: str) -> ServerExchange:
    if mechanism == "PLAIN":
        hashed = {"bob": HASH, "al,i=ce": HASH}
        return PlainExchange(PlainPasswords({"alice": PASSWORD}, lambda: hashed, SECRET))
    if mechanism == "OAUTHBEARER":
        return OAuthBearerExchange(UnsecuredTokens(required_scope=("kafka",)))
    scram = ScramMechanism[mechanism.replace("-", "_")]

    def look_up(user: str) -> ScramCredential | None:
        return credential(scram) if user in ("alice", "al,i=ce") else None

    return ScramExchange(scram, look_up, "SERVER", SECRET)


def offer(mechanisms: list[str], reauth_ms: int = 0) -> SaslOffer:
    return SaslOffer(
        {each: partial(begin, each) for each in mechanisms}, dict.fromkeys(mechanisms, reauth_ms)
    )


def unsecured_jwt(now_ms: int = BEGIN_MS, alg: str = "none", **claims: object) -> str:
    """Returns a token without a signature; `exp="+60"` is a minute from now."""
    for name in ("exp", "iat"):
        if isinstance(claims.get(name), str):
            claims[name] = now_ms // 1000 + int(str(claims[name]))
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in ({"alg": alg}, claims)]
    return ".".join(part.decode().rstrip("=") for part in parts) + "."


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


class ScramClient:
    """The client's side, written from RFC 5802 and not from our client."""

    def __init__(self, mechanism: str, nonce: str = "CLIENT") -> None:
        self._digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._nonce = nonce

    def first(self, user: str, reserved: str = "") -> bytes:
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        return f"n,,{reserved and reserved + ','}{self._bare}".encode()

    def final(self, told: bytes, password: str) -> bytes:
        server_first = told.decode()
        parts = dict(part.split("=", 1) for part in server_first.split(","))
        salted = hashlib.pbkdf2_hmac(
            self._digest, password.encode(), base64.b64decode(parts["s"]), int(parts["i"])
        )
        key = hmac.digest(salted, b"Client Key", self._digest)
        bare = f"c=biws,r={parts['r']}"
        signature = hmac.digest(
            hashlib.new(self._digest, key).digest(),
            f"{self._bare},{server_first},{bare}".encode(),
            self._digest,
        )
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()


class Replay:
    """One session and its client."""

    def __init__(self) -> None:
        self.now_ms = BEGIN_MS
        self.session = SaslSession(offer(["PLAIN"]))
        self._mechanism, self._told = "", b""

    def lines(self, text: str) -> Iterator[str]:
        for line in text.splitlines():
            if line.startswith("<"):
                continue
            yield line
            word, _, rest = line.partition(" ")
            if word == "offers":
                names, reauth_ms = rest.split(), 0
                if names[-1].startswith("reauth="):
                    reauth_ms = int(names.pop().removeprefix("reauth="))
                self.session = SaslSession(offer(names, reauth_ms))
            elif word == "wait":
                self.now_ms += int(rest)
            elif word == ">":
                yield f"< {self._answer(rest)}"

    def _answer(self, said: str) -> str:
        name, _, rest = said.partition(" ")
        is_token = name not in KEYS and name != "ApiVersions!"
        if not (is_token and self.session.takes_raw_tokens):
            key = SASL_AUTHENTICATE if is_token else KEYS[name.removesuffix("!")]
            gate = self.session.gate(key, self.now_ms)
            if gate is not Gate.SERVED:
                return gate.name.lower()
        if is_token:
            return self._token(self._message(name, rest))
        if name == "SaslHandshake":
            version, _, self._mechanism = rest.partition(" ")
            answer = self.session.handshake(self._mechanism, int(version[1:]), self.now_ms)
            end = "; closes" if answer.closes else ""
            return f"{answer.error.name} [{', '.join(answer.mechanisms)}]{end}"
        if name == "ApiVersions":
            self.session.versions_told()
        return "served"

    def _message(self, name: str, rest: str) -> bytes:
        match name:
            case "scram-first":
                self._client = ScramClient(self._mechanism)
                return self._client.first(*rest.split())
            case "scram-final":
                return self._client.final(self._told, rest)
            case "jwt":
                return bearer(unsecured_jwt(self.now_ms, **dict(each.split("=", 1) for each in rest.split())))
        return rest.encode().decode("unicode_escape").encode("latin-1")

    def _token(self, token: bytes) -> str:
        answer = self.session.authenticate(token, self.now_ms)
        slowly = ""
        if isinstance(answer, SlowStep):
            assert self.session.gate(SASL_AUTHENTICATE, self.now_ms) is Gate.CLOSED
            slowly = " (slow)"
            answer = self.session.conclude(answer.then(answer.work(), self.now_ms), self.now_ms)
        self._told = answer.told
        return self._shown(answer) + slowly

    def _shown(self, answer: AuthenticateAnswer) -> str:
        parts = [answer.error.name]
        if answer.message is not None:
            parts.append(f'"{answer.message}"')
        if answer.told:
            parts.append(answer.told.decode())
        if self.session.is_authenticated and answer.error is ErrorCode.NONE:
            parts.append(f"is {self.session.principal} for {answer.session_lifetime_ms} ms")
        return " ".join(parts) + ("; closes" if answer.closes else "")


def replay(text: str) -> str:
    """Returns the transcript with what the session does now."""
    return "\n".join(Replay().lines(text)) + "\n"
