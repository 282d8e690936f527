"""Authenticates by SASL: PLAIN, SCRAM-SHA-256 and -512 (RFC 5802), OAUTHBEARER (RFC 7628).

A mechanism is a generator: it yields what the client says and is sent what the broker answers. It raises Rejected when
the broker cannot be trusted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.config import ClientConfig
from kohort.client.core.arguments import shown
from kohort.client.core.effects import Failure, FailureKind
from kohort.client.io.transport import Greeter, Rejected
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kohort.wire.struct import Message

Exchange = Generator[bytes, bytes, None]
TokenSource = Callable[[], str]

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1 << 20  # more would keep this client busy for a hostile broker
SESSION_SHARE = 0.9
"""A session is renewed (by a new connection) after this much of its lifetime, as KIP-368 proposes."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism of SASL with its credentials."""

    name: str
    exchange: Callable[[], Exchange]


def mechanism_for(config: ClientConfig, objects: Mapping[str, Any]) -> Mechanism:
    """Returns what sasl.mechanism names, with its credentials."""
    name = config.sasl_mechanism
    if name == "OAUTHBEARER":
        token = _token_source(objects)
        return Mechanism(name, lambda: oauthbearer(token))
    username, password = credentials(config)
    if name == "PLAIN":
        return Mechanism(name, lambda: plain(username, password))
    digest = "sha256" if name == "SCRAM-SHA-256" else "sha512"
    return Mechanism(name, lambda: scram(digest, username, password))


def credentials(config: ClientConfig) -> tuple[str, str]:
    """Returns sasl.username and sasl.password, or what is in sasl.jaas.config."""
    if config.sasl_username:
        return config.sasl_username, config.sasl_password
    pairs = re.findall(r"""(username|password)\s*=\s*("[^"]*"|'[^']*'|[^\s;]+)""", config.sasl_jaas_config)
    found = {name: value.strip("\"'") for name, value in pairs}
    if found.keys() != {"username", "password"}:
        raise SettingError(
            "sasl.jaas.config names no username and password; give sasl.username and sasl.password instead"
        )
    return found["username"], found["password"]


def _token_source(objects: Mapping[str, Any]) -> TokenSource:
    source, callback = objects.get("sasl.oauthbearer.token"), objects.get("oauth_cb")
    if isinstance(source, str):
        return lambda: source
    if callable(source):
        return lambda: _token_of(source())
    if callable(callback):
        return lambda: _token_of(callback(""))
    raise SettingError(
        "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token: a callable that returns the token"
    )


def _token_of(given: object) -> str:
    """Returns the token, which may come by itself or as confluent-kafka's (token, expiry, …)."""
    token = given[0] if isinstance(given, tuple) else given
    if not isinstance(token, str) or not token:
        raise TypeError(f"a token is a str, not {type(token).__name__}")
    return token


def authenticate(connection: Greeter, mechanism: Mechanism) -> Generator[tuple[int, int, Message], Any, None]:
    """Makes the whole conversation; raises Rejected with what the broker had against it."""
    handshake: SaslHandshakeResponse = yield 17, 1, SaslHandshakeRequest(mechanism.name)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise _failed(f"the broker does not offer sasl.mechanism={mechanism.name}; it offers {offered}")
    _, version = connection.versions.get(36, (0, 0))
    exchange = mechanism.exchange()
    said = next(exchange)
    while True:
        answer: SaslAuthenticateResponse = yield 36, version, SaslAuthenticateRequest(said)
        if answer.error_code:
            said_no = answer.error_message or _name(answer.error_code)
            raise _failed(f"sasl.mechanism={mechanism.name}: {said_no}")
        try:
            said = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            break
    if answer.session_lifetime_ms > 0:
        connection.expire_at(connection.reactor.now_ms() + int(answer.session_lifetime_ms * SESSION_SHARE))


def plain(username: str, password: str) -> Exchange:
    yield b"\0" + username.encode() + b"\0" + password.encode()


def scram(digest: str, username: str, password: str, nonce: str | None = None) -> Exchange:
    """Has both sides prove that they know the password, without saying it."""
    client_nonce = nonce or secrets.token_urlsafe(24)
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={client_nonce}"
    server_first = (yield b"n,," + first.encode()).decode(errors="replace")
    fields = _fields(server_first)
    try:
        server_nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
        iterations = int(fields["i"])
    except (KeyError, ValueError):
        raise _failed(f"the broker's first SCRAM message makes no sense: {server_first!r}") from None
    if not server_nonce.startswith(client_nonce) or server_nonce == client_nonce:
        raise _failed("the broker's SCRAM nonce does not continue ours: it may be a replay")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise _failed(
            f"the broker asks for {iterations} SCRAM iterations: at least {MIN_ITERATIONS} are safe"
        )
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    without_proof = f"c=biws,r={server_nonce}"
    signed = f"{first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_last = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    last = _fields(server_last.decode(errors="replace"))
    if "e" in last:
        raise _failed(f"SCRAM: {last['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(base64.b64encode(expected).decode(), last.get("v", "")):
        raise _failed("the broker does not know the password either: its SCRAM signature is wrong")


def oauthbearer(token: TokenSource) -> Exchange:
    """Asks for the token on every connection. A broker that refuses it first says why, as JSON."""
    try:
        said = f"n,,\x01auth=Bearer {token()}\x01\x01".encode()
    except BaseException as error:  # SystemExit too: the thread may be one that others need
        raise _failed(f"the token callable of OAUTHBEARER raised {shown(error)}") from error
    challenge = yield said
    if challenge:
        yield b"\x01"
        raise _failed(f"the token was refused: {challenge.decode(errors='replace')}")


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)


def _failed(message: str) -> Rejected:
    return Rejected(Failure(FailureKind.AUTHENTICATION, message))
