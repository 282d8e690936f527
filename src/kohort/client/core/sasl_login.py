"""The client's side of SASL, without I/O: PLAIN, SCRAM-SHA-256 and -512 (RFC 5802), OAUTHBEARER (RFC 7628).

An exchange is a generator: it yields what the client says and is sent what the broker answers. `login` makes the
requests of it, for the first login of a connection and for those that renew its session (KIP-368). Both raise Rejected,
with words for the user, when the broker refuses us or cannot be trusted.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.core.effects import Failure, FailureKind, Rejected
from kohort.security.scram import ScramMechanism, escaped, masked, salted_password, scram_keys, stored_key
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kohort.wire.struct import Message

Exchange = Generator[bytes, bytes, None]
LoginRequests = Generator[tuple[int, int, Message], Any, int]
"""Yields requests (key, version, message) and is sent their responses; returns the session's lifetime in ms."""

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1 << 20  # more would keep this client busy for a hostile broker
RENEW_SHARE, RENEW_SPREAD = 0.85, 0.10
"""A session is renewed at 85 to 95 % of its lifetime, as Java does it: clients that came together do not all renew at
the same time."""
USED_SHARE = 0.98
"""A request that leaves later than this may come too late."""
SHORTEST_RENEWAL_MS = 1_000
"""A broker takes one re-authentication a second; a session that is shorter gets a new connection instead."""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """When a session must be renewed, and when it ends."""

    renew_ms: int
    expires_ms: int
    in_place: bool
    """Whether it is renewed on the same connection."""


def session_times(began_ms: int, lifetime_ms: int, chance: float) -> SessionTimes | None:
    """Returns the times of a session that began now; None for one that lasts as long as its connection.

    `chance` is a random number from 0 to 1.
    """
    if lifetime_ms <= 0:
        return None
    renew_ms = int(lifetime_ms * (RENEW_SHARE + RENEW_SPREAD * chance))
    in_place = renew_ms >= SHORTEST_RENEWAL_MS
    used_ms = int(lifetime_ms * USED_SHARE) if in_place else renew_ms
    return SessionTimes(began_ms + renew_ms, began_ms + used_ms, in_place)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A mechanism, a function that begins its exchange, and what a user should look at if it is refused."""

    mechanism: str
    begin: Callable[[], Exchange]
    to_check: str


def login(using: Credentials, versions: Mapping[int, tuple[int, int]]) -> LoginRequests:
    """Makes the whole conversation."""
    mechanism = using.mechanism
    handshake: SaslHandshakeResponse = yield 17, 1, SaslHandshakeRequest(mechanism)
    if handshake.error_code:
        raise _handshake_refused(mechanism, handshake)
    _, version = versions.get(36, (0, 0))
    exchange = using.begin()
    said = next(exchange)
    while True:
        answer: SaslAuthenticateResponse = yield 36, version, SaslAuthenticateRequest(said)
        if answer.error_code:
            said_no = answer.error_message or _name(answer.error_code)
            raise refusal(f"sasl.mechanism={mechanism}: {said_no}; check {using.to_check}")
        try:
            said = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer.session_lifetime_ms
        except Rejected as rejected:
            raise refusal(f"sasl.mechanism={mechanism}: {rejected.failure.message}") from rejected.__cause__


def _handshake_refused(mechanism: str, answer: SaslHandshakeResponse) -> Rejected:
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        return refusal(
            f"the broker does not offer sasl.mechanism={mechanism}; it offers {offered}: set sasl.mechanism to one of "
            "them, or have it enabled there (sasl.enabled.mechanisms)"
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        return refusal(
            f"the broker refuses sasl.mechanism={mechanism} with ILLEGAL_SASL_STATE: this listener has no SASL; set "
            "security.protocol to PLAINTEXT or SSL, or take the port of a listener with SASL"
        )
    return refusal(f"sasl.mechanism={mechanism}: the broker answers {_name(answer.error_code)}")


def plain(username: str, password: str) -> Exchange:
    """Says name and password."""
    yield b"\0" + username.encode() + b"\0" + password.encode()


def scram(mechanism: ScramMechanism, username: str, password: str, nonce: str) -> Exchange:
    """Has both sides prove that they know the password, without saying it."""
    first = f"n={escaped(username)},r={nonce}"
    server_first = (yield b"n,," + first.encode()).decode(errors="replace")
    server_nonce, salt, iterations = _server_first(server_first, nonce)
    salted = salted_password(mechanism, password, salt, iterations)
    client_key, server_key = scram_keys(mechanism, salted)
    without_proof = f"c=biws,r={server_nonce}"
    signed = f"{first},{server_first},{without_proof}".encode()
    proof = masked(client_key, hmac.digest(stored_key(mechanism, client_key), signed, mechanism.digest))
    server_last = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    last = _fields(server_last.decode(errors="replace"))
    if "e" in last:
        raise refusal(f"SCRAM: {last['e']}")
    expected = hmac.digest(server_key, signed, mechanism.digest)
    if not hmac.compare_digest(base64.b64encode(expected).decode(), last.get("v", "")):
        raise refusal("the broker does not know the password either: its SCRAM signature is wrong")


def _server_first(message: str, nonce: str) -> tuple[str, bytes, int]:
    fields = _fields(message)
    try:
        server_nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
        iterations = int(fields["i"])
    except (KeyError, ValueError):
        raise refusal(f"the broker's first SCRAM message makes no sense: {message!r}") from None
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise refusal("the broker's SCRAM nonce does not continue ours: it may be a replay")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise refusal(
            f"the broker asks for {iterations} SCRAM iterations: at least {MIN_ITERATIONS} are safe"
        )
    return server_nonce, salt, iterations


def oauthbearer(token: str, extensions: Mapping[str, str]) -> Exchange:
    """Shows a token. A broker that refuses it first says why, as JSON."""
    more = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    challenge = yield f"n,,\x01auth=Bearer {token}\x01{more}\x01".encode()
    if challenge:
        yield b"\x01"
        raise refusal(f"the token was refused: {challenge.decode(errors='replace')}")


def refusal(message: str) -> Rejected:
    """Makes the exception for a login that failed."""
    return Rejected(Failure(FailureKind.AUTHENTICATION, message))


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
